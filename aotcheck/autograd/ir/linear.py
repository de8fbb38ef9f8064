"""Whether recorded values are linear in others, as far as the ops that they come of are known to be."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.trace import CONSTANT, Value, getitem


class _Degree(enum.Enum):
    """How a value hangs on the given ones."""

    ZERO = "zero"
    CONSTANT = "constant"  # whatever the given ones are
    LINEAR = "linear"
    UNKNOWN = "unknown"


def are_linear(values: Iterable[Value], given: Iterable[Value], since: Iterable[Value]) -> bool:
    """Whether all of ``values`` are linear in those ``given``: for a sum of these they are sums, and for zeros zero.

    ``since`` is what was recorded after what is given, in order: nothing else hangs on that.
    """
    degrees: dict[Value, _Degree] = dict.fromkeys(given, _Degree.LINEAR)
    for v in since:
        if v not in degrees:
            degrees[v] = _of_result(v, degrees)
    return all(degrees.get(v) in _OF_SUMS for v in values)


_OF_SUMS = (_Degree.ZERO, _Degree.LINEAR)


def _of_result(v: Value, degrees: Mapping[Value, _Degree]) -> _Degree:
    of = [_known(degrees, i) for i in v.inputs()]
    if v.op is getitem:
        return of[0]
    if v.op is CONSTANT:
        return _Degree.ZERO if _is_zero(v.constant) else _Degree.CONSTANT
    name = _torch.op_name(v.op) if getattr(v.op, "namespace", "") == "aten" else ""
    if name in _ZEROS or (name in _FILLED and v.args[1:2] == (0,)):
        return _Degree.ZERO
    if name.endswith("_like"):
        return _Degree.CONSTANT
    if _Degree.UNKNOWN in of:
        return _Degree.UNKNOWN
    if _Degree.LINEAR not in of:
        zero = name in _OF_ALL and _Degree.ZERO in of and _is_linear_in_all(name, v, degrees)
        return _Degree.ZERO if zero else _Degree.CONSTANT
    return _Degree.LINEAR if _is_linear(name, v, degrees) else _Degree.UNKNOWN


def _is_zero(t: Tensor) -> bool:
    """Whether ``t`` is a number, like what is assigned to places of another tensor, and that is zero."""
    return t.numel() == 1 and t.device.type == "cpu" and not t.item()


def _known(degrees: Mapping[Value, _Degree], v: Value) -> _Degree:
    return degrees.get(v, _Degree.CONSTANT)


def _is_linear(name: str, v: Value, degrees: Mapping[Value, _Degree]) -> bool:
    """Whether the aten op ``name`` gives ``v`` such that it is linear in those of its operands that are."""
    if name in _OF_ALL:
        return _is_linear_in_all(name, v, degrees)
    linear = [i for i in v.inputs() if degrees.get(i) is _Degree.LINEAR]
    if name in _PRODUCTS:
        return len(linear) == 1
    if name in _OF_THE_FIRST:
        return linear == [*v.args[:1]] and v.kwargs.get("rounding_mode") is None
    if "_backward" in name and "double_backward" not in name:
        first: str = _torch.schema_of(v.op).arguments[0].name
        return first.startswith("grad") and linear == [*v.args[:1]]
    return False


def _is_linear_in_all(name: str, v: Value, degrees: Mapping[Value, _Degree]) -> bool:
    """Whether all that the op ``name`` moves, adds or picks is linear or zero, and where it does so is constant."""
    if "reduce" in v.kwargs or (v.geometry is not None and not _has_numbers(v)):
        return False
    operands = v.inputs()[1:] if name == "copy" else v.inputs()  # nothing is left of what is written
    if any((_known(degrees, i) in _OF_SUMS) != _has_numbers(i) for i in operands):
        return False
    return not any(_is_number(v.args[k]) for k in _MAY_BE_NUMBERS.get(name, ()) if k < len(v.args))


def _is_number(a: Any) -> bool:
    return isinstance(a, (int, float, complex)) and a != 0


def _has_numbers(v: Value) -> bool:
    """Whether ``v`` has numbers that may be added up, not indices or truth values."""
    return v.geometry is not None and (v.geometry.dtype.is_floating_point or v.geometry.dtype.is_complex)


_ZEROS = {"zeros", "zeros_like", "new_zeros", "zero", "_efficientzerotensor"}
_FILLED = {"full", "full_like"}
# What moves elements about, picks some, adds them up or gives them another dtype.
_OF_ALL = {
    *("add", "sub", "neg", "positive", "sum", "mean", "cumsum", "cat", "stack", "clone", "alias", "detach", "copy"),
    *("_to_copy", "_conj", "_conj_physical", "_neg_view", "real", "imag", "view_as_real", "view_as_complex"),
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy", "unsqueeze", "squeeze", "t", "transpose"),
    *("permute", "expand", "select", "slice", "narrow", "split", "split_with_sizes", "unsafe_split", "unbind"),
    *("diagonal", "as_strided", "movedim", "flip", "roll", "rot90", "repeat", "tril", "triu", "trace", "unfold"),
    *("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", "constant_pad_nd"),
    *("where", "masked_fill", "index", "_unsafe_index", "index_select", "gather", "take", "index_put", "index_add"),
    *("_unsafe_index_put", "index_copy", "scatter", "scatter_add", "masked_scatter"),
    *("lift", "lift_fresh", "lift_fresh_copy"),
}  # fmt: skip
# Which of their operands may be numbers: a sum with one is not linear.
_MAY_BE_NUMBERS = {
    "add": (1,), "sub": (1,), "where": (1, 2), "masked_fill": (2,), "constant_pad_nd": (2,), "scatter": (3,),
}  # fmt: skip
_PRODUCTS = {"mul", "mm", "bmm", "mv", "dot", "matmul", "outer", "einsum", "vdot", "kron"}
_OF_THE_FIRST = {"div", "true_divide"}
