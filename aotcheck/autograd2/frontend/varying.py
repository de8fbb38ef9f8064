"""Which numbers of a call are to be symbols: those that differed before, those of marked dimensions, or all sizes."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

import torch

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.frontend.bind import Bound, Spot
from aotcheck.autograd2.frontend.key import Key
from aotcheck.autograd2.ir.number import Dynamic, Of, Read


@dataclass
class Met:
    """The numbers that calls brought so far. A number that differed once is a symbol for good.

    Attributes:
        tensors: those of each tensor in the last call, by the name of what it is, whatever kind the call was of.
        differed: which of them differed: what and which dimension.
        plain: those of Python, by where each lies.
        spots: where those lie that differed.
    """

    tensors: dict[Any, Any] = field(default_factory=dict)
    differed: dict[Any, set[tuple[Of, int]]] = field(default_factory=dict)
    plain: dict[Spot, Any] = field(default_factory=dict)
    spots: set[Spot] = field(default_factory=set)

    def dynamic(self, bound: Bound, key: Key, every: bool) -> Dynamic:
        """The numbers of a call that are to be symbols; it counts as met from now on.

        Args:
            every: all sizes of tensors, but of parameters, are to be.
        """
        lies, found = key[1][0], set()
        seen: collections.Counter[str] = collections.Counter()
        for k, ((descriptor, t), now) in enumerate(zip(bound.tensors, lies, strict=True)):
            if now is None or isinstance(t, torch.nn.Parameter):
                continue
            name = str(descriptor)
            seen[name] += 1
            differed = self._compared((name, seen[name]), now)
            found |= {Read(of, k, d) for of, d in differed if d < max(t.dim(), 1)}
            dynamic, static = _torch.marks_of(t)
            if every or dynamic:
                found |= {Read(Of.SIZE, k, d) for d in (range(t.dim()) if every else dynamic)}
                found |= {Read(Of.STRIDE, k, d) for d in range(t.dim())} | {Read(Of.OFFSET, k), Read(Of.NBYTES, k)}
            found -= {Read(Of.SIZE, k, d) for d in static}
        self.spots |= {spot for spot, n in bound.numbers.items() if self.plain.setdefault(spot, n) != n}
        return frozenset(found | {Read(Of.PLAIN, k) for k, spot in enumerate(bound.numbers) if spot in self.spots})

    def _compared(self, name: Any, now: Any) -> set[tuple[Of, int]]:
        before = self.tensors.get(name, now)
        self.tensors[name] = now
        differed = self.differed.setdefault(name, set())
        if len(now[0]) == len(before[0]):
            for of, numbers, others in zip((Of.SIZE, Of.STRIDE, Of.OFFSET, Of.NBYTES), now, before, strict=False):
                pairs = zip(numbers, others, strict=True) if type(numbers) is tuple else ((numbers, others),)
                differed |= {(of, d) for d, (n, m) in enumerate(pairs) if n != m}
        return differed
