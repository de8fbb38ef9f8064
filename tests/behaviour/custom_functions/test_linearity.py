"""Which custom backwards are recognised as linear, and what is refused otherwise."""

import functools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.custom_functions.common import (
    _Adds,
    _Clips,
    _few,
    _in_a_layer,
    _loss_and_penalty,
    _MindsWhichAreThere,
    _TakesSigns,
)
from tests.behaviour.harness import check_session
from tests.behaviour.inputs import leaf
from tests.behaviour.wrappers import TwoTensor


def _with_backward(body):
    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            return body(g, *ctx.saved_tensors), None

    return lambda x, w: (Given.apply(x * w, w) ** 2 * w).sum()


def _assigns_zeros(g, x, w):
    g = g.clone()
    g[x > 3] = 0
    return g


def _writes_a_row(g, x, w):
    g = g * 2
    g[0].add_(g[1])
    return g


_LINEAR = [
    *(lambda g, x, w: g, lambda g, x, w: -g / 2 + g * x * w, lambda g, x, w: g * (x > 0), _assigns_zeros),
    *(_writes_a_row, lambda g, x, w: (g * x).sum(0).expand(g.shape), lambda g, x, w: g @ w.t() @ x),
    *(lambda g, x, w: torch.where(x > 0, g, torch.zeros_like(g)), lambda g, x, w: g.masked_fill(x > 0, 0)),
    *(lambda g, x, w: torch.zeros_like(g), lambda g, x, w: g.to(torch.float32).to(g.dtype)),
    *(lambda g, x, w: torch.cat([g[:1] * 3, g[1:].flip(0)]), lambda g, x, w: g.detach() * x.exp()),
    lambda g, x, w: torch.ops.aten.threshold_backward(g, x, 0),
]  # fmt: skip


def _behind(program):
    """What lies behind the result of ``program``, whose gradients go to two leaves."""
    y = aotcheck.aot_function(program)(_few(), _few(1))
    return sorted(type(n).__name__ for n, _ in y.grad_fn.next_functions if n is not None)


@pytest.mark.parametrize("body", _LINEAR)
def test_a_linear_backward_shares_one_node_with_the_ops_around_it(body):
    check_session(lambda compile: _loss_and_penalty(compile(_with_backward(body))))
    assert _behind(_with_backward(body)) == ["AccumulateGrad"] * 2


def _writes_a_row_of_numbers(g, x, w):
    g = g * 2
    g[0] = 1
    return g


_NOT_LINEAR = [
    *(lambda g, x, w: g + 1, lambda g, x, w: g * g, lambda g, x, w: x * w, lambda g, x, w: g.where(g > 0, g * 2)),
    *(_writes_a_row_of_numbers, lambda g, x, w: g.round(), lambda g, x, w: g * g.detach().abs().sum()),
    *(lambda g, x, w: torch.where(x > 0, g, 1), lambda g, x, w: g.masked_fill(x > 0, 1), lambda g, x, w: w / g),
    *(lambda g, x, w: torch.div(g, 2, rounding_mode="floor"), lambda g, x, w: g.to(torch.int32).to(g.dtype)),
    *(lambda g, x, w: torch.ones_like(g), lambda g, x, w: g * torch.bernoulli(torch.full_like(g, 0.5))),
    *(lambda g, x, w: x.masked_fill(g > 0, 0), lambda g, x, w: torch.ops.aten.threshold_backward(x, g, 0)),
]  # fmt: skip


@pytest.mark.parametrize("body", _NOT_LINEAR)
def test_a_backward_that_is_not_linear_gets_a_node_of_its_own(body):
    def session(compile):
        torch.manual_seed(0)
        yield from _loss_and_penalty(compile(_with_backward(body)))

    check_session(session)
    assert _behind(_with_backward(body)) == ["AccumulateGrad", "CompiledFunctionBackward"]


def test_a_backward_that_no_second_derivative_reaches_shares_one_node():
    y = aotcheck.aot_function(lambda x: (_Clips.apply(x * x) * 2).sum())(leaf(2, 3))
    assert [type(n).__name__ for n, _ in y.grad_fn.next_functions] == ["AccumulateGrad"]


def _divided(f):
    def divide(joint, inputs, *, num_fwd_outputs):
        return aotcheck.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    return aotcheck.aot_function(f, aotcheck.nop, partition_fn=divide)


def _beside_a_sparse_one(f):
    compiled = aotcheck.aot_function(lambda x, w: (f(x, w), (x * w).to_sparse()))
    return lambda x, w: compiled(x, w)[0]


def _wrapped(x, w):
    return [TwoTensor(t.detach(), t.detach() * 2).requires_grad_() for t in (x, w)]


_NOT_CUT = [_divided, _beside_a_sparse_one, aotcheck.aot_function]


def _given_for(compile):
    return _wrapped(_few(), _few(1)) if compile is aotcheck.aot_function else (_few(), _few(1))


@pytest.mark.parametrize("function", [_Clips, _TakesSigns, _Adds, _MindsWhichAreThere])
@pytest.mark.parametrize("compile", _NOT_CUT)
def test_a_loss_and_penalty_through_a_backward_without_its_own_node_is_refused(compile, function):
    def step(x, w):
        h = function.apply(x * w)
        h, k = h if isinstance(h, tuple) else (h, h)
        return (h * k * k * w).sum()

    x, w = _given_for(compile)
    loss = compile(step)(x, w)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(aotcheck.UnsupportedError, match="not linear"):
        (loss + (g * g).sum()).backward()


@pytest.mark.parametrize("function", [_Clips, _TakesSigns, _Adds])
@pytest.mark.parametrize("kind", _NOT_CUT)
def test_a_penalty_alone_through_a_backward_without_its_own_node(kind, function):
    def session(compile):
        x, w = _given_for(kind)
        loss = compile(functools.partial(_in_a_layer, function.apply))(x, w)
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        yield g
        yield torch.autograd.grad((g * g).sum(), (x, w), retain_graph=True)
        loss.backward()
        yield x.grad, w.grad

    check_session(session, compile=kind)


@pytest.mark.parametrize("compile", _NOT_CUT)
def test_a_loss_and_penalty_through_a_linear_backward_without_its_own_node(compile):
    def session(make):
        x, w = _given_for(compile)
        loss = make(_with_backward(lambda g, x, w: g * x))(x, w)
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + (g * g).sum()).backward()
        yield x.grad, w.grad

    check_session(session, compile=compile)


def test_a_loss_penalty_and_returned_result_of_one_function_are_refused_with_wrappers():
    def step(x, w):
        a, b = _MindsWhichAreThere.apply(x * w)
        return (a * a * w).sum(), b

    x, w = _wrapped(_few(), _few(1))
    loss, b = aotcheck.aot_function(step)(x, w)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(aotcheck.UnsupportedError, match="not linear"):
        (loss + (g * g).sum() + b.sum()).backward()
