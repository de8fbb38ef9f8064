"""What Functions keep in attributes of ctx; what their backwards find around them."""

import gc
import weakref

import pytest
import torch
from torch.autograd import Function

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, session
from tests.behaviour.inputs import leaf, to_device
from tests.behaviour.shared import accumulated, again, linear, parameter_gradients
from tests.behaviour.wrappers import nested, two


class Attribute(torch.autograd.Function):
    """Multiplies gradients by what it keeps: something computed, its operand, or its result."""

    @staticmethod
    def forward(ctx, x, what):
        result = x.exp() if what == "result" else x * 2
        ctx.kept = {"computed": x.detach() * 3, "operand": x, "result": result}[what]
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.kept, None


FUNCTIONS = {
    "alone": lambda x, what: Attribute.apply(x, what),
    "beside its operand": lambda x, what: Attribute.apply(x, what) + x,
    "between ops": lambda x, what: Attribute.apply(x + 1, what).sum(),
    "twice": lambda x, what: Attribute.apply(Attribute.apply(x, what), what),
    "before what is saved": lambda x, what: Attribute.apply(x, what).cos(),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("what", ["computed", "operand", "result"])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@session
def test_a_backward_that_reads_an_attribute_of_ctx_runs_several_times(compile, f, what, wrapped):
    x = two(3, grad=True) if wrapped else leaf(3)
    y = compile(lambda x: f(x, what))(x)
    for _ in range(3):
        yield attempt_later(lambda: y.sum().backward())
        yield x


@pytest.mark.parametrize("what", ["operand", "result"])
@pytest.mark.parametrize("how", ["in place", "data"])
@session
def test_a_tensor_in_an_attribute_of_ctx_shows_writes_of_the_caller(compile, what, how):
    x = leaf(3)
    y = compile(lambda x: Attribute.apply(x, what))(x)
    t = x if what == "operand" else y
    for k in range(2):
        with torch.no_grad():
            if how == "in place":
                t.add_(k + 1)
            elif t is x:
                t.data = to_device(torch.full((3,), k + 1.0))
        yield attempt_later(lambda: y.sum().backward())
        yield x


@pytest.mark.parametrize("create_graph", [False, True])
@session
def test_a_second_derivative_through_an_attribute_of_ctx(compile, create_graph):
    x = leaf(3)
    y = compile(lambda x: Attribute.apply(x, "operand"))(x)
    for _ in range(2):
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        for _ in range(2):
            yield attempt_later(lambda g=g: g.pow(2).sum().backward(create_graph=create_graph))
        yield g, x


def test_a_result_in_an_attribute_of_ctx_is_freed_with_its_graph():
    f = aotcheck.aot_function(lambda x: Attribute.apply(x, "result"))
    y = f(leaf(3))
    y.sum().backward()
    gone = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert gone() is None
    finally:
        gc.enable()


def sets(w, g):
    w.grad = g if w.grad is None else w.grad + g


def adds(w, g):
    if w.grad is not None:
        w.grad.add_(g)


def drops(w, g):
    del w.grad


@again
@pytest.mark.parametrize("before", ["none", "ones"])
@pytest.mark.parametrize("change", [sets, adds, drops])
@pytest.mark.parametrize("where", ["closure", "context"])
@session
def test_a_custom_backward_assigns_adds_to_or_deletes_the_grad_of_a_parameter(compile, change, where, before):
    net = linear()

    class Own(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x)
            ctx.w = w
            return x @ w

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            change(net.weight if where == "closure" else ctx.w, x.t() @ g)
            return g @ ctx.w.t(), None

    f = compile(lambda x: Own.apply(x, net.weight).sum())
    accumulated(net, before)
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


class _Snapshot(torch.autograd.Function):
    """Keeps past autograd what it computed of its operands, which no result needs."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.kept = y.clone(), (x * y).sin()
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.kept[0], g * ctx.kept[1]


@pytest.mark.parametrize("make", [leaf, two, nested], ids=["plain", "two", "nested"])
@session
def test_a_tensor_in_an_attribute_of_ctx_has_the_value_of_the_forward(compile, make):
    x, y = (leaf(3), leaf(3, seed=1)) if make is leaf else (make(3, grad=True), make(3, seed=1, grad=True))
    f = compile(lambda x, y: _Snapshot.apply(x, y) * 1)
    for _ in range(2):
        out = f(x, y)
        with torch.no_grad():
            x.add_(1)
            y.mul_(2)
        yield torch.autograd.grad(out.sum(), [x, y])
