"""The picture that ascent draws on: natural at the start, the same again for a seed."""

from __future__ import annotations

import torch

from relurules.explain._canvas import Canvas, View


def _random(seed: int = 0, size: int = 48) -> Canvas:
    return Canvas.random(size=size, generator=torch.Generator().manual_seed(seed))


def test_it_starts_as_faint_noise_around_grey() -> None:
    pixels = _random().pixels().detach()
    assert pixels.shape == (3, 48, 48)
    assert 0.0 < float((pixels - 0.5).abs().max()) < 0.1


def test_a_seed_gives_the_same_start() -> None:
    assert torch.equal(_random(1).pixels(), _random(1).pixels())
    assert not torch.equal(_random(1).pixels(), _random(2).pixels())


def test_low_frequencies_are_louder() -> None:
    canvas = _random()
    flat = Canvas(spectrum=torch.zeros_like(canvas.spectrum), size=48)
    slow, fast = flat.spectrum.clone(), flat.spectrum.clone()
    slow[0, 0, 1, 0], fast[0, 0, 20, 0] = 1.0, 1.0
    contrast = [
        float(Canvas(spectrum=one, size=48).pixels().detach().std()) for one in (slow, fast)
    ]
    assert contrast[0] > 10 * contrast[1]


def test_every_coefficient_that_is_seen_gets_a_gradient() -> None:
    canvas = _random(size=32)
    canvas.pixels().square().sum().backward()
    grad = canvas.spectrum.grad
    assert grad is not None
    assert bool((grad[..., 0] != 0).all())


def test_a_still_view_is_the_framed_picture() -> None:
    pixels = torch.rand(3, 20, 20)
    still = View(margin=3, shift=0.0, turn=0.0, zoom=0.0)
    seen = still(pixels, torch.Generator())
    torch.testing.assert_close(seen[:, 3:-3, 3:-3], pixels, atol=1e-5, rtol=0)
    torch.testing.assert_close(seen[:, 0], torch.full((3, 26), 0.5))


def test_a_shift_stays_within_its_bound() -> None:
    dot = torch.full((1, 21, 21), 0.5)
    dot[0, 10, 10] = 1.0
    view, generator = View(margin=5, shift=4.0, turn=0.0, zoom=0.0), torch.Generator()
    for _ in range(50):
        place = (view(dot, generator)[0] - 0.5).argmax().item()
        row, column = divmod(int(place), 31)
        assert abs(row - 15) <= 4
        assert abs(column - 15) <= 4
