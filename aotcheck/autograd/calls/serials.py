"""Numbers that tell objects apart for good, where their addresses would be given to others."""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any

_serials = itertools.count()
_known_objects: dict[int, tuple[Any, int]] = {}  # id -> what tells that it is still that object, its serial number


class _Same:
    """Equal for one object, which it keeps."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


def serial_of(obj: Any) -> Any:
    """What no other object has or will have: a number where there are weak references to such objects."""
    known = _known_objects.get(id(obj))
    if known is not None and known[0]() is obj:
        return known[1]
    try:
        alive = weakref.ref(obj, functools.partial(_forget, id(obj)))
    except TypeError:
        return _Same(obj)
    serial = next(_serials)
    _known_objects[id(obj)] = alive, serial
    return serial


def _forget(address: int, reference: Any) -> None:
    if (known := _known_objects.get(address)) is not None and known[0] is reference:
        del _known_objects[address]
