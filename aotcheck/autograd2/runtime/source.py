"""Python source that grows line by line, for which modes and symbols; and what emitted code calls.

The latter makes tensors on memory that is there, and moves them; and checks what autocast has cast.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.signature import Alias, Given, How, MadeLeaf, Step
from aotcheck.autograd2.ir.size import symbols_in, text
from aotcheck.autograd2.ir.structure import COPIED, Const, Leaf, ListOf, Sized, Structure
from aotcheck.autograd2.trace.gate import Event, refuse


def flat_of(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` in one dimension."""
    return _placed(t, dtype, 0, (t.untyped_storage().nbytes() // dtype.itemsize,), (1,))


def _placed(t: Tensor, dtype: torch.dtype, offset: Any, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    return torch.empty(0, dtype=dtype, device=t.device).set_(t.untyped_storage(), offset, shape, stride)


def check_memory(tensors: Sequence[Tensor]) -> None:
    """Refuse tensors whose storages share memory, as what another library lends may."""
    storages = {*map(Tensor.untyped_storage, tensors)}
    if not all(map(torch.UntypedStorage.resizable, storages)):
        spans = sorted((s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages if s.nbytes())
        if any(start < end for (_, end), (start, _) in itertools.pairwise(spans)):
            refuse(Event.MEMORY)


def restrided(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` with these strides."""
    if (own := t.stride()) == stride:
        return t
    if t.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(t.shape, own, stride, strict=True)):
        with torch.inference_mode(t.is_inference()):
            return _placed(t, t.dtype, t.storage_offset(), t.shape, stride)
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def as_inference(t: Tensor, inference: bool) -> Tensor:
    """``t`` as an inference tensor, or as none, on the same memory."""
    with torch.inference_mode(inference):
        return _placed(t, t.dtype, t.storage_offset(), t.shape, t.stride())


def raw_alias(t: Tensor, g: Geometry, shift: int) -> Tensor:
    """A tensor without history at ``g`` on the storage of ``t``; its offset counts from ``shift``."""
    made = _placed(t, g.dtype, g.offset + shift, g.shape, g.stride)
    made = torch.ops.aten._conj.default(made) if g.conj else made
    return torch.ops.aten._neg_view.default(made) if g.neg else made


class _Region(threading.local):
    """Where autocast is on, it casts a leaf once: the probe tells whether it has, ``versions`` those of leaves then."""

    def __init__(self) -> None:
        self.probe, self.value = torch.ones(1, 1, requires_grad=True), 1
        self.versions: dict[weakref.ref[Tensor], int] = {}


_region = _Region()


def check_hooks(tensors: Sequence[Tensor]) -> None:
    """Refuse tensors that were given hooks since the trace, in which a backward ran."""
    if any(map(_torch.has_hooks, tensors)):
        refuse(Event.CALLERS, "an argument has hooks")


def check_casts(leaves: Sequence[Tensor]) -> None:
    """Refuse leaves written since a call before in a region of the CPU's autocast: eager uses the cast of then."""
    if not torch.is_autocast_cache_enabled():
        return
    with torch.enable_grad():
        cast = torch.mm(_region.probe, _region.probe).item()
    if cast == _region.value**2:  # as it is now: this is the first call of a region
        _region.value = 3 - _region.value
        _region.probe.data.fill_(_region.value)
        _region.versions.clear()
    for t in leaves:
        version = _torch.version_of(t)
        if _region.versions.setdefault(weakref.ref(t), version) != version:
            refuse(Event.STALE)


@dataclass
class Source:
    """Lines of Python, what they name, and calls of ops of several results, with what each was called on and gave."""

    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any, str]] = field(default_factory=list)

    def add(self, line: str, indent: int = 1) -> None:
        """One more line."""
        self.lines.append("    " * indent + line)

    def text(self) -> str:
        """The code. Of lines that follow each other, those in the same modes enter these once; writes are one call."""
        found: list[str] = []
        keys = [(x.startswith("    with ") and x.split(": ")[0], x.rpartition("Tensor.copy_(")[0]) for x in self.lines]
        for (mode, write), group in itertools.groupby(zip(keys, self.lines, strict=True), lambda pair: pair[0]):
            lines = [line for _, line in group]
            if write and len(lines) > 1:
                into, values = zip(*(x[len(f"{write}Tensor.copy_(") : -1].split(", ") for x in lines), strict=True)
                lines = [f"{write}_torch.copy_all(({', '.join(into)}), ({', '.join(values)}))"]
            if mode and len(lines) > 1:
                lines = [f"{mode}:", *(f"        {line[len(mode) + 2 :]}" for line in lines)]
            found += lines
        return "\n".join(found) + "\n"

    def bind(self, prefix: str, value: Any) -> str:
        """A name for a value."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name


@dataclass(frozen=True)
class Modes:
    """Grad modes.

    Args:
        grad: whether grad mode is on as the call is made.
        inference: whether inference mode is.
        autocast: whether autocast is, which the graph was recorded below.
        records_grad: whether the graph must run with grad mode on, as a kernel in it then gives more.
        draws: the generators from which the graph draws.
        cast: inputs that are leaves and that the graph casts, where autocast is on.
        passed: inputs whose hooks eager would call, if they had any, in a backward inside.
        uncounted: inputs that the graph is given without their version counters, which do not tell of what eager saved.
    """

    grad: bool
    inference: bool
    autocast: bool
    records_grad: bool = False
    draws: tuple[torch.Generator, ...] = ()
    cast: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    uncounted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Symbolic:
    """Where the values of symbols come from.

    Args:
        reads: the source that reads each symbol.
        functions: what that calls, by name.
        derived: floats that are computed from these, by name, as source.
        taken: those of which the graph takes the values, in order.
        defined: those whose values the graph returns last.
        asserted: what must hold of these, as source; where it does not, the original runs.
    """

    reads: Mapping[str, str]
    functions: Mapping[str, Any]
    derived: Mapping[str, str]
    taken: tuple[str, ...]
    defined: tuple[str, ...]
    asserted: Sequence[str]


def numbers(terms: Sequence[Any]) -> str:
    """Terms as the source of a tuple."""
    return f"({''.join(f'{text(x)}, ' for x in terms)})"


def geometry_text(s: Source, g: Geometry) -> str:
    """The geometry in this call."""
    name = s.bind("geometry", g)
    if not symbols_in([g.offset, *g.shape, *g.stride]):
        return name
    return f"{name}._replace(offset={text(g.offset)}, shape={numbers(g.shape)}, stride={numbers(g.stride)})"


def built(s: Source, structure: Structure, made: str) -> str:
    """What builds a structure of the tensors in ``made``."""
    match structure:
        case Leaf(index):
            return f"m{index}"
        case Const(value) if type(value) not in COPIED:
            return repr(value) if value is None or type(value) in (int, bool, str) else s.bind("constant", value)
        case Sized(term):
            return text(term)
        case ListOf(kind, items) if kind in (tuple, list):
            inside = "".join(f"{built(s, item, made)}, " for item in items)
            return f"({inside})" if kind is tuple else f"[{inside}]"
        case _:
            return f"build({s.bind('structure', structure)}, {made}, looked, sizes)"


def under(wanted: tuple[bool, bool], now: Modes) -> str:
    """The beginning of a line that runs in these modes; empty if they are those of the call."""
    grad = f"{'enable_grad' if wanted[0] else 'no_grad'}()"
    if wanted[1] is not now.inference:
        return f"with inference({wanted[1]}), {grad}: "
    return f"with {grad}: " if wanted[0] is not now.grad else ""


def line_of(s: Source, step: Step, name: str, modes: Modes, assigned: str = "") -> str:
    """The line that calls the op of a step."""
    kwargs = f", **{s.bind('kwargs', dict(step.kwargs))}" if step.kwargs else ""
    rest = "".join(f", {text(a) if symbols_in(a) else s.bind('arg', a)}" for a in step.args)
    mode = under((step.grad, step.inference), modes)
    return f"{mode}{assigned}{s.bind('op', step.op)}({name}{rest}{kwargs})"


def make(s: Source, how: How, k: int, modes: Modes) -> None:
    """Let ``m<k>`` be the tensor."""
    if isinstance(how, MadeLeaf):
        make(s, how.of, k, modes)
        leaf = f"parameter(m{k}, {how.requires_grad})" if how.parameter else f"m{k}.requires_grad_()"
        s.add(f"with inference(m{k}.is_inference()): m{k} = {leaf}")
    elif not isinstance(how, Alias):
        s.add(f"m{k} = {how}")
    elif how.geometry is not None:
        mode = "" if how.inference is modes.inference else f"with inference({how.inference}): "
        shift = "0" if isinstance(how.base, Given) else f"{how.base}.storage_offset()"
        s.add(f"{mode}m{k} = raw_alias({how.base}, {geometry_text(s, how.geometry)}, {shift})")
    else:
        name = str(how.base)
        for step in how.steps:
            several = "" if step.index is None else f"several{len(s.calls)}"
            called = next((x for of, call, x in s.calls if of == name and call is step.kwargs), "")
            if not called:
                s.add(line_of(s, step, name, modes, f"{several or f'm{k}'} = "))
            if several:
                s.calls.append((name, step.kwargs, called or several))
                s.add(f"m{k} = {called or several}[{step.index}]")
            name = f"m{k}"
        if not how.steps:
            s.add(f"m{k} = {name}")
        if how.to:
            s.add(f"set_data(m{k}, {how.to})")
