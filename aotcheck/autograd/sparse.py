"""Sparse COO tensors, which have no storage of their own and no size that a trace could foretell.

Note [Sparse tensors]
How many elements a sparse tensor holds depends on values, so its indices and values have no geometry while a program is
traced. It is an opaque value: a replica on an empty sparse meta tensor, to autograd as sparse as the real one, that
stands for one value of the trace from its birth to its end. Ops on it only read; one that writes it is refused. What
an op gives is asked of eager, on sparse stand-ins with no element and with some: where the two answers agree it is
known, anything else depends on data. Where indices or values are memory of a strided tensor, as they are of those that
a sparse tensor was made of, that tensor may not be written any more.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.replicas import Replica, make_replica

if TYPE_CHECKING:
    from aotcheck.autograd.replicas import KernelState


@dataclasses.dataclass(frozen=True)
class SparseGeometry:
    """What is known of a sparse COO tensor beside its values; ``coalesced`` is None where that depends on data."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    sparse_dim: int
    coalesced: bool | None

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.shape[self.sparse_dim :]

    def with_elements(self, fill: int, device: torch.device) -> Tensor:
        """A tensor like this: without elements if ``fill`` is 0, else with some that hold it where there is room.

        Where it is not known whether the tensor is coalesced, the one is and the other is not.
        """
        places = self.shape[: self.sparse_dim]
        count = min(2, math.prod(places)) if fill else 0
        indices = torch.zeros((self.sparse_dim, count), dtype=torch.int64, device=device)
        if count > 1 and self.coalesced is not False:
            last = max(k for k, n in enumerate(places) if n > 1)
            indices[last, 1] = 1
        values = torch.full((count, *self.dense_shape), fill, dtype=torch.uint8, device=device).to(self.dtype)
        coalesced = bool(fill) if self.coalesced is None else self.coalesced
        return torch.sparse_coo_tensor(indices, values, self.shape, is_coalesced=coalesced, check_invariants=False)


@dataclasses.dataclass(frozen=True)
class SparseResult:
    """What an op gives: a sparse tensor whose indices or values lie in these storages of strided ones."""

    geometry: SparseGeometry
    shares: tuple[torch.UntypedStorage, ...] = dataclasses.field(default=(), compare=False)


class SparseReplica(Replica):
    """The replica of a sparse tensor: see Note [Sparse tensors]."""

    geometry: SparseGeometry
    shares: tuple[torch.UntypedStorage, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        """Neither other data nor another tensor's identity can be told from no dispatch."""
        if name in ("data", "__dict__"):
            raise UnsupportedError("sparse tensor", "one is given other data or swapped")
        super().__setattr__(name, value)


def is_sparse(t: object) -> TypeGuard[Tensor]:
    """Whether ``t`` is a sparse COO tensor, real or not."""
    return isinstance(t, Tensor) and t.layout is torch.sparse_coo


def sparse_geometry_of(t: Tensor) -> SparseGeometry:
    """That of a sparse tensor, real or replica."""
    if isinstance(t, SparseReplica):
        return t.geometry
    return SparseGeometry(tuple(t.shape), t.dtype, t.sparse_dim(), t.is_coalesced())


def make_sparse_replica(made: SparseResult, device: torch.device, kernels: KernelState) -> SparseReplica:
    """A replica of a sparse tensor on ``device``."""
    with _torch.without_modes():
        r = make_replica(made.geometry.with_elements(0, _torch.META), device, kernels, SparseReplica)
    attributes = r.__dict__
    attributes["geometry"], attributes["shares"] = made.geometry, made.shares
    assert isinstance(r, SparseReplica)
    return r


def parts_of(t: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of a real sparse tensor, coalesced or not."""
    return torch.ops.aten._indices.default(t), torch.ops.aten._values.default(t)
