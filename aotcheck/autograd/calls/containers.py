"""Lists and dicts among the arguments: what a function writes into them reaches the caller's own.

A trace runs on containers of its own, rebuilt around the replicas. Afterwards each is compared with what it held
before. New contents become further results of the graph, put into the caller's container when the call is over; a
container of the caller's that turns up in a result or in another container is referred to by its place among the
arguments, so that its identity survives.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.calls.contents import has_tensor
from aotcheck.autograd.calls.naming import is_of_others
from aotcheck.autograd.calls.objects import changed_to, is_object, opened, parts_of
from aotcheck.autograd.calls.places import There, found_at, put_in
from aotcheck.autograd.errors import BindingNeeded
from aotcheck.autograd.replicas.replicas import Replica

pytree = _torch.pytree
_LEAF = pytree.tree_flatten(0)[1]
_PYTHONS = frozenset({list, tuple, dict, deque})
_NO_OBJECTS = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), complex, torch.dtype})


Flatten = Callable[[Any], tuple[list[Any], Any]]


@dataclasses.dataclass(frozen=True)
class Structure:
    """How a call's arguments are nested; ``shared`` says which containers are the same object, None if none are.

    Those ``bound``, by id, are leaves. ``classes`` are the user's own among those of containers and tuples.
    """

    spec: Any
    shared: tuple[int, ...] | None
    bound: frozenset[int] = frozenset()
    classes: frozenset[type] = frozenset()


@dataclasses.dataclass(frozen=True)
class Held:
    """Stands for the call's container ``index``."""

    index: int


@dataclasses.dataclass(frozen=True)
class NewContents:
    """What container ``index`` then holds: ``count`` leaves nested as ``spec`` says.

    In a dict, those of ``keys``; in an object, those at these places.
    """

    index: int
    keys: tuple[Any, ...] | None
    spec: Any
    count: int


@dataclasses.dataclass(frozen=True)
class ContainerResult:
    """The result of a call that writes or returns containers it was passed, or returns such as are ``there``.

    ``keep`` puts the last of the flat results where they are kept, if containers are among them, too.
    """

    spec: Any
    count: int
    writes: tuple[NewContents, ...]
    there: tuple[There, ...] = ()
    keep: Callable[[Sequence[Any]], None] | None = None

    def before(self, containers: Sequence[Any]) -> tuple[Sequence[Any], dict[int, Any]]:
        """The containers of a call, and others as they are before it, for ``finish``."""
        return containers, found_at(self.there)

    def finish(self, before: tuple[Sequence[Any], dict[int, Any]], flat: Sequence[Any]) -> Any:
        """Write into the caller's containers and build what the call returns, out of the flat results."""
        containers, found = before
        flat = [containers[x.index] if type(x) is Held else x for x in flat]
        if self.keep is not None:
            self.keep(flat[self.count + sum(write.count for write in self.writes) :])
        flat = put_in(flat, found) if self.there else flat
        result = pytree.tree_unflatten(flat[: self.count], self.spec)
        start = self.count
        for write in self.writes:
            contents = pytree.tree_unflatten(flat[start : start + write.count], write.spec)
            start += write.count
            container = containers[write.index]
            if write.keys is not None and is_object(container):
                changed_to(container, write.keys, contents)
                continue
            container.clear()
            if write.keys is None:
                container.extend(contents)
            else:
                container.update(zip(write.keys, contents, strict=True))
        return result


def flattened(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves of ``tree`` and its structure.

    A ``torch.Size`` of plain numbers is a leaf: pytree would make a tuple of it. Objects are nodes where they can be,
    see Note [Objects].
    """
    if type(tree) is Replica:
        return [tree], _LEAF
    either = _is_plain_size if is_leaf is None else lambda x: _is_plain_size(x) or is_leaf(x)
    flat, spec = pytree.tree_flatten(tree, is_leaf=either)
    if not _NO_OBJECTS.issuperset(map(type, flat)) and any(is_object(x) for x in flat if not either(x)):
        flat, spec = pytree.tree_flatten(opened(tree, either), is_leaf=either)
    return flat, spec


def has_tensor_keys(spec: Any, kind: type[torch.Tensor] = torch.Tensor) -> bool:
    """Whether dictionaries in what this is the structure of have tensors of such a class for keys."""
    if spec.is_leaf():
        return False
    keyed = isinstance(spec.context, (tuple, list)) and has_tensor(spec.context, kind)
    return keyed or any(has_tensor_keys(child, kind) for child in spec.children())


def _is_plain_size(x: Any) -> bool:
    return type(x) is torch.Size and all(type(n) is int for n in x)


def structure_of(
    spec: Any, containers: Sequence[Any], bound: frozenset[int], classes: frozenset[type] = frozenset()
) -> Structure:
    """The structure of a call that ``spec`` describes but for which containers are the same."""
    first: dict[int, int] = {}
    places = tuple([first.setdefault(id(c), k) for k, c in enumerate(containers)])
    own = frozenset([c for c in classes if not is_of_others(c.__module__)]) if classes else classes
    return Structure(spec, places if len(first) < len(places) else None, bound, own)


def containers_in(tree: Any, bound: frozenset[int], classes: set[type] | None = None) -> list[Any]:
    """Every node of ``tree`` that is no tuple, outermost first; the call's own dict of keyword arguments is one.

    Those ``bound``, by id, are no nodes. Adds to ``classes`` those of nodes that are none of Python's.
    """
    found: list[Any] = []
    _collect(tree, found, bound, set() if classes is None else classes)
    return found


def _collect(node: Any, found: list[Any], bound: frozenset[int], classes: set[type]) -> None:
    children = _children(node) if id(node) not in bound else None
    if children is not None:
        if type(node) not in _PYTHONS:
            classes.add(type(node))
        if not isinstance(node, tuple):
            found.append(node)
        for child in children:
            _collect(child, found, bound, classes)


def shared_again(tree: Any, structure: Structure) -> Any:
    """A ``tree`` that was made as ``structure`` says, with one container where several are to be the same."""
    containers = containers_in(tree, structure.bound)
    shared = structure.shared or ()
    first = {id(c): containers[k] for c, k in zip(containers, shared, strict=True) if containers[k] is not c}
    return _exchanged(tree, first)


def _exchanged(node: Any, first: Mapping[int, Any]) -> Any:
    if id(node) in first:
        return first[id(node)]
    parts = named_parts(node)
    if parts is None:
        return node
    now = [_exchanged(part, first) for _, part in parts]
    if all(a is b for a, (_, b) in zip(now, parts, strict=True)):
        return node
    if isinstance(node, tuple):
        return type(node)(*now) if hasattr(node, "_fields") else type(node)(now)
    if is_object(node):
        changed_to(node, parts_of(node)[0], now)
    else:
        for (name, _), part in zip(parts, now, strict=True):
            node[name] = part
    return node


def _children(node: Any) -> list[Any] | None:
    """What a container or an object holds; None for a leaf."""
    if type(node) in _NO_OBJECTS:
        return None
    children = _torch.pytree_children(node)
    return parts_of(node)[1] if children is None and is_object(node) else children


class Watched:
    """The containers of a trace, as they were before the function ran."""

    def __init__(self, structure: Structure, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.shared = structure.shared
        self.containers = containers_in((args, kwargs), structure.bound)
        self.before = [_contents(c) for c in self.containers]
        self.places = {id(c): k for k, c in enumerate(self.containers)}

    @property
    def held(self) -> dict[int, Held]:
        """What stands for each container, by id."""
        return {k: Held(place) for k, place in self.places.items()}

    def writes(self, flatten: Flatten) -> tuple[list[Any], tuple[NewContents, ...]]:
        """The leaves of all new contents, one container after another.

        Raises:
            BindingNeeded: something was written that is neither list, deque nor dict, or some are passed twice.
        """
        leaves: list[Any] = []
        writes: list[NewContents] = []
        for k, (container, (keys, values)) in enumerate(zip(self.containers, self.before, strict=True)):
            now_keys, now = _contents(container)
            same = len(now) == len(values) and all(a is b for a, b in zip(now, values, strict=True))
            if same and now_keys == keys:
                continue
            of_object = is_object(container)
            if not of_object and not isinstance(container, (list, deque, dict)):
                raise BindingNeeded((k,))
            if self.shared is not None:
                raise BindingNeeded(tuple([j for j, first in enumerate(self.shared) if self.shared.count(first) > 1]))
            flat, spec = flatten(now)
            leaves += flat
            keys_now = tuple(now_keys) if of_object or isinstance(container, dict) else None
            writes.append(NewContents(k, keys_now, spec, len(flat)))
        return leaves, tuple(writes)


def named_parts(node: Any) -> list[tuple[Any, Any]] | None:
    """What a container or an object holds, and by which names; None for a leaf."""
    if type(node) in _NO_OBJECTS:
        return None
    if is_object(node):
        layout, parts = parts_of(node)
        return [(name, part) for (_, name), part in zip(layout, parts, strict=True)]
    if isinstance(node, dict):
        return list(dict.items(node))
    return list(enumerate(node)) if isinstance(node, (list, tuple, deque)) else None


def _contents(container: Any) -> tuple[list[Any], list[Any]]:
    """Keys, where there are any, and values."""
    if is_object(container):
        layout, parts = parts_of(container)
        return list(layout), parts
    if isinstance(container, dict):
        return list(container), list(container.values())
    return [], list(_torch.pytree_children(container) or ())


ShapeResult = Callable[[list[str], Callable[[Any], str]], str]


@dataclasses.dataclass(frozen=True)
class ResultShape:
    """Turns the expressions of the flat results into that of what a call gives.

    The last results, ``tail`` of them, are what ``assign`` puts elsewhere. ``spec`` is None where what the call gives
    is the flat list itself.
    """

    spec: Any
    tail: int
    assign: Any

    def expression(self, flat: list[str], refer: Callable[[Any], str]) -> str:
        """Python source of the structured result; what else there is to assign is assigned on the way."""
        count = len(flat) - self.tail
        flat, tail = flat[:count], flat[count:]
        spec = self.spec
        if spec is None:
            result = f"[{', '.join(flat)}]"
        elif spec.is_leaf():
            result = flat[0]
        elif spec.type is tuple and all(c.is_leaf() for c in spec.children()):
            result = f"({''.join(x + ', ' for x in flat)})"
        elif spec.type is list and all(c.is_leaf() for c in spec.children()):
            result = f"[{', '.join(flat)}]"
        else:
            result = f"{refer(pytree.tree_unflatten)}([{', '.join(flat)}], {refer(spec)})"
        if tail:
            result = f"({result}, {refer(self.assign)}([{', '.join(tail)}]))[0]"
        return result
