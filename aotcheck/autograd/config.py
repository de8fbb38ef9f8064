"""One frozen configuration object, patched for a block, per thread and task."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any


class OnUnsupported(enum.Enum):
    """What a call does when the function cannot be compiled."""

    RAISE = "raise"
    EAGER = "eager"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the compiler.

    on_unsupported (or its name, "raise" or "eager"): None lets the entry point decide (raise; under torch.compile run
    eagerly, counted and warned about once per reason). cache_size: specializations kept per compiled function, the
    least recently used go first. recompile_warning: warn once when one function has been specialized this often, 0 for
    never. debug: check each graph for functionality when it is made, and hold custom ops to their schemas (SchemaError)
    when it first runs.
    """

    on_unsupported: OnUnsupported | None = None
    cache_size: int = 64
    recompile_warning: int = 32
    debug: bool = False

    def __post_init__(self) -> None:
        if self.on_unsupported is not None:
            object.__setattr__(self, "on_unsupported", OnUnsupported(self.on_unsupported))
        for name, least in (("cache_size", 1), ("recompile_warning", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be at least {least}, a whole number, got {number!r}")


_DEFAULT = Config()
_current: ContextVar[Config] = ContextVar("aotcheck_config", default=_DEFAULT)


def config() -> Config:
    """The configuration in force here."""
    return _current.get()


@contextlib.contextmanager
def patch_config(**changes: Any) -> Iterator[Config]:
    """The configuration with ``changes`` applied, for the block; an unknown field raises TypeError."""
    token = _current.set(dataclasses.replace(_current.get(), **changes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)
