"""What every call of a traced function changes around it: the assignments that the trace did."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from aotcheck.autograd.calls.contents import write_content
from aotcheck.autograd.calls.places import ABSENT, Route


def assign(owner: Any, name: Any, value: Any) -> None:
    """Let ``owner`` have ``value`` by that name; nothing by it if that is ABSENT."""
    if type(owner) is dict and value is not ABSENT:
        owner[name] = value
    elif isinstance(owner, types.CellType):
        if value is ABSENT:
            del owner.cell_contents
        else:
            owner.cell_contents = value
    elif isinstance(owner, type):
        if value is not ABSENT:
            setattr(owner, name, value)
        elif name in vars(owner):
            delattr(owner, name)
    elif isinstance(owner, dict):
        kind = OrderedDict if isinstance(owner, OrderedDict) else dict  # whatever a class of the user's makes of it
        if value is not ABSENT:
            kind.__setitem__(owner, name, value)
        elif dict.__contains__(owner, name):
            kind.__delitem__(owner, name)
    elif isinstance(owner, (list, deque)):
        owner[name] = value
    elif value is not ABSENT:
        object.__setattr__(owner, name, value)
    else:
        object.__delattr__(owner, name)


@dataclass(frozen=True)
class Assignment:
    """Of a variable, attribute or item that a traced function changes."""

    route: Route
    value: Any

    def __call__(self) -> None:
        """Do it."""
        assign(self.route.holder(), self.route.name, self.value)


@dataclass(frozen=True)
class Addition:
    """To a number that is only counted."""

    route: Route
    number: int

    def __call__(self) -> None:
        """Add it."""
        assign(self.route.holder(), self.route.name, self.route.now() + self.number)


@dataclass(frozen=True)
class Growth:
    """Of a log, which may be another one by the time of a call."""

    route: Route
    more: tuple[Any, ...]

    def __call__(self) -> None:
        """Append what the trace did."""
        log = self.route.now()
        (log.update if isinstance(log, set) else log.extend)(self.more)


@dataclass(frozen=True)
class Splice:
    """Of a list or deque whose length a traced function changes: all but the first and the last items, so many of
    which are what they were, are exchanged for others.
    """

    route: Route
    first: int
    last: int
    items: tuple[Any, ...]

    def __call__(self) -> None:
        """Do it."""
        splice(self.route.now(), self.first, self.last, self.items)


def splice(sequence: Any, first: int, last: int, items: Sequence[Any]) -> None:
    """Exchange all but so many of the first and last items of a list or deque for ``items``."""
    if isinstance(sequence, list):
        list.__setitem__(sequence, slice(first, len(sequence) - last), items)
    else:
        now = list(sequence)
        now[first : len(now) - last] = items
        sequence.clear()
        sequence.extend(now)


def appended(now: Any, was: Any) -> tuple[Any, ...]:
    """What was appended or added, if that is all that was done; a deque that is full has lost as much."""
    if isinstance(now, set):
        return tuple(now - was) if now >= was else ()
    items, before = tuple(now), tuple(was)
    lost = range(1)
    if isinstance(now, deque) and len(items) == now.maxlen:
        lost = range(len(before) + 1)
    for k in lost:
        if len(before) - k <= len(items) and all(map(is_, before[k:], items)):
            return items[len(before) - k :]
    return ()


def spliced(now: Iterable[Any], was: Iterable[Any]) -> tuple[int, int, tuple[Any, ...]]:
    """How many of the first and last items are what they were, and what is between them."""
    now, was = tuple(now), tuple(was)
    shorter = min(len(now), len(was))
    first = next((k for k in range(shorter) if now[k] is not was[k]), shorter)
    last = next((k for k in range(shorter - first) if now[-1 - k] is not was[-1 - k]), shorter - first)
    return first, last, now[first : len(now) - last]


@dataclass(frozen=True)
class Members:
    """Of a set that a traced function changes: these are no members any more, those are."""

    route: Route
    fewer: tuple[Any, ...]
    more: tuple[Any, ...]

    def __call__(self) -> None:
        """Do it."""
        members = self.route.now()
        members.difference_update(self.fewer)
        members.update(self.more)


@dataclass(frozen=True)
class Written:
    """Of an array that a traced function changes in place."""

    array: Any
    content: Any

    def __call__(self) -> None:
        """Do it."""
        write_content(self.array, self.content)


@dataclass(frozen=True)
class Changes:
    """What a trace changed: the ``number`` of what there was, if some of it is not looked at any more."""

    number: int | None = None
    assignments: tuple[Callable[[], None], ...] = ()


NO_CHANGES = Changes()
