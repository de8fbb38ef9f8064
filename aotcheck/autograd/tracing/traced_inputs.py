"""The replicas of what a call is given: its arguments, the bases of their views, wrappers of them, generators.

Note [Roots]
An argument is a root of the trace by itself, view or not, as long as no write that autograd sees goes through it: then
gradients of aliased arguments are independent and add up in the caller's own graph. Once such a write happens to a
view, or to one of several tensors on a storage, autograd's view machinery decides who gets which gradient, so the trace
is made again with the views' bases as roots and the views replayed on them.

A view whose base went elsewhere (``base.data =``), or that did itself, is its base's view to autograd as before. It is
replayed on the base too, and then moved to where it lies, which is a root without a history of its own.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.errors import TraceMode, UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of, kept_geometry_of, recorded_geometry
from aotcheck.autograd.ops.tracer import Tracer
from aotcheck.autograd.record.steps import Arg, BaseOf, Source
from aotcheck.autograd.replicas.replica_maker import ReplicaMaker
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.replicas.sparse import SparseReplica, sparse_argument
from aotcheck.autograd.tensors.subclasses import (
    PLAIN_TYPES,
    Outer,
    WrapperArgument,
    caches_of,
    held_by,
    is_jagged,
    is_wrapper,
    outer_key,
    outer_of,
    ragged_size,
    unflattened,
)
from aotcheck.autograd.tracing.reshaped_views import reshape_as, reshape_wrapper_as


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
    inference: bool
    anchor: Tensor | None = None  # the leaf behind the replica of one that is no leaf
    edges: list[GradientEdge] = dataclasses.field(default_factory=list)  # where its gradients arrive

    @property
    def has_history(self) -> bool:
        """Whether it had a history; if gradients arrive at itself, then since it was cut from that and is a leaf."""
        return self.grad_fn is not None

    @property
    def begins_anew(self) -> bool:
        """Whether it had a history, was cut from that in place, and is a leaf that requires grad by now."""
        return self.has_history and self.replica.requires_grad and _torch.leafness(self.replica) is True

    def as_argument(self, index: int) -> TracedArgument:
        """The argument with this index, as long as its replica is as it was made."""
        r, node = self.replica, self.grad_fn
        return TracedArgument(
            index,
            self.real_is_leaf,
            r,
            self.geometry,
            self.state,
            self.version,
            self.requires_grad,
            node,
            None if node is None else GradientEdge(node, r.output_nr),
            r.is_inference(),
        )


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

    ``base`` is the argument of which it is a view, ``attributes`` what the Python object had and ``caches`` what
    dictionaries among these held. ``replayed``: its replica is a view of that argument's. ``address``: which tensor the
    Python object is. ``quiet``: it requires grad only as its base does. ``survives_cut``: it is a view whose base was
    cut from the history that it still has. ``edge`` is where its gradients arrived, if it had a history and is
    ``replayed``.
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
    caches: dict[str, dict[Any, Any]]
    replayed: bool
    address: int
    quiet: bool
    survives_cut: bool
    edge: GradientEdge | None
    edges: list[GradientEdge] = dataclasses.field(default_factory=list)  # where its gradients arrive

    @property
    def begins_anew(self) -> bool:
        """Whether it had a history, was cut from that in place, and is a leaf that requires grad by now."""
        return self.has_history and self.replica.requires_grad and _torch.leafness(self.replica) is True

    @property
    def has_history(self) -> bool:
        """Whether it had a history."""
        return self.grad_fn is not None


class TracedInputs:
    """The inputs of one call and their replicas, as they are before the function runs."""

    def __init__(
        self,
        arguments: Sequence[Any],
        wrappers: Sequence[WrapperArgument],
        mode: TraceMode,
        maker: ReplicaMaker,
        tracer: Tracer,
        counts_apart: bool = True,
    ) -> None:
        self._mode = mode
        self._counts_apart = counts_apart  # see Note [Counting together]
        self._maker = maker
        self._tracer = tracer
        self.roots: list[TracedRoot] = []
        self.arguments: list[TracedArgument] = []
        self.wrappers: list[TracedWrapper] = []
        self.replicas: dict[int, Tensor] = {}  # id of the real tensor -> replica
        self.memories: dict[int, Tensor] = {}  # id of a view whose base lies elsewhere -> a tensor where it lies
        self.generators: list[tuple[int, torch.Generator]] = []  # argument -> its stand-in
        self.flat: list[Any] = list(arguments)  # what the function is given
        none = [False] * len(arguments)
        self.is_outdated = none  # of views: autograd has not looked for the history of the last write yet
        self.is_left = none
        self.is_view = none
        # Of these, which requires grad while its base does not: a view made of it quietly requires none either.
        self.requires_alone = none
        self.of_leaves: list[int] = []  # eager refuses to write these under grad, wherever they lie by now
        self.odd_wrappers: set[int] = set()
        self.is_row = none
        self.is_custom_view = none
        self._has_views = any(map(_is_related, arguments))
        if self._has_views:
            self._look_at_views(arguments, mode)
        self._make_roots(arguments, wrappers)
        self._make_generators(arguments)
        for k, is_outdated in enumerate(self.is_outdated if self._has_views else ()):
            if is_outdated:
                _torch.outdate_history(arguments[k])

    def _look_at_views(self, arguments: Sequence[Any], mode: TraceMode) -> None:
        """What there is to know of views, and of wrappers."""
        self.is_outdated = [_is_plain(a) and _torch.waits_for_history(a) for a in arguments]
        self.is_left = [_is_plain(a) and _is_left(a) for a in arguments]
        self.is_view = [_is_plain(a) and (_is_left(a) or _base(a, mode) is not None) for a in arguments]
        self.requires_alone = [
            view and a.requires_grad and (base := _torch.base_of(a)) is not None and not base.requires_grad
            for view, a in zip(self.is_view, arguments, strict=True)
        ]
        self.of_leaves = [
            i for i, a in enumerate(arguments) if (_left_leaf(a) if _is_plain(a) else _is_wrapper_of_leaf(a))
        ]
        self.odd_wrappers = {i for i, a in enumerate(arguments) if is_wrapper(a) and _is_odd_view_of_plain(a)}
        self.is_row = [_is_plain(a) and _is_view_of_ragged(a) for a in arguments]
        self.is_custom_view = [_is_plain(a) and _is_custom_view(a) for a in arguments]

    def outdate(self) -> None:
        """Let autograd look for histories anew, if the trace's mode says so, where it has yet to of real views."""
        for a in self.arguments if self._mode.with_outdated else ():
            if self.is_outdated[a.index] and _torch.base_of(a.replica) is not None:
                _torch.outdate_history(a.replica)

    def _make_roots(self, arguments: Sequence[Any], wrappers: Sequence[WrapperArgument]) -> None:
        views: list[int] = []
        plain = [_is_plain(a) for a in arguments]
        tensors = [a for a, is_plain in zip(arguments, plain, strict=True) if is_plain]
        self._versions = _shared_versions(tensors, self._has_views, self._counts_apart)
        with _torch.without_modes():
            for i, a in enumerate(arguments):
                if not plain[i]:
                    if is_sparse(a):
                        self._root(a, Arg(i))
                    continue
                if not self._has_views:
                    self._root(a, Arg(i))
                    continue
                based = self._mode.with_bases or _is_quiet(a)
                left = based and self.is_left[i]
                base = _torch.base_of(a) if left else _base(a, self._mode) if based else None
                if base is not None and id(a) not in self.replicas:
                    self._root(base, BaseOf(i))
                    views.append(i)
                    if left and id(a) not in self.memories:
                        memory = self._maker.plain(a)
                        self.memories[id(a)] = self._add_root(a, Arg(i), memory).replica
                else:
                    self._root(a, Arg(i))
        if self._has_views:
            self._replay_views(arguments, views)
        if wrappers:
            self._make_wrappers(arguments, wrappers)
        for i, a in enumerate(arguments):
            if plain[i] or isinstance(a, Tensor):
                self.flat[i] = self.replicas[id(a)]
        as_made = not (self._has_views or wrappers or self._versions)  # nothing befell one when another was made
        roots = {id(root.replica): root for root in self.roots} if as_made else {}
        seen: set[int] = set()
        for i, a in enumerate(arguments):
            if (plain[i] or is_sparse(a)) and id(a) not in seen:
                seen.add(id(a))
                r = self.replicas[id(a)]
                known = roots.get(id(r))
                self.arguments.append(self._argument(i, a, r) if known is None else known.as_argument(i))
        for root in () if as_made else self.roots:
            root.version = _torch.version_of(root.replica)
            root.grad_fn = root.replica.grad_fn

    def _argument(self, i: int, a: Tensor, r: Tensor) -> TracedArgument:
        """Argument ``i`` and its replica, as that is by now."""
        state, node = self._tracer.table.state(r), _torch.grad_fn_of(r)
        return TracedArgument(
            i,
            _torch.leafness(a),
            r,
            kept_geometry_of(r),
            state,
            _torch.version_of(r),
            r.requires_grad,
            node,
            None if node is None else GradientEdge(node, r.output_nr),
            r.is_inference(),
        )

    def _replay_views(self, arguments: Sequence[Any], views: Sequence[int]) -> None:
        """The replicas of ``views``, made of those of their bases, and of what eager refuses to write."""
        refused = {id(a): a for a in arguments if _is_plain(a) and _torch.leafness(a) is None}.values()
        with self._tracer.recording() if views or refused else contextlib.nullcontext():
            for i in views:
                a = arguments[i]
                if id(a) not in self.replicas:
                    self.replicas[id(a)] = self._replay_in_time(a)
            for a in refused:
                if any(r.replica is self.replicas[id(a)] for r in self.roots):
                    self.replicas[id(a)] = self._refused_view(self.replicas[id(a)])

    def _make_wrappers(self, arguments: Sequence[Any], wrappers: Sequence[WrapperArgument]) -> None:
        """Wrappers of the same classes on replicas, each after what it is made from."""
        reals = list({id(arguments[w.index]): arguments[w.index] for w in wrappers}.values())
        groups = _torch.version_groups(reals)
        self._counters = {id(t): first for t, first in zip(reals, groups, strict=True) if groups.count(first) > 1}
        left = {w.index: w for w in wrappers}
        while left:
            self._make_wrapper(next(iter(left.values())), left, arguments)
        for w in wrappers:
            real = arguments[w.index]
            r = self.replicas[id(real)]
            replayed = self._replays(w, arguments)  # then its gradients go to its base, if that was not cut since
            node = _torch.grad_fn_of(r)
            own = None if node is None else GradientEdge(node, r.output_nr)
            is_end = own is not None and (not replayed or _survives_cut(real))
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
                    {name: dict(cache) for name, cache in caches_of(r).items()},
                    replayed,
                    _torch.tensor_address(r),
                    _is_quiet(real),
                    _survives_cut(real),
                    None if is_end else own,
                    edges=[own] if own is not None and is_end else [],
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
        if not replayed:
            r = self._wrap(real, inner)
        else:
            with self._when_made(real):
                r = self._replay_wrapper(real, inner)
        self.replicas[id(real)] = r

    def _counting(self, real: Tensor, r: Tensor) -> Tensor:
        """``r``, or a wrapper like it that counts versions with the replica of what ``real`` does that with."""
        group = self._counters.get(id(real))
        known = [t for t, first in self._counters.items() if first == group and t in self.replicas]
        if group is None or not known:
            return r
        made = self.replicas[known[0]].detach()
        if type(made) is not type(r) or made.is_inference() != r.is_inference():
            return r
        _torch.set_data(made, r)
        for name, value in vars(r).items():
            setattr(made, name, value)
        return made

    def _replays(self, w: WrapperArgument, arguments: Sequence[Any]) -> bool:
        """Whether ``w`` is made as a view of another wrapper, or if it is ragged of the plain tensor behind it."""
        if w.base is None or not (is_wrapper(arguments[w.base]) or is_jagged(arguments[w.index])):
            return False
        return self._mode.with_bases or _is_quiet(arguments[w.index])

    def _wrap(self, real: Any, inner: dict[str, Tensor]) -> Tensor:
        _, context = held_by(real)
        with torch.inference_mode(real.is_inference()), torch.no_grad(), self._tracer.recording():
            r = self._counting(real, unflattened(type(real), inner, context, outer_of(real)))
        if r.requires_grad and r.is_leaf:
            r.requires_grad_(False)
        if isinstance(real, torch.nn.Parameter):
            r._is_param = True
        if _torch.base_of(real) is not None:
            self._maker.kernels.stand_for_views[id(r)] = _torch.creation_meta(real)
        if real.requires_grad:
            if _torch.leafness(real) is not False:
                r.requires_grad_()
            else:
                self._maker.give_history(r)
        return r

    def _replay_wrapper(self, real: Any, inner: dict[str, Tensor]) -> Tensor:
        """The view ``real`` made again on its base's replica; it holds the replicas of what ``real`` holds."""
        base = _torch.base_of(real)
        how = _torch.creation_meta(real)
        inference = how == _torch.CreationMeta.INFERENCE_MODE
        grad = how != _torch.CreationMeta.NO_GRAD_MODE
        with torch.inference_mode(inference), torch.set_grad_enabled(grad), self._tracer.recording():
            if is_wrapper(base):
                r = _torch.view_func_of(real)(self.replicas[id(base)])
            else:
                r = self._ragged_view(real, self.replicas[id(base)], inner)
        if outer_key(r) != outer_key(real):
            reshape_wrapper_as(real, r, self.replicas[id(base)])
        for name, t in inner.items():
            setattr(r, name, t)
        if how not in (_torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE):
            _torch.set_creation_meta(r, how)
        if _torch.leafness(real) is None:
            _torch.count_write(self.replicas[id(base)])
        elif not is_wrapper(base) and _torch.leafness(real) and _torch.requires_grad_by_itself(real):
            r.requires_grad_()
        return r

    def _ragged_view(self, real: Any, base: Tensor, inner: dict[str, Tensor]) -> Tensor:
        """The ragged ``real`` made again as a view of the plain ``base``, among the replicas of what it holds."""
        held, context = held_by(real)
        others = {id(t): inner[name] for name, t in held}

        def size() -> Any:
            with torch.no_grad():
                return ragged_size(unflattened(type(real), inner, context, outer_of(real)))

        return _torch.view_among(real, base, others, functools.cache(size))

    def _make_generators(self, arguments: Sequence[Any]) -> None:
        """Stand-ins for the call's generators, so that tracing advances none; the graph gets the real ones."""
        made: dict[int, torch.Generator] = {}
        for i, a in enumerate(arguments):
            if isinstance(a, torch.Generator):
                if id(a) not in made:
                    stand_in = made[id(a)] = torch.Generator(a.device)
                    stand_in.set_state(a.get_state())
                    self._tracer.generator(stand_in)
                    self.generators.append((i, stand_in))
                self.flat[i] = made[id(a)]

    def _root(self, real: Tensor, source: Source) -> None:
        if id(real) in self.replicas:
            return
        versions = self._versions.get(id(real))
        r = sparse_argument(self._maker, real) if is_sparse(real) else self._maker.root(real, versions)
        self.replicas[id(real)] = r
        if _torch.base_of(real) is not None:
            self._maker.kernels.stand_for_views[id(r)] = _torch.creation_meta(real)
        root = self._add_root(real, source, r)
        if r.grad_fn is not None:
            root.anchor = self._maker.anchors[-1]
            root.edges.append(GradientEdge(r.grad_fn, r.output_nr))

    def _add_root(self, real: Tensor, source: Source, r: Replica) -> TracedRoot:
        """Let ``r`` hold what the call brings in ``real``, which it finds by way of ``source``."""
        table = self._tracer.table
        geometry = kept_geometry_of(r)
        value = self._tracer.trace.placeholder(geometry, real.device)
        state = table.bind_sparse(r, value) if isinstance(r, SparseReplica) else table.bind(r, value, geometry).state
        if state.source is None:
            state.source = source
        root = TracedRoot(
            source,
            _torch.leafness(real),
            r.requires_grad,
            r,
            geometry,
            state,
            _torch.version_of(r),
            r.grad_fn,
            value,
            real.is_inference(),
        )
        self.roots.append(root)
        return root

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
            g, there = geometry_of(real), self.replicas[id(base)]
            if id(real) in self.memories and recorded_geometry(base).shape != base.shape:
                # Of what its base now is, autograd makes a window once it was written, however little that has.
                fits = g.elements_reached * g.dtype.itemsize <= _torch.storage_of(there).nbytes()
                r = there.as_strided(g.shape, g.stride, g.offset) if fits else there.view(there.shape)
            else:
                try:
                    made = self._made_as(real, base)
                    r = _torch.view_func_of(real)(there) if made is None else made
                    if geometry_of(r) != g and id(real) not in self.memories:
                        reshape_as(real, r, there, self._maker.plain(real))
                except RuntimeError as error:
                    if id(real) in self.memories and _torch.leafness(real) is not False:
                        r = self.replicas[id(base)].view(base.shape)  # it has no history, and lies elsewhere
                    elif isinstance(error, UnsupportedError):
                        raise
                    else:
                        raise UnsupportedError("view of a base that has changed", str(error)) from error
        if id(real) in self.memories:
            with _torch.without_modes():
                _torch.set_data(r, self.memories[id(real)])
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
        elif _torch.leafness(real) and _torch.requires_grad_by_itself(real):
            with torch.inference_mode(r.is_inference()):
                r.requires_grad_()
        return r

    def _made_as(self, real: Tensor, base: Tensor) -> Tensor | None:
        """The view ``real`` made by the ops that made it, so that gradients go through it in the same way.

        A view of its base that is just like it would copy them where the op gives a view of them.
        """
        r = self.replicas[id(base)]
        ops = _torch.ops_of_view(real) if base.requires_grad and torch.is_grad_enabled() else None
        if ops is None:
            return None
        for op, args in ops:
            r = op(r, *args)
        # What was given other data has its history by the geometry that it had.
        return r if geometry_of(r) == geometry_of(real) or id(real) in self.memories else None

    def _replay_in_time(self, real: Tensor) -> Tensor:
        """The view ``real`` made again on its base's replica as that was when it was made."""
        with self._when_made(real):
            return self._replay(real)

    def _when_made(self, real: Tensor) -> contextlib.AbstractContextManager[None]:
        """Inside, the replica of the base of the view ``real`` has the history that the base had when it was made."""
        base = self.replicas[id(_torch.base_of(real))]
        if _survives_cut(real):
            return self._before_the_cut(base)
        if _is_quiet(real) and _torch.creation_meta(real) == _torch.CreationMeta.DEFAULT and _torch.leafness(base):
            return _before_required(base)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _before_the_cut(self, base: Tensor) -> Iterator[None]:
        """Inside, ``base`` has the history from which it was cut."""
        version = _torch.version_of(base)
        with _torch.without_modes():
            self._maker.give_history(base)
        _torch.set_version(base, version)
        yield
        with _torch.meta_kernels() if is_wrapper(base) else contextlib.nullcontext():
            Tensor.detach_(base)

    def _refused_view(self, root: Tensor) -> Tensor:
        """A tensor in the place of ``root`` whose history autograd refuses to say, as it does of the real one, which
        left the storage of its base.
        """
        with torch.no_grad():
            r = root.view(root.shape)
        _torch.count_write(root)
        return r


@contextlib.contextmanager
def _before_required(base: Tensor) -> Iterator[None]:
    """Inside, the leaf ``base`` does not require grad yet."""
    with torch.inference_mode(base.is_inference()):
        Tensor.requires_grad_(base, False)
    yield
    with torch.inference_mode(base.is_inference()):
        Tensor.requires_grad_(base)


def _is_plain(a: Any) -> bool:
    """Whether ``a`` is a tensor with a storage of its own."""
    if not isinstance(a, Tensor) or (type(a) not in PLAIN_TYPES and is_wrapper(a)):
        return False
    return not is_sparse(a)


def _is_related(a: Any) -> bool:
    """Whether ``a`` is a view, or a wrapper."""
    if not isinstance(a, Tensor):
        return False
    return _torch.base_of(a) is not None or (type(a) not in PLAIN_TYPES and is_wrapper(a))


def _is_quiet(a: Tensor) -> bool:
    """Whether ``a`` is a view that autograd was not told of: it requires grad as its base does, but leads nowhere."""
    return _torch.leafness(a) is None or (a.requires_grad and not _torch.requires_grad_by_itself(a))


def _left_leaf(a: Tensor) -> bool:
    """Whether ``a`` is a view of a leaf that requires grad and lies elsewhere than that."""
    base = _torch.base_of(a)
    if base is None or is_wrapper(base) or not a.requires_grad or _torch.leafness(base) is not True:
        return False
    there = _torch.storage_address(_torch.storage_of(base))
    return base.requires_grad and there != _torch.storage_address(_torch.storage_of(a))


def _is_left(a: Tensor) -> bool:
    """Whether ``a`` is a view whose base lies elsewhere by now: both have a history, or ``a`` has none.

    Not if the base has become too small to give the history.
    """
    base = _torch.base_of(a)
    if base is None or is_wrapper(base) or _is_custom_view(a):
        return False
    storage = _torch.storage_of(base)
    if _torch.storage_address(storage) == _torch.storage_address(_torch.storage_of(a)):
        return False
    if _torch.leafness(a) is not False:
        return True
    if _torch.leafness(base) is not False:
        return False  # its gradients go by the history it has, whatever shape the leaf has by now
    if recorded_geometry(base).shape == base.shape and _torch.ops_of_view(a) is not None:
        return True
    window = geometry_of(a)
    return window.elements_reached * window.dtype.itemsize <= storage.nbytes()


def _survives_cut(a: Tensor) -> bool:
    """Whether the view ``a`` has a history that its base had no more when the call began."""
    base = _torch.base_of(a)
    return base is not None and not base.requires_grad and a.requires_grad and _torch.leafness(a) is False


def _is_odd_view_of_plain(a: Tensor) -> bool:
    """Whether the wrapper ``a`` is a view of a plain tensor that eager refuses to write under grad, as ragged ones."""
    base = _torch.base_of(a)
    return base is not None and not is_wrapper(base) and _torch.creation_meta(a) != _torch.CreationMeta.DEFAULT


def _is_view_of_ragged(a: Tensor) -> bool:
    """Whether the plain ``a`` is a view of a ragged tensor, whose history autograd cannot look for anew."""
    base = _torch.base_of(a)
    return base is not None and is_wrapper(base) and is_jagged(base)


def _is_wrapper_of_leaf(a: Any) -> bool:
    """Whether ``a`` is a wrapper that requires grad and is a view of a plain leaf, as views of ragged leaves are."""
    if not is_wrapper(a) or not a.requires_grad:
        return False
    base = _torch.base_of(a)
    return base is not None and not is_wrapper(base) and _torch.leafness(base) is True


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


def _shared_versions(arguments: Sequence[Tensor], has_views: bool, counts_apart: bool) -> dict[int, Any]:
    """By id, for tensors that share a version counter, bases included: what is equal where they do.

    They may have left the storage that they shared. ``has_views``: whether there may be views among them.
    ``counts_apart``: see Note [Counting together].
    """
    known: dict[int, Tensor] = {}
    for a in arguments:
        known[id(a)] = a
        base = _torch.base_of(a) if has_views else None
        if base is not None and not is_wrapper(base):
            known[id(base)] = base
    tensors = list(known.values())
    storages = {_torch.storage_address(_torch.storage_of(t)) for t in tensors}
    views = has_views and any(_torch.base_of(t) is not None for t in tensors)
    if counts_apart and len(storages) == len(tensors) and not views:
        return {}
    groups = _torch.counted_by(tensors, tensors)
    sizes = collections.Counter(groups)
    return {id(t): k for t, k in zip(tensors, groups, strict=True) if k is not None and sizes[k] > 1}
