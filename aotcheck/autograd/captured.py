"""Tensors that a function reaches without being passed them: where to find them, and module state in a trace."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from operator import getitem
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.subclasses import held_by, is_wrapper

Path = Callable[[], Any]

_DEPTH = 4


def _children(obj: Any) -> Iterator[tuple[Path, Any]]:
    """What can be reached from ``obj`` in one step, each with how to read it again."""
    if isinstance(obj, types.MethodType):
        yield (lambda: obj.__self__), obj.__self__
        yield from _children(obj.__func__)
    elif isinstance(obj, types.FunctionType):
        for cell in obj.__closure__ or ():
            with contextlib.suppress(ValueError):
                yield functools.partial(getattr, cell, "cell_contents"), cell.cell_contents
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
    elif isinstance(obj, type) and issubclass(obj, torch.autograd.Function):
        for name in ("forward", "setup_context", "backward"):
            yield functools.partial(getattr, obj, name), getattr(obj, name)
    elif isinstance(obj, functools.partial):
        yield (lambda: obj.func), obj.func
        yield (lambda: obj.args), obj.args
        yield (lambda: obj.keywords), obj.keywords
    elif isinstance(obj, dict):
        for key, item in list(obj.items()):
            yield functools.partial(getitem, obj, key), item
    elif isinstance(obj, (list, tuple)):
        for k, item in enumerate(obj):
            yield functools.partial(getitem, obj, k), item
    elif is_wrapper(obj):
        for name, held in held_by(obj)[0]:
            yield functools.partial(getattr, obj, name), held
    elif not isinstance(obj, (type, types.ModuleType, Tensor, str, int, float)) and hasattr(obj, "__dict__"):
        call = (
            getattr(type(obj), "forward", None) if isinstance(obj, torch.nn.Module) else vars(type(obj)).get("__call__")
        )
        for name, item in list(vars(obj).items()):
            yield functools.partial(_item_of, obj, "__dict__", name), item
        if isinstance(call, types.FunctionType):
            yield (lambda: call), call


def _item_of(obj: Any, attribute: str, key: Any) -> Any:
    """An item of what the attribute is by then."""
    return getattr(obj, attribute)[key]


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
            for path, child in _children(obj):
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
                following += [child for _, child in _children(found)]
        level = following


def _same_generator(a: torch.Generator, b: Any) -> bool:
    """Torch makes another Python object for a generator each time it hands one out."""
    return isinstance(b, torch.Generator) and _torch.generator_address(a) == _torch.generator_address(b)


class ModuleState:
    """A module's parameters and buffers, deeply: read on every call, swapped for replicas while tracing."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.refresh()

    def refresh(self) -> None:
        """Find the slots anew, for modules whose structure has changed."""
        self.modules = list(self.module.modules())
        self.slots: list[tuple[dict[str, Any], str]] = []
        for m in self.modules:
            self.slots += [(owner, name) for owner in _torch.state_of(m) for name, t in owner.items() if t is not None]

    def tensors(self) -> list[Tensor]:
        """What is in the slots now."""
        return [owner[name] for owner, name in self.slots]

    def modes(self) -> tuple[bool, ...]:
        """Train or eval, per submodule."""
        return tuple([m.training for m in self.modules])

    @contextlib.contextmanager
    def swapped(self, replicas: Sequence[Tensor], reassigned: list[tuple[int, Any]]) -> Iterator[None]:
        """The module runs on ``replicas`` inside; what it puts into slots goes to ``reassigned``: (slot, object)."""
        slots = self.slots
        with _swapped(slots, replicas):
            yield
            for k, ((owner, name), replica) in enumerate(zip(slots, replicas, strict=True)):
                if owner.get(name) is not replica:
                    reassigned.append((k, owner.get(name)))

    def swapping(self, replicas: Sequence[Tensor]) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """What puts ``replicas`` into the slots that there are now, once more and for as long as it is entered."""
        return functools.partial(_swapped, self.slots, replicas)

    def assign(self, slots: Sequence[int], tensors: Sequence[Any]) -> None:
        """Put the objects that the program left in these slots there."""
        for k, t in zip(slots, tensors, strict=True):
            owner, name = self.slots[k]
            owner[name] = t


@contextlib.contextmanager
def _swapped(slots: Sequence[tuple[dict[str, Any], str]], replicas: Sequence[Tensor]) -> Iterator[None]:
    originals = [owner.get(name) for owner, name in slots]
    for (owner, name), replica in zip(slots, replicas, strict=True):
        owner[name] = replica
    try:
        yield
    finally:
        for (owner, name), original in zip(slots, originals, strict=True):
            owner[name] = original
