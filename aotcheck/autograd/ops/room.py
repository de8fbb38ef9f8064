"""Ops whose kernels leave more memory under their result than it needs.

Note [Room]
Some losses compute all their summands into the memory of the result, or make room for them there, and then make it a
single number. The caller sees that where the result's storage becomes one of his tensors' (``x.data = loss``), and a
program by windows beyond the result. So the replica's storage is as large as eager's. What lies in the rest is left to
chance by some kernels and the other summands after others; these are computed when somebody looks. A result that is
returned, and nothing else, is the graph's output as it is: how large its storage is is a compiler's business.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from aotcheck import _torch
from aotcheck.autograd.ir.trace import Value
from aotcheck.autograd.ops.foretold import first_geometry

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_SUMMANDS_STAY = frozenset({aten.soft_margin_loss.default, aten.binary_cross_entropy.default})
"""Those that leave their summands there, but for the first."""


def make_room(
    tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, given: tuple[Any, ...]
) -> Any:
    """The ``result`` that ``func`` gave, on a storage as large as eager's; ``given`` are the values of ``args``."""
    place = _place_of_reduction(func)
    reduction = args[place] if len(args) > place else kwargs.get("reduction", 1)
    if not reduction or result.dim():
        return result
    each = first_geometry(tracer, func, _with_reduction(args, place), _without_reduction(kwargs))
    count = each.numel
    if count < 2:
        return result
    state = tracer.table.state(result)
    _torch.storage_of(result).resize_(count * result.itemsize)
    state.nbytes, state.has_room = count * result.itemsize, True
    if func in _SUMMANDS_STAY:
        order = each.dense_order
        state.rest = functools.partial(_summands, tracer, func, _with_reduction(given, place), kwargs, order)
    return result


@functools.cache
def _place_of_reduction(func: Any) -> int:
    return [a.name for a in _torch.schema_of(func).arguments].index("reduction")


def _with_reduction(args: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """The arguments by which all summands are computed."""
    return (*args[:place], *[None] * (place - len(args)), 0, *args[place + 1 :])


def _without_reduction(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: a for k, a in kwargs.items() if k != "reduction"}


def _summands(
    tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], order: list[int] | None
) -> Value:
    """All summands but the first, as they lie in memory."""
    emit, first = tracer.table.emit, args[0]
    each = emit.op(first, func, *args, **_without_reduction(kwargs))
    if order is not None and order != sorted(order):
        each = emit.op(first, aten.permute.default, each, order)
    each = emit.op(first, aten.reshape.default, each, [-1])
    return emit.op(first, aten.clone.default, emit.op(first, aten.slice.Tensor, each, 0, 1))
