"""Zeros without memory that arrive at nodes in a backward.

Note [Zeros that arrive]
A second derivative comes by nodes of the first graph, where gradients of the call's own results may come by too, in
the same backward. Eager sums them up there, before the node runs. Our Functions do not: each goes its own way, and
the sum is made behind. It is the same sum but for zeros without memory (see Note [Zeros without memory]): where they
are summed up with a wrapper torch raises, and a node behind may make ordinary zeros of them, of which it does not.

So while the backward of a derivative is traced, it is noted at which nodes of earlier stages such zeros arrive. When
it runs, the Functions of those stages are told: those that it is a derivative of by their contexts, others of the
same call by what the call's contexts have in common. They run after it. One that is told runs a backward to which
those zeros are given as well, where they arrive and its own gradients come by, so the sum is made there in its trace,
and what that raises it raises.

Where the other Functions run, the zeros are left to them: the derivative's own backward ends there. If they went on
in it too, what is behind might refuse them where it takes a sum, or make a wrapper of them, the first summand of one
that eager does not take: of two summands the class of a wrapper may ask the first alone for what is no tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.ops.zeros import ZEROS, is_zeros

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


@dataclasses.dataclass(frozen=True)
class WithoutMemory:
    """A tensor of zeros without memory, as autograd makes it: see Note [Zeros without memory]."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def like(cls, t: Tensor) -> WithoutMemory:
        """What lies as ``t`` does."""
        return cls(tuple(t.shape), t.stride(), t.dtype, t.device)

    def made(self, tracer: Tracer) -> Tensor:
        """Such a tensor in a trace, which each run of its graph makes."""
        with tracer.recording(), torch.no_grad():
            t: Tensor = ZEROS(list(self.shape), dtype=self.dtype, device=self.device)
            return t if t.stride() == self.stride else t.as_strided(self.shape, self.stride)


@dataclasses.dataclass(frozen=True)
class Arrival:
    """Where zeros without memory arrive, and what they are like."""

    edge: GradientEdge
    zeros: WithoutMemory


@contextlib.contextmanager
def noting_zeros(
    tracer: Tracer, nodes: Iterable[Any], left: Collection[GradientEdge], found: list[Arrival]
) -> Iterator[None]:
    """What zeros arrive at ``nodes`` in a backward inside, where nothing else does, is ``found``.

    From those edges that are ``left`` they do not go on.
    """

    def look(node: Any, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        given = list(gradients)
        for k, g in enumerate(gradients):
            if g is not None and is_zeros(tracer, g):
                edge = GradientEdge(node, k)
                found.append(Arrival(edge, WithoutMemory.like(g)))
                given[k] = None if edge in left else g
        return tuple(given)

    hooks = [n.register_prehook(functools.partial(look, n)) for n in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def tell(about: Any, running: int, arrivals: Sequence[Arrival]) -> None:
    """Note, with a context or ``Told``, what arrives at nodes of its Functions in the backward of this number."""
    before, known = getattr(about, "zeros", (running, ()))
    about.zeros = running, tuple(dict.fromkeys((*(known if before == running else ()), *arrivals)))


def told(ctx: Any, before: int) -> tuple[Arrival, ...]:
    """What arrives at nodes of the Function of ``ctx`` in the backward that is running; ``before`` it are so many."""
    found: dict[Arrival, None] = {}
    for about in (ctx, *ctx.kept[1][before:]):
        noted = getattr(about, "zeros", None)
        if noted is not None and noted[0] == _torch.backward_number() >= 0:  # in compiled autograd it is always -1
            found.update(dict.fromkeys(noted[1]))
    return tuple(found)
