"""BEHAVIOUR 5: what a backward does besides giving gradients, by where it leads and what it is asked for."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check_session, leaf, plain


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
        torch.rand(3)
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


@pytest.fixture(params=DOES_MORE.values(), ids=DOES_MORE)
def does_more(request: pytest.FixtureRequest):
    return request.param


def _moments(act, buffer, *leaves):
    yield attempt_later(act)
    yield buffer, torch.rand(1), [x.grad for x in leaves]


def _made_for_the_moment(x):
    return torch.ones(3, requires_grad=True)


def _detached(x):
    return x.detach().requires_grad_()


def _product(x):
    return torch.ones(3, requires_grad=True) * x.detach()


@pytest.mark.parametrize("make", [_made_for_the_moment, _detached, _product])
@pytest.mark.parametrize("asked", [False, True])
def test_what_leads_to_a_leaf_that_nobody_has_runs_in_a_backward_that_asks_for_nothing_else(does_more, make, asked):
    def session(compile):
        x, buffer = leaf(3), plain(3, seed=1)
        y = compile(lambda x, buffer: x * 3 + does_more(make(x), buffer))(x, buffer)
        for keeps in (True, False):
            how = {"inputs": [x]} if asked else {}
            yield from _moments(lambda k=keeps, h=how: backward([y], retain_graph=k, **h), buffer, x)

    check_session(session)


def test_what_leads_to_a_leaf_that_nobody_has_alone(does_more):
    def session(compile):
        x, buffer = plain(3), plain(3, seed=1)
        y = compile(lambda x, buffer: x * does_more(_made_for_the_moment(x), buffer))(x, buffer)
        yield from _moments(lambda: backward([y]), buffer)

    check_session(session)


@pytest.mark.parametrize("order", ["xy", "yx", "x", "y", "all"])
@pytest.mark.parametrize("twice", [False, True])
def test_a_backward_leaves_out_what_leads_to_what_it_is_not_asked_for(does_more, order, twice):
    def session(compile):
        x, y, buffer = leaf(3), leaf(3, seed=2), plain(3, seed=1)
        z = compile(lambda x, y, b: x * 3 + does_more(y, b))(x, y * 1 if twice else y, buffer)
        for name in ["all"] if order == "all" else order:
            how = {} if name == "all" else {"inputs": [x if name == "x" else y]}
            yield from _moments(lambda h=how: backward([z], retain_graph=True, **h), buffer, x, y)

    check_session(session)


def test_one_of_two_results_leads_to_a_leaf_that_nobody_has(does_more):
    def f(x, buffer):
        shared = x.exp()
        return shared * 2, shared + does_more(_made_for_the_moment(x), buffer)

    def session(compile):
        x, buffer = leaf(3), plain(3, seed=1)
        a, b = compile(f)(x, buffer)
        for roots in ([a], [b], [a, b]):
            yield from _moments(lambda r=roots: backward(r, retain_graph=True), buffer, x)

    check_session(session)
