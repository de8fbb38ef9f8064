"""What a call does to its wrapper arguments, and how the wrappers that it returns are made.

See Note [Wrappers]. A returned wrapper is an argument, is *replayed*, being a view of another wrapper, or is
*constructed* from tensors that are made as if they were returned themselves. What it is constructed from has no history
as a rule: a wrapper's history is its own, and the autograd Function of its group attaches it. A plain tensor that is a
view of a wrapper, as a row of a ragged one is, is replayed too, so that it counts versions with that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import (
    as_if_required,
    differentiable_dtype,
    has_history,
    has_other_history,
    is_new_leaf,
    leads_to,
)
from aotcheck.autograd.effects.wrapped_arguments import WrapperArguments
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.record.steps import (
    Arg,
    BumpVersion,
    Detach,
    GiveHistory,
    Local,
    PickView,
    Ref,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Reshape,
    RestrideWrapper,
    SetAttribute,
    SetCreationMeta,
    Step,
    TakeHistory,
    WindowOn,
    Wrap,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.replicas.windows import Derivation, Replay, ReplayAmong, Reshaping
from aotcheck.autograd.runtime.replays import replay_as_it_lay
from aotcheck.autograd.tensors.subclasses import Wrapping, held_by, is_jagged, is_wrapper, leaves_of, outer_of
from aotcheck.autograd.tracing.traced_inputs import TracedWrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture

# how autograd takes a view for made that is made so
_AS_MADE = {ReplayMode.GRAD: _torch.CreationMeta.DEFAULT, ReplayMode.NO_GRAD: _torch.CreationMeta.NO_GRAD_MODE}
_ALIASES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


class WrappedResults(WrapperArguments):
    """The wrappers of one call, as the epilogue has to make or change them.

    Used by the epilogue's builder, whose parts are for plain tensors.
    """

    def __init__(self, capture: Capture, results: Results) -> None:
        super().__init__(capture, results)
        self._known = {id(w.replica) for w in self.arguments}
        self._views = {id(w.replica) for w in self.arguments if w.replayed}
        self._constructed: dict[int, Tensor] = {}
        self._replayed: dict[int, Tensor] = {}
        self._of_plain: dict[int, Tensor] = {}  # views of plain tensors, as ragged ones are
        self._histories: dict[int, Local] = {}  # id of a view -> the stand-in that has its history
        self._held_later: list[tuple[Tensor, str, Tensor]] = []  # wrapper, attribute, the tensor that it is in the end
        self._several: dict[Any, Local] = {}  # where the views are that one op made, by when, of what and in which mode
        self._over = False  # whether all has happened that befell arguments
        # By id of a view, from which moment on it changes its geometry when it did, and not as soon as it is made.
        self._step_by_step: dict[int, float] = {}
        self._scheduled: set[int] = set()  # ids of those of which that is on the timeline

    # -- what is returned

    def collect(self, outputs: Sequence[Any]) -> list[Tensor]:
        """Find out how each wrapper is made that is returned or put into an argument.

        Returns the plain tensors that have to be made for that.
        """
        returned = [o for o in outputs if is_wrapper(o)]
        for w in self.arguments:
            self.results.names[id(w.replica)] = Arg(w.index)
            returned += [t for _, t in self._new_attributes(w) if is_wrapper(t)]
        wanted: dict[int, Tensor] = {id(o): o for o in returned if id(o) not in self._known}
        views = [o for o in outputs if not is_wrapper(o)] if self.tracer.plain_views else []
        behind = [self._wrapper_behind(o) for o in views]
        wanted.update({id(t): t for t in behind if t is not None and id(t) not in self._known})
        for t in list(wanted.values()):
            base = self._origin(t)
            if base is not None and id(base) not in self._known:
                wanted.setdefault(id(base), base)
        plain: list[Tensor] = []
        for t in list(wanted.values()):
            base = self._origin(t)
            if base is not None and (id(base) in self._known or id(base) in wanted):
                self._replayed[id(t)] = t
                self.results.makers[id(t)] = functools.partial(self._replay, t, base)
            elif (made := self._made_of_plain(t)) is not None:
                again, others = ReplayAmong.of(made)
                plain += [made.source, *others]
                self._of_plain[id(t)] = t
                self.results.makers[id(t)] = functools.partial(self._view_plain, t, made, again, others)
            else:
                self._construct(t, plain)
        for t in views:
            if (base := self._origin(t)) is not None:
                self._replayed[id(t)] = t
                self.results.makers[id(t)] = functools.partial(self._replay, t, base)
        for w in self.arguments:
            plain += [t for _, t in self._new_attributes(w) if isinstance(t, Tensor) and not is_wrapper(t)]
        return plain

    def _construct(self, t: Tensor, plain: list[Tensor]) -> None:
        if id(t) in self._known or id(t) in self._constructed:
            return
        for _, held in held_by(t)[0]:
            if is_wrapper(held):
                self._construct(held, plain)
            else:
                plain.append(held)
        self._constructed[id(t)] = t
        self.results.makers[id(t)] = functools.partial(self._wrap, t)

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
        if made is None or base is None or type(made.source) is not Replica:
            return None
        if t.is_inference() != self.capture.entry_inference or _torch.leafness(t) is None:
            return None
        if max(self._befallen(t), self._befallen(made.source), self._befallen(base)) > made.time:
            return None
        return made

    def _view_of_plain_behind(self, t: Tensor) -> Tensor | None:
        """The wrapper of which ``t`` was made by views, itself made again as a view of a plain tensor."""
        made = self._note(t)
        while made is not None and is_wrapper(made.source):
            if self._made_of_plain(made.source) is not None:
                return made.source
            made = self._note(made.source)
        return None

    def _view_plain(self, t: Tensor, made: Derivation, again: ReplayAmong, others: Sequence[Tensor]) -> Ref:
        local = self.results.names[id(t)] = self.results.local()
        source = self.results.name(made.source)
        refs = tuple([self.results.name(x) for x in others])
        mode = ReplayMode.GRAD if made.grad else ReplayMode.NO_GRAD
        mode = ReplayMode.AMBIENT if made.grad == self.capture.entry_grad else mode
        self._emit(ReplayView(local, source, again, mode, others=refs))
        if is_new_leaf(t) and not made.source.requires_grad:  # else it requires grad as that does
            self._emit(RequireGrad(local, t.is_inference()))
        return local

    def _origin(self, t: Tensor) -> Tensor | None:
        """The wrapper of which ``t`` is made again as a view, if its history is that of a view."""
        if not is_wrapper(t):
            return self._wrapper_behind(t)
        base, made = _torch.base_of(t), self._note(t)
        if id(t) in self.tracer.set_calls:
            return None
        other = t.is_inference() != self.capture.entry_inference
        if other and (made is None or t.is_inference() or base is None):  # a view of what is none stays none
            return None
        if base is None:
            if made is not None and made.op in _ALIASES and not t.requires_grad and is_wrapper(made.source):
                return None if self._is_made_later(made.source, made.time) else made.source
            return None
        if not is_wrapper(base):
            base = self._view_of_plain_behind(t)
        if base is None or (t.requires_grad and not has_history(t) and not base.requires_grad):
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
        if _torch.base_of(t) is None or (t.is_inference() and not self.capture.entry_inference):
            return None
        while not is_wrapper(t):
            made = self._note(t)
            if made is None or id(t) in self.tracer.reshapings or self._befallen(t) or id(t) in self.tracer.set_calls:
                return None
            t = made.source
            if id(t) not in self.tracer.plain_views and not is_wrapper(t):
                return None
        if any(id(x) in self.tracer.reshapings or self._befallen(x) for x in (t, *leaves_of(t))):
            return None
        histories = any(has_history(x) for x in leaves_of(t)) and id(t) not in self._known
        return None if histories or self._made_of_plain(t) is not None else t

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
        if not base.requires_grad or _torch.creation_meta(t) == _torch.CreationMeta.IN_CUSTOM_FUNCTION:
            return True
        made = self._note(t)
        if made is None or not made.current:
            return has_other_history(t, base)
        if not (made.grad and leads_to(t, made.source)):
            return True
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
        for name, held in held_by(t)[0] if is_wrapper(t) else ():
            if id(held) in self.results.names:  # somebody else has it too
                self._emit(SetAttribute(local, name, self.results.name(held)))
        if _torch.leafness(t) is None and made is None:  # eager refuses to say what the history is
            self._emit(BumpVersion(local))
        return local

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

    def make_sources(self, wanted: Collection[int]) -> None:
        """Make those views too, ids of which are ``wanted``, of which views that are made were made."""
        for t in list(self._replayed.values()):
            made = self._note(t)
            while made is not None:
                if id(made.source) in wanted:
                    self._is_made(made.source)
                made = self._note(made.source)

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
            while made is not None and (view is t or self._is_made(view)):
                source = made.source
                early = early or self._befallen(source) > made.time
                # Of a written view of an argument, autograd looks for the history of each view by itself.
                early = early or (id(source) in self._views and has_history(view) and not made.current)
                if _torch.leafness(view) is None:
                    refused[id(view)], last = view, max(last, made.time)
                if early or id(view) in refused:
                    timeline.at(made.time, functools.partial(self.results.name, view))
                if early:
                    self._schedule_reshapings(source, timeline)
                view, made = source, self._note(source)

        for t in refused.values():
            timeline.at(last + 0.5, functools.partial(self._count_write, t))

    def _count_write(self, t: Tensor) -> None:
        self._emit(BumpVersion(self.results.name(t)))

    def _befallen(self, t: Tensor) -> int:
        """When last something befell ``t`` that shows in views made later."""
        kernels = self.tracer.kernels
        held = [x for _, x in held_by(t)[0]] if id(t) in self._known and kernels.moved else []
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

    def _wrap(self, t: Tensor) -> Ref:
        held, context = held_by(t)
        refs = tuple([self._held(t, name, x) for name, x in held])
        local = self.results.names[id(t)] = self.results.local()
        is_parameter = isinstance(t, torch.nn.Parameter)
        inference = t.is_inference() if t.is_inference() != self.capture.entry_inference else None
        inner = tuple([(name, None) for name, _ in held])
        wrapping = Wrapping(type(t), context, inner, outer_of(t), is_parameter, inference)
        self._emit(Wrap(local, wrapping, refs))
        reshaped = [w.replica for w in self.arguments if outer_of(w.replica) != w.outer]
        reshaped += [a.replica for a in self.capture.arguments if id(a.replica) in self.tracer.regeometried]
        if any(t is x for t in reshaped for _, x in held):
            self._emit(RestrideWrapper(local, outer_of(t)))  # its class may have looked at what does not lie there yet
        if is_new_leaf(t):
            self._emit(RequireGrad(local, t.is_inference()))
        return local

    def _held(self, t: Tensor, name: str, x: Tensor) -> Ref:
        """What the new wrapper ``t`` holds: ``x``, or until that is there as it will be a window on its memory."""
        if self._over or not self._is_there_later(x):
            return self.results.name(x)
        window = self.results.local()
        holder, anchor = self.results.holder(self.tracer.table.state(x))
        self._emit(WindowOn(window, holder, geometry_of(x), anchor, own_version=False))
        self._held_later.append((t, name, x))
        return window

    def _is_there_later(self, x: Tensor) -> bool:
        """Whether ``x`` lies otherwise yet, or is a view of what goes elsewhere or is cut off at its moment."""
        if is_wrapper(x):
            return False
        if id(x) in self.results.names:
            entered = self.results.entered.get(id(x))
            return entered is not None and entered != geometry_of(x) and isinstance(self.results.names[id(x)], Arg)
        if _torch.base_of(x) is None:
            return False
        arguments = {id(a.replica) for a in self.capture.arguments}
        return any(id(v) in arguments and self._befallen(v) for v in self.results.chain(x))

    def make(self) -> None:
        """Make what is constructed, and let autograd attach what of it has a history."""
        for t in self._constructed.values():
            if any(has_history(x) for _, x in held_by(t)[0]):
                if has_history(t):
                    raise UnsupportedError("subclass output", "a wrapper and what it holds have each a history")
                continue  # made when those are attached
            with self.results.before_attaching():
                ref = self.results.name(t)
            if has_history(t):
                self.results.attach(ref, t)
        for t in self._replayed.values():
            base = self._origin(t)
            if base is not None and self._is_given(t, base):
                self._histories[id(t)] = self.results.stand_in(t)

    # -- arguments

    def before(self) -> list[TakeHistory | RequireGradOfInteger]:
        """Count writes and requirements; returns the histories that arguments take over."""
        earlier = self._earlier()
        histories: list[TakeHistory | RequireGradOfInteger] = [s for steps in earlier.values() for s in steps]
        self._make_views_before_writes()
        for w in self.arguments:
            t, own = w.replica, Arg(w.index)
            if self._rebased(w) and not is_new_leaf(t):
                if w.replayed or self.results.lasting(t):
                    continue
                if differentiable_dtype(t):
                    counted = _torch.version_of(t) != w.version and w.index not in earlier
                    histories.append(TakeHistory(own, self.results.stand_in(t), counted))
                else:
                    histories.append(RequireGradOfInteger(own))
            elif is_new_leaf(t) and (w.quiet or not w.requires_grad):
                if _torch.version_of(t) != w.version:
                    self._count(w)
                self.results.before.append(RequireGrad(own))
            elif _torch.version_of(t) == w.version or outer_of(t) != w.outer:
                continue
            elif not (w.replayed and self._base_moved(w)) and not self._counts_by_reshapings(w):
                self._count(w)
        return histories

    def _counts_by_reshapings(self, w: TracedWrapper) -> bool:
        """Whether changes in place of views that are made again count all that was counted of ``w``."""
        reshaped = [t for t in self._replayed.values() if self.results.lasting(t)]
        counting = [t for t in reshaped if _torch.counted_by([w.replica], [t]) != [None]]
        counted = sum(len(self.results.lasting(t)) for t in counting)
        return 0 < counted == _torch.version_of(w.replica) - w.version

    def _earlier(self) -> dict[int, list[TakeHistory]]:
        """By base, views with a history that it had before its last: ``_foreach`` ops do not count writes of wrappers.

        The first of these counts, see ``Histories.earlier``.
        """
        replicas = {w.index: w.replica for w in self.arguments}
        found: dict[int, list[TakeHistory]] = {}
        for w in self.arguments:
            t = w.replica
            if not (w.replayed and w.base is not None and self._rebased(w)) or self.results.lasting(t):
                continue
            if has_other_history(t, replicas[w.base]):
                steps = found.setdefault(w.base, [])
                steps.append(TakeHistory(Arg(w.index), self.results.stand_in(t), counted=not steps))
        return found

    def _make_views_before_writes(self) -> None:
        """Make the views of what a write makes autograd refuse to look for a history again, if that was done before."""
        cut = self.tracer.kernels.detached
        odd = self.capture.inputs.odd_wrappers  # autograd refuses their views, once these are written
        outlive = [w for w in self.arguments if w.replayed or w.survives_cut or w.index in odd]
        outlive += [w for w in self.arguments if id(_torch.base_of(w.replica)) in cut]
        versions = {id(w.replica): w.version for w in outlive}
        found: list[Tensor] = []
        with self.results.before_attaching():
            for t in list(self._replayed.values()):
                view, made = t, self._note(t)
                early = None  # the last view of the chain that was there before the write
                while made is not None:
                    if id(view) in self._constructed:  # it is made anew
                        made = None
                        break
                    early = view if early is None and not self._is_current(view, made) else early
                    if id(made.source) in versions:
                        break
                    view, made = made.source, self._note(made.source)
                if early is None or made is None or versions[id(made.source)] != made.source_version:
                    continue
                if early is t or self._is_made(early):
                    self._reshape_later(early)
                    found.append(early)
            for t in sorted(found, key=self._made_at):
                self.results.name(t)

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

    def schedule(self, timeline: Timeline) -> None:
        """Let arguments change beside data and history when they did: outer geometry, what they hold, being cut."""
        kernels = self.tracer.kernels
        timeline.at(math.inf, self._hold)
        for w in self.arguments:
            t, own = w.replica, Arg(w.index)
            steps = self._changes_of_geometry(w)
            if steps and self._is_used_only_reshaped(w):
                self.results.before += steps
                steps = []
            for step in steps:
                timeline.at(kernels.moved.get(id(t), math.inf), functools.partial(self.results.steps.append, step))
            timeline.at(math.inf, functools.partial(self._set_attributes, w))
            if self._is_cut(w):
                cut = Detach(own, bool(w.real_is_leaf))
                timeline.at(kernels.detached.get(id(t), math.inf), functools.partial(self.results.steps.append, cut))

    def _is_used_only_reshaped(self, w: TracedWrapper) -> bool:
        """Whether gradients of the leaf ``w`` arrive only in the shape that it has by the end, which is another."""
        t = w.replica
        if not (w.real_is_leaf and is_new_leaf(t)) or is_jagged(t) or outer_of(t)[0] == w.outer[0]:
            return False
        notes = [self._note(v) for v in self._replayed.values()]
        if any(made is not None and made.source is t and made.time < self._befallen(t) for made in notes):
            return False
        reached = reached_leaves([a.tensor for a in self.results.attached]).get(id(t), [])
        return {_torch.gradient_shape(e.node) for e in reached} == {outer_of(t)[0]}

    def _hold(self) -> None:
        """Let wrappers hold what is there only by now."""
        self._over = True
        for t, name, x in self._held_later:
            ref = self.results.name(x)
            self._emit(SetAttribute(self.results.names[id(t)], name, ref))

    def survivors(self) -> list[Tensor]:
        """The wrappers that are there after the call and have a history."""
        wrappers = [w.replica for w in self.arguments]
        wrappers += [*self._constructed.values(), *self._replayed.values(), *self._of_plain.values()]
        return [t for t in wrappers if has_history(t)]


def _mode_around_inference(made: Derivation, entry_inference: bool) -> ReplayMode:
    """The mode in which a view was made, as seen from a call that is made in inference mode or not."""
    if made.inference:
        return ReplayMode.AMBIENT if entry_inference else ReplayMode.INFERENCE
    return ReplayMode.OUTSIDE_WITH_GRAD if made.grad else ReplayMode.OUTSIDE_WITHOUT_GRAD


def _data(t: Tensor) -> Tensor:
    return t.data
