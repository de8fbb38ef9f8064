"""What simpler means: a total order on programs, so that every accepted step goes down and minimizing ends."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from math import prod

from aotcheck.minimize.edit import inputs_of, leaves
from aotcheck.program import (
    Block,
    Call,
    DictExpr,
    DType,
    Expr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    SliceExpr,
    Statement,
    Strided,
    TupleExpr,
    flat_calls,
    references,
)
from aotcheck.program.ops.registry import Work, find

__all__ = ["DTYPES", "SIMPLE", "Size", "contiguous", "rank_of", "size"]

DTYPES = ("float32", "int64", "bool", "float64", "complex64", "int32")
"""Dtypes from simple to odd; the rest are odder, and equally so."""

SIMPLE: tuple[tuple[str, ...], ...] = (
    ("Tensor.clone", "Tensor.zero_", "Tensor.detach", "Tensor.t", "torch.zeros", "Tensor.sum"),
    ("torch.neg", "torch.add", "Tensor.neg_", "Tensor.copy_", "Tensor.view_as", "torch.ones", "Tensor.t_"),
    ("torch.mul", "Tensor.add_", "Tensor.view", "getitem", "torch.cat"),
    ("torch.sin", "Tensor.mul_", "Tensor.expand", "setitem", "Tensor.sin_", "Tensor.fill_"),
)
"""Op paths from simple to less simple; the rest come behind, inexact ones last."""

_RANKS = {path: rank for rank, paths in enumerate(SIMPLE) for path in paths}


@dataclass(frozen=True, order=True)
class Size:
    """How much there is to read in a program, the heavier first; compared as a tuple.

    Args:
        lines: statements, inputs, outputs, calls and their steps, weighed.
        sharing: tensors that share a storage with another, duplicates, offsets, strides, ``requires_grad``.
        ops: ranks of the ops.
        dtypes: ranks of the dtypes.
        elements: elements of the inputs, and their dimensions.
        nodes: nodes of expressions.
        refs: how far up the names read are defined.
        magnitude: of numbers, and of data.
        names: how many names are not the canonical ones.
    """

    lines: int
    sharing: int
    ops: int
    dtypes: int
    elements: int
    nodes: int
    refs: int
    magnitude: int
    names: int


def rank_of(path: str) -> int:
    """How far from simple an op is."""
    return _RANKS.get(path, 10 if find(path)[0].work is Work.EXACT else 12)


def contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(prod(max(n, 1) for n in sizes[i + 1 :]) for i in range(len(sizes)))


def size(program: Program) -> Size:
    """The size of a program."""
    inputs = [i for _, i in inputs_of(program)]
    statements = [*program.body, *(s for i in inputs for s in i.derived)]
    calls = list(flat_calls(tuple(statements)))
    expressions = [e for call in calls for e in (*call.args, *(v for _, v in call.kwargs))]
    ends = [program.outputs, *(arg for i in inputs for arg in i.args)]
    return Size(
        lines=_lines(program, inputs),
        sharing=sum(map(_sharing, inputs)),
        ops=sum(rank_of(call.path) for call in calls),
        dtypes=sum(map(_dtype_rank, _dtypes(inputs, expressions))),
        elements=sum(map(_elements, inputs)),
        nodes=sum(map(_nodes, expressions)) + sum(len(call.targets) for call in calls),
        refs=_refs(program) + sum(_scope_refs(i) for i in inputs),
        magnitude=sum(map(_magnitude, [*expressions, *ends])) + sum(map(_data, inputs)) + _plan_numbers(program.calls),
        names=_odd_names(program, inputs),
    )


def _blocks(statements: tuple[Statement, ...]) -> int:
    return sum(1 + _blocks(s.body) for s in statements if isinstance(s, Block))


def _containers(expr: Expr) -> int:
    match expr:
        case TupleExpr(items):
            return 1 + sum(map(_containers, items))
        case ListExpr(items):
            return 2 + sum(map(_containers, items))
        case DictExpr(pairs, of):
            return (4 if of else 3) + sum(_containers(item) for _, item in pairs)
        case _:
            return 0


def _lines(program: Program, inputs: list[Inputs]) -> int:
    found = 4 * program.statements + 2 * _blocks(program.body) + sum(map(_steps, program.calls))
    found += _containers(program.outputs) + 2 * sum(expr != Literal(None) for expr in leaves(program.outputs))
    for i in inputs:
        found += 2 + 2 * len(i.tensors) + 3 * sum(1 for _ in flat_calls(i.derived)) + 2 * _blocks(i.derived)
        found += sum(3 * sum(1 for _ in leaves(arg)) + _containers(arg) for arg in i.args)
        found += 2 * len({s.name for s in i.storages} - {t.storage for t in i.tensors})
    return found


def _steps(call: Call) -> int:
    """A call, and what it does besides calling: one for each field that is not at its default."""
    found = 2
    for field in fields(call):
        value = getattr(call, field.name)
        if field.name != "inputs" and value != field.default:
            found += 2 * len(value) if isinstance(value, tuple) else 2
    return found


def _is_contiguous(t: Strided) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(t.size, t.stride, contiguous(t.size), strict=True))


def _sharing(inputs: Inputs) -> int:
    shared = len(inputs.tensors) - len({t.storage for t in inputs.tensors})
    passed = [name for arg in inputs.args for name in references(arg)]
    dtypes = {s.name: s.dtype for s in inputs.storages}
    odd = sum(
        t.requires_grad + (t.offset > 0) + (not _is_contiguous(t)) + (t.dtype != dtypes[t.storage])
        for t in inputs.tensors
    )
    return 3 * shared + 2 * (len(passed) - len(set(passed))) + odd


def _dtypes(inputs: list[Inputs], expressions: list[Expr]) -> Iterator[str]:
    for i in inputs:
        yield from (s.dtype for s in i.storages)
        yield from (t.dtype for t in i.tensors)
    for expr in expressions:
        yield from (leaf.name for leaf in leaves(expr) if isinstance(leaf, DType))


def _dtype_rank(name: str) -> int:
    return DTYPES.index(name) if name in DTYPES else len(DTYPES)


def _elements(inputs: Inputs) -> int:
    # A tensor without elements is odder than one with a single one.
    tensors = sum((prod(t.size) or 2) + 2 * len(t.size) + sum(n == 0 for n in t.size) for t in inputs.tensors)
    return tensors + sum(s.numel for s in inputs.storages)


def _nodes(expr: Expr) -> int:
    match expr:
        case TupleExpr(items) | ListExpr(items):
            return 1 + sum(map(_nodes, items))
        case DictExpr(pairs):
            return 1 + sum(_nodes(item) for _, item in pairs)
        case SliceExpr(start, stop, step):
            return 2 + sum(part is not None for part in (start, stop, step))
        case _:
            return 1


def _positions(names: list[str], reads: Iterator[str]) -> int:
    place = {name: index for index, name in enumerate(names)}
    return sum(place.get(name, 0) for name in reads)


def _refs(program: Program) -> int:
    calls = list(flat_calls(program.body))
    names = [*program.params, *(name for call in calls for name in call.targets)]
    return _positions(names, _reads(calls, [program.outputs]))


def _scope_refs(inputs: Inputs) -> int:
    calls = list(flat_calls(inputs.derived))
    names = [*(t.name for t in inputs.tensors), *(name for call in calls for name in call.targets)]
    return _positions(names, _reads(calls, inputs.args))


def _reads(calls: list[OpCall], ends: list[Expr] | tuple[Expr, ...]) -> Iterator[str]:
    for call in calls:
        for expr in (*call.args, *(v for _, v in call.kwargs)):
            yield from references(expr)
    for end in ends:
        yield from references(end)


def _number(value: object) -> int:
    """How far a constant is from 0; what is not a whole number, or is negative, is farther."""
    match value:
        case bool():
            return int(value)
        case int():
            return 2 * abs(value) + (value < 0)
        case float():
            whole = value == value and abs(value) < 2**40 and value == int(value)
            return 2 * abs(int(value)) + (value < 0) + 1 if whole else 100
        case complex():
            return 10 + _number(value.real) + _number(value.imag)
        case None:
            return 0
        case _:
            return 1 if isinstance(value, str) else 100


def _magnitude(expr: Expr) -> int:
    match expr:
        case Literal(value):
            return _number(value)
        case TupleExpr(items) | ListExpr(items):
            return sum(map(_magnitude, items))
        case DictExpr(pairs):
            return sum(_magnitude(item) for _, item in pairs)
        case SliceExpr(start, stop, step):
            return sum(map(_number, (start, stop, step)))
        case _:
            return 0


def _data(inputs: Inputs) -> int:
    return sum(2 * abs(v) + (v < 0) for s in inputs.storages for v in s.data)


def _plan_numbers(calls: tuple[Call, ...]) -> int:
    """Numbers, choices and entries of the steps, whatever kinds of steps there are."""
    names = [field.name for field in fields(Call) if field.name != "inputs"]
    return sum(_weight(getattr(call, name)) for call in calls for name in names)


def _weight(value: object) -> int:
    match value:
        case Enum():
            return list(type(value)).index(value)
        case bool() | int():
            return abs(value) + (value < 0)
        case tuple():
            return sum(1 + _weight(item) for item in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = [(getattr(value, field.name), field.default) for field in fields(value)]
            return sum(_weight(part) + (default is not MISSING and part != default) for part, default in parts)
        case _:
            return 0


def _odd_names(program: Program, inputs: list[Inputs]) -> int:
    found = _odd(program.params, "x") + _odd([n for c in flat_calls(program.body) for n in c.targets], "v")
    for i in inputs:
        named = [*(t.name for t in i.tensors), *(n for c in flat_calls(i.derived) for n in c.targets)]
        found += _odd([s.name for s in i.storages], "s") + _odd(named, "a")
    return found


def _odd(names: list[str] | tuple[str, ...], letter: str) -> int:
    return sum(name != f"{letter}{index}" for index, name in enumerate(names))
