"""What a user is told about calls that a rule did not see, in one place and one voice."""

from __future__ import annotations

from collections.abc import Iterable

REPLICA = (
    "it copies the model into replicas that run in threads of their own, where no rule is in "
    "force. Use DistributedDataParallel, or call the module it wraps."
)
NAMES_IN_COMPILED = (
    "only=, exclude= and name patterns of a rule mapping ask where in the model an activation "
    "is, and inside code compiled by torch.compile that is not known. Apply the rule to the "
    "model that was compiled (compiled._orig_mod) and call that, or select by kind."
)
CHANGES_INPUT = (
    "a plugin recognised it as an activation, and it changes its input in place, so the rule "
    "cannot see what it was given. Exclude it, or apply the rule to a form of it that does not."
)
OWN_GRAPH = (
    "it records a gradient of its own inside, although nothing that it was given wants one, and "
    "its fused form runs without a rule. Give it an input that requires a gradient."
)
_UNSEEN = (
    "A call of the module, of one of its methods or of one of its submodules runs the rule. "
    "Nothing of the kind was called, or compiled code in which no activation takes the rule; is "
    "this the model that you call?"
)


def in_compiled(operation: str) -> str:
    """Return what to do about an activation that no rule reaches in compiled code."""
    return (
        f"{operation}, inside code compiled by torch.compile, cannot take a rule. Apply the rule "
        "to the model that was compiled (compiled._orig_mod) and exclude it by name."
    )


def called_elsewhere(reason: str) -> str:
    """Return what to do where the applied rule is called from elsewhere."""
    return (
        f"The rule was called {reason} than the one that applied it, where it is not in force, "
        "so the gradient would be the plain one. Call relurules.apply where the model is called."
    )


def hint(parts: Iterable[str], elsewhere: Iterable[str]) -> str:
    """Return what to do where the model was never called under the rule."""
    if elsewhere:
        return (
            f"It was called {' and '.join(sorted(elsewhere))}, which a rule never touches: call "
            "relurules.apply where the model is called."
        )
    if parts:
        return (
            f"What was called is {', '.join(parts)}, and no activation ran there. Apply the rule "
            "to the module that holds the activations, or call the model."
        )
    return _UNSEEN
