"""Whether eager accepts a write to overlapping memory.

Meta kernels check nothing of the sort and each op's rule is its own, so for the rare call where operands overlap the op itself is asked:
it runs on small real tensors of the same geometry.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError, WriteRefusedByEager
from aotcheck.autograd.trace import Geometry, geometry_of
from aotcheck.autograd.twins import OpInfo

_PROBE_LIMIT = 1 << 24  # bytes of storage worth allocating to learn whether eager would refuse


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    found = []
    for a in (*args, *kwargs.values()):
        for x in a if type(a) in (list, tuple) else (a,):
            if isinstance(x, Tensor):
                found.append(x)
    return found


def _span(g: Geometry) -> tuple[int, int]:
    """First and past-the-last byte of the storage that the tensor may touch."""
    size = g.dtype.itemsize
    return g.offset * size, g.elements_reached * size


def _overlap(a: Geometry, b: Geometry) -> bool:
    if 0 in a.shape or 0 in b.shape:
        return False
    p, q = _span(a), _span(b)
    return p[0] < q[1] and q[0] < p[1]


def check(func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise WriteRefusedByEager where eager refuses the write ``func`` because of the memory it would write."""
    written = [args[w] if isinstance(w, int) and w < len(args) else kwargs.get(str(w)) for w in info.written]
    written = [w for w in written if isinstance(w, Tensor)]
    suspicious = False
    for w in written:
        g = geometry_of(w)
        if not g.is_contiguous and g.may_self_overlap:
            suspicious = True
            continue
        address = _torch.storage_address(w.untyped_storage())
        for t in _tensors(args, kwargs):
            if t is not w and _torch.storage_address(t.untyped_storage()) == address:
                other = geometry_of(t)
                if other != g and _overlap(g, other):
                    suspicious = True
    if suspicious:
        _probe(func, args, kwargs)


def _probe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    storages: dict[int, Tensor] = {}
    total = sum(t.untyped_storage().nbytes() for t in _tensors(args, kwargs))
    if total > _PROBE_LIMIT:
        raise UnsupportedError("overlapping write", f"{func} writes overlapping memory of {total} bytes, too much to try out")

    def real(a: Any) -> Any:
        if isinstance(a, Tensor):
            storage = a.untyped_storage()
            address = _torch.storage_address(storage)
            device = a.device
            if address not in storages:
                storages[address] = torch.zeros(storage.nbytes(), dtype=torch.uint8, device=device)
            g = geometry_of(a)
            t = torch.empty(0, dtype=g.dtype, device=device)
            _torch.set_geometry(t, storages[address].untyped_storage(), g.offset, g.shape, g.stride)
            if g.conj:
                t = _torch.conj_view(t)
            return _torch.neg_view(t) if g.neg else t
        if type(a) in (list, tuple):
            return [real(x) for x in a]
        return a

    devices = [t.device for t in _tensors(args, kwargs) if t.device.type == "cuda"]
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices):
        try:
            func(*[real(a) for a in args], **{k: real(a) for k, a in kwargs.items()})
        except RuntimeError as error:
            raise WriteRefusedByEager(str(error)) from error
