"""Structures: Python values with tensors in them, taken apart and built again for each call; tables, which hold state.

A table holds values that ``bind`` found: a dict, a list, a deque, a set, a cell, the globals that a function names, or
attributes that lie in no dict. It is read, given replicas, set back, and assigned by a call.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy
import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.size import SYMBOLIC, Size, term, text

COPIED = (numpy.ndarray, bytearray)  # what is made inside is another object in each call
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
        return {name: v for name in table.names if (v := _attribute(table.owner, name)) is not GONE}
    return dict(dict.items(table)) if issubclass(kind, dict) else list(table)


def set_content(table: Any, content: Any) -> None:
    """Let a table hold just this."""
    kind = type(table)
    if kind is types.CellType:
        if content is not GONE:
            table.cell_contents = content
        elif _cell(table) is not GONE:
            del table.cell_contents
    elif kind in (Globals, Attributes):
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
        table.update(content) if isinstance(table, set) else table.extend(content)


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
        if value is not GONE:
            plain.__setitem__(at, key, value)
        elif dict.__contains__(at, key):
            plain.__delitem__(at, key)
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


PLAIN: tuple[type, ...] = (int, float, bool, str, bytes, complex, type(None))
PLAIN += (torch.dtype, torch.device, torch.layout, torch.memory_format)


def own_attributes(t: torch.Tensor) -> dict[str, Any]:
    """What somebody put on a tensor: plain values; of others that they are there. Dynamo's marks are none."""
    return {name: v if isinstance(v, PLAIN) else GONE for name, v in vars(t).items() if not name.startswith("_dynamo")}


@dataclass(frozen=True)
class Leaf:
    """A tensor, by its position among those that a call makes."""

    index: int

    def __str__(self) -> str:
        return f"m{self.index}"


@dataclass(frozen=True, eq=False)
class Const:
    """A value that is the same in each call."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Looked:
    """A list, dict or object of the caller's, by its position among those that ``bind`` looks at."""

    index: int

    def __str__(self) -> str:
        return f"looked[{self.index}]"


@dataclass(frozen=True)
class Sized:
    """A number that is computed from sizes of the call."""

    term: Size

    def __str__(self) -> str:
        return text(self.term)


@dataclass(frozen=True)
class ListOf:
    """A list, tuple, set or named tuple of a type."""

    kind: type
    items: tuple[Structure, ...]

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.items))
        if self.kind is list:
            return f"[{inside}]"
        tail = "," if len(self.items) == 1 else ""
        return f"({inside}{tail})" if self.kind is tuple else f"{self.kind.__name__}({inside})"


@dataclass(frozen=True)
class DictOf:
    """A dict of a type; keys may be tensors. ``default`` is the factory of a ``defaultdict``."""

    kind: type
    keys: tuple[Structure, ...]
    items: tuple[Structure, ...]
    default: Any = None

    def __str__(self) -> str:
        inside = ", ".join(f"{k}: {v}" for k, v in zip(self.keys, self.items, strict=True))
        return f"{{{inside}}}" if self.kind is dict else f"{self.kind.__name__}({{{inside}}})"


@dataclass(frozen=True)
class ObjectOf:
    """An object that the function made, by its attributes; ``content`` is what it holds as a dict or list."""

    kind: type
    names: tuple[str, ...]
    items: tuple[Structure, ...]
    content: Structure | None = None

    def __str__(self) -> str:
        inside = ", ".join(f"{n}={v}" for n, v in zip(self.names, self.items, strict=True))
        return f"{self.kind.__name__}({inside}{'' if self.content is None else f'; {self.content}'})"


@dataclass(frozen=True, eq=False)
class TreeOf:
    """A node that torch's pytree knows how to build."""

    spec: Any
    items: tuple[Structure, ...]

    def __str__(self) -> str:
        return f"{getattr(self.spec.type, '__name__', 'tree')}({', '.join(map(str, self.items))})"


Structure = Leaf | Const | Looked | Sized | ListOf | DictOf | ObjectOf | TreeOf


def take_apart(
    x: Any, leaf: Callable[[Tensor], int], looked: Callable[[Any], int | None], refuse: Callable[[str], NoReturn]
) -> Structure:
    """The structure of ``x``.

    Args:
        leaf: the position of a tensor.
        looked: the position of a container of the caller's; None of any other.
        refuse: raises for an object that cannot be built again.
    """
    go = functools.partial(take_apart, leaf=leaf, looked=looked, refuse=refuse)
    if isinstance(x, Tensor):
        return Leaf(leaf(x))
    if type(x) in SYMBOLIC:
        return Sized(term(x))
    if isinstance(x, (*PLAIN, type)) or (type(x) is torch.Size and not any(isinstance(n, SYMBOLIC) for n in x)):
        return Const(x)
    if (position := looked(x)) is not None:
        return Looked(position)
    kind: Any = type(x)
    content = _content(x, go)
    if content is not None and (kind in _CONTAINERS or hasattr(kind, "_fields")):
        return content
    if kind in _torch.pytree.SUPPORTED_NODES:
        children, spec = _torch.pytree.tree_flatten(x, is_leaf=lambda y: y is not x)
        return TreeOf(spec, tuple(map(go, children)))
    if kind is slice:
        return ListOf(slice, tuple(map(go, (x.start, x.stop, x.step))))
    known = (types.FunctionType, types.ModuleType, enum.Enum)
    if kind is weakref.ref and isinstance(x(), Tensor):
        return refuse("weak reference to a tensor")
    inside = [*map(content_of, x.__closure__ or ()), *(x.__defaults__ or ())] if kind is types.FunctionType else []
    inside += list(x.flat) if kind is numpy.ndarray and x.dtype.hasobject else []
    leaves = _torch.pytree.tree_leaves(inside)
    of_trace = any(type(v) in SYMBOLIC or (isinstance(v, Tensor) and hasattr(v, "aot")) for v in leaves)
    if of_trace or isinstance(x, _MADE_ONCE):
        return refuse(kind.__name__)
    if content is None and (isinstance(x, known) or not (kind.__dictoffset__ or slots_of(kind))):
        return Const(x)
    if kind.__module__.startswith(("torch.", "functools")) and not isinstance(x, torch.nn.Module):
        return refuse(kind.__name__)
    held = {name: v for table in attribute_tables(x) for name, v in content_of(table).items()}
    return ObjectOf(kind, tuple(held), tuple(map(go, held.values())), content)


_MADE_ONCE = (collections.abc.Iterator, collections.abc.MappingView, types.CoroutineType)
_CONTAINERS = (dict, collections.OrderedDict, collections.defaultdict, list, tuple, set, frozenset, torch.Size)


def _content(x: Any, go: Callable[[Any], Structure]) -> Structure | None:
    """What a dict, list, tuple or set holds, or an object of a class of the user's that is one."""
    if isinstance(x, dict):
        default, kind = vars(collections.defaultdict)["default_factory"], type(x) if type(x) in _CONTAINERS else dict
        made = default.__get__(x) if isinstance(x, collections.defaultdict) else None
        return DictOf(kind, tuple(map(go, dict.keys(x))), tuple(map(go, dict.values(x))), made)
    if isinstance(x, (list, tuple, set, frozenset)):
        return ListOf(type(x) if type(x) in _CONTAINERS or hasattr(type(x), "_fields") else list, tuple(map(go, x)))
    return None


def build(structure: Structure, made: Sequence[Any], looked: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """The value of a structure in a call that made these tensors, brought these containers and has these sizes."""
    match structure:
        case Leaf(index):
            return made[index]
        case Const(value):
            return value.copy() if type(value) in COPIED else value
        case Looked(index):
            return looked[index]
        case Sized(number):
            return eval(text(number), {"math": math}, sizes)
        case ListOf(kind, items):
            values = [build(item, made, looked, sizes) for item in items]
            return kind(*values) if kind is slice or hasattr(kind, "_fields") else kind(values)
        case DictOf(kind, keys, items, default):
            names = [build(k, made, looked, sizes) for k in keys]
            pairs = list(zip(names, [build(v, made, looked, sizes) for v in items], strict=True))
            return collections.defaultdict(default, pairs) if kind is collections.defaultdict else kind(pairs)
        case ObjectOf(kind, attributes, items, content):
            new: Any = kind.__new__
            x: Any = new(kind)
            if content is not None:
                set_content(x, build(content, made, looked, sizes))
            for name, item in zip(attributes, items, strict=True):
                object.__setattr__(x, name, build(item, made, looked, sizes))
            return x
        case TreeOf(spec, items):
            return spec.unflatten([build(item, made, looked, sizes) for item in items])
