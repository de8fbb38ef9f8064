"""Ops whose results have a size that data decide: a new symbol stands for it, which the forward graph returns.

A mask is the same as where it is true. What was asked of a value once has the same size when it is asked again, also in
a backward. Branches on such sizes, and values of floating point, are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import CONSTANT, PLACEHOLDER, Node, ancestors, nodes_in
from aotcheck.autograd2.ir.meta import Geometry, row_major
from aotcheck.autograd2.ir.size import symbols_in, term
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.info import OpInfo, info_of
from aotcheck.autograd2.trace.recorder import Recorder
from aotcheck.autograd2.trace.replica import state_of

__all__ = ["ask_of_masks", "is_mask", "run", "without_masks"]

aten = torch.ops.aten


def run(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that depends on data.

    Raises:
        UnsupportedError: it gives what cannot be a symbol.
    """
    known = _of_constants(tracer, func, args, kwargs)
    if known is not None:
        return tracer.lift(known) if isinstance(known, Tensor) else known
    if func not in (aten.nonzero.default, aten.masked_select.default, aten._local_scalar_dense.default):
        refuse(Event.DATA, str(func))
    if func is aten._local_scalar_dense.default and (args[0].is_floating_point() or args[0].dtype is torch.bool):
        refuse(Event.DATA, f"the value of a {args[0].dtype} tensor")
    tracer.needs = tracer.needs.also(symbols=True)
    if tracer.symbols is None:
        refuse(Event.DATA, str(func))
    asked = (func, *tracer.values(args))
    if asked not in tracer.answered:
        if tracer.in_backward:
            refuse(Event.DATA, f"{func} in a backward")
        node = tracer.call(func, asked[1:], tracer.value_of(dict(kwargs)))
        tracer.graph.effects.append(node)
        size = _torch.unbacked_int(tracer.symbols.env, func is not aten._local_scalar_dense.default)
        (name,) = symbols_in(term(size))
        tracer.graph.defined[name] = (node, None if func is aten._local_scalar_dense.default else 0)
        tracer.answered[asked] = node, size
    node, size = tracer.answered[asked]
    x: Tensor = args[0]
    if func is aten._local_scalar_dense.default:
        return size
    if func is aten.nonzero.default:
        lies = Geometry(0, (term(size), x.dim()), (1, term(size)), torch.int64, False, False)
        return tracer.fresh_at(lies, node, state_of(x).device)
    return tracer.fresh_at(row_major((term(size),), x.dtype), node, state_of(x).device)


def nonzero(tracer: Recorder, mask: Tensor) -> Any:
    """Where a mask is true."""
    return run(tracer, aten.nonzero.default, info_of(aten.nonzero.default), (mask,), {})


def _of_constants(tracer: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an op gives where all that it takes is computed from constants; None if something is not."""
    taken, named = tracer.values(args), tracer.value_of(dict(kwargs))
    behind = ancestors(nodes_in((*taken, *named.values())))
    drawn = set(tracer.graph.effects)
    if any(n.op == PLACEHOLDER or n in drawn or symbols_in([*n.args, *n.kwargs.values()]) for n in behind):
        return None
    values: dict[Node, Any] = {}

    def value(a: Any) -> Any:
        return values[a] if type(a) is Node else [value(x) for x in a] if type(a) in (list, tuple) else a

    with _torch.without_modes(), torch.no_grad(), torch.inference_mode(False):
        for n in (n for n in tracer.graph.nodes if n in behind):
            if n.op == CONSTANT:
                values[n] = n.constant
            else:
                values[n] = n.op(*value(n.args), **{k: value(a) for k, a in n.kwargs.items()})
        return func(*value(taken), **{k: value(a) for k, a in named.items()})


def ask_of_masks(tracer: Recorder, indices: Any) -> None:
    """Ask forward what the backward of a write at these indices will ask."""
    for i in indices:
        if is_mask(i):
            nonzero(tracer, i)


def is_mask(i: Any) -> bool:
    """Whether an index says of each element whether it is meant."""
    return isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)


def without_masks(tracer: Any, indices: Any) -> Any:
    """Indices with, for each mask, where it is true."""
    found: list[Any] = []
    for i in indices:
        if is_mask(i):
            rows = nonzero(tracer, i)
            found += [tracer.views_of(aten.select.int, rows, (1, d)) for d in range(i.dim())]
        else:
            found.append(i)
    return found
