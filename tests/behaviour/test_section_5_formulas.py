"""BEHAVIOUR 5: backwards inside a function by formulas that eager chooses by data."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.compilers import aotcheck
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


DECOMPOSED = {
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "det of V": lambda x: (torch.linalg.svd(x)[2] + x).det(),
    "slogdet of V": lambda x: torch.linalg.slogdet(torch.linalg.svd(x, full_matrices=False)[2] + x)[1],
    "det of U": lambda x: (torch.linalg.svd(x)[0] + x).det(),
}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("function", DECOMPOSED)
def test_derivatives_of_determinants_of_what_lapack_leaves_by_columns(function, n, batch):
    """Formulas take one of two ways by how a matrix lies, of which the CPU kernel and its meta kernel differ."""
    found = []
    for f in (DECOMPOSED[function], aotcheck.aot_function(DECOMPOSED[function])):
        x = torch.randn(*batch, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)).requires_grad_()
        y = f(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.pow(2).sum(), x, allow_unused=True)
        found.append((y, g, h))
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-7, atol=1e-9, equal_nan=True)


def test_how_svd_and_eig_lie_is_foretold():
    def f(x):
        return (*torch.linalg.svd(x), *torch.linalg.svd(x, full_matrices=False), *torch.linalg.eig(x[..., :2, :2]))

    for size in [(3, 3), (2, 3, 3), (3, 5), (5, 3), (2, 2, 4, 3)]:
        x = torch.randn(size, dtype=torch.float64)
        compiled = aotcheck.aot_function(f)
        for _ in range(2):
            assert [t.stride() for t in compiled(x)] == [t.stride() for t in f(x)]


def test_attention_has_no_second_derivative_but_a_first_with_a_graph():
    def session(compile):
        x = leaf(1, 2, 4, 4)
        y = compile(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x))(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield g.requires_grad, g.shape
        yield attempt_later(lambda: g.sum().backward())

    check_session(session)
