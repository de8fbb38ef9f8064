"""What autograd's nodes hold, and what the backward that is running is asked for."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck._torch2.dispatch import hide_from_dynamo, meta_kernels

__all__ = [
    "AccumulateGrad", "bound_apply", "freed_error", "hooks_of", "is_custom", "keeps_graph", "kept_by", "set_grad",
    "skipped", "takes", "tells_of_lost_values", "unpack", "wants", "wants_all",
]  # fmt: skip

_C = torch._C
_GRADIENT = torch.empty(0)
hooks_of: Callable[[Tensor], Any] = operator.attrgetter("_backward_hooks")  # what register_hook added to, or None
set_grad: Callable[[bool], None] = vars(_C)["_set_grad_enabled"]
"""``torch.set_grad_enabled``, which makes an object each time."""

with torch.inference_mode(False), torch.enable_grad():
    AccumulateGrad: Any = type(torch.autograd.graph.get_gradient_edge(torch.zeros((), requires_grad=True)).node)


@functools.cache
def _saved_fields(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


_SAVES_UNSEEN = re.compile(
    r"torch::autograd::CopySlices|Foreach(?!(Ceil|Clone|Floor|Frac|Neg|Round|Sign|Trunc)B|Lerp.*Scalar)"
)
"""Nodes that save tensors and have no attribute for any."""


def kept_by(node: Any) -> list[Tensor] | None:
    """What a backward that comes by ``node`` frees, so that none can come by it again; None if nothing."""
    kind: Any = type(node)
    if not (fields := _saved_fields(kind)):
        return [] if _SAVES_UNSEEN.match(node.name()) else None
    try:
        with meta_kernels():
            if is_custom(node):
                code = getattr(inspect.unwrap(node._forward_cls.backward), "__code__", None)
                asks = code is not None and "saved_tensors" in code.co_names  # which raises once they are freed
                return [] if asks or len(node._raw_saved_tensors) else None
            saved = [getattr(node, name.replace("_raw", "", 1)) for name in fields]
    except RuntimeError:  # it was written since
        return []
    return [x for s in saved for x in (s if isinstance(s, (tuple, list)) else (s,)) if isinstance(x, Tensor)] or None


def is_custom(node: Any) -> bool:
    """Whether ``node`` is of a ``torch.autograd.Function``."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def takes(node: Any) -> int:
    """Of how many results ``node`` takes the gradients."""
    return len(node._input_metadata)


def bound_apply(function: Any, hooks: Callable[[Any, int], Any]) -> Any:
    """``apply`` of a custom Function, without the checks in Python that torch makes before it and before backwards.

    When the first hook of a result is added, ``hooks`` is asked for what to keep its hooks in, given the node and the
    number of the result among the node's; None if torch shall keep them.
    """
    kind = function._backward_cls
    register = kind._register_hook_dict

    def register_hook_dict(node: Any, result: Any) -> None:
        if (own := hooks(node, result.output_nr)) is not None:
            result._backward_hooks = own
        register(node, result)

    kind.apply, kind._register_hook_dict = function.backward, register_hook_dict
    return vars(_C._FunctionBase)["apply"].__get__(None, function)


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
    return str(error).startswith((modified, _FREED, "the derivative for", "derivative for", "unsupported operation: "))


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


def wants(nodes: Iterable[Any]) -> tuple[bool, ...]:
    """Of each node, whether the backward that is running on this thread comes to it.

    Of a leaf whose gradient ``torch.autograd.grad`` is asked for torch raises an error, which takes ten times as long
    as to make a view of the leaf and to see whether its backward gives a gradient.
    """
    grad = torch.is_grad_enabled()
    set_grad(True)
    try:
        return tuple([node is not None and _comes_to(node) for node in nodes])
    finally:
        set_grad(grad)


def _comes_to(node: Any) -> bool:
    if type(node) is AccumulateGrad:
        return node.variable[...].grad_fn(_GRADIENT) is not None
    return bool(_C._will_engine_execute_node(node))


@hide_from_dynamo
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
