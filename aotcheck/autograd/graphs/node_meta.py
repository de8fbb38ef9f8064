"""What FX nodes are told about what they give, put together when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NodeMeta(dict[str, Any]):
    """A node's ``meta``, filled by ``fill`` of a value when it is first looked at or changed; to whoever does that it
    is a plain dictionary.

    Most compilers of a graph look at little of it, and to make a fake tensor for each value takes a good part of the
    time that it takes to make the graph.
    """

    __slots__ = ("_fill", "_value")

    def __init__(self, fill: Callable[[Any], dict[str, Any]], value: Any) -> None:
        self._fill, self._value = fill, value

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _Filled(NodeMeta):
    """One that is filled."""

    __slots__ = ()


def _settled(name: str) -> Callable[..., Any]:
    own = getattr(dict, name)

    def method(self: NodeMeta, *args: Any, **kwargs: Any) -> Any:
        if type(self) is NodeMeta:
            entries = self._fill(self._value)
            if type(self) is NodeMeta:  # no other thread has filled it meanwhile
                dict.update(self, entries)
                self.__class__ = _Filled
                del self._fill, self._value
        return own(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    return method


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem"),
    *("setdefault", "update", "values"),
):
    setattr(NodeMeta, _name, _settled(_name))
    setattr(_Filled, _name, getattr(dict, _name))
