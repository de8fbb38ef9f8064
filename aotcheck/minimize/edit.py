"""Edits of programs: remove statements, replace names, prune outputs, and check that the result is well formed.

An edit may change what a program computes: the predicate decides whether the result is of use. But the result must be
well formed (:func:`closed`).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from aotcheck.program import (
    Block,
    DeviceOf,
    DictExpr,
    Expr,
    Inputs,
    ListExpr,
    OpCall,
    Program,
    Ref,
    Statement,
    TupleExpr,
    flat_calls,
    references,
)

__all__ = [
    "Body",
    "bypassed",
    "closed",
    "edited",
    "inputs_of",
    "leaves",
    "mapped",
    "pruned",
    "read_by",
    "readers_removed",
    "renamed",
    "renamed_call",
    "renamed_statements",
    "with_inputs",
]

Body = tuple[Statement, ...]


def mapped(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """``expr`` with ``change`` applied to each node from the top; if it returns None, to the node's children."""
    changed = change(expr)
    if changed is not None:
        return changed
    match expr:
        case TupleExpr(items):
            return TupleExpr(tuple(mapped(item, change) for item in items))
        case ListExpr(items):
            return ListExpr(tuple(mapped(item, change) for item in items))
        case DictExpr(pairs):
            return replace(expr, items=tuple((key, mapped(item, change)) for key, item in pairs))
        case _:
            return expr


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """``expr`` with names replaced."""

    def change(node: Expr) -> Expr | None:
        match node:
            case Ref(name):
                return Ref(names.get(name, name))
            case DeviceOf(name):
                return DeviceOf(names.get(name, name))
            case _:
                return None

    return mapped(expr, change)


def edited(body: Body, change: Callable[[int, OpCall], OpCall | None]) -> Body:
    """``body`` with ``change(index, call)`` in place of each op call, removed if that is None; empty blocks go too."""
    count = itertools.count()

    def walk(statements: Body) -> Iterator[Statement]:
        for statement in statements:
            if isinstance(statement, Block):
                inner = tuple(walk(statement.body))
                if inner:
                    yield replace(statement, body=inner)
            else:
                changed = change(next(count), statement)
                if changed is not None:
                    yield changed

    return tuple(walk(body))


def _arguments(call: OpCall) -> Iterator[Expr]:
    yield from call.args
    for _, value in call.kwargs:
        yield value


def read_by(call: OpCall) -> set[str]:
    """The names that a statement reads."""
    return {name for expr in _arguments(call) for name in references(expr)}


def renamed_call(call: OpCall, names: Mapping[str, str]) -> OpCall:
    """A statement that reads other names."""
    kwargs = tuple((key, renamed(value, names)) for key, value in call.kwargs)
    return replace(call, args=tuple(renamed(arg, names) for arg in call.args), kwargs=kwargs)


def renamed_statements(body: Body, names: Mapping[str, str]) -> Body:
    """Statements that read other names."""
    return edited(body, lambda _, call: renamed_call(call, names))


def _first_operand(call: OpCall) -> str | None:
    return next((name for expr in _arguments(call) for name in references(expr)), None)


def bypassed(body: Body, removed: Collection[int]) -> tuple[Body, dict[str, str]]:
    """``body`` without some of its op calls; statements that read their results read their first operand instead.

    Returns the body, and the names to replace in what follows it.
    """
    names: dict[str, str] = {}

    def change(index: int, call: OpCall) -> OpCall | None:
        call = renamed_call(call, names)
        if index not in removed:
            return call
        operand = _first_operand(call)
        if operand is not None:
            names.update(dict.fromkeys(call.targets, operand))
        return None

    return edited(body, change), names


def readers_removed(body: Body, removed: Collection[int], dead: Iterable[str] = ()) -> tuple[Body, set[str]]:
    """``body`` without some of its op calls and all that read their results or a ``dead`` name.

    Returns the body and every dead name.
    """
    gone = set(dead)

    def change(index: int, call: OpCall) -> OpCall | None:
        if index in removed or gone & read_by(call):
            gone.update(call.targets)
            return None
        return call

    return edited(body, change), gone


def pruned(expr: Expr, dead: Collection[str]) -> Expr | None:
    """``expr`` without the leaves that read a dead name; None if nothing is left."""
    match expr:
        case Ref(name) | DeviceOf(name):
            return None if name in dead else expr
        case TupleExpr(items) | ListExpr(items):
            kept = tuple(k for k in (pruned(item, dead) for item in items) if k is not None)
            return type(expr)(kept) if kept or not items else None
        case DictExpr(pairs, of) if of:  # an object has all of its fields
            return expr if all(pruned(item, dead) == item for _, item in pairs) else None
        case DictExpr(pairs):
            inner = ((key, pruned(item, dead)) for key, item in pairs)
            left = tuple((key, item) for key, item in inner if item is not None)
            return DictExpr(left) if left or not pairs else None
        case _:
            return expr


def leaves(expr: Expr) -> Iterator[Expr]:
    """The leaves of a pytree of expressions."""
    match expr:
        case TupleExpr(items) | ListExpr(items):
            for item in items:
                yield from leaves(item)
        case DictExpr(pairs):
            for _, item in pairs:
                yield from leaves(item)
        case _:
            yield expr


# -- inputs


def inputs_of(program: Program) -> Iterator[tuple[int, Inputs]]:
    """The numbers of the calls that have inputs of their own, with these inputs."""
    for index, call in enumerate(program.calls):
        if call.inputs is not None:
            yield index, call.inputs


def with_inputs(program: Program, changed: Mapping[int, Inputs]) -> Program:
    """``program`` with other inputs for some calls."""
    calls = tuple(replace(c, inputs=changed[i]) if i in changed else c for i, c in enumerate(program.calls))
    return replace(program, calls=calls)


# -- whether a program holds together


def closed(program: Program) -> bool:
    """True if every name is defined once, before it is read, and every call has an argument for each parameter."""
    if len(set(program.params)) != len(program.params):
        return False
    if not _closed(program.body, [program.outputs], program.params):
        return False
    return all(len(i.args) == len(program.params) and _closed_inputs(i) for _, i in inputs_of(program))


def _closed(body: Body, ends: Iterable[Expr], defined: Iterable[str]) -> bool:
    scope = set(defined)
    for call in flat_calls(body):
        if not read_by(call) <= scope or scope & set(call.targets):
            return False
        scope |= set(call.targets)
    return all(name in scope for end in ends for name in references(end))


def _closed_inputs(inputs: Inputs) -> bool:
    storages = {s.name: s for s in inputs.storages}
    tensors = {t.name for t in inputs.tensors}
    if len(storages) != len(inputs.storages) or len(tensors) != len(inputs.tensors) or tensors & set(storages):
        return False
    if not all(t.storage in storages for t in inputs.tensors):
        return False
    return _closed(inputs.derived, inputs.args, tensors)
