"""Maps in Torch: Captum's numbers where Captum is right, and nobody's gradient touched."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import Deconvolution, GuidedBackprop, Saliency
from small import CLASSES, Net
from torch import Tensor, nn
from torch.nn import functional

import relurules


class Dense(nn.Module):
    """One output for each pixel and class."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, CLASSES, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


PEERS = {"standard": Saliency, "guided": GuidedBackprop, "deconv": Deconvolution}


@pytest.mark.parametrize("rule", PEERS)
def test_map_is_captums(net: Net, images: Tensor, rule: str) -> None:
    options = {"abs": False} if rule == "standard" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Captum: on its hooks, and on leaves
        expected = PEERS[rule](net).attribute(images.clone(), target=3, **options)
    found = relurules.attribute(net, images, 3, rule)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
    assert found.abs().max() > 0


@pytest.mark.parametrize("smooth", [0, 7])
@pytest.mark.parametrize("target", [None, 2, [1, 0, 4, 2]])
def test_batched_is_one_by_one(net: Net, images: Tensor, smooth: int, target: Any) -> None:
    together = relurules.attribute(net, images, target, smooth=smooth)
    single = [
        relurules.attribute(
            net, images[i : i + 1], target[i : i + 1] if isinstance(target, list) else target,
            smooth=smooth,
        )
        for i in range(len(images))
    ]  # fmt: skip
    torch.testing.assert_close(together, torch.cat(single), rtol=1e-12, atol=1e-15)


TARGETS = {
    "index": (2, lambda y: y[:, 2]),
    "negative index": (-1, lambda y: y[:, -1]),
    "one-tuple": ((2,), lambda y: y[:, 2]),
    "list": ([0, 1, 2, 3], lambda y: y[range(4), range(4)]),
    "tensor": (torch.tensor([3, 1, 0, 2]), lambda y: y[range(4), [3, 1, 0, 2]]),
    "scalar tensor": (torch.tensor(4), lambda y: y[:, 4]),
    "NumPy": (np.array([3, 1, 0, 2]), lambda y: y[range(4), [3, 1, 0, 2]]),
    "callable": (lambda y: y[:, 1] - y[:, 0], lambda y: y[:, 1] - y[:, 0]),
    "callable of many outputs": (lambda y: y.square().sum(1), lambda y: y.square().sum(1)),
    "largest": (None, lambda y: y.max(dim=1).values),
}


@pytest.mark.parametrize("name", TARGETS)
def test_target(net: Net, images: Tensor, name: str) -> None:
    target, score = TARGETS[name]
    x = images.clone().requires_grad_()
    with relurules.apply(net, "guided") as ruled:
        total = score(ruled(x)).sum()
    (expected,) = torch.autograd.grad(total, x)
    assert torch.equal(relurules.attribute(net, images, target), expected)


@pytest.mark.parametrize(
    "target", [(2, 3, 1), [(2, 3, 1), (0, 0, 0), (4, 13, 11), (1, 1, 1)], None]
)
def test_target_among_many_axes(images: Tensor, target: Any) -> None:
    torch.manual_seed(0)
    model = Dense().double()
    x = images.clone().requires_grad_()
    with relurules.apply(model, "guided") as ruled:
        y = ruled(x)
    if target is None:
        total = y.flatten(1).max(dim=1).values.sum()
    else:
        places = [target] * 4 if isinstance(target, tuple) else target
        total = sum(y[(i, *place)] for i, place in enumerate(places))
    (expected,) = torch.autograd.grad(total, x)
    assert torch.equal(relurules.attribute(model, images, target), expected)


BAD = {
    "too large": (CLASSES, IndexError, "out of range"),
    "too small": (-CLASSES - 1, IndexError, "out of range"),
    "one of several too large": ([0, 1, 2, 9], IndexError, r"\[9\] is out of range"),
    "too many axes": ((1, 2), ValueError, "one index"),
    "too few": ([1, 2], ValueError, "2 targets for 4 samples"),
    "float": (1.5, TypeError, "1.5"),
    "bool": (True, TypeError, "True"),
    "name": ("cat", TypeError, "'cat'"),
    "no score": (lambda y: y, ValueError, "one number for each sample"),
    "no array": (lambda y: [y], TypeError, "list"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("smooth", [0, 4])
def test_bad_target(net: Net, images: Tensor, name: str, smooth: int) -> None:
    target, error, message = BAD[name]
    with pytest.raises(error, match=message):
        relurules.attribute(net, images, target, smooth=smooth)


def test_nan_is_no_largest_output(net: Net, images: Tensor) -> None:
    images[1, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        relurules.attribute(net, images)


def test_several_inputs() -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return functional.relu(a * b).sum(1, keepdim=True)

    a, b = torch.rand(3, 4) - 0.5, torch.rand(3, 4)
    for smooth in (0, 5):
        found = relurules.attribute(Two(), (a, b), 0, smooth=smooth, sigma=0)
        assert isinstance(found, tuple)
        torch.testing.assert_close(found, ((a * b > 0) * b, (a * b > 0) * a))


def test_nothing_of_the_user_is_touched(net: Net, images: Tensor) -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return self.net(functional.relu_(x))

    model = InPlace()
    before, state = images.clone(), {k: v.clone() for k, v in model.state_dict().items()}
    images.requires_grad_()
    for smooth in (0, 3):
        found = relurules.attribute(model, images, smooth=smooth)
        assert not found.requires_grad
    relurules.occlusion(model, images, window=(None, 4, 4), stride=4)
    assert torch.equal(images.detach(), before)
    assert images.grad is None
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_map_where_gradients_are_off(net: Net, images: Tensor, context: Any) -> None:
    expected = relurules.attribute(net, images, 1)
    with context():
        inside = images * 1
        assert torch.equal(relurules.attribute(net, inside, 1), expected)


def test_score_is_what_is_read_whatever_the_rules_convention(images: Tensor) -> None:
    """A dead unit lets through what raises it: ascent, not descent."""
    dead = nn.Sequential(nn.ReLU(), nn.Flatten())
    x = -images
    found = relurules.attribute(dead, x, 0, "redirected")
    assert float(found[0].sum()) == 1.0
    falling = relurules.attribute(dead, x, lambda y: -y[:, 0], "redirected")
    assert float(falling.abs().sum()) == 0.0


def test_rule_none_is_the_models_own_gradient(images: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(504, 3), nn.GELU()).double()
    x = images.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
    assert torch.equal(relurules.attribute(model, images, 1, None), expected)
    with pytest.raises(relurules.NoActivationError):
        relurules.attribute(model, images, 1, "guided")


def test_options_reach_apply(net: Net, images: Tensor) -> None:
    found = relurules.attribute(net, images, 1, "deconv", exclude="*relu1")
    x = images.clone().requires_grad_()
    with relurules.apply(net, "deconv", exclude="*relu1") as ruled:
        (expected,) = torch.autograd.grad(ruled(x)[:, 1].sum(), x)
    assert torch.equal(found, expected)


def test_call_reaches_other_methods(net: Net, images: Tensor) -> None:
    class Clip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def encode_image(self, x: Tensor) -> dict[str, Tensor]:
            return {"features": self.net(x)}

    call = lambda model, x: model.encode_image(x)["features"]  # noqa: E731
    found = relurules.attribute(Clip(), images, 1, call=call)
    assert torch.equal(found, relurules.attribute(net, images, 1))
    with pytest.raises(TypeError, match="dict.*call="):
        relurules.attribute(Clip(), images, 1, call=lambda model, x: model.encode_image(x))


def test_one_sample_without_a_batch_axis(images: Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Flatten(0), nn.Linear(56 * 3, 3)).double()
    one = images[0]
    x = one.clone().requires_grad_()
    with relurules.apply(model, "redirected", gradient_of="score", batch_axis=None) as ruled:
        (expected,) = torch.autograd.grad(ruled(x)[2], x)
    found = relurules.attribute(model, one, 2, "redirected", batched=False)
    assert torch.equal(found, expected)
    largest = relurules.attribute(model, one, batched=False)
    index = int(model(one).argmax())
    assert torch.equal(largest, relurules.attribute(model, one, lambda y: y[index], batched=False))
    covered = relurules.occlusion(model, one, 2, window=(None, 7, 6), stride=4, batched=False)
    assert covered.shape == one.shape


def test_score_that_does_not_depend_on_the_input(net: Net, images: Tensor) -> None:
    with pytest.raises(ValueError, match="does not depend on the input"):
        relurules.attribute(net, images, 0, call=lambda model, x: model(x.detach()).detach())
    with pytest.raises(ValueError, match="does not depend on input 1"):
        relurules.attribute(net, (images, images), 0, call=lambda model, x, _: model(x))


def test_integers_have_no_gradient(net: Net) -> None:
    with pytest.raises(TypeError, match="floating point; got torch.int64"):
        relurules.attribute(net, torch.ones(1, 3, 8, 8, dtype=torch.int64), 0)
    with pytest.raises(TypeError, match="numpy.ndarray"):
        relurules.attribute(net, np.ones((1, 3, 8, 8)), 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to(dtype)
    x = torch.rand(2, 4).to(dtype)
    for smooth in (0, 3):
        assert relurules.attribute(model, x, 0, smooth=smooth, batch_size=1).dtype == dtype
    assert relurules.occlusion(model, x, 0, window=(2,)).dtype == dtype


def test_target_that_counts_on_the_samples_is_refused(net: Net, images: Tensor) -> None:
    """With several copies of the samples it would explain the first copy alone."""
    target = lambda y: y[range(4), [0, 1, 2, 3]]  # noqa: E731
    assert torch.equal(
        relurules.attribute(net, images, target), relurules.attribute(net, images, [0, 1, 2, 3])
    )
    with pytest.raises(ValueError, match=r"shape \(4,\) for 12 samples.*any number of rows"):
        relurules.attribute(net, images, target, smooth=12)
    with pytest.raises(ValueError, match=r"shape \(4,\) for .* samples"):
        relurules.occlusion(net, images, target, window=(None, 7, 6), stride=6)


@pytest.mark.parametrize("target", [None, 1, [0, 1, 2, 0], lambda y: y[:, 0]])
def test_outputs_that_are_no_rows_of_samples(images: Tensor, target: Any) -> None:
    """Boxes, patches or crops of several samples along one axis."""

    class Boxes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.relu(x).permute(0, 2, 3, 1).reshape(-1, 3)

    with pytest.raises(ValueError, match=r"for 4 samples"):
        relurules.attribute(Boxes(), images, target)


SCALARS = {
    "first row": lambda y: y[0, 3],
    "mean": lambda y: y[:, 3].mean(),
    "sum": lambda y: y[:, 3].sum(),
}


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("options", [{}, {"smooth": 8}, {"batch_size": 1}, {"batch_size": 3}])
def test_one_score_for_several_samples_is_refused(
    net: Net, images: Tensor, name: str, options: Any
) -> None:
    """It would explain one sample, or all of them by a share that the batch size decides."""
    for x in (images, images[:1]):
        with pytest.raises(ValueError, match=r"scores of shape \(\) for .* samples"):
            relurules.attribute(net, x, SCALARS[name], **options)


def test_output_without_a_sample_axis(net: Net, images: Tensor) -> None:
    squeezed = lambda model, x: model(x).squeeze(0)  # noqa: E731
    for target in (3, None):
        with pytest.raises(ValueError, match=r"shape \(5,\) for 1 samples.*axis 0"):
            relurules.attribute(net, images[:1], target, call=squeezed)
        with pytest.raises(ValueError, match=r"shape \(\) for 1 samples"):
            relurules.attribute(net, images[:1], target, call=lambda model, x: model(x)[0, 0])
    flat = lambda model, x: model(x)[:, 0]  # noqa: E731
    expected = relurules.attribute(net, images, 0)
    assert torch.equal(relurules.attribute(net, images, (), call=flat), expected)


@pytest.mark.parametrize("rule", ["guided", None])
def test_unknown_option(net: Net, images: Tensor, rule: Any) -> None:
    with pytest.raises(TypeError, match=r"attribute\(\) has no argument 'smoooth'"):
        relurules.attribute(net, images, 0, rule, smoooth=50)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "option", [{"only": "x"}, {"exclude": "x"}, {"missing": "ignore"}, {"match": "structural"}]
)
def test_option_that_would_do_nothing(net: Net, images: Tensor, option: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))} would do nothing"):
        relurules.attribute(net, images, 0, None, **option)


def test_own_gradient_inside_an_applied_rule(net: Net, images: Tensor) -> None:
    deconv = relurules.attribute(net, images, 0, "deconv")
    plain = relurules.attribute(net, images, 0, None)
    with relurules.apply(net, "deconv"):
        assert torch.equal(relurules.attribute(net, images, 0, None), deconv)
        assert torch.equal(relurules.attribute(net, images, 0, "standard"), plain)
    assert not torch.equal(deconv, plain)


def test_progress_that_leaves_batches_out(net: Net, images: Tensor) -> None:
    for ask in (
        lambda **p: relurules.attribute(net, images, 0, batch_size=1, **p),
        lambda **p: relurules.attribute(net, images, 0, smooth=8, **p),
        lambda **p: relurules.occlusion(net, images, 0, window=(3, 7, 6), batch_size=1, **p),
    ):
        with pytest.raises(RuntimeError, match="of .* batches"):
            ask(progress=lambda batches: batches[:-1])


def test_input_that_is_no_array(net: Net, images: Tensor) -> None:
    for ask in (
        lambda: relurules.attribute(net, [images], 0),
        lambda: relurules.occlusion(net, [images], 0, window=(None, 4, 4)),
    ):
        with pytest.raises(TypeError, match="Each input is an array.*got a list"):
            ask()
    with pytest.raises(ValueError, match=r"shapes \[\(0, 3, 14, 12\)\].*batched=False"):
        relurules.attribute(net, images[:0], 0)


def test_progress_sees_every_batch(net: Net, images: Tensor) -> None:
    lengths: list[int] = []
    progress = lambda batches: (lengths.append(len(batches)), batches)[1]  # noqa: E731
    relurules.attribute(net, images, 0, progress=progress)
    relurules.attribute(net, images, 0, batch_size=1, progress=progress)
    relurules.attribute(net, images, 0, smooth=6, batch_size=8, progress=progress)
    relurules.occlusion(
        net, images, 0, window=(None, 7, 6), stride=6, batch_size=4, progress=progress
    )
    assert lengths == [1, 4, 3, 6]


OPTIONS = {
    "smooth": (-1, ValueError),
    "batch_size": (0, ValueError),
    "sigma": (-0.1, ValueError),
    "sigma, infinite": (float("inf"), ValueError),
    "sigma, no number": ("a", ValueError),
    "seed": (-1, ValueError),
    "seed, no number": (1.5, TypeError),
    "average": ("median", ValueError),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_option(net: Net, images: Tensor, case: str) -> None:
    value, error = OPTIONS[case]
    name = case.partition(",")[0]
    with pytest.raises(error, match=name):
        relurules.attribute(net, images, 0, **{"smooth": 2, name: value})
