"""Views of wrappers that a call returns or shows: made again by what made them, when that happened.

See Note [Wrappers]. A plain tensor that is a view of a wrapper, as a row of a ragged one is, is made again too, so that
it counts versions with that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import (
    as_if_required,
    differentiable_dtype,
    has_history,
    has_other_history,
    is_new_leaf,
    leads_to,
)
from aotcheck.autograd.effects.wrapper_arguments import WrapperArguments
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.record.steps import (
    BumpVersion,
    GiveHistory,
    Local,
    PickHeld,
    PickView,
    Ref,
    ReplayMode,
    ReplayView,
    Reshape,
    Result,
    SetAttribute,
    SetCreationMeta,
    Step,
    TakeOffsets,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.replicas.windows import Derivation, Replay, Reshaping
from aotcheck.autograd.runtime.replays import replay_as_it_lay
from aotcheck.autograd.tensors.subclasses import held_by, is_jagged, is_wrapper, leaves_of
from aotcheck.autograd.tracing.traced_inputs import TracedWrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture

# how autograd takes a view for made that is made so
_AS_MADE = {ReplayMode.GRAD: _torch.CreationMeta.DEFAULT, ReplayMode.NO_GRAD: _torch.CreationMeta.NO_GRAD_MODE}
_ALIASES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


class WrapperViews(WrapperArguments):
    """Views of wrappers, and plain views of what wrappers hold, that are made again by what made them."""

    def __init__(self, capture: Capture, results: Results) -> None:
        super().__init__(capture, results)
        self._known = {id(w.replica) for w in self.arguments}
        self._views = {id(w.replica) for w in self.arguments if w.replayed}
        self._replayed: dict[int, Tensor] = {}
        self._constructed: dict[int, Tensor] = {}
        self._histories: dict[int, Local] = {}  # id of a view -> the stand-in that has its history
        self._several: dict[Any, Local] = {}  # where the views are that one op made, by when, of what and in which mode
        # By id of a view, from which moment on it changes its geometry when it did, and not as soon as it is made.
        self._step_by_step: dict[int, float] = {}
        self._scheduled: set[int] = set()  # ids of those of which that is on the timeline
        self._anew: set[int] = set()  # ids of those that a new wrapper with a history holds, whatever they are
        self._shared: set[tuple[int, str]] = set()  # by id of a view and attribute: what it was told to hold
        if self.tracer.plain_views:  # else nobody asks, and the two need not lead to each other
            results.is_made_of_wrapper = self._is_made_late

    def _note(self, t: Tensor) -> Derivation | None:
        """How ``t`` was made, as autograd saw it, if that was by a view of a tensor that is noted."""
        return self.tracer.plain_views.get(id(t)) or self.tracer.views.get(id(t))

    def _made_at(self, t: Tensor) -> int:
        note = self._note(t)
        assert note is not None
        return note.time

    def _made_of_plain(self, t: Tensor) -> Derivation | None:
        """How ``t`` was made, if it is made again as a view of a plain tensor, with which it counts writes."""
        made, base = self._note(t), _torch.base_of(t)
        if id(t) in self._known or id(t) in self._anew:
            return None
        if made is None or base is None or type(made.source) is not Replica:
            return None
        if t.is_inference() != self.capture.entry_inference or _torch.leafness(t) is None:
            return None
        if max(self._befallen(t), self._befallen(made.source), self._befallen(base)) > made.time:
            return None
        return made

    def _view_of_plain_behind(self, t: Tensor) -> Tensor | None:
        """The wrapper of which ``t`` was made by views: made again as a view of a plain tensor, or an argument."""
        made = self._note(t)
        while made is not None and is_wrapper(made.source):
            if id(made.source) in self._known or self._made_of_plain(made.source) is not None:
                return made.source
            made = self._note(made.source)
        return None

    def _origin(self, t: Tensor) -> Tensor | None:
        """The wrapper of which ``t`` is made again as a view, if its history is that of a view."""
        if not is_wrapper(t):
            return self._wrapper_behind(t)
        if id(t) in self._anew:
            return None
        base, made = _torch.base_of(t), self._note(t)
        if id(t) in self.tracer.set_calls:
            return None
        other = t.is_inference() != self.capture.entry_inference
        if other and (made is None or t.is_inference() or base is None):  # a view of what is none stays none
            return None
        if base is None:
            if made is not None and made.op in _ALIASES and not has_history(t) and is_wrapper(made.source):
                return None if self._is_made_later(made.source, made.time) else made.source
            return None
        if not is_wrapper(base):
            base = self._view_of_plain_behind(t)
        if base is None:
            return None
        if made is None or not self._is_made_later(base, made.time):
            return base
        if _torch.leafness(t) is None:
            raise UnsupportedError("view of a base that has changed", "eager refuses to say its history")
        return None

    def _wrapper_behind(self, t: Tensor) -> Tensor | None:
        """The wrapper of which the plain ``t`` is made again as a view, by way of other plain views perhaps.

        Only if nothing befell any of them: what it shows is a window on what the wrapper holds then.
        """
        if t.is_inference() and not self.capture.entry_inference:
            return None
        while not is_wrapper(t):
            made = self._note(t)
            if made is None or _torch.base_of(t) is None:  # what is no view counts versions by itself
                return None
            if id(t) in self.tracer.reshapings or self._befallen(t) or id(t) in self.tracer.set_calls:
                return None
            t = made.source
            if id(t) not in self.tracer.plain_views and not is_wrapper(t):
                return None
        if any(id(x) in self.tracer.reshapings or self._befallen(x) for x in (t, *leaves_of(t))):
            return None
        if id(t) in self._known or self._made_of_plain(t) is not None:
            return t
        return None if any(has_history(x) for x in leaves_of(t)) else t

    def _is_made_later(self, source: Tensor, time: int) -> bool:
        """Whether the wrapper ``source`` is made anew, with the geometry that it ends with and did not have then."""
        anew = id(source) not in self._known and self._origin(source) is None
        return anew and self._befallen(source) > time

    def _is_given(self, t: Tensor, base: Tensor) -> bool:
        """Whether the view ``t`` has another history than being made again would give it."""
        if not has_history(t) or not differentiable_dtype(t) or _torch.base_of(t) is None:
            return False
        if _torch.leafness(t) is None:
            return False
        made, of_function = self._note(t), _torch.creation_meta(t) == _torch.CreationMeta.IN_CUSTOM_FUNCTION
        if not base.requires_grad:
            leads = made is not None and made.current and made.grad and is_new_leaf(made.source)
            return of_function or not leads or made is None or not leads_to(t, made.source)
        if of_function:
            return True
        if made is None or not made.current:
            return has_other_history(t, base)
        if not (made.grad and leads_to(t, made.source)):
            return True
        if is_new_leaf(made.source) and not any(n is not None for n, _ in _torch.grad_fn_of(t).next_functions):
            return True  # it was there before that, itself a view that leads nowhere, was told to require grad
        return made.source is not base and _torch.base_of(made.source) is base and self._is_given(made.source, base)

    def _replay(self, t: Tensor, base: Tensor) -> Ref:
        made = self._note(t)
        local = self.results.names[id(t)] = self.results.local()
        how = _torch.creation_meta(t) if _torch.base_of(t) is not None else _torch.CreationMeta.DEFAULT
        given = self._histories.get(id(t))
        again: Callable[[Tensor], Tensor]
        if made is not None and (made.source is base or self._is_made(made.source)):
            ref, again, recorded = self.results.name(made.source), made.replay, made.grad
            counted = _torch.version_of(made.source) >= 0
            if counted and _torch.base_of(t) is None and _torch.version_groups([made.source, t])[1]:
                again = _data  # what .data gives counts writes apart
            elif lay := self._lay_in_between(made):
                again = functools.partial(replay_as_it_lay, again, lay)
        else:
            ref, again = self.results.name(base), _torch.view_func_of(t)
            recorded = how != _torch.CreationMeta.NO_GRAD_MODE
        mode = ReplayMode.GRAD if has_history(t) and given is None and recorded else ReplayMode.NO_GRAD
        if given is None and not base.requires_grad:
            # A view of it may require grad by itself, and have a history that must not be asked for.
            mode = ReplayMode.GRAD if recorded else ReplayMode.NO_GRAD
            mode = ReplayMode.AMBIENT if recorded == self.capture.entry_grad else mode
        if given is None and made is not None and (made.inference or self.capture.entry_inference):
            mode = _mode_around_inference(made, self.capture.entry_inference)
        if made is not None and made.source.requires_grad and not (t.requires_grad or base.requires_grad):
            mode = ReplayMode.NO_GRAD  # it was there before that was told to require grad
        if t.requires_grad and not base.requires_grad and _torch.leafness(t) is None:
            again, mode = functools.partial(as_if_required, again), ReplayMode.GRAD
        if made is not None and isinstance(again, Replay) and has_history(t) and self._is_one_of_several(made):
            self._pick(local, ref, made, mode)
        else:
            self._emit(ReplayView(local, ref, again, mode))
        for change in self.tracer.reshapings.get(id(t), ()):
            if change.time < self._step_by_step.get(id(t), math.inf):
                self._reshape(t, local, change)
        if given is not None:
            self.results.attach_now(t)
            self._emit(GiveHistory(local, given))
        as_made = (_AS_MADE[mode],) if mode in _AS_MADE else _AS_MADE.values()
        if given is not None or (_torch.base_of(t) is not None and how not in as_made):
            self._emit(SetCreationMeta(local, how))
        if is_wrapper(t):
            self._share(t, local)
        # Of a ragged view it is not known whether it was told to require grad, or says what its base says.
        told = not (base.requires_grad and is_jagged(t)) or _torch.base_of(t) is None
        if is_new_leaf(t) and told:
            self.results.require(t, local)
        if _torch.leafness(t) is None and made is None:  # eager refuses to say what the history is
            self._emit(BumpVersion(local))
        return local

    def _share(self, t: Tensor, local: Local) -> None:
        """Let the view ``t`` hold what somebody else has too, as far as that is there."""
        for name, held in held_by(t)[0]:
            if id(held) in self.results.names and (id(t), name) not in self._shared:
                self._shared.add((id(t), name))
                if not (name == "_offsets" and is_jagged(t) and self._hand_on_offsets(held, local)):
                    self._emit(SetAttribute(local, name, self.results.name(held)))

    def _hand_on_offsets(self, x: Tensor, view: Local) -> bool:
        """Let what was constructed with ``x``, which says how ragged it is, hold what ``view`` holds in its place.

        The view's size tells of that, in its history too. False where this comes too late.
        """
        holders = [t for t in self._constructed.values() if is_jagged(t) and getattr(t, "_offsets", None) is x]
        made = [t for t in holders if id(t) in self.results.names]
        if not isinstance(self.results.names[id(x)], Result) or any(self.results.is_attached(t) for t in made):
            return False
        for t in made:
            self._emit(TakeOffsets(self.results.names[id(t)], view))
        local = self.results.names[id(x)] = self.results.local()
        self._emit(PickHeld(local, view, "_offsets"))
        return True

    def share(self) -> None:
        """Let views hold what has been made since they were."""
        for t in self._replayed.values():
            local = self.results.names.get(id(t))
            if is_wrapper(t) and isinstance(local, Local):
                self._share(t, local)

    def _is_one_of_several(self, made: Derivation) -> bool:
        """Whether another result of the op that made a view is made too; in autograd's graph they share a node."""
        wanted = [x for x in self._replayed.values() if has_history(x) and id(x) not in self._histories]
        return made.with_others(wanted, {id(x): note for x in wanted if (note := self._note(x)) is not None})

    def _pick(self, local: Local, ref: Ref, made: Derivation, mode: ReplayMode) -> None:
        assert made.result is not None
        several = self._several.get((made.time, ref, mode))
        if several is None:
            several = self._several[made.time, ref, mode] = self.results.local()
            self._emit(ReplayView(several, ref, made.replay.all, mode))
        self._emit(PickView(local, several, made.result))

    def _lay_in_between(self, made: Derivation) -> tuple[tuple[tuple[str, ...], Geometry], ...]:
        """How an argument and what it holds lay when a view was made of it, if it was reshaped both before and since.

        For each the attributes by which it is found.
        """
        t, time = made.source, made.time
        changes = [c.time for c in self.tracer.reshapings.get(id(t), ())] if id(t) in self._known else []
        if not changes or changes[0] > time or changes[-1] < time:
            return ()
        todo: list[tuple[tuple[str, ...], Tensor]] = [((), t)]
        for names, x in todo:
            todo += [((*names, name), held) for name, held in (held_by(x)[0] if is_wrapper(x) else ())]
        return tuple([(names, self._lay_at(x, time)) for names, x in todo])

    def _lay_at(self, t: Tensor, time: int) -> Geometry:
        changes = self.tracer.reshapings.get(id(t), ())
        return next((c.geometry for c in changes if c.time > time), geometry_of(t))

    def _reshape(self, t: Tensor, ref: Ref, change: Reshaping) -> None:
        seen = id(t) not in self._histories and change in self.results.lasting(t)
        self._emit(Reshape(ref, change.repeat if seen else change.repeat_unseen))

    def _is_made(self, source: Tensor) -> bool:
        """Whether the wrapper ``source``, of which a view was made, is made too; by now it is if it can be."""
        if id(source) in self.results.names or id(source) in self.results.makers:
            return True
        if not is_wrapper(source) and id(source) not in self.tracer.plain_views:
            return False
        base = self._origin(source)
        if base is None:
            return False
        if id(base) not in self._known and id(base) not in self.results.makers:
            return False
        self._replayed[id(source)] = source
        self.results.makers[id(source)] = functools.partial(self._replay, source, base)
        return True

    def _is_made_late(self, t: Tensor, history: Local | None) -> bool:
        """The same of a plain view that nobody returns; it has the ``history`` of that stand-in if there is one."""
        if history is not None:
            self._histories[id(t)] = history
        return self._is_made(t)

    def make_sources(self, wanted: Collection[int]) -> None:
        """Make those views too, ids of which are ``wanted``, of which views that are made were made."""
        for t in list(self._replayed.values()):
            made = self._note(t)
            while made is not None:
                if id(made.source) in wanted:
                    self._is_made(made.source)
                made = self._note(made.source)

    def make_parts(self, wanted: Sequence[Tensor]) -> None:
        """Make those of the views ``wanted`` too that one op gave with views that are made: they share a node."""
        nodes = {_torch.grad_fn_of(t) for t in self._replayed.values()} if wanted else set()
        for t in wanted:
            if _torch.grad_fn_of(t) in nodes:
                self._is_made(t)

    def schedule_views(self, timeline: Timeline) -> None:
        """Let the views of what changed its geometry, or was cut from its history, later be made at their moment.

        So are those that a write leaves without a history, the write after them. See Note [In the program's order].
        """
        for t in [x for x in self._replayed.values() if id(x) in self._step_by_step]:
            self._schedule_reshapings(t, timeline)
        refused: dict[int, Tensor] = {}  # views whose history eager refuses to say, once their memory was written
        last = 0
        for t in list(self._replayed.values()):
            view, made = t, self._note(t)
            early = False
            cut = self._cut_behind(t)
            while made is not None and (view is t or self._is_made(view)):
                source = made.source
                early = early or max(self._befallen(source), cut) > made.time
                # Of a written view of an argument, autograd looks for the history of each view by itself.
                early = early or (id(source) in self._views and has_history(view) and not self._is_current(view, made))
                if _torch.leafness(view) is None:
                    refused[id(view)], last = view, max(last, made.time)
                if early or id(view) in refused:
                    timeline.at(made.time, functools.partial(self.results.name, view))
                if early:
                    self._schedule_reshapings(source, timeline)
                view, made = source, self._note(source)

        for t in refused.values():
            timeline.at(last + 0.5, functools.partial(self._count_write, t))

    def _cut_behind(self, t: Tensor) -> int:
        """When last an argument that ``t`` is a view of, by way of others perhaps, was cut from its history."""
        made, cut = self._note(t), 0
        while made is not None and self.tracer.kernels.detached:
            cut = max(cut, self.tracer.kernels.detached.get(id(made.source), 0))
            made = self._note(made.source)
        return cut

    def _count_write(self, t: Tensor) -> None:
        self._emit(BumpVersion(self.results.name(t)))

    def _befallen(self, t: Tensor) -> int:
        """When last something befell ``t`` that shows in views made later."""
        kernels = self.tracer.kernels
        held = [x for _, x in held_by(t)[0]] if is_wrapper(t) and kernels.moved else []
        return max(kernels.moved.get(id(t), 0), kernels.detached.get(id(t), 0), *map(self._befallen, held))

    def _schedule_reshapings(self, t: Tensor, timeline: Timeline) -> None:
        """Let the view ``t`` change its geometry when it did."""
        if id(t) in self._known or id(t) in self._scheduled:
            return
        since = self._step_by_step.setdefault(id(t), 0)
        self._scheduled.add(id(t))
        for change in self.tracer.reshapings.get(id(t), ()):
            if change.time >= since:
                timeline.at(change.time, functools.partial(self._reshape_at_last, t, change))

    def _reshape_at_last(self, t: Tensor, change: Reshaping) -> None:
        self._reshape(t, self.results.name(t), change)

    def _emit(self, step: Step) -> None:
        self.results.emit(step)

    def _is_current(self, view: Tensor, made: Derivation) -> bool:
        """Whether nothing was counted since ``view`` was made but changes in place that views made again repeat."""
        if made.current:
            return True
        reshaped = [t for t in self._replayed.values() if self.results.lasting(t)]
        counting = [t for t in reshaped if _torch.counted_by([view], [t]) != [None]]
        later = [change for t in counting for change in self.results.lasting(t) if change.time > made.time]
        return _torch.version_of(view) - len(later) == made.version

    def _reshape_later(self, view: Tensor) -> None:
        """``view`` is made before what it shows is written: let it change its geometry after that if it did.

        So do it and what it is made of where another view was made of them before.
        """
        notes: dict[int, Derivation] = {}  # how views that are made again, and what they are made of, were made
        for t in self._replayed.values():
            while (made := self._note(t)) is not None and id(t) not in notes:
                notes[id(t)], t = made, made.source
        x: Tensor | None = view
        while x is not None and id(x) not in self._known:
            moments = [m.time for m in notes.values() if m.source is x and m.time < self._befallen(x)]
            moments += [change.time for change in self.results.lasting(x)]
            if moments:
                self._step_by_step[id(x)] = min(moments)
            x = notes[id(x)].source if id(x) in notes else None

    def _counts_by_reshapings(self, w: TracedWrapper) -> bool:
        """Whether changes in place of other views count all that was counted of ``w``."""
        views = [*self._replayed.values(), *[o.replica for o in self.arguments if o.replayed and o is not w]]
        reshaped = [t for t in views if self.results.lasting(t)]
        counting = [t for t in reshaped if _torch.counted_by([w.replica], [t]) != [None]]
        counted = sum(len(self.results.lasting(t)) for t in counting)
        return 0 < counted == _torch.version_of(w.replica) - w.version


def _mode_around_inference(made: Derivation, entry_inference: bool) -> ReplayMode:
    """The mode in which a view was made, as seen from a call that is made in inference mode or not."""
    if made.inference:
        return ReplayMode.AMBIENT if entry_inference else ReplayMode.INFERENCE
    return ReplayMode.OUTSIDE_WITH_GRAD if made.grad else ReplayMode.OUTSIDE_WITHOUT_GRAD


def _data(t: Tensor) -> Tensor:
    return t.data
