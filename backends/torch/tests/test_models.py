"""Whole models, exported and rewritten ones, and what Torch does around them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import act, gradients, same
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import relurules


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.act, self.head = nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.conv(x)))
        h = F.relu(h - 0.5)
        return self.head(h.mean((2, 3)))


@pytest.fixture
def small() -> Small:
    model = Small().double().eval()
    model.norm.running_mean.normal_()
    return model


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)


def by_hand(model: Small, x: Tensor, rule: str) -> Tensor:
    h = act(act(model.norm(model.conv(x)), rule) - 0.5, rule)
    return gradients(model.head(h.mean((2, 3))), [x])[0]


def ruled_gradient(model: Any, x: Tensor, rule: str = "guided", **options: Any) -> Tensor:
    with relurules.apply(model, rule, **options) as ruled:
        output = ruled(x)
    return gradients(output, [x])[0]


def test_fx_graph(small: Small, x: Tensor) -> None:
    traced = torch.fx.symbolic_trace(small)
    assert same(ruled_gradient(traced, x), by_hand(small, x, "guided"))


def test_exported_program(small: Small, x: Tensor) -> None:
    exported = torch.export.export(small, (x.detach(),)).module()
    assert torch.allclose(ruled_gradient(exported, x), by_hand(small, x, "guided"), rtol=1e-12)


def test_fused_convolution_and_norm(small: Small, x: Tensor) -> None:
    fused = nn.Sequential(fuse_conv_bn_eval(small.conv, small.norm), nn.ReLU())
    expected = gradients(act(fused[0](x), "guided"), [x])[0]
    assert same(ruled_gradient(fused, x), expected)


def test_a_batch_equals_its_samples(small: Small, x: Tensor) -> None:
    for rule in ("guided", "redirected"):
        with relurules.apply(small, rule) as ruled:
            whole = torch.autograd.grad(ruled(x)[:, 0].sum(), x)[0]
            ones = [x[i : i + 1].detach().requires_grad_() for i in range(2)]
            parts = [torch.autograd.grad(ruled(one)[:, 0].sum(), one)[0] for one in ones]
        assert torch.allclose(whole, torch.cat(parts), rtol=1e-12, atol=0)


def test_training_mode_updates_statistics_as_before(small: Small, x: Tensor) -> None:
    plain, ruled = copy.deepcopy(small).train(), copy.deepcopy(small).train()
    plain(x)
    ruled_gradient(ruled, x)
    assert same(plain.norm.running_mean, ruled.norm.running_mean)


def test_a_copy_of_a_ruled_model_is_its_own(small: Small, x: Tensor) -> None:
    with relurules.apply(small, "guided") as ruled:
        ruled(x)
        before = gradients(small(x), [x])[0]
    assert same(before, by_hand(small, x, "guided"))
    assert pickle.loads(pickle.dumps(small)).conv.weight.shape == small.conv.weight.shape


def test_non_reentrant_checkpointing(small: Small, x: Tensor) -> None:
    from torch.utils.checkpoint import checkpoint

    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)

    for rule in ("standard", "deconv", "guided"):
        assert same(ruled_gradient(Saved(), x, rule), by_hand(small, x, rule))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # its jvp
def test_functional_transforms(small: Small, x: Tensor) -> None:
    weights = torch.randn(2, dtype=torch.float64)
    params = dict(small.named_parameters())

    def score(one: Tensor) -> Tensor:
        return (torch.func.functional_call(small, params, one[None])[0] * weights).sum()

    def expected(rule: str) -> Tensor:
        h = act(act(small.norm(small.conv(x)), rule) - 0.5, rule)
        return torch.autograd.grad((small.head(h.mean((2, 3))) * weights).sum(), x)[0]

    for rule, options in (("guided", {}), ("redirected", {"batch_axis": None})):
        with relurules.apply(small, rule, **options):
            one = torch.func.grad(score)(x[0].detach())
            each = torch.func.vmap(torch.func.grad(score))(x.detach())
        assert torch.allclose(one, expected(rule)[0], rtol=1e-12)
        assert torch.allclose(each, expected(rule), rtol=1e-12)
    with relurules.apply(small, "redirected"), pytest.raises(ValueError, match="batch_axis=None"):
        torch.func.vmap(torch.func.grad(score))(x.detach())
    with relurules.apply(small, "guided"), pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(score, (x[0].detach(),), (x[0].detach(),))


def test_batched_gradients_and_double_backward(small: Small, x: Tensor) -> None:
    with relurules.apply(small, "guided") as ruled:
        y = ruled(x)
        batched = torch.autograd.grad(
            y, x, torch.eye(4, dtype=torch.float64).view(4, 2, 2), is_grads_batched=True,
            retain_graph=True,
        )[0]  # fmt: skip
        rows = [
            torch.autograd.grad(y, x, g.view(2, 2), retain_graph=True)[0]
            for g in torch.eye(4, dtype=torch.float64)
        ]
        (first,) = torch.autograd.grad(y[:, 0].sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, allow_unused=True)
    assert torch.allclose(batched, torch.stack(rows), rtol=1e-12)
    assert second is None or not second.any()  # piecewise linear


def test_autocast(small: Small) -> None:
    model = small.float()
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        plain = model(x)
        found = ruled_gradient(model, x)
        h = act(act(model.norm(model.conv(x)), "guided") - 0.5, "guided")
        expected = gradients(model.head(h.mean((2, 3))), [x])[0]
        assert same(model(x), plain)
    assert same(found, expected)


def test_channels_last(small: Small, x: Tensor) -> None:
    model = small.to(memory_format=torch.channels_last)
    y = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    assert torch.allclose(ruled_gradient(model, y), by_hand(small, y, "guided"), rtol=1e-12)


class Tagged(torch.Tensor):
    """A subclass, which must survive the activation."""


def test_a_tensor_subclass_stays_one() -> None:
    x = torch.randn(3, 3).as_subclass(Tagged).requires_grad_()
    with relurules.apply(nn.ReLU(), "guided") as ruled:
        y = ruled(x)
    assert type(y) is Tagged
    (found,) = torch.autograd.grad(y, x, -torch.ones(3, 3).as_subclass(Tagged))
    assert not found.any()


def test_outputs_of_any_structure_are_audited() -> None:
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *g: Tensor) -> Tensor:
            return g[0]

    class Odd:
        def __init__(self, value: Tensor) -> None:
            self.value = {"deep": [(value,)]}

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return Odd(Hidden.apply(F.relu(x)))

    with pytest.raises(relurules.UncoveredActivationError, match="Hidden"):
        relurules.apply(Model(), "guided")(torch.randn(2, 2, requires_grad=True))


def test_what_was_computed_before_the_model_is_not_audited(small: Small, x: Tensor) -> None:
    with relurules.apply(small, "guided") as ruled:
        ruled(F.relu(x))
        ruled(x=F.relu(x))


def saved_bytes(run: Any) -> int:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        run()
    return sum(kept.values())


@pytest.mark.parametrize("rule", ["standard", "deconv", "guided"])
@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6])
def test_no_more_is_saved_than_by_the_plain_gradient(
    activation: Any, inplace: bool, rule: str
) -> None:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), activation(inplace=inplace)]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.ReLU(inplace)).eval()
    x = torch.randn(1, 3, 32, 32, requires_grad=True)
    plain = saved_bytes(lambda: model(x))
    with relurules.apply(model, rule) as ruled:
        assert saved_bytes(lambda: ruled(x)) <= plain
