"""A pass over the body: removes statements alone, in chunks and in pairs, and removes contexts."""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

from aotcheck.minimize.edit import bypassed, leaves, pruned, read_by, readers_removed, renamed
from aotcheck.minimize.passes.outputs import returning
from aotcheck.program import Block, Literal, OpCall, Program, Statement, flat_calls, references

__all__ = ["delete_pairs", "delete_statements", "drop_contexts", "without_readers", "without_statements"]

MOST_PAIRS = 60
"""Pairs are for programs that are nearly minimal; in longer ones only those that depend on each other are tried."""


def without_statements(program: Program, removed: Collection[int]) -> Program:
    """The body without some statements, their readers reading their operands instead."""
    body, names = bypassed(program.body, removed)
    return replace(program, body=body, outputs=renamed(program.outputs, names))


def without_readers(program: Program, removed: Collection[int], dead: Collection[str] = ()) -> Program:
    """The body without some statements and everything that read them, in outputs too."""
    body, gone = readers_removed(program.body, removed, dead)
    kept = [i for i, leaf in enumerate(leaves(program.outputs)) if not gone & set(references(leaf))]
    if len(kept) == sum(1 for _ in leaves(program.outputs)):
        return replace(program, body=body)
    outputs = pruned(program.outputs, gone)
    return returning(replace(program, body=body), Literal(None) if outputs is None else outputs, kept)


def _removed(program: Program, removed: Collection[int]) -> Iterator[Program]:
    yield without_readers(program, removed)
    yield without_statements(program, removed)


def delete_statements(program: Program) -> Iterator[Program]:
    """Chunks of statements, half of them at a time, then quarters, and so on (ddmin, Zeller and Hildebrandt, 2002)."""
    count = program.statements
    chunk = count
    while chunk:
        for start in reversed(range(0, count, chunk)):
            yield from _removed(program, range(start, min(start + chunk, count)))
        chunk //= 2


def delete_pairs(program: Program) -> Iterator[Program]:
    """Two statements that only go together: a later one that depends on an earlier one first."""
    calls = list(flat_calls(program.body))
    pairs = list(itertools.combinations(range(len(calls)), 2))
    dependent = [(i, j) for i, j in pairs if _depends(calls[i], calls[j])]
    rest = [pair for pair in pairs if pair not in dependent] if len(pairs) <= MOST_PAIRS else []
    for pair in [*dependent, *rest]:
        yield from _removed(program, pair)


def _depends(first: OpCall, second: OpCall) -> bool:
    """Whether ``second`` reads a result of ``first``, or what ``first`` may have written."""
    return bool((set(first.targets) | read_by(first)) & read_by(second))


def drop_contexts(program: Program) -> Iterator[Program]:
    """Every block opened, then each."""
    count = sum(1 for _ in _blocks(program.body))
    if count > 1:
        yield replace(program, body=_opened(program.body, frozenset(range(count))))
    for index in range(count):
        yield replace(program, body=_opened(program.body, {index}))


def _blocks(body: tuple[Statement, ...]) -> Iterator[Block]:
    for statement in body:
        if isinstance(statement, Block):
            yield statement
            yield from _blocks(statement.body)


def _opened(body: tuple[Statement, ...], chosen: Collection[int]) -> tuple[Statement, ...]:
    count = itertools.count()

    def walk(statements: tuple[Statement, ...]) -> Iterator[Statement]:
        for statement in statements:
            if not isinstance(statement, Block):
                yield statement
            elif next(count) in chosen:
                yield from walk(statement.body)
            else:
                yield replace(statement, body=tuple(walk(statement.body)))

    return tuple(walk(body))
