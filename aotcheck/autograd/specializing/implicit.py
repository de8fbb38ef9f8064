"""The arguments that a function reaches by itself: state of its module, tensors in its closure, gradients of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from aotcheck.autograd.calls.closure_modules import ClosureModules
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.surroundings import Surroundings
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.state.gradients import gradients_of
from aotcheck.autograd.tensors.captured import Path, locate, read
from aotcheck.autograd.tensors.subclasses import held_by, is_wrapper


class Implicit:
    """Those of ``original``, which has a ``state`` if it is a module."""

    __slots__ = ("_modules", "_original", "_paths", "_state", "are_there")

    def __init__(self, original: Callable[..., Any], state: ModuleState | None) -> None:
        self._original, self._state = original, state
        self._modules: ClosureModules | None = None
        self._paths: list[Path] = []
        self.are_there = state is not None  # whether there may be any

    def renew(self, around: Surroundings) -> bool:
        """Look whether there are other modules ``around``; if so, nothing that was found in those before counts."""
        if self._state is not None or (self._modules is not None and around.modules == self._modules.numbers):
            return False
        self._modules = ClosureModules(self._original, around.modules, around.all_modules)
        self._paths, self.are_there = [], False
        return True

    def after(self, flat: Sequence[Any], gradients: bool) -> list[Any]:
        """All arguments of a call: its own, these, and perhaps the gradients of both."""
        state = self._state.tensors() if self._state is not None else ()
        whole = [*flat, *state, *[read(p) for p in self._paths]]
        return [*whole, *gradients_of(whole)] if gradients else whole

    def add(self, tensor: Tensor, around: Surroundings) -> None:
        """From now on ``tensor`` is one.

        Raises:
            UnsupportedError: it is nowhere that a call could read it from.
        """
        if self._state is not None and self._state.adopt(tensor):
            return
        paths = self.way_to(tensor, around)
        if paths is None and is_wrapper(tensor):
            for _, held in held_by(tensor)[0]:
                self.add(held, around)
            return
        if paths is None:
            raise UnsupportedError(
                "captured tensor",
                "the function uses a tensor that is no argument and cannot be reached from its closure",
            )
        self._paths += paths
        self.are_there = True

    def way_to(self, tensor: Tensor, around: Surroundings) -> list[Path] | None:
        """How to read the tensor, and with it all that a model has that it is of; None if it is nowhere."""
        if paths := self._modules.state_with(tensor) if self._modules is not None else []:
            return paths
        path = around.path_to(tensor)
        if path is None:
            path = locate(self._original, tensor) if self._state is None else self._state.locate(tensor)
        return None if path is None else [path]
