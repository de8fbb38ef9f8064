"""Functions of torch's that look at values only to raise an error: the trace takes another way, and the graph checks.

Where the check fails, the graph raises, and the original runs in its place and raises what eager does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["WithoutLooking"]

aten = torch.ops.aten


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Refused below, as data dependent, where the number of classes is not given."""
    if num_classes < 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    within = ((tensor >= 0) & (tensor < num_classes)).all()
    aten._assert_async.msg(within, "one_hot: a class is not among the classes")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


_OTHERWISE: dict[Any, Callable[..., Any]] = {torch.nn.functional.one_hot: _one_hot}


class WithoutLooking(torch.overrides.TorchFunctionMode):
    """Inside, those functions do not look at values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What ``func`` gives."""
        return _OTHERWISE.get(func, func)(*args, **(kwargs or {}))
