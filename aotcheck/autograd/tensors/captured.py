"""Tensors that a function reaches without being passed them: where to find them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from operator import getitem
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.tensors.plain_values import variables_of
from aotcheck.autograd.tensors.subclasses import held_by, is_wrapper

Path = Callable[[], Any]

_DEPTH = 4


def children(obj: Any) -> Iterator[tuple[Path, Any]]:
    """What can be reached from ``obj`` in one step, each with how to read it again."""
    kind = type(obj)  # an object may say that it is of another class, or raise
    if issubclass(kind, types.MethodType):
        yield (lambda: obj.__self__), obj.__self__
        yield from children(obj.__func__)
    elif issubclass(kind, types.FunctionType):
        for cell in obj.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # nothing was assigned to the variable yet
                continue
            yield functools.partial(getattr, cell, "cell_contents"), held
        for name in obj.__code__.co_names:
            if name in obj.__globals__:
                yield functools.partial(getitem, obj.__globals__, name), obj.__globals__[name]
        for k, default in enumerate(obj.__defaults__ or ()):
            yield functools.partial(_item_of, obj, "__defaults__", k), default
        for name, default in (obj.__kwdefaults__ or {}).items():
            yield functools.partial(_item_of, obj, "__kwdefaults__", name), default
        wrapped = getattr(obj, "__wrapped__", None)
        if wrapped is not None:
            yield functools.partial(getattr, obj, "__wrapped__"), wrapped
    elif issubclass(kind, type) and issubclass(obj, torch.autograd.Function):
        for name in ("forward", "setup_context", "backward"):
            yield functools.partial(getattr, obj, name), getattr(obj, name)
    elif issubclass(kind, functools.partial):
        yield (lambda: obj.func), obj.func
        yield (lambda: obj.args), obj.args
        yield (lambda: obj.keywords), obj.keywords
    elif issubclass(kind, dict):
        for key, item in list(obj.items()):
            yield functools.partial(getitem, obj, key), item
    elif issubclass(kind, (list, tuple)):
        for k, item in enumerate(obj):
            yield functools.partial(getitem, obj, k), item
    elif is_wrapper(obj):
        for name, held in held_by(obj)[0]:
            yield functools.partial(getattr, obj, name), held
    elif (variables := _attributes_of(obj)) is not None:
        call = getattr(kind, "forward", None) if issubclass(kind, torch.nn.Module) else vars(kind).get("__call__")
        for name, item in list(variables.items()):
            yield functools.partial(_item_of, obj, "__dict__", name), item
        if isinstance(call, types.FunctionType):
            yield (lambda: call), call


def _attributes_of(obj: Any) -> dict[str, Any] | None:
    others = (type, types.ModuleType, Tensor, str, int, float)
    return None if issubclass(type(obj), others) else variables_of(obj)


def _item_of(obj: Any, attribute: str, key: Any) -> Any:
    """An item of what the attribute is by then."""
    return getattr(obj, attribute)[key]


def read(path: Path) -> Any:
    """The tensor or generator that is there now; None if there is something else, or the place is gone."""
    try:
        found = path()
    except (AttributeError, LookupError, ValueError):
        return None
    return found if isinstance(found, (Tensor, torch.Generator)) else None


def locate(function: Callable[..., Any], tensor: Any) -> Path | None:
    """How to read ``tensor`` (or generator) again from ``function``'s closure, globals, defaults or object, or None.

    The path is walked again on each call from the function itself, so a variable that is rebound is seen.
    """
    seen: set[int] = set()
    level: list[tuple[Callable[[], Any], Any]] = [((lambda: function), function)]
    for _ in range(_DEPTH + 1):
        following: list[tuple[Callable[[], Any], Any]] = []
        for _path, obj in level:
            if id(obj) in seen:
                continue
            seen.add(id(obj))
            for path, child in children(obj):
                if child is tensor or (type(child) is torch.Generator and _same_generator(child, tensor)):
                    return path
                following.append((path, child))
        level = following
    return None


def reachable(obj: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """``obj`` and what it can use: closures, globals, defaults, attributes and containers, to some depth."""
    seen: set[int] = set()
    level = [obj]
    for _ in range(depth + 1):
        following: list[Any] = []
        for found in level:
            if id(found) not in seen:
                seen.add(id(found))
                yield found
                following += [child for _, child in children(found)]
        level = following


def _same_generator(a: torch.Generator, b: Any) -> bool:
    """Torch makes another Python object for a generator each time it hands one out."""
    return isinstance(b, torch.Generator) and _torch.generator_address(a) == _torch.generator_address(b)
