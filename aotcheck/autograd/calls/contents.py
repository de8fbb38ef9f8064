"""Kinds of objects that change in place, arrays, context variables, sequences, and what tells whether one did."""

from __future__ import annotations

import array
import contextlib
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
WITH_CONTENT = (np.ndarray, array.array, bytearray, contextvars.ContextVar, memoryview, threading.local, weakref.ref)
ARRAYS = (np.ndarray, array.array, bytearray, memoryview)
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


def write_content(obj: Any, content: Any) -> None:
    """Let an array hold what it did when ``content_of`` gave that, if its bytes were looked at."""
    if isinstance(obj, np.ndarray):
        shape, dtype, held = content
        if held is not None and obj.dtype.str == dtype:
            with contextlib.suppress(ValueError):  # it may not be written, or has become another's
                if obj.shape != shape:
                    obj.resize(shape, refcheck=False)
                obj.view(np.ndarray)[...] = np.ndarray(shape, obj.dtype, held)
    elif content is None:
        return
    elif isinstance(obj, array.array):
        obj[:] = array.array(obj.typecode, content)
    elif isinstance(obj, bytearray):
        obj[:] = content
    elif not obj.readonly and obj.c_contiguous:
        obj.cast("B")[:] = content


def has_tensor(key: Any, kind: type[Tensor] = Tensor) -> bool:
    """Whether a key or a member is a tensor of such a class, or a tuple or the like that has one."""
    if issubclass(type(key), kind):
        return True
    return isinstance(key, (tuple, list, frozenset)) and any(has_tensor(part, kind) for part in key)


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
