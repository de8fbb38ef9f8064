"""Ragged tensors."""

from __future__ import annotations

import functools
from typing import Any

from torch.nested._internal import nested_tensor

NestedTensor = nested_tensor.NestedTensor


@functools.cache
def ready_ragged_tensors() -> None:
    """Let torch make the ragged tensor that stands for the type, which it keeps, before a trace is what makes it."""
    nested_tensor._nt_view_dummy()


def take_offsets(t: Any, source: Any) -> None:
    """Let ``t`` hold the very offsets that ``source`` holds, which say the same, and have its ragged size."""
    size = nested_tensor.get_tensor_symint(source._offsets, coeff=1)
    ragged, stride = t._ragged_idx, t._values.stride()
    t._offsets = source._offsets
    t._size = (*t._size[:ragged], size, *t._size[ragged + 1 :])
    t._strides = (size * stride[ragged - 1], *stride)
