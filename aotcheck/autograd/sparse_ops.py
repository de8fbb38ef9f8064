"""Ops on sparse tensors: see Note [Sparse tensors]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd import no_meta, writes
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.sparse import SparseReplica, SparseResult, is_sparse, make_sparse_replica
from aotcheck.autograd.trace import Value, geometry_of
from aotcheck.autograd.twins import Kind, OpInfo

if TYPE_CHECKING:
    from aotcheck.autograd.tracer import Tracer

aten = torch.ops.aten
_ITSELF = frozenset({aten.detach.default, aten.alias.default})


def apply(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op some of whose arguments are sparse."""
    first = args[0] if args else None
    if type(first) is SparseReplica:
        match func:
            case aten.sparse_dim.default:
                return first.geometry.sparse_dim
            case aten.dense_dim.default:
                return len(first.geometry.dense_shape)
            case aten.is_coalesced.default if first.geometry.coalesced is not None:
                return first.geometry.coalesced
            case aten.is_coalesced.default | aten._nnz.default:
                raise UnsupportedError("data-dependent", f"{func} needs values at trace time")
            case _ if func in _ITSELF:
                return bind(tracer, SparseResult(first.geometry, first.shares), tracer.value_of(first), first.device)
    if _torch.schema_of(func).is_mutable:
        return _write(tracer, func, info, args, kwargs)
    out = no_meta.results_of(func, args, kwargs)
    value = tracer.call(func, tracer.values_of(args), tracer.values_of(kwargs))
    return tracer.bind_results(out, value, tracer.device_of(args, kwargs))


def bind(tracer: Tracer, made: SparseResult, value: Value, device: torch.device) -> SparseReplica:
    """A replica of what an op made, which holds ``value``."""
    r = make_sparse_replica(made, device, tracer.kernels)
    value.sparse, value.device = made.geometry, device
    tracer.table.sparse[id(r)] = value
    for storage in made.shares:
        tracer.table.lend(storage)
    return r


def _write(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A write of what a sparse tensor has a part in to a strided one."""
    target = args[0]
    if info.kind is not Kind.IN_PLACE or info.written != (0,) or not isinstance(target, Tensor) or is_sparse(target):
        raise UnsupportedError("sparse tensor", f"{func} writes one, or writes what it reads from one")
    out = no_meta.results_of(info.twin, info.for_twin(args), kwargs)
    value = tracer.call(info.twin, info.for_twin(tracer.values_of(args)), tracer.values_of(kwargs))
    if not isinstance(out, Tensor) or out.shape != target.shape:
        raise UnsupportedError("sparse tensor", f"{func} writes another shape")
    value = writes.conform(tracer, value, geometry_of(out), geometry_of(target))
    tracer.table.write(tracer.table.view(target), value)
    return target
