"""Backwards of a traced call: run on the replicas' graph of autograd, as often as other tangents ask for it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind, reached_leaves
from aotcheck.autograd.eager_graph.formulas import for_any_data
from aotcheck.autograd.eager_graph.saved import saved_tensors
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import Value, user_frame
from aotcheck.autograd.ops import sparse_ops
from aotcheck.autograd.ops.tracer import Tracer
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.replicas.replicas import Past, make_replica
from aotcheck.autograd.replicas.sparse import SparseResult
from aotcheck.autograd.replicas.windows import OutOfBounds
from aotcheck.autograd.tensors.subclasses import Bundle, leaves_of
from aotcheck.autograd.tracing.accumulators import settle_accumulators
from aotcheck.autograd.tracing.arriving_zeros import Arrival, WithoutMemory
from aotcheck.autograd.tracing.inner_backwards import InnerBackwards
from aotcheck.autograd.tracing.sandbox import BackwardTrace, Sandbox, SetAside
from aotcheck.autograd.tracing.substitution import StandIns, Substitution
from aotcheck.autograd.tracing.traced_inputs import TracedRoot


class BackwardTracer:
    """Traces backwards of one call, whose ``roots`` gradients may go to."""

    def __init__(self, tracer: Tracer, roots: Sequence[TracedRoot]) -> None:
        self._tracer = tracer
        self._roots = roots
        self.captured: StandIns  # of the trace whose graph these are of
        self.not_used: Mapping[int, Tensor] = {}  # by id, stands where backwards find what the call keeps around it
        self.visible: Sequence[Tensor] = ()  # what the caller has, once the call is over
        # entered around a backward: puts a module's replicas where code that is run again looks for them
        self.swapping: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        # In it what is around the function stays as it is: what backwards do there each call has done.
        self.undoing: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def trace(
        self,
        seeds: Sequence[tuple[Attached, Value | Bundle | WithoutMemory]],
        targets: Sequence[Sequence[GradientEdge]],
        trained: Sequence[bool] | None,
        ends: Sequence[Any] = (),
        live: Mapping[int, tuple[StorageState, Value]] = MappingProxyType({}),
        read: Callable[[Tensor], Any] = lambda t: None,
        answers: Mapping[Any, bool] | None = MappingProxyType({}),
        aside: Sequence[GradientEdge] = (),
        told: Sequence[Attached] = (),
        zeros: Sequence[Arrival] = (),
        noting: contextlib.AbstractContextManager[None] | None = None,
        partly: bool = False,
    ) -> BackwardTrace:
        """The gradients that arrive at ``targets`` when just these tensors have (these) tangents, and what it changes.

        None where eager gives None. Nothing gets past the nodes ``ends``. Raises what eager's backward raises. The
        graph of the replicas is kept, so that other sets can be traced later, and so is all else: see Note [Writes in
        the backward]; so what gradients hold is ``read`` before it is undone. ``trained`` says which tangents require
        grad, if the gradients are to have a graph of their own. ``answers``: see ``for_any_data``; None where no
        formula depends on data. ``aside``: see Note [Leaves aside]. The backward begins at ``told`` too, without a
        gradient: see Note [Undefined gradients]. ``zeros`` arrive as well; ``noting`` is entered
        around the backward. ``partly``: it is asked for these targets alone, so what leads elsewhere is not run.
        """
        create_graph = trained is not None
        self._tracer.outside = user_frame()
        starts = [_torch.grad_fn_of(a.tensor) for a in (*[a for a, _ in seeds], *told)]
        stopping = functools.partial(_stopping_at, ends, starts, self._tracer.kernels)
        results: list[Any] = [
            _edge_of(a.tensor) if a.recorded or isinstance(a.tensor, Past) else a.tensor for a, _ in seeds
        ]
        given = len(results)
        with _torch.without_modes():
            grads_in = [self._tangent(tangent) for _, tangent in seeds]
            for t, requires_grad in zip(grads_in, trained or [False] * len(grads_in), strict=True):
                if requires_grad:
                    Tensor.requires_grad_(t)
        begins = _WithoutGradient(self._tracer, told)
        results += begins.results
        grads_in += begins.gradients
        results += [a.edge for a in zeros]
        grads_in += [a.zeros.made(self._tracer) for a in zeros]
        wanted = [(k, edge) for k, edges in enumerate(targets) for edge in edges]
        edges = [*[edge for _, edge in wanted], *aside]
        arrived: list[tuple[int, Tensor | None]]
        stops = {(e.node, e.output_nr): k for k, e in wanted if e.node in ends} if ends else {}
        with Sandbox(self._tracer, live) as sandbox, self._watching(sandbox.there, stops) as within:
            try:
                with (
                    self._backward_runs(create_graph),
                    for_any_data(starts, answers),
                    stopping(),
                    begins,
                    noting or contextlib.nullcontext(),
                ):
                    found = _differentiate(results, edges, grads_in, create_graph) if edges else ()
                    if all(g is None for g in found) and not (partly and edges):
                        self._run_what_leads_nowhere(seeds, results, grads_in, create_graph, ends, bool(edges))
                    arrived = [(k, g) for (k, _), g in zip(wanted, found, strict=False)]
                    gradients = _summed(len(targets), arrived)
                return sandbox.traced(gradients, grads_in[:given], read, within)
            except RuntimeError as error:
                if "passing an `inputs` parameter" not in str(error):  # of what must not be asked for single gradients
                    raise
        with Sandbox(self._tracer, live) as sandbox:
            leaves = [r.replica if _torch.leafness(r.replica) and not r.begins_anew else None for r in self._roots]
            behind = [e for x in reached_leaves([a.tensor for a, _ in seeds]).values() for e in x]
            with self._backward_runs(create_graph), for_any_data(starts, answers), SetAside(leaves) as set_aside:
                # What it comes to past the graph that is no leaf goes on from there, in the caller's.
                reached = {k for k, _ in wanted}
                past = [(k, e) for k, r in enumerate(self._roots) if k not in reached for e in r.edges]
                with (
                    _taking([*edges, *[e for _, e in past]], behind) as taken,
                    stopping(),
                    begins,
                    _Bounds(grads_in),
                    self._watching((), {}, gradients=True),
                ):  # taken before it is stopped
                    torch.autograd.backward(results, grads_in, retain_graph=True, create_graph=create_graph)
                arrived = [(k, g) for (k, _), g in zip(wanted, taken, strict=False)]
                arrived += [(k, g) for (k, _), g in zip(past, taken[len(edges) :], strict=True)]
                # What a backward inside the backward accumulated went past the graph.
                gradients = _summed(len(targets), [*arrived, *enumerate(set_aside.accumulated())])
            return sandbox.traced(gradients, grads_in[:given], read)

    def _watching(
        self, there: Sequence[Tensor], stops: Mapping[tuple[Any, int], int], gradients: bool = False
    ) -> InnerBackwards:
        """Watches backwards inside the one that is traced, before which there was what is ``there``.

        It ends at ``stops``, which are edges, of these targets.
        """
        return InnerBackwards(self._tracer.kernels, self._ends, self.visible, there, stops, gradients)

    def _ends(self) -> dict[int, Tensor]:
        """The leaves at which gradients of targets arrive, by the places of these."""
        found = [(k, r.replica if r.anchor is None else r.anchor) for k, r in enumerate(self._roots)]
        anew = {id(r.replica) for r in self._roots if r.begins_anew}
        return {k: t for k, t in found if id(t) not in anew and t.requires_grad and _torch.leafness(t)}

    def run_node(self, node: Any, gradient: Tensor) -> None:
        """Run one node of autograd's graph as a backward would; raises what it raises."""
        with Sandbox(self._tracer, {}), self._backward_runs(create_graph=False):
            node(gradient)

    @contextlib.contextmanager
    def _backward_runs(self, create_graph: bool) -> Iterator[None]:
        with (
            self.undoing(),
            _torch.with_torch_function(),
            self._tracer.recording(),
            torch.set_grad_enabled(create_graph),
            torch.autograd.set_detect_anomaly(False) if torch.is_anomaly_enabled() else contextlib.nullcontext(),
            Substitution(self.captured, self._tracer, self.not_used) as substitution,
            _torch.ToldOfFunctions(asked=self._tracer.kernels.note_asked, exchange=substitution.exchange),
            self.swapping(),
            self._tracer.drawing(later=True),
        ):
            if self._tracer.kernels.reshaped_leaves:
                settle_accumulators(self._tracer)
            yield

    def _run_what_leads_nowhere(
        self,
        seeds: Sequence[tuple[Attached, Value | Bundle | WithoutMemory]],
        results: Sequence[Any],
        grads_in: Sequence[Tensor],
        create_graph: bool,
        ends: Sequence[Any],
        tried: bool,
    ) -> None:
        """The engine skips nodes that lead to no root; eager runs them, and they raise if what they saved was written,
        or if they are there to raise.
        """
        for attached, _ in seeds:
            saved_tensors(attached.tensor, ())
        reached = reached_leaves([a.tensor for a, _ in seeds])
        others = [e for edges in reached.values() for e in edges if e.node not in ends]
        if tried:
            return
        if others:
            _differentiate(results, others, grads_in, create_graph)
        else:  # no leaf whose .grad it could reach
            options = {"retain_graph": True, "create_graph": create_graph}
            with _Bounds(grads_in):  # of which nobody is told, as of a backward inside
                _torch.past_function_modes(torch.autograd.backward, (results, grads_in), options)

    def _tangent(self, tangent: Value | Bundle | WithoutMemory) -> Tensor:
        """The replica that stands for an incoming gradient."""
        if isinstance(tangent, WithoutMemory):
            return tangent.made(self._tracer)
        if isinstance(tangent, Bundle):
            leaves = [self._tangent(x) if type(x) is Value else x for x in tangent.leaves]
            with self._tracer.recording():
                return tangent.wrapping.build(leaves)
        assert tangent.device is not None
        if tangent.sparse is not None:
            return sparse_ops.bind(self._tracer, SparseResult(tangent.sparse), tangent, tangent.device)
        assert tangent.geometry is not None
        g = tangent.geometry
        elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device=_torch.META)
        elem = _torch.conj_view(elem) if g.conj else elem
        elem = _torch.neg_view(elem) if g.neg else elem
        t = make_replica(elem, tangent.device, self._tracer.kernels)
        self._tracer.table.bind(t, tangent)
        self._tracer.keep.append(t)
        return t

    def as_result(self, t: Tensor | None) -> Tensor | None:
        """A gradient; one that is a leaf is replaced by a view, as it is somebody else's tensor and not a result."""
        if t is None or not t.requires_grad:
            return t
        match _torch.leafness(t):
            case None:
                raise UnsupportedError("view of a base that has changed", "of which a gradient is one, in a wrapper")
            case False:
                return t
        with self._tracer.recording(), torch.enable_grad():
            return t.view_as(t)


class _Nothing(torch.autograd.Function):
    """Gives no gradient to what it was applied to."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return torch.empty(0, device=_torch.META)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None


_nothing_to = _torch.bound_apply(_Nothing)


class _WithoutGradient:
    """Where backwards begin that come by ``told`` without a gradient, which they do where this is entered.

    What stands for a node's result has no history of its own: such a node is given zeros, which it does not get to see.
    """

    def __init__(self, tracer: Tracer, told: Sequence[Attached]) -> None:
        self.results: list[Any] = []
        self.gradients: list[Tensor] = []
        self._hooks: list[Any] = []
        self._given: list[tuple[GradientEdge, Tensor]] = []
        for a in told:
            if isinstance(a.tensor, Past):
                with tracer.recording(), torch.no_grad():
                    zeros = torch.zeros(a.tensor.shape, dtype=a.tensor.dtype, device=a.device)
                self._given.append((a.tensor.edge, zeros))
                self.results.append(a.tensor.edge)
                self.gradients.append(zeros)
            else:
                with _torch.without_modes(), torch.enable_grad():
                    self.results.append(_nothing_to(a.tensor))
                self.gradients.append(torch.empty(0, device=_torch.META))

    def __enter__(self) -> None:
        for edge, zeros in self._given:
            self._hooks.append(edge.node.register_prehook(functools.partial(_none_for, zeros)))

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


def _none_for(zeros: Tensor, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple([None if g is zeros else g for g in gradients])


def _edge_of(t: Tensor) -> GradientEdge:
    return GradientEdge(_torch.grad_fn_of(t), t.output_nr)


def _stopping_at(
    nodes: Sequence[Any], starts: Sequence[Any], kernels: KernelState
) -> contextlib.AbstractContextManager[None]:
    """Backwards from ``starts`` deliver gradients to ``nodes`` but nothing beyond.

    The engine goes on from there without any where that leads to what is asked for, and is led to otherwise too. The
    backward of a custom Function might give zeros for that, so those beyond are not run; others might give anything, so
    nothing comes of them.
    """
    return _stopping(nodes, starts, kernels) if nodes or kernels.stopped else contextlib.nullcontext()


@contextlib.contextmanager
def _stopping(nodes: Sequence[Any], starts: Sequence[Any], kernels: KernelState) -> Iterator[None]:
    stopped = dict.fromkeys(nodes)
    hooks = [n.register_prehook(functools.partial(_stop, kernels, n)) for n in stopped]
    beyond = nodes_behind(stopped, set()) - (nodes_behind(starts, set(stopped)) - stopped.keys()) if stopped else ()
    custom = [n for n in beyond if isinstance(n, torch.autograd.function.BackwardCFunction)]
    for n in custom:
        _torch.skip_backward(n)
    known = kernels.module_hooks
    hooks_again = _torch.without_module_hooks({id(h): h for n in custom if (h := known.get(n)) is not None}.values())
    inner = [n for n in beyond if n.next_functions and n not in custom]
    hooks += [n.register_hook(lambda grads, _: (None,) * len(grads)) for n in inner]
    before, kernels.stopped = kernels.stopped, stopped
    kernels.beyond.update(beyond)
    try:
        yield
    finally:
        kernels.stopped = before
        kernels.beyond.clear()
        for hook in hooks:
            hook.remove()
        for n in custom:
            _torch.run_backward_again(n)
        hooks_again()


def _stop(kernels: KernelState, node: Any, grads: Sequence[Tensor | None]) -> tuple[None, ...]:
    kernels.inner.on_stop(node, grads)
    return (None,) * len(grads)


def _differentiate(
    results: Sequence[Any], edges: Sequence[GradientEdge], grads_in: Sequence[Tensor], create_graph: bool
) -> tuple[Tensor | None, ...]:
    with _Bounds(grads_in):
        return _torch.gradients_at(edges, results, grads_in, create_graph)


class _Bounds:
    """A window beyond its storage is eager's error, or the business of how the caller's gradients ``grads_in`` lie.

    A selective checkpoint can run again once, and has done so where another backward of it was traced before.
    """

    __slots__ = ("_grads_in",)

    def __init__(self, grads_in: Sequence[Tensor]) -> None:
        self._grads_in = grads_in

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, RuntimeError) and str(error).startswith("Trying to backward an extra time"):
            raise UnsupportedError("checkpoint", "a selective one, of which two backwards are traced") from error
        if not isinstance(error, OutOfBounds):
            return
        given = {_torch.storage_address(_torch.storage_of(x)) for t in self._grads_in for x in leaves_of(t)}
        if _torch.storage_address(error.storage) in given:
            # A formula strides over a gradient of the caller's, which may have another layout.
            raise UnsupportedError("backward depends on the layout of a gradient", str(error)) from error
        raise RuntimeError(str(error)) from None


def _summed(count: int, arrived: Sequence[tuple[int, Tensor | None]]) -> list[Tensor | None]:
    """For each of so many targets the sum of the gradients that arrived there."""
    gradients: list[Tensor | None] = [None] * count
    for k, gradient in arrived:
        if gradient is not None:
            known = gradients[k]
            gradients[k] = gradient if known is None else known + gradient
    return gradients


@contextlib.contextmanager
def _taking(edges: Sequence[GradientEdge], behind: Sequence[GradientEdge]) -> Iterator[list[Tensor | None]]:
    """A backward inside that runs the whole graph leaves in the list that is given what arrived at each of ``edges``.

    It gets no further than those and ``behind``, the leaves' accumulators.
    """
    arrived: dict[Any, list[Tensor | None]] = {}
    taken: list[Tensor | None] = []

    def stop_at(node: Any) -> Callable[[Sequence[Tensor | None]], tuple[None, ...]]:
        def take(grads: Sequence[Tensor | None]) -> tuple[None, ...]:
            known = arrived.setdefault(node, [None] * len(grads))
            for k, g in enumerate(grads):
                had = known[k]
                if g is not None:
                    known[k] = g if had is None else had + g
            return (None,) * len(grads)

        return take

    nodes = {e.node for e in edges} | {e.node for e in behind}
    hooks = [n.register_prehook(stop_at(n)) for n in nodes]
    try:
        yield taken
    finally:
        for hook in hooks:
            hook.remove()
    taken += [arrived[e.node][e.output_nr] if e.node in arrived else None for e in edges]
