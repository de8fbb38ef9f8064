"""What several tests of outputs use."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.behaviour.harness import attempt_later, check, check_session


def describe(outputs: Any, args: Any) -> Any:
    """What autograd says about each output: whether it is a view, and of what; whether it has a node."""
    tensors = [x for x in pytree.tree_leaves((args, outputs)) if isinstance(x, torch.Tensor)]

    def of(x: torch.Tensor) -> Any:
        base = x._base
        return (
            x._is_view(),
            None if base is None else next((k for k, t in enumerate(tensors) if t is base), "another"),
            None if base is None else (tuple(base.shape), base.stride(), base.dtype, base.requires_grad),
            type(x.grad_fn).__name__ if x.grad_fn is None or "Backward" not in type(x.grad_fn).__name__ else "",
        )

    return [attempt_later(lambda x=x: of(x)) for x in tensors]


def check_views(function: Any, make: Any) -> None:
    """As `check`, and what autograd knows of each output besides, the node of a view by its name."""

    def session(compile):
        made = make()
        outputs = compile(function)(*made.args)
        yield describe(outputs, made.args)
        views = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor) and x._is_view()]
        yield [attempt_later(lambda x=x: type(x.grad_fn).__name__) for x in views]

    check_session(session)
    check(function, make)
