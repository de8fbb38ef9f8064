"""The autograd Function of a component: it attaches a history to results that are computed already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.fx import symbols_of
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import is_static
from aotcheck.autograd2.partition.default import BackwardGraph
from aotcheck.autograd2.trace.gate import Event, refuse

__all__ = ["Runner", "attach", "laid_out", "watch"]


@dataclass
class Runner:
    """Runs the backwards of a component.

    Attributes:
        saved: which of the forward graph's saved tensors it keeps, by position.
        backwards: for each set of defined tangents, the graph and, once it was needed, what runs it.
        late: traces the backward for another set of tangents.
        compile: compiles a backward graph.
    """

    saved: tuple[int, ...]
    late: Callable[[tuple[bool, ...]], BackwardGraph]
    compile: Callable[[BackwardGraph], Callable[..., Any]]
    graphs: dict[tuple[bool, ...], BackwardGraph] = field(default_factory=dict)
    compiled: dict[tuple[bool, ...], Callable[..., Any]] = field(default_factory=dict)

    def run(
        self, saved: Sequence[Tensor], tangents: Sequence[Tensor | None], sizes: Mapping[str, int]
    ) -> Sequence[Tensor | None]:
        """The gradients for these tangents; ``sizes`` are the values of the call's symbols."""
        defined = tuple([t is not None for t in tangents])
        graph = self.graphs.get(defined)
        if graph is None:
            graph = self.graphs[defined] = self.late(defined)
        if graph.backward.error:
            raise RuntimeError(graph.backward.error)
        function = self.compiled.get(defined)
        if function is None:
            function = self.compiled[defined] = self.compile(graph)
        position = {k: n for n, k in enumerate(self.saved)}
        kept = [saved[position[k]] for k in graph.saved]
        given = [t for t in tangents if t is not None]
        lying = [laid_out(t, g) for t, g in zip(given, graph.backward.geometries, strict=True)]
        with torch.no_grad(), _torch.autocast_off():
            numbers = [sizes[name] for name in symbols_of(graph.nodes)] if sizes else ()
            found: Sequence[Tensor | None] = function(*kept, *numbers, *lying)
        return found


def laid_out(t: Tensor, g: Geometry) -> Tensor:
    """``t`` with the strides that a graph was made for."""
    if type(t) is not Tensor and type(t) is not torch.nn.Parameter:
        refuse(Event.WRAPPER, f"a gradient is a {type(t).__name__}")
    if t.layout is not torch.strided:
        refuse(Event.SPARSE, "a gradient of a result")
    stride = g.stride if is_static(g.stride) else _dense(t.shape, g.dense_order)
    lies_so = all(n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), stride, strict=True))
    if lies_so and not (t.is_conj() or t.is_neg()):
        return t
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def _dense(shape: Sequence[int], order: Sequence[int] | None) -> tuple[int, ...]:
    """The strides of a dense tensor whose dimensions have that order in memory."""
    stride, expected = [1] * len(shape), 1
    for d in reversed(order or range(len(shape))):
        stride[d] = expected
        expected *= max(shape[d], 1)
    return tuple(stride)


_WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "an argument that the compiled function wrote was written again before the backward."
)


def watch(tensors: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """For each a tensor without memory that counts its versions, and the version now."""
    counters = []
    for t in tensors:
        counter = t.detach()
        counter.data = counter.new_empty(0)
        counters.append((counter, _torch.version_of(counter)))
    return counters


class _Attached(torch.autograd.Function):
    """Takes results and saved tensors past autograd, and the inputs to which gradients flow."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, results: Any, saved: Any, sizes: Any, *inputs: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.sizes = sizes
        ctx.runner = runner
        if saved:
            ctx.save_for_backward(*saved)
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            refuse(Event.SECOND)
        runner: Runner = ctx.runner
        for counter, version in getattr(ctx, "watched", ()):
            if _torch.version_of(counter) != version:
                raise RuntimeError(_WRITTEN)
        saved = ctx.saved_tensors if runner.saved else ()
        return (None, None, None, None, *runner.run(saved, tangents, ctx.sizes))


_apply = _torch.bound_apply(_Attached)


def attach(
    runner: Runner, results: Sequence[Tensor], saved: Sequence[Tensor], inputs: Sequence[Tensor], sizes: Any
) -> Any:
    """``results`` with the history of a component whose backward ``runner`` runs, with these values of symbols."""
    clean = tuple([r if _torch.base_of(r) is None else r.detach() for r in results])
    kept = dict(zip(results, clean, strict=True))
    return _apply(runner, clean, tuple([kept.get(saved[k], saved[k]) for k in runner.saved]), sizes, *inputs)
