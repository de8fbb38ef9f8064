"""Tensors of a trace that the program puts where they outlive it: refused, and not left there.

Looked at is what a function takes from around it, its closure and globals and the object that it is a method of, the
attributes of objects there, and the lists, dictionaries and sets that are any of these. A trace that does not come to
its end leaves all of it as it was, for the program to run again.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.captured import children
from aotcheck.autograd.tensors.plain_values import variables_of

_DICTIONARIES = (dict, OrderedDict, defaultdict)
_CONTAINERS = (*_DICTIONARIES, list, deque, set)
_WITHOUT_TENSORS = frozenset({types.FunctionType, types.ModuleType, types.BuiltinFunctionType, type, type(None)})


class Contents:
    """What containers among ``objects`` hold now, to be put back."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._contents = [(c, c.copy()) for c in objects if type(c) in _CONTAINERS]

    def restore(self) -> None:
        """Let them hold that again."""
        for container, was in self._contents:
            container.clear()
            if isinstance(container, (dict, set)):
                container.update(was)
            else:
                container.extend(was)


class Namespace:
    """The variables in a dictionary, all or some of them, and what containers among them hold, to be put back."""

    def __init__(self, variables: dict[str, Any], names: Iterable[str] | None = None) -> None:
        self.variables = variables
        self.names = None if names is None else tuple(names)
        self.before = {n: variables[n] for n in self._watched() if n in variables}
        self._contents = Contents(self.before.values())

    def _watched(self) -> tuple[str, ...]:
        return tuple(self.variables) if self.names is None else self.names

    def check(self, where: str) -> None:
        """Raise UnsupportedError if a tensor of a trace is there."""
        for name in self._watched():
            refuse_kept(self.variables.get(name), f"{where}{name}")

    def restore(self) -> None:
        """Let everything be what it was."""
        for name in self._watched():
            if name not in self.before:
                self.variables.pop(name, None)
            elif self.variables.get(name) is not self.before[name]:
                self.variables[name] = self.before[name]
        self._contents.restore()


class Unkept:
    """Run a trace inside that calls ``functions``: none of its tensors stays in what these take from around them.

    Raises:
        UnsupportedError: one was put there; it is taken away again.
    """

    __slots__ = ("_cells", "_contents", "_functions", "_namespaces")

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._functions = functions

    def __enter__(self) -> None:
        self._cells = [(c, c.cell_contents) for f in self._functions for c in _closure(f) if not _is_empty(c)]
        around = [value for f in self._functions for value in _around(f) if type(value) not in _WITHOUT_TENSORS]
        objects = [o for value in (*self._functions, *around) for o in _objects(value)]
        self._namespaces = [Namespace(variables_of(o) or {}) for o in objects]
        for f in self._functions:
            plain = f.__func__ if isinstance(f, types.MethodType) else f
            if isinstance(plain, types.FunctionType):
                self._namespaces.append(Namespace(plain.__globals__, plain.__code__.co_names))
        self._contents = Contents(around)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._check()
        except UnsupportedError:
            self._restore()
            raise
        if kind is not None:
            self._restore()

    def _check(self) -> None:
        for f in self._functions:
            for value in _around(f):
                refuse_kept(value, "a variable of its surroundings")
        for namespace in self._namespaces:
            namespace.check("")

    def _restore(self) -> None:
        for cell, was in self._cells:
            cell.cell_contents = was
        for namespace in self._namespaces:
            namespace.restore()
        self._contents.restore()


def _around(f: Any) -> list[Any]:
    """What can be reached from ``f`` in one step."""
    if type(f) is types.FunctionType and not (f.__defaults__ or f.__kwdefaults__ or f.__dict__):
        variables = f.__globals__
        held = [c.cell_contents for c in f.__closure__ or () if not _is_empty(c)]
        return held + [variables[n] for n in f.__code__.co_names if n in variables]
    return [value for _, value in children(f)]


def refuse_kept(value: Any, where: str) -> None:
    """Raise UnsupportedError if ``value`` is a tensor of a trace, or a container that holds one."""
    if type(value) in _WITHOUT_TENSORS:
        return
    held: Iterable[Any] = (value,)
    if type(value) in _DICTIONARIES:
        held = value.values()
    elif type(value) in _CONTAINERS or type(value) is tuple:
        held = value
    if any(issubclass(type(x), Replica) for x in held):
        kind = "" if issubclass(type(value), Replica) else f", a {type(value).__name__}"
        raise UnsupportedError("kept tensor", f"the program puts a tensor into {where}{kind}; return it instead")


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
