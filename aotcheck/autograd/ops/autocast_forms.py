"""Ops whose kernels call ops that autocast casts the arguments of, or refuses to.

Note [Kernels that autocast looks into]
Autocast has rules for some ops; any other it lets pass, and stays on while the kernel of that runs. Where this calls
an op that has a rule, autocast applies within the kernel. Most such kernels call ``cat`` alone, of tensors of one
dtype: all that comes of it is that eager raises where they are of a half precision that is not autocast's. Others call
what is cast, and give other numbers or another dtype. A graph runs with autocast off, so it holds in the place of such
an op one that is registered on the spot: it turns autocast on and calls the op.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.state.autocast import Autocast, autocast_as, autocast_state

aten = torch.ops.aten

# Found by running each op that torch's tests know under autocast with a profiler.
_CONCATENATE = frozenset(
    {
        aten._chunk_cat,
        aten.convolution_backward,
        aten.isin,
        aten.linalg_matrix_exp,
        aten.masked_scatter_backward,
        aten.roll,
    }
)
_CAST = frozenset({aten._sparse_addmm, aten._trilinear, aten.linalg_pinv})
PAST_AUTOCAST = frozenset({torch.pinverse, Tensor.pinverse})
"""Functions with a rule of their own, under which autocast is off, that call ops of those."""

LOOKED_INTO = _CONCATENATE | _CAST
_HALVES = frozenset({torch.float16, torch.bfloat16})

_forms: dict[tuple[Any, Autocast], Any] = {}
_library = torch.library.Library("aotcheck", "FRAGMENT")


def under_autocast(op: Any, tensors: Iterable[Tensor]) -> Any:
    """``op``, or if autocast may show in what it does with ``tensors`` what runs it so.

    Asked for while the op is being dispatched.
    """
    with _torch.as_before_dispatch():
        state = autocast_state()
    if not state:
        return op
    others = _HALVES.difference(dtype for _, dtype in state)
    if op.overloadpacket in _CONCATENATE and others.isdisjoint(t.dtype for t in tensors):
        return op
    form = _forms.get((op, state))
    if form is None:
        form = _forms[op, state] = _register(op, state)
    return form


def runs_under_autocast(op: Any) -> bool:
    """Whether ``op`` is one that is registered here."""
    return op in _forms.values()


def _register(op: Any, state: Autocast) -> Any:
    schema = str(_torch.schema_of(op))
    wanted = "_".join(f"{device}_{dtype}" for device, dtype in state)
    name = re.sub(r"\W", "_", f"autocast_{wanted}_{_torch.op_name(op)}_{_torch.overload_name(op)}")
    _library.define(name + schema[schema.index("(") :], tags=tuple(op.tags))

    def run(*args: Any, **kwargs: Any) -> Any:
        with autocast_as(state):
            return op(*args, **kwargs)

    _library.impl(name, run, "CompositeExplicitAutograd")
    return getattr(torch.ops.aotcheck, name).default
