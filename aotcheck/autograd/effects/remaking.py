"""How tensors that the graph does not return are made again: windows on storages, and views by what made them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.attaching import Attaching
from aotcheck.autograd.effects.holders import Holders
from aotcheck.autograd.effects.views import (
    as_if_required,
    counts_as_inference,
    differentiable_dtype,
    has_earlier_history,
    has_history,
    is_new_leaf,
    is_odd,
    is_of_function,
    leads_by_views_to,
    never_counts,
    node_leads_to,
)
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.record.steps import (
    Arg,
    BumpVersion,
    GiveHistory,
    Hold,
    Local,
    NoteVersion,
    PickView,
    PointAt,
    Ref,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Reshape,
    Result,
    SetCreationMeta,
    Step,
    Way,
    WindowOn,
)
from aotcheck.autograd.replicas.windows import UNSAFE_VIEWS, Derivation, ReplayInTurn, ReplayReshaped, Reshaping
from aotcheck.autograd.runtime.replays import lie_apart, replay_lying, replay_with_room
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedRoot

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


aten = torch.ops.aten
_DEFAULT, _UNDER_NO_GRAD = _torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE
_UNDER_INFERENCE = _torch.CreationMeta.INFERENCE_MODE
_OF_FUNCTION, _OF_SEVERAL = _torch.CreationMeta.IN_CUSTOM_FUNCTION, _torch.CreationMeta.MULTI_OUTPUT_NODE


class Remaking(Attaching, Holders):
    """Gives tensors names, and with them the steps that make them."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.is_made_of_wrapper: Callable[[Tensor, Local | None], bool] = lambda t, history: False
        self._writes_follow = False  # whether what is made now is made before anything is written
        self._several: dict[Any, Local] = {}  # where the views are that one op made, by when, of what and in which mode
        self._versions: dict[int, Local] = {}  # id of an argument's replica -> its version when the call began
        self._made_at: dict[int, Local] = {}  # id of a view -> the version at which it is made, if not at the last
        self._making: set[int] = set()  # ids of what has a name while the steps that make it are being found
        self._histories: dict[int, Local] = {}  # id of a replica -> the stand-in that has its history

    def find_histories(self) -> None:
        """Find the tensors, neither arguments nor graph outputs, whose history no op made again would give them."""
        for t, base in list(self.tensors.values()):
            known = id(t) in self.names or id(t) in self.makers or id(t) in self._histories
            if known or not has_history(t) or not differentiable_dtype(t):
                continue
            if _torch.leafness(t) is None:  # autograd refuses to say which history it is
                continue
            cut = base is not None and self._was_cut(t, base)  # by detach_, which left its views their histories
            earlier = base is not None and has_earlier_history(t, base)
            current = self._current(t) is not None
            given = base is not None and not self._replayable(t, base) if current else is_of_function(t)
            if base is None or cut or earlier or given or self._outlives_its_source(t):
                self._histories[id(t)] = self.stand_in(t)

    def _was_cut(self, t: Tensor, base: Tensor) -> bool:
        """Whether the view ``t`` has a history from which ``base`` was cut, be that a leaf by now."""
        if not base.requires_grad:
            return True
        again = id(base) in self.kernels.detached and is_new_leaf(base) and bool(self.lasting(t))
        return again and not leads_by_views_to(self.node_before_changes(t), base)

    def name(self, t: Tensor) -> Ref:
        """Where the epilogue has the real tensor for ``t``; the first time this adds the steps that make it."""
        named = self.names.get(id(t))
        if named is not None:
            if self._stage is self.steps:
                self.attach_now(t)
            return named
        if id(t) in self.makers:
            made = self.makers[id(t)]()
            if self._stage is self.steps:
                self.attach_now(t)
            return made
        if id(t) in self.tracer.plain_views and self.is_made_of_wrapper(t, self._histories.get(id(t))):
            return self.name(t)
        _, base = self.tensors[id(t)]
        local = self.names[id(t)] = self.local()
        self._making.add(id(t))
        if base is None:
            self._stage += self._window(local, t)
        else:
            steps = self._view(local, t, base)  # adds those of what it is made from
            self._stage += steps
        self._making.discard(id(t))
        required = base is None or id(t) in self.kernels.required or not base.requires_grad
        if self._begins_as_leaf(t) and required and (id(t) in self.kernels.required or not is_odd(t)):
            self.require(t, local)
        return local

    def require(self, t: Tensor, local: Local) -> None:
        """Let ``t``, a leaf made inside that has just got its name, require grad when it was told to."""
        if has_history(t) and id(t) in self._histories:
            raise UnsupportedError("leaf made inside", "it was cut off, and then written from what leads to it")
        if id(t) in self._late:
            self._told.add(id(t))
        elif self._stage is self.before and id(t) in self.kernels.required:
            self._schedule_requirement(t)
        else:
            self._stage.append(RequireGrad(local, t.is_inference()))

    # -- windows on storages

    def _window(self, local: Local, t: Tensor) -> list[Step]:
        """A tensor on the storage of another, to which autograd does not relate it."""
        geometry = geometry_of(t)
        ref, anchor = self.holder(self.table.state(t))
        if t.requires_grad and is_odd(t) and not self._requires_as_wrapper(t):
            return self._odd_view(local, t)
        own_version, kind = self._own_version(t, ref), self._kind_of_window(t, ref)
        steps: list[Step] = [WindowOn(local, ref, geometry, anchor, own_version, kind)]
        counting = self._counting_with(t) if own_version else None
        if counting is not None:
            steps = [Hold(local, counting), self.point(local, t, Way.DATA)]
        if never_counts(t) or (self.capture.entry_inference and counts_as_inference(t)):
            steps = [WindowOn(local, ref, geometry, anchor, own_version=True, inference=not t.is_inference())]
            steps.append(self.point(local, t, Way.DATA))
        elif kind and not self.capture.entry_inference and _torch.version_of(t) >= 0:
            # It was detached outside inference mode from what was made in that, and counts versions.
            steps.append(ReplayView(local, local, aten.detach.default, ReplayMode.AMBIENT))
        if has_history(t):
            steps += self._history(local, t)
        return steps

    def _odd_view(self, local: Local, t: Tensor) -> list[Step]:
        """A view such as ``t``, whose base is elsewhere, of a window where it lies."""
        how, geometry, window = _torch.creation_meta(t), geometry_of(t), self.local()
        ref, anchor = self.holder(self.table.state(t))
        view: Callable[[Tensor], Tensor] = aten.alias.default
        if geometry.conj:  # no alias of it is a view to autograd
            view, geometry = _torch.conj_view, geometry._replace(conj=False)
        inference = t.is_inference()  # of an inference tensor there are no views, but a view may get data of one
        steps: list[Step] = [WindowOn(window, ref, geometry, anchor, True, False if inference else None)]
        counting = self._counting_with(t)
        if counting is not None:  # writes to what it was a view of still show
            there = dataclasses.replace(self.point(window, t, Way.DATA, geometry), inference=False)
            steps = [Hold(window, counting), there]
        mode = ReplayMode.INFERENCE if how == _torch.CreationMeta.INFERENCE_MODE else ReplayMode.NO_GRAD
        if _torch.leafness(t) is False:
            steps += self._history(window, t)
            mode = ReplayMode.GRAD
        elif (base := _torch.base_of(t)) is None or base.requires_grad:
            steps.append(RequireGrad(window))
        outdated = _torch.leafness(t) is None
        steps.append(ReplayView(local, window, view, mode, outdated))
        steps.append(SetCreationMeta(local, how))
        return [*steps, self.point(local, t, Way.DATA)] if inference else steps

    def _requires_as_wrapper(self, t: Tensor) -> bool:
        """Whether the view ``t`` says that it requires grad as its base does, a wrapper among the arguments, where the
        real one is a view of that wrapper's base, which requires none.
        """
        wrapper = next((w for w in self.capture.wrappers if w.replica is _torch.base_of(t)), None)
        if wrapper is None or wrapper.base is None or _torch.leafness(t) is not True:
            return False
        base = next((a.replica for a in self.arguments if a.index == wrapper.base), None)
        return base is not None and not base.requires_grad and not is_new_leaf(t)

    def _history(self, local: Local, t: Tensor) -> list[Step]:
        if not differentiable_dtype(t):
            return [RequireGradOfInteger(local)]
        if id(t) not in self._histories:
            raise UnsupportedError("view of a base that has changed", "it would have no such view any more")
        given = GiveHistory(local, self._histories[id(t)])
        if self._stage is self.before:  # what it leads to is not attached yet
            made = self.tracer.views.get(id(t))
            self._due.append((0 if made is None else made.time, functools.partial(self._give, t, given)))
            return []
        self.attach_now(t)
        return [given]

    def _give(self, t: Tensor, given: GiveHistory) -> None:
        self.attach_now(t)
        self.steps.append(given)

    def _kind_of_window(self, t: Tensor, ref: Ref) -> bool | None:
        """Whether ``t`` is an inference tensor; None where it goes without saying."""
        here = self.capture.entry_inference
        holder = self._holder(ref)
        whole = isinstance(ref, Result) and holder is None  # an inference tensor if any of those on it is one
        if whole and not here and t.is_inference() and _torch.version_of(t) >= 0:
            return None
        if holder is None or holder.is_inference() != t.is_inference():
            return t.is_inference()
        # Outside inference mode an alias of an inference tensor gets a version counter.
        plain = t.is_inference() == here or (not here and _torch.version_of(t) >= 0)
        return None if plain else t.is_inference()

    def _holder(self, ref: Ref) -> Tensor | None:
        """The replica of what the epilogue makes a window on."""
        if isinstance(ref, Result):
            return self.outputs[ref.index].tensor
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        return next((k.replica for k in known if self.names.get(id(k.replica)) == ref), None)

    def _own_version(self, t: Tensor, ref: Ref) -> bool:
        """Whether ``t`` counts its versions apart from the tensor that the epilogue makes it from."""
        holder = self._holder(ref)
        if holder is None and isinstance(ref, Local):  # what holds the storage of an argument that left it
            left = [r.replica for r in self.roots if self.current.get(id(r.state)) == ref]
            holder = left[0] if left and _torch.version_of(left[0]) >= 0 else None
        if holder is None and isinstance(ref, Result):  # a whole storage, of which no tensor is the graph's output
            return self._counts_apart(t)
        return holder is not None and _torch.version_groups([holder, t])[1] != 0

    def _counts_apart(self, t: Tensor) -> bool:
        """Whether not all that is made on the storage of ``t`` counts versions with it."""
        state = self.table.state(t)
        there = [x for x, _ in self.tensors.values() if self.table.state(x) is state and _torch.version_of(x) >= 0]
        return any(_torch.version_groups([t, *there])) if len(there) > 1 else False

    def _counting_with(self, t: Tensor) -> Ref | None:
        """What ``t``, elsewhere perhaps, counts versions with: it was detached of that, and one got other data.

        That is an argument, or what is there when ``t`` is made.
        """
        made = self._stage is self.steps
        known = [(x, self.names[id(x)]) for x, _ in self.tensors.values() if id(x) in self.names.keys() - self._making]
        there = [(x, ref) for x, ref in known if made or isinstance(ref, Result)]
        there += [(a.replica, Arg(a.index)) for a in self.arguments]
        there = [(x, ref) for x, ref in there if _torch.version_of(x) >= 0]
        (found,) = _torch.counted_by([t], [x for x, _ in there])
        return None if found is None else self._while_it_counts(there[found][1])

    def _while_it_counts(self, ref: Ref) -> Ref:
        """``ref``, or what was detached of it before it became an inference tensor: their aliases count apart."""
        changed = [a for a in self.arguments if ref == Arg(a.index) and a.replica.is_inference() and not a.inference]
        if not changed:
            return ref
        local = self.local()
        self.before.insert(0, Hold(local, ref))
        return local

    # -- views

    def _view(self, local: Local, t: Tensor, base: Tensor) -> list[Step]:
        """The steps that make the view ``t`` of ``base`` again.

        A view whose memory was not written since has the history that its op gave it: the op runs again, on what it
        ran on. Any other has, as eager says it, the history of a window on its base as that is now.
        """
        self.tracer.keep.append(t)
        if _torch.base_of(t) is None:
            unsafe = self.tracer.unsafe_views.get(id(t))
            if unsafe is None:
                raise UnsupportedError("captured tensor", "a result is a view by way of a ragged tensor")
            if (t.is_conj() or t.is_neg()) and not t.requires_grad:  # only in what a wrapper does are these left lazy
                return self._window(local, t)
            if not t.requires_grad and self.entered.get(id(base), geometry_of(base)) != unsafe.source_geometry:
                return self._window(local, t)  # it would be another one of what lies otherwise by now
            mode = ReplayMode.GRAD if t.requires_grad else ReplayMode.NO_GRAD
            return self._replayed(local, t, self.name(base), unsafe, mode)
        how, made = _torch.creation_meta(t), self._current(t)
        alone = self._counts_alone(t, base)
        given = self.tracer.views.get(id(t))
        given = given if alone and given is not None and given.op in UNSAFE_VIEWS else None
        if given is not None and not self._can_be_made_of_source(given):
            given = self._part_of_base(given, base)
        hidden = given is not None
        made = given if given is not None else made
        leads = base.requires_grad or (made is not None and made.grad and made.source.requires_grad)
        if t.requires_grad and not leads and _torch.leafness(t) is None:
            made = None  # it is no op that gave it this history, but a custom Function
        if made is not None and made.op is aten.detach.default and t.requires_grad:
            made = None  # it was detached by the class of a wrapper, below the op that gave it a history
        steps: list[Step]
        if id(t) in self._histories:
            ref = self._made_of(made.source, base) if made is not None else self.name(base)
            replay = made.replay if made is not None else self._window_of_base(t, base, geometry_of(t))
            steps = [ReplayView(local, ref, replay, ReplayMode.NO_GRAD), *self._history(local, t)]
            if made is not None:
                steps += self._moved_now(local, t)
            elif self._place_of_base(t, base)[1] != _torch.storage_address(_torch.storage_of(t)):
                steps[0] = ReplayView(local, ref, aten.alias.default, ReplayMode.NO_GRAD)
                steps.append(self.point(local, t, Way.DATA))
            elif self._replays_elsewhere(t, base, geometry_of(t)):
                steps.append(self.point(local, t, Way.DATA))
            return [*steps, SetCreationMeta(local, self.kernels.creation_meta(t))]
        if made is not None:
            ref = self._made_of(made.source, base)
            steps = self._replayed(local, t, ref, made, self._mode_of(made))
            if how == _OF_FUNCTION or (how == _OF_SEVERAL and made.result is None):
                steps.append(SetCreationMeta(local, how))
            steps += self._moved_now(local, t)
            if hidden or (
                id(t) in self._early and not (made.current or is_odd(t))
            ):  # written since: eager looks for its history
                # Autograd refuses odd views at any other moment.
                exactly = hidden or any(self._is_odd_view(x) for x in self.chain(t))
                then = functools.partial(self._when_made, made=made, base=base, exactly=exactly)
                steps = [then(s) if isinstance(s, ReplayView) else s for s in steps]
            if hidden:  # a view to autograd in inference mode, but for its versions
                counted = made.base_version if self._is_fresh(base) else 0 if is_wrapper(t) else made.version
                counted = _torch.version_of(t) - counted
                counted -= sum(isinstance(s, PointAt) and s.way is not Way.DATA for s in steps)
                steps += [BumpVersion(local)] * abs(counted)  # autograd asks only whether the two are the same
        elif (behind := self.left_behind_as_made(t, base)) is not None:
            ref, replay = self._made_of(behind.source, base), functools.partial(replay_lying, behind.replay)
            replay = functools.partial(replay, behind.source_geometry)
            steps = [ReplayView(local, ref, replay, self._mode_of(behind)), self.point(local, t, Way.DATA)]
        else:
            if self._by_way_of_wrapper(t):
                raise UnsupportedError("captured tensor", "a result is a view by way of a ragged tensor")
            ref = self.name(base)
            mode = ReplayMode.NO_GRAD if how == _UNDER_NO_GRAD else ReplayMode.GRAD
            quiet = how in (_UNDER_NO_GRAD, _UNDER_INFERENCE) and t.requires_grad and not has_history(t)
            if quiet and how == _UNDER_INFERENCE and not self.capture.entry_inference:
                mode = ReplayMode.NO_GRAD
            if self.capture.entry_inference and how != _torch.CreationMeta.INFERENCE_MODE:
                under = how == _UNDER_NO_GRAD
                mode = ReplayMode.OUTSIDE_WITHOUT_GRAD if under else ReplayMode.OUTSIDE_WITH_GRAD
            if not base.requires_grad and not t.requires_grad and id(base) not in self.kernels.detached:
                mode = ReplayMode.AMBIENT if (how != _UNDER_NO_GRAD) == self.capture.entry_grad else mode
            # A view of what was cut off since has its history by a stand-in, or only memory is wanted of it.
            cut = t.requires_grad and not base.requires_grad and not is_new_leaf(t)
            last = () if cut else self.lasting(t)
            there = _torch.storage_address(self.table.state(t).storage)
            elsewhere = self._place_of_base(t, base)[1] != there  # the base has left, or this
            renewed = False  # whether autograd has looked anew for the history of what it was made of
            lay = None if last or elsewhere else self._lay_when_renewed(t)
            begins = lies = last[0].geometry if last else lay or geometry_of(t)
            node = self.node_before_changes(t) if has_history(t) and self.kernels.left else None
            number = -1 if node is None else _torch.sequence_number(node)
            base_lay = None if node is None or lay is not None else self._lay_otherwise(base, number)
            apart = elsewhere or base_lay is not None
            if node is not None and apart:
                lies = self._lay_as(t, number)  # then, if not now, or when it is first reshaped
            if elsewhere and (quiet or not t.requires_grad):
                data = self.point(local, t, Way.DATA) if quiet else self._on_own_storage(local, t, base, begins)
                steps = [ReplayView(local, ref, aten.alias.default, mode), data]
            else:
                replay = self._window_of_base(t, base, lies, base_lay)
                if cut:
                    replay = functools.partial(as_if_required, replay)
                origin = None if elsewhere else self._made_before(t, last)
                if origin is not None:
                    renewed = not node_leads_to(self.node_before_changes(t), origin.source)
                    if renewed and (origin.geometry != begins or self._went_by_data(t)):
                        origin, renewed = None, False
                if origin is not None:
                    ref, replay, mode = self._made_of(origin.source, base), origin.replay, self._mode_of(origin)
                    lies, base_lay, apart = origin.geometry, None, False
                elif not elsewhere and (way := self._made_by_way(t, base, last)):
                    ref, replay = self._made_of(way[0].source, base), ReplayInTurn(tuple([d.replay for d in way]))
                    lies, base_lay, apart, mode = way[-1].geometry, None, False, self._mode_of(way[-1])
                if base_lay is not None:
                    room = lies.elements_reached * lies.dtype.itemsize
                    replay = functools.partial(replay_lying, replay, base_lay, room=room)
                elif elsewhere:
                    replay = functools.partial(replay_with_room, replay, lies)
                steps = [ReplayView(local, ref, replay, mode)]
                if renewed:
                    assert origin is not None
                    again = ReplayReshaped(origin.replay, tuple(last))
                    steps = [ReplayView(local, ref, again, mode)]
                    if self.leads_to_entered(self.node_before_changes(t), origin.source):
                        steps = [self._when_made(ReplayView(local, ref, again, mode), origin, base, exactly=True)]
                elif last and (lies != begins or self._was_inference(t, last[0])):
                    steps.append(self._apart(local, t, last[0]))
                elif lies != begins or (apart and not last):
                    steps.append(self.point(local, t, Way.DATA, begins))
            if len(steps) == 1 and not apart and self._replays_elsewhere(t, base, lies):
                steps.append(self.point(local, t, Way.DATA, lies))
            if how not in (_DEFAULT, _UNDER_NO_GRAD):
                steps.append(SetCreationMeta(local, how))
            steps += self._reshapes(local, t, last, begins) if not renewed else ()
            if (last and (apart or self._went_by_data(t))) or (lay is not None and geometry_of(t) != begins):
                steps.append(self._move(local, t))
            if self._came_back_as_inference(t) and not any(isinstance(s, PointAt) for s in steps):
                steps.append(self.point(local, t, Way.DATA))
        first = steps[0]
        if isinstance(first, ReplayView) and not (self._writes_follow or alone):
            steps[0] = self._at_its_version(first, t, base)
        return steps

    def _part_of_base(self, made: Derivation, base: Tensor) -> Derivation | None:
        """How a part split off what was reshaped since is ``made`` of ``base``; None if that lies elsewhere by now."""
        g, there = made.geometry, self.table.state(base)
        if there is not self.table.state(made.tensor) or there is not self.table.state(made.source):
            return None
        window = functools.partial(_part_at, shape=g.shape, stride=g.stride, offset=g.offset)
        alike = g[3:] == geometry_of(base)[3:] and not is_wrapper(base)
        return made._replace(source=base, op=window, args=(), kwargs={}, result=None) if alike else None

    def _reshapes(self, local: Local, t: Tensor, changes: Sequence[Reshaping], lies: Geometry) -> list[Step]:
        """Change the real tensor for ``t``, which ``lies`` so, in place as ``t`` was changed; other data in between."""
        steps: list[Step] = []
        left = self.kernels.left.get(id(t), ())
        for change in changes:
            if change.geometry != lies and self._went_by_data(t):
                steps.append(self._apart(local, t, change))
            steps.append(Reshape(local, change.repeat))
            lies = next((x.geometry for x in left if x.time > change.time), geometry_of(t))
        return steps

    def _apart(self, local: Local, t: Tensor, change: Reshaping) -> Reshape:
        """Let the real tensor for ``t`` lie as it did before ``change``, on memory that is not shown."""
        inference = True if self._was_inference(t, change) else None
        return Reshape(local, functools.partial(lie_apart, change.geometry, inference=inference))

    def _was_inference(self, t: Tensor, change: Reshaping) -> bool:
        """Whether ``t`` was an inference tensor, by data that it was given, when it was changed in place."""
        return any(x.inference for x in self.kernels.left.get(id(t), ()) if x.time == change.time)

    def _came_back_as_inference(self, t: Tensor) -> bool:
        """Whether ``t`` became an inference tensor by data elsewhere, which ``set_`` leaves it."""
        return t.is_inference() and any(x.inference for x in self.kernels.left.get(id(t), ()))

    def _by_way_of_wrapper(self, t: Tensor) -> bool:
        """Whether the view ``t`` was made of its base by way of a ragged tensor."""
        if not any(is_wrapper(made.tensor) for made in self.tracer.views.values()):
            return False
        with _torch.without_modes():
            return _torch.made_with_tensors(t)

    def _made_of(self, source: Tensor, base: Tensor) -> Ref:
        """The name of what a view was made of: its base, a tensor that is returned too, or a view made for this."""
        if id(source) not in self.names and id(source) not in self.tensors:
            self.tensors[id(source)] = (source, base)
        return self.name(source)

    def _mode_of(self, made: Derivation) -> ReplayMode:
        """The mode in which a view was made, as seen from that in which the call is made."""
        if made.inference and not self.capture.entry_inference:
            return ReplayMode.INFERENCE
        if self.capture.entry_inference and not made.inference:
            return ReplayMode.OUTSIDE_WITH_GRAD if made.grad else ReplayMode.OUTSIDE_WITHOUT_GRAD
        if made.grad == self.capture.entry_grad:
            return ReplayMode.AMBIENT
        return ReplayMode.GRAD if made.grad else ReplayMode.NO_GRAD  # it shows once the base gets a history

    def _at_its_version(self, step: ReplayView, t: Tensor, base: Tensor) -> ReplayView:
        """The step that makes the view ``t``, so that autograd takes it for made when it was.

        That is before a write, if eager refuses to say its history, or if what it was made of is refused since.
        """
        made = self.tracer.views.get(id(t))  # what is made of it again has to find it so
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        counter = next((k for k in known if k.replica is base), None)
        if made is not None and counter is not None and (is_odd(t) or self._is_odd_view(made.source)):
            counted_since = made.source_version != _torch.version_of(made.source)
            if counted_since and made.source_version == counter.version:
                return self._at_version(step, t, self._entry_version(base))
        outdated = step.outdated or _torch.leafness(t) is None or self._waits_for_history(t, base)
        outdated |= id(t) in self.capture.waiting and self.table.state(t) is self.table.state(base)
        if made is not None and not (t.requires_grad or base.requires_grad or t.is_inference()):
            outdated |= _torch.version_of(t) != made.version  # it shows once the base requires grad
        if outdated and not step.outdated and made is not None and id(made.source) in self._made_at:
            # Made of a view that autograd refuses at any other version.
            return self._at_version(step, t, self._made_at[id(made.source)])
        return dataclasses.replace(step, outdated=outdated)

    def _at_version(self, step: ReplayView, t: Tensor, version: Local) -> ReplayView:
        """The step that makes the view ``t`` at that ``version``; it has no node if nothing required grad by then."""
        self._made_at[id(t)] = version
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        source = self.chain(t)[1:]
        required = any(id(x) in self.kernels.required for x in source)
        required |= any(k.requires_grad and any(k.replica is x for x in source) for k in known)
        quietly = not required and _torch.creation_meta(t) == _UNDER_NO_GRAD and step.mode is ReplayMode.AMBIENT
        return dataclasses.replace(step, version=version, mode=ReplayMode.NO_GRAD if quietly else step.mode)

    def _waits_for_history(self, t: Tensor, base: Tensor) -> bool:
        """Whether the view ``t`` was written before its base, elsewhere by now, was told to require grad.

        Autograd then looks for its history, which it did not have when it was written.
        """
        state, made = self.table.state(t), self.tracer.views.get(id(t))
        if made is None or self.table.state(base) is state or not has_history(t):
            return False
        return self.kernels.required.get(id(base), 0) > state.written > made.time

    def _when_made(self, step: ReplayView, made: Derivation, base: Tensor, exactly: bool) -> ReplayView:
        """The step that makes a view of ``base`` as it was ``made``: autograd takes it for made when it was.

        Not ``exactly`` then, but before a write: the counter may reach a moment of the trace by fewer or more of them.
        """
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        counter = next((k for k in known if k.replica is base), None)
        if counter is None and not exactly and self._is_fresh(base) and _torch.version_of(base) >= 0:
            return dataclasses.replace(step, outdated=True)
        if counter is None or counter.version < 0:
            return step
        if not exactly:
            return dataclasses.replace(step, outdated=True)
        later = made.base_version - counter.version
        return dataclasses.replace(step, version=self._entry_version(base), later=later)

    def _entry_version(self, t: Tensor) -> Local:
        """Where the version counter of ``t``, an argument or the base of one, stood when the call began."""
        found = self._versions.get(id(t))
        if found is None:
            found = self._versions[id(t)] = self.local()
            self.before.insert(0, NoteVersion(found, self.names[id(t)]))
        return found

    def _replayed(self, local: Local, t: Tensor, ref: Ref, made: Derivation, mode: ReplayMode) -> list[Step]:
        """Let ``t`` be ``made`` again of ``ref``, by one op with what else is wanted of that op's results."""
        notes = self.tracer.views if _torch.base_of(t) is not None else self.tracer.unsafe_views
        leads = t.requires_grad and _torch.leafness(t) is False
        if not leads or not made.with_others([x for x, _ in self.tensors.values() if x.requires_grad], notes):
            return [ReplayView(local, ref, made.replay, mode)]
        assert made.result is not None
        several, steps = self._several.get((made.time, ref, mode)), []
        if several is None:
            several = self._several[made.time, ref, mode] = self.local()
            steps = [ReplayView(several, ref, made.replay.all, mode)]
        return [*steps, PickView(local, several, made.result)]

    # -- those that go elsewhere

    def _move(self, local: Ref, view: Tensor) -> PointAt:
        """What takes the real tensor for ``view`` to where ``.data =`` or ``set_`` took it, its history as it is."""
        told = self.tracer.set_calls.get(id(view))
        return self.point(local, view, Way.DATA if told is None else Way.SET if told else Way.SET_UNTOLD)

    def _moved_now(self, local: Local, t: Tensor) -> list[Step]:
        """What takes the real tensor for ``t`` to where it lies by the end, if that has no moment of its own."""
        if id(t) in self._moving or not self._moves(t):
            return []  # later, or only what was made of it before is wanted
        return [self._move(local, t)]

    def _on_own_storage(self, local: Local, t: Tensor, base: Tensor, lies: Geometry) -> PointAt:
        """Take the real tensor for ``t`` to the storage that ``t`` is on."""
        way = Way.DATA if self._place_of_base(t, base)[0][3:] != lies[3:] else Way.SET
        return self.point(local, t, way, lies)


def _part_at(base: Tensor, shape: Any, stride: Any, offset: int) -> Tensor:
    """The whole of a window on ``base``, as if split off: it counts its versions itself."""
    part: Tensor = torch.unsafe_chunk(base.as_strided(shape, stride, offset), 1)[0]
    return part
