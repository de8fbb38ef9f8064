"""The backward that is running on this thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_C = torch._C


def autograd_node_running() -> str | None:
    """The name of the node whose backward is running on this thread; None if none is."""
    node = _C._current_autograd_node()
    return None if node is None else str(node.name())


def backward_keeps_graph() -> bool:
    """Whether the backward that is running on this thread leaves the graph as it is (``retain_graph``)."""
    return bool(_C._autograd._get_current_graph_task_keep_graph())


def backward_number() -> int:
    """A number that no other backward has than the one that is running on this thread; -1 if none is."""
    return int(_C._current_graph_task_id())


def after_backward(action: Callable[[], None]) -> None:
    """Do ``action`` when the backward that is running on this thread is over."""
    torch.autograd.Variable._execution_engine.queue_callback(action)


def will_run(node: Any) -> bool:
    """Whether the backward that is running on this thread comes to ``node``; of a leaf's, in ``torch.autograd.grad``,
    the engine does not say, and it is taken for granted.
    """
    try:
        comes: bool = torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return True
    return comes
