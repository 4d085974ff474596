"""Every spelling of an activation in compiled code.

Dynamo shows a Torch function mode fewer functions than eager execution does: `torch.relu_` and
`F.hardtanh_`, for one, kept their plain gradient in silence, beside others that were ruled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from reference import RELU, RELU6, Bounds, act, gradients
from torch import Tensor, nn

import relurules
from relurules_torch._operations import OPERATIONS

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of what it looks at

HOMES = {"torch": torch, "F": F, "_nn": torch._C._nn, "aten": torch.ops.aten, "Tensor": Tensor}
ARGUMENTS: dict[str, tuple[Bounds, tuple[float, ...]]] = {
    "relu": (RELU, ()),
    "relu6": (RELU6, ()),
    "hardtanh": ((-1.0, 1.0), (-1.0, 1.0)),
    "threshold": (RELU, (0.0, 0.0)),
}


def _spellings() -> Iterator[tuple[str, str]]:
    for home, where in HOMES.items():
        for base in ARGUMENTS:
            for name in (base, f"{base}_"):
                if hasattr(where, name):
                    yield home, name


class One(nn.Module):
    """An activation, and one that every mode sees, so that nothing else gives the miss away."""

    def __init__(self, write: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.write, self.linear = write, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.write(self.linear(x) * 4) - 0.5)


@pytest.mark.parametrize(("home", "name"), list(_spellings()))
def test_spelling(home: str, name: str) -> None:
    torch._dynamo.reset()
    bounds, arguments = ARGUMENTS[name.rstrip("_")]
    function = getattr(HOMES[home], name)
    model = One(lambda h: function(h, *arguments)).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with relurules.apply(model, "identity"):
        found = gradients(compiled(x), [x])[0]
    hand = act(act(model.linear(x) * 4, "identity", bounds) - 0.5, "identity")
    assert torch.allclose(found, gradients(hand, [x])[0], rtol=1e-12)
    plain = gradients(model(x), [x])[0]
    assert torch.allclose(gradients(compiled(x), [x])[0], plain, rtol=1e-12)


@pytest.mark.parametrize("compiled_first", [True, False])
def test_dynamo_asks_about_all_we_know(compiled_first: bool) -> None:
    from torch._dynamo.variables.torch import get_overridable_functions

    get_overridable_functions.cache_clear()
    torch._dynamo.reset()
    model = One(torch.relu_)
    x = torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(model, backend="eager")
    if compiled_first:
        compiled(x)
    with relurules.apply(model, "identity"):
        compiled(x)
    assert set(OPERATIONS) <= get_overridable_functions()
