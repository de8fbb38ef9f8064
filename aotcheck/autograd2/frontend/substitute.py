"""Replicas in the place of tensors while the function runs, and what it assigned to its surroundings.

The tables that ``bind`` found are given replicas, the function runs, and all are set back. What differs then from what
was put there is what every call has to assign.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from aotcheck.autograd2.frontend.bind import ARGUMENTS, Bound
from aotcheck.autograd2.ir.structure import GONE, PLAIN, content_of, set_content, unchanged

CACHED = type(functools.cache(len))
Change = tuple[int, Any, Any]
"""Which table, the key, and the value that it has now; ``GONE`` if none."""


def replaced(x: Any, replicas: Mapping[Any, Any]) -> Any:
    """``x`` with replicas for tensors, in tuples and weak references too; of the rest only functions with a cache."""
    kind = type(x)
    if issubclass(kind, Tensor) or kind is CACHED:
        return replicas.get(x, x)
    if kind is weakref.ref:
        replica = replicas.get(target) if isinstance(target := x(), Tensor) else None
        return x if replica is None else weakref.ref(replica)
    if issubclass(kind, (tuple, frozenset)) and x:
        items = [replaced(y, replicas) for y in x]
        if all(a is b for a, b in zip(items, x, strict=True)):
            return x
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return x


def _with_replicas(content: Any, table: Any, replicas: Mapping[Any, Any]) -> Any:
    if type(table) is types.CellType:
        return replaced(content, replicas)
    if type(content) is dict:
        return {replaced(k, replicas): replaced(v, replicas) for k, v in content.items()}
    return [replaced(v, replicas) for v in content]


def arguments(
    bound: Bound, args: Sequence[Any], kwargs: Mapping[str, Any], replicas: Mapping[Any, Any], symbols: Any
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with replicas for tensors and with ``symbols`` for numbers, by their positions."""
    given: dict[Any, Any] = {k: replaced(a, replicas) for k, a in (*enumerate(args), *kwargs.items())}
    _place({ARGUMENTS: given}, bound, symbols)
    return [given[k] for k in range(len(args))], {name: given[name] for name in kwargs}


def _place(contents: Any, bound: Bound, symbols: Mapping[int, Any]) -> None:
    """Put symbols where numbers lie in those tables."""
    spots = list(bound.numbers)
    for k, symbol in symbols.items():
        table, key, *path = spots[k]
        if table in contents:
            whole = contents[table]
            holder, at = (whole, key) if isinstance(whole, (dict, list)) else (contents, table)
            holder[at] = _placed(holder[at], path, symbol)


def _placed(x: Any, path: Sequence[int], symbol: Any) -> Any:
    """``x``, a tuple of tuples, which may be named, with a symbol at that path."""
    if not path:
        return symbol
    items = [_placed(v, path[1:], symbol) if k == path[0] else v for k, v in enumerate(x)]
    return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)


@contextlib.contextmanager
def substituted(bound: Bound, replicas: Mapping[Any, Any], symbols: Mapping[int, Any]) -> Iterator[list[Any]]:
    """Inside, tables hold replicas and symbols. Gives what each held at first, for ``changes``."""
    before = [content_of(table) for table in bound.tables]
    contents = {k: _with_replicas(content, bound.tables[k], replicas) for k, content in enumerate(before)}
    _place(contents, bound, symbols)
    during = list(contents.values())
    differs = [not unchanged(table, content) for table, content in zip(bound.tables, during, strict=True)]
    try:
        for table, content, other in zip(bound.tables, during, differs, strict=True):
            if other:
                set_content(table, content)
        yield during
    finally:
        for table, content in zip(bound.tables, before, strict=True):
            if not unchanged(table, content):
                set_content(table, content)


def changes(bound: Bound, during: list[Any]) -> list[Change]:
    """What the function assigned, table by table; called while replicas are in place."""
    found: list[Change] = []
    for index, (table, held) in enumerate(zip(bound.tables, during, strict=True)):
        now = content_of(table)
        if type(table) is types.CellType:
            if not _unchanged(now, held):
                found.append((index, None, now))
        elif type(now) is dict:
            order = [*(k for k in held if k in now), *(k for k in now if k not in held)]
            if all(a is b for a, b in zip(order, now, strict=True)):
                found += [(index, k, GONE) for k in held if k not in now]
                found += [(index, k, v) for k, v in now.items() if not _unchanged(v, held.get(k, GONE))]
            else:  # keys were taken out and put in again
                found += [*((index, k, GONE) for k in held), *((index, k, v) for k, v in now.items())]
        elif len(now) != len(held) or not all(map(_unchanged, now, held)):
            found.append((index, None, now))
    return found


def _unchanged(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and type(a) in PLAIN and a == b and bool(a or repr(a) == repr(b))  # 0.0 is not -0.0
