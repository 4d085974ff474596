"""What a pipeline puts around a smooth activation: compilers, transforms, checkpoints."""

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
from torch.utils.checkpoint import CheckpointError, checkpoint

import relurules

dynamo_testing = pytest.importorskip("torch._dynamo.testing")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 6, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["F.gelu", "F.silu(inplace)", "statement F.elu_"])
def test_inside_a_checkpoint(name: str, variant: str, x: Tensor) -> None:
    net = new_net(name)
    expected = by_hand(net, SPELLINGS[name].f, x, variant)

    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.net, x, use_reentrant=False)

    with relurules.apply(Saved(), "guided", smooth_activations=variant) as ruled:
        assert close(gradients(net, x, ruled), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["F.gelu", "nn.SiLU", "F.elu", "torch.selu", "F.prelu", "nn.Mish"])
def test_a_checkpoint_of_the_function_fits_or_says_that_it_does_not(
    name: str, variant: str, x: Tensor
) -> None:
    """It is run again outside the rule, where f keeps other tensors than a gate may have kept."""
    write, f = SPELLINGS[name].write, SPELLINGS[name].f
    net = Net(lambda h: checkpoint(write, h, use_reentrant=False)).double()
    with relurules.apply(net, "guided", smooth_activations=variant):
        assert close(gradients(net, x), by_hand(net, f, x, variant))
    learned = nn.PReLU().double()
    net = Net(lambda h: checkpoint(learned, h, use_reentrant=False)).double()
    with (
        relurules.apply(net, "guided", smooth_activations="gate"),
        pytest.raises(CheckpointError, match="different number of tensors"),
    ):
        gradients(net, x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("f", [F.gelu, F.softplus])  # autocast runs softplus in float32
def test_autocast(f: Activation, variant: str) -> None:
    net, x = Net(f), torch.randn(4, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        plain = net(x)
        with relurules.apply(net, "guided", smooth_activations=variant) as ruled:
            output = ruled(x)
        assert output.dtype == plain.dtype
        assert same(output, plain)
        h = (net.first(x) * 2).detach().requires_grad_()
        y = f(h)
        out = net.last(y)
        (g,) = torch.autograd.grad(out, y, weights(out))
        passed = by_formula(variant, f, h, g.to(h.dtype) if variant == "gate" else g)
        (expected,) = torch.autograd.grad(net.first(x) * 2, x, passed)
    assert torch.equal(torch.autograd.grad(output, x, weights(output))[0], expected)


@pytest.mark.filterwarnings("ignore")  # Dynamo warns of what it looks at
@pytest.mark.parametrize("name", [name for name in SPELLINGS if "rrelu(" not in name])
def test_compiled(name: str, x: Tensor) -> None:
    torch._dynamo.reset()
    variant = VARIANTS[list(SPELLINGS).index(name) % 3]
    net, f = new_net(name), SPELLINGS[name].f
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with relurules.apply(net, "guided", smooth_activations=variant):
        assert close(gradients(net, x, compiled), by_hand(net, f, x, variant))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["F.gelu", "F.silu(inplace)"])
@pytest.mark.parametrize("warm", [True, False])
def test_compiled_once_for_all_steps(name: str, variant: str, warm: bool, x: Tensor) -> None:
    torch._dynamo.reset()
    net, f = new_net(name), SPELLINGS[name].f
    counter = dynamo_testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net, backend=counter, fullgraph=True)
    if warm:
        assert close(gradients(net, x, compiled), by_hand(net, f, x, "plain"))
    applied = relurules.apply(
        net, "guided", smooth_activations=variant, schedule=relurules.until(2)
    )
    for step in range(6):
        expected = by_hand(net, f, x, variant if step <= 2 else "plain")
        assert close(gradients(net, x, compiled), expected)
        with applied.at(torch.tensor(step)):
            assert close(gradients(net, x, compiled), expected)
        applied.advance()
    assert counter.frame_count == 3 + warm
    applied.remove()
    assert close(gradients(net, x, compiled), by_hand(net, f, x, "plain"))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["F.gelu", "F.silu(inplace)"])
def test_transforms(name: str, variant: str, x: Tensor) -> None:
    net, f = new_net(name), SPELLINGS[name].f
    (expected, _) = by_hand(net, f, x, variant)
    score = weights(net(x))
    with relurules.apply(net, "guided", smooth_activations=variant) as ruled:
        whole = torch.func.grad(lambda x: (ruled(x) * score).sum())(x.detach())
        rows = torch.func.vmap(torch.func.grad(lambda x, w: (ruled(x) * w).sum()))(
            x.detach(), score
        )
        jacobian = torch.func.jacrev(ruled)(x[0].detach())
        y = ruled(x)
        batched = torch.autograd.grad(y, x, score[None], is_grads_batched=True)[0]
        with pytest.raises((NotImplementedError, RuntimeError), match="jvp|forward"):
            torch.func.jvp(ruled, (x.detach(),), (x.detach(),))
    for found in (whole, rows, batched[0]):
        assert close([found], [expected])
    assert jacobian.shape == (5, 6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_derivative_takes_the_filters_as_constants(variant: str) -> None:
    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    with relurules.apply(nn.SiLU(), "guided", smooth_activations=variant) as ruled:
        (first,) = torch.autograd.grad(ruled(x).sum(), x, create_graph=True)
    assert close([first], [by_formula(variant, F.silu, x, torch.ones(3, dtype=torch.float64))])
    if variant == "gate":
        assert not first.requires_grad or not torch.autograd.grad(first.sum(), x)[0].any()
        return
    (second,) = torch.autograd.grad(first.sum(), x)
    curve = torch.func.vmap(torch.func.grad(torch.func.grad(F.silu)))(x.detach())
    passed = first > 0 if variant == "outgoing" else torch.ones(3, dtype=torch.bool)
    assert torch.allclose(second, torch.where(passed, curve, 0.0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_follows_may_change_the_output_in_place(variant: str, x: Tensor) -> None:
    """As it may behind the activation itself, and a slice may be the input."""

    def write(h: Tensor) -> Tensor:
        y = F.gelu(h)
        y += 1
        F.silu(y[:, :3], inplace=True)
        return y

    def reference(h: Tensor, g: Tensor) -> Tensor:
        y = F.gelu(h) + 1
        left = by_formula(variant, F.silu, y[:, :3], g[:, :3])
        return by_formula(variant, F.gelu, h, torch.cat([left, g[:, 3:]], dim=1))

    g = weights(x)
    with relurules.apply(of(write), "guided", smooth_activations=variant) as ruled:
        (found,) = torch.autograd.grad(ruled(x), x, g)
    assert close([found], [reference(x, g)])
