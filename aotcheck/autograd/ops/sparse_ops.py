"""Ops on sparse tensors: see Note [Sparse tensors].

Note [Padding]
The sparse gradient of an embedding leaves out the rows that are padding: the formula of autograd selects indices and
gradients by a mask, gives both another shape and makes a sparse tensor of them. What a mask selects has no shape in a
trace, but that formula looks at none. So there, and nowhere else, a replica stands for it that is as large as if
nothing were left out, and the ops that follow are recorded such that they fit any number of rows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import CooGeometry, is_sparse
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import Value, geometry_of
from aotcheck.autograd.ops import no_meta, writes
from aotcheck.autograd.ops.autocast_forms import under_autocast
from aotcheck.autograd.ops.twins import Kind, OpInfo
from aotcheck.autograd.replicas.replicas import make_replica
from aotcheck.autograd.replicas.sparse import Selection, SparseReplica, SparseResult, make_sparse_replica

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_PARTS = frozenset(
    {
        aten._indices.default,
        aten._values.default,
        aten.indices.default,
        aten.values.default,
        aten.crow_indices.default,
        aten.col_indices.default,
        aten.ccol_indices.default,
        aten.row_indices.default,
    }
)
_CAST_INSIDE = frozenset({aten._sparse_addmm.default, aten.mv.default})
_ITSELF = frozenset({aten.detach.default, aten.alias.default})


def apply(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op some of whose arguments are sparse."""
    if any(type(t) is Selection for t in tensors_in(args, kwargs)):
        return _with_selection(tracer, func, args, kwargs)
    first = args[0] if args else None
    if type(first) is SparseReplica:
        g = first.geometry
        match func:
            case aten.sparse_dim.default:
                return g.sparse_dim
            case aten.dense_dim.default:
                return len(g.dense_shape)
            case aten.is_coalesced.default if isinstance(g, CooGeometry):
                return bool(g.coalesced)  # torch's own code asks before it coalesces
            case aten._nnz.default if isinstance(g, CooGeometry) and g.elements is not None:
                return g.elements
            case aten._nnz.default:
                raise UnsupportedError("data-dependent", f"{func} needs values at trace time")
            case _ if func in _ITSELF:
                return bind(tracer, SparseResult(g, first.shares), tracer.value_of(first), first.device)
    if func is aten._coalesce.default:
        func = aten.coalesce.default  # for what is coalesced already, too
    if _torch.schema_of(func).is_mutable:
        return _write(tracer, func, info, args, kwargs)
    if func is aten._sparse_mm_reduce_impl_backward.default and args[3] not in ("sum", "mean"):
        raise UnsupportedError(
            "sparse tensor", f"{func} needs what the forward gives only for tensors that require grad"
        )
    func = under_autocast(func, tensors_in(args, kwargs)) if func in _CAST_INSIDE else func
    out = no_meta.results_of(func, args, kwargs)
    value = tracer.call(func, tracer.values_of(args), tracer.values_of(kwargs))
    bound = tracer.bind_results(out, value, tracer.device_of(args, kwargs))
    if func in _PARTS:
        tracer.table.lend(_torch.storage_of(bound))
    return bound


def selects_padding() -> bool:
    """Whether it is the sparse gradient of an embedding that selects by a mask: see Note [Padding]."""
    return _torch.autograd_node_running() == "EmbeddingBackward0"


def select(tracer: Tracer, args: tuple[Any, ...]) -> Selection:
    """What a mask selects of the first argument."""
    source, (mask,) = args
    value = tracer.call(aten.index.Tensor, tracer.values_of(args), {})
    shape = (mask.numel(), *source.shape[mask.dim() :])
    return _selection(tracer, shape, source.dtype, source.device, value)


def _with_selection(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source, values = args[0], tracer.values_of(args)
    if func is aten._sparse_coo_tensor_with_dims_and_tensors.default:
        out = no_meta.results_of(func, args, kwargs)
        unknown = SparseResult(dataclasses.replace(out.geometry, elements=None))
        return bind(tracer, unknown, tracer.call(func, values, tracer.values_of(kwargs)), args[4].device)
    shape = tuple(args[1]) if func is aten.view.default else ()
    if type(source) is Selection and source.dim() == 1 and shape in ((1, -1), (1, *source.shape)):
        shape, any_size = (1, *source.shape), [1, -1]
    elif type(source) is Selection and shape in ((-1, *source.shape[1:]), source.shape) and 0 not in shape[1:]:
        shape, any_size = tuple(source.shape), [-1, *shape[1:]]
    else:
        raise UnsupportedError("data-dependent", f"{func} of what a mask selects")
    value = tracer.call(func, (values[0], any_size), {})
    return _selection(tracer, shape, source.dtype, source.device, value)


def _selection(
    tracer: Tracer, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, value: Value
) -> Selection:
    with _torch.without_modes():
        r = make_replica(torch.empty(shape, dtype=dtype, device=_torch.META), device, tracer.kernels, Selection)
    tracer.table.bind(r, value)
    tracer.table.opaque = True
    assert isinstance(r, Selection)
    return r


def bind(tracer: Tracer, made: SparseResult, value: Value, device: torch.device) -> SparseReplica:
    """A replica of what an op made, which holds ``value``."""
    r = make_sparse_replica(made, device, tracer.kernels)
    value.sparse, value.device = made.geometry, device
    tracer.table.sparse[id(r)] = value
    tracer.table.opaque = True
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
