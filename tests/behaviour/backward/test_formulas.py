"""Derivative formulas that depend on data, strides or dtype: prod, determinants, complex numbers."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, backward, session
from tests.behaviour.inputs import leaf, plain, to_device

BY_NUMBERS = {
    "times": lambda z: z * 2j,
    "times a conjugate": lambda z: z.conj() * (1 + 2j),
    "in place": lambda z: z.mul_(2j),
    "a part, in place": lambda z: (z[:1].mul_(2j), z)[1],
    "a conjugate, in place": lambda z: (z.conj().mul_(2j), z)[1],
    "by": lambda z: z / 2j,
    "number by": lambda z: 2j / z,
    "alone": lambda z: torch.tensor([1.0, 2.0], device=z.device) * z[0] * 1j,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("op", BY_NUMBERS)
@session
def test_products_and_quotients_of_complex_tensors_and_complex_numbers(compile, op, dtype, create_graph):
    z = leaf(2, dtype=dtype)
    out = compile(BY_NUMBERS[op])(z.clone())
    (gradient,) = torch.autograd.grad((out * out).real.sum(), z, create_graph=create_graph)
    yield out.detach(), gradient
    if create_graph:
        yield torch.autograd.grad(gradient.real.sum() + gradient.imag.sum(), z, allow_unused=True)


_PRODUCTS = {
    "of all": lambda x: x.prod(),
    "of all, in another type": lambda x: x.prod(dtype=torch.float64),
    "of rows": lambda x: x.prod(-1),
    "of rows, kept": lambda x: torch.prod(x, 1, keepdim=True),
    "of columns, computed from": lambda x: x.prod(0) * x.sum(0),
    "of what is made of it": lambda x: (x * x).prod(0),
}


@pytest.mark.parametrize("function", _PRODUCTS.values(), ids=_PRODUCTS)
@session(rtol=1e-5)
def test_prod_is_differentiated_by_the_formula_for_its_zero_factors(compile, function):
    """By division, with a second derivative that comes by the result, unless a factor is zero."""

    compiled = compile(function)
    for values in ([[2.0]], [[0.0]], [[1.0, 2.0], [4.0, -8.0]], [[1.0, 0.0], [4.0, -8.0]], [[0.0, 0.0], [4.0, 1.0]]):
        x = to_device(torch.tensor(values)).requires_grad_()
        y = compiled(x * 1)
        calls = []
        y.register_hook(lambda g, calls=calls: calls.append(g.detach().clone()))
        cotangent = torch.full_like(y, 2).requires_grad_()
        (first,) = torch.autograd.grad([y], [x], [cotangent], create_graph=True)
        yield y, first, first.requires_grad
        to = [x, cotangent, y]
        second = torch.autograd.grad([first], to, [torch.ones_like(first)], create_graph=True, allow_unused=True)
        yield second, calls
        if second[0] is not None:
            ones = torch.ones_like(second[0])
            yield torch.autograd.grad([second[0]], to, [ones], allow_unused=True, retain_graph=True), calls
        yield attempt_later(lambda y=y, x=x: y.sum().backward()), x.grad
        yield attempt_later(lambda y=y, x=x: y.sum().backward()), x.grad


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
CASES = [(name, create_graph) for name in PRODUCTS for create_graph in (False, True)]
CASES.remove(("of one", True))  # whose gradient requires grad unless the factor is zero


def _data(values):
    return plain(2, 2).copy_(to_device(torch.tensor(values)))


@pytest.mark.parametrize("order", [(WHOLE, WITH_ZERO, FRACTIONS), (WITH_ZERO, WHOLE, WITH_ZERO)], ids=["whole", "zero"])
@pytest.mark.parametrize(("product", "create_graph"), CASES)
@pytest.mark.soft("freed")
@session(rtol=1e-6)
def test_grad_inside_of_prod_chooses_its_formula_in_each_call(compile, create_graph, product, order):
    def f(x):
        y = PRODUCTS[product](x)
        (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=create_graph)
        return gradient * 2, y

    g = compile(f)
    for values in order:
        x = _data(values).requires_grad_()
        gradient, y = g(x)
        yield gradient, y
        for t in (y, gradient):
            yield attempt_later(lambda t=t: t.sum().backward()), x


@pytest.mark.parametrize("values", [WHOLE, WITH_ZERO, FRACTIONS], ids=["whole", "zero", "fractions"])
@session(rtol=1e-6)
def test_a_backward_inside_through_two_prods_with_writes_and_random_numbers(compile, values):
    def f(x, counts):
        counts.add_(1)
        noise = torch.rand(2, device=x.device)
        (x.prod() + (x + 1).prod(0).sum()).backward()
        return noise

    g = compile(f)
    for given in (WHOLE, values, WITH_ZERO):
        x, counts = _data(given).requires_grad_(), plain(2)
        yield g(x, counts), x, counts


def test_another_formula_of_prod_compiles_again_and_is_no_refusal():
    def f(x):
        return torch.autograd.grad(x.prod(), [x])[0]

    compiled = aotcheck.aot_function(f, fw_compiler=aotcheck.nop)
    before = aotcheck.counters()
    for values in (WHOLE, WITH_ZERO, WHOLE, WITH_ZERO):
        x = _data(values).requires_grad_()
        assert torch.equal(compiled(x), f(x))
    after = aotcheck.counters()
    assert after.refused == before.refused
    assert after.compiled - before.compiled <= 2


def _swap(x):
    torch.utils.swap_tensors(x, x)


def _transpose_data(x):
    with torch.no_grad():
        view = x.t()
    x.data = view


@pytest.mark.parametrize("change", [_swap, _transpose_data], ids=["swap", "data"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["cut", "whole"])
@session
def test_prod_of_an_argument_that_was_swapped_or_given_other_data(compile, mode, change):
    def f(x):
        change(x)
        return torch.prod(x, 1)

    x = leaf(2, 3)
    y = x.clone()
    with mode():
        y = y.mT
    result = compile(f)(y)
    yield result
    yield attempt(lambda: backward([result], create_graph=True))
    yield x.grad


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
def test_derivatives_of_determinants_of_column_major_matrices(function, n, batch):
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
