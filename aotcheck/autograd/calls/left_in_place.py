"""What a call leaves around its function is there when its backwards run.

Note [What backwards find around them]
A hook of a module, say, or a custom backward may use what the forward kept around the function: ``m.inp = x.detach()``.
In eager it finds what the last call put there, which is not for a graph to know. So while the first backwards of a
call are traced something stands in these places that may not be used. A function whose backward does so runs as it is,
as does one whose backward puts something else there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.kept import Contents, Item, Kept
from aotcheck.autograd.calls.places import ABSENT
from aotcheck.autograd.errors import RunsThisOnce

pytree = _torch.pytree


def stand_in() -> Tensor:
    """What is not to be used."""
    return torch.empty(0, device=_torch.META)


@contextlib.contextmanager
def left_in_place(kept: Sequence[Kept], made: dict[int, Tensor]) -> Iterator[None]:
    """Inside, stand-ins for what a trace ``kept`` are where it did; they come into ``made``, by id.

    Raises:
        RunsThisOnce: something else was put there meanwhile.
    """
    if not kept:
        yield
        return

    def replaced(t: Tensor) -> Tensor:
        instead = stand_in()
        made[id(instead)] = instead
        return instead

    with _torch.without_modes():
        values = [pytree.tree_map_only(Tensor, replaced, k.value) for k in kept]
    targets = [k.target() for k in kept]
    done: list[tuple[Kept, Any]] = []
    try:
        for k, value, target in zip(kept, values, targets, strict=True):
            k.put(value, target)
            done.append((k, target))
        there = [_contents(k, target) for k, target in done]
        yield
        if any(not _same(was, _contents(k, target)) for was, (k, target) in zip(there, done, strict=True)):
            raise RunsThisOnce("kept tensor", "its backward changes what it keeps around it")
    finally:
        for k, _ in reversed(done):
            k.take()


def _contents(k: Kept, target: Any) -> list[Any]:
    there = _there(k, target)
    return [*there, *pytree.tree_leaves(there)]


def _there(k: Kept, target: Any) -> list[Any]:
    if isinstance(k, Item):
        return [dict.get(target, k.key, ABSENT) if isinstance(target, dict) else target[k.key]]
    if isinstance(k, Contents):
        return [x for pair in target.items() for x in pair] if isinstance(target, dict) else [*target]
    return [k.route.now()]


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
