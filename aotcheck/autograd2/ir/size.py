"""Sizes: ints, or expressions over the symbols of a trace. One type of term for sizes, strides and offsets.

Where shapes are static all terms are ints, and nothing here asks sympy for anything. Two terms are equal only if their
expressions are; that is asked without a guard, so a missed match may cost a second derivation but never adds a guard.
At the end: the numbers of a call that may be symbols, and where each is read.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch

from aotcheck import _torch2 as _torch

Size = Any
"""An int, or a ``sympy.Expr`` over symbols."""

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class _Printer(_torch.PythonPrinter):
    def _print_ToFloat(self, expr: Any) -> str:
        return f"float({self._print(expr.args[0])})"

    def _print_Float(self, expr: Any) -> str:
        return text(float(expr))


def term(x: Any) -> Any:
    """The term of an int or SymInt, what the trace has learnt applied; anything else as it is."""
    return _torch.expression_of(x) if type(x) in SYMBOLIC else x


def symbols(x: Any) -> set[Any]:
    """The symbols in a term, or in lists of terms."""
    if isinstance(x, (list, tuple)):
        return set().union(*[symbols(y) for y in x if type(y) is not int])
    return set(x.free_symbols) if isinstance(x, sympy.Basic) else set()


def symbols_in(x: Any) -> list[str]:
    """Their names, sorted."""
    return sorted(map(str, symbols(x)))


def is_static(terms: Iterable[Any]) -> bool:
    """Whether all terms are numbers."""
    return not any(isinstance(x, sympy.Basic) for x in terms)


def text(x: Any) -> str:
    """A term as Python source, with the symbols as names; lists and tuples of terms as lists."""
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(text, x)) + "]"
    if type(x) is float:
        return re.sub("(inf|nan)", r"math.\1", repr(x))
    return str(_Printer().doprint(x)) if isinstance(x, sympy.Basic) else repr(x)


def same(a: Size, b: Size) -> bool:
    """Whether two terms are equal whatever the symbols are, as far as algebra tells."""
    return a == b if type(a) is int and type(b) is int else bool(sympy.expand(a - b) == 0)


_ask: ContextVar[Callable[[Any], bool] | None] = ContextVar("ask", default=None)


@contextlib.contextmanager
def asking(ask: Callable[[Any], bool] | None) -> Iterator[None]:
    """Inside, what algebra does not decide is asked of ``ask``, which guards the answer of the traced call."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def at_least(a: Size, b: Size) -> bool:
    """Whether ``a >= b``: by algebra, or, in a trace, of the traced call with a guard. False where nothing tells."""
    if type(a) is int and type(b) is int:
        return a >= b
    difference = sympy.expand(a - b)
    if (known := difference.is_nonnegative) is not None:
        return bool(known)
    ask = _ask.get()
    return ask is not None and ask(difference >= 0)


by_size = functools.cmp_to_key(lambda a, b: 0 if same(a, b) else 1 if at_least(a, b) else -1)
"""A key by which terms are sorted, the smallest first."""


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides, as torch gives them: a dimension of no elements counts as one of one element."""
    strides: list[Size] = []
    n: Any = 1
    for size in reversed(shape):
        strides.insert(0, n)
        n = n * (1 if type(size) is int and size == 0 else size)
    return tuple(strides)


def dense_strides(shape: Sequence[Size], order: Sequence[int]) -> tuple[Size, ...]:
    """The strides of a dense tensor whose dimensions lie in that order, the outermost first."""
    inner = contiguous_strides([shape[d] for d in order])
    return tuple(inner[list(order).index(d)] for d in range(len(shape)))


def is_contiguous(shape: Sequence[Size], stride: Sequence[Size]) -> bool:
    """Whether the strides are row-major; those of dimensions of one element do not matter."""
    expected = contiguous_strides(shape)
    return 0 in shape or all(n == 1 or same(s, e) for n, s, e in zip(shape, stride, expected, strict=True))


class Of(enum.Enum):
    """What a number is; the value is the source that reads it."""

    SIZE = "{t}.size({dim})"
    STRIDE = "{t}.stride({dim})"
    OFFSET = "{t}.storage_offset()"
    NBYTES = "{t}.untyped_storage().nbytes()"
    PLAIN = "n[{k}]"
    VALUE = "{dim}"


@dataclass(frozen=True)
class Read:
    """Where a number is read in a call.

    Args:
        of: what it is.
        position: of a tensor among those that ``bind`` found; of a Python number among its numbers.
        dim: of a size or a stride, which dimension's; of what tensors hold, the source that computes it.
    """

    of: Of
    position: int
    dim: int | str = 0

    def source(self) -> str:
        """Python that reads it, where ``t0``, ``t1`` … are the tensors and ``n`` the Python numbers."""
        return self.of.value.format(t=f"t{self.position}", k=self.position, dim=self.dim)


Dynamic = frozenset[Read]
"""The numbers that are symbols."""


def lines_of(derived: Mapping[str, str], source: str) -> list[str]:
    """Assignments of those numbers that the source names, and of those that these name, in order."""
    wanted = set(re.findall(r"\w+", source))
    lines: list[str] = []
    for name, expression in reversed(list(derived.items())):
        if name in wanted:
            lines.insert(0, f"{name} = {expression}")
            wanted |= set(re.findall(r"\w+", expression))
    return lines
