"""Ragged tensors."""

from __future__ import annotations

import functools

from torch.nested._internal import nested_tensor

NestedTensor = nested_tensor.NestedTensor


@functools.cache
def ready_ragged_tensors() -> None:
    """Let torch make the ragged tensor that stands for the type, which it keeps, before a trace is what makes it."""
    nested_tensor._nt_view_dummy()
