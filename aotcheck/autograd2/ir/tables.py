"""Tables: what holds the values that ``bind`` found. A table is read, given replicas, set back, and assigned by a call.

A table is a dict, a list, a deque, a set, a cell, the globals that a function names, or attributes that lie in no dict.
"""

from __future__ import annotations

import collections
import functools
import types
from dataclasses import dataclass
from typing import Any

GONE: Any = object()
"""In place of a value: there is none."""


@dataclass(frozen=True, eq=False)
class Globals:
    """Those globals that a function's code names."""

    owner: dict[str, Any]
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Attributes:
    """Attributes of an object that lie in no dict: slots, defaults of a function, arguments of a ``partial``."""

    owner: Any
    names: tuple[str, ...]


def content_of(table: Any) -> Any:
    """A shallow copy of what a table holds: a dict by names or keys, a list, or what a cell holds."""
    kind = type(table)
    if kind is types.CellType:
        return _cell(table)
    if kind is Globals:
        return {name: table.owner[name] for name in table.names if name in table.owner}
    if kind is Attributes:
        held = ((name, _attribute(table.owner, name)) for name in table.names)
        return {name: v for name, v in held if v is not GONE}
    return dict(dict.items(table)) if issubclass(kind, dict) else list(table)


def set_content(table: Any, content: Any) -> None:
    """Let a table hold just this."""
    kind = type(table)
    if kind is types.CellType:
        if content is not GONE:
            table.cell_contents = content
        elif _cell(table) is not GONE:
            del table.cell_contents
    elif kind is Globals:
        table.owner.update(content)
    elif kind is Attributes:
        for name in table.names:
            set_item(table, name, content.get(name, GONE))
    elif issubclass(kind, dict):
        plain: Any = collections.OrderedDict if issubclass(kind, collections.OrderedDict) else dict
        if len(table) != len(content) or not all(a is b for a, b in zip(dict.keys(table), content, strict=True)):
            plain.clear(table)
        for k, v in content.items():
            plain.__setitem__(table, k, v)
    elif issubclass(kind, list):
        list.__setitem__(table, slice(None), content)
    else:
        table.clear()
        _add(table, content)


def set_item(table: Any, key: Any, value: Any) -> None:
    """Let a table have ``value`` for ``key``, or not have the key. A table without keys holds ``value`` afterwards."""
    kind = type(table)
    if kind is Attributes:
        if isinstance(table.owner, functools.partial):
            partial: Any = table.owner  # its arguments are set by the way in which pickle sets them
            partial.__setstate__((partial.func, value, partial.keywords, partial.__dict__))
        elif value is not GONE:
            object.__setattr__(table.owner, key, value)
        elif _attribute(table.owner, key) is not GONE:
            object.__delattr__(table.owner, key)
    elif kind is Globals or issubclass(kind, dict):
        at: dict[Any, Any] = table.owner if kind is Globals else table
        plain: Any = collections.OrderedDict if isinstance(at, collections.OrderedDict) else dict
        if value is GONE:
            plain.__delitem__(at, key)
        else:
            plain.__setitem__(at, key, value)
    else:
        set_content(table, value)


def unchanged(table: Any, content: Any) -> bool:
    """Whether a table holds the objects that it held, in the same order."""
    now = content_of(table)
    if type(table) is types.CellType or len(now) != len(content):
        return now is content
    if type(now) is dict:
        return all(k is m and v is w for (k, v), (m, w) in zip(now.items(), content.items(), strict=True))
    return all(a is b for a, b in zip(now, content, strict=True))


def _cell(table: types.CellType) -> Any:
    try:
        return table.cell_contents
    except ValueError:
        return GONE


def _add(table: Any, content: Any) -> None:
    table.update(content) if isinstance(table, set) else table.extend(content)


def _attribute(owner: Any, name: str) -> Any:
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return GONE


def attribute_tables(x: Any) -> list[Any]:
    """What holds the attributes of an object, past what its class says of them: its dict, and its slots."""
    kind: Any = type(x)
    found: list[Any] = [object.__getattribute__(x, "__dict__")] if kind.__dictoffset__ else []
    return [*found, Attributes(x, slots)] if (slots := slots_of(kind)) else found


@functools.cache
def slots_of(kind: Any) -> tuple[str, ...]:
    """Attributes that objects of a class have in slots."""
    written = [vars(c) for c in kind.__mro__ if "__slots__" in vars(c)]
    return tuple(name for v in written for name, d in v.items() if type(d) is types.MemberDescriptorType)
