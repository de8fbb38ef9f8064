"""Values that depend on nothing that a call brings along: the trace may ask what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.global_state import autocast_off
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Trace, Value, ancestors

_LIMIT = 1 << 22  # elements worth computing


def known(trace: Trace, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Whether what ``op`` gives for these values is the same on every call, and what that is.

    It is if none of them is computed from an input or drawn.
    """
    asked = Value(op, tuple(args), kwargs)
    behind = ancestors([asked]) - {asked}
    if any(v.op is PLACEHOLDER or v in trace.drawn or v in trace.states for v in behind):
        return False, None
    if sum(v.geometry.numel for v in behind if v.geometry is not None) > _LIMIT:
        return False, None
    found: dict[Value, Any] = {}

    def real(a: Any) -> Any:
        if type(a) is Value:
            return found[a]
        return type(a)(real(x) for x in a) if type(a) in (list, tuple) else a

    with _torch.without_modes(), torch.no_grad(), autocast_off():
        for v in [*[v for v in trace.values if v in behind], asked]:
            if v.op is CONSTANT:
                found[v] = v.constant
            else:
                found[v] = v.op(*[real(a) for a in v.args], **{k: real(a) for k, a in v.kwargs.items()})
    return True, found[asked]
