"""Python values that are what they are worth: numbers, strings, and what is made of such."""

from __future__ import annotations

import decimal
import enum
import fractions
import pathlib
import re
import types
from typing import Any

import numpy as np
import torch

_BY_VALUE = (
    int,
    bool,
    str,
    bytes,
    type(None),
    types.EllipsisType,
    torch.dtype,
    torch.device,
    torch.memory_format,
    torch.layout,
    torch.Size,
    range,
    torch.qscheme,
    fractions.Fraction,
    decimal.Decimal,
    re.Pattern,
)


def plain_key(value: Any) -> Any:
    """A hashable key that equal values of one type share; None where ``value`` is not known to be plain.

    Zeros of both signs are told apart, NaNs are not.
    """
    kind = type(value)
    if kind in _BY_VALUE:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is slice:
        parts = [plain_key(part) for part in (value.start, value.stop, value.step)]
        return None if None in parts else (kind, *parts)
    if issubclass(kind, (enum.Enum, np.dtype, pathlib.PurePath)):
        return None if kind.__hash__ is None else (kind, value)
    if type(kind).__name__ == "pybind11_type":  # enumerations of torch's own, as of attention's backends
        return (kind, int(value)) if hasattr(kind, "__members__") else None
    if kind in (torch.finfo, torch.iinfo):
        return kind, value.dtype
    if kind is frozenset:
        keys = frozenset([plain_key(item) for item in value])
        return None if None in keys else (kind, keys)
    if issubclass(kind, np.generic) and not issubclass(kind, np.void):
        return kind, value.tobytes()
    return None


def variables_of(obj: Any) -> dict[str, Any] | None:
    """The attributes of an object that has a dictionary for them, whatever its class does when asked."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
