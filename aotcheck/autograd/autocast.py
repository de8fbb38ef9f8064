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


@contextlib.contextmanager
def autocast_off() -> Iterator[None]:
    """Autocast is off inside, for all devices."""
    before = autocast_state()
    for device, _ in before:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for device, _ in before:
            torch.set_autocast_enabled(device, True)
