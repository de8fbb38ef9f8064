""".backward() inside, .grad of arguments read and written there."""

import warnings

import pytest
import torch
from torch import nn

from tests.behaviour.backward.common import calls
from tests.behaviour.functions import Square
from tests.behaviour.harness import agrees, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import seeded


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("as_keyword", [False, True])
@session(rtol=1e-5)
def test_backward_inside_with_inputs_reaches_parameters_of_a_captured_module(compile, as_keyword):
    net = seeded(nn.Linear(3, 3))

    def f(x):
        loss = net(x).square().sum()
        if as_keyword:
            torch.autograd.backward(tensors=loss, inputs=[net.weight])
        else:
            loss.backward(inputs=[net.weight])
        return loss.detach()

    compiled = compile(f)
    for k in range(2):
        yield compiled(plain(2, 3, seed=k)), net.weight.grad, net.bias.grad


@agrees(lambda: given(leaf(3)))
def test_backward_inside_into_a_leaf_made_inside(x):
    y = (x * 2).detach().requires_grad_()
    (y * y).sum().backward()
    return y.grad * x


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
@session
def test_the_grad_of_an_argument_that_is_reshaped_after_a_backward_inside(compile, change):
    def f(x):
        x.backward(x.detach(), inputs=[x])
        change(x)
        return x * 2

    root = leaf(2, 1)
    x = root.clone()
    compiled = compile(f)
    out = compiled(x)
    yield out, x.grad, x
    yield attempt_later(lambda: out.sum().backward()), root


@agrees(lambda: given(leaf(2, 1)))
def test_the_grad_of_a_leaf_that_is_transposed_in_place_after_a_backward_inside(x):
    (x * x).sum().backward()
    with torch.no_grad():
        x.t_()


def test_gradients_accumulate_over_calls():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        return loss.detach()

    calls(f, lambda: leaf(3), lambda: leaf(3, seed=1))


@session
def test_a_backward_inside_accumulates_in_place_into_an_existing_grad(compile):
    def f(x):
        (x * x).sum().backward()

    compiled = compile(f)
    x = leaf(3)
    for gradient in (None, plain(3, seed=2), None, plain(3, seed=4)):
        x.grad = gradient
        compiled(x)
        yield x, gradient  # accumulated in place where there was one


@session
def test_two_backwards_inside_and_one_outside(compile):
    def f(x, w):
        y = x * w
        y.sum().backward(retain_graph=True)
        (y * y).sum().backward(retain_graph=True)
        return y * 2

    compiled = compile(f)
    x, w = leaf(3), leaf(3, seed=1)
    for _ in range(2):
        y = compiled(x, w)
        yield x, w
        backward([y])
        yield x, w, y


@session
def test_what_a_backward_inside_freed_cannot_be_used_outside(compile):
    def f(x):
        y = x * x
        y.sum().backward()
        return y

    x = leaf(3)
    y = compile(f)(x)
    yield x
    yield attempt_later(lambda: backward([y]))
    yield x


def test_a_backward_inside_with_create_graph():
    def f(x):
        (x * x * x).sum().backward(create_graph=True)
        penalty = (x.grad * x.grad).sum()
        x.grad = None
        return penalty

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of it once in a process
        check(f, lambda: given(leaf(3)))


@session
def test_a_backward_inside_accumulates_into_parameters_of_a_closure(compile):
    torch.manual_seed(0)
    net = to_device(torch.nn.Linear(3, 2))

    def f(x):
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    compiled = compile(f)
    for k in range(3):
        yield compiled(plain(4, 3, seed=k)), list(net.parameters())


@session
def test_a_backward_inside_accumulates_into_parameters_of_the_module(compile):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            loss = self.linear(x).square().sum()
            loss.backward()
            return loss.detach()

    torch.manual_seed(0)
    net = to_device(Net())
    compiled = compile(net)
    for k in range(3):
        yield compiled(plain(4, 3, seed=k)), list(net.parameters())


@agrees(lambda: given(plain(3)))
def test_a_leaf_made_inside_and_returned_with_its_gradient(x):
    w = torch.ones(3, requires_grad=True, device=x.device)
    (w * x).sum().backward()
    return w, w.grad


@session
def test_reading_the_grad_of_an_argument(compile):
    compiled = compile(lambda x: x * 3 if x.grad is None else x.grad * 2)
    x = leaf(3)
    for gradient in (None, plain(3, seed=1), plain(3, seed=2), None):
        x.grad = gradient
        yield compiled(x), x


@session
def test_returning_the_grad_of_an_argument_that_the_caller_then_writes(compile):
    x = leaf(3)
    x.grad = plain(3, seed=1)
    out = compile(lambda x: (x.grad, x.grad.view(-1)))(x)
    yield out, x, out[0] is x.grad
    out[1].add_(1)
    yield out, x.grad


@pytest.mark.parametrize(
    "write",
    [
        lambda x: setattr(x, "grad", x.detach() * 2),
        lambda x: setattr(x, "grad", None),
        lambda x: x.grad.mul_(2),
        lambda x: x.grad.zero_(),
        lambda x: setattr(x, "grad", x.grad * 2),
        lambda x: delattr(x, "grad"),
        lambda x: setattr(x, "grad", x.detach()),
    ],
    ids=["assigned", "removed", "scaled", "zeroed", "replaced", "deleted", "an alias of itself"],
)
@session
def test_writing_the_grad_of_an_argument(compile, write):
    def f(x):
        write(x)
        return x * 3

    compiled = compile(f)
    x = leaf(3)
    for _ in range(3):
        before = x.grad = plain(3, seed=1)
        y = compiled(x)
        yield y, x, before, x.grad
        backward([y])
        yield x, before, x.grad


@session
def test_the_grad_of_an_argument_is_an_argument_too(compile):
    def f(x, g):
        x.grad.mul_(2)
        return g + 1

    compiled = compile(f)
    x = leaf(3)
    for passed in (True, False, True):
        x.grad = plain(3, seed=1)
        g = x.grad if passed else plain(3, seed=1)
        yield compiled(x, g), x, g


@session
def test_reading_the_grad_of_a_captured_tensor_that_is_not_used_otherwise(compile):
    w = leaf(3)
    compiled = compile(lambda x: x * 2 if w.grad is None else x * w.grad)
    for gradient in (None, plain(3, seed=1), None):
        w.grad = gradient
        yield compiled(plain(3)), w


@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("result", [lambda y: y, lambda y: y.t(), lambda y: y * 2, lambda y: y.sum()])
@pytest.mark.parametrize(
    "op", [lambda x: Square.apply(x), lambda x: Square.apply(x).exp(), lambda x: Square.apply(x.exp())]
)
@session
def test_the_root_of_a_backward_inside_is_returned(compile, op, result, create, retained):
    def f(x):
        y = op(x)
        y.sum().backward(retain_graph=retained)
        return result(y)

    x = leaf(2, 2)
    y = compile(f)(x)
    yield y, x.grad
    yield attempt_later(lambda: torch.autograd.grad(y.sum(), x, create_graph=create))
