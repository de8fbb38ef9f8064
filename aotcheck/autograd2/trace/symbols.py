"""Symbols for sizes of inputs: which numbers of a call are symbols, where they are read, and what must hold of them.

Sizes of replicas are SymInts of a ShapeEnv, one for each trace. Which dimensions are symbols is decided before: those
that were met with other sizes. A stride that a dense layout has is an expression of sizes; another must be as it was.
Nothing here adds a guard: guards come from questions that the program, or torch for it, asks of sizes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import Dynamic, Of, Read, Size, lines_of, term, text

_LARGEST = 1 << 62


@dataclass
class Symbols:
    """The symbols of one trace.

    Attributes:
        dynamic: which numbers have one.
        env: torch's; it keeps the guards.
        reads: where each symbol is read, by its name.
        derived: floats that are computed from others, by name, as Python source.
        functions: what computes numbers of what tensors hold, by name.
        checks: what must hold of a call beside the env's guards, as Python source over ``t0``, ``t1`` … and symbols.
        asked: what ``fits`` asks.
        known: how many of the floats a call computes; later ones are of backwards that were traced since.
    """

    dynamic: Dynamic
    env: Any = field(default_factory=lambda: _torch.ShapeEnv(duck_shape=False))
    reads: dict[str, Read] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    asked: tuple[str, ...] = ()
    known: int = 0

    def __post_init__(self) -> None:
        self.env.derive = self._derive

    def plain(self, numbers: Sequence[Any]) -> dict[int, Any]:
        """For Python numbers of a call, by position, what stands for them where that is a symbol."""
        varying = sorted(r.position for r in self.dynamic if r.of is Of.PLAIN and abs(numbers[r.position]) < _LARGEST)
        for before, end in itertools.pairwise([-1, *varying, len(numbers)]):
            if fixed := tuple(numbers[before + 1 : end]):
                self.checks.append(f"n[{before + 1}:{end}] == {fixed!r}")
        return {k: self._new(numbers[k], Read(Of.PLAIN, k)) for k in varying}

    def lies(self, position: int, t: Tensor, members: Sequence[tuple[int, Tensor]]) -> tuple[Any, Any, Any] | None:
        """The shape, the strides and the offset of a replica of ``t``; None if all numbers of its storage are fixed.

        A stride that varies, and is that of a dense dimension or a size times another stride, is that product.
        """
        varying = {r.position for r in self.dynamic if r.of is not Of.PLAIN}
        if position < 0 or varying.isdisjoint(k for k, _ in members):
            if position >= 0:
                lies = {"shape": tuple(t.shape), "stride()": t.stride(), "storage_offset()": t.storage_offset()}
                lies["untyped_storage().nbytes()"] = t.untyped_storage().nbytes()
                self.checks += [f"t{position}.{asked} == {n}" for asked, n in lies.items()]
            return None
        shape = [self._number(Read(Of.SIZE, position, d), n) for d, n in enumerate(t.shape)]
        stride: list[Any] = [None] * t.dim()
        expected: Any = 1
        for d in sorted(range(t.dim()), key=lambda d: (t.stride(d), t.size(d), -d)):
            if t.size(d) == 1:
                stride[d] = expected if t.stride(d) == _torch.hint_of(expected) else t.stride(d)
                self.checks.append(f"(t{position}.stride({d}) == {text(term(expected))}) is {stride[d] is expected}")
                continue
            stride[d] = self._number(Read(Of.STRIDE, position, d), t.stride(d), [expected])
            expected = stride[d] * shape[d] if t.stride(d) else expected
        return shape, stride, self._number(Read(Of.OFFSET, position), t.storage_offset())

    def nbytes(self, t: Tensor, members: Sequence[tuple[int, Tensor]], lies: tuple[Any, Any, Any]) -> Any:
        """The size in bytes of the storage on which ``members`` lie, one of which is ``t``, and ``lies`` so.

        Where that varies, it is all of ``t``, or its outermost dimension, gaps included, or its end, if it is that now.
        """
        shape, stride, offset = lies
        end = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        ends = [math.prod(shape), *(n * s for n, s in zip(shape, stride, strict=True)), end]
        reads = [Read(Of.NBYTES, k) for k, _ in members]
        read = next((r for r in reads if r in self.dynamic), reads[0])
        return self._number(read, _torch.storage_of(t).nbytes(), [n * t.itemsize for n in ends])

    def _number(self, read: Read, value: Any, expected: Sequence[Any] = ()) -> Any:
        """A number of a tensor as it is, or as the first of the ``expected`` terms that it is, or as a symbol."""
        if read not in self.dynamic or value < 2:
            self.checks.append(f"{read.source()} == {value}")
            return value
        for x in expected:
            if _torch.hint_of(x) == value:
                self.checks.append(f"{read.source()} == {text(term(x))}")
                return x
        return self._new(value, read)

    def computed(self, function: Callable[..., Any], numbers: Sequence[tuple[str, Tensor]]) -> Any:
        """What numbers of the call decide, which are given with their names: a symbol, or what it is, with a guard."""
        name, value = f"v{len(self.functions)}", function(*[t for _, t in numbers])
        self.functions[name], source = function, f"{name}({', '.join(n for n, _ in numbers)})"
        if type(value) in (int, float) and abs(value) < _LARGEST:
            return self._new(value, Read(Of.VALUE, 0, source))
        self.checks.append(f"repr({source}) == {repr(value)!r}")
        return value

    def _new(self, value: Any, read: Read) -> Any:
        name = f"{read.of.name.lower()}{read.position}_{read.dim}"
        symbol, made = _torch.new_symbol(self.env, value, name, is_size=read.of not in (Of.PLAIN, Of.VALUE))
        self.reads[str(symbol)] = read
        return made

    def _derive(self, source: str, operands: Sequence[Any], value: float) -> Any:
        """A float that is computed from others."""
        symbol, made = _torch.new_symbol(self.env, value, f"float_{len(self.derived)}")
        self.derived[str(symbol)] = source.format(*[f"({text(x)})" for x in operands])
        return made.node

    def spelled(self, x: Any) -> Any:
        """A term, or a geometry, as it is spelled by now."""
        if isinstance(x, Geometry):
            return x.mapped(self.spelled)
        return x if type(x) is int else _torch.simplified(self.env, x)

    def holds(self, relation: Any) -> bool:
        """Whether a relation of terms holds in the traced call, with a guard; False if data decide."""
        return _torch.decided(self.env, relation)

    def number(self, size: Size) -> Any:
        """A term as an int or SymInt."""
        return size if type(size) is int else _torch.symbolic_int(self.env, size)

    def guards(self) -> list[str]:
        """All that must hold of a call's numbers, as Python source. To be asked after compilers had their say."""
        found = [*self.checks]
        for name, read in self.reads.items():
            low, high = _torch.range_of(self.env, name)
            least = low if read.of in (Of.PLAIN, Of.VALUE) else max(2, low or 0)
            found.append(f"-{_LARGEST} < {name} < {_LARGEST}" if least is None else f"{name} >= {least}")
            if high is not None:
                found.append(f"{name} <= {high}")
        found += [f"({text(g.expr)})" for g in self.env.guards]  # some are alternatives
        return list(dict.fromkeys(found))

    def asserted(self, defined: Sequence[str]) -> list[str]:
        """What the trace took to hold of what data decide, as Python source over these symbols and the call's."""
        known = {*self.reads, *self.derived, *defined}
        found = [a.expr for asserts in self.env.deferred_runtime_asserts.values() for a in asserts]
        return list(dict.fromkeys(f"({text(x)})" for x in found if {*map(str, x.free_symbols)} <= known))

    def fits(self) -> Any:
        """What tells whether a call fits, given its tensors and its Python numbers."""
        guards = self.guards()
        self.known, self.asked, asked = len(self.derived), tuple(guards), " and ".join(guards) or "True"
        body = [f"    {name} = {r.source()}" for name, r in self.reads.items()]
        body += [f"    {line}" for line in lines_of(self.derived, asked)]
        used = sorted({int(k) for k in re.findall(r"\bt(\d+)\b", "\n".join([*body, asked]))})
        lines = ["def fits(t, n):", "  try:", *[f"    t{k} = t[{k}]" for k in used], *body, f"    return {asked}"]
        source = "\n".join([*lines, "  except Exception: return False\n"])  # as of 1 / n of another n
        scope: dict[str, Any] = {"math": math, "torch": torch, **self.functions}
        exec(compile(source, "<aotcheck guards>", "exec"), scope)
        return scope["fits"]

    def fits_later(self) -> Callable[[dict[str, Any]], bool] | None:
        """What tells whether values of symbols fit what was learnt after ``fits`` was made; None if nothing was.

        To the values it adds those of later floats.
        """
        asked = [g for g in self.guards() if g not in self.asked and g not in self.checks]
        lines = [f"{name} = {source}" for name, source in list(self.derived.items())[self.known :]]
        if not asked and not lines:
            return None
        code = compile("\n".join([*lines, f"fit = {' and '.join(asked) or True}"]), "<aotcheck guards>", "exec")

        def fits(values: dict[str, Any]) -> bool:
            with contextlib.suppress(ArithmeticError, ValueError):
                exec(code, {"math": math}, values)
            return bool(values.pop("fit", False))

        return fits
