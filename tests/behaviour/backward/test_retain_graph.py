"""Twice, freed graphs, errors."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, session
from tests.behaviour.inputs import leaf, to_device
from tests.behaviour.wrappers import jagged


@session
def test_a_second_backward_through_freed_tensors_is_an_error(compile):
    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    yield attempt_later(lambda: backward([y])), x
    yield attempt_later(lambda: backward([y])), x


@session
def test_a_second_backward_where_nothing_was_saved(compile):
    x = leaf(3)
    y = compile(lambda x: x * 2 + 1)(x)
    yield attempt_later(lambda: backward([y])), x
    yield attempt_later(lambda: backward([y])), x


@session
def test_a_second_backward_with_retain_graph(compile):
    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    backward([y], retain_graph=True)
    yield x
    backward([y])
    yield x


@session
def test_a_backward_that_reaches_no_leaf_raises_the_errors_of_its_nodes(compile):
    def f(x):
        v = x.clone()
        v.set_(x)
        return v

    a = leaf()
    with torch.no_grad():
        x = a.t()  # requires grad, but is neither leaf nor connected
    y = compile(f)(x)
    yield y.requires_grad
    yield attempt_later(lambda: y.backward())


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("factor", [0, 2.5])
@pytest.mark.parametrize("by", ["list", "number"])
@session
def test_a_second_backward_through_what_no_gradient_reads_is_an_error(
    compile, by: str, factor: float, create_graph: bool
):
    def f(x, y):
        with torch.no_grad():
            x.add_(1)
        y.clone()
        return torch._foreach_mul([x], factor)[0] if by == "list" else x * factor

    base = to_device(torch.zeros(5))
    view = base[0]
    base.requires_grad_()
    beside = base[4:].detach().requires_grad_()
    out = compile(f)(view, beside)
    for _ in range(2):
        yield attempt_later(lambda: torch.autograd.grad(out, base, create_graph=create_graph, retain_graph=False))


@session(rtol=1e-6)
def test_grad_with_retain_graph_then_without_then_an_error(compile):
    x = leaf(3)
    y = compile(lambda x: x.exp() * x)(x).sum()
    yield torch.autograd.grad(y, x, retain_graph=True)
    yield torch.autograd.grad(y, x)
    yield attempt_later(lambda: torch.autograd.grad(y, x))


WRITTEN_AND_FREED = {
    "the result of a write": lambda x: x.tanh_(),
    "a written argument": lambda x: (x.mul_(2), x.sin())[1],
    "a result": lambda x: x.exp(),
    "a written view": lambda x: x.transpose(-2, -1).exp_(),
    "two results": lambda x: x.exp() * x.sin(),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("function", "argument"),
    [(f, "plain") for f in WRITTEN_AND_FREED] + [(f, "ragged") for f in WRITTEN_AND_FREED if "view" not in f],
)
@session
def test_a_freed_graph_is_the_error_even_if_saved_tensors_were_written(compile, function, argument, kept):
    x = (leaf(3, 2) if argument == "plain" else jagged(1, 2, grad=True)) * 1
    y = compile(WRITTEN_AND_FREED[function])(x)
    torch.autograd.backward(y, torch.ones_like(y), retain_graph=kept)
    with torch.no_grad():
        y.mul_(2)
        x.mul_(3)
    yield attempt_later(lambda: torch.autograd.backward(y, torch.ones_like(y)))
