"""Replicas in the place of tensors while the function runs, and what it assigned to its surroundings.

The tables that ``bind`` found are given replicas, the function runs, and all are set back. What differs then from what
was put there is what every call has to assign.
"""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from aotcheck.autograd2.frontend.bind import Bound, Globals

__all__ = ["GONE", "Change", "changes", "replaced", "substituted"]

Change = tuple[int, Any, Any]
"""Which table, the key, and the value that it has now; ``GONE`` if none."""

GONE: Any = object()
_PLAIN = (int, float, bool, str, bytes, complex, type(None))


def replaced(x: Any, replicas: Mapping[Tensor, Tensor]) -> Any:
    """``x`` with replicas for tensors, in tuples and sets too; anything else is the same object."""
    if isinstance(x, Tensor):
        return replicas.get(x, x)
    if isinstance(x, (tuple, set, frozenset)) and x:
        items = [replaced(y, replicas) for y in x]
        if all(a is b for a, b in zip(items, x, strict=True)):
            return x
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return x


def _content(table: Any) -> Any:
    """A shallow copy of what a table holds, to compare and to set it back."""
    if type(table) is types.CellType:
        return table.cell_contents
    if type(table) is Globals:
        return {name: table.owner[name] for name in table.names if name in table.owner}
    return dict(table) if isinstance(table, dict) else list(table)


def _set_content(table: Any, content: Any) -> None:
    if type(table) is types.CellType:
        table.cell_contents = content
    elif type(table) is Globals:
        table.owner.update(content)
    elif isinstance(table, dict):
        if len(table) == len(content) and all(a is b for a, b in zip(table, content, strict=True)):
            table.update(content)
        else:
            plain = collections.OrderedDict if isinstance(table, collections.OrderedDict) else dict
            plain.clear(table)
            plain.update(table, content)
    elif isinstance(table, collections.deque):
        table.clear()
        table.extend(content)
    else:
        table[:] = content


def _with_replicas(content: Any, table: Any, replicas: Mapping[Tensor, Tensor]) -> Any:
    if type(table) is types.CellType:
        return replaced(content, replicas)
    if isinstance(table, (dict, Globals)):
        return {replaced(k, replicas): replaced(v, replicas) for k, v in content.items()}
    return [replaced(v, replicas) for v in content]


@contextlib.contextmanager
def substituted(bound: Bound, replicas: Mapping[Tensor, Tensor]) -> Iterator[list[Any]]:
    """Inside, tables hold replicas. Gives what each held at first, for ``changes``."""
    before = [_content(table) for table in bound.tables]
    during = [_with_replicas(content, table, replicas) for content, table in zip(before, bound.tables, strict=True)]
    differs = [not _same(a, b) for a, b in zip(before, during, strict=True)]
    try:
        for table, content, other in zip(bound.tables, during, differs, strict=True):
            if other:
                _set_content(table, content)
        yield during
    finally:
        for table, content in zip(bound.tables, before, strict=True):
            if not _same(_content(table), content):
                _set_content(table, content)


def _same(a: Any, b: Any) -> bool:
    """Whether two contents hold the same objects in the same order."""
    if type(a) is dict and type(b) is dict:
        return len(a) == len(b) and all(k is m and v is w for (k, v), (m, w) in zip(a.items(), b.items(), strict=True))
    if type(a) is list and type(b) is list:
        return len(a) == len(b) and all(v is w for v, w in zip(a, b, strict=True))
    return a is b


def changes(bound: Bound, during: list[Any]) -> list[Change]:
    """What the function assigned, table by table; called while replicas are in place."""
    found: list[Change] = []
    for index, (table, held) in enumerate(zip(bound.tables, during, strict=True)):
        now = _content(table)
        if type(table) is types.CellType:
            if not _unchanged(now, held):
                found.append((index, None, now))
        elif isinstance(table, (dict, Globals)):
            found += [(index, k, GONE) for k in held if k not in now]
            found += [(index, k, v) for k, v in now.items() if not _unchanged(v, held.get(k, GONE))]
        elif len(now) != len(held) or not all(map(_unchanged, now, held)):
            found.append((index, None, now))
    return found


def _unchanged(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and a == b)
