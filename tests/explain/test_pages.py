"""Which file gets what, and that no photograph is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relurules.explain import ExplainError
from relurules.explain._pages import Page, check_free, pages, write
from relurules.pictures import show


def test_a_png_takes_all_and_a_folder_one_each(tmp_path: Path) -> None:
    images = [Path("a/cat.png"), Path("b/cup.jpg")]
    assert pages(images, tmp_path / "all.png") == [Page(out=tmp_path / "all.png", images=images)]
    assert pages(images, tmp_path / "new") == [
        Page(out=tmp_path / "new" / "cat.png", images=images[:1]),
        Page(out=tmp_path / "new" / "cup.png", images=images[1:]),
    ]


def test_a_folder_that_is_there_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "run.png"
    folder.mkdir()
    assert pages([Path("cat.jpg")], folder)[0].out == folder / "cat.png"


@pytest.mark.parametrize("out", ["cat.png", "."])
def test_a_photograph_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExplainError, match="replaced by its own maps"):
        pages([tmp_path / "cat.png"], Path(out))


def test_two_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    with pytest.raises(ExplainError, match=r"named like a.cat\.png"):
        pages([Path("a/cat.png"), Path("b/cat.jpg"), Path("dog.png")], tmp_path)


def test_too_many_for_one_file(tmp_path: Path) -> None:
    images = [Path(f"{index}.jpg") for index in range(65)]
    assert len(pages(images[:64], tmp_path / "all.png")) == 1
    with pytest.raises(ExplainError, match=r"64 photographs, and there are 65.*folder"):
        pages(images, tmp_path / "all.png")


@pytest.mark.parametrize("name", ["maps.pdf", "file"])
def test_what_is_neither(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExplainError, match="neither a name ending in .png nor a folder"):
        pages([Path("cat.png")], tmp_path / name)


@pytest.mark.parametrize("out", ["keep/cat.png", "keep"])
def test_nothing_that_is_not_ours_is_replaced(tmp_path: Path, out: str) -> None:
    """Another photograph may lie where the maps of this one should go."""
    (tmp_path / "keep").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "keep" / "cat.png")
    with pytest.raises(ExplainError, match=r"cat\.png' is there, and not a picture that relurules"):
        pages([tmp_path / "cat.jpg"], tmp_path / out)


def test_text_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "maps.png").write_text("notes")
    with pytest.raises(ExplainError, match="not a picture that relurules wrote"):
        check_free(tmp_path / "maps.png")


def test_our_own_picture_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "new" / "maps.png"
    for _ in range(2):
        check_free(out)
        write(show(np.eye(8)), out)
    assert pages([tmp_path / "cat.jpg"], out) == [Page(out=out, images=[tmp_path / "cat.jpg"])]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExplainError, match="file' is no folder"):
        pages([Path("cat.jpg")], tmp_path / "file" / "maps.png")
