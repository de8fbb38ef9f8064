"""Sparse tensors, which have no storage of their own and no size that a trace could foretell.

Note [Sparse tensors]
How many elements a sparse tensor holds depends on values, so its indices and values have no geometry while a program is
traced. It is an opaque value: a replica on an empty sparse meta tensor, to autograd as sparse as the real one, that
stands for one value of the trace from its birth to its end. Ops on it only read; one that writes it is refused. What
an op gives is asked of eager, on sparse stand-ins with no element and with some: where the two answers agree it is
known, anything else depends on data. Of a tensor made of indices and values it is known how many they are. Where
indices or values are memory of a strided tensor, that may not be written any more.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import CooGeometry, SparseGeometry, measure, parts_of
from aotcheck.autograd.replicas.replicas import Replica, make_replica

if TYPE_CHECKING:
    from aotcheck.autograd.replicas.kernel_state import KernelState
    from aotcheck.autograd.replicas.replica_maker import ReplicaMaker

aten = torch.ops.aten
KEEPS_ELEMENTS = frozenset(
    {
        aten._sparse_coo_tensor_with_dims_and_tensors.default,
        aten._sparse_coo_tensor_unsafe.default,
        aten.clone.default,
        aten.neg.default,
        aten.t.default,
        aten.transpose.int,
        aten._to_copy.default,
        aten.sparse_mask.default,
    }
)
"""Ops that give as many elements as their indices, or their last sparse argument, have."""


@dataclasses.dataclass(frozen=True)
class SparseResult:
    """What an op gives: a sparse tensor whose indices or values lie in these storages of strided ones."""

    geometry: SparseGeometry
    shares: tuple[torch.UntypedStorage, ...] = dataclasses.field(default=(), compare=False)


class Selection(Replica):
    """The replica of what a mask selects, shaped as if that were everything: see Note [Padding]."""


class SparseReplica(Replica):
    """The replica of a sparse tensor: see Note [Sparse tensors]."""

    geometry: SparseGeometry
    shares: tuple[torch.UntypedStorage, ...]
    _own = Replica._own | {"geometry", "shares"}

    def is_coalesced(self) -> bool:
        """Refused where it depends on data."""
        if not isinstance(self.geometry, CooGeometry):
            return super().is_coalesced()
        if self.geometry.coalesced is None:
            raise UnsupportedError("data-dependent", "whether a sparse tensor is coalesced")
        return self.geometry.coalesced

    def stride(self, dim: int | None = None) -> Any:
        """None to speak of, even where torch refuses to say so."""
        return (0,) * self.dim() if dim is None else 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Neither other data nor another tensor's identity can be told from no dispatch."""
        if name in ("data", "__dict__"):
            raise UnsupportedError("sparse tensor", "one is given other data or swapped")
        super().__setattr__(name, value)


def make_sparse_replica(made: SparseResult, device: torch.device, kernels: KernelState) -> SparseReplica:
    """A replica of a sparse tensor on ``device``."""
    with _torch.without_modes():
        r = make_replica(made.geometry.with_elements(0, _torch.META), device, kernels, SparseReplica)
    attributes = r.__dict__
    attributes["geometry"], attributes["shares"] = made.geometry, made.shares
    assert isinstance(r, SparseReplica)
    return r


def sparse_argument(maker: ReplicaMaker, real: Tensor) -> SparseReplica:
    """A replica of an argument, with its leafness and requires_grad."""
    if real.requires_grad and _torch.leafness(real) is None:
        raise UnsupportedError("sparse tensor", "an argument of which autograd refuses to say what its history is")
    shares = tuple([maker.storage(_torch.storage_of(t)) for t in parts_of(real)])
    made = SparseResult(measure(real), shares)
    with torch.inference_mode(real.is_inference()):
        r = make_sparse_replica(made, real.device, maker.kernels)
    r.is_parameter = isinstance(real, torch.nn.Parameter)
    if real.requires_grad and _torch.leafness(real) is False:
        maker.give_history(r, make_sparse_replica(made, real.device, maker.kernels))
    elif real.requires_grad:
        Tensor.requires_grad_(r)
    return r
