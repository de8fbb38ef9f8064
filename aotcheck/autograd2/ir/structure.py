"""Structures: Python values with tensors in them, taken apart and built again for each call."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.size import SYMBOLIC, Size, term, text

__all__ = [
    "PLAIN",
    "Const",
    "DictOf",
    "Leaf",
    "ListOf",
    "Looked",
    "ObjectOf",
    "Sized",
    "Structure",
    "TreeOf",
    "build",
    "leaves_of",
    "take_apart",
]

PLAIN = (
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


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
    """An object that the function made, by its attributes."""

    kind: type
    names: tuple[str, ...]
    items: tuple[Structure, ...]

    def __str__(self) -> str:
        inside = ", ".join(f"{n}={v}" for n, v in zip(self.names, self.items, strict=True))
        return f"{self.kind.__name__}({inside})"


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
    if isinstance(x, (*PLAIN, type, torch.Size)):
        return Const(x)
    if (position := looked(x)) is not None:
        return Looked(position)
    if isinstance(x, (dict, collections.UserDict)) and type(x) in (
        dict,
        collections.OrderedDict,
        collections.defaultdict,
    ):
        default = x.default_factory if isinstance(x, collections.defaultdict) else None
        return DictOf(type(x), tuple(map(go, x)), tuple(map(go, x.values())), default)
    if isinstance(x, (list, tuple, set, frozenset)) and (
        type(x) in (list, tuple, set, frozenset) or hasattr(x, "_fields")
    ):
        return ListOf(type(x), tuple(map(go, x)))
    if _torch.is_tree_node(type(x)):
        children, spec = _torch.one_level(x)
        return TreeOf(spec, tuple(map(go, children)))
    if callable(x) and not hasattr(x, "__dict__"):
        return Const(x)
    attributes = getattr(x, "__dict__", None)
    if attributes is None or type(x).__module__ in ("builtins", "types"):
        return Const(x) if attributes is None or not attributes else refuse(type(x).__name__)
    if type(x).__module__.startswith("torch."):
        return refuse(type(x).__name__)
    return ObjectOf(type(x), tuple(attributes), tuple(map(go, attributes.values())))


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
        case ObjectOf(kind, attributes, items):
            x: Any = object.__new__(kind)
            for name, item in zip(attributes, items, strict=True):
                x.__dict__[name] = build(item, made, looked, sizes)
            return x
        case TreeOf(spec, items):
            return _torch.pytree.tree_unflatten([build(item, made, looked, sizes) for item in items], spec)


def leaves_of(structure: Structure) -> list[int]:
    """The positions of its tensors, in order."""
    match structure:
        case Leaf(index):
            return [index]
        case DictOf(keys=keys, items=items):
            return [index for item in (*keys, *items) for index in leaves_of(item)]
        case ListOf(items=items) | ObjectOf(items=items) | TreeOf(items=items):
            return [index for item in items for index in leaves_of(item)]
        case _:
            return []
