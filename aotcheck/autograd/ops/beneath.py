"""What eager does with an op on inference tensors that require grad, outside inference mode.

Autograd passes over the op, but not over what its kernel calls with tensors that this makes. Some kernels hand their
own result to an op with ``out=``, which autograd then refuses. Meta kernels do not show which, so for this rare call
the op itself is asked, on small real tensors.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.stand_ins import StandIns, tensors_in

_REFUSAL = "don't support automatic differentiation"
_LIMIT = 1 << 24  # bytes of storage worth allocating


def is_beneath(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether autograd passes over an op with these arguments, some of which require grad.

    An inference tensor may, having been told so in inference mode or given other data.
    """
    if not torch.is_grad_enabled():
        return False
    given = tensors_in(args, kwargs)
    return any(t.requires_grad for t in given) and all(t.is_inference() for t in given)


def check(mode: _torch.TorchDispatchMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise eager's RuntimeError where autograd refuses what the kernel of ``func`` does beneath it.

    ``mode`` is the one whose handler has been called with the op.
    """
    given = tensors_in(args, kwargs)
    if any(is_sparse(t) for t in given) or sum(_torch.storage_of(t).nbytes() for t in given) > _LIMIT:
        return
    stand_ins = _Inference()
    devices = [t.device for t in given if t.device.type == "cuda"]
    with _torch.as_before_dispatch(), mode, _torch.without_modes(), contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        made = [stand_ins.of(a) for a in args], {k: stand_ins.of(a) for k, a in kwargs.items()}
        try:
            func(*made[0], **made[1])
        except Exception as error:
            if _REFUSAL in str(error):  # else these numbers do not suit it
                raise


class _Inference(StandIns):
    """Stand-ins that are inference tensors, and require grad as what they stand for does."""

    def of(self, a: Any) -> Any:
        """As that of all stand-ins."""
        with torch.inference_mode():
            made = super().of(a)
            if isinstance(a, Tensor) and a.requires_grad:
                made.requires_grad_()
        return made
