"""What autograd's nodes hold, and what the backward that is running is asked for."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck._torch2.dispatch import meta_kernels

__all__ = [
    "freed_error",
    "is_custom",
    "keeps_graph",
    "kept_by",
    "skipped",
    "tells_of_lost_values",
    "unpack",
    "wants",
    "wants_all",
]

_C = torch._C


@functools.cache
def _saved_fields(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def kept_by(node: Any) -> list[Tensor] | None:
    """What a backward that comes by ``node`` frees, so that none can come by it again; None if nothing."""
    kind: Any = type(node)
    fields = _saved_fields(kind)
    if not fields:
        return [] if node.name().endswith("CopySlices") else None
    try:
        with meta_kernels():
            if is_custom(node):
                return [] if len(node._raw_saved_tensors) else None
            saved = [getattr(node, name.replace("_raw", "", 1)) for name in fields]
    except RuntimeError:  # it was written since
        return []
    return [x for s in saved for x in (s if isinstance(s, (tuple, list)) else (s,)) if isinstance(x, Tensor)] or None


def is_custom(node: Any) -> bool:
    """Whether ``node`` is of a ``torch.autograd.Function``."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


@contextlib.contextmanager
def skipped(custom: Sequence[Any]) -> Iterator[None]:
    """Inside, the backwards of these custom Functions are not run, and give no gradients."""
    for node in custom:
        node.apply = lambda *gradients: (None,) * 1024  # torch drops what is too many
    try:
        yield
    finally:
        for node in custom:
            del node.apply


_FREED = "Trying to backward through the graph a second time (or directly access saved tensors after they have "
_FREED += "already been freed)"


def tells_of_lost_values(error: BaseException) -> bool:
    """Whether a backward raised what eager's does: values it needs were written or freed, or there is no derivative."""
    modified = "one of the variables needed for gradient computation has been modified"
    return str(error).startswith((modified, _FREED, "the derivative for", "derivative for"))


def freed_error() -> RuntimeError:
    """What autograd raises where a backward needs what another one freed."""
    more = ". Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    more += "retain_graph=True if you need to backward through the graph a second time or if you need to access "
    return RuntimeError(f"{_FREED}{more}saved tensors after calling backward.")


def keeps_graph() -> bool:
    """Whether the backward that is running on this thread leaves the graph as it is (``retain_graph``)."""
    return bool(_C._autograd._get_current_graph_task_keep_graph())


wants_all: Callable[[], bool] = torch.autograd.Variable._execution_engine.is_checkpoint_valid
"""Whether the backward that is running on this thread was not asked for some gradients only."""


def wants(node: Any) -> bool:
    """Whether the backward that is running on this thread comes to ``node``."""
    if node is None:
        return False
    try:
        comes: bool = _C._will_engine_execute_node(node)
    except RuntimeError:  # what it says of a leaf whose gradient torch.autograd.grad is asked for
        return True
    return comes


def unpack(node: Any, k: int) -> Tensor:
    """What a custom Function saved at place ``k``. Of its results, and before torch 2.12, all must be as it was.

    Under compiled autograd, what stands for the Function has all that it saved.
    """
    try:
        found: Tensor = node._raw_saved_tensors[k].unpack()
    except (RuntimeError, AttributeError) as error:
        if is_custom(node) and isinstance(error, RuntimeError) and "detached in-place" not in str(error):
            raise
        found = node.saved_tensors[k]  # one of its own results
    return found
