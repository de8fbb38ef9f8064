"""The global state that ops depend on: what of it a trace finds, and that a trace leaves it as it was.

Note [Autocast]
A trace under autocast records the casts, so its graph runs with autocast off. A backward is traced for the state that
is in force around it, as in eager, which need not be the forward's: each state has backwards of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.state.autocast import Autocast, autocast_as, autocast_state

_DEVICES = ("cpu", "cuda")


class GlobalState(NamedTuple):
    """What a function may set for good, grad mode aside."""

    default_dtype: torch.dtype
    deterministic: tuple[bool, bool]
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool

    @classmethod
    def now(cls) -> GlobalState:
        """The state in force."""
        return cls(
            torch.get_default_dtype(),
            _torch.determinism()[:2],
            tuple([(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES]),
            torch.is_autocast_cache_enabled(),
        )

    def restore(self) -> None:
        """Put it in force again."""
        torch.set_default_dtype(self.default_dtype)
        torch.use_deterministic_algorithms(self.deterministic[0], warn_only=self.deterministic[1])
        for device, (enabled, dtype) in zip(_DEVICES, self.autocast, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)


class Unchanged:
    """Whatever runs inside, the state is as before afterwards; UnsupportedError if what ended well had changed it."""

    __slots__ = ("_before", "_nesting")

    def __enter__(self) -> None:
        self._before = GlobalState.now()
        self._nesting = _autocast_nesting()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for _region in range(_autocast_nesting() - self._nesting):  # that code of Dynamo's entered and did not leave
            if not torch.autocast_decrement_nesting():
                torch.clear_autocast_cache()
        if GlobalState.now() == self._before:
            return
        self._before.restore()
        if kind is None:
            what = "the function sets the default dtype, determinism or autocast for good"
            raise UnsupportedError("global state", what)


class AutocastOff:
    """Autocast is off inside, on every device."""

    __slots__ = ("_enabled",)

    def __enter__(self) -> None:
        self._enabled = _turn_off()

    def __exit__(self, *exception: object) -> None:
        for device in self._enabled:
            torch.set_autocast_enabled(device, True)


def without_autocast(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with autocast off."""

    def call(*args: Any) -> Any:
        enabled = _turn_off()
        try:
            return run(*args)
        finally:
            for device in enabled:
                torch.set_autocast_enabled(device, True)

    return call


@dataclasses.dataclass(frozen=True)
class BackwardMode:
    """What a backward is called in: inference mode or not, and what autocast does."""

    inference: bool
    autocast: Autocast

    @classmethod
    def now(cls) -> BackwardMode:
        """That in force on this thread."""
        return cls(torch.is_inference_mode_enabled(), autocast_state())

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """It is, inside."""
        with torch.inference_mode(self.inference), AutocastOff(), autocast_as(self.autocast):
            yield


def _autocast_nesting() -> int:
    """How many regions of autocast there are around, which share what casts are cached."""
    deeper: int = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return deeper - 1


def autocast_is_on() -> bool:
    """Whether autocast is on, on any device."""
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _turn_off() -> list[str]:
    enabled = [d for d in _DEVICES if torch.is_autocast_enabled(d)]
    for device in enabled:
        torch.set_autocast_enabled(device, False)
    return enabled
