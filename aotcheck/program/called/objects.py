"""Objects of the caller's that programs may be given: dataclasses that nobody registered as pytrees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["OBJECTS", "attributes"]


@dataclass
class State:
    """What goes from call to call."""

    hidden: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Settings:
    """The same, which nobody changes."""

    hidden: torch.Tensor
    scale: float


OBJECTS: Mapping[str, type[State] | type[Settings]] = {made.__name__: made for made in (State, Settings)}
"""The classes by the names that programs give them."""


def attributes(value: Any) -> Any:
    """What an object holds, by name; any other value itself."""
    return vars(value) if type(value) in (State, Settings) else value
