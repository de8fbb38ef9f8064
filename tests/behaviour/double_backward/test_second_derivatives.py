"""Create_graph, gradient penalty, derivatives of derivatives."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, session
from tests.behaviour.inputs import leaf, plain


def _smooth(x, w):
    return (x * w + x * x * w * w).sum(-1)


def _in_place_through_a_view(x, w):
    y = x * w
    y[0].mul_(w[1] * w[0])
    return y * y


def _of_aliases(x, w):
    y = x * w
    return y, y[0] * x[0], y.t()


def _of_an_intermediate_only(x, w):
    return (x * w).detach() * w


@pytest.mark.parametrize("function", [_smooth, _in_place_through_a_view, _of_aliases, _of_an_intermediate_only])
@pytest.mark.parametrize("through_a_non_leaf", [False, True], ids=["leaves", "non-leaf"])
@session
def test_second_and_third_derivatives(compile, function, through_a_non_leaf):
    x, w = leaf(2, 3), leaf(2, 3, seed=1)
    f = compile(function)
    out = f(x * 1 if through_a_non_leaf else x, w)
    total = sum(o.sum() for o in (out if isinstance(out, tuple) else (out,)))
    first = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
    yield first
    once = sum(g.sum() for g in first if g is not None)
    if not once.requires_grad:
        return
    second = torch.autograd.grad(once, (x, w), create_graph=True, allow_unused=True)
    yield second
    twice = sum(g.sum() for g in second if g is not None)
    if twice.requires_grad:
        yield torch.autograd.grad(twice, (x, w), allow_unused=True)


@session
def test_a_second_derivative_accumulates_into_leaves(compile):
    x, w = leaf(3), leaf(3, seed=1)
    y = compile(lambda x, w: (x * w * w).sum())(x, w)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    yield x.grad, w.grad
    y.backward()
    yield x.grad, w.grad


@session
def test_a_gradient_penalty_over_ten_steps(compile):
    critic = compile(lambda x, w, v: torch.relu(x @ w) @ v)
    w, v = leaf(3, 4), leaf(4, 1, seed=1)
    for step in range(10):
        x = plain(2, 3, seed=step).requires_grad_()
        score = critic(x, w, v)
        (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = score.sum() + ((g * g).sum() - 1) ** 2
        loss.backward()
        with torch.no_grad():
            w -= torch.sign(w.grad)
            v -= torch.sign(v.grad)
        yield loss, w.grad, v.grad
        w.grad = v.grad = None


@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_second_derivative_by_a_write_to_an_empty_unfolded_view(compile, grad):
    def f(x):
        y = x * 1
        y.unfold(0, 2, 1).square_()
        return y

    x = torch.zeros(3, 0, requires_grad=True, device=plain(1).device)
    (first,) = torch.autograd.grad(
        compile(f)(x), x, torch.ones(3, 0, requires_grad=grad, device=plain(1).device), create_graph=True
    )
    yield first
    if first.requires_grad:
        yield torch.autograd.grad(first.sum(), x, allow_unused=True)


@session
def test_a_second_derivative_of_amax_over_a_dimension_of_size_one(compile):
    """What lies as none in another test does: what an op gives the first time, its meta kernel is asked."""

    x = leaf(1, 5, 7)
    y = compile(lambda x: x.amax(0).abs())(x)
    g = plain(5, 7).requires_grad_()
    (r,) = torch.autograd.grad(y, x, g, create_graph=True)
    yield r
    yield torch.autograd.grad(r, [x, g], plain(1, 5, 7, seed=3), allow_unused=True)


@pytest.mark.parametrize("given", [lambda x: x, lambda x: x + 1])
@pytest.mark.parametrize(
    "product", [torch.matmul, lambda x, z: torch.einsum("ij,bjk->bik", x, z)], ids=["matmul", "einsum"]
)
@session
def test_a_second_derivative_of_matmul_and_einsum_with_a_batch(compile, product, given):
    x, z = leaf(2, 2), leaf(1, 2, 2, seed=1)
    y = compile(lambda x, z: product(given(x), given(z)))(x, z)
    first = torch.autograd.grad(y.square().sum(), (x, z), create_graph=True)
    yield first
    yield torch.autograd.grad(sum(g.square().sum() for g in first), (x, z))


@pytest.mark.parametrize("of", [lambda x, y, z: x @ z, lambda x, y, z: (x @ x) @ z, lambda x, y, z: y @ z @ x])
@pytest.mark.parametrize("grad", [False, True])
@session(rtol=1e-5)
def test_a_second_derivative_of_a_product_whose_operand_is_also_passed_transposed(compile, of, grad):
    x, z = plain(2, 2), leaf(2, 2, seed=1)
    x.requires_grad_(grad)
    roots = (x, z) if grad else (z,)
    y = compile(of)(x, x.t(), z)
    first = torch.autograd.grad(y.square().sum(), roots, create_graph=True)
    yield first
    second = torch.autograd.grad(sum(g.square().sum() for g in first), roots, create_graph=True)
    yield second
    yield torch.autograd.grad(sum(g.sum() for g in second), roots)


@session
def test_a_second_derivative_of_a_product_with_a_transpose_made_under_no_grad(compile):
    root = leaf(2, 2)
    x = root.clone()
    with torch.no_grad():
        y = x.t()
    out = compile(torch.matmul)(x, y)
    (first,) = torch.autograd.grad(out.square().sum(), root, create_graph=True)
    yield first
    yield torch.autograd.grad(first.square().sum(), root)


@session
def test_attention_has_a_first_derivative_with_create_graph_and_no_second(compile):
    x = leaf(1, 2, 4, 4)
    y = compile(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x))(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    yield g.requires_grad, g.shape
    yield attempt_later(lambda: g.sum().backward())
