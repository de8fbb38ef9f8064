"""What a call does to its wrapper arguments, and how the wrappers that it returns are made.

See Note [Wrappers]. A returned wrapper is an argument, is *replayed*, being a view of another wrapper, or is
*constructed* from tensors that are made as if they were returned themselves. What it is constructed from has no history
as a rule: a wrapper's history is its own, and the autograd Function of its group attaches it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.record import (
    Arg,
    BumpVersion,
    Constant,
    Detach,
    Ref,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RestrideWrapper,
    Root,
    SetAttribute,
    SetCreationMeta,
    Step,
    TakeHistory,
    Wrap,
)
from aotcheck.autograd.results import Results, has_history, is_new_leaf, leads_to
from aotcheck.autograd.subclasses import Wrapping, held_by, is_wrapper, outer_of

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, TracedWrapper
    from aotcheck.autograd.windows import Derivation

_ALIASES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


class WrappedResults:
    """The wrappers of one call, as the epilogue has to make or change them.

    Used by the epilogue's builder, whose parts are for plain tensors.
    """

    def __init__(self, capture: Capture, results: Results) -> None:
        self.capture = capture
        self.results = results
        self.arguments = capture.wrappers
        self.tracer = capture.tracer
        self._known = {id(w.replica) for w in self.arguments}
        self._constructed: dict[int, Tensor] = {}
        self._replayed: dict[int, Tensor] = {}

    @property
    def roots(self) -> tuple[Root, ...]:
        """The wrappers that gradients may go to."""
        return tuple(Root(Arg(w.index), w.requires_grad, w.real_is_leaf is not False) for w in self.arguments)

    # -- what is returned

    def _check_hooks(self, returned: Sequence[Tensor]) -> None:
        known = {id(w.replica): w.hooks for w in self.arguments}
        for t in [*returned, *[w.replica for w in self.arguments]]:
            if _torch.count_hooks(t) != known.get(id(t), 0) and not t.retains_grad:
                raise UnsupportedError("hook", "one registered inside on a tensor subclass")

    def collect(self, outputs: Sequence[Any]) -> list[Tensor]:
        """Find out how each wrapper is made that is returned or put into an argument.

        Returns the plain tensors that have to be made for that.
        """
        returned = [o for o in outputs if is_wrapper(o)]
        self._check_hooks(returned)
        for w in self.arguments:
            self.results.names[id(w.replica)] = Arg(w.index)
            returned += [t for _, t in self._new_attributes(w) if is_wrapper(t)]
        wanted: dict[int, Tensor] = {id(o): o for o in returned if id(o) not in self._known}
        bases: dict[int, list[Tensor]] = {}
        for t in wanted.values():
            base = self._origin(t)
            if base is not None:
                bases.setdefault(id(base), []).append(base)
        for key, found in bases.items():
            if len(found) > 1 and key not in self._known:
                wanted.setdefault(key, found[0])
        plain: list[Tensor] = []
        for t in list(wanted.values()):
            base = self._origin(t)
            if base is not None and (id(base) in self._known or id(base) in wanted):
                self._replayed[id(t)] = t
                self.results.makers[id(t)] = functools.partial(self._replay, t, base)
            else:
                self._construct(t, plain)
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

    def _origin(self, t: Tensor) -> Tensor | None:
        """The wrapper of which ``t`` is made again as a view, if its history is that of a view."""
        base, made = _torch.base_of(t), self.tracer.views.get(id(t))
        if t.is_inference() != self.capture.entry_inference:
            return None
        if base is None:
            if made is not None and made.op in _ALIASES and not t.requires_grad and is_wrapper(made.source):
                return made.source if made.source_stays else None
            return None
        if not is_wrapper(base) or _torch.creation_meta(t) == _torch.CreationMeta.IN_CUSTOM_FUNCTION:
            return None
        if has_history(t):
            if not base.requires_grad:
                return None
            if made is not None and made.current and not (made.grad and leads_to(t, made.source)):
                return None
        elif t.requires_grad and _torch.creation_meta(t) != _torch.CreationMeta.NO_GRAD_MODE:
            return None
        return base

    def _replay(self, t: Tensor, base: Tensor) -> Ref:
        made = self._current(t)
        local = self.results.names[id(t)] = self.results.local()
        how = _torch.creation_meta(t) if _torch.base_of(t) is not None else _torch.CreationMeta.DEFAULT
        mode = ReplayMode.GRAD if has_history(t) else ReplayMode.NO_GRAD
        if not base.requires_grad:
            mode = ReplayMode.AMBIENT
        near = made is not None and (made.source is base or id(made.source) in self._replayed)
        source, again = base, _torch.view_func_of(t)
        if made is not None and near:
            source, again = made.source, made.replay
        ref = self.results.name(source)
        self._emit(ReplayView(local, ref, again, mode))
        if how not in (_torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE):
            self._emit(SetCreationMeta(local, how))
        for name, held in held_by(t)[0]:
            if id(held) in self.results.names:  # somebody else has it too
                self._emit(SetAttribute(local, name, self.results.name(held)))
        return local

    def _current(self, t: Tensor) -> Derivation | None:
        made = self.tracer.views.get(id(t))
        return made if made is not None and made.current and made.source_stays else None

    def _emit(self, step: Step) -> None:
        self.results.emit(step)

    def _wrap(self, t: Tensor) -> Ref:
        held, context = held_by(t)
        refs = tuple([self.results.name(x) for _, x in held])
        local = self.results.names[id(t)] = self.results.local()
        is_parameter = isinstance(t, torch.nn.Parameter)
        inference = t.is_inference() if t.is_inference() != self.capture.entry_inference else None
        inner = tuple([(name, None) for name, _ in held])
        wrapping = Wrapping(type(t), context, inner, outer_of(t), is_parameter, inference)
        self._emit(Wrap(local, wrapping, refs))
        if is_new_leaf(t):
            self._emit(RequireGrad(local))
        return local

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

    # -- arguments

    def needs_bases(self) -> bool:
        """Whether views among the wrappers have to be traced as views of their bases."""
        if self.capture.mode.with_bases:
            return False
        for w in self.arguments:
            is_view = self._is_view(w)
            others = any(o.base == w.index or (is_view and o.base == w.base) for o in self.arguments if o is not w)
            if not is_view and not others:
                continue
            t = w.replica
            moved = is_view and w.requires_grad and _torch.version_of(t) != w.version
            if self._rebased(w) or moved or t.requires_grad != w.requires_grad:
                return True
        return False

    def _is_view(self, w: TracedWrapper) -> bool:
        return w.base is not None and any(o.index == w.base for o in self.arguments)

    def _rebased(self, w: TracedWrapper) -> bool:
        return w.replica.requires_grad and _torch.grad_fn_of(w.replica) is not w.grad_fn

    def before(self) -> list[TakeHistory]:
        """Count writes and requirements; returns the histories that arguments take over."""
        histories = []
        for w in self.arguments:
            t, own = w.replica, Arg(w.index)
            replayed = self.capture.mode.with_bases and self._is_view(w)
            if self._rebased(w) and not is_new_leaf(t):
                if not replayed:
                    histories.append(TakeHistory(own, self.results.stand_in(t)))
            elif is_new_leaf(t) and not w.requires_grad:
                self.results.before.append(RequireGrad(own))
            elif _torch.version_of(t) == w.version or outer_of(t) != w.outer:
                continue
            elif not (replayed and self._base_moved(w)):
                self.results.before.append(BumpVersion(own))
        return histories

    def _base_moved(self, w: TracedWrapper) -> bool:
        """Whether the base of the view ``w``, with which it counts versions, is told to count by itself."""
        return any(o.index == w.base and _torch.version_of(o.replica) != o.version for o in self.arguments)

    def finish(self) -> None:
        """What changes of arguments beside data and history: their outer geometry, and what they hold."""
        for w in self.arguments:
            t, own = w.replica, Arg(w.index)
            if outer_of(t) != w.outer:
                self.results.steps.append(RestrideWrapper(own, outer_of(t)))
            for name, value in self._new_attributes(w):
                found = self.results.name(value) if isinstance(value, Tensor) else Constant(value)
                self.results.steps.append(SetAttribute(own, name, found))

    def cut(self) -> None:
        """Cut from their history the arguments that the function cuts."""
        for w in self.arguments:
            if w.requires_grad and not w.replica.requires_grad:
                self.results.steps.append(Detach(Arg(w.index), bool(w.real_is_leaf)))

    def _new_attributes(self, w: TracedWrapper) -> list[tuple[str, Any]]:
        """What the function assigned to attributes of a wrapper argument."""
        found = []
        for name, value in vars(w.replica).items():
            old = w.attributes.get(name, _torch.META)
            if value is not old and (isinstance(value, Tensor) or isinstance(old, Tensor) or _differ(value, old)):
                found.append((name, value))
        return found

    def survivors(self) -> list[Tensor]:
        """The wrappers that are there after the call and have a history."""
        wrappers = [w.replica for w in self.arguments]
        wrappers += [*self._constructed.values(), *self._replayed.values()]
        return [t for t in wrappers if has_history(t)]


def _differ(a: Any, b: Any) -> bool:
    try:
        return bool(a != b)
    except Exception:
        return True
