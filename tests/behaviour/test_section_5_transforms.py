"""BEHAVIOUR 5 and 7: torch.func and forward-mode differentiation, inside the function and around it."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, check, check_session, given, leaf, plain, through_dynamo


def f(x, w):
    return x * x * w


INSIDE = {
    "grad": lambda x, w: torch.func.grad(lambda x: f(x, w).sum())(x),
    "grad_and_value": lambda x, w: torch.func.grad_and_value(lambda x: f(x, w).sum())(x),
    "vjp": lambda x, w: torch.func.vjp(lambda x: f(x, w), x)[1](w),
    "vmap": lambda x, w: torch.func.vmap(lambda a, b: (a * b).sum())(x, w),
    "vmap of grad": lambda x, w: torch.func.vmap(torch.func.grad(lambda x, w: f(x, w).sum()))(x, w),
    "jacrev": lambda x, w: torch.func.jacrev(lambda x: f(x, w))(x),
    "jvp": lambda x, w: torch.func.jvp(lambda x: f(x, w), (x,), (w,)),
    "jacfwd": lambda x, w: torch.func.jacfwd(lambda x: f(x, w))(x),
    "hessian": lambda x, w: torch.func.hessian(lambda x: f(x, w).sum())(x),
    "functionalize": lambda x, w: torch.func.functionalize(lambda x: x.clone().add_(w))(x),
    "vmap over writes": lambda x, w: torch.func.vmap(lambda a, b: a.clone().mul_(b).sin())(x, w),
    "functional_call": lambda x, w: torch.func.functional_call(
        torch.nn.Linear(2, 2), {"weight": w[:2], "bias": w[0]}, x
    ),
}


@pytest.mark.parametrize("transform", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("make", [plain, leaf], ids=["no grad", "grad"])
@pytest.mark.parametrize("compile", [None, through_dynamo], ids=["aot_function", "torch.compile"])
def test_transforms_inside(transform, make, compile):
    """Dynamo's graphs enter and leave transforms by nodes of their own, which a trace that begins again skips."""
    check(
        transform,
        lambda: given(make(3, 2), make(3, 2, seed=1)),
        lambda: given(make(3, 2, seed=2), make(3, 2, seed=3)),
        compile=compile,
    )


@pytest.mark.parametrize("make", [plain, leaf], ids=["no grad", "grad"])
def test_dual_numbers_inside(make):
    def g(x, w):
        with forward_ad.dual_level():
            out = f(forward_ad.make_dual(x, w), w).sin()
            primal, tangent = forward_ad.unpack_dual(out)
        return primal * 1, tangent * 1

    check(g, lambda: given(make(3), make(3, seed=1)))


def test_random_numbers_under_vmap():
    def g(x):
        return torch.func.vmap(lambda a: a * torch.rand(2), randomness="different")(x)

    check(g, lambda: given(leaf(3, 2)))


def test_the_original_runs_inline_under_a_transform():
    def session(compile):
        compiled = compile(f)
        x, w = plain(3), plain(3, seed=1)
        for _ in range(2):
            yield compiled(x, w)
            yield torch.func.grad(lambda x: compiled(x, w).sum())(x)
            yield torch.func.vmap(compiled)(plain(2, 3), plain(2, 3, seed=1))
            yield torch.func.vmap(compiled, in_dims=(0, None))(plain(2, 3), w)
            yield torch.func.jvp(compiled, (x, w), (w, x))
            yield torch.func.jacfwd(compiled)(x, w)
            yield torch.func.jacrev(compiled)(x, w)
            yield torch.func.hessian(lambda x: compiled(x, w).sum())(x)
            yield torch.func.linearize(lambda x: compiled(x, w), x)[1](w)

    check_session(session)


def test_the_original_runs_inline_at_a_dual_level():
    def session(compile):
        compiled = compile(f)
        x, w = plain(3), plain(3, seed=1)
        for _ in range(2):
            yield compiled(x, w)
            with forward_ad.dual_level():
                yield tuple(forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, w), w)))
                yield compiled(x, w)

    check_session(session)


def test_forward_over_a_compiled_backward():
    """A Jacobian-vector product by two backwards, which needs the second derivative of ours."""

    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(f)(x, w)
        v = torch.ones_like(y, requires_grad=True)
        (g,) = torch.autograd.grad(y, x, v, create_graph=True)
        yield torch.autograd.grad(g, v, plain(3, seed=2))

    check_session(session)


def test_functional_jacobians_of_a_compiled_function():
    def session(compile):
        compiled = compile(f)
        x, w = plain(3), plain(3, seed=1)
        yield torch.autograd.functional.jacobian(compiled, (x, w))
        yield torch.autograd.functional.hessian(lambda x: compiled(x, w).sum(), x)
        yield torch.autograd.functional.vjp(compiled, (x, w), plain(3, seed=2))
        yield torch.autograd.functional.hvp(lambda x: compiled(x, w).sum(), x, w)

    check_session(session)


def test_a_batched_backward():
    """``is_grads_batched`` runs the backward under vmap."""

    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        yield torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)

    check_session(session)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("function", [lambda x, w: x * x * w, lambda x, w: ((x @ w).sin(), w * 2)], ids=["one", "two"])
def test_derivatives_of_a_batched_backward(function, trained):
    def session(compile):
        double = torch.float64  # third derivatives of sums of large terms: their order shows in float32
        x, w = leaf(3, 3, dtype=double), leaf(3, 3, seed=1, dtype=double)
        out = compile(function)(x, w)
        roots = [out] if isinstance(out, torch.Tensor) else list(out)
        given = [plain(4, 3, 3, seed=k, dtype=double).requires_grad_(trained) for k, _ in enumerate(roots)]
        how = {"is_grads_batched": True, "create_graph": True}
        found = torch.autograd.grad(roots, [x, w], given, **how)
        yield found, [g.requires_grad for g in found]
        again = torch.autograd.grad([g.sin() for g in found], [x, w], [torch.ones(2, 4, 3, 3, dtype=double)] * 2, **how)
        yield again, [g.requires_grad for g in again]
        backward([sum(g.sum() for g in again)])
        yield x, w, given

    check_session(session, rtol=1e-9)


def test_the_jacobian_of_a_jacobian_at_once():
    def session(compile):
        f = compile(lambda x: x.sin() * x.prod())
        x = leaf(3)
        jacobian = torch.autograd.functional.jacobian
        found = jacobian(f, x, vectorize=True, create_graph=True)
        yield found
        backward([found])
        yield x, jacobian(lambda x: jacobian(f, x, vectorize=True, create_graph=True), x, vectorize=True)

    check_session(session, rtol=1e-5)


def test_a_tracer_inside_is_refused():
    def g(x):
        return torch.func.linearize(lambda x: x * x, x)[1](x)

    with pytest.raises(aotcheck.UnsupportedError, match="another tracer inside"):
        aotcheck.aot_function(g)(plain(3))


# -- sparse gradients --------------------------------------------------------------------------------


def test_a_sparse_embedding_whose_gradient_nobody_wants():
    check(
        lambda i, w: torch.nn.functional.embedding(i, w, sparse=True), lambda: given(torch.tensor([1, 0]), plain(4, 3))
    )


def test_a_dense_embedding_trained_in_steps():
    def session(compile):
        w = leaf(4, 3)
        compiled = compile(lambda i, w: torch.nn.functional.embedding(i, w, padding_idx=0) * 2)
        for _ in range(3):
            backward([compiled(torch.tensor([[1, 0], [1, 3]]), w)])
            yield w

    check_session(session)
