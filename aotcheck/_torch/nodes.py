"""The graph of autograd: the nodes that made tensors, what they take gradients of, and in which order they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

_run_backward: Callable[..., Any] = vars(torch.autograd.graph)["_engine_run_backward"]
_function_apply = vars(torch._C._FunctionBase)["apply"]
with torch.inference_mode(False), torch.enable_grad():  # whatever the mode in which a program first needs this
    _leaf = torch.zeros((), device="cpu", requires_grad=True)
    _AccumulateGrad = type(torch.autograd.graph.get_gradient_edge(_leaf).node)


def leafness(t: Tensor) -> bool | None:
    """``t.is_leaf``; None where torch refuses to say, of a view made under no_grad whose base was written since.

    Or of a view that cannot be made again of its base, which has fewer dimensions since.
    """
    try:
        return t.is_leaf
    except (RuntimeError, IndexError):
        return None


def grad_fn_of(t: Tensor) -> Any:
    """The node of autograd that made ``t``; None for leaves, and where torch refuses to say (see ``leafness``)."""
    try:
        return t.grad_fn
    except (RuntimeError, IndexError):
        return None


def variable_of(accumulator: Any) -> Tensor:
    """The leaf into which the node ``accumulator`` puts its gradients."""
    leaf: Tensor = accumulator.variable
    return leaf


def accumulates(node: Any) -> bool:
    """Whether the node of autograd puts gradients into a leaf."""
    return type(node) is _AccumulateGrad


def gradient_shape(node: Any, place: int = 0) -> tuple[int, ...]:
    """The shape of the gradient that ``node`` takes of a result of its, as it was when the node was made."""
    return tuple(node._input_metadata[place].shape)


def recorded_gradient(node: Any, place: int = 0) -> tuple[tuple[int, ...], torch.dtype]:
    """The shape of such a gradient, and its dtype."""
    like = node._input_metadata[place]
    return tuple(like.shape), like.dtype


def gradient_dtype(node: Any, place: int) -> torch.dtype:
    """The dtype of the same."""
    return cast("torch.dtype", node._input_metadata[place].dtype)


def zeros_for(node: Any, place: int) -> Tensor:
    """Zeros that ``node`` may be given for a gradient of a result of its."""
    like = node._input_metadata[place]
    return torch.zeros(tuple(like.shape), dtype=like.dtype, device=like.device)


def outputs_of(node: Any) -> int:
    """How many results the node of autograd has gradients of."""
    return len(node._input_metadata)


def tells_what_it_keeps(node: Any) -> bool:
    """Whether ``node`` has an attribute for each thing that it keeps for its backward."""
    return type(node).__name__ not in ("CopySlices", "CppFunction")


def is_opaque(node: Any) -> bool:
    """Whether ``node`` keeps tensors for its backward of which it shows none."""
    return type(node).__name__ == "CppFunction" and node.name().startswith("Foreach")


def is_write_through_view(node: Any) -> bool:
    """Whether ``node`` is the history that a base has of a write through a view of it."""
    return type(node).__name__ == "CopySlices"


def error_of(node: Any) -> str | None:
    """What ``node`` raises if it is there for nothing else, as in the graph of what may be differentiated once."""
    if type(node).__name__ not in ("Error", "NotImplemented"):
        return None
    try:
        node(None)
    except RuntimeError as error:
        return str(error)
    except TypeError:  # it has several inputs, and torch does not say how many
        return _error_for_several(node)
    return None


def _error_for_several(node: Any) -> str | None:
    for count in range(2, 64):
        try:
            node(*[None] * count)
        except RuntimeError as error:
            return str(error)
        except TypeError:
            continue
    return None


def run_without_gradients(node: Any) -> None:
    """Run a node's backward with no gradient defined.

    Raises:
        RuntimeError: what it keeps was written since.
    """
    node(*[None] * outputs_of(node))


def sequence_number(node: Any) -> int:
    """When autograd made ``node``: the later, the greater. A backward comes by later ones first."""
    return int(node._sequence_nr())


def set_sequence_number(node: Any, number: int) -> None:
    """Let backwards take ``node`` for made when autograd counted ``number``."""
    node._set_sequence_nr(number)


autograd_sequence_number: Callable[[], int] = vars(torch._C._autograd)["_get_sequence_nr"]
"""The number that autograd will give to the next node of the graph."""


def factor_of(product: Tensor) -> Tensor | None:
    """The first factor, as autograd keeps it, of the product of which ``product`` is a sum; None if unknown."""
    node: Any = product.grad_fn
    while node is not None and not hasattr(node, "_saved_other"):
        node = node.next_functions[0][0] if node.next_functions else None
    return getattr(node, "_saved_self", None)


def gradients_at(
    edges: Sequence[Any], starts: Sequence[Any], gradients: Sequence[Tensor], create_graph: bool
) -> tuple[Tensor | None, ...]:
    """What ``torch.autograd.grad`` gives for ``edges`` of unused ones too, keeping the graph; nothing is checked.

    ``gradients`` are those of ``starts``, tensors or edges, whose shapes and dtypes they have.
    """
    given = tuple(starts), tuple(gradients), True, create_graph, tuple(edges), True
    found: tuple[Tensor | None, ...] = _run_backward(*given, accumulate_grad=False)
    return found


def bound_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without the Python layer that handles torch.func transforms."""
    return cast("Callable[..., Any]", _function_apply.__get__(None, function))
