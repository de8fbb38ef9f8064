"""Saved-tensor hooks that the function enters itself, in the backwards that are traced.

Note [Hooks beyond an end]
A backward is traced to the ends of a stage and no further, but where something asked for lies beyond an end too, the
engine goes on from there without any gradient. Nodes without gradients compute nothing; yet they unpack what they saved
first, and to unpack may be to run a checkpoint's part of the program again, with its draws and writes. Those are of the
backward of another stage, which has them. So what such a node unpacks is a tensor without content.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.tensors.subclasses import is_wrapper


def unpacking_where_gradients_are(kernels: KernelState) -> contextlib.AbstractContextManager[None]:
    """What enters saved-tensor hooks inside is not asked to unpack anything for nodes beyond an end."""
    beyond = kernels.beyond  # alone: what is saved must not keep the trace, which keeps the graph that saved it

    def wrapper(
        pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def packing(t: Tensor) -> Any:
            plain = not is_wrapper(t) and not is_sparse(t)
            return pack(t), (t.shape, t.stride(), t.dtype, t.device) if plain else None

        def unpacking(packed: Any) -> Tensor:
            kept, geometry = packed
            if geometry is None or not beyond or _torch.node_running() not in beyond:
                return unpack(kept)
            shape, stride, dtype, device = geometry
            return torch.empty_strided(shape, stride, dtype=dtype, device=device)

        return packing, unpacking

    return _torch.WrappingSavedTensorHooks(wrapper)
