"""The backward that is running on this thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

_C = torch._C
_grad = torch.autograd.grad.__code__
_running = vars(torch.autograd.graph)["_engine_run_backward"].__code__
_functorch = vars(_C)["_functorch"]


def set_multithreading(wanted: bool) -> bool:
    """Whether backwards may run on other threads from now on; returns whether they might."""
    before: bool = _C._is_multithreading_enabled()
    _C._set_multithreading_enabled(wanted)
    return before


def autograd_node_running() -> str | None:
    """The name of the node whose backward is running on this thread; None if none is."""
    node = _C._current_autograd_node()
    return None if node is None else str(node.name())


def node_running() -> Any:
    """The node whose backward is running on this thread; None if none is."""
    return _C._current_autograd_node()


def backward_keeps_graph() -> bool:
    """Whether the backward that is running on this thread leaves the graph as it is (``retain_graph``)."""
    return bool(_C._autograd._get_current_graph_task_keep_graph())


def leaves_something_out() -> bool:
    """Whether the backward that is running on this thread was asked for some gradients alone, as ``grad`` is."""
    return not torch.autograd.Variable._execution_engine.is_checkpoint_valid()


def backward_number() -> int:
    """A number that no other backward has than the one that is running on this thread; -1 if none is."""
    return int(_C._current_graph_task_id())


def after_backward(action: Callable[[], None]) -> None:
    """Do ``action`` when the backward that is running on this thread is over."""
    torch.autograd.Variable._execution_engine.queue_callback(action)


def is_batched(t: torch.Tensor) -> bool:
    """Whether ``t`` stands for several gradients that a backward takes at once (``is_grads_batched``)."""
    batched: bool = _functorch.is_legacy_batchedtensor(t)
    return batched


def unbatched(t: torch.Tensor) -> torch.Tensor:
    """The several gradients that ``t`` stands for, by the first dimension."""
    return torch._remove_batch_dim(t, _batch_level(), 1, 0)


def unbatched_later(t: torch.Tensor) -> torch.Tensor:
    """As :func:`unbatched`, once the backward, in no other transform, is over."""
    return torch._remove_batch_dim(t, 1, 1, 0)


def batched(t: torch.Tensor) -> torch.Tensor:
    """What stands for the gradients along the first dimension of ``t`` to a backward that takes several at once."""
    return torch._add_batch_dim(t, 0, _batch_level())


def _batch_level() -> int:
    level: int = _C._vmapmode_increment_nesting()
    _C._vmapmode_decrement_nesting()
    return level - 1


def will_run(node: Any) -> bool:
    """Whether the backward that is running on this thread comes to ``node``; of a leaf's, in ``torch.autograd.grad``,
    the engine does not say, and it is taken for granted.
    """
    return said_to_run(node) is not False


def grad_asks_for(accumulator: Any) -> bool:
    """Whether ``torch.autograd.grad`` has called the backward that is running, for the gradient of a leaf.

    ``accumulator`` is the leaf's node. Of other callers, and where the stack does not show the call, it is False.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _running:
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code is not _grad:
        return False
    leaf = accumulator.variable
    return any(x is leaf for x in caller.f_locals["inputs"])


def said_to_run(node: Any) -> bool | None:
    """The same; None where the engine does not say."""
    try:
        comes: bool = _C._will_engine_execute_node(node)
    except RuntimeError:
        return None
    return comes
