"""What a call does to its wrapper arguments, and how the wrappers that it returns are made.

See Note [Wrappers]. A returned wrapper is an argument, is *replayed*, being a view of another wrapper, or is
*constructed* from tensors that are made as if they were returned themselves. What it is constructed from has no history
as a rule: a wrapper's history is its own, and the autograd Function of its group attaches it. How views are made again
is in `wrapper_views.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import differentiable_dtype, has_history, has_other_history, is_new_leaf
from aotcheck.autograd.effects.wrapper_views import WrapperViews
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import geometry_of
from aotcheck.autograd.record.steps import (
    Arg,
    Detach,
    PickHeld,
    Ref,
    RenewHistory,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    RestrideWrapper,
    Result,
    SetAttribute,
    ShareCache,
    TakeHistory,
    WindowOn,
    Wrap,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.replicas.windows import Derivation, ReplayAmong
from aotcheck.autograd.tensors.subclasses import Wrapping, caches_of, held_by, is_jagged, is_wrapper, outer_of
from aotcheck.autograd.tracing.traced_inputs import TracedWrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class WrappedResults(WrapperViews):
    """The wrappers of one call, as the epilogue has to make or change them.

    Used by the epilogue's builder, whose parts are for plain tensors.
    """

    def __init__(self, capture: Capture, results: Results) -> None:
        super().__init__(capture, results)
        self._of_plain: dict[int, Tensor] = {}  # views of plain tensors, as ragged ones are
        self._held_later: list[tuple[Tensor, str, Tensor]] = []  # wrapper, attribute, the tensor that it is in the end
        self._written: list[Tensor] = []  # what views were before they changed their geometry, having been written
        # by id of a dictionary that wrappers have as an attribute: the name of one that has it
        self._caches: dict[int, Ref] = {}
        for w in self.arguments:
            for cache in caches_of(w.replica).values():
                self._caches.setdefault(id(cache), Arg(w.index))
        self._over = False  # whether all has happened that befell arguments

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
        changed: list[Tensor] = []  # what views hold and would not hold if they were made again
        todo = list(wanted.values())
        for t in todo:
            base = self._origin(t)
            also = [base] if base is not None else []
            if base is None and self._made_of_plain(t) is None:
                also = [x for _, x in held_by(t)[0] if is_wrapper(x)]
            new = [x for x in also if id(x) not in self._known and id(x) not in wanted]
            if base is not None and id(t) not in self._known:
                for x in [x for _, x in held_by(t)[0] if self._is_changed(x)]:
                    if not is_wrapper(x):
                        changed.append(x)
                    elif id(x) not in self._known and id(x) not in wanted:
                        new.append(x)
            if has_history(t) or id(t) in self._anew:  # it is there before views are
                self._anew.update(id(x) for x in new if x is not base)
            wanted.update({id(x): x for x in new})
            todo += new
        plain = changed
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
            plain += [t for _, _, t in self._new_in_caches(w)]
        return plain

    def _is_changed(self, x: Tensor) -> bool:
        """Whether something befell ``x``, which a view holds, that did not come to it by way of that."""
        if is_wrapper(x):
            return any(self._is_changed(held) for _, held in held_by(x)[0])
        reshaped = any(change.counted for change in self.tracer.reshapings.get(id(x), ()))
        return x.requires_grad or reshaped or id(x) in self.tracer.set_calls or self.tracer.kernels.went_by_data(x)

    def _construct(self, t: Tensor, plain: list[Tensor]) -> None:
        plain += [x for _, x in held_by(t)[0] if not is_wrapper(x)]
        self._constructed[id(t)] = t
        self.results.makers[id(t)] = functools.partial(self._wrap, t)

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

    def _wrap(self, t: Tensor) -> Ref:
        held, context = held_by(t)
        refs = tuple([self._held(t, name, x) for name, x in held])
        local = self.results.names[id(t)] = self.results.local()
        is_parameter = isinstance(t, torch.nn.Parameter)
        inference = t.is_inference() if t.is_inference() != self.capture.entry_inference else None
        inner = tuple([(name, None) for name, _ in held])
        wrapping = Wrapping(type(t), context, inner, outer_of(t), is_parameter, inference)
        self._emit(Wrap(local, wrapping, refs))
        for name, cache in caches_of(t).items():
            other = self._caches.setdefault(id(cache), local)
            if other != local:
                self._emit(ShareCache(local, name, other))
        if self.tracer.regeometried and not is_jagged(t):
            # Its class may have looked at what does not lie there yet.
            self._emit(RestrideWrapper(local, outer_of(t), counted=False))
        if is_new_leaf(t):
            self._emit(RequireGrad(local, t.is_inference()))
        return local

    def _held(self, t: Tensor, name: str, x: Tensor) -> Ref:
        """What the new wrapper ``t`` holds: ``x``, or until that is there as it will be a window on its memory."""
        known = self.results.names.get(id(x))
        if (known is None or isinstance(known, Result)) and (v := self._ragged_view_with(x)) is not None:
            self._pick_offsets(v, x)
        if self._over or not self._is_there_later(x):
            return self.results.name(x)
        window = self.results.local()
        holder, anchor = self.results.holder(self.tracer.table.state(x))
        self._emit(WindowOn(window, holder, geometry_of(x), anchor, own_version=False))
        self._held_later.append((t, name, x))
        return window

    def _ragged_view_with(self, x: Tensor) -> Tensor | None:
        """A ragged view that holds ``x``, if that says how ragged it is and nothing befell what it is a view of.

        Its size tells of that very tensor, which is made with the view and not otherwise.
        """
        for v in self._replayed.values():
            if is_wrapper(v) and is_jagged(v) and getattr(v, "_offsets", None) is x and self._is_undisturbed(v):
                return v
        return None

    def _is_undisturbed(self, v: Tensor) -> bool:
        """Whether nothing befell the argument that ``v`` is a view of, nor the view itself."""
        versions = {id(w.replica): w.version for w in self.arguments if not self._rebased(w)}
        view = v
        while id(view) not in versions:
            made = self._note(view)
            if made is None or id(view) in self.tracer.reshapings or id(view) in self._constructed:
                return False
            view = made.source
        events = self.tracer.kernels.required, self.tracer.kernels.detached, self.tracer.kernels.moved
        return _torch.version_of(view) == versions[id(view)] and not any(id(x) in e for e in events for x in (v, view))

    def _pick_offsets(self, v: Tensor, x: Tensor) -> None:
        """Make the view ``v``; what says how ragged it is, ``x``, others hold as well."""
        self._shared.add((id(v), "_offsets"))
        ref, local = self.results.name(v), self.results.local()
        self.results.names[id(x)] = local
        self._emit(PickHeld(local, ref, "_offsets"))

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
            if not has_history(t) and self._waits(t):
                continue  # made when that is
            with self.results.before_attaching():
                ref = self.results.name(t)
            if has_history(t) and differentiable_dtype(t):
                self.results.attach(ref, t)
            elif has_history(t):
                self.results.steps.append(RequireGradOfInteger(ref))
        for t in self._replayed.values():
            base = self._origin(t)
            if base is not None and self._is_given(t, base):
                self._histories[id(t)] = self.results.stand_in(t)
            if is_wrapper(t) and is_new_leaf(t) and (made := self._note(t)) is not None:
                self.results.leaves_of_wrappers.append((made.time, t))

    def _waits(self, t: Tensor) -> bool:
        """Whether ``t`` holds wrappers that are views, or arguments that lie elsewhere only later."""
        held = [x for _, x in held_by(t)[0] if is_wrapper(x)]
        if any(id(x) in self._replayed or (id(x) in self._known and self._befallen(x)) for x in held):
            return True
        return any(id(x) in self._constructed and self._waits(x) for x in held)

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
                    counted = counted and not self._counts_by_reshapings(w)
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

    def _earlier(self) -> dict[int, list[TakeHistory]]:
        """By base, views with a history that it had before its last: ``_foreach`` ops do not count writes of wrappers.

        The first of these counts, see ``Histories.earlier``.
        """
        replicas = {w.index: w.replica for w in self.arguments}
        found: dict[int, list[TakeHistory]] = {}
        for w in self.arguments:
            t = w.replica
            if not (w.replayed and w.base in replicas and self._rebased(w)) or self.results.lasting(t):
                continue
            if has_other_history(t, replicas[w.base]):
                steps = found.setdefault(w.base, [])
                steps.append(TakeHistory(Arg(w.index), self.results.stand_in(t), counted=not steps))
        return found

    def kept(self) -> list[tuple[float, TakeHistory | RenewHistory]]:
        """The same as ``Histories.kept`` of wrappers."""
        by_index = {w.index: w for w in self.arguments}
        found: list[tuple[float, TakeHistory | RenewHistory]] = []
        for w in self.arguments:
            t, base = w.replica, by_index.get(w.base) if w.replayed and w.base is not None else None
            if base is None or not (has_history(t) and differentiable_dtype(t)):
                continue
            if base.replica.requires_grad and not base.begins_anew:
                continue
            node, cut = _torch.grad_fn_of(t), self.tracer.kernels.detached.get(id(base.replica))
            leads = node is not None and any(n is not None for n, _ in node.next_functions)
            if cut is None or not leads or self.results.node_before_changes(t) is w.grad_fn:
                continue
            own = Arg(w.index)
            step: TakeHistory | RenewHistory = RenewHistory(own)
            if changes := self.results.lasting(t):  # which are repeated
                written = past(self.results.edge_before_changes(t), t.device, self.tracer.kernels)
                local = self.results.names[id(written)] = self.results.stand_in(written)
                self._written.append(written)
                self.results.takers[id(written)] = t
                step, cut = TakeHistory(own, local, counted=False), min(cut, changes[0].time)
            elif base.real_is_leaf is False:
                step = TakeHistory(own, self.results.stand_in(t))
            found.append((cut - 0.5, step))
        return found

    def _make_views_before_writes(self) -> None:
        """Make the views of what a write makes autograd refuse to look for a history again, if that was done before."""
        cut = self.tracer.kernels.detached
        odd = self.capture.inputs.odd_wrappers  # autograd refuses their views, once these are written
        outlive = [w for w in self.arguments if w.replayed or w.survives_cut or w.index in odd]
        outlive += [w for w in self.arguments if id(_torch.base_of(w.replica)) in cut]
        of_written = self._views_of_written_memory()
        outlive += [w for w in self.arguments if id(w.replica) in of_written]
        versions = {id(w.replica): w.version for w in outlive}
        found: list[Tensor] = []
        with self.results.before_attaching():
            for t in list(self._replayed.values()):
                view, made = t, self._note(t)
                early = None  # the last view of the chain that was there before the write
                if of_written and made is not None and made.time < of_written.get(id(self._root_of(t)), 0):
                    early = t
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
            before, ahead = self.results.before, 0
            for t in sorted(found, key=self._made_at):
                first = len(before)
                self.results.name(t)
                if id(self._root_of(t)) in of_written:  # that write is counted already
                    steps = before[first:]
                    del before[first:]
                    before[ahead:ahead] = steps
                    ahead += len(steps)

    def _views_of_written_memory(self) -> dict[int, int]:
        """By id, the arguments that count versions with plain memory that was written, as ragged ones do, and when."""
        plain = {a.index: a for a in self.capture.arguments}
        bases = [(w, plain[w.base]) for w in self.arguments if w.base in plain]
        for w, b in bases:
            rebased = b.replica.requires_grad and _torch.grad_fn_of(b.replica) is not b.grad_fn
            if (
                w.real_is_leaf is False and rebased and not w.replayed
            ):  # what is computed of it then would lead past the write
                raise UnsupportedError("captured tensor", "a ragged argument is a view of another that is written")
        return {id(w.replica): b.state.written for w, b in bases if _torch.version_of(b.replica) != b.version}

    def _root_of(self, t: Tensor) -> Tensor:
        """What ``t`` was made of by views, an argument perhaps."""
        while id(t) not in self._known and (made := self._note(t)) is not None:
            t = made.source
        return t

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

    def of_plain(self) -> list[tuple[Ref, str, Ref]]:
        """What ragged tensors made of plain ones hold of these: tensor, attribute, and what it is."""
        names, made = self.results.names, [t for t in self._of_plain.values() if id(t) in self.results.names]
        held = [(names[id(t)], name, x) for t in made for name, x in held_by(t)[0]]
        return [(ref, name, names[id(x)]) for ref, name, x in held if id(x) in names]

    def held_by_results(self) -> list[tuple[Ref, Tensor]]:
        """What the caller finds in wrappers that were made anew."""
        held = [x for t in self._constructed.values() for _, x in held_by(t)[0]]
        return [(self.results.names[id(x)], x) for x in held if id(x) in self.results.names]

    def survivors(self) -> list[Tensor]:
        """The wrappers that are there after the call and have a history."""
        wrappers = [w.replica for w in self.arguments]
        wrappers += [*self._constructed.values(), *self._replayed.values(), *self._of_plain.values()]
        return [*[t for t in wrappers if has_history(t)], *self._written]
