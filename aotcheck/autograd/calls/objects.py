"""Objects among arguments and results: dataclasses, dictionaries and lists of classes that pytree knows nothing about.

Note [Objects]
To pytree they are leaves. One that consists of nothing but tensors, numbers and the like, and of other such objects, is
a node here: its attributes and items are arguments or results of their own, and a trace runs on an object of the same
class that holds replicas. It is made without calling the class, as ``copy`` does. What becomes of an object that a call
was passed, its attributes and items, the caller's own object becomes. Others are bound: see Note [Bound arguments].
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.places import ABSENT
from aotcheck.autograd.tensors.plain_values import plain_key, variables_of

pytree = _torch.pytree

__all__ = ["Layout", "changed_to", "is_object", "may_be_object", "opened", "parts_of"]

Layout = tuple[tuple[str, Any], ...]
"""Where each part of an object is: an item, an attribute, or both under one name."""

_LEAVES = frozenset({Tensor, torch.nn.Parameter, int, float, bool, str, complex, type(None), torch.dtype, torch.device})
_MADE_BY = (object.__new__, dict.__new__, OrderedDict.__new__, list.__new__, types.SimpleNamespace.__new__)
_NO_OBJECTS = (type, tuple, Tensor, types.ModuleType, types.FunctionType, types.MethodType, torch.Generator)
_ITEM, _ATTRIBUTE, _BOTH = "item", "attribute", "both"
_DEPTH = 6
_MOST = 512  # parts of an object, and of those in it


def is_object(x: Any) -> bool:
    """Whether ``x`` is to be taken for what it holds, if that is anything."""
    if type(x) in _LEAVES or not may_be_object(type(x)) or callable(x):
        return False
    return bool((count := _parts_within(x, _DEPTH)) or isinstance(x, (dict, list))) and count <= _MOST


def may_be_object(kind: type) -> bool:
    """Whether it is a class whose objects are made as Python makes them, and that pytree knows nothing about."""
    return not issubclass(kind, _NO_OBJECTS) and kind.__new__ in _MADE_BY and not _torch.is_pytree_node(kind)


def _parts_within(x: Any, depth: int) -> int:
    """How many parts ``x`` has, those of its parts included; too many where one of them is not supported."""
    count = 0
    for part in parts_of(x)[1]:
        count += 1
        for leaf in pytree.tree_leaves(part, is_leaf=lambda leaf: type(leaf) in _LEAVES):
            count += 1
            if count > _MOST:
                return count
            if type(leaf) in _LEAVES or issubclass(type(leaf), Tensor) or plain_key(leaf) is not None:
                continue
            if not depth or callable(leaf) or not may_be_object(type(leaf)):
                return _MOST + 1
            more = _parts_within(leaf, depth - 1)
            count += more if more or isinstance(leaf, (dict, list)) else _MOST + 1
            if count > _MOST:
                return count
    return count


def parts_of(x: Any) -> tuple[Layout, list[Any]]:
    """What an object holds: where, and what."""
    attributes = {**(variables_of(x) or {}), **_slots_of(x)}
    layout: list[tuple[str, Any]] = []
    parts: list[Any] = []
    items: list[tuple[Any, Any]] = []
    if isinstance(x, dict):
        items = list(dict.items(x))
    elif isinstance(x, list):
        items = list(enumerate(list.__iter__(x)))
    for key, part in items:
        both = type(key) is str and attributes.get(key, ABSENT) is part
        layout.append((_BOTH if both else _ITEM, key))
        parts.append(part)
    doubled = {key for where, key in layout if where is _BOTH}
    for name, part in attributes.items():
        if name not in doubled:
            layout.append((_ATTRIBUTE, name))
            parts.append(part)
    return tuple(layout), parts


def _slots_of(x: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cls in type(x).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if isinstance(vars(cls).get(name), types.MemberDescriptorType):
                try:
                    found[name] = object.__getattribute__(x, name)
                except AttributeError:
                    continue
    return found


def changed_to(x: Any, layout: Layout, parts: Sequence[Any]) -> None:
    """Let an object hold these parts and no others."""
    if isinstance(x, dict):
        (OrderedDict if isinstance(x, OrderedDict) else dict).clear(x)
    elif isinstance(x, list):
        list.clear(x)
    there = {name for where, name in layout if where is not _ITEM}
    for name in {**(variables_of(x) or {}), **_slots_of(x)}:
        if name not in there:
            object.__delattr__(x, name)
    for (where, name), part in zip(layout, parts, strict=True):
        if where is not _ATTRIBUTE:
            if isinstance(x, list):
                list.append(x, part)
            else:
                (OrderedDict if isinstance(x, OrderedDict) else dict).__setitem__(x, name, part)
        if where is not _ITEM:
            object.__setattr__(x, name, part)


class _Node:
    """An object as pytree is given it."""

    def __init__(self, of: Any, is_leaf: Callable[[Any], bool]) -> None:
        self.of, self.is_leaf = of, is_leaf


def _flatten(node: _Node) -> tuple[list[Any], Any]:
    layout, parts = parts_of(node.of)
    return [opened(part, node.is_leaf) for part in parts], (type(node.of), layout)


def _unflatten(parts: Any, context: Any) -> Any:
    cls, layout = context
    made = cls.__new__(cls)
    changed_to(made, layout, list(parts))
    return made


pytree.register_pytree_node(_Node, _flatten, _unflatten)


def opened(tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """``tree`` with nodes, to pytree, in the place of objects that are no leaves."""
    return pytree.tree_map(lambda x: _Node(x, is_leaf) if not is_leaf(x) and is_object(x) else x, tree, is_leaf=is_leaf)
