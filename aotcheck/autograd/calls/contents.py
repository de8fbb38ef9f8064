"""Kinds of objects that change in place, arrays, context variables, sequences, and what tells whether one did."""

from __future__ import annotations

import array
import contextvars
import itertools
import random
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from aotcheck.autograd.calls.places import TENSOR
from aotcheck.autograd.calls.serials import serial_of
from aotcheck.autograd.tensors.plain_values import plain_key

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
SEQUENCES = (list, tuple, deque, set, frozenset)
ITERATORS: tuple[Any, ...] = (
    types.GeneratorType,
    itertools.count,
    itertools.cycle,
    enumerate,
    zip,
    map,
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(iter(set())),
)
WITH_CONTENT = (
    np.ndarray,
    array.array,
    bytearray,
    contextvars.ContextVar,
    memoryview,
    threading.local,
    weakref.ref,
)
_BYTES = 65536  # of an array


def content_of(obj: Any) -> Any:
    """What tells whether it changed in place."""
    if isinstance(obj, np.ndarray):
        known = obj.nbytes <= _BYTES and not obj.dtype.hasobject
        return (obj.shape, obj.dtype.str, obj.tobytes() if known else None)
    if isinstance(obj, (array.array, bytearray, memoryview)):
        view = memoryview(obj)
        return view.tobytes() if view.nbytes <= _BYTES else None
    if isinstance(obj, threading.local):
        return tuple([(name, _key_within(value)) for name, value in sorted(in_this_thread(obj).items())])
    held = obj() if isinstance(obj, weakref.ref) else obj.get(None)
    return _key_within(held)


def _key_within(value: Any) -> Any:
    """Of a value that nothing within is looked at of."""
    if issubclass(type(value), Tensor):
        return TENSOR
    key = plain_key(value)
    return serial_of(value) if key is None else key


def in_this_thread(obj: threading.local) -> dict[str, Any]:
    """The attributes that ``obj`` has for the thread that asks."""
    found: dict[str, Any] = threading.local.__getattribute__(obj, "__dict__")
    return found


def items_of(sequence: Any) -> Iterator[Any]:
    """Its items, whatever its class makes of iteration."""
    kind: Any = next(c for c in SEQUENCES if issubclass(type(sequence), c))
    iterator: Iterator[Any] = kind.__iter__(sequence)
    return iterator


def without_tensors(sequence: Any) -> list[Any]:
    """Its items, tensors being all alike."""
    return [TENSOR if issubclass(type(v), Tensor) else v for v in items_of(sequence)]
