"""Guided on smooth activations: each variant is its formula, where it was asked for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from reference import same
from smooth import (
    SPELLINGS,
    VARIANTS,
    Activation,
    Net,
    by_formula,
    by_hand,
    close,
    gradients,
    new_net,
    of,
    weights,
)
from torch import Tensor, nn

import relurules
from relurules import NoActivationError


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 6, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling(name: str, variant: str, x: Tensor) -> None:
    net, f = new_net(name), SPELLINGS[name].f
    torch.manual_seed(3)
    plain = net(x)
    applied = relurules.apply(net, "guided", smooth_activations=variant)
    torch.manual_seed(3)
    assert same(applied(x), plain), "the rule changed the forward"
    assert close(gradients(net, x), by_hand(net, f, x, variant))
    (row,) = applied.report.sites
    assert (row.kind, row.detail) == (SPELLINGS[name].kind, f"guided ({variant})")
    applied.remove()
    assert close(gradients(net, x), by_hand(net, f, x, "plain"))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_edges_bit_for_bit(variant: str, dtype: torch.dtype) -> None:
    """Zeros of both signs, subnormals, infinities and NaN; what is blocked is +0.0."""
    tiny = torch.finfo(dtype).smallest_normal
    values = [0.0, tiny, tiny / 4, 0.3, 1.0, 7.0, float("inf")]
    edges = torch.tensor([*values, *(-v for v in values), float("nan")], dtype=torch.float64)
    x, g = (t.contiguous().to(dtype) for t in torch.meshgrid(edges, edges, indexing="ij"))
    for f in (F.leaky_relu, F.silu, F.hardswish):
        with relurules.apply(of(f), "guided", smooth_activations=variant) as ruled:
            leaf = x.clone().requires_grad_()
            (found,) = torch.autograd.grad(ruled(leaf), leaf, g)
        expected = by_formula(variant, f, x, g)
        if variant == "gate":
            passed = torch.where((x <= 0) | (g <= 0), torch.zeros_like(g), g)
            assert same(expected, passed)
        assert same(found, expected)


@pytest.mark.parametrize("module", [nn.GELU(), nn.SiLU(), nn.ELU(), nn.LeakyReLU(), nn.Mish()])
def test_what_module_hooks_do(module: nn.Module, x: Tensor) -> None:
    """Captum's form clips a module's grad_input, zennit's its grad_output."""
    model = nn.Sequential(nn.Linear(6, 6), module, nn.Linear(6, 6), module).double()
    hooks = {
        "outgoing": lambda m: m.register_full_backward_hook(lambda m, gi, go: (gi[0].clamp(0),)),
        "incoming": lambda m: m.register_full_backward_pre_hook(lambda m, go: (go[0].clamp(0),)),
    }
    for variant, hook in hooks.items():
        handle = hook(module)
        (expected,) = torch.autograd.grad(model(x).sin().sum(), x)
        handle.remove()
        with relurules.apply(model, "guided", smooth_activations=variant) as ruled:
            (found,) = torch.autograd.grad(ruled(x).sin().sum(), x)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_of_a_loss(variant: str, x: Tensor) -> None:
    net = new_net()
    with relurules.apply(net, "guided", smooth_activations=variant, gradient_of="loss"):
        assert close(gradients(net, x), by_hand(net, F.gelu, x, variant, sign=-1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_pauses_and_names(variant: str, x: Tensor) -> None:
    net = new_net()
    ruled, plain = (by_hand(net, F.gelu, x, one) for one in (variant, "plain"))
    applied = relurules.apply(
        net, "guided", smooth_activations=variant, schedule=relurules.until(1)
    )
    for step in range(4):
        assert close(gradients(net, x), ruled if step <= 1 else plain)
        assert close(
            gradients(net, x, applied.at(torch.tensor(step))), ruled if step <= 1 else plain
        )
        applied.advance()
    with applied.at(0), applied.paused():
        assert close(gradients(net, x), plain)
    applied.remove()
    for selection in ({"exclude": "gelu"}, {"only": lambda site: site.kind == "relu"}):
        applied = relurules.apply(
            net, "guided", smooth_activations=variant, missing="ignore", **selection
        )
        assert close(gradients(net, x), plain)
        assert [row.status for row in applied.report.rows] == ["excluded"]
        applied.remove()
    with relurules.apply(net, {"gelu": "guided"}, smooth_activations=variant):
        assert close(gradients(net, x), ruled)


@pytest.mark.parametrize("variant", VARIANTS)
def test_beside_a_relu_each_takes_its_own(variant: str, x: Tensor) -> None:
    net = Net(lambda h: F.silu(F.relu(h) - 0.5)).double()
    with relurules.apply(net, "guided", smooth_activations=variant):
        found = gradients(net, x)
    h = (net.first(x) * 2).detach()
    inner = F.relu(h) - 0.5
    g = weights(net.last(F.silu(inner))) @ net.last.weight
    g = by_formula(variant, F.silu, inner, g)
    g = torch.where((h > 0) & (g > 0), g, 0.0) * 2
    assert close(found, [g @ net.first.weight, g.T @ x])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_innermost_choice_wins(variant: str, x: Tensor) -> None:
    net = new_net()
    with (
        relurules.apply(net, "guided", missing="ignore"),
        relurules.apply(net, "guided", smooth_activations=variant),
    ):
        assert close(gradients(net, x), by_hand(net, F.gelu, x, variant))
    with (
        relurules.apply(net, "guided", smooth_activations=variant) as ruled,
        relurules.apply(net, "guided", missing="ignore"),
    ):
        assert close(gradients(ruled, x), by_hand(net, F.gelu, x, variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_slope_of_prelu(variant: str, x: Tensor) -> None:
    """`incoming` clips what reaches f, hence also what its parameter sees; the others do not."""
    model = nn.PReLU().double()
    g = weights(x)
    with relurules.apply(model, "guided", smooth_activations=variant) as ruled:
        (found,) = torch.autograd.grad(ruled(x), model.weight, g)
        (frozen,) = torch.autograd.grad(ruled(x.detach()), model.weight, g)
    seen = torch.where(g > 0, g, 0.0) if variant == "incoming" else g
    assert torch.allclose(found, (x.clamp(max=0) * seen).sum())
    assert torch.equal(found, frozen)


def test_without_the_choice_they_are_reported_and_the_error_names_it(x: Tensor) -> None:
    with (
        pytest.raises(NoActivationError, match=r"smooth_activations='incoming', 'outgoing' or"),
        relurules.apply(new_net(), "guided") as ruled,
    ):
        ruled(x)
    with (
        pytest.raises(NoActivationError, match=r"gelu \(gelu\): has no rule\."),
        relurules.apply(new_net(), "deconv") as ruled,
    ):
        ruled(x)


@pytest.mark.parametrize("write", [F.glu, torch.tanh, torch.sigmoid, F.softsign, F.hardshrink])
def test_what_is_no_smooth_rectifier_is_still_left_alone(write: Activation, x: Tensor) -> None:
    with (
        pytest.raises(NoActivationError, match="has no rule"),
        relurules.apply(of(write), "guided", smooth_activations="gate") as ruled,
    ):
        ruled(x)
