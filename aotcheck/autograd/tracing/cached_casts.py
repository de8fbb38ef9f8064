"""What autocast's cache holds of the call's arguments.

Note [Cached casts]
Autocast casts a leaf that requires grad once in a region and caches that, so the calls in a region use one cast of a
weight between them: their gradients are summed up in the lower precision before they become the weight's, and what is
written to the weight in between is not seen. So in a region, the casts of those arguments that the function lets
autocast cast are further arguments, after all others, taken from the very cache that eager uses. The first trace that
meets such a cast begins anew with them, cast to the dtype that it met: the function may have an autocast of its own
inside, and the cache knows of no dtypes. A trace then finds them in the cache too: each is cast there before the
function runs, and what that gives holds the value of the further argument, at which gradients of it arrive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import RetraceWithCasts
from aotcheck.autograd.ir.trace import geometry_of
from aotcheck.autograd.replicas.replicas import Replica, make_replica
from aotcheck.autograd.state.autocast import autocast_state, autocast_to

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


class _Seeded(Exception):
    """The argument is cast; what it is cast for is of no interest."""


class CachedCast(NamedTuple):
    """Argument ``cast`` is what autocast's cache holds of argument ``of``."""

    of: int
    cast: int


def in_region() -> bool:
    """Whether the call is made where autocast casts and caches."""
    return bool(autocast_state()) and torch.is_autocast_cache_enabled() and not torch.is_inference_mode_enabled()


def cacheable(t: Any, dtype: torch.dtype) -> bool:
    """Whether autocast caches it if ``t`` is cast to ``dtype``."""
    return (
        isinstance(t, Tensor)
        and t.dtype is torch.float32
        and t.requires_grad
        and _torch.leafness(t) is True
        and _torch.base_of(t) is None
        and dict(autocast_state()).get(t.device.type) is dtype
    )


def cast_of(t: Any, dtype: torch.dtype) -> Tensor | None:
    """What autocast's cache holds of ``t``, which is cast to ``dtype`` if it is not there.

    None where it is not for the cache, or has been cast to another dtype.
    """
    if type(t) not in _PLAIN:
        return None
    with autocast_to(t.device.type, dtype):
        if not cacheable(t, dtype):
            return None
        with _torch.without_modes(), _torch.without_torch_function(), _torch.WithoutSavedTensorHooks():
            nothing = torch.empty((0, *t.shape), dtype=dtype, device=t.device, requires_grad=True)
            try:
                if not torch.is_grad_enabled():
                    cast_for_product(t, nothing)  # what is cast here has no history
                with torch.enable_grad():
                    return _torch.factor_of(cast_for_product(t, nothing))
            except RuntimeError:
                return None


def cast_for_product(t: Tensor, nothing: Tensor) -> Tensor:
    """A product of ``t`` and a tensor without elements: an op for which autocast casts, and that computes nothing."""
    result: Tensor = aten.linalg_vecdot.default(t, nothing)
    return result


def casts_of(passed: Sequence[Any], wanted: Mapping[int, torch.dtype]) -> tuple[list[Tensor], tuple[CachedCast, ...]]:
    """The casts of those of the arguments ``passed`` whose indices are ``wanted``, and of which argument each is."""
    found = {k: cast for k in sorted(wanted) if (cast := cast_of(passed[k], wanted[k])) is not None}
    return list(found.values()), tuple([CachedCast(k, len(passed) + n) for n, k in enumerate(found)])


class TracedCasts:
    """Autocast's cache in one trace, whose arguments have the replicas ``flat``.

    ``casts`` are arguments themselves, ``asked`` the indices of arguments for whose casts none need be asked any more.
    """

    def __init__(
        self, tracer: Tracer, flat: Sequence[Any], casts: Sequence[CachedCast], asked: Collection[int]
    ) -> None:
        self._tracer = tracer
        self._flat = flat
        self._casts = casts
        self._places = {id(t): k for k, t in enumerate(flat) if type(t) is Replica and k not in asked}
        self._seeding: Replica | None = None
        self._met: dict[int, torch.dtype] = {}
        self.made: list[tuple[Tensor, int]] = []  # what each cast of an argument gave, and which argument holds that

    def seed(self) -> None:
        """Let the casts that are arguments be in the cache."""
        for of, cast in self._casts:
            t, self._seeding = self._flat[of], self._flat[cast]
            with _torch.without_modes():
                elem = torch.empty((0, *t.shape), dtype=self._seeding.dtype, device=_torch.META)
                nothing = make_replica(elem, t.device, self._tracer.kernels)
            try:
                recording = self._tracer.recording(), torch.set_grad_enabled(self._seeding.requires_grad)
                with autocast_to(t.device.type, self._seeding.dtype), recording[0], recording[1]:
                    cast_for_product(t, nothing)
            except _Seeded:
                self.made.append((self._made, cast))
            finally:
                self._seeding = None

    def on_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Note a cast as autocast makes it; its result where the cache is being filled."""
        if self._seeding is not None:
            if func is not aten._to_copy.default:
                raise _Seeded
            value, device = self._tracer.value_of(self._seeding), self._seeding.device
            self._made = self._tracer.fresh(geometry_of(self._seeding), device, value)
            return self._made
        if func is aten._to_copy.default and (k := self._places.get(id(args[0]))) is not None:
            with _torch.as_before_dispatch():
                changed = self._tracer.table.state(args[0]).version or id(args[0]) in self._tracer.regeometried
                dtype: torch.dtype | None = kwargs.get("dtype")
                if dtype is not None and cacheable(args[0], dtype) and not changed:
                    self._met.setdefault(k, dtype)
        return None

    def settle(self) -> None:
        """Raise RetraceWithCasts if arguments were cast whose casts are no arguments."""
        if self._met:
            raise RetraceWithCasts(self._met)

    @property
    def unused(self) -> frozenset[int]:
        """The arguments whose casts are arguments of no use: they were cast, but not by autocast."""
        used = {a for v in self._tracer.trace.values for a in v.inputs()}
        unread = {k for t, k in self.made if self._tracer.table.read(t) not in used}
        return frozenset([of for of, cast in self._casts if cast in unread])
