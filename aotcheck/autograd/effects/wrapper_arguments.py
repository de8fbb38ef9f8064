"""What a call does to its wrapper arguments: histories, counted writes, geometries, what is assigned to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import is_new_leaf
from aotcheck.autograd.record.record import Root
from aotcheck.autograd.record.steps import (
    Arg,
    BumpVersion,
    Constant,
    FillCache,
    Reshape,
    RestrideWrapper,
    SetAttribute,
    Step,
)
from aotcheck.autograd.tensors.subclasses import caches_of, is_jagged, is_wrapper, outer_of
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedWrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class WrapperArguments:
    """The wrappers among the arguments of one call."""

    def __init__(self, capture: Capture, results: Results) -> None:
        self.capture = capture
        self.results = results
        self.arguments = capture.wrappers
        self.tracer = capture.tracer
        self._counted: list[Tensor] = []  # those of which a write is counted before results are attached

    @property
    def roots(self) -> tuple[Root, ...]:
        """The wrappers that gradients may go to."""
        return tuple(
            Root(Arg(w.index), w.requires_grad, w.real_is_leaf is not False, moves=self._moves(w))
            for w in self.arguments
        )

    def _moves(self, w: TracedWrapper) -> bool:
        """Whether ``w`` has another history than it came with before all results that lead to that are attached."""
        if w.begins_anew:
            return True
        if not (w.requires_grad and self.results.attaches_late):
            return False
        if w.real_is_leaf is not False:
            return id(w.replica) in self.tracer.kernels.detached
        return _torch.grad_fn_of(w.replica) is not w.grad_fn

    def needs_bases(self) -> bool:
        """Whether views among the wrappers have to be traced as views of their bases, with which they count writes."""
        if self.capture.mode.with_bases:
            return False
        plain = {a.index: a for a in self.capture.arguments}
        for w in self.arguments:
            is_view = self._is_view(w)
            if w.base in plain and is_jagged(w.replica) and self._is_apart(w, plain[w.base]):
                return True
            others = any(o.base == w.index or (is_view and o.base == w.base) for o in self.arguments if o is not w)
            if not is_view and not others:
                continue
            t = w.replica
            if self._rebased(w) or _torch.version_of(t) != w.version or t.requires_grad != w.requires_grad:
                return True
        return False

    def _is_apart(self, w: TracedWrapper, base: TracedArgument) -> bool:
        """Whether it shows that the ragged ``w`` is no view of the plain ``base`` in the trace."""
        for x in (w, base):
            t = x.replica
            if _torch.version_of(t) != x.version or t.requires_grad != x.requires_grad:
                return True
            if x.requires_grad and _torch.grad_fn_of(t) is not x.grad_fn:
                return True
        if id(base.replica) in self.tracer.kernels.detached:
            return True
        alone = w.requires_grad and not base.requires_grad
        made = [*self.tracer.views.values(), *self.tracer.plain_views.values()] if alone else []
        return any(d.source is w.replica and (d.inference or not d.grad) for d in made)

    def _is_view(self, w: TracedWrapper) -> bool:
        return w.base is not None and any(o.index == w.base for o in self.arguments)

    def _rebased(self, w: TracedWrapper) -> bool:
        return w.replica.requires_grad and _torch.grad_fn_of(w.replica) is not w.grad_fn

    def _count(self, w: TracedWrapper) -> None:
        """Count a write of ``w``, once for all that count versions with it."""
        if _torch.counted_by([w.replica], self._counted) == [None]:
            self._counted.append(w.replica)
            self.results.before.append(BumpVersion(Arg(w.index)))

    def _base_moved(self, w: TracedWrapper) -> bool:
        """Whether the base of the view ``w``, with which it counts versions, is told to count by itself."""
        arguments: list[TracedWrapper | TracedArgument] = [*self.arguments, *self.capture.arguments]
        return any(o.index == w.base and _torch.version_of(o.replica) != o.version for o in arguments)

    def _changes_of_geometry(self, w: TracedWrapper) -> list[Step]:
        t, own = w.replica, Arg(w.index)
        last = self.results.lasting(t)
        if last:
            sizes, strides, offset = last[0].geometry.shape, last[0].geometry.stride, last[0].geometry.offset
        else:
            sizes, strides, offset = outer_of(t)
        steps: list[Step] = []
        if (sizes, strides, offset) != w.outer:
            changes = self.tracer.reshapings.get(id(t), ())
            counted = not changes or any(c.counted for c in changes)
            steps.append(RestrideWrapper(own, (sizes, strides, offset), counted))
        return [*steps, *[Reshape(own, change.repeat_outside) for change in last]]

    def _is_cut(self, w: TracedWrapper) -> bool:
        """Whether the function cuts ``w`` from its history; a view goes with its base."""
        if w.begins_anew:
            return True
        if not w.requires_grad:
            return False
        if w.real_is_leaf and is_new_leaf(w.replica):
            return False  # nor is it by the end
        is_view = w.replayed or self._is_view(w)
        if w.replica.requires_grad:  # if it was cut, then it was written since, and has another history
            return id(w.replica) in self.tracer.kernels.detached and not is_view
        return bool(w.real_is_leaf) or id(w.replica) in self.tracer.kernels.detached or not is_view

    def _set_attributes(self, w: TracedWrapper) -> None:
        for name, value in self._new_attributes(w):
            found = self.results.name(value) if isinstance(value, Tensor) else Constant(value)
            self.results.steps.append(SetAttribute(Arg(w.index), name, found))
        for name, key, t in self._new_in_caches(w):
            self.results.steps.append(FillCache(Arg(w.index), name, key, self.results.name(t)))

    @staticmethod
    def _new_in_caches(w: TracedWrapper) -> list[tuple[str, Any, Tensor]]:
        """The plain tensors that came into dictionaries of a wrapper argument: of which, and as what."""
        found: list[tuple[str, Any, Tensor]] = []
        for name, cache in caches_of(w.replica).items():
            before = w.caches.get(name, {})
            new = [(key, x) for key, x in cache.items() if key not in before]
            found += [(name, key, x) for key, x in new if isinstance(x, Tensor) and not is_wrapper(x)]
        return found

    def _new_attributes(self, w: TracedWrapper) -> list[tuple[str, Any]]:
        """What the function assigned to attributes of a wrapper argument."""
        found = []
        for name, value in vars(w.replica).items():
            if _torch.is_kept_by_torch(name):
                continue
            old = w.attributes.get(name, _torch.META)
            if value is not old and (isinstance(value, Tensor) or isinstance(old, Tensor) or _differ(value, old)):
                found.append((name, value))
        return found


def _differ(a: Any, b: Any) -> bool:
    try:
        return bool(a != b)
    except Exception:
        return True
