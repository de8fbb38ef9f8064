"""A backward that writes, draws random numbers, recomputes."""

from functools import partial

import pytest
import torch

from tests.behaviour.backward.common import custom
from tests.behaviour.harness import attempt_later, backward, check_session, one_of, session
from tests.behaviour.inputs import leaf, plain


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.count.add_(1)
        return gradient * 2, None


def counting_hook(x, w, count):
    made = x * 2
    made.register_hook(lambda gradient: (count.add_(1), None)[1])
    return made + w * 3


def counting_backward(x, w, count):
    return Counting.apply(x, count) * w


def counting_backwards(x, w, count):
    return Counting.apply(Counting.apply(x, count) * w, count) + w


def counting_one_result(x, w, count):
    return Counting.apply(x, count) + w, x * w


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("asked", [(0,), (1,), (1, 1), (1, 0), (0, 1)])
@pytest.mark.parametrize("function", [counting_hook, counting_backward, counting_backwards, counting_one_result])
@session
def test_hooks_and_backwards_that_count_run_only_for_leaves_that_grad_is_asked_for(
    compile, function, asked, create_graph
):
    compiled = compile(function)
    for _ in range(2):
        leaves = leaf(2, 3), leaf(2, 3, seed=1)
        count = plain(1)
        y = compiled(*leaves, count)
        total = y if isinstance(y, torch.Tensor) else sum(y)
        for k in asked:
            ask = partial(torch.autograd.grad, total.sum(), leaves[k], retain_graph=True, create_graph=create_graph)
            yield attempt_later(ask), count, leaves


class Counts(torch.autograd.Function):
    """Counts its gradients up in a buffer."""

    @staticmethod
    def forward(ctx, x, buffer):
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.buffer.add_(g)
        return g * 2, None


class Draws(torch.autograd.Function):
    """Draws random numbers for nothing."""

    @staticmethod
    def forward(ctx, x, buffer):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        torch.rand(3, device=g.device)
        return g * 2, None


class RaisesOf(torch.autograd.Function):
    """Raises an error of its own kind."""

    @staticmethod
    def forward(ctx, x, buffer):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("not today")


def _hooked(x, buffer):
    y = x * 2
    y.register_hook(lambda g: buffer.add_(g))
    return y


DOES_MORE = {"writes": Counts.apply, "draws": Draws.apply, "raises": RaisesOf.apply, "hook": _hooked}
does_more = one_of(DOES_MORE)


def _moments(act, buffer, *leaves):
    yield attempt_later(act)
    yield buffer, torch.rand(1, device=buffer.device), [x.grad for x in leaves]


def _made_for_the_moment(x):
    return torch.ones(3, requires_grad=True, device=x.device)


def _detached(x):
    return x.detach().requires_grad_()


def _product(x):
    return torch.ones(3, requires_grad=True, device=x.device) * x.detach()


@pytest.mark.parametrize("make", [_made_for_the_moment, _detached, _product])
@pytest.mark.parametrize("asked", [False, True])
@session
def test_effects_before_a_leaf_made_inside_happen_unless_inputs_exclude_that_leaf(compile, does_more, make, asked):
    x, buffer = leaf(3), plain(3, seed=1)
    y = compile(lambda x, buffer: x * 3 + does_more(make(x), buffer))(x, buffer)
    for keeps in (True, False):
        how = {"inputs": [x]} if asked else {}
        yield from _moments(lambda k=keeps, h=how: backward([y], retain_graph=k, **h), buffer, x)


@session
def test_effects_happen_where_a_backward_reaches_only_a_leaf_made_inside(compile, does_more):
    x, buffer = plain(3), plain(3, seed=1)
    y = compile(lambda x, buffer: x * does_more(_made_for_the_moment(x), buffer))(x, buffer)
    yield from _moments(lambda: backward([y]), buffer)


@pytest.mark.parametrize("order", ["xy", "yx", "x", "y", "all"])
@pytest.mark.parametrize("twice", [False, True])
@session
def test_effects_of_nodes_that_lead_only_to_other_leaves_than_inputs_do_not_happen(compile, does_more, order, twice):
    x, y, buffer = leaf(3), leaf(3, seed=2), plain(3, seed=1)
    z = compile(lambda x, y, b: x * 3 + does_more(y, b))(x, y * 1 if twice else y, buffer)
    for name in ["all"] if order == "all" else order:
        how = {} if name == "all" else {"inputs": [x if name == "x" else y]}
        yield from _moments(lambda h=how: backward([z], retain_graph=True, **h), buffer, x, y)


@session
def test_effects_before_a_leaf_made_inside_happen_only_for_the_result_that_uses_it(compile, does_more):
    def f(x, buffer):
        shared = x.exp()
        return shared * 2, shared + does_more(_made_for_the_moment(x), buffer)

    x, buffer = leaf(3), plain(3, seed=1)
    a, b = compile(f)(x, buffer)
    for roots in ([a], [b], [a, b]):
        yield from _moments(lambda r=roots: backward(r, retain_graph=True), buffer, x)


def test_random_numbers_drawn_in_a_backward():
    noisy = custom(lambda ctx, x: x * 2, lambda ctx, g: g * torch.rand(3, device=g.device))

    def session(compile):
        compiled = compile(lambda x: noisy(x) * torch.rand(3, device=x.device))
        x = leaf(3)
        y, z = compiled(x), compiled(x * 1)
        yield torch.rand(1, device=x.device)
        backward([y], retain_graph=True)
        yield x, torch.rand(1, device=x.device)
        backward([z, y])
        yield x, torch.rand(1, device=x.device)

    check_session(session)


@session
def test_a_backward_draws_random_numbers_that_no_gradient_needs(compile):
    def draw_and_forget(ctx, g):
        torch.rand(5, device=g.device)
        return g

    forgetful = custom(lambda ctx, x: x * 2, draw_and_forget)

    y = compile(forgetful)(leaf(3))
    backward([y])
    yield torch.rand(2, device=y.device)
