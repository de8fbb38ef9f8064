"""Gradients, tangents, hooks and second derivatives of jagged tensors."""

import pytest
import torch

from tests.behaviour.functions import Halves
from tests.behaviour.harness import attempt_later, check, one_of, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.subclasses.common import nested_of
from tests.behaviour.wrappers import jagged


@session
def test_a_backward_that_needs_a_plain_zero_gradient_of_jagged_size_raises_as_in_eager(compile):
    def function(x):
        y, _ = Halves.apply(x)
        return y.view_as(x)

    values = plain(4, 3)
    offsets = torch.tensor([0, 2, 4], device=values.device)
    root = torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_()
    result = compile(function)(root * 2)
    try:
        result.backward(torch.ones_like(result.detach()))
    except Exception as error:
        yield type(error)
    yield root.grad


@session
def test_a_jagged_argument_its_result_and_its_gradient_share_offsets(compile):
    x, w = jagged(2, 3, grad=True), leaf(2)
    y = compile(lambda x, w: (x * w, (x * x).sum()))(x, w)
    yield attempt_later(lambda: y[0].backward(x.detach(), retain_graph=True))
    yield attempt_later(lambda: y[1].backward())
    yield x, w, y
    assert x.grad.offsets() is x.offsets() and y[0].offsets() is x.offsets()


@session
def test_a_gradient_penalty_of_a_jagged_tensor(compile):
    x = jagged(2, 3, grad=True)
    y = compile(lambda x: (x * x * x).sum())(x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    yield g
    (g * g).sum().backward()
    yield x


class _KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := x * 2)
        return y

    @staticmethod
    def backward(ctx, *grads):
        return grads[0] * ctx.saved_tensors[0]


@session
def test_a_custom_function_that_saves_its_jagged_result(compile):
    values = plain(4, 2)
    x = nested_of(values, torch.tensor([0, 1, 4], device=values.device))
    values.requires_grad_()  # it is the ragged tensor's, which does not require grad by itself
    y = compile(_KeepsItsResult.apply)(x)
    yield x, y
    yield attempt_later(lambda: y.values().sum().backward()), values


OF_THEMSELVES = {
    "tanh": lambda x: x.tanh(),
    "tanh in place": lambda x: x.tanh_(),
    "exp of a result, in place": lambda x: (x * 2).exp_(),
    "softmax": lambda x: torch.softmax(x, -1),
    "beside another": lambda x: (x.exp(), x * 3),
}
of_itself = one_of(OF_THEMSELVES)


def first(y):
    return y[0] if isinstance(y, tuple) else y


def values(gradients):
    return [None if g is None else g.values().detach() for g in gradients]


@session(rtol=1e-5)
def test_second_derivatives_through_a_saved_jagged_result(compile, of_itself):
    has_third = of_itself is not OF_THEMSELVES["softmax"]  # of which torch has none

    compiled = compile(of_itself)
    for lengths in ((2, 1), (1, 3)):
        x = jagged(*lengths, grad=True)
        y = first(compiled(x * 0.5))
        ones = torch.ones_like(y).detach()
        (g,) = torch.autograd.grad([y], [x], [ones], create_graph=True)
        seed = torch.ones_like(g).detach() * 3
        second = torch.autograd.grad([g], [x, y], [seed], allow_unused=True, create_graph=True)
        yield g.values().detach(), values(second)
        third = [s for s in second if has_third and s is not None and s.requires_grad]
        ones = [torch.ones_like(s).detach() for s in third]
        if third:
            yield values(torch.autograd.grad(third, [x, y], ones, allow_unused=True))


@session(rtol=1e-5)
def test_hooks_on_a_saved_jagged_result_are_called_by_second_derivatives(compile, of_itself):
    x = jagged(2, 1, grad=True)
    y = first(compile(of_itself)(x * 0.5))
    seen = []
    y.register_hook(lambda g: seen.append(g.values().detach().clone()))
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    (g,) = torch.autograd.grad([y], [x], [torch.ones_like(y).detach()], create_graph=True)
    yield list(seen)
    g.backward(torch.ones_like(g).detach())
    yield seen, y.grad.values(), x.grad.values()


def test_the_gradient_of_a_jagged_tensor():
    check(lambda x: (x * x).sin(), lambda: given(jagged(2, 3, 1, grad=True)), probe=False)


def test_the_gradient_of_to_padded_tensor_and_amax_of_a_jagged_tensor():
    check(lambda x: torch.nested.to_padded_tensor(x, 0.0), lambda: given(jagged(2, 3, grad=True)), probe=False)
    check(lambda x: x.amax(1), lambda: given(jagged(2, 3, grad=True)), probe=False)


@session
def test_a_jagged_argument_as_the_tangent_of_its_own_result(compile):
    x = jagged(2, 3, grad=True)
    y = compile(lambda x: x * x)(x)
    y.backward(x.detach())
    yield x, y
    assert x.grad is not None and x.grad.offsets() is x.offsets()


_SPLITS = {
    "split": lambda x: torch.split(x, 1, 2),
    "chunk": lambda x: torch.chunk(x, 2, 2),
    "one of them": lambda x: torch.split(x, 1, 2)[1:],
    "of what is computed": lambda x: torch.split(x * 2, 1, 2),
}


@pytest.mark.parametrize("split", _SPLITS.values(), ids=_SPLITS)
@pytest.mark.parametrize("root", [False, True])
@session
def test_split_parts_of_a_jagged_tensor_have_one_gradient(compile, split, root):
    """Of what is split, ``split`` alone cannot say what a part without a gradient is like."""

    x = jagged(2, 3, grad=True)
    parts = compile(split)(x * 1 if root else x)
    g = attempt_later(lambda: torch.autograd.grad(parts, x, [torch.ones_like(p) for p in parts]))
    yield [p.detach() for p in parts], g
