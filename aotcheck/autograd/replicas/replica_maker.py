"""Replicas of the tensors that a call is given: on the same storages, with the same leafness and version counters."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.trace import geometry_of, recorded_geometry
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.replicas.replicas import Replica, given_attributes, make_replica
from aotcheck.autograd.tensors.subclasses import is_wrapper


class _Rebound(torch.autograd.Function):
    """Gives its second argument a grad_fn: a non-leaf that is not a view.

    ``arrived`` of the node is the gradient that came by last; it comes to the anchor unless it is a ``whole`` wrapper.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, t: Tensor, whole: bool = False) -> Tensor:
        ctx.mark_dirty(t)
        ctx.set_materialize_grads(False)
        ctx.arrived, ctx.whole = None, whole
        return t

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.arrived = grads[0] if ctx.whole else None
        return None if ctx.whole else grads[0], None, None


class ReplicaMaker:
    """Replicas of the real tensors of one call, each storage made once."""

    def __init__(self) -> None:
        self.kernels = KernelState()
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.counters: dict[Any, Tensor] = {}
        self.anchors: list[Tensor] = []  # the leaves behind replicas that are none

    def storage(self, real: torch.UntypedStorage) -> torch.UntypedStorage:
        """The stand-in for ``real``, of the same size; the same one each time."""
        key = _torch.storage_address(real)
        made = self.storages.get(key)
        if made is None:
            made = self.storages[key] = torch.empty(
                real.nbytes(), dtype=torch.uint8, device=_torch.META
            ).untyped_storage()
        return made

    def plain(self, real: Tensor, versions: Any = None) -> Replica:
        """The window of ``real`` on its storage's stand-in, detached.

        Replicas made with equal ``versions`` (not None) share a version counter, as their originals do.
        """
        inference, counted = real.is_inference(), _torch.version_of(real) >= 0
        if inference is not counted:
            with _inference(inference):
                return self._window(real, versions)
        # It was, or was not, one of inference mode when it was made, and was given data of the other kind.
        with torch.inference_mode(not counted):
            r = self._window(real, versions if counted else None)
        self._give_data(r, real, None if counted else versions)
        return r

    def _give_data(self, r: Replica, real: Tensor, versions: Any = None) -> None:
        """Let ``r`` lie where ``real`` does; it counts versions as before."""
        with torch.inference_mode(real.is_inference()):
            _torch.set_data(r, self._window(real, versions))

    def _window(self, real: Tensor, versions: Any) -> Replica:
        source = _torch.storage_of(real)
        if versions is None and (elem := self._whole(real, source)) is not None:
            return self._made(real, elem)
        storage = self.storage(source)
        if versions is None:
            elem = _window(
                torch.empty(0, dtype=real.dtype, device=_torch.META),
                storage,
                source.nbytes(),
                int(real.storage_offset()),
                real.shape,
                real.stride(),
            )
        else:
            whole = self.counters.get(versions)
            if whole is None:
                whole = torch.empty(0, dtype=torch.uint8, device=_torch.META)
                whole = self.counters[versions] = _window(whole, storage, source.nbytes(), 0, (source.nbytes(),), (1,))
            size = real.dtype.itemsize
            with torch.no_grad():
                if _torch.storage_address(_torch.storage_of(whole)) != _torch.storage_address(storage):
                    # One of them left the storage that they shared; .data = leaves the counter as it was.
                    empty = whole[:0].view(real.dtype)
                    offset = int(real.storage_offset())
                    elem = _window(empty, storage, source.nbytes(), offset, real.shape, real.stride())
                else:
                    typed = whole[: source.nbytes() // size * size].view(real.dtype)
                    elem = typed.as_strided(real.shape, real.stride(), real.storage_offset())
        if real.is_conj() or real.is_neg():
            with torch.no_grad():
                if real.is_conj():
                    elem = _torch.conj_view(elem)
                if real.is_neg():
                    elem = _torch.neg_view(elem)
        return self._made(real, elem)

    def _whole(self, real: Tensor, source: torch.UntypedStorage) -> Tensor | None:
        """What lies as ``real`` in a new stand-in for its storage ``source``, if it is all of that and as it is."""
        key = _torch.storage_address(source)
        if key in self.storages or real.storage_offset() or real.is_conj() or real.is_neg():
            return None
        elem = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=_torch.META)
        own = _torch.storage_of(elem)
        if own.nbytes() != source.nbytes():
            return None
        self.storages[key] = own
        return elem

    def _made(self, real: Tensor, elem: Tensor) -> Replica:
        """``elem`` as a replica of ``real``."""
        r = make_replica(elem, real.device, self.kernels)
        if isinstance(real, torch.nn.Parameter):
            r.is_parameter = True
        if real.__dict__:
            r.__dict__["given"] = frozenset(given_attributes(real))
        return r

    def root(self, real: Tensor, versions: Any = None) -> Replica:
        """A replica with ``real``'s leafness and requires_grad, but no view relation."""
        inference = real.is_inference()
        if versions is None and not (inference or torch.is_inference_mode_enabled()) and _torch.version_of(real) >= 0:
            requires_grad = real.requires_grad
            if not requires_grad or _torch.leafness(real):  # most are like that, and lie in memory of their own
                r = self._window(real, None)
                if requires_grad:
                    Tensor.requires_grad_(r)
                return r
        rebound = real.requires_grad and _torch.leafness(real) is False
        if rebound and inference:  # it became one when its data was exchanged
            with _inference(False):
                r = self._window(real, versions)
        else:
            r = self.plain(real, versions)
        if real.requires_grad:
            if not rebound:
                with _inference(inference):
                    Tensor.requires_grad_(r)
            else:
                recorded = recorded_geometry(real)
                # Gradients of the shape that it has by now may be summed to the one recorded, where they arrive.
                other = recorded.dtype != real.dtype or not _is_broadcast(recorded.shape, real.shape)
                if not other:
                    recorded = geometry_of(real)
                elem = torch.empty_strided(recorded.shape, recorded.stride, dtype=recorded.dtype, device=_torch.META)
                anchor = make_replica(elem, real.device, self.kernels)
                if other:  # see Note [What a history records]
                    _torch.set_data(r, make_replica(torch.empty_like(elem), real.device, self.kernels))
                anchor.requires_grad_()
                self.anchors.append(anchor)
                with torch.enable_grad():
                    _Rebound.apply(anchor, r)
                if inference or other:
                    self._give_data(r, real)
        return r

    def give_history(self, r: Tensor, anchor: Tensor | None = None) -> None:
        """Make ``r`` a non-leaf that is no view; ``anchor`` is the leaf behind it."""
        if anchor is None:
            anchor = make_replica(torch.empty((), dtype=r.dtype, device=_torch.META), r.device, self.kernels)
        anchor.requires_grad_()
        self.anchors.append(anchor)
        with torch.enable_grad():
            _Rebound.apply(anchor, r, is_wrapper(r))


def _inference(mode: bool) -> contextlib.AbstractContextManager[Any]:
    """Inference mode on or off inside."""
    return contextlib.nullcontext() if mode is torch.is_inference_mode_enabled() else torch.inference_mode(mode)


def arrived_at(node: Any) -> Tensor | None:
    """The gradient that a backward brought to the replica of no leaf that ``node`` made, told once."""
    arrived: Tensor | None = getattr(node, "arrived", None)
    if arrived is not None:
        node.arrived = None
    return arrived


def _window(elem: Tensor, storage: torch.UntypedStorage, nbytes: int, offset: int, shape: Any, stride: Any) -> Tensor:
    _torch.set_geometry(elem, storage, offset, shape, stride)
    if storage.nbytes() != nbytes:  # set_ grows a storage that is too small, as a freed one is
        storage.resize_(nbytes)
    return elem


def _is_broadcast(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether what has this ``shape`` can be expanded ``to`` that one."""
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))
