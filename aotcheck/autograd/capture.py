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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.epilogue import EpilogueBuilder
from aotcheck.autograd.errors import RetraceWithCaptured, TraceMode, UnsupportedError
from aotcheck.autograd.partition.components import reached_leaves, saved_tensors
from aotcheck.autograd.record import Arg, Attached, BaseOf, Constant, Record, Ref, Source
from aotcheck.autograd.replicas import Replica, ReplicaMaker, make_replica
from aotcheck.autograd.storage import StorageState
from aotcheck.autograd.trace import Geometry, Value, geometry_of
from aotcheck.autograd.tracer import Tracer, exchange


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
    edges: list[GradientEdge] = dataclasses.field(default_factory=list)  # where its gradients arrive


@dataclasses.dataclass
class TracedArgument:
    """A tensor argument, once however often it is passed, with what was true of its replica before the function ran."""

    index: int
    real_is_leaf: bool | None
    replica: Tensor
    geometry: Geometry
    state: StorageState
    version: int
    requires_grad: bool
    grad_fn: Any


class Substitution(_torch.FunctionMode):
    """Gives the function replicas in place of the captured tensors it meets."""

    def __init__(self, replicas: dict[int, Any]) -> None:
        super().__init__()
        self.replicas = replicas

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[self._swap(a) for a in args], **{k: self._swap(a) for k, a in (kwargs or {}).items()})

    def _swap(self, a: Any) -> Any:
        if isinstance(a, (Tensor, torch.Generator)):
            return self.replicas.get(id(a), a)
        if type(a) in (list, tuple):
            return type(a)(self._swap(x) for x in a)
        return a


class Capture:
    """A traced call: the replicas with their autograd graph, the functional trace, and the record.

    Kept for backwards cut later.
    """

    def __init__(self, arguments: Sequence[Any], mode: TraceMode, together: bool = False, hooks: bool = False) -> None:
        self.mode = mode
        self.hooks = hooks  # whether default saved-tensor hooks are in force around the call
        self.together = together  # whether all results are attached to autograd by one Function
        self.entry_grad = torch.is_grad_enabled()
        self.entry_inference = torch.is_inference_mode_enabled()
        self.maker = ReplicaMaker()
        self.tracer = Tracer(self.maker.kernels)
        self.roots: list[TracedRoot] = []
        self.arguments: list[TracedArgument] = []
        self.replicas: dict[int, Tensor] = {}  # id of the real tensor -> replica
        self.generators: list[tuple[int, torch.Generator]] = []  # argument -> its stand-in
        self.flat_replicas: list[Any] = list(arguments)
        self.record: Record
        self.is_view = [isinstance(a, Tensor) and _base(a, mode) is not None for a in arguments]
        self.is_custom_view = [isinstance(a, Tensor) and _is_custom_view(a) for a in arguments]
        self._make_roots(arguments)
        self._make_generators(arguments)
        self.entry_nbytes = {id(r.state): r.state.nbytes for r in self.roots}
        self.passed = {a.index: a.replica for a in self.arguments}  # the objects, whichever tensors they are by the end
        self.maker.kernels.on_swap = self._swapped

    def _swapped(self, a: Tensor, b: Tensor) -> None:
        """See ``Tracer.swap``."""
        self.tracer.swap(a, b)
        kernels = self.maker.kernels
        exchange(kernels.detached, id(a), id(b))
        exchange(kernels.required, id(a), id(b))
        exchange(kernels.moved, id(a), id(b))
        known: list[TracedRoot | TracedArgument] = [*self.roots, *self.arguments]
        for k in known:
            k.replica = b if k.replica is a else a if k.replica is b else k.replica

    # -- before

    def _make_roots(self, arguments: Sequence[Any]) -> None:
        views: list[int] = []
        self._versions = _shared_versions(arguments)
        with _torch.without_modes():
            for i, a in enumerate(arguments):
                if not isinstance(a, Tensor):
                    continue
                base = _base(a, self.mode) if self.mode.with_bases or _is_quiet(a) else None
                if base is not None and id(a) not in self.replicas:
                    self._root(base, BaseOf(i))
                    views.append(i)
                else:
                    self._root(a, Arg(i))
        with self._tracing():
            for i in views:
                a = arguments[i]
                if id(a) not in self.replicas:
                    self.replicas[id(a)] = self._replay(a)
        for i, a in enumerate(arguments):
            if isinstance(a, Tensor):
                self.flat_replicas[i] = self.replicas[id(a)]
        seen: set[int] = set()
        for i, a in enumerate(arguments):
            if isinstance(a, Tensor) and id(a) not in seen:
                seen.add(id(a))
                r = self.replicas[id(a)]
                state = self.tracer.table.state(r)
                self.arguments.append(
                    TracedArgument(
                        i,
                        _torch.leafness(a),
                        r,
                        geometry_of(r),
                        state,
                        _torch.version_of(r),
                        r.requires_grad,
                        _torch.grad_fn_of(r),
                    )
                )
        for root in self.roots:
            root.version = _torch.version_of(root.replica)
            root.grad_fn = root.replica.grad_fn

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
        r = self.maker.root(real, self._versions.get(id(real)))
        self.replicas[id(real)] = r
        value = self.tracer.trace.placeholder("", geometry_of(r), real.device)
        state = self.tracer.table.state(r)
        self.tracer.table.bind(r, value)
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
            root.edges.append(GradientEdge(r.grad_fn, r.output_nr))
        self.roots.append(root)

    def _replay(self, real: Tensor) -> Tensor:
        base = _torch.base_of(real)
        assert base is not None
        how = _torch.creation_meta(real)
        no_grad = how == _torch.CreationMeta.NO_GRAD_MODE
        inference = how == _torch.CreationMeta.INFERENCE_MODE
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
        return r

    @contextlib.contextmanager
    def _tracing(self) -> Any:
        with torch.autograd.set_multithreading_enabled(False), self.tracer:
            yield

    @contextlib.contextmanager
    def _function_runs(self) -> Iterator[None]:
        self.maker.kernels.function_runs = True
        try:
            yield
        finally:
            self.maker.kernels.function_runs = False

    def _saving(self) -> contextlib.AbstractContextManager[Any]:
        """What the call's saved-tensor hooks do to the trace: what is saved is what it is when it is saved.

        The hooks themselves see what the compiled Functions save.
        """
        if not self.hooks:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(_snapshot, lambda t: t)

    # -- the pass

    def run(
        self, function: Callable[[Sequence[Any]], tuple[list[Any], Any]], captured: Sequence[tuple[Tensor, int]]
    ) -> Any:
        """Run ``function`` on the replicas and build the record. Returns what ``function`` says beside its flat
        outputs.

        ``captured`` pairs each tensor that the function reaches by itself with the index under which it was made an
        argument.
        """
        substitution = (
            Substitution({id(real): self.flat_replicas[i] for real, i in captured})
            if captured
            else contextlib.nullcontext()
        )
        seed_before = torch.get_rng_state()
        own_before = [g.get_state() for _, g in self.generators]
        try:
            with self._tracing(), substitution, self._saving(), self._function_runs():
                outputs, extra = function(self.flat_replicas)
            self.exit_grad = torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(self.entry_grad)
        if not torch.equal(seed_before, torch.get_rng_state()):
            torch.set_rng_state(seed_before)
            raise UnsupportedError("seeding inside the function", "the generator's state changed while tracing")
        if not all(torch.equal(b, g.get_state()) for b, (_, g) in zip(own_before, self.generators, strict=True)):
            raise UnsupportedError("seeding inside the function", "a generator's state is set inside")
        mapped = {id(real): self.flat_replicas[i] for real, i in captured}
        outputs = [mapped.get(id(o), o) for o in outputs]
        for o in outputs:
            if isinstance(o, Tensor) and type(o) is not Replica:
                if type(o) in (Tensor, torch.nn.Parameter):
                    raise RetraceWithCaptured(o)
                raise UnsupportedError("subclass output", type(o).__name__)
        with self._tracing(), torch.set_grad_enabled(self.entry_grad):
            builder = EpilogueBuilder(self)
            self.record = builder.build(outputs)
            self.cuts = builder.results.cuts
        returned = zip(self.record.returns, outputs, strict=True)
        self.visible: list[tuple[Ref, Tensor]] = [(Arg(a.index), a.replica) for a in self.arguments]
        self.visible += [(r, o) for r, o in returned if isinstance(o, Tensor) and not isinstance(r, Constant)]
        reached = reached_leaves([a.tensor for a in self.record.attached])
        for root in self.roots:
            if root.requires_grad:
                root.edges += reached.get(id(root.replica), ())
        self.leaf_edges = [reached[id(x.tensor)] for x in self.record.leaves]
        return extra

    def recounted(self) -> set[Value]:
        """Placeholders whose version the epilogue moves: what is saved of them counts versions by itself."""
        changed = {id(a.state) for a in self.arguments if _torch.version_of(a.replica) != a.version}
        changed |= {id(r.state) for r in self.roots if _torch.version_of(r.replica) != r.version}
        return {r.placeholder for r in self.roots if id(r.state) in changed}

    # -- the backward

    def trace_backward(
        self,
        seeds: Sequence[tuple[Attached, Value]],
        targets: Sequence[Sequence[GradientEdge]],
        create_graph: bool,
        ends: Sequence[Any] = (),
    ) -> tuple[list[Tensor | None], list[Tensor]]:
        """The gradients that arrive at ``targets`` when just these tensors have (these) tangents, and the tangents.

        None where eager gives None. Nothing gets past the nodes ``ends``. Raises what eager's backward raises. The
        graph of the replicas is kept, so that other sets can be traced later. With ``create_graph`` the gradients have
        a graph of their own.
        """
        results: list[Tensor] = []
        grads_in: list[Tensor] = []
        with _torch.without_modes():
            for attached, tangent in seeds:
                assert tangent.geometry is not None
                g = tangent.geometry
                elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device="meta")
                t = make_replica(elem, attached.device, self.maker.kernels)
                if create_graph:
                    Tensor.requires_grad_(t)
                self.tracer.table.bind(t, tangent)
                self.tracer.keep.append(t)
                results.append(attached.tensor)
                grads_in.append(t)
        wanted = [(k, edge) for k, edges in enumerate(targets) for edge in edges]
        gradients: list[Tensor | None] = [None] * len(targets)
        effects = len(self.tracer.trace.effects)
        before = [(r.state, r.state.version) for r in self.roots]
        with (
            self._tracing(),
            torch.set_grad_enabled(create_graph),
            torch.autograd.set_detect_anomaly(False),
            _stopping_at(ends),
        ):
            found = () if not wanted else _differentiate(results, [edge for _, edge in wanted], grads_in, create_graph)
            for (k, _), gradient in zip(wanted, found, strict=True):
                if gradient is not None:
                    known = gradients[k]
                    gradients[k] = gradient if known is None else known + gradient
        if all(g is None for g in gradients):
            # The engine skips nodes that lead to no root; eager runs them, and they raise if what they saved was
            # written, or if they are there to raise.
            for attached, _ in seeds:
                saved_tensors(attached.tensor, ())
            others = [e for edges in reached_leaves(results).values() for e in edges if e.node not in ends]
            if others and not wanted:
                with self._tracing(), torch.set_grad_enabled(create_graph), _stopping_at(ends):
                    _differentiate(results, others, grads_in, create_graph)
        if len(self.tracer.trace.effects) != effects:
            raise UnsupportedError(
                "random op in the backward", "numbers drawn in the backward are not functionalized yet"
            )
        if any(state.version != version for state, version in before):
            raise UnsupportedError("mutation in the backward", "the backward writes an input")
        return gradients, grads_in

    def value_of(self, t: Tensor) -> Value:
        """The value of a replica now, found while no tracing goes on."""
        with self._tracing():
            return self.tracer.table.read(t)

    def as_result(self, t: Tensor | None) -> Tensor | None:
        """A gradient; one that is a leaf is replaced by a view, as it is somebody else's tensor and not a result."""
        if t is None or not t.requires_grad or not t.is_leaf:
            return t
        with self._tracing(), torch.enable_grad():
            return t.view_as(t)


def _snapshot(t: Tensor) -> Tensor:
    with torch.no_grad():
        return t.detach().clone(memory_format=torch.preserve_format)


@contextlib.contextmanager
def _stopping_at(nodes: Sequence[Any]) -> Iterator[None]:
    """Backwards deliver gradients to ``nodes`` but nothing beyond."""
    hooks = [n.register_prehook(lambda grads: (None,) * len(grads)) for n in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_quiet(a: Tensor) -> bool:
    """Whether ``a`` is a view that autograd was not told of: it requires grad as its base does, but leads nowhere."""
    base = _torch.base_of(a)
    return _torch.leafness(a) is None or bool(base is not None and base.requires_grad and _torch.leafness(a))


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
    if base is None or _torch.storage_address(_torch.storage_of(base)) != _torch.storage_address(_torch.storage_of(a)):
        return None
    return base


def _differentiate(
    results: Sequence[Tensor], edges: Sequence[GradientEdge], grads_in: Sequence[Tensor], create_graph: bool
) -> tuple[Tensor | None, ...]:
    try:
        return torch.autograd.grad(
            results, edges, grads_in, retain_graph=True, allow_unused=True, create_graph=create_graph
        )
    except RuntimeError as error:
        if "is out of bounds of its storage" in str(error):
            # A formula strides over a gradient whose layout in eager is another than the one foretold for it.
            raise UnsupportedError("backward depends on the layout of a gradient", str(error)) from error
        raise


def _shared_versions(arguments: Sequence[Any]) -> dict[int, Any]:
    """By id, for tensors that share a storage and for their bases: what is equal where they share a version counter."""
    by_storage: dict[int, dict[int, Tensor]] = {}
    for a in arguments:
        if isinstance(a, Tensor):
            base = _torch.base_of(a)
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
