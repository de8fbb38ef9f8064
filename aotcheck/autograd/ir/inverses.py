"""How a write to a view is carried to what the view was made from: the inverse of each op that makes views."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aotcheck.autograd.ir.emit import Emitter
from aotcheck.autograd.ir.flat_values import scatter
from aotcheck.autograd.ir.storage_state import RESHAPES, SPLITS, WINDOW, View
from aotcheck.autograd.ir.trace import Value

aten = torch.ops.aten


def inverse(emit: Emitter, view: View, value: Value, whole: Callable[[], Value]) -> Value:
    """The parent's value after ``value`` was written to ``view``; ``whole`` gives what the parent held before."""
    op, parent, args = view.op, view.parent, view.args
    assert parent is not None
    if op is WINDOW:
        return scatter(emit, parent, whole(), view.geometry, value)
    if op in RESHAPES or op is aten.expand.default:
        both = view.geometry.is_contiguous and parent.geometry.is_contiguous
        return emit.viewop(aten.view.default if both else aten.reshape.default, value, list(parent.geometry.shape))
    if op is aten.transpose.int or op is aten.t.default:
        return emit.viewop(op, value, *args)
    if op is aten.permute.default:
        order_back = [0] * len(args[0])
        for i, d in enumerate(args[0]):
            order_back[d % len(order_back)] = i
        return emit.viewop(op, value, order_back)
    if op is aten._conj.default:
        return emit.op(value, aten._conj_physical.default, value)
    if op is aten._neg_view.default:
        return emit.op(value, aten.neg.default, value)
    if op is aten.view_as_real.default:
        order = view.geometry.dense_order
        kept = order is not None and order[-1] == len(order) - 1  # real and imaginary parts lie together
        kept = kept and 0 not in view.geometry.shape  # how nothing lies is not always foretold
        layout = torch.preserve_format if kept else torch.contiguous_format
        copy = emit.op(value, aten.clone.default, value, memory_format=layout)
        return emit.op(value, aten.view_as_complex.default, copy)
    if op is aten.view_as_complex.default:
        return emit.op(value, aten.view_as_real.default, emit.op(value, aten.resolve_conj.default, value))
    old = whole()
    if not parent.in_whole_elements:
        old = emit.op(value, aten.clone.default, old)
    if op is aten.select.int:
        return emit.op(value, aten.select_scatter.default, old, value, *args)
    if op is aten.slice.Tensor:
        return emit.op(value, aten.slice_scatter.default, old, value, *args)
    if op is aten.diagonal.default:
        return emit.op(value, aten.diagonal_scatter.default, old, value, *args, **view.kwargs)
    if op is aten.unbind.int:
        return emit.op(value, aten.select_scatter.default, old, value, args[0] if args else 0, view.index)
    if op in SPLITS:
        assert view.index is not None
        dim = args[1] if len(args) > 1 else 0
        start = args[0] * view.index if isinstance(args[0], int) else sum(args[0][: view.index])
        return emit.op(value, aten.slice_scatter.default, old, value, dim, start, start + view.geometry.shape[dim])
    raise AssertionError(f"no inverse for {op}")
