"""Tensors of a trace that the program puts where they outlive it: taken away, and kept by each call or refused.

Looked at is what a function takes from around it, its closure and globals and the object that it is a method of, and
whatever a walk from there reached: see Note [Surroundings]. A trace that does not come to its end leaves all of it as
it was, for the program to run again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.kept import CONTAINERS, WITHOUT_TENSORS, Kept, Watched, is_alike, refill, refuse
from aotcheck.autograd.calls.places import ABSENT, Reached, read
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.tensors.captured import children
from aotcheck.autograd.tensors.plain_values import variables_of


class Contents:
    """What containers among ``objects`` hold now, to be put back."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._contents = [(c, c.copy()) for c in objects if type(c) in CONTAINERS]

    def restore(self) -> None:
        """Let them hold that again."""
        for container, was in self._contents:
            if not is_alike(container, was):
                refill(container, was)


class Namespace:
    """The variables that an owner has, all or some of them, and what containers among them hold, to be put back."""

    def __init__(
        self,
        owner: Any,
        reached: Reached,
        names: Iterable[Any] | None = None,
        seen: set[int] | None = None,
        values: Iterable[Any] | None = None,
    ) -> None:
        """``values`` are those of the names, where they may have changed since."""
        self.owner, self._reached = owner, reached
        self.names = None if names is None else tuple(names)
        there = (
            [(n, read(owner, n)) for n in self._names()]
            if values is None
            else list(zip(names or (), values, strict=True))
        )
        self.before = {n: value for n, value in there if value is not ABSENT}
        self._copies: dict[Any, Any] = {}
        self._is_plain = True
        for name, value in there:
            if type(value) in WITHOUT_TENSORS or value is ABSENT:
                continue
            self._is_plain = False
            if type(value) in CONTAINERS and (seen is None or id(value) not in seen):
                self._copies[name] = value.copy()
                if seen is not None:
                    seen.add(id(value))

    def _names(self) -> tuple[Any, ...]:
        if self.names is not None:
            return self.names
        return tuple(vars(self.owner) if isinstance(self.owner, type) else self.owner)

    def is_as_before(self) -> bool:
        """Whether all the variables are what they were, and such as can have no tensors in them."""
        if not self._is_plain:
            return False
        names, before = self._names(), self.before
        for n in names:
            if read(self.owner, n) is not before.get(n, ABSENT):
                return False
        return self.names is not None or len(names) == len(before)

    def _changed(self) -> Iterator[tuple[Any, Watched]]:
        for name in dict.fromkeys((*self._names(), *self.before)):
            was = self.before.get(name, ABSENT)
            if name in self._copies or read(self.owner, name) is not was:
                route = self._reached.to(self.owner, name)
                yield name, Watched(self.owner, route, was, self._copies.get(name))

    def kept(self, but: Collection[Any] = ()) -> Iterator[Kept]:
        """What a trace has left here, under other names than ``but``."""
        for name, watched in self._changed():
            if name not in but:
                yield from watched.kept(self._reached)

    def check(self, where: str) -> None:
        """Raise UnsupportedError if a tensor of a trace is there."""
        for name in self._names():
            refuse(read(self.owner, name), f"{where}{name}")

    def restore(self) -> None:
        """Let everything be what it was."""
        for _, watched in self._changed():
            watched.restore()


class Unkept:
    """Run a trace inside that calls ``functions``: none of its tensors stays in what these take from around them.

    Looked at is all that was ``reached`` ``but`` for some, by id. Tensors that were put there are taken away again, and
    noted in ``kept``.

    Raises:
        UnsupportedError: one was put where it cannot be taken from.
    """

    __slots__ = (
        "_but",
        "_contents",
        "_functions",
        "_has_values",
        "_kept",
        "_namespaces",
        "_nested",
        "_plain",
        "_reached",
    )

    def __init__(
        self, *functions: Callable[..., Any], kept: list[Kept], reached: Reached, but: Collection[int] = ()
    ) -> None:
        self._functions = functions
        self._kept, self._reached, self._but = kept, reached, but

    def __enter__(self) -> None:
        self._plain = None if self._but or len(self._functions) != 1 else _plain_around(*self._functions, self._reached)
        if self._plain is None:
            self._look()

    def _look(self) -> None:
        around = [value for f in self._functions for value in _around(f) if type(value) not in WITHOUT_TENSORS]
        modules = [m for value in around if issubclass(type(value), torch.nn.Module) for m in value.modules()]
        if hooks := _torch.forward_hooks_of(modules):
            self._functions = (*self._functions, *hooks)
            around += [value for f in hooks for value in _around(f) if type(value) not in WITHOUT_TENSORS]
        owners: dict[int, tuple[Any, tuple[Any, ...] | None]] = {
            id(c): (c, ("cell_contents",)) for f in self._functions for c in _closure(f)
        }
        self._has_values = bool(around)
        objects = [o for value in (*self._functions, *around) for o in _objects(value)]
        owners |= {id(v): (v, None) for o in objects if (v := variables_of(o)) is not None}
        for f in self._functions:
            plain = f.__func__ if isinstance(f, types.MethodType) else f
            if isinstance(plain, types.FunctionType):
                owners[id(plain.__globals__)] = plain.__globals__, plain.__code__.co_names
        for owner, names in self._reached.variables:
            before = owners.get(id(owner), (owner, ()))[1]
            owners[id(owner)] = owner, None if names is None or before is None else tuple({*before, *names})
        seen = set(self._but)
        self._namespaces = [
            Namespace(o, self._reached, names, seen) for k, (o, names) in owners.items() if k not in seen
        ]
        self._nested = [Watched.now(route.holder(), route, seen) for route in self._reached.nested]
        self._contents = Contents(around)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._plain is not None:
            if kind is None and _are_as_before(self._plain):
                return
            self._namespaces = [Namespace(o, self._reached, names, None, values) for o, names, values in self._plain]
            self._nested, self._contents, self._has_values = [], Contents(()), False
        try:
            if kind is None:
                if self._is_as_before():
                    return
                self._take()
                self._check()
        except UnsupportedError:
            self._restore()
            raise
        if kind is not None:
            self._restore()

    def _is_as_before(self) -> bool:
        """Whether there is nothing around the functions that could have tensors in it, and nothing has changed."""
        if self._has_values or self._nested:
            return False
        for f in self._functions:
            if not _is_bare(f):
                return False
        return all(n.is_as_before() for n in self._namespaces)

    def _take(self) -> None:
        all_kept = [n.kept() for n in self._namespaces] + [w.kept(self._reached) for w in self._nested]
        for one in all_kept:
            kept = list(one)
            for k in kept:
                k.take()
            self._kept += kept

    def _check(self) -> None:
        for f in self._functions:
            for value in _around(f):
                refuse(value, "a variable of its surroundings")
        for namespace in self._namespaces:
            namespace.check("")

    def _restore(self) -> None:
        for namespace in self._namespaces:
            namespace.restore()
        for watched in self._nested:
            watched.restore()
        self._contents.restore()


Variables = tuple[Any, tuple[str, ...], list[Any]]
"""An owner, names of variables that it has, and what these are."""


def _plain_around(f: Any, reached: Reached) -> list[Variables] | None:
    """What ``f`` takes from around it and all that was ``reached``, if none of that can have tensors in it."""
    if reached.nested or not _is_bare(f):
        return None
    cells = {id(c): c for c in f.__closure__ or ()}
    for owner, _ in reached.variables:
        if type(owner) is not types.CellType:
            return None
        cells[id(owner)] = owner
    found: list[Variables] = [(c, _OF_CELLS, [read(c, *_OF_CELLS)]) for c in cells.values()]
    variables, names = f.__globals__, f.__code__.co_names
    found.append((variables, names, [variables.get(n, ABSENT) for n in names]))
    for _, _, values in found:
        for value in values:
            if value is not ABSENT and type(value) not in WITHOUT_TENSORS:
                return None
    return found


def _are_as_before(around: Iterable[Variables]) -> bool:
    for owner, names, values in around:
        for name, value in zip(names, values, strict=True):
            if read(owner, name) is not value:
                return False
    return True


_OF_CELLS = ("cell_contents",)


def _around(f: Any) -> list[Any]:
    """What can be reached from ``f`` in one step."""
    if _is_bare(f):
        variables = f.__globals__
        held = [c.cell_contents for c in f.__closure__ or () if not _is_empty(c)]
        return held + [variables[n] for n in f.__code__.co_names if n in variables]
    return [value for _, value in children(f)]


def _is_bare(f: Any) -> bool:
    """Whether ``f`` is a function that has nothing but its closure and globals."""
    return type(f) is types.FunctionType and not (f.__defaults__ or f.__kwdefaults__ or f.__dict__)


def _objects(value: Any) -> Iterable[Any]:
    """``value``, if it is an object with attributes; all that a module consists of."""
    if issubclass(type(value), torch.nn.Module):
        modules: Iterable[Any] = value.modules()
        return modules
    others = (type, types.ModuleType, types.FunctionType, Tensor)
    return () if issubclass(type(value), others) or variables_of(value) is None else (value,)


def _closure(function: Any) -> tuple[types.CellType, ...]:
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    return (plain.__closure__ or ()) if isinstance(plain, types.FunctionType) else ()


def _is_empty(cell: types.CellType) -> bool:
    """Whether no value was assigned to the variable yet."""
    try:
        cell.cell_contents  # noqa: B018  # raises
    except ValueError:
        return True
    return False
