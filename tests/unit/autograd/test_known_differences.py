"""Silent differences that docs/limits.md gives as examples still differ; one that does not leaves the page."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotcheck import aot_function

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def leaf(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes).requires_grad_()


def a_value_that_a_custom_backward_reads(compile: Compile) -> object:
    class Config:
        scale = 1.0

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * Config.scale

    x = leaf(2)
    out = compile(lambda x: Scaled.apply(x))(x)
    Config.scale = 5.0
    out.sum().backward()
    return x.grad.tolist()


def metadata_that_a_custom_backward_changes(compile: Compile) -> object:
    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.t = torch.ones(2, 3)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            ctx.t.t_()
            return g * ctx.t.shape[0]

    x = leaf(2)
    out = compile(lambda x: Turned.apply(x))(x)
    for _ in range(2):
        out.sum().backward(retain_graph=True)
    return x.grad.tolist()


def a_hook_on_a_node_that_clips(compile: Compile) -> object:
    def function(x: torch.Tensor) -> torch.Tensor:
        h = x * 1
        h.grad_fn.register_hook(lambda gi, go: (gi[0].clamp(-20, 20), *gi[1:]))
        return (h**3).sum()

    x = leaf(2)
    loss = compile(function)(x)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + g.sum() * 3).backward()
    return x.grad.tolist()


def a_retained_gradient_of_an_argument_detached_inside(compile: Compile) -> object:
    def function(a: torch.Tensor) -> torch.Tensor:
        a.mul_(3)
        b = a * 2
        a.detach_()
        return b

    a = leaf(2) * 1
    a.retain_grad()
    compile(function)(a).sum().backward()
    return a.grad.tolist()


def other_data_for_a_returned_view(compile: Compile) -> object:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        v = y[0]
        return v, v.sin()

    x = leaf(2, 2)
    v, out = compile(function)(x)
    v.data = torch.zeros(2)
    out.sum().backward()
    return x.grad.tolist()


def a_second_derivative_through_a_written_view(compile: Compile) -> object:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = x * 1
        v = b[0]
        v.exp_()
        return b, v.sin()

    x = leaf(2, 2)
    b, out = compile(function)(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), b)[0].tolist()


def the_dtype_of_the_gradient_of_a_leaf_given_other_data(compile: Compile) -> object:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.data = torch.ones(2, dtype=torch.float64)
        return (y + x).sum()

    x = leaf(2)
    compile(function)(x).backward()
    return x.grad.dtype


def an_inference_tensor_outside_inference_mode(compile: Compile) -> object:
    with torch.inference_mode():
        x = torch.ones(2).requires_grad_()
    return compile(lambda x: x.fmod(2))(x).requires_grad


def the_shape_of_a_transposed_argument_given_as_out(compile: Compile) -> object:
    def function(a: torch.Tensor) -> torch.Tensor:
        a.t_()
        with torch.no_grad():
            torch.add(torch.ones(2, 3), 1, out=a)
        return a * 1

    a = torch.tensor(1.0).requires_grad_() * 1
    compile(function)(a)
    return a.shape


DIFFER = (
    a_value_that_a_custom_backward_reads,
    metadata_that_a_custom_backward_changes,
    a_hook_on_a_node_that_clips,
    a_retained_gradient_of_an_argument_detached_inside,
    other_data_for_a_returned_view,
    a_second_derivative_through_a_written_view,
    the_dtype_of_the_gradient_of_a_leaf_given_other_data,
    an_inference_tensor_outside_inference_mode,
    the_shape_of_a_transposed_argument_given_as_out,
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("example", DIFFER, ids=lambda example: example.__name__)
def test_an_example_of_a_silent_difference_differs(example: Callable[[Compile], object]) -> None:
    assert example(lambda function: function) != example(aot_function), "repaired: take it from docs/limits.md"
