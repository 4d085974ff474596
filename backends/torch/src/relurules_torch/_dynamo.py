"""Making Dynamo show a Torch function mode what eager execution shows it.

Dynamo asks modes about the functions in `torch.overrides.get_overridable_functions()` only, and
`torch.relu_`, `F.hardtanh_` and `torch._C._nn.relu6` are not among them: in compiled code they
would keep their plain gradient without a word. Dynamo keeps its own set of those functions, to
which ours are added.
"""

from __future__ import annotations

import sys

import torch

from relurules_torch._operations import OPERATIONS

_MODULE = "torch._dynamo.variables.torch"  # not imported here, since that takes a second


def show_all_spellings() -> None:
    """Make Dynamo, if it is loaded, ask modes about every spelling of an activation."""
    module = sys.modules.get(_MODULE)
    if module is not None and torch.relu_ not in (asked := module.get_overridable_functions()):
        asked.update(OPERATIONS)


# Dynamo calls a function that has this mark and does not trace it; the public
# torch.compiler.assume_constant_result sets the mark too, but imports Dynamo.
show_all_spellings._dynamo_marked_constant = True  # type: ignore[attr-defined]
