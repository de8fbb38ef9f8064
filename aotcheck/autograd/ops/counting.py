"""``bincount`` where it is told how many counts there are at least: the graph checks that there are no more.

How many there are hangs on the largest number. Where one is larger than was foretold, the original runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck.autograd.ops import pure_ops
from aotcheck.autograd.ops.twins import info_of
from aotcheck.autograd.replicas.replicas import Replica

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten


def counts(tracer: Tracer, x: Any, weights: Any = None, minlength: int = 0) -> Replica | None:
    """The counts of ``x``, by ops whose results have a known shape; None where there is no telling."""
    if type(x) is not Replica or x.dim() != 1 or x.real_device.type != "cpu" or minlength <= 0:
        return None  # on other devices a check that fails ruins them
    if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype is torch.bool:
        return None
    if weights is not None and (type(weights) is not Replica or weights.shape != x.shape or weights.is_complex()):
        return None

    def run(func: Any, *args: Any, **kwargs: Any) -> Any:
        return pure_ops.pure(tracer, func, info_of(func), args, kwargs)

    fits = run(aten.logical_and.default, run(aten.ge.Scalar, x, 0), run(aten.lt.Scalar, x, minlength))
    held: Tensor = run(aten.all.default, fits)
    tracer.expect(held)
    places = x if x.dtype in (torch.int64, torch.int32) else run(aten._to_copy.default, x, dtype=torch.int64)
    if weights is None or not x.numel():
        dtype = torch.int64
        summands = run(aten.ones_like.default, x, dtype=dtype)
    else:
        dtype = torch.float32 if weights.dtype is torch.float32 else torch.float64
        summands = weights if weights.dtype is dtype else run(aten._to_copy.default, weights, dtype=dtype)
    zeros = run(aten.new_zeros.default, x, [minlength], dtype=dtype)
    made: Replica = run(aten.index_add.default, zeros, 0, places, summands)
    return made
