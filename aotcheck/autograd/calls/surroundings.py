"""Python values that a function finds around it, which a trace takes as they are: part of the key of a call.

Note [Surroundings]
A module may be told another dropout probability, lose a hook or a layer; a variable in a closure may be bound to
another number. A walk from the function finds such values: in its closure, globals and defaults, in lists and
dictionaries, in attributes that code near it names, of objects, classes and Python modules, in modules and their hooks,
and from the classes of its arguments. Numbers, strings and the like count by value, lists and dictionaries by what they
hold and by which of them are one, arrays by their bytes, anything else by identity. Tensors do not count: they are
arguments once a trace has met them, be it that it only asks for their geometry.

What a walk found has a number, and equal finds have equal ones. A call asks only whether anything was assigned since
the last walk; dictionaries are asked for their versions.

What a trace itself changes (a flag that the first call sets, a position in a queue) is put back after it, and done by
every call of what was traced: what it becomes hangs on what it was, which is part of the key, but for Note [Counters].
A list or set that nothing does more with than append to it is a log and no part of the key. A function that changes a
value for the eighth time runs as it is from then on, of which the caller is warned; so does one that draws random
numbers of Python's or numpy's, or that has an iterator to go on with.

Backwards are traced with the call, and what their Python changes (that of hooks, of custom Functions) every call does.
What one changes that is traced later, for other tangents of the same results, is put back and not done again.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import gc
import itertools
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from operator import is_
from typing import Any, Protocol

import numpy as np
import torch
from numpy.lib.array_utils import byte_bounds
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.changes import (
    NO_CHANGES,
    Addition,
    Assignment,
    Changes,
    Growth,
    Members,
    Splice,
    Written,
    appended,
    assign,
    spliced,
)
from aotcheck.autograd.calls.contents import SEQUENCES, content_of, has_tensor, in_this_thread, items_of, write_content
from aotcheck.autograd.calls.naming import NOTHING, read_around
from aotcheck.autograd.calls.places import ABSENT, TENSOR, Place, Reached, Route, read
from aotcheck.autograd.calls.walk import MOST, Walk
from aotcheck.autograd.counters import tell
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.plain_values import plain_key, variables_of

_CHANGES = 8  # of a value, by traces
_NUMBERED = 256
_CLASSES = 64  # of arguments, that are looked at
_ASSIGNED = (dict, list, deque, types.CellType, type)


class Left(Protocol):
    """What a trace has left by ``name``: see Note [Kept tensors]."""

    @property
    def place(self) -> Place:
        """Where it is."""

    @property
    def grows(self) -> bool:
        """Whether there is more of a container."""

    @property
    def container(self) -> Any:
        """What grows."""

    @property
    def unlike(self) -> bool:
        """Whether it is nested otherwise than what there was."""


class Before:
    """What there is before a trace.

    ``plain``: a trace changes nothing of it but what is assigned, which the walk tells.
    """

    __slots__ = (
        "_arrays",
        "_contents",
        "_contexts",
        "_imported",
        "_misses",
        "_random",
        "_states",
        "_tensors",
        "_unread",
        "kept",
        "plain",
        "walk",
    )

    def __init__(self, walk: Walk, draws: bool) -> None:
        self.walk = walk
        self._contents: list[tuple[Any, Any]] = []
        for s in (*walk.sequences, *walk.logs()):
            if isinstance(s, (list, deque, set)):
                self._contents.append((s, s.copy()))
        self._arrays = walk.arrays
        self._tensors: list[tuple[Any, Any, Any]] = []
        for (_, name), (owner, value) in walk.values.items():
            if value is TENSOR:
                self._tensors.append((owner, name, read(owner, name)))
        self._unread: list[tuple[Any, Any, Any]] = []
        for owner, names in walk.unread:
            self._unread += [(owner, name, read(owner, name)) for name in names]
        self._contexts: list[tuple[Any, dict[Any, Any]]] = []
        for c in walk.contexts:
            self._contexts.append((c, _held_now(c)))
        self._random = _random_state() if draws else None
        self._states = [(g, copy.deepcopy(_state_of(g)), _marked(g)) for g in walk.generators]
        self._misses = [c.cache_info().misses for c in walk.caches] if walk.caches else []
        self._imported = len(sys.modules)
        self.kept = False  # whether a name that nothing reads was given a tensor of the trace
        self.plain = not (draws or walk.generators or walk.caches or self._tensors or self._unread or self._contents)

    def put_back_contents(self) -> None:
        """Lists and the like hold what they held."""
        for s, was in self._contents:
            if len(s) != len(was) or not all(map(is_, s, was)):
                _put_back(s, was)

    def put_back_arrays(self) -> Iterator[tuple[Any, Any]]:
        """Arrays hold what they held; yields those that were changed, and what each held after the trace."""
        for obj, was in self._arrays:
            now = content_of(obj)
            if now != was:
                write_content(obj, was)
                yield obj, now

    def put_back_lengths(self) -> Iterator[tuple[Any, Any, Any]]:
        """Those whose length changed hold what they held; yields each, and what it held before the trace and after."""
        for s, was in self._contents:
            moved = s != was if isinstance(s, set) else isinstance(s, deque) and appended(s, was)
            if len(s) == len(was) and not moved:
                continue
            now = s.copy()
            _put_back(s, was)
            if any(_holds_replica(x) for x in now):
                self.kept = True
            else:
                yield s, was, now

    def put_back_tensors(self) -> bool:
        """No tensor of a trace is where there were others; whether there was one."""
        kept = False
        for owner, name, was in self._tensors:
            if isinstance(read(owner, name), Replica):
                assign(owner, name, was)
                kept = True
        return kept

    def tensor_at(self, owner: Any, name: Any) -> Any:
        """The tensor that was there; ABSENT if none was."""
        return next((t for o, n, t in self._tensors if o is owner and n == name), ABSENT)

    def forget_imports(self) -> bool:
        """Modules whose code a trace was the first to run are not there if they have tensors of it; whether one was."""
        kept = False
        for name in list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - self._imported))):
            variables = variables_of(sys.modules[name]) or {}
            if any(isinstance(value, Replica) for value in list(variables.values())):
                del sys.modules[name]
                kept = True
        return kept

    def put_back_unread(self, counted: frozenset[str]) -> Iterator[Callable[[], None]]:
        """Names that nothing reads have what they had; yields what every call is to do."""
        route = self.walk.routes()
        for owner, name, was in self._unread:
            becomes = read(owner, name)
            if becomes is not was and _holds_replica(becomes):
                assign(owner, name, was)
                self.kept = True
                continue
            if becomes is was or isinstance(was, Tensor) or isinstance(becomes, Tensor):
                continue
            assign(owner, name, was)
            if name in counted and type(was) is int and type(becomes) is int:
                yield Addition(route(owner, name), becomes - was)
            else:
                yield Assignment(route(owner, name), becomes)

    def put_back_random(self) -> bool:
        """No random number of Python's or numpy's was drawn, and no generator seeded; whether one was."""
        if self._random is None:
            return False
        python, numpy = self._random
        drawn = False
        if random.getstate() != python:
            random.setstate(python)
            drawn = True
        now = np.random.get_state(legacy=False)
        if not _equal(now, numpy):
            np.random.set_state(numpy)
            drawn = True
        for g, state, untouched in self._states:
            drawn |= not _equal(_state_of(g), untouched)
            _set_state(g, state)
        self._states = [(g, state, state) for g, state, _ in self._states]
        return drawn

    def put_back_contexts(self) -> bool:
        """Context variables, and attributes of the thread's own, are what they were; whether one was set."""
        changed = False
        for c, was in self._contexts:
            now = _held_now(c)
            if len(now) == len(was) and all(name in now and now[name] is v for name, v in was.items()):
                continue
            changed = True
            if isinstance(c, contextvars.ContextVar):
                if None in was:
                    c.set(was[None])
            else:
                held = in_this_thread(c)
                held.clear()
                held.update(was)
        return changed

    def clear_caches(self) -> None:
        """Caches of results forget those that are tensors of a trace, and with them all."""
        for cache, misses in zip(self.walk.caches, self._misses, strict=True):
            if cache.cache_info().misses != misses and _holds_replicas(cache):
                cache.cache_clear()


def _held_now(context: Any) -> dict[Any, Any]:
    """What a context variable gives, under None, or the attributes of the thread's own that an object has."""
    if not isinstance(context, contextvars.ContextVar):
        return dict(in_this_thread(context))
    try:
        return {None: context.get()}
    except LookupError:
        return {}


class Surroundings:
    """What there is around ``function``, be it a module or not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._classes: dict[type, None] = {}  # of arguments
        self._named = NOTHING
        self._ignored: dict[Place, Any] = {}  # logs, and what has them
        self._changes: dict[Any, int] = {}  # by place and call
        self._numbers: dict[Any, int] = {}
        self._count = itertools.count()
        self.unsettled = False  # whether the function is to run as it is
        self.kept = False  # whether the last trace put tensors into what is around the function
        self.drawn = False  # whether what a trace found is not what it finds again
        self._look()

    @property
    def anything(self) -> bool:
        """Whether there is anything to look at in a call."""
        return self._walk.anything

    def number(self) -> int:
        """The number of what there is now."""
        if not self._walk.holds():
            self._look()
        return self._number

    @property
    def last_number(self) -> int:
        """The number of what there was when that was last asked for."""
        return self._number

    @property
    def asking_types(self) -> list[dict[str, Any]]:
        """The globals of code that asks for types: see Note [Types of replicas]."""
        return list(self._walk.asking_types.values())

    @property
    def modules(self) -> tuple[int, ...]:
        """The serial numbers of the modules there are."""
        return self._walk.key[0]

    @property
    def all_modules(self) -> list[torch.nn.Module]:
        """The modules there are, each before those that it is made of."""
        return self._walk.modules

    @property
    def keyed(self) -> bool:
        """Whether dictionaries there are have tensors for keys, or sets for members."""
        return self._walk.keyed

    def path_to(self, tensor: Tensor) -> Callable[[], Any] | None:
        """How to read what is where ``tensor`` is; None if it is nowhere."""
        route = self._walk.route_to(tensor)
        return None if route is None else functools.partial(_tensor_at, route)

    @property
    def reached(self) -> Reached:
        """What may be assigned, as of the last walk."""
        return self._walk.reached()

    def include(self, classes: Set[type]) -> None:
        """Look at what methods of these find around them, too."""
        if not self._classes.keys() >= classes:
            before = self._classes if len(self._classes) < _CLASSES else {}
            self._classes = before | dict.fromkeys(classes)
            self._look()

    def reaches(self, x: Any) -> bool:
        """Whether the last walk met this container or object."""
        return self._walk.met(x)

    def before_trace(self) -> Before:
        """What there is, for ``after_trace``."""
        if self._walk.iterator is not None:
            self.settle_for_eager(f"it may go on with an iterator, {self._walk.iterator!r}")
        if self._walk.scripted:
            self.settle_for_eager("it calls a module of TorchScript's, whose state nobody else reads")
        return Before(self._walk, bool(self._walk.generators) or "random" in self._named.reads)

    @contextlib.contextmanager
    def undoing(self) -> Iterator[None]:
        """What is done inside to what is around the function is undone."""
        self.number()
        before = Before(self._walk, draws=False)
        try:
            yield
        finally:
            self.undo(before)

    def undo(self, before: Before) -> None:
        """Put back what a trace has changed that did not come to its end."""
        before.forget_imports()
        before.clear_caches()
        before.put_back_random()
        before.put_back_contexts()
        before.put_back_tensors()
        before.put_back_contents()
        for _ in before.put_back_arrays():
            pass
        for _ in before.put_back_unread(frozenset()):
            pass
        if self._walk is not before.walk or not before.walk.holds():
            self._look()
            for _, owner, name, was, becomes in self._changed(before.walk):
                if was is TENSOR:
                    was = before.tensor_at(owner, name)
                if self._assignable(owner, becomes):
                    assign(owner, name, was)
            self._look()

    def after_trace(self, before: Before, alike: Any, left: Sequence[Left] = (), whole: Sequence[Any] = ()) -> Changes:
        """Put back what a trace has changed since ``before``; calls that are ``alike`` differ by nothing else.

        Every call keeps tensors as ``left`` says, see Note [Kept tensors]. ``whole`` are its arguments.
        """
        walk = before.walk
        before.kept = before.forget_imports()
        if not before.kept and not left and before.plain and self._walk is walk and walk.holds():
            self.kept = False
            return NO_CHANGES
        before.clear_caches()
        if before.put_back_random():
            self.drawn = True
            self.settle_for_eager("it draws random numbers of Python's or numpy's, or seeds a generator")
        if before.put_back_contexts():
            self.drawn = True
            self.settle_for_eager("it sets a context variable or an attribute of the thread's own")
        assignments = list(before.put_back_unread(self._named.counted))
        for array, content in before.put_back_arrays():
            assignments.append(Written(array, content))
            self._count_change(
                (id(array), alike), next((n for (_, n), (_, v) in walk.values.items() if v is array), "")
            )
            if any(_lies_in(array, t) for t in whole):
                self.drawn = True
                self.settle_for_eager("it changes an array that a tensor lies in")
        ignored: dict[Place, Any] = {}
        for one in left:
            there = one.container if one.grows else None
            places = {p: walk.owners.get(p[0]) for p, c in walk.containers.items() if c is there}
            if places and self._named.logs.issuperset(name for _, name in places):
                ignored |= places
            elif one.unlike:
                self._count_change((one.place, alike), one.place[1])
        routes = walk.routes()
        for container, was, now in before.put_back_lengths():
            places = {p: walk.owners.get(p[0]) for p, c in walk.containers.items() if c is container}
            (_, name), owner = next(iter(places.items()))
            more = appended(now, was)
            if more and self._named.logs.issuperset(name for _, name in places):
                assignments.append(Growth(routes(owner, name), more))
                ignored |= places
            else:
                assignments.append(_exchange(routes(owner, name), was, now))
                for place in places:
                    self._count_change((place, alike), place[1])
        self.kept = before.put_back_tensors() or before.kept
        self.kept |= _forget_new_attributes(walk.modules)
        if not self.kept and ignored.keys() <= self._ignored.keys() and self._walk is walk and walk.holds():
            return Changes(None, tuple(assignments))
        self._look()
        there = self._walk.values.items()
        self.kept |= any(v is TENSOR and isinstance(read(o, name), Replica) for (_, name), (o, v) in there)
        changed = list(self._changed(walk))
        keyed = any(has_tensor(name, Replica) for _, _, name, *_ in changed)
        if self.kept or keyed or any(_holds_replica(becomes) for *_, becomes in changed):
            self.kept = True
            self.undo(before)
            if keyed:
                self.settle_for_eager("it leaves a dictionary that has a tensor for a key")
            self._count_change("kept", "tensors around it")
            return Changes()
        for place, owner, name, was, becomes in changed:
            if becomes is TENSOR or not self._assignable(owner, becomes):
                continue
            if was is not TENSOR:
                self._count_change((place if was is not ABSENT else (id(owner), None), alike), name)
            assign(owner, name, before.tensor_at(owner, name) if was is TENSOR else was)
            assignments.append(Assignment(routes(owner, name), becomes))
        self._ignored |= ignored
        self._look()
        kept = tuple([key for place, key in walk.found.items() if place in self._walk.found])
        kept += walk.groups([place for place in walk.found if place in self._walk.found])
        return Changes(self._number_of(self.modules, kept) if ignored else None, tuple(assignments))

    def _changed(self, walk: Walk) -> Iterator[tuple[Place, Any, Any, Any, Any]]:
        """Place, owner, name, what it was and what it is now, of what is not as ``walk`` found it."""
        now = self._walk
        was_in, is_in = walk.containers, now.containers
        new = [p for p in now.found if p not in walk.found and p[0] in walk.owners]
        for place in (*walk.found, *new):
            if now.found.get(place) != walk.found.get(place) or was_in.get(place) is not is_in.get(place):
                owner, was = walk.values.get(place) or (now.values[place][0], ABSENT)
                _, becomes = now.values.get(place, (owner, ABSENT))
                if becomes is ABSENT and read(owner, place[1]) is not ABSENT:
                    continue  # it is not looked at any more
                yield place, owner, place[1], was, becomes

    def _assignable(self, owner: Any, becomes: Any) -> bool:
        if isinstance(owner, _ASSIGNED):
            return not isinstance(owner, (list, deque)) or becomes is not ABSENT
        return self._walk.has_slots(owner)

    def _count_change(self, change: Any, name: Any) -> None:
        self._changes[change] = self._changes.get(change, 0) + 1
        if self._changes[change] == _CHANGES:
            self.settle_for_eager(f"it changes {name!r} when it is called")

    def count_kept(self) -> None:
        """A call keeps tensors such that it has to run as it is."""
        self._count_change("kept", "tensors around it")

    def settle_for_eager(self, because: str) -> None:
        """The function runs as it is from now on, which is told once."""
        if not self.unsettled:
            self.unsettled = True
            tell(f"aotcheck runs a function as it is: {because}")

    def _look(self) -> None:
        walk = Walk(self._function, self._named, self._ignored, self._classes)
        while self._named != (named := read_around(walk.code, walk.classes, self._named)):
            self._named = named
            stores = walk.stores_matter and (named.stores or named.adds or named.dynamic)
            if walk.names_matter or stores or named.counted or named.assigned:
                walk = Walk(self._function, named, self._ignored, self._classes)
            elif not walk.classes:
                break
        if self._ignored and not self._named.logs.issuperset(name for _, name in self._ignored):
            self._ignored = {p: o for p, o in self._ignored.items() if p[1] in self._named.logs}
            walk = Walk(self._function, self._named, self._ignored, self._classes)
        self._number = self._number_of(*walk.key)
        self._walk = walk

    def _number_of(self, modules: tuple[int, ...], found: tuple[Any, ...]) -> int:
        if len(self._numbers) > _NUMBERED:
            self._numbers = {}
        return self._numbers.setdefault((modules, found), next(self._count))


def _tensor_at(route: Route) -> Any:
    found = route.now()
    return None if found is ABSENT else found


def _put_back(container: Any, was: Any) -> None:
    container.clear()
    (container.update if isinstance(container, set) else container.extend)(was)


def _exchange(route: Route, was: Any, now: Any) -> Splice | Members:
    """What makes of a container that holds what one did what that holds now."""
    if isinstance(now, set):
        return Members(route, tuple(was - now), tuple(now - was))
    return Splice(route, *spliced(now, was))


def _forget_new_attributes(modules: Sequence[torch.nn.Module]) -> bool:
    """Take away tensors of a trace that hooks for backwards gave ``modules`` as new attributes; whether there were."""
    if not any(any(_torch.hooks_of(m)[2:]) for m in modules):
        return False
    new = [(m, name) for m in modules for name, value in vars(m).items() if isinstance(value, Replica)]
    for m, name in new:
        delattr(m, name)
    return bool(new)


def _lies_in(array: Any, tensor: Any) -> bool:
    """Whether a tensor lies in the memory of an array."""
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
        return False
    try:
        low, high = byte_bounds(array if isinstance(array, np.ndarray) else np.frombuffer(array, np.uint8))
        storage = tensor.untyped_storage()
        return storage.data_ptr() < high and low < storage.data_ptr() + storage.nbytes()
    except (RuntimeError, ValueError, BufferError):  # one has no memory, or the other not in one piece
        return False


def _random_state() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state(legacy=False)


def _marked(generator: Any) -> Any:
    """The state in which a trace leaves a generator alone; one of torch's, whose draws a graph makes, gets another seed
    than it has, so that seeding it shows."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(~generator.initial_seed() & (2**63 - 1))
    return copy.deepcopy(_state_of(generator))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        with _torch.without_torch_function(), _torch.without_modes():
            return _torch.content_of(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        with _torch.without_torch_function(), _torch.without_modes():
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        return
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _equal(a: Any, b: Any) -> bool:
    """Whether two states of a generator are equal; they may have arrays in them."""
    if isinstance(a, dict):
        return all(_equal(v, b[k]) for k, v in a.items())
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


def _holds_replica(value: Any, steps: int = 3) -> bool:
    """Whether ``value`` is a tensor of a trace, or leads to one soon."""
    kind = type(value)
    if issubclass(kind, (Tensor, type, types.ModuleType, types.FunctionType)):
        return issubclass(kind, Replica)
    if plain_key(value) is not None:
        return False
    held = variables_of(value) or {}
    items: list[Any] = list(held.values())
    if issubclass(kind, dict):
        items += dict.values(value)
        items += dict.keys(value)
    elif issubclass(kind, SEQUENCES):
        items += items_of(value)
    return len(items) <= MOST and any(
        issubclass(type(x), Replica) or (steps and _holds_replica(x, steps - 1)) for x in items
    )


def _holds_replicas(cache: Any) -> bool:
    """Whether results that the cache keeps are tensors of a trace."""
    level = [cache.__wrapped__, cache]
    seen = {id(level[0])}
    for _ in range(4):
        found = [o for held in level if not isinstance(held, types.FunctionType) for o in gc.get_referents(held)]
        level = [o for o in found if id(o) not in seen and not isinstance(o, (type, types.ModuleType))]
        if any(isinstance(o, Replica) for o in level):
            return True
        seen.update(map(id, level))
    return False
