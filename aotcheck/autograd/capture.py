"""One pass over the user's function: run it on replicas, then read off them what it did.

Note [Roots]
An argument is a root of the trace by itself, view or not, as long as no write that autograd sees goes through it: then
gradients of aliased arguments are independent and add up in the caller's own graph. Once such a write happens to a
view, or to one of several tensors on a storage, autograd's view machinery decides who gets which gradient, so the trace
is made again with the views' bases as roots and the views replayed on them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd import sparse_ops
from aotcheck.autograd.caller_graph import BackwardsInside, CallerGraph, leads_to_leaf
from aotcheck.autograd.epilogue import EpilogueBuilder
from aotcheck.autograd.errors import EagerRaises, Retrace, RetraceWithCaptured, TraceMode, UnsupportedError
from aotcheck.autograd.global_state import autocast_is_on, unchanged
from aotcheck.autograd.gradients import Gradients, own_gradient, set_own_gradient
from aotcheck.autograd.partition.components import nodes_behind, reached_leaves
from aotcheck.autograd.partition.saved import saved_tensors
from aotcheck.autograd.record import Arg, Attached, BaseOf, Constant, Record, Ref, Source
from aotcheck.autograd.references import use_count
from aotcheck.autograd.replicas import KernelState, Past, Replica, ReplicaMaker, make_replica
from aotcheck.autograd.sandbox import BackwardTrace, Sandbox, SetAside
from aotcheck.autograd.sparse import SparseReplica, SparseResult, sparse_argument
from aotcheck.autograd.sparse_geometry import is_sparse
from aotcheck.autograd.storage_state import StorageState
from aotcheck.autograd.subclasses import (
    Bundle,
    Outer,
    WrapperArgument,
    held_by,
    is_wrapper,
    leaves_of,
    outer_key,
    outer_of,
)
from aotcheck.autograd.substitution import Substitution
from aotcheck.autograd.trace import Geometry, Value, geometry_of
from aotcheck.autograd.tracer import Tracer, exchange
from aotcheck.autograd.windows import OutOfBounds


@dataclasses.dataclass
class TracedRoot:
    """A root with its replica and what was true of it before the function ran."""

    source: Source
    real_is_leaf: bool | None
    requires_grad: bool
    replica: Tensor
    geometry: Geometry
    state: StorageState
    version: int
    grad_fn: Any
    placeholder: Value
    anchor: Tensor | None = None  # the leaf behind the replica of one that is no leaf
    edges: list[GradientEdge] = dataclasses.field(default_factory=list)  # where its gradients arrive


@dataclasses.dataclass(frozen=True)
class Onward:
    """What a backward inside brought to roots that are no leaves, from where it goes on in the caller's graph."""

    gradients: tuple[tuple[Source, Value, Geometry], ...]
    retained: bool


@dataclasses.dataclass
class TracedArgument:
    """A tensor argument, once however often it is passed, with what was true of its replica before the function ran.

    ``edge`` is where its gradients arrived, if it had a history.
    """

    index: int
    real_is_leaf: bool | None
    replica: Tensor
    geometry: Geometry
    state: StorageState
    version: int
    requires_grad: bool
    grad_fn: Any
    edge: GradientEdge | None
    inference: bool


@dataclasses.dataclass
class TracedWrapper:
    """A wrapper among the arguments, with what was true of its replica before the function ran.

    ``base`` is the argument of which it is a view, ``attributes`` what the Python object had. ``replayed``: its replica
    is a view of that argument's.
    """

    index: int
    base: int | None
    real_is_leaf: bool | None
    replica: Tensor
    requires_grad: bool
    version: int
    grad_fn: Any
    outer: Outer
    attributes: dict[str, Any]
    replayed: bool
    edges: list[GradientEdge] = dataclasses.field(default_factory=list)  # where its gradients arrive


class Capture:
    """A traced call: the replicas with their autograd graph, the functional trace, and the record.

    Kept for backwards cut later.
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
    ) -> None:
        self.mode = mode
        self.hooks = hooks  # whether default saved-tensor hooks are in force around the call
        self.together = together  # whether all results are attached to autograd by one Function
        self.entry_grad = torch.is_grad_enabled()
        self.entry_autocast = autocast_is_on()
        self.entry_inference = torch.is_inference_mode_enabled()
        self.maker = ReplicaMaker()
        self.tracer = Tracer(self.maker.kernels)
        self.roots: list[TracedRoot] = []
        self.arguments: list[TracedArgument] = []
        self.wrappers: list[TracedWrapper] = []
        self.replicas: dict[int, Tensor] = {}  # id of the real tensor -> replica
        self.captured: dict[int, Any] | None = None  # id of a tensor that the function reaches by itself -> replica
        # entered around a backward: puts a module's replicas where code that is run again looks for them
        self.swapping: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self.accumulates = False  # whether what the backward calls must not be asked for single gradients
        self.generators: list[tuple[int, torch.Generator]] = []  # argument -> its stand-in
        self.flat_replicas: list[Any] = list(arguments)
        self.record: Record
        self.is_view = [_is_plain(a) and _base(a, mode) is not None for a in arguments]
        # Eager refuses to write these under grad, wherever they lie by now.
        self._of_leaves = [i for i, a in enumerate(arguments) if _is_plain(a) and _left_leaf(a)]
        self.is_custom_view = [_is_plain(a) and _is_custom_view(a) for a in arguments]
        self._make_roots(arguments, wrappers)
        self._make_generators(arguments)
        roots = {id(r.replica) for r in self.roots}
        # The views of roots that had a history when the call began. Gradients of what was computed from them before
        # they were written go by that history, and meet its hooks.
        self.views = [a for a in self.arguments if a.edge is not None and id(a.replica) not in roots]
        self.entry_nbytes = {id(r.state): r.state.nbytes for r in self.roots}
        self.passed = {a.index: a.replica for a in self.arguments}  # the objects, whichever tensors they are by the end
        kernels = self.maker.kernels
        kernels.on_swap, kernels.on_poison = self._swapped, self._poisoned
        kernels.use_count = functools.partial(use_count, self.tracer)
        self.poisoned: list[TracedArgument] = []  # whose accumulators of gradients a swap has poisoned
        with self.tracing():
            self.gradients = Gradients(arguments, self.flat_replicas, gradients)
            inside = BackwardsInside(arguments, self.flat_replicas, caller, self._trace_views_as_such)
            inside.refuse_hooks(lambda: kernels.function_runs)
        self.onward: list[Onward] = []  # in order
        kernels.after_backward = lambda: self._goes_on(inside)
        kernels.on_gradient = lambda t: self.gradients.note(t) if kernels.function_runs else None
        kernels.on_backward = lambda *call: inside.note(*call) if kernels.function_runs else None

    def _trace_views_as_such(self) -> None:
        if not self.mode.with_bases and any(self.is_view):
            raise Retrace(dataclasses.replace(self.mode, with_bases=True))

    def _goes_on(self, inside: BackwardsInside) -> None:
        """A backward that the function called is over: note what it brought to roots that are no leaves."""
        arrived = [
            (r, r.anchor, g) for r in self.roots if r.anchor is not None and (g := own_gradient(r.anchor)) is not None
        ]
        if not arrived or not inside.goes_on or inside.known is None:
            return  # what stays where it arrived is refused
        for r, anchor, g in arrived:
            if leads_to_leaf(inside.known, r.source.index, self.flat_replicas) or is_wrapper(g):
                raise UnsupportedError("backward inside", "through an argument that is no leaf to another argument")
            set_own_gradient(anchor, None)
        if any(r.state.version for r in self.roots):
            raise UnsupportedError("backward inside", "through an argument that is no leaf, after a write")
        brought = [(r.source, self.tracer.table.read(g), geometry_of(g)) for r, _, g in arrived]
        self.onward.append(Onward(tuple(brought), inside.retained))

    def _swapped(self, a: Tensor, b: Tensor) -> None:
        """See ``Tracer.swap``."""
        self.tracer.swap(a, b)
        kernels = self.maker.kernels
        exchange(kernels.detached, id(a), id(b))
        exchange(kernels.required, id(a), id(b))
        exchange(kernels.moved, id(a), id(b))
        exchange(kernels.moved_before, id(a), id(b))
        exchange(kernels.stand_for_views, id(a), id(b))
        known: list[TracedRoot | TracedArgument] = [*self.roots, *self.arguments]
        for k in known:
            k.replica = b if k.replica is a else a if k.replica is b else k.replica

    def _poisoned(self, t: Tensor) -> None:
        self.poisoned += [a for a in self.arguments if a.replica is t and a not in self.poisoned]

    @property
    def has_views(self) -> bool:
        """Whether an argument is a view, so that a trace with bases may go differently."""
        return any(self.is_view) or any(w.base is not None for w in self.wrappers)

    @property
    def differentiated(self) -> list[TracedRoot | TracedWrapper]:
        """What of the caller's gradients may go to."""
        return [*self.roots, *self.wrappers]

    @property
    def ends(self) -> set[Any]:
        """The nodes of autograd at which the trace's graph ends."""
        found = {e.node for r in self.differentiated for e in r.edges}
        return found | {a.edge.node for a in self.views if a.edge is not None}

    # -- before

    def _make_roots(self, arguments: Sequence[Any], wrappers: Sequence[WrapperArgument]) -> None:
        views: list[int] = []
        self._versions = _shared_versions(arguments)
        with _torch.without_modes():
            for i, a in enumerate(arguments):
                if is_sparse(a):
                    self._root(a, Arg(i))
                if not _is_plain(a):
                    continue
                base = _base(a, self.mode) if self.mode.with_bases or _is_quiet(a) else None
                if base is not None and _is_lone_leaf(a, base, arguments):
                    base = None
                if base is not None and id(a) not in self.replicas:
                    self._root(base, BaseOf(i))
                    views.append(i)
                else:
                    self._root(a, Arg(i))
        with self.tracing() if views else contextlib.nullcontext():
            for i in views:
                a = arguments[i]
                if id(a) not in self.replicas:
                    self.replicas[id(a)] = self._replay_before_the_cut(a) if _survives_cut(a) else self._replay(a)
            for a in {id(a): a for a in arguments if _is_plain(a) and _torch.leafness(a) is None}.values():
                if any(r.replica is self.replicas[id(a)] for r in self.roots):
                    self.replicas[id(a)] = self._refused_view(self.replicas[id(a)])
        self._make_wrappers(arguments, wrappers)
        for i, a in enumerate(arguments):
            if isinstance(a, Tensor):
                self.flat_replicas[i] = self.replicas[id(a)]
        seen: set[int] = set()
        for i, a in enumerate(arguments):
            if (_is_plain(a) or is_sparse(a)) and id(a) not in seen:
                seen.add(id(a))
                r = self.replicas[id(a)]
                state = self.tracer.table.state(r)
                node = _torch.grad_fn_of(r)
                self.arguments.append(
                    TracedArgument(
                        i,
                        _torch.leafness(a),
                        r,
                        geometry_of(r),
                        state,
                        _torch.version_of(r),
                        r.requires_grad,
                        node,
                        None if node is None else GradientEdge(node, r.output_nr),
                        r.is_inference(),
                    )
                )
        for root in self.roots:
            root.version = _torch.version_of(root.replica)
            root.grad_fn = root.replica.grad_fn

    def _make_wrappers(self, arguments: Sequence[Any], wrappers: Sequence[WrapperArgument]) -> None:
        """Wrappers of the same classes on replicas, each after what it is made from."""
        left = {w.index: w for w in wrappers}
        while left:
            self._make_wrapper(next(iter(left.values())), left, arguments)
        for w in wrappers:
            real = arguments[w.index]
            r = self.replicas[id(real)]
            replayed = self._replays(w, arguments)  # then its gradients go to its base
            node = None if replayed else _torch.grad_fn_of(r)
            edges = [] if node is None else [GradientEdge(node, r.output_nr)]
            self.wrappers.append(
                TracedWrapper(
                    w.index,
                    w.base,
                    _torch.leafness(real),
                    r,
                    r.requires_grad,
                    _torch.version_of(r),
                    _torch.grad_fn_of(r),
                    outer_of(r),
                    dict(vars(r)),
                    replayed,
                    edges=edges,
                )
            )

    def _make_wrapper(self, w: WrapperArgument, left: dict[int, WrapperArgument], arguments: Sequence[Any]) -> None:
        """The replica of ``w``, after those of what it is made from; ``left`` are the wrappers that have none yet."""
        del left[w.index]
        real = arguments[w.index]
        replayed = self._replays(w, arguments)
        needed = [k for _, k in w.inner] + ([w.base] if replayed and w.base is not None else [])
        for k in needed:
            if k in left:
                self._make_wrapper(left[k], left, arguments)
        inner = {name: self.replicas[id(arguments[k])] for name, k in w.inner}
        r = self._replay_wrapper(real, inner) if replayed else self._wrap(real, inner)
        self.replicas[id(real)] = r

    def _replays(self, w: WrapperArgument, arguments: Sequence[Any]) -> bool:
        """Whether ``w`` is made as a view of another wrapper."""
        if w.base is None or not is_wrapper(arguments[w.base]):
            return False
        return self.mode.with_bases or _is_quiet(arguments[w.index])

    def _wrap(self, real: Any, inner: dict[str, Tensor]) -> Tensor:
        _, context = held_by(real)
        sizes, strides, _ = outer_of(real)
        with torch.inference_mode(real.is_inference()), torch.no_grad(), self.tracing():
            r: Tensor = type(real).__tensor_unflatten__(inner, context, sizes, strides)
        if r.requires_grad and r.is_leaf:
            r.requires_grad_(False)
        if isinstance(real, torch.nn.Parameter):
            r._is_param = True
        if real.requires_grad:
            if _torch.leafness(real) is not False:
                r.requires_grad_()
            else:
                self.maker.give_history(r)
        return r

    def _replay_wrapper(self, real: Any, inner: dict[str, Tensor]) -> Tensor:
        """The view ``real`` made again on its base's replica; it holds the replicas of what ``real`` holds."""
        base = _torch.base_of(real)
        how = _torch.creation_meta(real)
        inference = how == _torch.CreationMeta.INFERENCE_MODE
        grad = how != _torch.CreationMeta.NO_GRAD_MODE
        with torch.inference_mode(inference), torch.set_grad_enabled(grad), self.tracing():
            r = _torch.view_func_of(real)(self.replicas[id(base)])
        if outer_key(r) != outer_key(real):
            raise UnsupportedError("view of a base that has changed", "the wrapper is not what its base now gives")
        for name, t in inner.items():
            setattr(r, name, t)
        if how not in (_torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE):
            _torch.set_creation_meta(r, how)
        if _torch.leafness(real) is None:
            _torch.count_write(self.replicas[id(base)])
        return r

    def _make_generators(self, arguments: Sequence[Any]) -> None:
        """Stand-ins for the call's generators, so that tracing advances none; the graph gets the real ones."""
        made: dict[int, torch.Generator] = {}
        for i, a in enumerate(arguments):
            if isinstance(a, torch.Generator):
                if id(a) not in made:
                    stand_in = made[id(a)] = torch.Generator(a.device)
                    stand_in.set_state(a.get_state())
                    self.tracer.generator(stand_in)
                    self.generators.append((i, stand_in))
                self.flat_replicas[i] = made[id(a)]

    def _root(self, real: Tensor, source: Source) -> None:
        if id(real) in self.replicas:
            return
        r: Replica
        if is_sparse(real):
            r = sparse_argument(self.maker, real)
            value = self.tracer.trace.placeholder(geometry_of(r), real.device)
            state = self.tracer.table.bind_sparse(r, value)
        else:
            r = self.maker.root(real, self._versions.get(id(real)))
            value = self.tracer.trace.placeholder(geometry_of(r), real.device)
            state = self.tracer.table.state(r)
            self.tracer.table.bind(r, value)
        self.replicas[id(real)] = r
        if _torch.base_of(real) is not None:
            self.maker.kernels.stand_for_views[id(r)] = True
        if state.source is None:
            state.source = source
        root = TracedRoot(
            source,
            _torch.leafness(real),
            real.requires_grad,
            r,
            geometry_of(r),
            state,
            _torch.version_of(r),
            r.grad_fn,
            value,
        )
        if r.grad_fn is not None:
            root.anchor = self.maker.anchors[-1]
            root.edges.append(GradientEdge(r.grad_fn, r.output_nr))
        self.roots.append(root)

    def _replay(self, real: Tensor) -> Tensor:
        base = _torch.base_of(real)
        assert base is not None
        how = _torch.creation_meta(real)
        no_grad = how == _torch.CreationMeta.NO_GRAD_MODE
        inference = how == _torch.CreationMeta.INFERENCE_MODE
        with _torch.without_modes():
            by_way_of_wrapper = _torch.made_with_tensors(real)
        if by_way_of_wrapper:  # where torch makes such a view again for a history, an error ends the process
            raise UnsupportedError("captured tensor", "an argument is a view by way of a ragged tensor, and not of it")
        with torch.inference_mode(inference), torch.set_grad_enabled(not no_grad):
            r = _torch.view_func_of(real)(self.replicas[id(base)])
        if geometry_of(r) != geometry_of(real):
            raise UnsupportedError(
                "view of a base that has changed", "the argument's window is not what its base now gives"
            )
        if how in (_torch.CreationMeta.IN_CUSTOM_FUNCTION, _torch.CreationMeta.MULTI_OUTPUT_NODE):
            _torch.set_creation_meta(r, how)
        if isinstance(r, Replica):
            r.is_parameter = isinstance(real, torch.nn.Parameter)
        if _torch.leafness(real) is None:
            _torch.count_write(self.replicas[id(base)])
        elif real.requires_grad and _torch.leafness(real) and not r.requires_grad:
            r.requires_grad_()
        return r

    def _replay_before_the_cut(self, real: Tensor) -> Tensor:
        """The same of a view that was made when its base still had the history from which it was cut."""
        base = self.replicas[id(_torch.base_of(real))]
        version = _torch.version_of(base)
        with _torch.without_modes():
            self.maker.give_history(base)
        _torch.set_version(base, version)
        r = self._replay(real)
        Tensor.detach_(base)
        return r

    def _refused_view(self, root: Tensor) -> Tensor:
        """A tensor in the place of ``root`` whose history autograd refuses to say, as it does of the real one, which
        left the storage of its base.
        """
        with torch.no_grad():
            r = root.view(root.shape)
        _torch.count_write(root)
        return r

    @contextlib.contextmanager
    def tracing(self) -> Any:
        """Ops are recorded inside."""
        with torch.autograd.set_multithreading_enabled(False), self.tracer:
            yield

    @contextlib.contextmanager
    def _function_runs(self) -> Iterator[None]:
        self.maker.kernels.function_runs = True
        try:
            yield
        finally:
            self.maker.kernels.function_runs = False

    def _substitution(self) -> contextlib.AbstractContextManager[Any]:
        """Tensors that the function reaches by itself are replaced inside, methods of wrappers and backwards noted."""
        return Substitution(self.captured or {}, self.tracer)

    def _saving(self) -> contextlib.AbstractContextManager[Any]:
        """What the call's saved-tensor hooks do to the trace: what is saved is what it is when it is saved.

        The hooks themselves see what the compiled Functions save.
        """
        if not self.hooks:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(_snapshot, lambda t: t)

    # -- the pass

    def run(
        self,
        function: Callable[[Sequence[Any]], tuple[list[Any], int, Any]],
        captured: Sequence[tuple[Tensor, int]] | None,
    ) -> Any:
        """Run ``function`` on the replicas and build the record.

        It gives its flat outputs, how many of them it returns (the others are put into what the caller holds), and what
        this returns. ``captured`` pairs each tensor that the function reaches by itself with the index under which it
        was made an argument; None where it can reach none.
        """
        if captured is not None:
            self.captured = {id(real): self.flat_replicas[i] for real, i in captured}
        try:
            with (
                unchanged(),
                self.tracing(),
                self._substitution(),
                self._saving(),
                self._function_runs(),
                _torch.noting_who_writes(self.maker.kernels.note_custom_write),
                self.tracer.drawing(),
            ):
                outputs, count, extra = function(self.flat_replicas)
            self.exit_grad = torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(self.entry_grad)
        for r in self.roots:
            written = _torch.grad_fn_of(r.replica) is not r.grad_fn
            if isinstance(r.source, Arg) and r.source.index in self._of_leaves and written:
                raise EagerRaises("a view of a leaf that requires grad is written")
        mapped = self.captured or {}
        outputs = [mapped.get(id(o), o) for o in outputs]
        with self.tracing():  # where autograd looks for the histories of written views, it makes those views again
            changes = self.gradients.changes([*[r.replica for r in self.roots], *self.maker.anchors], outputs)
        known = {id(a.replica) for a in self.arguments}
        for o in [*outputs, *[g for _, g in changes]]:
            if isinstance(o, Replica) and o.is_parameter and id(o) not in known:
                raise UnsupportedError("parameter made inside", "and returned")
            for x in leaves_of(o) if isinstance(o, Tensor) else ():
                if type(x) in (Tensor, torch.nn.Parameter):
                    raise RetraceWithCaptured(o if not any(isinstance(y, Replica) for y in leaves_of(o)) else x)
                if type(x) is not Replica and type(x) is not SparseReplica:
                    raise UnsupportedError("subclass output", type(x).__name__)
        with self.tracing(), torch.set_grad_enabled(self.entry_grad):
            builder = EpilogueBuilder(self)
            self.record = builder.build(outputs, outputs[count:], changes)
            self.cuts = builder.results.cuts
        returned = zip(self.record.returns, outputs, strict=True)
        places = [(Arg(a.index), a.replica) for a in self.arguments]
        self.visible: list[tuple[Ref, Tensor]] = [(builder.objects.get(ref, ref), t) for ref, t in places]
        self.visible += [(Arg(w.index), w.replica) for w in self.wrappers]
        self.visible += [(r, o) for r, o in returned if isinstance(o, Tensor) and not isinstance(r, Constant)]
        reached = reached_leaves([a.tensor for a in self.record.attached])
        for d in self.differentiated:
            if d.requires_grad:
                d.edges += reached.get(id(d.replica), ())
        self.leaf_edges = [reached[id(x.tensor)] for x in self.record.leaves]
        return extra

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

    # -- the backward

    def trace_backward(
        self,
        seeds: Sequence[tuple[Attached, Value | Bundle]],
        targets: Sequence[Sequence[GradientEdge]],
        trained: Sequence[bool] | None,
        ends: Sequence[Any] = (),
        live: Mapping[int, tuple[StorageState, Value]] = MappingProxyType({}),
        read: Callable[[Tensor], Any] = lambda t: None,
    ) -> BackwardTrace:
        """The gradients that arrive at ``targets`` when just these tensors have (these) tangents, and what it changes.

        None where eager gives None. Nothing gets past the nodes ``ends``. Raises what eager's backward raises. The
        graph of the replicas is kept, so that other sets can be traced later, and so is all else: see Note [Writes in
        the backward]; so what gradients hold is ``read`` before it is undone. ``trained`` says which tangents require
        grad, if the gradients are to have a graph of their own.
        """
        create_graph = trained is not None
        starts = [_torch.grad_fn_of(a.tensor) for a, _ in seeds]
        results = [_edge_of(a.tensor) if a.recorded or isinstance(a.tensor, Past) else a.tensor for a, _ in seeds]
        with _torch.without_modes():
            grads_in = [self._tangent(tangent) for _, tangent in seeds]
            for t, requires_grad in zip(grads_in, trained or [False] * len(grads_in), strict=True):
                if requires_grad:
                    Tensor.requires_grad_(t)
        wanted = [(k, edge) for k, edges in enumerate(targets) for edge in edges]
        edges = [edge for _, edge in wanted]
        arrived: list[tuple[int, Tensor | None]]
        if not self.accumulates:
            with self._sandboxed(live) as sandbox:
                try:
                    with self._backward_runs(create_graph), _stopping_at(ends, starts, self.maker.kernels):
                        found = _differentiate(results, edges, grads_in, create_graph) if wanted else ()
                        if all(g is None for g in found):
                            self._run_what_leads_nowhere(seeds, results, grads_in, create_graph, ends, bool(wanted))
                        arrived = [(k, g) for (k, _), g in zip(wanted, found, strict=True)]
                        gradients = _summed(len(targets), arrived)
                    return sandbox.traced(gradients, grads_in, read)
                except RuntimeError as error:
                    if "passing an `inputs` parameter" not in str(error) or create_graph:
                        raise
                    self.accumulates = True
        with self._sandboxed(live) as sandbox:
            leaves = [r.replica if _torch.leafness(r.replica) else None for r in self.roots]
            with (
                self._backward_runs(create_graph),
                _stopping_at(ends, starts, self.maker.kernels),
                SetAside(leaves) as aside,
            ):
                behind = [e for x in reached_leaves([a.tensor for a, _ in seeds]).values() for e in x]
                found = _accumulate(results, behind, edges, grads_in)
                arrived = [(k, g) for (k, _), g in zip(wanted, found, strict=True)]
                # What a backward inside the backward accumulated went past the graph.
                gradients = _summed(len(targets), [*arrived, *enumerate(aside.accumulated())])
            return sandbox.traced(gradients, grads_in, read)

    def run_node(self, node: Any, gradient: Tensor) -> None:
        """Run one node of autograd's graph as a backward would; raises what it raises."""
        with self._sandboxed({}), self._backward_runs(create_graph=False):
            node(gradient)

    @contextlib.contextmanager
    def _sandboxed(self, live: Mapping[int, tuple[StorageState, Value]]) -> Iterator[Sandbox]:
        with Sandbox(self.tracer, live) as sandbox:
            yield sandbox

    @contextlib.contextmanager
    def _backward_runs(self, create_graph: bool) -> Iterator[None]:
        with (
            self.tracing(),
            torch.set_grad_enabled(create_graph),
            torch.autograd.set_detect_anomaly(False),
            _torch.noting_who_asks(self.maker.kernels.asked.add),
            self._substitution(),
            self.swapping(),
            self.tracer.drawing(),
        ):
            yield

    def _run_what_leads_nowhere(
        self,
        seeds: Sequence[tuple[Attached, Value | Bundle]],
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
            torch.autograd.backward(results, grads_in, retain_graph=True, create_graph=create_graph)

    def _tangent(self, tangent: Value | Bundle) -> Tensor:
        """The replica that stands for an incoming gradient."""
        if isinstance(tangent, Bundle):
            leaves = [self._tangent(x) if type(x) is Value else x for x in tangent.leaves]
            with self.tracing():
                return tangent.wrapping.build(leaves)
        assert tangent.device is not None
        if tangent.sparse is not None:
            return sparse_ops.bind(self.tracer, SparseResult(tangent.sparse), tangent, tangent.device)
        assert tangent.geometry is not None
        g = tangent.geometry
        elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device="meta")
        elem = _torch.conj_view(elem) if g.conj else elem
        elem = _torch.neg_view(elem) if g.neg else elem
        t = make_replica(elem, tangent.device, self.maker.kernels)
        self.tracer.table.bind(t, tangent)
        self.tracer.keep.append(t)
        return t

    def value_of(self, t: Tensor) -> Value:
        """The value of a replica now; nothing is dispatched."""
        return self.tracer.table.read(t)

    def as_result(self, t: Tensor | None) -> Tensor | None:
        """A gradient; one that is a leaf is replaced by a view, as it is somebody else's tensor and not a result."""
        if t is None or not t.requires_grad or not t.is_leaf:
            return t
        with self.tracing(), torch.enable_grad():
            return t.view_as(t)


def _edge_of(t: Tensor) -> GradientEdge:
    return GradientEdge(_torch.grad_fn_of(t), t.output_nr)


def _is_plain(a: Any) -> bool:
    """Whether ``a`` is a tensor with a storage of its own."""
    return isinstance(a, Tensor) and not is_wrapper(a) and not is_sparse(a)


def _snapshot(t: Tensor) -> Tensor:
    with torch.no_grad():
        if is_sparse(t):  # nothing writes it
            return t.detach()
        return t.detach().clone(memory_format=torch.preserve_format)


@contextlib.contextmanager
def _stopping_at(nodes: Sequence[Any], starts: Sequence[Any], kernels: KernelState) -> Iterator[None]:
    """Backwards from ``starts`` deliver gradients to ``nodes`` but nothing beyond.

    The engine goes on from there without any where that leads to what is asked for, and is led to otherwise too. The
    backward of a custom Function might give zeros for that, so those beyond are not run.
    """
    stopped = dict.fromkeys(nodes)
    hooks = [n.register_prehook(lambda grads: (None,) * len(grads)) for n in stopped]
    beyond = nodes_behind(stopped, set()) - (nodes_behind(starts, set(stopped)) - stopped.keys()) if stopped else ()
    custom = [n for n in beyond if isinstance(n, torch.autograd.function.BackwardCFunction)]
    for n in custom:
        _torch.skip_backward(n)
    before, kernels.stopped = kernels.stopped, stopped
    try:
        yield
    finally:
        kernels.stopped = before
        for hook in hooks:
            hook.remove()
        for n in custom:
            _torch.run_backward_again(n)


def _is_quiet(a: Tensor) -> bool:
    """Whether ``a`` is a view that autograd was not told of: it requires grad as its base does, but leads nowhere."""
    base = _torch.base_of(a)
    return _torch.leafness(a) is None or bool(base is not None and base.requires_grad and _torch.leafness(a))


def _is_lone_leaf(a: Tensor, base: Tensor, arguments: Sequence[Any]) -> bool:
    """Whether the view ``a`` is a leaf that requires grad by itself, and stays one: nobody else can write its base."""
    if not (a.requires_grad and not base.requires_grad and _torch.leafness(a)):
        return False
    return not any(b is base or (b is not a and isinstance(b, Tensor) and _torch.base_of(b) is base) for b in arguments)


def _left_leaf(a: Tensor) -> bool:
    """Whether ``a`` is a view of a leaf that requires grad and lies elsewhere than that."""
    base = _torch.base_of(a)
    if base is None or is_wrapper(base) or not a.requires_grad or _torch.leafness(base) is not True:
        return False
    there = _torch.storage_address(_torch.storage_of(base))
    return base.requires_grad and there != _torch.storage_address(_torch.storage_of(a))


def _survives_cut(a: Tensor) -> bool:
    """Whether the view ``a`` has a history that its base had no more when the call began."""
    base = _torch.base_of(a)
    return base is not None and not base.requires_grad and a.requires_grad and _torch.leafness(a) is False


def _is_custom_view(a: Tensor) -> bool:
    """Whether a custom Function made the view ``a``: its history is not that of a view."""
    return _torch.base_of(a) is not None and _torch.creation_meta(a) == _torch.CreationMeta.IN_CUSTOM_FUNCTION


def _base(a: Tensor, mode: TraceMode) -> Tensor | None:
    """The tensor of which ``a`` is a view, unless one of them has left the storage that they shared, or a custom
    Function made the view, whose backward is not the view's.
    """
    base = _torch.base_of(a)
    if _is_custom_view(a) and not mode.with_custom_views:
        return None
    if (
        base is None
        or is_wrapper(base)
        or _torch.storage_address(_torch.storage_of(base)) != _torch.storage_address(_torch.storage_of(a))
    ):
        return None
    return base


def _differentiate(
    results: Sequence[Any],
    edges: Sequence[GradientEdge],
    grads_in: Sequence[Tensor],
    create_graph: bool,
) -> tuple[Tensor | None, ...]:
    try:
        return torch.autograd.grad(
            results, edges, grads_in, retain_graph=True, allow_unused=True, create_graph=create_graph
        )
    except OutOfBounds as error:
        given = {_torch.storage_address(_torch.storage_of(x)) for t in grads_in for x in leaves_of(t)}
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


def _accumulate(
    results: Sequence[Any],
    behind: Sequence[GradientEdge],
    edges: Sequence[GradientEdge],
    grads_in: Sequence[Tensor],
) -> tuple[Tensor | None, ...]:
    """As ``_differentiate`` does, but by a backward to all leaves, which gets no further than ``edges`` and leaves.

    ``behind`` are the leaves' accumulators.
    """
    arrived: dict[Any, list[Tensor | None]] = {}

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
        torch.autograd.backward(results, grads_in, retain_graph=True)
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(arrived[e.node][e.output_nr] if e.node in arrived else None for e in edges)


def _shared_versions(arguments: Sequence[Any]) -> dict[int, Any]:
    """By id, for tensors that share a storage and for their bases: what is equal where they share a version counter."""
    by_storage: dict[int, dict[int, Tensor]] = {}
    for a in arguments:
        if _is_plain(a):
            base = _torch.base_of(a)
            base = None if is_wrapper(base) else base
            group = by_storage.setdefault(_torch.storage_address(_torch.storage_of(a)), {})
            for t in (a, base) if base is not None else (a,):
                group[id(t)] = t
    shared: dict[int, Any] = {}
    for address, group in by_storage.items():
        if len(group) > 1:
            tensors = list(group.values())
            for t, first in zip(tensors, _torch.version_groups(tensors), strict=True):
                shared[id(t)] = (address, first)
    return shared
