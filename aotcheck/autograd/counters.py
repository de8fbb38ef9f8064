"""What the compiler did so far in this process."""

from __future__ import annotations

import dataclasses
import sys
import threading
import warnings
from collections.abc import Mapping
from types import MappingProxyType


@dataclasses.dataclass(frozen=True)
class Counters:
    """A snapshot.

    ``refused`` counts calls by reason; ``eager_after_user_error`` those that raised an error
    of their own, which running the original reproduced.
    """

    compiled: int
    refused: Mapping[str, int]
    eager_after_user_error: int


_MOST_WARNINGS = 1000


class _Live:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.compiled = 0
        self.refused: dict[str, int] = {}
        self.user_errors = 0
        self.warned: set[str] = set()


_live = _Live()


def counters() -> Counters:
    """The counts of this process so far."""
    with _live.lock:
        return Counters(_live.compiled, MappingProxyType(dict(_live.refused)), _live.user_errors)


def count_compiled() -> None:
    """One more specialization was made."""
    with _live.lock:
        _live.compiled += 1


def count_refused(reason: str, detail: str, warn: bool, each_detail: bool = False) -> None:
    """One more call refused for ``reason``; with ``warn`` the caller is told that it ran eagerly.

    That is once per reason, or with ``each_detail`` once for each.
    """
    told = f"{reason}: {detail}" if detail else reason
    kind = told if each_detail else reason
    with _live.lock:
        _live.refused[reason] = _live.refused.get(reason, 0) + 1
        first = kind not in _live.warned
        if len(_live.warned) < _MOST_WARNINGS:
            _live.warned.add(kind)
    if warn and first:
        tell(f"aotcheck runs this function eagerly: {told}")


def tell(text: str) -> None:
    """Warn, and name the line from which the compiled function is called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aotcheck.autograd."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def count_user_error() -> None:
    """One more call raised an error of its own."""
    with _live.lock:
        _live.user_errors += 1
