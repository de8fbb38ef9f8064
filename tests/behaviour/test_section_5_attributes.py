"""BEHAVIOUR 5: what custom Functions keep in attributes of their context, past autograd."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check_session, leaf
from tests.behaviour.wrappers import two


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
def test_backwards_come_as_often_as_nothing_is_freed(f, what, wrapped):
    def session(compile):
        x = two(3, grad=True) if wrapped else leaf(3)
        y = compile(lambda x: f(x, what))(x)
        for _ in range(3):
            yield attempt_later(lambda: y.sum().backward())
            yield x

    check_session(session)


@pytest.mark.parametrize("what", ["operand", "result"])
@pytest.mark.parametrize("how", ["in place", "data"])
def test_an_attribute_shows_what_the_caller_writes(what, how):
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: Attribute.apply(x, what))(x)
        t = x if what == "operand" else y
        for k in range(2):
            with torch.no_grad():
                if how == "in place":
                    t.add_(k + 1)
                elif t is x:
                    t.data = torch.full((3,), k + 1.0)
            yield attempt_later(lambda: y.sum().backward())
            yield x

    check_session(session)


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_gradients_by_an_attribute(create_graph):
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: Attribute.apply(x, "operand"))(x)
        for _ in range(2):
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            for _ in range(2):
                yield attempt_later(lambda g=g: g.pow(2).sum().backward(create_graph=create_graph))
            yield g, x

    check_session(session)


def test_a_kept_result_is_let_go_with_its_graph():
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
