"""Ops without a meta kernel: eager is asked, on small real tensors, what geometry the results have.

It is asked twice, with other numbers; an answer that depends on them is no answer.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import CooGeometry, is_sparse, measure, parts_of
from aotcheck.autograd.ir.stand_ins import StandIns, tensors_in
from aotcheck.autograd.ir.trace import geometry_of
from aotcheck.autograd.replicas.sparse import KEEPS_ELEMENTS, SparseReplica, SparseResult
from aotcheck.autograd.tensors.subclasses import holds_ragged_size

aten = torch.ops.aten
_LIMIT = 1 << 26  # bytes of storage worth allocating
_RAGGED = "SymIntArrayRef expected to contain only concrete integers"
_LIMIT_OF_SPARSE = 1 << 30  # where there is a gradient of a large table, eager has allocated it too


def results_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], lacking: Exception | None = None) -> Any:
    """What ``func`` gives for these replicas, as meta tensors; an argument that it returns is returned.

    What is sparse is a SparseResult. Raises UnsupportedError where eager cannot be asked, because of ``lacking``; where
    nothing is, raises what eager does.
    """
    if func in _RULES:
        return _RULES[func](*args, **kwargs)
    given = tensors_in(args, kwargs)
    sparse = any(is_sparse(t) for t in given)
    size = sum(_torch.storage_of(t).nbytes() for t in given if not is_sparse(t))
    if size > (_LIMIT_OF_SPARSE if sparse else _LIMIT):
        raise UnsupportedError("no meta kernel", f"{func} takes too much memory to try it out")
    answers: list[Any] = []
    for fill in (0, 1):
        try:
            answers.append(_ask(func, args, kwargs, given, fill))
        except _Unsuitable as unsuitable:
            error = unsuitable.args[0]
    if not answers:
        if lacking is None or sparse or _has_no_kernel(error):
            raise error
        raise UnsupportedError("no meta kernel", f"{func}: {str(lacking)[:120]}") from lacking
    return answers[0] if len(answers) == 1 else _agreed(func, answers[0], answers[1])


def _has_no_kernel(error: Exception) -> bool:
    """Whether eager has no kernel either, whatever the numbers."""
    return isinstance(error, NotImplementedError) and str(error).startswith("Could not run")


class _Unsuitable(Exception):
    """What eager raised for numbers of ours."""


def _agreed(func: Any, a: Any, b: Any) -> Any:
    """What both answers say; whether a sparse tensor is coalesced and how many elements it has may be left open."""
    if type(a) in (list, tuple):
        if len(a) == len(b):
            return type(a)(_agreed(func, x, y) for x, y in zip(a, b, strict=True))
    elif isinstance(a, SparseResult) and isinstance(b, SparseResult):
        one, other = a.geometry, b.geometry
        if isinstance(one, CooGeometry) and isinstance(other, CooGeometry):
            coalesced = one.coalesced if one.coalesced == other.coalesced else None
            elements = one.elements if one.elements == other.elements else None
            one, other = (dataclasses.replace(x, coalesced=coalesced, elements=elements) for x in (one, other))
        if one == other:
            return SparseResult(one, b.shares)
    elif not isinstance(a, Tensor) or geometry_of(a) == geometry_of(b):
        return a
    raise UnsupportedError("data-dependent", f"the shape of what {func} gives depends on values")


def _padded_dense_to_jagged(padded: Tensor, offsets: list[Tensor], total: int | None = None) -> Tensor:
    if len(offsets) != 1 or total is None:
        raise UnsupportedError("data-dependent", "how many rows there are in a padded tensor depends on values")
    return torch.empty((total, *padded.shape[2:]), dtype=padded.dtype, device=_torch.META)


_RULES: dict[Any, Callable[..., Tensor]] = {aten._padded_dense_to_jagged_forward.default: _padded_dense_to_jagged}
"""Ops whose results are known, and that no small numbers suit."""


def _ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], fill: int) -> Any:
    stand_ins = StandIns(fill)
    devices = [t.device for t in given if t.device.type == "cuda"]
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = func(*[stand_ins.of(a) for a in args], **{k: stand_ins.of(a) for k, a in kwargs.items()})
        except Exception as error:  # these numbers do not suit it
            ragged = holds_ragged_size(args) or holds_ragged_size(kwargs)  # which no kernel of eager's takes
            raise _Unsuitable(RuntimeError(_RAGGED) if ragged else error) from None
    passed = {id(stand_ins.of(t)): t for t in given}
    storages: dict[int, torch.UntypedStorage] = {}
    of_sparse: dict[int, tuple[torch.UntypedStorage, ...]] = {}
    for t in given:
        if is_sparse(t):
            shares = t.shares if isinstance(t, SparseReplica) else ()
            of_sparse.update({_address(x): shares for x in parts_of(stand_ins.of(t))})
        else:
            storages[_address(stand_ins.of(t))] = _torch.storage_of(t)

    def meta(o: Any) -> Any:
        if id(o) in passed:
            return passed[id(o)]
        if is_sparse(o):
            there = [_address(x) for x in parts_of(o)]
            shared = [storages[x] for x in there if x in storages]
            shared += [s for x in there for s in of_sparse.get(x, ())]
            geometry = measure(o)
            if func in KEEPS_ELEMENTS and isinstance(geometry, CooGeometry):
                geometry = dataclasses.replace(geometry, elements=parts_of(o)[0].shape[1])
            return SparseResult(geometry, tuple(shared))
        if isinstance(o, Tensor):
            if o.layout is not torch.strided:
                raise UnsupportedError("layout", f"{func} gives a tensor that is {o.layout}")
            return _on_meta(o, storages)
        if isinstance(o, (list, tuple)):
            return type(o)(meta(x) for x in o)
        if o is None:
            return None
        raise UnsupportedError("data-dependent", f"{func} gives a {type(o).__name__}")

    return meta(out)


def _on_meta(o: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    """A meta tensor of the geometry of ``o``, on the storage that stands for its own."""
    real, g = _torch.storage_of(o), geometry_of(o)
    address = _torch.storage_address(real)
    if address not in storages:
        whole = torch.empty(real.nbytes(), dtype=torch.uint8, device=_torch.META)
        storages[address] = _torch.storage_of(whole)
    made = torch.empty(0, dtype=g.dtype, device=_torch.META)
    _torch.set_geometry(made, storages[address], g.offset, g.shape, g.stride)
    made = _torch.conj_view(made) if g.conj else made
    return _torch.neg_view(made) if g.neg else made


def _address(t: Tensor) -> int:
    return _torch.storage_address(_torch.storage_of(t))
