"""A network is shown what the user meant, or the user hears why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from relurules.explain import ExplainError, find_images, load_image, samples


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1"])
def test_every_kind_of_picture_becomes_three_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "white.png"
    Image.new("RGB", (50, 30), "white").convert(mode).save(path)
    assert torch.equal(load_image(path, size=16), torch.ones(3, 16, 16))


def test_the_centre_is_what_is_kept(tmp_path: Path) -> None:
    wide = Image.new("RGB", (90, 30), "red")
    wide.paste("blue", (30, 0, 60, 30))
    wide.save(tmp_path / "wide.png")
    pixels = load_image(tmp_path / "wide.png", size=30)
    assert torch.equal(pixels, torch.tensor([0.0, 0.0, 1.0])[:, None, None].expand(3, 30, 30))


def test_a_sample_is_found_by_name_and_a_file_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_image("chelsea").shape == (3, 224, 224)
    Image.new("RGB", (8, 8), "black").save(tmp_path / "mine.png")
    (tmp_path / "mine.png").rename(tmp_path / "chelsea")
    monkeypatch.chdir(tmp_path)
    assert load_image("chelsea", size=8).max() == 0


def test_samples_are_files_that_are_there() -> None:
    assert {"chelsea", "coffee", "camera"} <= samples().keys()
    assert all(path.is_file() for path in samples().values())


def test_a_missing_file_is_an_error_that_names_the_samples() -> None:
    with pytest.raises(ExplainError, match=r"'chelsae'.*did you mean 'chelsea'.*coffee"):
        load_image("chelsae")


def test_what_is_no_picture_is_an_error(tmp_path: Path) -> None:
    text = tmp_path / "notes.png"
    text.write_text("not a picture")
    for path in (text, tmp_path):
        with pytest.raises(ExplainError, match="cannot be read as a picture"):
            load_image(path)


def test_a_truncated_picture_is_an_error(tmp_path: Path) -> None:
    whole = samples()["chelsea"].read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ExplainError, match="cannot be read as a picture"):
        load_image(tmp_path / "half.png")


def test_a_picture_of_sixteen_bits_is_refused_not_clipped(tmp_path: Path) -> None:
    Image.new("I;16", (8, 8), 4096).save(tmp_path / "deep.png")
    with pytest.raises(ExplainError, match="kind 'I;16'; convert it to 8 bits"):
        load_image(tmp_path / "deep.png")


def test_a_picture_that_is_turned_by_its_exif_is_turned(tmp_path: Path) -> None:
    tall = Image.new("RGB", (10, 20), "red")
    tall.paste("blue", (0, 10, 10, 20))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    tall.save(tmp_path / "turned.png", exif=exif)
    pixels = load_image(tmp_path / "turned.png", size=10)
    assert pixels[2, 0, 0] == 1
    assert pixels[0, -1, 0] == 1


def test_a_folder_means_its_pictures_in_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "notes.txt"):
        Image.new("RGB", (8, 8)).save(tmp_path / name, format="PNG")
    found = find_images([tmp_path, "chelsea", tmp_path / "b.png"])
    assert [path.name for path in found] == ["a.JPG", "b.png", "chelsea.png", "b.png"]


def test_a_folder_without_a_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a picture")
    with pytest.raises(ExplainError, match="has no picture in it"):
        find_images([tmp_path])
