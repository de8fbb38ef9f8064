"""Objects that a caller may pass to a program's function: dataclasses that are not registered as pytrees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["OBJECTS", "attributes"]


@dataclass
class State:
    """State that the function may change from call to call."""

    hidden: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Settings:
    """The same as :class:`State`, but frozen."""

    hidden: torch.Tensor
    scale: float


OBJECTS: Mapping[str, type[State] | type[Settings]] = {made.__name__: made for made in (State, Settings)}
"""The classes by the names that programs give them."""


def attributes(value: Any) -> Any:
    """What an object holds, by name; any other value itself."""
    return vars(value) if type(value) in (State, Settings) else value
