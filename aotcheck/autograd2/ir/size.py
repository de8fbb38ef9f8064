"""Sizes: ints, or expressions over the symbols of a trace. One type of term for sizes, strides and offsets.

Where shapes are static all terms are ints, and nothing here asks sympy for anything. Two terms are equal only if their
expressions are; that is asked without a guard, so a missed match may cost a second derivation but never adds a guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch

from aotcheck import _torch2 as _torch

__all__ = [
    "SYMBOLIC",
    "Size",
    "contiguous_strides",
    "is_contiguous",
    "is_static",
    "product",
    "same",
    "symbols_in",
    "term",
    "text",
]

Size = Any
"""An int, or a ``sympy.Expr`` over symbols."""

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class _Printer(_torch.PythonPrinter):
    def _print_ToFloat(self, expr: Any) -> str:
        return f"float({self._print(expr.args[0])})"

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))


def term(x: Any) -> Any:
    """The term of an int or SymInt, what the trace has learnt applied; anything else as it is."""
    if type(x) not in SYMBOLIC:
        return x
    return _torch.expression_of(x)


def symbols_in(x: Any) -> list[str]:
    """The names of the symbols in a term, or in lists of terms, sorted."""
    if isinstance(x, sympy.Basic):
        return sorted(map(str, x.free_symbols))
    if isinstance(x, (list, tuple)):
        return sorted({name for y in x for name in symbols_in(y)})
    return []


def is_static(terms: Iterable[Any]) -> bool:
    """Whether all terms are numbers."""
    return not any(isinstance(x, sympy.Basic) for x in terms)


def text(x: Any) -> str:
    """A term as Python source, with the symbols as names; lists and tuples of terms as lists."""
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(text, x)) + "]"
    return str(_Printer().doprint(x)) if isinstance(x, sympy.Basic) else repr(x)


def same(a: Size, b: Size) -> bool:
    """Whether two terms are equal whatever the symbols are, as far as algebra tells."""
    if type(a) is int and type(b) is int:
        return a == b
    return bool(sympy.expand(a - b) == 0)


def product(sizes: Iterable[Size]) -> Size:
    """Of no sizes 1."""
    n: Any = 1
    for size in sizes:
        n = n * size
    return n


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides, as torch gives them: a dimension of no elements counts as one of one element."""
    strides: list[Size] = []
    n: Any = 1
    for size in reversed(shape):
        strides.insert(0, n)
        n = n * (1 if type(size) is int and size == 0 else size)
    return tuple(strides)


def is_contiguous(shape: Sequence[Size], stride: Sequence[Size]) -> bool:
    """Whether the strides are row-major; those of dimensions of one element do not matter."""
    if 0 in shape:
        return True
    expected: Any = 1
    for n, s in zip(reversed(shape), reversed(stride), strict=True):
        if not (type(n) is int and n == 1) and not same(s, expected):
            return False
        expected = expected * n
    return True
