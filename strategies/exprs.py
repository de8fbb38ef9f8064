"""Expressions for values, and the relations between shapes and dtypes."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from aotcheck.program import DType, Expr, ListExpr, Literal, TupleExpr, evaluate
from aotcheck.program.running.memory import size_of

__all__ = [
    "broadcasts",
    "compatible",
    "dtype_expr",
    "ints",
    "literal",
    "of_size",
    "overlong",
    "parameters",
    "python_value",
]


def ints(values: tuple[int, ...] | list[int]) -> TupleExpr:
    """A tuple of constants."""
    return TupleExpr(tuple(Literal(int(v)) for v in values))


def literal(value: Any) -> Expr:
    """A constant, tuples and lists opened."""
    if isinstance(value, tuple):
        return TupleExpr(tuple(literal(v) for v in value))
    if isinstance(value, list):
        return ListExpr(tuple(literal(v) for v in value))
    return Literal(value)


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a tensor of ``shape`` broadcasts to shape ``to`` as it stands."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def compatible(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast together."""
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def overlong(t: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether writing ``t`` to ``target`` would drop an imaginary part (eager warns and goes on)."""
    return t.is_complex() and not target.is_complex()


def python_value(expr: Expr) -> Any:
    """What an expression without names stands for."""
    return evaluate(expr, {})


def dtype_expr(dtype: torch.dtype) -> DType:
    """A dtype as it is written."""
    return DType(str(dtype).removeprefix("torch."))


Named = tuple[str, torch.Tensor]


def of_size(tensors: Iterable[Named], size: Sequence[int | None], dtype: torch.dtype) -> list[Named]:
    """Those of a dtype and a size, of any length where ``size`` says None."""
    alike = [(name, t) for name, t in tensors if t.dim() == len(size) and t.dtype == dtype]
    return [(name, t) for name, t in alike if all(n in (None, m) for n, m in zip(size, size_of(t), strict=True))]


def parameters(found: list[Named]) -> list[Named]:
    """Those that are trained, if there are such; else all."""
    return [(name, t) for name, t in found if t.requires_grad and t.is_leaf] or found
