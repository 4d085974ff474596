"""What a real pipeline puts around a model: checkpoints, offloading, precision, replicas, gates."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU6, act, gradients, same
from spawned import Block, Net, worker
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

import relurules
from relurules import UncoveredActivationError

RULES = ["standard", "deconv", "guided", "redirected", "leaky"]


def by_hand(net: Net, x: Tensor, rule: str) -> Tensor:
    inner = act(net.block.linear(x), rule) * 3 - 1
    return gradients(net.head(act(inner, rule, RELU6)), [x])[0]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 4, dtype=torch.float64, requires_grad=True)


def ruled_gradient(model: Any, x: Tensor, rule: str, **options: Any) -> Tensor:
    with relurules.apply(model, rule, **options) as ruled:
        output = ruled(x)
        return gradients(output, [x])[0]


# --- Checkpoints and offloading --------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_checkpoint_of_a_module(x: Tensor, rule: str) -> None:
    net = Net(lambda block, x: checkpoint(block, x, use_reentrant=False)).double()
    assert same(ruled_gradient(net, x, rule), by_hand(net, x, rule))
    sequential = Net(
        lambda block, x: checkpoint_sequential([block], 1, x, use_reentrant=False)
    ).double()
    assert same(ruled_gradient(sequential, x, rule), by_hand(sequential, x, rule))


@pytest.mark.parametrize("rule", ["standard", "deconv", "guided"])
def test_checkpoint_of_a_function(x: Tensor, rule: str) -> None:
    net = Net(lambda block, x: checkpoint(torch.relu, block(x) - 1, use_reentrant=False)).double()
    found = ruled_gradient(net, x, rule)
    h = act(act(net.block.linear(x), rule) * 3 - 1, rule, RELU6)
    assert same(found, gradients(net.head(act(h - 1, rule)), [x])[0])


@pytest.mark.parametrize("rule", ["redirected", "leaky"])
def test_a_rule_that_needs_the_input_is_refused_there(x: Tensor, rule: str) -> None:
    """Its node keeps what Torch's own does not, so what is recomputed outside does not fit."""
    net = Net(lambda block, x: checkpoint(torch.relu, block(x) - 1, use_reentrant=False)).double()
    with pytest.raises(CheckpointError, match="different number of tensors"):
        ruled_gradient(net, x, rule)


@pytest.mark.parametrize("what", ["module", "function"])
def test_reentrant_checkpoints_are_refused(x: Tensor, what: str) -> None:
    runs: dict[str, Any] = {
        "module": lambda block, x: F.relu(checkpoint(block, x, use_reentrant=True)),
        "function": lambda block, x: checkpoint(F.relu, block(x), use_reentrant=True),
    }
    with pytest.raises(UncoveredActivationError, match="use_reentrant=False"):
        relurules.apply(Net(runs[what]).double(), "guided")(x)


@pytest.mark.parametrize("rule", RULES)
def test_backward_after_exit_with_a_checkpoint(x: Tensor, rule: str) -> None:
    """What is recomputed after the rule was removed either fits or says that it does not."""
    net = Net(lambda block, x: checkpoint(block, x, use_reentrant=False)).double()
    with relurules.apply(net, rule) as ruled:
        output = ruled(x)
    if rule in ("redirected", "leaky"):
        with pytest.raises(CheckpointError):
            gradients(output, [x])
    else:
        assert same(gradients(output, [x])[0], by_hand(net, x, rule))


@pytest.mark.parametrize("rule", RULES)
def test_activation_offloading(x: Tensor, rule: str) -> None:
    net = Net().double()
    with torch.autograd.graph.save_on_cpu():
        assert same(ruled_gradient(net, x, rule), by_hand(net, x, rule))
    packed: list[Path] = []

    def to_disk(tensor: Tensor) -> Path:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        packed.append(Path(name))
        torch.save(tensor, name)
        return packed[-1]

    with torch.autograd.graph.saved_tensors_hooks(to_disk, torch.load):
        assert same(ruled_gradient(net, x, rule), by_hand(net, x, rule))
    for path in packed:
        path.unlink()


# --- Precision, layout and size --------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["standard", "deconv", "guided", "redirected"])
def test_precisions(dtype: torch.dtype, rule: str) -> None:
    net = Net().to(dtype)
    x = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    assert same(ruled_gradient(net, x, rule), by_hand(net, x, rule))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", ["deconv", "guided", "redirected"])
def test_autocast(dtype: torch.dtype, rule: str) -> None:
    net, x = Net(), torch.randn(5, 4, requires_grad=True)
    with torch.autocast("cpu", dtype):
        plain = net(x)
        with relurules.apply(net, rule) as ruled:
            output = ruled(x)
        assert output.dtype == plain.dtype == dtype
        assert same(output, plain)
        assert same(gradients(output, [x])[0], by_hand(net, x, rule))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4)])
def test_nothing_to_do(shape: tuple[int, ...], rule: str) -> None:
    x = torch.randn(shape, requires_grad=True)
    model = nn.Sequential(nn.ReLU6(), nn.Hardtanh(inplace=True), nn.ReLU())
    with relurules.apply(model, rule) as ruled:
        (found,) = torch.autograd.grad(ruled(x).sum(), x)
    assert found.shape == shape


@pytest.mark.parametrize("rule", RULES)
def test_channels_last(rule: str) -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last)
    x.requires_grad_()
    with relurules.apply(nn.ReLU(), rule) as ruled:
        output = ruled(x)
        found = gradients(output, [x])[0]
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert same(found, gradients(act(x, rule), [x])[0])


# --- Gates and other activations -------------------------------------------------------------


class HardSigmoid(nn.Module):
    """As model authors write it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x + 3) / 6


def test_a_gate_that_an_author_wrote_is_a_site_that_can_be_excluded(x: Tensor) -> None:
    gate, body = HardSigmoid(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.body = gate, body

        def forward(self, x: Tensor) -> Tensor:
            return self.gate(x) * self.body(x)

    def expected(rule: str) -> Tensor:
        gated = act(x + 3, rule, RELU6) / 6
        return gradients(gated * act(body[0](x), "guided"), [x])[0]

    applied = relurules.apply(Gated(), "guided")
    assert same(gradients(applied(x), [x])[0], expected("guided"))
    assert [row.name for row in applied.report.sites] == ["gate.relu6", "body.1"]
    applied.remove()
    assert same(ruled_gradient(Gated(), x, "guided", exclude="gate.*"), expected("standard"))


def test_gates_of_timm_are_told_by_their_path() -> None:
    pytest.importorskip("timm")
    from timm.layers.activations import HardSigmoid, HardSwish

    model = nn.ModuleDict({"gate": HardSigmoid(), "swish": HardSwish(), "act": nn.ReLU()})

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            return self.parts["gate"](x) * self.parts["swish"](self.parts["act"](x))

    applied = relurules.apply(Model(), "guided")
    applied(torch.randn(3, 4, requires_grad=True))
    assert sorted(row.name for row in applied.report.sites) == [
        "parts.act", "parts.gate.relu6", "parts.swish.relu6",
    ]  # fmt: skip
    applied.remove()
    applied = relurules.apply(Model(), "guided", exclude=["*.gate.*", "*.swish.*"])
    applied(torch.randn(3, 4, requires_grad=True))
    assert [row.name for row in applied.report.sites] == ["parts.act"]
    applied.remove()


OTHERS = {
    "hardsigmoid": nn.Hardsigmoid(),
    "hardswish": nn.Hardswish(),
    "prelu": nn.PReLU(),
    "leaky_relu": nn.LeakyReLU(0.0),
    "rrelu": nn.RReLU(),
    "selu": nn.SELU(),
    "gelu": nn.GELU(),
    "silu": nn.SiLU(),
    "elu": nn.ELU(),
    "celu": nn.CELU(),
    "mish": nn.Mish(),
    "softplus": nn.Softplus(),
    "tanh": nn.Tanh(),
    "hardshrink": nn.Hardshrink(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_activations_are_left_alone_and_reported(name: str, x: Tensor) -> None:
    model = nn.Sequential(OTHERS[name], nn.ReLU()).double().eval()
    applied = relurules.apply(model, "identity")
    found = gradients(applied(x), [x])[0]
    assert same(found, gradients(model[0](x), [x])[0])
    assert [(row.name, row.kind) for row in applied.report.others] == [("0", name)]
    applied.remove()


# --- Quantised, replicated, distributed ------------------------------------------------------


def test_fused_and_quantisation_aware_modules() -> None:
    from torch.ao.nn.intrinsic import ConvReLU2d
    from torch.ao.nn.intrinsic.qat import ConvReLU2d as QatConvReLU2d
    from torch.ao.quantization import get_default_qat_qconfig

    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    conv = nn.Conv2d(3, 4, 3)
    fused = nn.Sequential(ConvReLU2d(conv, nn.ReLU()))
    expected = gradients(act(conv(x), "guided"), [x])[0]
    assert same(ruled_gradient(fused, x, "guided"), expected)

    qat = QatConvReLU2d(3, 4, 3, qconfig=get_default_qat_qconfig("fbgemm")).eval()
    qat.weight_fake_quant = nn.Identity()
    expected = gradients(act(F.conv2d(x, qat.weight, qat.bias), "guided"), [x])[0]
    assert same(ruled_gradient(qat, x, "guided"), expected)
    model = nn.Sequential(qat, nn.Flatten())
    assert same(ruled_gradient(model, x, "guided"), expected)


def test_an_exported_program_read_back(x: Tensor) -> None:
    net = Net().double()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.pt2"
        torch.export.save(torch.export.export(net, (x.detach(),)), path)
        read = torch.export.load(path).module()
    assert torch.allclose(ruled_gradient(read, x, "guided"), by_hand(net, x, "guided"), rtol=1e-12)


def test_data_parallel_on_one_device(x: Tensor) -> None:
    net = Net().double()
    wrapped = nn.DataParallel(net)
    for target in (net, wrapped):
        with relurules.apply(target, "guided"):
            found = gradients(wrapped(x), [x])[0]
        assert same(found, by_hand(net, x, "guided"))


@pytest.mark.parametrize("outer", [True, False])
def test_replicas_are_refused(x: Tensor, outer: bool) -> None:
    """As DataParallel does with several devices: a replica in a thread for each."""

    class Parallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            replica = self.module._replicate_for_data_parallel()
            replica._parameters = self.module._parameters
            return replica(x)

    net = Block().double()
    parallel = Parallel(net)
    plain = gradients(parallel(x), [x])[0]
    applied = relurules.apply(parallel if outer else net, "guided")
    net(x)
    with pytest.raises(UncoveredActivationError, match="DistributedDataParallel"):
        parallel(x)
    applied.remove()
    assert same(gradients(parallel(x), [x])[0], plain)


def test_distributed_data_parallel() -> None:
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=worker, args=(rank, f"{folder}/store", results))
            for rank in range(2)
        ]
        for process in workers:
            process.start()
        answers = [results.get(timeout=120) for _ in workers]
        for process in workers:
            process.join()
    for _, found in answers:
        for grad, expected in found.values():
            assert torch.allclose(torch.tensor(grad), torch.tensor(expected))


# --- Transforms ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # jacrev's
def test_jacobians(x: Tensor) -> None:
    net = Net().double()
    with relurules.apply(net, "guided") as ruled:
        jacobian = torch.func.jacrev(ruled)(x.detach())
        vectorised = torch.autograd.functional.jacobian(ruled, x, vectorize=True)
        rows = torch.autograd.functional.jacobian(ruled, x)
    assert torch.allclose(jacobian, rows, rtol=1e-12)
    assert torch.allclose(vectorised, rows, rtol=1e-12)
    hand = act(act(net.block.linear(x), "guided") * 3 - 1, "guided", RELU6)
    (one,) = torch.autograd.grad(net.head(hand)[1, 2], x)
    assert torch.allclose(jacobian[1, 2], one, rtol=1e-12)


def test_a_second_derivative_takes_the_gates_as_constants_and_the_rule_again(x: Tensor) -> None:
    """What the first backward blocked stays blocked, and the second runs the rule at each site."""
    net = Net().double()
    with relurules.apply(net, "guided") as ruled:
        (first,) = torch.autograd.grad(ruled(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)

    def by_constant_gates(x: Tensor) -> Tensor:
        h = net.block.linear(x)
        z = act(h, "guided") * 3 - 1
        g = (2 * net.head(act(z, "guided", RELU6))) @ net.head.weight
        g = g * ((z > 0) & (z < 6) & (g > 0)).detach() * 3
        g = g * ((h > 0) & (g > 0)).detach()
        return g @ net.block.linear.weight

    hand = by_constant_gates(x)
    assert torch.allclose(first, hand, rtol=1e-10)
    assert torch.allclose(second, torch.autograd.grad(hand.sum(), x)[0], rtol=1e-10)
    assert second.any()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_forward_mode_is_refused(x: Tensor) -> None:
    net = Net().double()
    with relurules.apply(net, "guided") as ruled:
        ruled(x)
        with pytest.raises(NotImplementedError, match="forward mode"):
            torch.func.jvp(ruled, (x.detach(),), (x.detach(),))
    with (
        pytest.raises((NotImplementedError, RuntimeError), match="forward|jvp"),
        torch.autograd.forward_ad.dual_level(),
        relurules.apply(net, "guided") as ruled,
    ):
        ruled(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()))
