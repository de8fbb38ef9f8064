"""Small real tensors in place of replicas: for asking eager what no meta kernel knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.sparse_geometry import is_sparse, sparse_geometry_of
from aotcheck.autograd.ir.trace import geometry_of


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments of an op, those in lists included."""
    found = []
    for a in (*args, *kwargs.values()):
        for x in a if type(a) in (list, tuple) else (a,):
            if isinstance(x, Tensor):
                found.append(x)
    return found


class StandIns:
    """Real tensors for the replicas of one op's arguments: the same geometries, storages shared and objects identical.

    Every element of a storage of ``dtype`` is ``fill``; storages that are seen as several dtypes hold zeros. Sparse
    tensors have no element if ``fill`` is 0.
    """

    def __init__(self, fill: int = 0) -> None:
        self.fill = fill
        self.made: dict[int, Tensor] = {}  # kernels tell the same tensor from another one on the same memory
        self._storages: dict[int, Tensor] = {}

    def of(self, a: Any) -> Any:
        """What stands for ``a``: itself unless it is a tensor, a generator or holds tensors."""
        if isinstance(a, Tensor):
            found = self.made.get(id(a))
            return self._make(a) if found is None else found
        if type(a) in (list, tuple):
            return [self.of(x) for x in a]
        if type(a) is torch.Generator:
            return torch.Generator(a.device)
        return a

    def filled(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """What a storage of so many elements holds; None: zeros."""
        return torch.full((count,), self.fill, dtype=dtype, device=device) if self.fill else None

    def _make(self, t: Tensor) -> Tensor:
        if is_sparse(t):
            self.made[id(t)] = sparse_geometry_of(t).with_elements(self.fill, t.device)
            return self.made[id(t)]
        storage, device = _torch.storage_of(t), t.device
        address = _torch.storage_address(storage)
        whole = self._storages.get(address)
        if whole is None:
            count = storage.nbytes() // t.dtype.itemsize
            fits = count * t.dtype.itemsize == storage.nbytes()
            whole = self.filled(count, t.dtype, device) if fits else None
            if whole is None:
                whole = torch.zeros(storage.nbytes(), dtype=torch.uint8, device=device)
            self._storages[address] = whole
        g = geometry_of(t)
        made = torch.empty(0, dtype=g.dtype, device=device)
        _torch.set_geometry(made, _torch.storage_of(whole), g.offset, g.shape, g.stride)
        if g.conj:
            made = _torch.conj_view(made)
        self.made[id(t)] = _torch.neg_view(made) if g.neg else made
        return self.made[id(t)]
