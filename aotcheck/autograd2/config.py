"""Settings of the compiler, and what it did so far."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

__all__ = ["Config", "Counters", "OnUnsupported", "config", "count", "counters", "patch_config"]


class OnUnsupported(enum.Enum):
    """What a call does when the function is refused."""

    RAISE = "raise"
    EAGER = "eager"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Args:
        on_unsupported: for a function that is refused, by its value as well; None lets the entry point decide.
        cache_size: specializations kept per compiled function; the oldest goes first.
        recompile_warning: warn once when a function has been specialized this often; 0 for never.
        debug: check each graph when it is made.
    """

    on_unsupported: OnUnsupported | None = None
    cache_size: int = 64
    recompile_warning: int = 8
    debug: bool = False

    def __post_init__(self) -> None:
        if self.on_unsupported is not None:
            object.__setattr__(self, "on_unsupported", OnUnsupported(self.on_unsupported))
        for name, least in (("cache_size", 1), ("recompile_warning", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


_DEFAULT = Config()
_current: ContextVar[Config] = ContextVar("aotcheck_config2", default=_DEFAULT)


def config() -> Config:
    """The configuration in force here."""
    return _current.get()


@contextlib.contextmanager
def patch_config(**changes: Any) -> Iterator[Config]:
    """The configuration with ``changes`` applied, for the block. An unknown field raises TypeError."""
    token = _current.set(dataclasses.replace(_current.get(), **changes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


@dataclasses.dataclass(frozen=True)
class Counters:
    """What was done in this process.

    Args:
        compiled: specializations that were made.
        refused: calls that were refused, by reason.
        eager_after_user_error: calls that ran eagerly because the function raised an error of its own.
        static: specializations for fixed sizes in place of symbols, by reason.
        eager: calls that ran the original as it is, by what was at work around them.
    """

    compiled: int = 0
    refused: Mapping[str, int] = dataclasses.field(default_factory=dict)
    eager_after_user_error: int = 0
    static: Mapping[str, int] = dataclasses.field(default_factory=dict)
    eager: Mapping[str, int] = dataclasses.field(default_factory=dict)


_lock = threading.Lock()
_counts: dict[str, int] = {"compiled": 0, "eager_after_user_error": 0}
_by_reason: dict[str, dict[str, int]] = {"refused": {}, "static": {}, "eager": {}}


def counters() -> Counters:
    """The counts so far."""
    with _lock:
        refused, static, eager = (MappingProxyType(dict(by)) for by in _by_reason.values())
        return Counters(_counts["compiled"], refused, _counts["eager_after_user_error"], static, eager)


def count(what: str, reason: str = "") -> None:
    """One more of ``what``: "compiled", "eager_after_user_error"; "refused", "static" or "eager" with the reason."""
    with _lock:
        if what in _by_reason:
            _by_reason[what][reason] = _by_reason[what].get(reason, 0) + 1
        else:
            _counts[what] += 1
