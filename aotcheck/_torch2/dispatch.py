"""Which kernels run."""

from __future__ import annotations

import torch

__all__ = ["meta_kernels"]

_C = torch._C


class meta_kernels:
    """Inside, ops on tensors of any device run their meta kernels: sizes and strides only, no data."""

    __slots__ = ("_dispatch", "_keys")

    def __enter__(self) -> None:
        """Meta kernels from now on."""
        self._dispatch = _C._DisableTorchDispatch()
        self._dispatch.__enter__()
        self._keys = _C._PreserveDispatchKeyGuard()
        self._keys.__enter__()
        _C._set_meta_in_tls_dispatch_include(True)

    def __exit__(self, *_: object) -> None:
        """As before."""
        self._keys.__exit__(None, None, None)
        self._dispatch.__exit__(None, None, None)
