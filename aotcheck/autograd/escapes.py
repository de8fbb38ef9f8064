"""Tensors of a trace that the program puts where they outlive it: refused, and not left there."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aotcheck.autograd.captured import children
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.replicas import Replica


class Contents:
    """What lists and dictionaries hold now, to be put back."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._contents = [(c, c.copy()) for c in objects if type(c) in (list, dict)]

    def restore(self) -> None:
        """Let them hold that again."""
        for container, was in self._contents:
            if isinstance(container, dict):
                container.clear()
                container.update(was)
            else:
                container[:] = was


@contextlib.contextmanager
def unkept(function: Callable[..., Any]) -> Iterator[None]:
    """Run a trace of ``function`` inside: no tensor of it stays in what the function takes from around it.

    That is variables of its closure and globals, and lists and dictionaries among these.

    Raises:
        UnsupportedError: one was put there; it is taken away again.
    """
    plain = isinstance(function, types.FunctionType)
    cells = [(c, c.cell_contents) for c in (function.__closure__ if plain else None) or () if not _is_empty(c)]
    names = function.__globals__ if plain else {}
    before = {name: names[name] for name in (function.__code__.co_names if plain else ()) if name in names}
    contents = Contents(value for _, value in children(function))
    try:
        yield
        for _, value in children(function):
            refuse_kept(value, "a variable of its surroundings")
    except BaseException:
        for cell, was in cells:
            cell.cell_contents = was
        for name in [n for n, value in names.items() if isinstance(value, Replica)]:
            if name in before:
                names[name] = before[name]
            else:
                del names[name]
        contents.restore()
        raise


def _is_empty(cell: types.CellType) -> bool:
    """Whether no value was assigned to the variable yet."""
    try:
        cell.cell_contents  # noqa: B018  # raises
    except ValueError:
        return True
    return False


def refuse_kept(value: Any, where: str) -> None:
    """Raise UnsupportedError if ``value`` is a tensor of a trace or a list, tuple or dictionary that holds one."""
    held = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
    if any(isinstance(x, Replica) for x in held):
        kind = "" if isinstance(value, Replica) else f", a {type(value).__name__}"
        raise UnsupportedError("kept tensor", f"the program puts a tensor into {where}{kind}; return it instead")
