"""Values that depend on nothing that a call brings along, or on its key alone: the trace may ask what they are.

Note [Values in the key]
How long the rows of a ragged tensor are is data to torch, and metadata to everybody else: code that takes a row reads
it. So the tensors that say it may be asked for what they hold. The first trace that does so begins anew with that as
part of the call's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.errors import RetraceWithValues
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Trace, Value, ancestors, real
from aotcheck.autograd.state.global_state import AutocastOff

_LIMIT = 1 << 22  # elements worth computing


def known(trace: Trace, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Whether what ``op`` gives for these values is the same on every call, and what that is.

    It is if none of them is computed from an input or drawn. Raises RetraceWithValues where the key can make it so.
    """
    asked = Value(op, tuple(args), kwargs)
    behind = ancestors([asked]) - {asked}
    unknown = [v for v in behind if v.op is PLACEHOLDER and v not in trace.known]
    if any(v not in trace.askable for v in unknown) or any(v in trace.drawn or v in trace.states for v in behind):
        return False, None
    if sum(v.geometry.numel for v in behind if v.geometry is not None) > _LIMIT:
        return False, None
    if unknown:
        raise RetraceWithValues(f"{op} needs values at trace time", frozenset(trace.askable[v] for v in unknown))
    found: dict[Value, Any] = {v: trace.known[v] for v in behind if v.op is PLACEHOLDER}
    with _torch.without_modes(), torch.no_grad(), AutocastOff():
        for v in [*[v for v in trace.values if v in behind], asked]:
            if v.op is CONSTANT:
                found[v] = v.constant
            else:
                found[v] = v.op(*[real(a, found) for a in v.args], **{k: real(a, found) for k, a in v.kwargs.items()})
    return True, found[asked]
