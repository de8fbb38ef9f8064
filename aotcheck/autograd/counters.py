"""What the compiler did so far in this process."""

from __future__ import annotations

import dataclasses
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


def count_refused(reason: str, warn: bool) -> None:
    """One more call refused for ``reason``; with ``warn`` the caller is told, once per reason, that it ran eagerly."""
    with _live.lock:
        _live.refused[reason] = _live.refused.get(reason, 0) + 1
        first = reason not in _live.warned
        _live.warned.add(reason)
    if warn and first:
        warnings.warn(f"aotcheck runs this function eagerly: {reason}", RuntimeWarning, stacklevel=4)


def count_user_error() -> None:
    """One more call raised an error of its own."""
    with _live.lock:
        _live.user_errors += 1
