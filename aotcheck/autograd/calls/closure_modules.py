"""Modules that a function reaches without being passed them, and what they hold.

Note [Modules in closures]
A function may call a module that it finds in its closure. When a trace meets one of its parameters or buffers, all of
them become arguments at once: models have many, and the trace begins again whenever it meets what is no argument yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.tensors.captured import Path, children

_STEPS = 2  # a closure's own, and those of functions and objects in it
_MOST = 256  # items of a container that is looked through


class ClosureModules:
    """The modules near ``function``, and the ``others`` that there are, all of which have these serial ``numbers``."""

    def __init__(
        self, function: Callable[..., Any], numbers: tuple[int, ...], others: Sequence[torch.nn.Module]
    ) -> None:
        self.numbers = numbers
        self._function = function
        self._others = others

    @functools.cached_property
    def _roots(self) -> list[torch.nn.Module]:
        return [*_modules_near(self._function), *self._others]

    def state_with(self, tensor: Any) -> list[Path]:
        """How to read all parameters and buffers of the model one of which ``tensor`` is; none if it is of no model."""
        if not _is_plain(tensor):
            return []
        for root in self._roots:
            owners = [owner for m in root.modules() for owner in _torch.state_of(m)]
            if any(t is tensor for owner in owners for t in owner.values()):
                return [
                    functools.partial(owner.get, name) for owner in owners for name, t in owner.items() if _is_plain(t)
                ]
        return []


def _modules_near(function: Callable[..., Any]) -> Iterator[torch.nn.Module]:
    level: list[Any] = [function]
    for _ in range(_STEPS):
        following: list[Any] = []
        for obj in level:
            if issubclass(type(obj), (dict, list, tuple)) and len(obj) > _MOST:
                continue
            for _, child in children(obj):
                if issubclass(type(child), torch.nn.Module):
                    yield child
                else:
                    following.append(child)
        level = following


def _is_plain(t: Any) -> bool:
    """Whether it is supported as an argument, be it used or not."""
    return type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided and not t.is_quantized
