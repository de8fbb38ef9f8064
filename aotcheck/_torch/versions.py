"""Version counters: how often a tensor was written, and which tensors count together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck._torch.dispatch import as_before_dispatch
from aotcheck._torch.names import private

_set_version = private("torch._C._autograd._unsafe_set_version_counter")


_version: Any = torch.Tensor._version
ABOUT_VERSIONS = (_version.__get__,)
"""What asks for the version of a tensor, as function modes are told of it."""


def version_of(tensor: torch.Tensor) -> int:
    """The version counter of ``tensor``; -1 where it has none: inference tensors, and what is put on their memory."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


def set_version(t: Tensor, version: int) -> None:
    """Give the version counter of ``t`` this value."""
    _set_version((t,), (version,))


@contextlib.contextmanager
def as_if_written(t: Tensor, times: int = 1) -> Iterator[None]:
    """The version counter of ``t``, if it has one, is so many writes further inside."""
    version = version_of(t)
    if version < 0:
        yield
        return
    _set_version((t,), (version + times,))
    try:
        yield
    finally:
        _set_version((t,), (version,))


def at_another_version(t: Tensor) -> contextlib.AbstractContextManager[None]:
    """Inside, the version counter of ``t`` stands where no number of writes to come will bring it; always there."""
    return as_if_written(t, (1 << 30) - version_of(t))


def count_write(t: Tensor) -> None:
    """Move the version counter of ``t``, if it has one."""
    version = version_of(t)
    if version >= 0 and t.is_inference():  # whose own way of counting leaves out what was given such data
        set_version(t, version + 1)
    elif version >= 0:
        torch.autograd.graph.increment_version(t)


_KERNELS_WRITE_INFERENCE_TENSORS = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 13)


def refuse_custom_write(t: Tensor) -> None:
    """Raise what torch raises where a custom op writes an inference tensor outside inference mode.

    Before torch 2.13 it runs the op's kernel below what refuses such a write, so that it is made.
    """
    if _KERNELS_WRITE_INFERENCE_TENSORS or not t.is_inference() or torch.is_inference_mode_enabled():
        return
    with torch.inference_mode():
        written = torch.zeros(0)
    with as_before_dispatch():
        written.zero_()


def version_groups(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor the index of the first that counts versions with it, as views, bases and detached aliases do.

    Found by moving each counter for an instant; every counter is as before when this returns.
    """
    groups = list(range(len(tensors)))
    before = [version_of(t) for t in tensors]
    for i, t in enumerate(tensors):
        if groups[i] != i or before[i] < 0:
            continue
        moved = before[i] + 1_000_003
        _set_version((t,), (moved,))
        try:
            for j in range(i + 1, len(tensors)):
                if groups[j] == j and version_of(tensors[j]) == moved:
                    groups[j] = i
        finally:
            _set_version((t,), (before[i],))
    return groups


def counts_with(written: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    """Whether one of ``written`` counts versions with another of them, or with one of ``others``; all of them count.

    The counters of ``written`` alone are moved for an instant.
    """
    first = 1_000_003
    before, moved = tuple([t._version for t in written]), tuple(range(first, first + len(written)))
    _set_version(written, moved)
    try:
        return max([t._version for t in others], default=0) >= first or tuple([t._version for t in written]) != moved
    finally:
        _set_version(written, before)


def counted_by(tensors: Sequence[Tensor], counters: Sequence[Tensor]) -> list[int | None]:
    """For each of ``tensors`` the index of one of ``counters`` that counts versions with it; the last if several do."""
    if not tensors:
        return []
    counting = [k for k, t in enumerate(counters) if version_of(t) >= 0]
    there, first = tuple([counters[k] for k in counting]), 1_000_003
    before = tuple(map(version_of, there))
    try:
        _set_version(there, tuple(range(first, first + len(there))))
        found = [version_of(t) - first for t in tensors]
    finally:
        _set_version(there, before)
    return [counting[k] if 0 <= k < len(there) else None for k in found]
