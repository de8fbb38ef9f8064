"""The key of a call: what must be equal for two calls to share code. Numbers are apart, as they may be symbols.

At the end, which numbers are to be symbols: those that differed before, those of marked dimensions, or all sizes.
"""

from __future__ import annotations

import collections
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.frontend.bind import ARGUMENTS, Bound, Itself
from aotcheck.autograd2.ir.meta import geometry_of, is_leaf
from aotcheck.autograd2.ir.size import Dynamic, Of, Read

Key = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What is never a symbol; and numbers: of each tensor its shape, strides, offset, bytes of its storage, and how its
base lies if that is no input; of Python."""


def key_of(bound: Bound, gradients: bool) -> Key:
    """The key of a call."""
    storages: dict[int, int] = {}
    parts: list[Any] = [tuple(map(_hashable, bound.key)), gradients, *_ambient()]
    numbers: list[Any] = []
    tensors = [t for _, t in bound.tensors]
    known = {t: k for k, t in enumerate(tensors)}
    bases: dict[Tensor, int] = {}
    for k, t in enumerate(tensors):
        if t.layout is not torch.strided or t.is_nested:
            parts.append((type(t), t.layout))
            numbers.append(None)
            continue
        marks = t.requires_grad, is_leaf(t), t.is_conj(), t.is_neg(), t.is_inference()
        parts.append((type(t), t.dim(), t.dtype, t.device, gradients and _torch.has_hooks(t), *marks))
        storage = t.untyped_storage()
        first, base = storages.setdefault(_torch.storage_address(storage), k), _torch.base_of(t)
        unknown = None if base is None or base in known or base.is_nested else geometry_of(base)
        numbers.append((tuple(t.shape), t.stride(), t.storage_offset(), storage.nbytes(), unknown))
        parts.append(first)
        if base is not None:
            tells = t.requires_grad and marks[1] and _torch.accumulator_of(t) is not None
            moved = _torch.address_of(base) != _torch.address_of(t)
            parts.append((known.get(base), bases.setdefault(base, k), _torch.creation_meta(t), tells, moved))
            if base not in known:
                parts.append((type(base), base.dtype, base.requires_grad, is_leaf(base)))
            if base.dtype is not t.dtype:  # autograd makes it again by its op, whatever shape it was given since
                with suppress(RuntimeError), torch.no_grad():  # as of a base that has other memory now
                    parts.append(geometry_of(_torch.view_function(t)(base)) == geometry_of(t))
    if len(storages) < len(known):
        parts.append(tuple(_torch.shared_counters(known).values()))
    return tuple(parts), (tuple(numbers), tuple(bound.numbers.values()))


def _hashable(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        return Itself(x)
    return x


def _ambient() -> tuple[Any, ...]:
    """Modes that what is computed hangs on."""
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled()
    return *modes, _torch.casts(), torch.get_default_dtype(), str(torch.get_default_device())


def words_of(bound: Bound, gradients: bool) -> list[str]:
    """The key of a call in words, a line each. Sizes are those of the call."""
    grad, inference, deterministic, cast, dtype, device = _ambient()
    modes = [f"grad mode {'on' if grad else 'off'}", *(["inference mode"] if inference else [])]
    modes += [f"autocast to {kind} on {d}" for d, kind in cast]
    modes += ["deterministic algorithms"] if deterministic else []
    lines = [", ".join([*modes, f"default dtype {dtype}", f"default device {device}"])]
    first: dict[int, str] = {}
    names = {t: str(descriptor) for descriptor, t in bound.tensors}
    for t, name in names.items():
        if t.layout is not torch.strided or t.is_nested:
            lines.append(f"{name}: {type(t).__name__} of layout {t.layout}")
            continue
        leaf = () if t.is_leaf else ("with a grad_fn",)
        marks = [*(["requires grad"] if t.requires_grad else []), *leaf, *(["inference"] if t.is_inference() else [])]
        said = ", ".join([f"{type(t).__name__} {geometry_of(t)} on {t.device}", *marks])
        owner = first.setdefault(_torch.address_of(t), name)
        base = _torch.base_of(t)
        said += f", on the storage of {owner}" if owner != name else ""
        said += "" if base is None else f", a view of {names.get(base, 'a tensor that is no input')}"
        lines.append(f"{name}: {said}")
    lines += [f"{path} = {x!r}" for path, x in bound.values]
    return [*lines, *(["the .grad of leaves are inputs"] if gradients else [])]


@dataclass
class Met:
    """The numbers that calls brought so far. A number that differed once is a symbol for good.

    Attributes:
        tensors: those of each tensor in the last call, by the name of what it is, whatever kind the call was of.
        differed: which of them differed: what and which dimension.
        plain: those of Python, by where each lies; None of one that differed.
    """

    tensors: dict[Any, Any] = field(default_factory=dict)
    differed: dict[Any, set[tuple[Of, int]]] = field(default_factory=dict)
    plain: dict[Any, Any] = field(default_factory=dict)

    def dynamic(self, bound: Bound, key: Key, every: bool) -> Dynamic:
        """The numbers of a call that are to be symbols; it counts as met from now on.

        Args:
            every: all sizes of tensors, but of parameters, are to be.
        """
        lies, found, first = key[1][0], set(), not (self.tensors or self.plain)
        seen: collections.Counter[Any] = collections.Counter()
        for k, ((descriptor, t), now) in enumerate(zip(bound.tensors, lies, strict=True)):
            if now is None or isinstance(t, torch.nn.Parameter):
                continue
            name: Any = str(descriptor)
            seen[name] += 1
            differed = self._compared((name, seen[name]), now)
            found |= {Read(of, k, d) for of, d in differed if d < max(t.dim(), 1)}
            dynamic, static = _torch.marks_of(t)
            if every or dynamic:
                found |= {Read(Of.SIZE, k, d) for d in (range(t.dim()) if every else dynamic)}
                found |= {Read(Of.STRIDE, k, d) for d in range(t.dim())} | {Read(Of.OFFSET, k), Read(Of.NBYTES, k)}
            found -= {Read(Of.SIZE, k, d) for d in static}
        for k, (spot, n) in enumerate(bound.numbers.items()):
            name = spot if spot[0] == ARGUMENTS else (bound.titles[spot[0]], *spot[1:])
            seen[name] += 1
            known = n if first or k >= bound.around[3] else None  # state that an earlier call made differs each time
            if self.plain.setdefault((name, seen[name]), known) != n:
                self.plain[name, seen[name]] = None
                found.add(Read(Of.PLAIN, k))
        return frozenset(found)

    def _compared(self, name: Any, now: Any) -> set[tuple[Of, int]]:
        before = self.tensors.get(name, now)
        self.tensors[name] = now
        differed = self.differed.setdefault(name, set())
        if len(now[0]) == len(before[0]):
            for of, numbers, others in zip((Of.SIZE, Of.STRIDE, Of.OFFSET, Of.NBYTES), now, before, strict=False):
                pairs = zip(numbers, others, strict=True) if type(numbers) is tuple else ((numbers, others),)
                differed |= {(of, d) for d, (n, m) in enumerate(pairs) if n != m}
        return differed
