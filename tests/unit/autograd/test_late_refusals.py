"""What a backward refuses in words of its own, where torch would raise an error that does not say what is wrong."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import aotcheck
from aotcheck.program.called.wrapped import wrapped


@pytest.mark.parametrize(("size", "created"), [(0, False), (3, True)], ids=["another tangent", "create_graph"])
def test_a_selective_checkpoint_of_which_two_backwards_are_traced(size: int, created: bool) -> None:
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mul.Tensor])

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda a: (a * a).relu() * a, x, use_reentrant=False, context_fn=contexts)

    x = torch.ones(size, requires_grad=True)
    out = aotcheck.aot_function(f)(x)
    with pytest.raises(aotcheck.UnsupportedError, match="checkpoint: a selective one"):
        torch.autograd.grad(out, x, torch.ones(1).expand(size), create_graph=created)


def test_a_gradient_that_is_a_view_which_a_wrapper_cannot_make_again() -> None:
    x = wrapped.constant(torch.zeros(())).requires_grad_()
    out = aotcheck.aot_function(lambda x: torch.as_strided_scatter(x, torch.ones(()), (), ()))(x)
    with pytest.raises(aotcheck.UnsupportedError, match="a gradient is one, in a wrapper"):
        torch.autograd.grad(out, x, wrapped.constant(torch.ones(())).requires_grad_(), create_graph=True)
