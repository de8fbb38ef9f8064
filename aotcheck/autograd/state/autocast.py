"""The state of autocast on this thread, as a value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

Autocast = tuple[tuple[str, torch.dtype], ...]
"""The devices for which autocast is on, and the dtype it casts to."""

OFF: Autocast = ()
_DEVICES = ("cpu", "cuda")


def autocast_state() -> Autocast:
    """What is in force now."""
    return tuple([(d, torch.get_autocast_dtype(d)) for d in _DEVICES if torch.is_autocast_enabled(d)])


def autocast_as(state: Autocast) -> contextlib.AbstractContextManager[None]:
    """``state`` is in force inside, where autocast is off."""
    return _autocast_as(state) if state else contextlib.nullcontext()


@contextlib.contextmanager
def _autocast_as(state: Autocast) -> Iterator[None]:
    before = [(d, torch.get_autocast_dtype(d)) for d, _ in state]
    for device, dtype in state:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        for device, dtype in before:
            torch.set_autocast_enabled(device, False)
            torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def autocast_to(device: str, dtype: torch.dtype) -> Iterator[None]:
    """Autocast casts to ``dtype`` inside, where it is on for that device."""
    before = torch.get_autocast_dtype(device)
    torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_dtype(device, before)
