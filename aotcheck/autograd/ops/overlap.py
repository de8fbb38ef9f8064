"""What eager does with a write where meta kernels do not know: whether it accepts overlapping memory, how it resizes.

Each op's rule is its own, so for the rare call where operands overlap or what is written has to be resized the op
itself is asked: it runs on small real tensors of the same geometry.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.stand_ins import StandIns, tensors_in
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.ops.twins import OpInfo

_ORDER_DEPENDENT = {"addmm_", "addmv_", "addr_", "addbmm_", "baddbmm_"}
_EXACT = 1 << 20  # elements whose addresses are looked at one by one
_PROBE_LIMIT = 1 << 24  # bytes of storage worth allocating to learn whether eager would refuse


def _span(g: Geometry) -> tuple[int, int]:
    """First and past-the-last byte of the storage that the tensor may touch."""
    size = g.dtype.itemsize
    return g.offset * size, g.elements_reached * size


def _overlap(a: Geometry, b: Geometry) -> bool:
    if 0 in a.shape or 0 in b.shape:
        return False
    p, q = _span(a), _span(b)
    return p[0] < q[1] and q[0] < p[1]


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether a byte lies within both tensors; of large ones, whether it may."""
    same = _torch.storage_address(_torch.storage_of(a)) == _torch.storage_address(_torch.storage_of(b))
    p, q = geometry_of(a), geometry_of(b)
    if not same or not _overlap(p, q):
        return False
    if max(p.numel, q.numel) > _EXACT or p.dtype.itemsize != q.dtype.itemsize:
        return True
    return not p.places.isdisjoint(q.places)


def check(func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise eager's RuntimeError where eager refuses the write ``func`` because of the memory it would write."""
    tensors = tensors_in(args, kwargs)
    targets: list[Tensor] = []
    for w in info.written:
        target: Any = args[w] if isinstance(w, int) and w < len(args) else kwargs.get(str(w))
        targets += [t for t in (target if type(target) in (list, tuple) else (target,)) if isinstance(t, Tensor)]
    for target in targets:
        g = geometry_of(target)
        if not g.is_contiguous and g.may_self_overlap:
            _probe(func, args, kwargs)
            return
        address = _torch.storage_address(_torch.storage_of(target))
        sharing = [
            t
            for t in tensors
            if t is target or (_torch.storage_address(_torch.storage_of(t)) == address and _overlap(g, geometry_of(t)))
        ]
        if len(sharing) > 1:  # more than the target itself
            if _torch.op_name(func) in _ORDER_DEPENDENT:
                raise _order_dependent(func)
            _probe(func, args, kwargs)
            if _reads_elsewhere(func, target, args):
                raise _order_dependent(func)
            return


def _order_dependent(func: Any) -> UnsupportedError:
    reason = f"{func} writes what it reads; eager's result depends on its kernel"
    return UnsupportedError("overlapping operands", reason)


def _reads_elsewhere(func: Any, target: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether the op writes ``target`` by a mask that it reads from there, but not from the element that it writes."""
    if _torch.op_name(func) != "masked_fill_":
        return False
    mask = args[1]
    return geometry_of(mask) != geometry_of(target) and share_memory(mask, target)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """What eager did: the message of its error if it refused, else where each tensor it was given lies afterwards, and
    how many bytes its storage has.
    """

    refusal: str | None
    places: tuple[tuple[Geometry, int], ...] = ()


_answers: dict[Any, _Answer] = {}


def _probe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Answer:
    """Ask eager, once per op and geometries; raises what eager raises."""
    addresses: dict[int, int] = {}
    objects: dict[int, int] = {}

    def key_of(a: Any) -> Any:
        if isinstance(a, Tensor):
            storage = _torch.storage_of(a)
            place = addresses.setdefault(_torch.storage_address(storage), len(addresses))
            return (geometry_of(a), a.device, place, storage.nbytes(), objects.setdefault(id(a), len(objects)))
        if type(a) in (list, tuple):
            return tuple(key_of(x) for x in a)
        return (type(a), str(a))

    key = (func, *[key_of(a) for a in args], *[(k, key_of(a)) for k, a in kwargs.items()])
    if key not in _answers:
        if len(_answers) > 10_000:
            _answers.clear()
        _answers[key] = _ask(func, args, kwargs)
    answer = _answers[key]
    if answer.refusal is not None:
        raise RuntimeError(answer.refusal)
    return answer


def _ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Answer:
    stand_ins = StandIns()
    given = tensors_in(args, kwargs)
    total = sum(_torch.storage_of(t).nbytes() for t in given)
    if total > _PROBE_LIMIT:
        raise UnsupportedError("overlapping write", f"{func} writes memory of {total} bytes, too much to try out")

    devices = [t.device for t in given if t.device.type == "cuda"]
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            func(*[stand_ins.of(a) for a in args], **{k: stand_ins.of(a) for k, a in kwargs.items()})
        except RuntimeError as error:
            return _Answer(str(error))
        made = [stand_ins.of(t) for t in given]
        return _Answer(None, tuple((geometry_of(t), _torch.storage_of(t).nbytes()) for t in made))


def resized(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, tuple[Geometry, int]]:
    """Where each tensor lies after eager ran ``func``, by id, and how many bytes its storage then has.

    Raises eager's RuntimeError where it refuses.
    """
    answer = _probe(func, args, kwargs)
    return {id(t): place for t, place in zip(tensors_in(args, kwargs), answer.places, strict=True)}
