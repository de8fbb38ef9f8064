"""Tensors that a function leaves around it: they are results of its graph, which every call puts there again.

Note [Kept tensors]
A trace leaves its own tensors in variables, in attributes and in lists and dictionaries that are either: a mask that is
made by the first call, a hidden state, the losses so far. They are taken away when the trace is over, so that what is
around the function is as it was, and come back as results. A call puts each where the program did: to a list it
appends, of a dictionary it sets the same items, of whatever list or dictionary is at that place by then.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.surroundings import Assignment
from aotcheck.autograd.calls.walk import ABSENT, read
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.replicas.replicas import Replica

pytree = _torch.pytree

__all__ = ["Kept", "PutBack", "Watched", "refuse"]

DICTIONARIES = (dict, OrderedDict, defaultdict)
CONTAINERS = (*DICTIONARIES, list, deque, set)
WITHOUT_TENSORS = frozenset({types.FunctionType, types.ModuleType, types.BuiltinFunctionType, type, type(None)})
_WHOLE = object()
_MORE = object()


@dataclass(frozen=True)
class Kept:
    """A ``value`` that is or has tensors of a trace: what ``owner`` has by ``name`` now, an item ``key`` of that, or
    what it was extended by. ``was`` is what there was.
    """

    owner: Any
    name: Any
    key: Any
    value: Any
    was: Any

    @property
    def grows(self) -> bool:
        """Whether there is more of a container."""
        return self.key is _MORE or (self.key is not _WHOLE and self.was is ABSENT)

    @property
    def container(self) -> Any:
        """What grows."""
        return read(self.owner, self.name)

    @property
    def unlike(self) -> bool:
        """Whether it is nested otherwise than what there was."""
        return self.grows or _shape_of(self.value) != _shape_of(self.was)

    def put(self, value: Any) -> None:
        """Let ``value`` be there."""
        if self.key is _WHOLE:
            Assignment(self.owner, self.name, value)()
        elif self.key is _MORE:
            self.container.extend(value)
        elif value is ABSENT:
            del self.container[self.key]
        else:
            self.container[self.key] = value

    def take(self) -> None:
        """Let what there was be there again."""
        if self.key is _MORE:
            for _ in self.value:
                self.container.pop()
        else:
            self.put(self.was)


@dataclass(frozen=True)
class PutBack:
    """Puts results where a trace kept them: each of ``kept`` has so many of them, nested as its spec says."""

    kept: tuple[Kept, ...]
    specs: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many results that takes."""
        return sum(spec.num_leaves for spec in self.specs)

    def __call__(self, flat: Sequence[Any]) -> None:
        """Do it."""
        start = 0
        for kept, spec in zip(self.kept, self.specs, strict=True):
            end = start + spec.num_leaves
            kept.put(pytree.tree_unflatten(list(flat[start:end]), spec))
            start = end


@dataclass(frozen=True)
class Watched:
    """A variable, attribute or item as it was: ``copy`` of what it held, if that is a container."""

    owner: Any
    name: Any
    was: Any
    copy: Any

    @staticmethod
    def now(owner: Any, name: Any) -> Watched:
        """What is there now."""
        was = read(owner, name)
        return Watched(owner, name, was, was.copy() if type(was) in CONTAINERS else None)

    def kept(self) -> Iterator[Kept]:
        """What a trace has left here.

        Raises:
            UnsupportedError: a container was changed in some other way than by setting and appending items.
        """
        now = read(self.owner, self.name)
        if now is not self.was:
            if _holds(now):
                yield Kept(self.owner, self.name, _WHOLE, now, self.was)
        elif self.copy is None:
            return
        elif type(now) in DICTIONARIES:
            for key, value in now.items():
                was = self.copy.get(key, ABSENT) if type(now) is not defaultdict else dict.get(self.copy, key, ABSENT)
                if value is not was and _holds(value):
                    yield Kept(self.owner, self.name, key, value, was)
        else:
            yield from self._of_sequence(now)

    def _of_sequence(self, now: Any) -> Iterator[Kept]:
        if not any(_holds(x) for x in now):
            return
        if type(now) is set or len(now) < len(self.copy):
            refuse(now, self.name)
        pairs = list(zip(now, self.copy, strict=False))
        if len(now) == len(self.copy):
            for k, (value, was) in enumerate(pairs):
                if value is not was and _holds(value):
                    yield Kept(self.owner, self.name, k, value, was)
        elif all(value is was for value, was in pairs):
            yield Kept(self.owner, self.name, _MORE, tuple(now)[len(self.copy) :], ABSENT)
        else:
            refuse(now, self.name)

    def restore(self) -> None:
        """Let everything be what it was."""
        if read(self.owner, self.name) is not self.was:
            Assignment(self.owner, self.name, self.was)()
        if self.copy is not None:
            self.was.clear()
            (self.was.update if isinstance(self.was, (dict, set)) else self.was.extend)(self.copy)


def refuse(value: Any, where: Any) -> None:
    """Raise UnsupportedError if ``value`` is a tensor of a trace, or a container that holds one."""
    if type(value) in WITHOUT_TENSORS:
        return
    held: Iterable[Any] = (value,)
    if type(value) in DICTIONARIES:
        held = value.values()
    elif type(value) in CONTAINERS or type(value) is tuple:
        held = value
    if any(issubclass(type(x), Replica) for x in held):
        kind = "" if issubclass(type(value), Replica) else f", a {type(value).__name__}"
        raise UnsupportedError("kept tensor", f"the program puts a tensor into {where}{kind}; return it instead")


def _holds(value: Any) -> bool:
    """Whether ``value`` is a tensor of a trace, or nests one."""
    if type(value) in WITHOUT_TENSORS:
        return False
    if issubclass(type(value), Replica):
        return True
    return _torch.pytree_children(value) is not None and any(
        issubclass(type(x), Replica) for x in pytree.tree_leaves(value)
    )


def _shape_of(value: Any) -> Any:
    flat, spec = pytree.tree_flatten(value)
    return spec, [issubclass(type(x), Tensor) for x in flat]
