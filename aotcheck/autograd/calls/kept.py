"""Tensors that a function leaves around it: they are results of its graph, which every call puts there again.

Note [Kept tensors]
A trace leaves its own tensors in variables, in attributes and in lists and dictionaries that are either: a mask that is
made by the first call, a hidden state, the losses so far. They are taken away when the trace is over, so that what is
around the function is as it was, and come back as results. A call puts each where the program did: to a list it
appends, of a dictionary it sets the same items, of whatever list or dictionary is at that place by then.

A container that was there before and is moved or returned is the call's own (:class:`There`); one that the trace made
and left in two places is made once.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.changes import appended, assign, splice, spliced
from aotcheck.autograd.calls.containers import flattened, named_parts
from aotcheck.autograd.calls.places import ABSENT, Place, Reached, Route, There, found_at, put_in
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.replicas.replicas import Replica

pytree = _torch.pytree

DICTIONARIES = (dict, OrderedDict, defaultdict)
CONTAINERS = (*DICTIONARIES, list, deque, set)
WITHOUT_TENSORS = frozenset({types.FunctionType, types.ModuleType, types.BuiltinFunctionType, type, type(None)})


@dataclass(frozen=True)
class Kept:
    """A ``value`` that is or has tensors, at the end of ``route``; ``was`` is what there was.

    ``holder`` is what has it in the trace.
    """

    holder: Any
    route: Route
    value: Any
    was: Any

    @property
    def place(self) -> Place:
        """Where it is, or the container that it is in."""
        return id(self.holder), self.route.name

    @property
    def grows(self) -> bool:
        """Whether there is more of a container."""
        return False

    @property
    def container(self) -> Any:
        """What grows."""
        return self.route.now()

    @property
    def unlike(self) -> bool:
        """Whether it is nested otherwise than what there was."""
        return self.grows or _shape_of(self.value) != _shape_of(self.was)

    def target(self) -> Any:
        """What ``put`` is to change."""
        return self.route.holder()

    def put(self, value: Any, target: Any) -> None:
        """Let ``value`` be there."""
        assign(target, self.route.name, value)

    def keys_set(self) -> tuple[Any, ...]:
        """By which keys a container has it."""
        return ()

    def take(self) -> None:
        """Let what there was be there again."""
        self.put(self.was, self.target())

    def parts(self) -> Iterator[tuple[Any, Route]]:
        """What is kept, and where each part of it then is."""
        yield self.value, self.route


@dataclass(frozen=True)
class Item(Kept):
    """What a container has by a ``key``."""

    key: Any

    @property
    def grows(self) -> bool:
        """Whether it had nothing by that."""
        return self.was is ABSENT

    def target(self) -> Any:
        """The container."""
        return self.container

    def put(self, value: Any, target: Any) -> None:
        """Let ``value`` be there."""
        assign(target, self.key, value)

    def keys_set(self) -> tuple[Any, ...]:
        """By which key the container has it."""
        return (self.key,)

    def parts(self) -> Iterator[tuple[Any, Route]]:
        """What is kept, and where it then is."""
        yield self.value, self.route.then(self.key)


@dataclass(frozen=True)
class Contents(Kept):
    """What a container has, all of it: under these ``keys``, if it is a dictionary."""

    keys: tuple[Any, ...] | None

    @property
    def grows(self) -> bool:
        """Whether there may be more."""
        return True

    def target(self) -> Any:
        """The container."""
        return self.container

    def put(self, value: Any, target: Any) -> None:
        """Let it hold these."""
        refill(target, value if self.keys is None else dict(zip(self.keys, value, strict=True)))

    def keys_set(self) -> tuple[Any, ...]:
        """By which keys the container has them."""
        return self.keys or ()

    def take(self) -> None:
        """Let it hold what it held."""
        refill(self.container, self.was)

    def parts(self) -> Iterator[tuple[Any, Route]]:
        """What is kept, and where each part of it then is."""
        keys = range(len(self.value)) if self.keys is None else self.keys
        for key, value in zip(keys, self.value, strict=True):
            yield value, self.route.then(key)


@dataclass(frozen=True)
class More(Contents):
    """What was appended to a container."""

    def put(self, value: Any, target: Any) -> None:
        """Append it."""
        (target.update if isinstance(target, set) else target.extend)(value)

    def parts(self) -> Iterator[tuple[Any, Route]]:
        """What is kept, and where each part of it then is, from the end."""
        for k, value in enumerate(self.value if type(self.was) is not set else ()):
            yield value, self.route.then(k - len(self.value))


@dataclass(frozen=True)
class Middle(Contents):
    """What a list or deque has but for so many of its first and last items."""

    first: int
    last: int

    def put(self, value: Any, target: Any) -> None:
        """Let it be there."""
        splice(target, self.first, self.last, value)

    def parts(self) -> Iterator[tuple[Any, Route]]:
        """What is kept, and where each part of it then is."""
        for k, value in enumerate(self.value):
            yield value, self.route.then(self.first + k)


def refill(container: Any, contents: Any) -> None:
    """Let it hold these and nothing else."""
    container.clear()
    (container.update if isinstance(container, (dict, set)) else container.extend)(contents)


@dataclass(frozen=True)
class PutBack:
    """Puts results where a trace kept them: each of ``kept`` has so many of them, nested as its spec says."""

    kept: tuple[Kept, ...]
    specs: tuple[Any, ...]
    there: tuple[There, ...]

    @property
    def count(self) -> int:
        """How many results that takes."""
        return sum(spec.num_leaves for spec in self.specs)

    def __call__(self, flat: Sequence[Any]) -> None:
        """Do it."""
        targets = [kept.target() for kept in self.kept]
        before = found_at(self.there) if self.there else {}
        start = 0
        for kept, spec, target in zip(self.kept, self.specs, targets, strict=True):
            end = start + spec.num_leaves
            values = put_in(flat[start:end], before) if self.there else flat[start:end]
            kept.put(values[0] if spec.is_leaf() else pytree.tree_unflatten(values, spec), target)
            start = end


@dataclass(frozen=True)
class Watched:
    """A variable, attribute or item as it was: ``copy`` of what it held, if that is a container."""

    holder: Any
    route: Route
    was: Any
    copy: Any

    @staticmethod
    def now(holder: Any, route: Route, seen: set[int] | None = None) -> Watched:
        """What is there now; containers that are ``seen`` are watched elsewhere."""
        was = route.now()
        watched = type(was) in CONTAINERS and (seen is None or id(was) not in seen)
        if watched and seen is not None:
            seen.add(id(was))
        return Watched(holder, route, was, was.copy() if watched else None)

    def kept(self, reached: Reached) -> Iterator[Kept]:
        """What a trace has left here."""
        now = self.route.now()
        if now is not self.was and _holds(now, reached):
            yield Kept(self.holder, self.route, now, self.was)
        if self.copy is None:
            return
        if type(self.was) in DICTIONARIES:
            yield from self._of_dictionary(self.was, reached)
        else:
            yield from self._of_sequence(self.was, reached)

    def _of_dictionary(self, now: Any, reached: Reached) -> Iterator[Kept]:
        there = [(k, dict.get(self.copy, k, ABSENT), value) for k, value in now.items()]
        new = [(k, was, value) for k, was, value in there if value is not was and _holds(value, reached)]
        if new and [k for k, was, _ in there if was is not ABSENT] != [k for k in self.copy if k in now]:
            yield Contents(self.holder, self.route, tuple(now.values()), self.copy, tuple(now))
            return
        for k, was, value in new:
            yield Item(self.holder, self.route, value, was, k)

    def _of_sequence(self, now: Any, reached: Reached) -> Iterator[Kept]:
        more = appended(now, self.copy)
        if more or type(now) is set:
            if any(_holds(x, reached) for x in more):
                yield More(self.holder, self.route, more, self.copy, None)
            return
        first, last, items = spliced(now, self.copy)
        if len(now) == len(self.copy):
            for k, (value, was) in enumerate(zip(now, self.copy, strict=True)):
                if value is not was and _holds(value, reached):
                    yield Item(self.holder, self.route, value, was, k)
        elif any(_holds(x, reached) for x in items):
            yield Middle(self.holder, self.route, items, self.copy, None, first, last)

    def restore(self) -> None:
        """Let everything be what it was."""
        if self.route.now() is not self.was:
            assign(self.holder, self.route.name, self.was)
        if self.copy is not None and not is_alike(self.was, self.copy):
            refill(self.was, self.copy)


def is_alike(now: Any, was: Any) -> bool:
    """Whether two containers hold the same."""
    if len(now) != len(was) or (isinstance(now, set) and now != was):
        return False
    if isinstance(now, dict):
        return all(map(is_, now, was)) and all(map(is_, now.values(), was.values()))
    return all(map(is_, now, was)) or isinstance(now, set)


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


def _holds(value: Any, reached: Reached) -> bool:
    """Whether ``value`` is a tensor or a container that was there before, or nests one.

    The tensor is one of the trace, or one that was elsewhere around the function.
    """
    if type(value) in WITHOUT_TENSORS:
        return False
    if issubclass(type(value), Tensor) or id(value) in reached.containers:
        return True
    if value in reached:
        return False
    return any(
        issubclass(type(x), Tensor) or id(x) in reached.containers for x in flattened(value, reached.__contains__)[0]
    )


def _shape_of(value: Any) -> Any:
    flat, spec = pytree.tree_flatten(value)
    return spec, [issubclass(type(x), Tensor) for x in flat]


class Leaves:
    """Takes apart what a trace gave and left: containers that it did not make are leaves, for which others stand.

    They are what was there before, what is ``held`` by the call's arguments, by id, and what is elsewhere in ``kept``.
    """

    def __init__(self, held: Mapping[int, Any], reached: Reached, kept: Sequence[Kept]) -> None:
        self.there: list[There] = []
        self._held, self._reached = held, reached
        self._made: dict[int, tuple[Kept, Route]] = {}
        for k in kept:
            for value, route in k.parts():
                self._find(k, value, route)

    def _find(self, kept: Kept, value: Any, route: Route) -> None:
        if id(value) in self._held or value in self._reached or (parts := named_parts(value)) is None:
            return
        if not isinstance(value, tuple):
            self._made.setdefault(id(value), (kept, route))
        for name, part in parts:
            self._find(kept, part, route.then(name))

    def of(self, tree: Any, within: Kept | None = None) -> tuple[list[Any], Any]:
        """The leaves of ``tree``, which is what the trace left ``within`` a place or, if that is None, gave; and its
        structure.
        """

        def known(x: Any) -> bool:
            made = self._made.get(id(x))
            return id(x) in self._held or x in self._reached or (made is not None and made[0] is not within)

        flat, spec = flattened(tree, known)
        return [x if type(x) is Replica or not known(x) else self._stand_in(x) for x in flat], spec

    def _stand_in(self, x: Any) -> Any:
        if (held := self._held.get(id(x))) is not None:
            return held
        made = self._made.get(id(x))
        there = There(self._reached.route(x)) if made is None else There(made[1], made=True)
        self.there.append(there)
        return there
