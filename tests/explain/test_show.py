"""What stands in the figure is what was in the array, pixel by pixel, of any framework."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib as mpl
import ml_dtypes
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from relurules.pictures import magnitude, overlay, save, show, signed

RNG = np.random.default_rng(0)
LAST = RNG.normal(size=(2, 30, 20, 3))
FIRST = np.moveaxis(LAST, -1, 1)
PHOTOS = RNG.integers(0, 256, (2, 30, 20, 3), dtype=np.uint8)


def _bytes(colours: np.ndarray) -> np.ndarray:
    return np.rint(colours * 255).astype(np.uint8)


def _rendered(figure: Figure) -> np.ndarray:
    with Image.open(io.BytesIO(figure._repr_png_())) as picture:
        return np.asarray(picture.convert("RGB"))


def _seen(figure: Figure) -> list[np.ndarray]:
    """Return each picture as it was rendered, shrunk by the whole number it was enlarged by."""
    whole = _rendered(figure)
    found = []
    for axes in figure.axes:
        height, width = axes.images[0].get_array().shape[:2]
        box = axes.get_window_extent()
        left, top = round(box.x0), whole.shape[0] - round(box.y1)
        zoom, rest = divmod(round(box.height), height)
        assert rest == 0
        cut = whole[top : top + height * zoom, left : left + width * zoom]
        small = cut[::zoom, ::zoom]
        assert np.array_equal(np.kron(small, np.ones((zoom, zoom, 1), np.uint8)), cut)
        found.append(small)
    return found


def _titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def test_what_is_rendered_is_the_colours_to_the_pixel() -> None:
    figure = show(
        {"guided": FIRST}, image=PHOTOS, style=["signed", "magnitude", "overlay"], note="long " * 99
    )
    wanted = [
        picture
        for values, photo in zip(LAST, PHOTOS, strict=True)
        for picture in (
            photo,
            _bytes(signed(values)),
            _bytes(magnitude(values)),
            _bytes(overlay(values, photo / 255)),
        )
    ]
    for seen, picture in zip(_seen(figure), wanted, strict=True):
        assert np.array_equal(seen, picture)


@pytest.mark.parametrize("size", [(224, 224), (300, 200), (7, 9)])
def test_no_pixel_is_lost_or_blurred(size: tuple[int, int]) -> None:
    values = RNG.normal(size=(*size, 3))
    assert np.array_equal(_seen(show(values))[0], _bytes(signed(values)))


@pytest.mark.parametrize(
    "values",
    [LAST[0], FIRST[0], LAST[:1], FIRST[:1]],
    ids=["last", "first", "samples, last", "samples, first"],
)
def test_layouts_agree(values: np.ndarray) -> None:
    assert np.array_equal(_seen(show(values))[0], _bytes(signed(LAST[0])))


@pytest.mark.parametrize("shape", [(30, 20), (1, 30, 20), (30, 20, 1), (1, 30, 20, 1)])
def test_a_map_without_colours_is_grey(shape: tuple[int, ...]) -> None:
    values = LAST[0, :, :, 0].reshape(shape)
    (seen,) = _seen(show(values, channel_axis=-1 if len(shape) > 3 else None))
    assert np.array_equal(seen, _bytes(signed(LAST[0, :, :, :1])))
    assert np.array_equal(seen[..., 0], seen[..., 2])


ROUGH = LAST[0].astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor(ROUGH.astype(np.float32)),
        torch.tensor(ROUGH.astype(np.float32), requires_grad=True),
        torch.tensor(ROUGH.astype(np.float32)).bfloat16(),
        torch.tensor(ROUGH.astype(np.float64)).permute(2, 0, 1),
        jnp.asarray(ROUGH.astype(np.float32)),
        jnp.asarray(ROUGH),
        ROUGH,
        ROUGH.astype(np.float32).tolist(),
    ],
    ids=["torch", "grad", "torch bf16", "view", "jax", "jax bf16", "numpy bf16", "list"],
)
def test_frameworks_agree(values) -> None:
    assert np.array_equal(_seen(show(values))[0], _bytes(signed(ROUGH.astype(np.float64))))


def test_an_image_of_floats_and_one_of_bytes_are_the_same() -> None:
    bytes_, floats = (
        _seen(show(LAST, image=image))[0] for image in (PHOTOS, (PHOTOS / 255).astype(np.float32))
    )
    assert np.array_equal(bytes_, floats)


def test_an_image_may_have_another_layout_than_its_map() -> None:
    mixed = _seen(show(FIRST, image=PHOTOS, channel_axis=1))
    assert np.array_equal(mixed[0], PHOTOS[0])


def test_titles_say_what_each_picture_is() -> None:
    assert _titles(show({"a": LAST, "b": LAST}, image=PHOTOS, titles=["cat", "cup"])) == (
        ["cat", "a", "b", "cup", "a", "b"]
    )
    assert _titles(show({"a": LAST}, titles=["cat", "cup"])) == ["cat: a", "cup: a"]
    assert _titles(show(LAST[0], style=["signed", "magnitude"])) == ["signed", "magnitude"]
    styles = _titles(show({"a": LAST[0]}, style=["signed", "magnitude"]))
    assert styles == ["a, signed", "a, magnitude"]


def test_text_lies_on_no_picture() -> None:
    long = "a long heading or title of many words " * 9
    figure = show({long: LAST}, image=PHOTOS, titles=[long, long], heading=long, note=long)
    _rendered(figure)
    texts = [*figure.texts, *(axes.title for axes in figure.axes)]
    assert len(texts) == 2 + 4
    for text in texts:
        box = text.get_window_extent().padded(-1)  # so that touching is not overlapping
        assert box.y0 >= 0
        assert box.y1 <= figure.bbox.height
        for axes in figure.axes:
            assert not box.overlaps(axes.get_window_extent())


def test_the_file_is_the_figure(tmp_path: Path) -> None:
    out = save(tmp_path / "map.png", LAST, style="magnitude")
    with Image.open(out) as picture:
        assert np.array_equal(
            np.asarray(picture.convert("RGB")), _rendered(show(LAST, style="magnitude"))
        )


def test_a_notebook_displays_it() -> None:
    assert show(LAST)._repr_png_().startswith(b"\x89PNG")


def test_nothing_of_matplotlib_is_changed_or_left_open() -> None:
    code = (
        "import sys, numpy as np\nfrom relurules.pictures import signed, show\n"
        "assert 'matplotlib' not in sys.modules\nshow(np.eye(4))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules and 'jax' not in sys.modules"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "relurules.pictures._figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'relurules\[explain\]'"):
        show(LAST)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 8, 3), "axis 0 or 2"),
        ((1, 8, 1), "axis 0 or 2"),
        ((2, 1, 8, 3), "axis 1 or 3"),
        ((4, 8, 8), "neither axis 0 nor the last"),
        ((2, 4, 8, 8), "neither axis 1 nor the last"),
        ((8,), r"is \(8,\)"),
        ((1, 1, 3, 8, 8), r"is \(1, 1, 3, 8, 8\)"),
        ((0, 8), r"is \(0, 8\)"),
    ],
)
def test_a_shape_that_can_be_read_in_no_way_or_two(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show(np.ones(shape))


@pytest.mark.parametrize("axis", [0, -3])
def test_the_axis_of_colours_can_be_said(axis: int) -> None:
    values = RNG.normal(size=(3, 8, 3))
    (seen,) = _seen(show(values, channel_axis=axis))
    assert np.array_equal(seen, _bytes(signed(np.moveaxis(values, 0, -1))))


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 8, 8), 0), ((3, 8, 8), 1), ((3, 8, 8), 3)])
def test_an_axis_that_holds_no_colours(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(ValueError, match=f"channel_axis={axis} does not fit"):
        show(np.ones(shape), channel_axis=axis)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_has_no_colour_is_an_error_that_names_the_map(bad: float) -> None:
    values = LAST.copy()
    values[1, 2, 3, 0] = bad
    with pytest.raises(ValueError, match=r"1 of the 3600 values of the map 'guided' are NaN"):
        show({"standard": LAST, "guided": values})


@pytest.mark.parametrize(
    "values",
    [LAST + 0j, torch.ones(3, 8, 8, dtype=torch.complex64), np.full((8, 8), "a"), object()],
)
def test_what_is_no_real_numbers(values) -> None:
    with pytest.raises(TypeError, match="array of real numbers"):
        show(values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "sigend"}, "did you mean 'signed'"),
        ({"style": []}, "no style to draw in"),
        ({"style": "overlay"}, "pass image="),
        ({"image": PHOTOS[:1]}, "image and the maps differ"),
        ({"image": PHOTOS[:, :-1]}, "image and the maps differ"),
        ({"image": LAST}, "from before normalisation"),
        ({"titles": ["cat"]}, "1 titles for 2 samples"),
        ({"percentile": 0}, "above 0 and up to 100"),
    ],
)
def test_an_option_that_does_not_fit(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show(LAST, **options)


def test_maps_of_different_sizes_and_no_maps() -> None:
    with pytest.raises(ValueError, match=r"maps differ.*'b': \(1, 30, 20\)"):
        show({"a": LAST, "b": LAST[0]})
    with pytest.raises(ValueError, match="mapping is empty"):
        show({})


SETTINGS = {
    "image.origin": "lower",
    "savefig.dpi": 150,
    "savefig.bbox": "tight",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_matplotlib_change_no_pixel(tmp_path: Path, name: str) -> None:
    steps = np.arange(64.0).reshape(8, 8)
    wanted = _rendered(show(steps))
    with mpl.rc_context({name: SETTINGS[name]}):
        shown = _rendered(show(steps))
        save(tmp_path / "maps.png", steps)
    assert np.array_equal(shown, wanted)
    with Image.open(tmp_path / "maps.png") as picture:
        assert np.array_equal(np.asarray(picture.convert("RGB")), wanted)


def test_a_file_needs_a_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no suffix"):
        save(tmp_path / "maps", np.eye(4))
    assert not list(tmp_path.iterdir())
