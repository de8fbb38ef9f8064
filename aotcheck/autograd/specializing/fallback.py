"""What runs where no code of ours does: the original, after a refusal or in place of what failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotcheck.autograd.calls.original import UserError
from aotcheck.autograd.config import OnUnsupported, config
from aotcheck.autograd.counters import count_refused, count_user_error
from aotcheck.autograd.errors import EXPECTATION, OTHER_FORMULA, SchemaError, UnsupportedError
from aotcheck.autograd.graphs.failing import GraphFailed


class Fallback:
    """Runs ``original`` in place of its code; ``policy`` says what a refusal does where the configuration does not."""

    def __init__(self, original: Callable[..., Any], policy: OnUnsupported) -> None:
        self._original, self._policy = original, policy

    def refuse(self, error: UnsupportedError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call cannot be compiled."""
        policy = config().on_unsupported or self._policy
        count_refused(error.reason, error.detail, warn=policy is OnUnsupported.EAGER)
        if policy is OnUnsupported.RAISE:
            raise error
        return self._original(*args, **kwargs)

    def reproduce(self, args: tuple[Any, ...], kwargs: dict[str, Any], failed: GraphFailed | UserError) -> Any:
        """The program raised when traced, or its graph when run: the original raises the same on the real inputs."""
        cause = failed.__cause__
        if isinstance(cause, SchemaError):
            raise cause
        if isinstance(cause, UnsupportedError):
            return self.refuse(cause, args, kwargs)
        try:
            result = self._original(*args, **kwargs)
        except Exception:
            count_user_error()
            raise
        if EXPECTATION in str(cause):
            count_refused("data-dependent", str(cause), warn=True)
        else:
            line = next(iter(str(cause).splitlines()), "")
            said = f"{type(cause).__name__}: {line}" if line else type(cause).__name__
            count_refused("error only when compiled", said, warn=True, each_detail=True)
        return result


def other_formulas(failed: GraphFailed) -> tuple[bool, ...] | None:
    """The formulas that data ask for where a graph found that it was made with others."""
    _, found, rest = str(failed.__cause__).partition(OTHER_FORMULA)
    asked = rest.partition(".")[0].rstrip("1")  # what is not said is division
    return tuple([c == "1" for c in asked]) if found else None
