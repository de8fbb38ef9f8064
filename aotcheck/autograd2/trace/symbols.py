"""Symbols for sizes of inputs: which numbers of a call are symbols, where they are read, and what must hold of them.

Sizes of replicas are SymInts of a ShapeEnv, one for each trace. Which dimensions are symbols is decided before: those
that were met with other sizes. A stride that a dense layout has is an expression of sizes; another must be as it was.
Nothing here adds a guard: guards come from questions that the program, or torch for it, asks of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import Size, term, text

__all__ = ["Dynamic", "Read", "Symbols"]

Dynamic = frozenset[tuple[int, int]]
"""Dimensions that are symbols: of which tensor that ``bind`` found, by position, and which dimension."""


@dataclass(frozen=True)
class Read:
    """Where a symbol is read in a call: the size of a dimension of a tensor."""

    tensor: int
    dim: int


@dataclass
class Symbols:
    """The symbols of one trace.

    Attributes:
        dynamic: which dimensions have one.
        env: torch's; it keeps the guards.
        reads: where each symbol is read, by its name.
        checks: what must hold of a call beside the env's guards, as Python source over ``t0``, ``t1`` … and symbols.
    """

    dynamic: Dynamic
    env: Any = field(default_factory=lambda: _torch.ShapeEnv(duck_shape=False))
    reads: dict[str, Read] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def fixed(self, position: int, t: Tensor) -> None:
        """A tensor no number of which is a symbol."""
        if position >= 0:
            lies = f"t{position}.storage_offset() == {t.storage_offset()}"
            bytes_ = f"t{position}.untyped_storage().nbytes() == {t.untyped_storage().nbytes()}"
            self.checks += [
                f"t{position}.shape == {tuple(t.shape)}",
                f"t{position}.stride() == {t.stride()}",
                lies,
                bytes_,
            ]

    def sizes(self, position: int, t: Tensor) -> list[Any]:
        """The shape of a replica of ``t``."""
        made: list[Any] = []
        self.checks.append(f"t{position}.storage_offset() == 0")
        self.checks.append(f"t{position}.untyped_storage().nbytes() == t{position}.numel() * {t.itemsize}")
        for d, n in enumerate(t.shape):
            if (position, d) in self.dynamic and n > 1:
                made.append(self._new(n, Read(position, d)))
            else:
                self.checks.append(f"t{position}.size({d}) == {n}")
                made.append(n)
        return made

    def strides(self, position: int, t: Tensor, sizes: Sequence[Any]) -> list[Any]:
        """The strides: of a dense dimension an expression of sizes, others as they are."""
        made: list[Any] = [None] * t.dim()
        expected: Any = 1
        for d in sorted(range(t.dim()), key=lambda d: (t.stride(d), -d)):
            hint = expected if type(expected) is int else expected.node.hint
            made[d] = expected if t.stride(d) == hint else t.stride(d)
            if t.size(d) != 1:
                self.checks.append(f"t{position}.stride({d}) == {text(term(made[d]))}")
                expected = made[d] * sizes[d]
        return made

    def _new(self, value: int, read: Read) -> Any:
        symbol, made = _torch.new_symbol(self.env, value, f"t{read.tensor}_{read.dim}")
        self.reads[str(symbol)] = read
        return made

    @property
    def learnt(self) -> int:
        """How often something was learnt of a symbol. Terms made before may be spelled otherwise since."""
        return _torch.learnt(self.env)

    def spelled(self, x: Any) -> Any:
        """A term, or a geometry, as it is spelled by now."""
        if isinstance(x, Geometry):
            shape, stride = tuple(map(self.spelled, x.shape)), tuple(map(self.spelled, x.stride))
            return x._replace(offset=self.spelled(x.offset), shape=shape, stride=stride)
        return x if type(x) is int else _torch.simplified(self.env, x)

    def number(self, size: Size) -> Any:
        """A term as an int or SymInt."""
        return size if type(size) is int else _torch.symbolic_int(self.env, size)

    def guards(self) -> list[str]:
        """All that must hold of a call's numbers, as Python source. To be asked after compilers had their say."""
        found = [*self.checks]
        for name in self.reads:
            low, high = _torch.range_of(self.env, name)
            found.append(f"{name} >= {max(2, low)}")
            if high is not None:
                found.append(f"{name} <= {high}")
        found += [text(g) for g in _torch.guards_of(self.env)]
        return list(dict.fromkeys(found))

    def fits(self) -> tuple[Any, str]:
        """What tells whether tensors of a call fit, given a sequence of them; and its source."""
        count = 1 + max((r.tensor for r in self.reads.values()), default=-1)
        used = sorted({int(k) for check in self.checks for k in _positions(check)} | set(range(count)))
        lines = ["def fits(t):", *[f"    t{k} = t[{k}]" for k in used]]
        lines += [f"    {name} = t{r.tensor}.size({r.dim})" for name, r in self.reads.items()]
        lines.append(f"    return {' and '.join(self.guards()) or 'True'}")
        source = "\n".join(lines) + "\n"
        scope: dict[str, Any] = {"math": __import__("math"), "torch": torch}
        exec(compile(source, "<aotcheck guards>", "exec"), scope)
        return scope["fits"], source


def _positions(check: str) -> list[str]:
    head = check.split(".", 1)[0]
    return [head[1:]] if head[:1] == "t" and head[1:].isdigit() else []
