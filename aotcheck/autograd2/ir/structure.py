"""Structures: Python values with tensors in them, taken apart and built again for each call."""

from __future__ import annotations

import collections
import enum
import math
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.size import SYMBOLIC, Size, term, text
from aotcheck.autograd2.ir.tables import attribute_tables, content_of, set_content, slots_of

PLAIN: tuple[type, ...] = (int, float, bool, str, bytes, complex, type(None))
PLAIN += (torch.dtype, torch.device, torch.layout, torch.memory_format)


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

    def go(x: Any) -> Structure:
        return take_apart(x, leaf, looked, refuse)

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
    if content is not None and (kind in _CONTAINERS or hasattr(x, "_fields")):
        return content
    if _torch.is_tree_node(kind):
        children, spec = _torch.one_level(x)
        return TreeOf(spec, tuple(map(go, children)))
    known = (types.FunctionType, types.ModuleType, enum.Enum)
    if kind is weakref.ref and isinstance(x(), Tensor):
        return refuse("weak reference to a tensor")
    if content is None and (isinstance(x, known) or not (kind.__dictoffset__ or slots_of(kind))):
        return Const(x)
    if kind.__module__.startswith(("torch.", "functools")) and not isinstance(x, torch.nn.Module):
        return refuse(kind.__name__)
    held = {name: v for table in attribute_tables(x) for name, v in content_of(table).items()}
    return ObjectOf(kind, tuple(held), tuple(map(go, held.values())), content)


_CONTAINERS = (dict, collections.OrderedDict, collections.defaultdict, list, tuple, set, frozenset, torch.Size)


def _content(x: Any, go: Callable[[Any], Structure]) -> Structure | None:
    """What a dict, list, tuple or set holds, or an object of a class of the user's that is one."""
    if isinstance(x, dict):
        default, kind = getattr(x, "default_factory", None), type(x) if type(x) in _CONTAINERS else dict
        return DictOf(kind, tuple(map(go, dict.keys(x))), tuple(map(go, dict.values(x))), default)
    if isinstance(x, (list, tuple, set, frozenset)):
        return ListOf(type(x) if type(x) in _CONTAINERS or hasattr(x, "_fields") else list, tuple(map(go, x)))
    return None


def build(structure: Structure, made: Sequence[Any], looked: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """The value of a structure in a call that made these tensors, brought these containers and has these sizes."""
    match structure:
        case Leaf(index):
            return made[index]
        case Const(value):
            return value
        case Looked(index):
            return looked[index]
        case Sized(number):
            return eval(text(number), {"math": math}, sizes)
        case ListOf(kind, items):
            values = [build(item, made, looked, sizes) for item in items]
            return kind(*values) if hasattr(kind, "_fields") else values if kind is list else kind(values)
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
