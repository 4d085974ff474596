"""The handle on a rule that is in force, the same for every framework.

It owns what a user does with an applied rule (call, pause, step, leave) and nothing of how a
framework does it: that is the attachment's. So leaving in any order, leaving twice and leaving
after an exception mean the same everywhere.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn

from relurules._backend import Attachment
from relurules._coverage import complain, never_called
from relurules._plan import Plan
from relurules._report import Report
from relurules._schedule import Always
from relurules._state import State
from relurules.errors import NoActivationError, ScheduleWarning


class Applied:
    """A rule behind a model's activations, as `relurules.apply` returns it.

    Use it as a context manager, or call `remove` when done. It can be called in place of the
    model. It acts on the thread that made it and on no other.

    Example:
        >>> import torch, relurules
        >>> net = torch.nn.ReLU()
        >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
        >>> with relurules.apply(net, "identity") as ruled:
        ...     torch.autograd.grad(ruled(x).sum(), x)[0].tolist()
        [1.0, 1.0]
    """

    def __init__(self, attachment: Attachment, plan: Plan, state: State) -> None:
        self._attachment = attachment
        self._plan = plan
        self._state = state
        self._depth = 0
        self._removed = False

    @property
    def model(self) -> Any:
        """What to call: the very model (Torch), or a transformed callable (JAX)."""
        return self._attachment.model

    @property
    def report(self) -> Report:
        """What the rule reached so far, and what it did not."""
        return self._attachment.report()

    @property
    def step(self) -> Any:
        """The optimisation step in force, counting from 0."""
        return self._state.step

    def advance(self, n: int = 1) -> Applied:
        """Move the step by `n`, an int, and return self."""
        self._state.advance(n)
        return self

    def follow(self, optimizer: Any, /) -> Applied:
        """Move the step by one after each step of this optimiser, and return self.

        What counts is `optimizer.step()`: not micro-batches, several backward passes, forwards
        without gradient, or a step that a gradient scaler skips; LBFGS counts one for each
        `step`. With manual updates call `advance`. The step is read in the forward pass, so a
        graph keeps the rule it was built under.

        Args:
            optimizer: The framework's own optimiser, such as a `torch.optim.Optimizer`.

        Raises:
            TypeError: The framework has no optimiser objects that can be followed.
        """
        self._attachment.follow(optimizer, lambda: self._state.advance(1))
        return self

    def at(self, step: Any, /) -> AtStep:
        """Return the model at a fixed step, to be called or entered.

        Args:
            step: An int, or a traced scalar or tensor; a traced one is compiled once.

        Example:
            >>> import torch, relurules
            >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
            >>> applied = relurules.apply(
            ...     torch.nn.ReLU(), "identity", schedule=relurules.until(16)
            ... )
            >>> torch.autograd.grad(applied.at(16)(x).sum(), x)[0].tolist()
            [1.0, 1.0]
            >>> torch.autograd.grad(applied.at(17)(x).sum(), x)[0].tolist()
            [0.0, 1.0]
            >>> applied.remove()
        """
        return AtStep(self, step)

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which the model gives its plain gradient."""
        return self._state.pause()

    def remove(self) -> None:
        """Restore the model. Harmless when done already, in any order, after an exception.

        Raises:
            NoActivationError: The model was never called meanwhile, so that whatever gradient
                was taken was the plain one. Not raised while another exception is handled.
        """
        self._finish(check=sys.exc_info()[0] is None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if elsewhere := getattr(self._attachment, "elsewhere", ""):
            complain(NoActivationError, elsewhere, self._plan)
        return self.model(*args, **kwargs)

    def __enter__(self) -> Any:
        if self._removed:
            raise RuntimeError(
                "This rule was removed and cannot be entered again; call relurules.apply anew."
            )
        self._depth += 1
        return self.model

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._finish(check=kind is None)

    def __repr__(self) -> str:
        state = "removed" if self._removed else f"step {self.step}"
        return f"<relurules.Applied {self._plan.rule_name!r}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An applied rule holds hooks of this process and cannot be copied or pickled; copy "
            "the model and call relurules.apply on the copy."
        )

    def _finish(self, *, check: bool) -> None:
        if self._removed:
            return
        self._removed = True
        self._attachment.remove()
        if check:
            self._check_use()

    def _check_use(self) -> None:
        calls = self._attachment.calls
        if calls == 0:
            message = never_called(self.report, self._attachment.hint)
            complain(NoActivationError, message, self._plan)
        elif calls > 1 and not isinstance(self._plan.schedule, Always) and not self._state.moved:
            warnings.warn(
                f"The model was called {calls} times under {self._plan.schedule}, and the step "
                "never moved from 0, so the rule never ended. Call follow(optimizer), advance() "
                "or at(step).",
                ScheduleWarning,
                stacklevel=4,
            )


class AtStep:
    """An applied model at a fixed step: call it, or enter it to call the model inside."""

    def __init__(self, applied: Applied, step: Any) -> None:
        self._applied = applied
        self._step = step
        self._contexts: list[AbstractContextManager[None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._applied._state.at(self._step):
            return self._applied(*args, **kwargs)

    def __enter__(self) -> Any:
        context = self._applied._state.at(self._step)
        context.__enter__()
        self._contexts.append(context)
        return self._applied.model

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._contexts.pop().__exit__(kind, error, trace)
