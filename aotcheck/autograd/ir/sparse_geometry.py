"""What is known of a sparse tensor beside its values, and tensors that are like it: see Note [Sparse tensors]."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeGuard

import torch
from torch import Tensor

from aotcheck import _torch

aten = torch.ops.aten
_LAYOUTS = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_BY_ROWS = frozenset({torch.sparse_csr, torch.sparse_bsr})
_IN_BLOCKS = frozenset({torch.sparse_bsr, torch.sparse_bsc})


@dataclasses.dataclass(frozen=True)
class CooGeometry:
    """What is known of a tensor of indices and values.

    ``coalesced`` and ``elements``, how many it holds, are None where that depends on data.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    sparse_dim: int
    coalesced: bool | None
    elements: int | None = None

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.shape[self.sparse_dim :]

    def with_elements(self, fill: int, device: torch.device) -> Tensor:
        """A tensor like this whose elements hold ``fill``: if it is not known how many, none for 0, else some.

        They lie at one place for 0, else where there is room at as many as there are, but for a tensor that is
        coalesced or is not. Where that is not known, the one is and the other is not.
        """
        places = self.shape[: self.sparse_dim]
        room = math.prod(places)
        count = self.elements
        if count is None:
            count = min(2, room) if fill else 0
        indices = torch.zeros((self.sparse_dim, count), dtype=torch.int64, device=device)
        spread = fill and (self.coalesced is not False or self.elements is not None)
        if (spread or self.coalesced) and 1 < count <= room and device != _torch.META:
            indices = torch.stack(torch.unravel_index(torch.arange(count, device=device), places))
        values = torch.full((count, *self.dense_shape), fill, dtype=torch.uint8, device=device).to(self.dtype)
        coalesced = bool(fill) if self.coalesced is None else self.coalesced
        return torch.sparse_coo_tensor(indices, values, self.shape, is_coalesced=coalesced, check_invariants=False)


@dataclasses.dataclass(frozen=True)
class CompressedGeometry:
    """What is known of a tensor of compressed rows or columns; ``block`` is the shape of its blocks, if it has some."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: torch.layout
    block: tuple[int, int] | None
    dense_dim: int
    index_dtype: torch.dtype

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.shape[len(self.shape) - self.dense_dim :]

    @property
    def sparse_dim(self) -> int:
        """How many dimensions are compressed: rows and columns."""
        return 2

    def with_elements(self, fill: int, device: torch.device) -> Tensor:
        """A tensor like this whose elements hold ``fill``; it has none if that is 0."""
        *batch, rows, columns = self.shape[: len(self.shape) - self.dense_dim]
        height, width = self.block or (1, 1)
        compressed, other = rows // height, columns // width
        if self.layout not in _BY_ROWS:
            compressed, other = other, compressed
        count = min(2, other) if fill and compressed else 0
        ends = torch.full((*batch, compressed + 1), count, dtype=self.index_dtype, device=device)
        if device != _torch.META:
            ends[..., 0] = 0
        places = torch.arange(count, dtype=self.index_dtype, device=device).expand(*batch, count).contiguous()
        values = torch.full(
            (*batch, count, *(self.block or ()), *self.dense_shape), fill, dtype=torch.uint8, device=device
        )
        return torch.sparse_compressed_tensor(
            ends, places, values.to(self.dtype), self.shape, layout=self.layout, check_invariants=False
        )


SparseGeometry = CooGeometry | CompressedGeometry


def is_sparse(t: object) -> TypeGuard[Tensor]:
    """Whether ``t`` is a sparse tensor, real or not."""
    return isinstance(t, Tensor) and t.layout in _LAYOUTS


def measure(t: Tensor) -> SparseGeometry:
    """The geometry of a sparse tensor that is no replica."""
    if t.layout is torch.sparse_coo:
        return CooGeometry(tuple(t.shape), t.dtype, t.sparse_dim(), t.is_coalesced())
    ends, _, values = parts_of(t)
    first = values.dim() - t.dense_dim() - 2
    block = (values.shape[first], values.shape[first + 1]) if t.layout in _IN_BLOCKS else None
    return CompressedGeometry(tuple(t.shape), t.dtype, t.layout, block, t.dense_dim(), ends.dtype)


def sparse_geometry_of(t: Tensor) -> SparseGeometry:
    """That of a sparse tensor; a replica has it written on it."""
    known = getattr(t, "geometry", None)
    return known if isinstance(known, (CooGeometry, CompressedGeometry)) else measure(t)


def parts_of(t: Tensor) -> tuple[Tensor, ...]:
    """What a sparse tensor that is no replica is made of, its values last."""
    if t.layout is torch.sparse_coo:
        return aten._indices.default(t), aten._values.default(t)
    if t.layout in _BY_ROWS:
        return t.crow_indices(), t.col_indices(), t.values()
    return t.ccol_indices(), t.row_indices(), t.values()
