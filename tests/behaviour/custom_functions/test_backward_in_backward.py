"""Custom backwards that call backwards themselves."""

import itertools

import pytest
import torch
from torch.autograd import Function

from tests.behaviour.harness import attempt_later, check_session, session, through_dynamo
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import linear, parameter_gradients, seeded


class _Integrated(torch.autograd.Function):
    """Euler's steps and their adjoint: what they integrate is an argument, and the backward differentiates it."""

    @staticmethod
    def forward(ctx, f, x, times, *parameters):
        ctx.f = f
        with torch.no_grad():
            for begin, end in itertools.pairwise(times):
                x = x + (end - begin) * f(begin, x)
        ctx.save_for_backward(x, times, *parameters)
        return x

    @staticmethod
    def backward(ctx, g):
        x, times, *parameters = ctx.saved_tensors
        total = [torch.zeros_like(p) for p in parameters]
        for k in range(len(times) - 1, 0, -1):
            step = times[k] - times[k - 1]
            with torch.enable_grad():
                at = x.detach().requires_grad_()
                slope = ctx.f(times[k], at)
                gradient, *others = torch.autograd.grad(slope, (at, *parameters), g)
            x, g = x - step * slope.detach(), g + step * gradient
            total = [t + step * o for t, o in zip(total, others, strict=True)]
        return None, g, None, *total


@pytest.mark.parametrize("compile", [None, through_dynamo])
def test_an_adjoint_method_calls_grad_on_a_module_of_its_closure_in_its_backward(compile):
    def session(compile):
        net = seeded(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)))
        net.to(plain(1).device)
        compiled = compile(lambda x, t: _Integrated.apply(lambda t, x: net(x) * t, x, t, *net.parameters()))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for k in range(3):
            loss = compiled(plain(3, 2, seed=k), plain(4) / 8).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss, list(net.parameters())

    check_session(session, compile=compile, rtol=1e-4)


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("returned", ["none", "zeros"])
@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("trained", ["leaf", "computed", "view"])
@session
def test_a_backward_in_the_backward_accumulates_into_an_argument(compile, trained, retained, returned):
    class Own(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x)
            ctx.w = w
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = x @ ctx.w
            y.backward(g, retain_graph=retained)
            return x.grad, None if returned == "none" else to_device(torch.zeros(3, 3))

    f = compile(lambda x, w: Own.apply(x, w).sum())
    for seed in range(2):
        x, weight = leaf(2, 3, seed=seed), leaf(3, 3, seed=2)
        w = {"leaf": weight, "computed": weight * 2, "view": weight.t()}[trained]
        yield attempt_later(f(x, w).backward)
        yield x.grad, weight.grad


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@session
def test_a_backward_that_accumulates_into_parameters_and_returns_none(compile):
    class Own(Function):
        @staticmethod
        def forward(ctx, x, net):
            ctx.save_for_backward(x)
            ctx.net = net
            return net(x)

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                ctx.net(ctx.saved_tensors[0].detach()).backward(g)
            return None, None

    net = linear()
    f = compile(lambda x: Own.apply(x, net).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@session
def test_a_backward_in_the_backward_through_a_graph_that_the_forward_recorded(compile):
    class Own(Function):
        @staticmethod
        def forward(ctx, x, net):
            ctx.x = x.detach().requires_grad_()
            with torch.enable_grad():
                ctx.y = net(ctx.x)
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            ctx.y.backward(g)
            return ctx.x.grad, None

    net = linear()
    f = compile(lambda x: Own.apply(x, net).sum())
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


class Retaining(Function):
    """Brings the gradient of its second argument there by a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = x @ ctx.w
        y.backward(g, retain_graph=True)
        return x.grad, None


def hooked(x, w):
    inside = w * 2
    inside.register_hook(lambda g: None if g is None else g * 3)
    return (Retaining.apply(x, inside),)


def returned(x, w):
    inside = w * 2
    return Retaining.apply(x, inside), inside


INSIDE = {
    "computed": lambda x, w: (Retaining.apply(x, w * 2),),
    "hooked": hooked,
    "returned": returned,
    "and used": lambda x, w: (Retaining.apply(x, w * 2).sum() + (w * 2).exp().sum(),),
    "view": lambda x, w: (Retaining.apply(x, w.t()).sum() + w.sum(),),
    "reshaped": lambda x, w: (Retaining.apply(x, w.view(-1).view(3, 3)),),
}


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("f", INSIDE.values(), ids=INSIDE)
@session(rtol=1e-5)
def test_a_backward_in_the_backward_through_intermediates_of_the_function(compile, f, is_leaf):
    compiled = compile(f)
    for seed in range(2):
        x, weight = leaf(2, 3, seed=seed), leaf(3, 3, seed=2)
        results = compiled(x, weight if is_leaf else weight * 2)
        yield attempt_later(sum(r.sum() for r in results).backward)
        yield x.grad, weight.grad
