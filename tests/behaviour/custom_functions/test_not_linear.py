"""Functions whose backwards are not linear; derivatives of several kinds at once."""

import functools

import pytest
import torch

from tests.behaviour.custom_functions.common import (
    _Adds,
    _Clips,
    _few,
    _in_a_layer,
    _loss_and_penalty,
    _MindsWhichAreThere,
    _sum,
    _TakesSigns,
)
from tests.behaviour.harness import attempt_later, check_session, session
from tests.behaviour.inputs import leaf, plain, to_device


class _ScalesDown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return torch.where(g.detach().abs().sum() > 100, g / 4, g)


class _KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return (g * y).clamp(-20, 20)


class _HoldsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.y = x * 2
        return x * 3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.clamp(-3, 3) * ctx.y * x


class _GivesAView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-4, 4)


class _ClipsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g.clone().clamp_(-4, 4)


_FUNCTIONS = [_Clips, _TakesSigns, _ScalesDown, _KeepsItsResult, _HoldsItsResult, _GivesAView, _Adds, _ClipsInPlace]


def _of_an_argument(function, x, w):
    return (function(x) ** 3).sum() + w.sum()


def _before_what_keeps_nothing(function, x, w):
    return (function(x * x * w) * w).sum()


def _twice(function, x, w):
    return (function(function(x * w) * w) ** 3).sum()


def _of_both(function, x, w):
    return (function(x) ** 3 * function(w) ** 2).sum()


def _used_twice(function, x, w):
    h = function(x * w)
    return (h * h).sum() + (h * w).pow(3).sum()


def _without_gradients_in_between(function, x, w):
    h = function(x * w)
    with torch.no_grad():
        total = h.sum()
    return (h * h * w).sum() + total


def _then_written(function, x, w):
    y = function(x * w).square()
    y.mul_(w)
    return y.sum()


def _written_to_a_view(function, x, w):
    h = x * w
    y = h.clone()
    y[0].copy_(function(h[1]))
    return (y * y).sum()


def _of_several_results(function, x, w):
    h = function(x * w)
    return (h * h).sum(), (h * w * h).sum()


def _returned_beside(function, x, w):
    h = function(x * w)
    return (h * h * h).sum(), h


def _differentiated_inside(function, x, w):
    h = function(x * w)
    y = (h**3).sum()
    (g,) = torch.autograd.grad(y, h, create_graph=True)
    return (g * g).sum() + y


_PLACES = [
    *(_in_a_layer, _of_an_argument, _before_what_keeps_nothing, _twice, _of_both, _used_twice),
    *(_without_gradients_in_between, _then_written, _written_to_a_view, _of_several_results, _returned_beside),
    _differentiated_inside,
]  # fmt: skip


def _behind_a_history(f):
    x, w = _few(), _few(1)
    loss = _sum(f(x * 2, w))
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    yield torch.autograd.grad(loss + (g * g).sum(), (x, w))


def _two_penalties(f):
    x, w = _few(), _few(1)
    loss = _sum(f(x, w))
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    (h,) = torch.autograd.grad(loss * 2, w, create_graph=True)
    yield torch.autograd.grad((g * g).sum() + (g * h).sum(), (x, w), allow_unused=True)


def _meta_step(f):
    x, w = _few(), _few(1)
    loss = _sum(f(x, w))
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    (_sum(f(x - 2 * g, w)) + loss).backward()
    yield x.grad, w.grad


def _third(f):
    x, w = _few(), _few(1)
    loss = _sum(f(x, w))
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    (h,) = torch.autograd.grad((g * g).sum() + loss, x, create_graph=True)
    yield g, h
    yield torch.autograd.grad((h * h).sum() + (g * g).sum() + loss, (x, w))


def _one_after_the_other(f):
    x, w = _few(), _few(1)
    loss = _sum(f(x, w))
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    yield attempt_later(lambda: (g * g).sum().backward())
    yield x.grad, w.grad
    yield attempt_later(loss.backward)
    yield x.grad, w.grad


_CALLERS = [_loss_and_penalty, _behind_a_history, _two_penalties, _meta_step, _third, _one_after_the_other]


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("function", _FUNCTIONS)
@pytest.mark.parametrize("caller", _CALLERS)
def test_a_backward_that_is_not_linear_gets_the_sum_of_its_gradients(caller, function, place):
    check_session(lambda compile: caller(compile(functools.partial(place, function.apply))))


@pytest.mark.parametrize("caller", _CALLERS)
def test_a_loss_and_its_gradient_penalty_inside(caller):
    def step(x, w):
        loss = _in_a_layer(_Clips.apply, x, w)
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + (g * g).sum()

    check_session(lambda compile: caller(compile(step)))


class _Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-4, 4)


class _GivesTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g.clamp(-4, 4) * h


class _ClipsTwice(torch.autograd.Function):
    """Its derivative clips as well: the gradient goes by another such Function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * _Clips.apply(x) * 2).clamp(-30, 30) * x


def _two_of_two(x, w):
    a, b = _GivesTwo.apply(x * w)
    return (a * a * b * w).sum()


def _two_that_may_be_none(x, w):
    a, b = _MindsWhichAreThere.apply(x * w)
    return (a * w).sum() + (b * b * w).sum()


def _one_of_them_returned(x, w):
    a, b = _MindsWhichAreThere.apply(x * w)
    return (a * a * w).sum(), b


def _writes_what_is_made_inside(x, w):
    h = _Writes.apply(x * w)
    return (h * h * h).sum()


def _writes_a_view(x, w):
    h = x * w
    _Writes.apply(h[0])
    return (h * h * w).sum()


def _writes_a_view_that_is_returned(x, w):
    h = x * w
    v = h[0]
    _Writes.apply(v)
    return (h**3).sum(), v


def _clips_in_the_derivative(x, w):
    return (_ClipsTwice.apply(x * w) ** 2 * w).sum()


def _in_a_chain(x, w):
    h = x
    for _ in range(3):
        h = _Clips.apply(h * w) * h
    return (h * h).sum()


def _joined(x, w):
    return (torch.cat([_Clips.apply(x), _Clips.apply(w)]) ** 3).sum()


def _in_a_checkpoint(x, w):
    def part(x, w):
        return _Clips.apply(x * w) ** 3

    return torch.utils.checkpoint.checkpoint(part, x, w, use_reentrant=False).sum()


@pytest.mark.parametrize(
    "program",
    [
        *(_two_of_two, _two_that_may_be_none, _one_of_them_returned, _writes_what_is_made_inside, _writes_a_view),
        *(_writes_a_view_that_is_returned, _clips_in_the_derivative, _in_a_chain, _joined, _in_a_checkpoint),
    ],
)
@pytest.mark.parametrize("caller", _CALLERS)
def test_several_results_dirty_arguments_chains_and_checkpoints_that_are_not_linear(caller, program):
    check_session(lambda compile: caller(compile(program)))


class _Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.bernoulli(torch.full_like(g, 0.5))


@session
def test_a_backward_that_draws_random_numbers_does_so_once(compile):
    torch.manual_seed(0)
    yield from _loss_and_penalty(compile(functools.partial(_in_a_layer, _Draws.apply)))
    yield torch.rand(2, device=plain(1).device)


@session
def test_a_backward_that_writes_does_so_once(compile):
    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, count):
            ctx.count = count
            return x * 2

        @staticmethod
        def backward(ctx, g):
            ctx.count.add_(1)
            return g * 3, None

    x, w, v, count = _few(), _few(1), _few(2), to_device(torch.zeros(()))
    loss = compile(lambda x, w, v, count: (Counts.apply(x * w, count) ** 2 * v).sum())(x, w, v, count)
    (g,) = torch.autograd.grad(loss, v, create_graph=True)
    (loss + (g * g).sum()).backward()
    yield x.grad, w.grad, v.grad, count


@pytest.mark.parametrize("hook", ["before", "after"])
@session
def test_backward_hooks_of_modules_that_clip_gradients(compile, hook):
    net = to_device(torch.nn.Linear(3, 2, bias=False))
    net.weight.data.copy_(plain(2, 3))
    if hook == "after":
        net.register_full_backward_hook(lambda m, given, got: tuple(g.clamp(-4, 4) for g in given))
    else:
        net.register_full_backward_pre_hook(lambda m, got: tuple(g.clamp(-4, 4) for g in got))
    x = leaf(2, 3, seed=1)
    loss = compile(lambda x: (net(x * x) ** 2).sum())(x)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + g.sum()).backward()
    yield x.grad, net.weight.grad
