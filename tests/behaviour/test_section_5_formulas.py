"""BEHAVIOUR 5: backwards inside a function by formulas that eager chooses by data."""

from __future__ import annotations

import pytest
import torch

import aotcheck
from tests.behaviour.harness import Raised, attempt, attempt_later, backward, check_session, leaf, plain

pytestmark = pytest.mark.usefixtures("device")

WHOLE = [[2.0, 3.0], [-1.0, 4.0]]
WITH_ZERO = [[2.0, 0.0], [-1.0, 4.0]]
FRACTIONS = [[2.5, 3.1], [-1.3, 0.7]]
PRODUCTS = {
    "of all": lambda x: x.prod(),
    "of rows": lambda x: x.prod(0),
    "kept": lambda x: x.prod(-1, keepdim=True),
    "of what is made inside": lambda x: (x * 2).prod(1),
    "in another dtype": lambda x: x.prod(dtype=torch.float64),
    "of one": lambda x: x[:1, :1].prod(),
}


def _data(values):
    return plain(2, 2).copy_(torch.tensor(values))


@pytest.mark.parametrize("order", [(WHOLE, WITH_ZERO, FRACTIONS), (WITH_ZERO, WHOLE, WITH_ZERO)], ids=["whole", "zero"])
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_the_formula_of_a_product_is_chosen_in_each_call(create_graph, product, order):
    def f(x):
        y = product(x)
        (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=create_graph)
        return gradient * 2, y

    def session(compile):
        g = compile(f)
        for values in order:
            x = _data(values).requires_grad_()
            gradient, y = g(x)
            yield gradient, y
            for t in (y, gradient):
                yield isinstance(attempt_later(lambda t=t: t.sum().backward()), Raised), x

    check_session(session)


@pytest.mark.parametrize("values", [WHOLE, WITH_ZERO, FRACTIONS], ids=["whole", "zero", "fractions"])
def test_a_backward_inside_by_two_products(values):
    def f(x, counts):
        counts.add_(1)
        noise = torch.rand(2)
        (x.prod() + (x + 1).prod(0).sum()).backward()
        return noise

    def session(compile):
        g = compile(f)
        for given in (WHOLE, values, WITH_ZERO):
            x, counts = _data(given).requires_grad_(), plain(2)
            yield g(x, counts), x, counts

    check_session(session)


def test_data_that_ask_for_another_formula_are_no_refusal():
    def f(x):
        return torch.autograd.grad(x.prod(), [x])[0]

    compiled = aotcheck.aot_function(f, fw_compiler=aotcheck.nop)
    before = aotcheck.counters()
    for values in (WHOLE, WITH_ZERO, WHOLE, WITH_ZERO):
        x = _data(values).requires_grad_()
        assert torch.equal(compiled(x), f(x))
    after = aotcheck.counters()
    assert after.refused == before.refused
    assert after.compiled - before.compiled == 2


def _swap(x):
    torch.utils.swap_tensors(x, x)


def _transpose_data(x):
    with torch.no_grad():
        view = x.t()
    x.data = view


@pytest.mark.parametrize("change", [_swap, _transpose_data], ids=["swap", "data"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["cut", "whole"])
def test_a_product_for_which_nothing_is_saved_is_not_asked_for(mode, change):
    def f(x):
        change(x)
        return torch.prod(x, 1)

    def session(compile):
        x = leaf(2, 3)
        y = x.clone()
        with mode():
            y = y.mT
        result = compile(f)(y)
        yield result
        yield attempt(lambda: backward([result], create_graph=True))
        yield x.grad

    check_session(session)
