"""Variables, attributes and items around a function: how each is read and assigned.

A list or dictionary may be exchanged for another like it, for which the same trace is right: what is in one is found by
a :class:`Route` from what has it.
"""

from __future__ import annotations

import dataclasses
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotcheck.autograd.calls.serials import serial_of
from aotcheck.autograd.tensors.plain_values import variables_of

ABSENT = object()
TENSOR = object()

Place = tuple[int, Any]


def read(owner: Any, name: Any) -> Any:
    """What ``owner`` has by that name: a cell, dictionary, list, class or an object with slots."""
    if type(owner) is dict:
        return owner.get(name, ABSENT)
    if isinstance(owner, types.CellType):
        try:
            return owner.cell_contents
        except ValueError:  # nothing was assigned yet
            return ABSENT
    if isinstance(owner, type):
        return vars(owner).get(name, ABSENT)
    if isinstance(owner, dict):
        return dict.get(owner, name, ABSENT)
    if isinstance(owner, (list, deque, tuple)):
        return owner[name] if type(name) is int and name < len(owner) else ABSENT
    if type(name) is not str:
        kept: Any = getattr(owner, "__defaults__", None) or getattr(owner, "args", None)  # of a function or a partial
        return kept[name] if type(name) is int and type(kept) is tuple and name < len(kept) else ABSENT
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return ABSENT


def key_of(name: Any) -> Any:
    """What of a name is part of a key."""
    return name if type(name) in (str, int) else serial_of(name)


def follow(owner: Any, names: Sequence[Any]) -> Any:
    """What there is now by these names, one after the other."""
    for name in names:
        owner = read(owner, name)
    return owner


@dataclass(frozen=True)
class Attributes:
    """The dictionary of an object's attributes, or the object ``itself``."""

    of: Callable[[], Any]
    itself: bool = False


@dataclass(frozen=True)
class Route:
    """To a variable, attribute or item: what ``owner`` has by these names, one after the other.

    ``owner`` is nothing that may be exchanged for another one like it. A route to an object's attributes does not keep
    it alive.
    """

    owner: Any
    names: tuple[Any, ...]

    @property
    def name(self) -> Any:
        """The last name."""
        return self.names[-1]

    def holder(self) -> Any:
        """What has it."""
        return self._start() if len(self.names) == 1 else follow(self._start(), self.names[:-1])

    def now(self) -> Any:
        """What is there."""
        return follow(self._start(), self.names)

    def _start(self) -> Any:
        owner = self.owner
        if type(owner) is Attributes:
            obj = owner.of()
            return obj if owner.itself else variables_of(obj) if obj is not None else ABSENT
        return owner

    def then(self, name: Any) -> Route:
        """What that has by another name."""
        return Route(self.owner, (*self.names, name))


@dataclass(frozen=True)
class Reached:
    """What a walk reached: ``variables``, each what has them and their names (None: all that it has), and ``nested``
    containers. Ways to all ``containers``, and the ``objects`` and what attributes are of, by id.
    """

    variables: tuple[tuple[Any, tuple[Any, ...] | None], ...] = ()
    nested: tuple[Route, ...] = ()
    containers: Mapping[int, Route] = dataclasses.field(default_factory=dict)
    objects: Mapping[int, Attributes] = dataclasses.field(default_factory=dict)
    attributes: Mapping[int, Attributes] = dataclasses.field(default_factory=dict)

    def __contains__(self, x: object) -> bool:
        known = self.objects.get(id(x))
        return id(x) in self.containers or (known is not None and known.of() is x)

    def route(self, x: Any) -> Route:
        """The way to a container or an object."""
        found = self.containers.get(id(x))
        if found is None:
            found = Route(self.objects[id(x)], ())
        return found

    def to(self, owner: Any, name: Any) -> Route:
        """The way to what ``owner`` has by a name."""
        return Route(self.attributes.get(id(owner), owner), (name,))


@dataclass(frozen=True, eq=False)
class There:
    """Stands for what is at the end of a route: before the call has changed anything or, if it is ``made``, then."""

    route: Route
    made: bool = False


def found_at(there: Iterable[There]) -> dict[int, Any]:
    """What there is now, by id of what stands for it."""
    return {id(x): x.route.now() for x in there if not x.made}


def put_in(flat: Sequence[Any], found: Mapping[int, Any]) -> list[Any]:
    """What each stands for, ``found`` before or there now."""
    return [(x.route.now() if x.made else found[id(x)]) if type(x) is There else x for x in flat]
