"""Draw an op's arguments by kind, against the tensors there are."""

from collections.abc import Callable
from typing import Any

from aotcheck.program import Expr
from aotcheck.program.ops.registry import Kind, Op, Param

from .chooser import Chooser
from .composed import (
    causal,
    chain,
    columns,
    image,
    in_order,
    part,
    places,
    positive,
    sequence,
    spectrum,
    target,
    tokens,
    transposed_weight,
)
from .kinds import Arguments, Impossible, ints, literal
from .state import State

__all__ = ["Impossible", "draw_arguments"]

_CAST = ("float32", "float64", "int64", "bool", "complex64", "int32")
_FLOATS = ("float32", "float64", "complex64")


def _just(*options: Any) -> Callable[[Arguments], Expr]:
    return lambda a: literal(a.choose.one(options))


_DRAWERS: dict[Kind, Callable[[Arguments], Expr]] = {
    Kind.SELF: Arguments.first,
    Kind.OTHER: Arguments.other,
    Kind.PEER: Arguments.peer,
    Kind.FIT: Arguments.fit,
    Kind.FIT_TENSOR: Arguments.fit_tensor,
    Kind.SAME: Arguments.same,
    Kind.OUT: Arguments.out,
    Kind.MAT: Arguments.mat,
    Kind.MAT_T: Arguments.mat_t,
    Kind.BMAT: Arguments.bmat,
    Kind.LEFT: Arguments.left,
    Kind.RIGHT: Arguments.right,
    Kind.STORAGE: Arguments.storage,
    Kind.SOURCE_TENSOR: Arguments.source_tensor,
    Kind.NBYTES: Arguments.nbytes,
    Kind.CONTAINER: Arguments.container,
    Kind.KEY: Arguments.key,
    Kind.ANYTHING: Arguments.anything,
    Kind.ITEMS: Arguments.items,
    Kind.DATA: Arguments.data,
    Kind.VEC: Arguments.vec,
    Kind.INDEX: Arguments.one_index,
    Kind.INDEX_ONCE: lambda a: a.one_index(once=True),
    Kind.INDEX_FULL: Arguments.full_index,
    Kind.INDEX_FULL_ONCE: lambda a: a.full_index(once=True),
    Kind.INDICES: Arguments.indices,
    Kind.SOURCE: Arguments.source,
    Kind.ROWS: Arguments.source,
    Kind.MASK: Arguments.mask,
    Kind.TENSORS: Arguments.tensors,
    Kind.LIST: Arguments.write_list,
    Kind.LIST_SAME: Arguments.list_same,
    Kind.SCALAR: Arguments.scalar,
    Kind.INT: _just(1, 2),
    Kind.BOOLEAN: _just(False, True),
    Kind.DIM: Arguments.draw_dim,
    Kind.DIM2: Arguments.other_dim,
    Kind.NEW_DIM: Arguments.new_dim,
    Kind.DIMS: Arguments.dims,
    Kind.PERM: Arguments.perm,
    Kind.VIEW_SIZE: Arguments.view_size,
    Kind.FACTORY_SIZE: Arguments.factory_size,
    Kind.EXPAND_SIZE: Arguments.expand_size,
    Kind.STRIDED_SIZE: Arguments.strided_size,
    Kind.STRIDED_STRIDE: Arguments.strided_stride,
    Kind.STRIDED_OFFSET: Arguments.strided_offset,
    Kind.RESIZE_SIZE: Arguments.resize_size,
    Kind.SPLIT_SIZE: _just(1, 2),
    Kind.SPLIT_SIZES: Arguments.split_sizes,
    Kind.SPLIT_POINTS: Arguments.split_points,
    Kind.START: Arguments.start,
    Kind.LENGTH: Arguments.draw_length,
    Kind.POSITION: Arguments.position,
    Kind.WINDOW: Arguments.window,
    Kind.STEP: _just(1, 2),
    Kind.DIAGONAL: _just(0, 1, -1),
    Kind.SUBSCRIPT: Arguments.subscript,
    Kind.SHIFT: _just(1, -1),
    Kind.PADS: Arguments.pads,
    Kind.REPEATS: Arguments.repeats,
    Kind.TOP: _just(1),
    Kind.DTYPE: lambda a: a.dtype(_CAST),
    Kind.FLOAT_DTYPE: lambda a: a.dtype(_FLOATS),
    Kind.VIEW_DTYPE: Arguments.view_dtype,
    Kind.DEVICE: lambda a: a.state.device(),
    Kind.NORMALIZED: lambda a: ints(a.shape()[-1:]),
    Kind.CONV_WEIGHT: Arguments.conv_weight,
    Kind.TABLE: Arguments.table,
    Kind.BIAS: Arguments.bias,
    Kind.CHANNELS: Arguments.channels,
    Kind.STATISTICS: Arguments.statistics,
    Kind.FLAG: Arguments.flag,
    Kind.NUMBER: Arguments.number,
    Kind.POSITIVE: positive,
    Kind.IMAGE: image,
    Kind.COLUMNS: columns,
    Kind.SEQUENCE: sequence,
    Kind.UNFOLDED: lambda a: ints(a.size),
    Kind.SPECTRUM: spectrum,
    Kind.CHAIN: chain,
    Kind.TARGET: target,
    Kind.TOKENS: tokens,
    Kind.SORTED: in_order,
    Kind.CAUSAL: causal,
    Kind.PART: part,
    Kind.PLACES: places,
    Kind.CONV_TRANSPOSE_WEIGHT: transposed_weight,
}


def _draw(arguments: Arguments, param: Param) -> Expr:
    if param.kind is Kind.CONSTANT:
        return arguments.constant(param.choices)
    return _DRAWERS[param.kind](arguments)


def draw_arguments(choose: Chooser, state: State, op: Op) -> tuple[tuple[Expr, ...], tuple[tuple[str, Expr], ...]]:
    """Positional and keyword arguments for ``op``; statements that make its index tensors are added to ``state``.

    Raises:
        Impossible: no tensor at hand fits.
    """
    arguments = Arguments(choose, state, op)
    for param in op.params:
        if param.optional and not choose.chance(30):
            continue
        expr = _draw(arguments, param)
        if param.keyword:
            arguments.named.append((param.keyword, expr))
        else:
            arguments.drawn.append(expr)
    return tuple(arguments.drawn), tuple(arguments.named)
