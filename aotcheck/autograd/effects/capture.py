"""One pass over the user's function: run it on replicas, then read off them what it did."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.eager_graph.hooked_modules import divided_module
from aotcheck.autograd.eager_graph.regions import Cut
from aotcheck.autograd.eager_graph.saved import unpack_snapshot
from aotcheck.autograd.effects.epilogue import EpilogueBuilder
from aotcheck.autograd.effects.plain_record import plain_record
from aotcheck.autograd.errors import EagerRaises, Retrace, RetraceWithCaptured, RunsAsItIs, TraceMode, UnsupportedError
from aotcheck.autograd.graphs.caller_hooks import call_hooks, run_caller_graph
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import StorageState, View
from aotcheck.autograd.ir.trace import Value, geometry_of
from aotcheck.autograd.ops import view_ops
from aotcheck.autograd.ops.tracer import Tracer
from aotcheck.autograd.record.record import Record
from aotcheck.autograd.record.steps import Arg, BaseOf, Constant, Ref, Source
from aotcheck.autograd.replicas.hooks import NotedHook
from aotcheck.autograd.replicas.kernel_state import Watcher
from aotcheck.autograd.replicas.replica_maker import ReplicaMaker, arrived_at
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.state.global_state import BackwardMode, Unchanged, autocast_is_on
from aotcheck.autograd.state.gradients import Gradients, own_gradient, set_own_gradient
from aotcheck.autograd.tensors.subclasses import (
    Bundle,
    WrapperArgument,
    is_jagged,
    is_wrapper,
    leaves_of,
    tells_lengths,
    wrapping_of,
)
from aotcheck.autograd.tracing.backward_tracer import BackwardTracer
from aotcheck.autograd.tracing.cached_casts import CachedCast, TracedCasts, in_region
from aotcheck.autograd.tracing.caller_graph import BackwardsInside, CallerGraph
from aotcheck.autograd.tracing.ended import Ended
from aotcheck.autograd.tracing.hidden_leaves import hidden_leaves
from aotcheck.autograd.tracing.references import use_count
from aotcheck.autograd.tracing.substitution import StandIns, Substitution
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedInputs, TracedRoot, TracedWrapper
from aotcheck.autograd.tracing.unpacking import unpacking_where_gradients_are


@dataclasses.dataclass(frozen=True)
class Onward:
    """What a backward inside brought to arguments that are no leaves, from where it goes on in the caller's graph.

    A gradient may be a wrapper of such and of arguments. ``versions`` are those that the roots' storages had then;
    ``counted`` says how often the arguments' counters had moved. ``mode`` is what it was called in, ``moment`` when it
    was over.
    """

    gradients: tuple[tuple[Source, Arrived | Bundle], ...]
    retained: bool
    versions: tuple[tuple[StorageState, int], ...]
    counted: tuple[tuple[TracedArgument, int], ...]
    mode: BackwardMode
    moment: int

    @property
    def follows_writes(self) -> bool:
        """Whether a root was written before."""
        return any(version for _, version in self.versions)

    def precedes_writes(self) -> bool:
        """Whether a root is written that no other write may precede it; raises UnsupportedError if what was written
        before, uncounted or in a gradient's memory, shows in the caller's graph and is not what it is by the end.
        """
        since = any(state.version != version for state, version in self.versions)
        if not self.follows_writes or not since:
            return not self.follows_writes
        written = [state for state, version in self.versions if version]
        counted = [a.state for a, _ in self.counted]
        seen = [x for _, g in self.gradients for x in (g.leaves if isinstance(g, Bundle) else (g,))]
        places = [x.view.state for x in seen if isinstance(x, Arrived)]
        hidden = any(all(s is not c for c in counted) for s in written)
        if hidden or len(places) < len(seen) or any(s is p for s in written for p in places):
            raise UnsupportedError("backward inside", "through an argument that is no leaf, between writes")
        return True


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A gradient as a backward brought it: where it lay, its ``value``, and how often its memory had been written.

    Nobody holds a ``free`` one, which a leaf may take over: see Note [Gradients taken over]. ``inference``: it is an
    inference tensor.
    """

    view: View
    value: Value
    version: int
    inference: bool
    free: bool = False


class Capture(Watcher):
    """A traced call: the replicas with their autograd graph, the functional trace, and the record.

    Kept for backwards cut later. What it has made leads back to it weakly, so that all of it ends with it at once.
    """

    def __init__(
        self,
        arguments: Sequence[Any],
        mode: TraceMode,
        together: bool = False,
        hooks: bool = False,
        gradients: int | None = None,
        wrappers: Sequence[WrapperArgument] = (),
        caller: CallerGraph | None = None,
        casts: Sequence[CachedCast] = (),
        casts_asked: Collection[int] = (),
        values: Mapping[int, Tensor] = MappingProxyType({}),
        formulas: tuple[bool, ...] = (),
        apart: Collection[str] = (),
        counts_apart: bool = True,
    ) -> None:
        self.mode = mode
        self.hooks = hooks  # whether default saved-tensor hooks are in force around the call
        self.apart = frozenset(apart)  # the names of custom Functions that are cut off
        self.together = together  # whether all results are attached to autograd by one Function
        self.entry_grad = torch.is_grad_enabled()
        self.entry_autocast = autocast_is_on()
        self.entry_inference = torch.is_inference_mode_enabled()
        self.maker = ReplicaMaker()
        self.tracer = Tracer(self.maker.kernels)
        self.tracer.formulas = formulas
        self.hooks_called = 0  # by backwards inside, of the caller's
        self.meets_empty_views = False  # whether a tensor without elements was met, of which its place can be asked
        self.only_computes = False  # whether nothing was written, and nothing that is saved was packed by hooks
        self.record: Record
        self.cuts: Sequence[Cut] = ()
        _torch.ready_ragged_tensors()
        self.inputs = TracedInputs(arguments, wrappers, mode, self.maker, self.tracer, counts_apart)
        self.roots, self.arguments, self.wrappers = self.inputs.roots, self.inputs.arguments, self.inputs.wrappers
        self._note_values(arguments, wrappers, values)
        self.backward = BackwardTracer(self.tracer, self.roots)
        roots = {id(r.replica) for r in self.roots}
        # The views of roots that had a history when the call began. Gradients of what was computed from them before
        # they were written go by that history, and meet its hooks.
        self.views: list[TracedArgument | TracedWrapper] = [
            *[a for a in self.arguments if a.edge is not None and id(a.replica) not in roots],
            *[w for w in self.wrappers if w.edge is not None],
        ]
        self.entry_nbytes = {id(r.state): r.state.nbytes for r in self.roots}
        self.passed = {a.index: a.replica for a in self.arguments}  # the objects, whichever tensors they are by the end
        kernels = self.maker.kernels
        kernels.wrappers = [w.replica for w in self.wrappers]
        kernels.watcher = cast(Watcher, weakref.proxy(self))
        self._versions = self._real_versions(arguments)
        self.poisoned: list[TracedArgument] = []  # whose accumulators of gradients a swap has poisoned
        alone = gradients is None and caller is None and not mode.with_custom_views  # nothing is asked of autograd
        with contextlib.nullcontext() if alone else self.tracer.recording():
            self.gradients = Gradients(arguments, self.inputs.flat, gradients)
            inside = self._inside = BackwardsInside(arguments, self.inputs.flat, caller)
            inside.meet_hooks(lambda: kernels.function_runs, self._call_hooks)
            if mode.with_custom_views:
                custom = [k for k, is_custom in enumerate(self.inputs.is_custom_view) if is_custom]
                inside.refuse_views(lambda: kernels.function_runs, custom)
        self.casts: TracedCasts | None = None
        if in_region():
            self.casts = TracedCasts(self.tracer, self.inputs.flat, casts, casts_asked)
            self.tracer.on_cast = self.casts.on_op
            self.casts.seed()
        self.onward: list[Onward] = []  # in order
        kernels.arrived = {id(r.anchor): None for r in self.roots if r.anchor is not None}
        passed = {id(a.replica) for a in self.arguments}
        self._bases = [r for r in self.roots if isinstance(r.source, BaseOf) and id(r.replica) not in passed]
        for r in self._bases:
            if r.requires_grad and _torch.leafness(r.replica):
                kernels.arrived[id(r.replica)] = None
        self._led_to = {id(a.replica): a.grad_fn for a in self.arguments if a.index in inside.led_to}
        # Other views have their bases behind them in the trace.
        self._led_to_ends = {id(r.replica) for r in self.roots} if self._led_to else ()

    def _real_versions(self, arguments: Sequence[Any]) -> list[int]:
        """The versions of the roots' originals."""
        versions = []
        for r in self.roots:
            real = arguments[r.source.index]
            base = _torch.base_of(real) if isinstance(r.source, BaseOf) else None
            versions.append(_torch.version_of(real if base is None else base))
        return versions

    # -- what replicas tell

    def use_count(self, t: Tensor) -> int:
        """See Note [References]."""
        return use_count(self.tracer, t)

    def counts_ahead(self, t: Tensor) -> int:
        """How many more versions ``t`` counted than the tensor that it stands for when the function began."""
        (k,) = _torch.counted_by([t], [r.replica for r in self.roots])
        return 0 if k is None else self.roots[k].version - self._versions[k]

    def on_squeeze(self, t: Tensor, op: Any, dims: tuple[Any, ...]) -> None:
        """Dispatch shows how it is done, not that it is."""
        view_ops.note_reshaping(self.tracer, op, (t, *dims), {})

    def on_gradient(self, t: Tensor) -> None:
        """See Note [Gradients of arguments]."""
        if self.maker.kernels.function_runs:
            self._inside.on_gradient(t)
            self.gradients.note(t)

    def on_view_asked(self, t: Tensor) -> None:
        """Replicas of arguments are views where they are traced so."""
        if self.maker.kernels.function_runs and any(a.replica is t for a in self.arguments):
            self._trace_views_as_such()

    def on_version_asked(self, t: Tensor) -> None:
        """It is another one in each call, and no part of the key."""
        argument = type(t) is not Replica or self.tracer.table.state(t).is_input
        if self.maker.kernels.function_runs and argument:
            raise RunsAsItIs("attribute of a tensor", "it reads the version of an argument")

    def on_custom_write(self, t: Tensor) -> None:
        """See Note [Gradients of arguments]."""
        if self.maker.kernels.function_runs:
            self.gradients.drop(t)

    def keeps_gradient(self, t: Tensor) -> bool:
        """See Note [The caller's hooks]."""
        return self._inside.keeps_gradient(t)

    def on_backward(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """See Note [Backwards inside]."""
        if not self.maker.kernels.function_runs:
            return None
        pairs = self._inside.note(func, args, kwargs, self._trace_views_as_such)
        if not pairs:
            return None
        written = any(r.state.version or _torch.version_of(r.replica) != r.version for r in self.roots)
        if func is not torch.autograd.grad or written or self.together:
            raise UnsupportedError("backward inside", "through an argument that is no leaf to another argument")
        return lambda *args, **kwargs: self._inside.go_through(pairs, self._anchors(), self._run_on, args, kwargs)

    def _anchors(self) -> dict[int, Tensor]:
        """The leaves behind the replicas of arguments that are none, by their places."""
        return {r.source.index: r.anchor for r in self.roots if r.anchor is not None and isinstance(r.source, Arg)}

    def _run_on(self, gradients: Mapping[int, Tensor], ends: Mapping[int, Tensor]) -> list[Tensor]:
        """See Note [The caller's hooks]."""
        self.hooks_called += 1
        return run_caller_graph(self.tracer, gradients, ends, self.hooks_called)

    def goes_on_at(self, t: Tensor, node: Any) -> bool:
        """Whether the backward that runs goes on there in the caller's graph, and comes there by other ways too."""
        return id(t) in self._led_to_ends and self._inside.goes_on and self.led_to(t, node)

    def on_swap(self, a: Tensor, b: Tensor) -> None:
        """See ``Tracer.swap``."""
        self.tracer.swap(a, b)
        kernels = self.maker.kernels
        kernels.swap(a, b)
        known: list[TracedRoot | TracedArgument | NotedHook] = [*self.roots, *self.arguments, *kernels.hooks]
        for k in known:
            k.replica = b if k.replica is a else a if k.replica is b else k.replica

    def on_poison(self, t: Tensor) -> None:
        """To be done again in each call."""
        self.poisoned += [a for a in self.arguments if a.replica is t and a not in self.poisoned]

    # -- what there is in the caller's graph

    def led_to(self, t: Tensor, node: Any) -> bool:
        """Whether ``t`` is an argument, with this history, to which the caller's graph leads from others."""
        return node is not None and self._led_to.get(id(t)) is node

    def _note_values(
        self, arguments: Sequence[Any], wrappers: Sequence[WrapperArgument], values: Mapping[int, Tensor]
    ) -> None:
        """See Note [Values in the key]."""
        if not wrappers and not values:
            return
        placeholders = {r.source.index: r.placeholder for r in self.roots if isinstance(r.source, Arg)}
        held = [k for w in wrappers if is_jagged(arguments[w.index]) for _, k in w.inner]
        trace = self.tracer.trace
        trace.askable = {placeholders[k]: k for k in held if k in placeholders and tells_lengths(arguments[k])}
        trace.known = {placeholders[k]: t for k, t in values.items() if k in placeholders}

    def _trace_views_as_such(self) -> None:
        if not self.mode.with_bases and any(self.inputs.is_view):
            raise Retrace(dataclasses.replace(self.mode, with_bases=True))

    def after_backward(self) -> None:
        """A backward that the function called is over: note what it brought to roots that are no leaves."""
        inside = self._inside
        arrived: list[tuple[Source, Tensor]] = []
        free: set[int] = set()
        ends = [(r.source, r.anchor) for r in self.roots if r.anchor is not None]
        ends += [(r.source, r.replica) for r in self._bases]
        for source, leaf in ends:
            g = self.maker.kernels.arrived.get(id(leaf))
            if g is None or own_gradient(leaf) is None:
                continue
            arrived.append((source, g))
            if self.maker.kernels.arrived_free[id(leaf)]:
                free.add(id(g))
            set_own_gradient(leaf, None)
        arrived += [(Arg(w.index), g) for w in self.wrappers if (g := arrived_at(w.grad_fn)) is not None]
        if not arrived:
            return
        if not inside.goes_on or inside.known is None:
            raise UnsupportedError("backward inside", "through an argument that is no leaf")
        led_to = inside.leaves_behind([source.index for source, _ in arrived])
        if led_to:
            self._trace_views_as_such()
            self.gradients.leave([self.inputs.flat[k] for k in led_to])
        known = {id(a.replica): Arg(a.index) for a in self.arguments}
        brought: list[tuple[Source, Arrived | Bundle]] = []
        for source, g in arrived:
            leaves = [known.get(id(x)) or self._arrived(x) for x in leaves_of(g)] if is_wrapper(g) else ()
            wrapping = wrapping_of(g)
            brought.append(
                (source, self._arrived(g, id(g) in free) if wrapping is None else Bundle(wrapping, tuple(leaves)))
            )
        inside.went_on = True
        versions = [(r.state, r.state.version) for r in self.roots]
        moment = self.maker.kernels.now()
        counts = [(a, _torch.version_of(a.replica) - a.version) for a in self.arguments]
        counted = tuple([(a, count) for a, count in counts if count])
        mode = BackwardMode.now()
        self.onward.append(Onward(tuple(brought), inside.retained, tuple(versions), counted, mode, moment))

    def _call_hooks(self, argument: int, gradient: Tensor, keeps: bool) -> Tensor:
        """See Note [The caller's hooks]."""
        if self.together:
            raise UnsupportedError("hook", "a backward inside calls one, with a partition_fn of the user's")
        self.hooks_called += 1
        return call_hooks(self.tracer, gradient, argument, self.hooks_called, keeps)

    def _arrived(self, g: Tensor, free: bool = False) -> Arrived:
        view = self.tracer.table.view(g)
        return Arrived(view, self.tracer.table.read(g), view.state.version, g.is_inference(), free)

    def quietly(self) -> contextlib.AbstractContextManager[Any]:
        """What is found out inside is asked of replicas alone, of which nobody else is to be told."""
        kernels = self.maker.kernels
        if kernels.wrappers or kernels.packed or self.hooks or self.tracer.table.opaque:
            return contextlib.nullcontext()
        return _torch.without_torch_function()

    @property
    def has_views(self) -> bool:
        """Whether an argument is a view, so that a trace with bases may go differently."""
        return any(self.inputs.is_view) or any(w.base is not None for w in self.wrappers)

    def stays(self, root: TracedRoot) -> bool:
        """Whether by now the tensor that ``root`` is for still has the storage that the call brought in it."""
        own = next((a.replica for a in self.arguments if root.source == Arg(a.index)), root.replica)
        return self.tracer.table.state(own) is root.state

    @property
    def differentiated(self) -> list[TracedRoot | TracedWrapper]:
        """What of the caller's gradients may go to."""
        return [*self.roots, *self.wrappers]

    @property
    def ends(self) -> set[Any]:
        """The nodes of autograd at which the trace's graph ends."""
        found = {e.node for r in self.differentiated for e in r.edges}
        return found | {a.edge.node for a in self.views if a.edge is not None} if self.views else found

    def _saving(self) -> contextlib.AbstractContextManager[Any]:
        """What the call's saved-tensor hooks do to the trace: what is saved is what it is when it is saved.

        The hooks themselves see what the compiled Functions save.
        """
        if not self.hooks:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self._pack, unpack_snapshot)

    def _pack(self, t: Tensor) -> Tensor:
        number, kept = _torch.autograd_sequence_number() - 1, _snapshot(t)  # of the node that packs, the last made
        self.maker.kernels.packed.setdefault(number, []).append(kept)
        return kept

    # -- the pass

    def run(
        self,
        function: Callable[[Sequence[Any]], tuple[list[Any], int, Any]],
        captured: Sequence[tuple[Tensor, int]] | None,
        own: int | None = None,
    ) -> Any:
        """Run ``function`` on the replicas and build the record.

        It gives its flat outputs, how many of them it returns (the others are put into what the caller holds), and what
        this returns. ``captured`` pairs each tensor that the function reaches by itself with the index under which it
        was made an argument; None where it can reach none. From ``own`` on they are arguments only because others are
        made of them.
        """
        mapped = StandIns([(real, self.inputs.flat[i]) for real, i in captured] if captured else ())
        self.backward.captured = mapped
        try:
            with (
                Unchanged(),
                _torch.TransformsLeftOnError(),
                self.tracer.recording(),
                Substitution(mapped, self.tracer) as substitution,
                self._saving(),
                unpacking_where_gradients_are(self.maker.kernels),
                _torch.ToldOfFunctions(
                    written=self.maker.kernels.note_custom_write,
                    exchange=substitution.exchange,
                    hooked=self.maker.kernels.note_module_hook,
                ),
                self.tracer.drawing(),
            ):
                self.inputs.outdate()
                self.maker.kernels.function_runs = True
                try:
                    outputs, count, extra = function(self.inputs.flat)
                finally:
                    self.maker.kernels.function_runs = False
            self.tracer.on_cast = None
            if self.casts is not None:
                self.casts.settle()
            self.ended = Ended(self.tracer)
            self.exit_grad = torch.is_grad_enabled()
            kernels = self.maker.kernels
            self.meets_empty_views = not all(map(Tensor.numel, kernels.alive))
            if kernels.left and not self.meets_empty_views:
                left = [place.geometry for places in kernels.left.values() for place in places]
                self.meets_empty_views = any(0 in g.shape for g in left)
        finally:
            torch.set_grad_enabled(self.entry_grad)
        self.waiting = self._find_waiting([mapped.of(o) for o in outputs])
        if self.inputs.of_leaves or self.wrappers:
            with self.tracer.recording():  # autograd makes written views again where it looks for their histories
                self._refuse_writes_of_odd_views()
        if any(_torch.tensor_address(w.replica) != w.address for w in self.inputs.wrappers):
            raise UnsupportedError("swapped wrapper", "with another")
        outputs = [mapped.of(o) for o in outputs]
        if captured and own is not None:
            mapped.forget_unmet([real for real, i in captured if i >= own])
        self.maker.kernels.wrappers += [o for o in outputs if isinstance(o, Tensor) and is_wrapper(o)]
        with torch.set_grad_enabled(self.entry_grad):
            self._settle(outputs, count)
        attached = [a.tensor for a in self.record.attached]
        hooks = self.maker.kernels.module_hooks
        divided = divided_module(hooks, attached, self.record.groups, self.cuts, self.ends) if hooks else None
        if divided is not None:
            raise RunsAsItIs("hook", f"gradients come to a tensor within a {divided} that has hooks for its backward")
        return extra

    def _find_waiting(self, outputs: Sequence[Any]) -> set[int]:
        """Ids of the views for whose histories autograd has not looked since they were written.

        To be asked before anyone looks at them.
        """
        if self.tracer.only_computes:  # nothing was written
            return set()
        made = [o for o in outputs if type(o) is Replica and id(o) in self.tracer.views]
        written: list[Tensor] = [o for o in made if _torch.version_of(o) > 0]
        written += [a.replica for a in self.arguments if _torch.version_of(a.replica) != a.version]
        views = {id(t): t for t in written if type(t) is Replica and _torch.base_of(t) is not None}
        if not views:
            return set()
        with self.tracer.recording():  # autograd makes written views again where it looks for their histories
            return {k for k, t in views.items() if _torch.replica_waits_for_history(t)}

    def _settle(self, outputs: list[Any], count: int) -> None:
        """Build the record of a function that gave ``outputs``."""
        # Where nothing was written autograd has no history to look for anew, and the record of one result makes none.
        alone = self.tracer.only_computes and sum(isinstance(o, Tensor) and o.requires_grad for o in outputs) <= 1
        if alone:
            self._settle_inside(outputs, count, self.tracer.recording())
        else:
            with self.tracer.recording():
                self._settle_inside(outputs, count, contextlib.nullcontext())

    def _settle_inside(self, outputs: list[Any], count: int, building: contextlib.AbstractContextManager[None]) -> None:
        objects, kept = self._record_of(outputs, count, building)
        returned = zip(self.record.returns, outputs, strict=True)
        self.visible: list[tuple[Ref, Tensor]] = [(Arg(a.index), a.replica) for a in self.arguments]
        if objects:
            self.visible = [(objects.get(ref, ref), t) for ref, t in self.visible]
        if self.wrappers:
            self.visible += [(Arg(w.index), w.replica) for w in self.wrappers]
        self.visible += [(r, o) for r, o in returned if isinstance(o, Tensor) and not isinstance(r, Constant)]
        self.visible += kept
        self.backward.visible = [t for _, t in self.visible]
        reached = reached_leaves([a.tensor for a in self.record.attached])
        for d in self.differentiated:
            if d.requires_grad and not d.has_history:
                d.edges += reached.get(id(d.replica), ())
        self.leaf_edges = [reached[id(x.tensor)] for x in self.record.leaves]

    def _record_of(
        self, outputs: list[Any], count: int, building: contextlib.AbstractContextManager[None]
    ) -> tuple[Mapping[Ref, Ref], list[tuple[Ref, Tensor]]]:
        """Build the record, inside ``building`` if there is much to it.

        Returns the objects that stand for others, and what else the caller gets to see.
        """
        roots = [*[r.replica for r in self.roots], *self.maker.anchors]
        changes = self.gradients.changes(roots, outputs, nothing_written=self.tracer.only_computes)
        hidden: list[tuple[Tensor, Tensor]] = []
        if self.gradients.others:
            hidden = hidden_leaves(self.gradients.others.values(), [*outputs, *[a.replica for a in self.arguments]])
            changes += hidden
        known = {id(a.replica) for a in self.arguments}
        for o in [*outputs, *[g for _, g in changes]]:
            if isinstance(o, Replica) and o.is_parameter and id(o) not in known:
                raise UnsupportedError("parameter made inside", "and returned")
            for x in leaves_of(o) if isinstance(o, Tensor) else ():
                if type(x) in (Tensor, torch.nn.Parameter):
                    raise RetraceWithCaptured(o if not any(isinstance(y, Replica) for y in leaves_of(o)) else x)
                if type(x) is not Replica and type(x) is not SparseReplica:
                    raise UnsupportedError("subclass output", type(x).__name__)
        plain = None
        if count == len(outputs) and not changes:
            with self.quietly():
                plain = plain_record(self, outputs)
        if plain is not None:
            self.record, self.cuts = plain
            self.only_computes = self.tracer.only_computes and not self.hooks
            self.recounted = set()  # neither was an argument written, nor does it lie elsewhere
            return {}, []
        with building:
            builder = EpilogueBuilder(self)
            self.record = builder.build(outputs, outputs[count:], changes)
            kept = [(builder.results.name(g), g) for _, g in hidden]
            kept += builder.wrapped.held_by_results()
        self.cuts = builder.results.cuts
        return builder.objects, kept

    def _refuse_writes_of_odd_views(self) -> None:
        for r in self.roots:
            written = _torch.grad_fn_of(r.replica) is not r.grad_fn
            if isinstance(r.source, Arg) and r.source.index in self.inputs.of_leaves and written:
                raise EagerRaises("a view of a leaf that requires grad is written")
        for w in self.wrappers:
            if w.replayed:  # then autograd itself refuses
                continue
            rebased = w.replica.requires_grad and _torch.grad_fn_of(w.replica) is not w.grad_fn
            if rebased and w.index in self.inputs.odd_wrappers:
                raise EagerRaises("a view of a plain tensor that was made under no_grad is written")
            if rebased and w.index in self.inputs.of_leaves:
                raise EagerRaises("a view of a plain leaf is written")

    @functools.cached_property
    def recounted(self) -> set[Value]:
        """Placeholders whose version the epilogue moves: what is saved of them counts versions by itself.

        Or that are other memory by the end (``.data =``): saved is what was there before.
        """
        changed = {id(a.state) for a in self.arguments if _torch.version_of(a.replica) != a.version}
        changed |= {id(r.state) for r in self.roots if _torch.version_of(r.replica) != r.version}
        state = self.tracer.table.state
        return {
            r.placeholder
            for r in self.roots
            if id(r.state) in changed or state(r.replica) is not r.state or geometry_of(r.replica) != r.geometry
        }


def _snapshot(t: Tensor) -> Tensor:
    with torch.no_grad():
        if is_sparse(t):  # nothing writes it
            return t.detach()
        return t.detach().clone(memory_format=torch.preserve_format)
