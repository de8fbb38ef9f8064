"""BEHAVIOUR 5: the state in which backward is called, which need not be that of the forward."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.functions import Once
from tests.behaviour.harness import attempt, attempt_later, backward, check_session, leaf, plain


class Product(torch.autograd.Function):
    """A matrix product whose backward casts nothing by itself."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


def softened(x, w):
    return torch.softmax(x @ w, 0) @ w


FUNCTIONS = {
    "a product": lambda x, w: x @ w,
    "several dtypes": softened,
    "a custom product": lambda x, w: Product.apply(x, w),
    "a convolution": lambda x, w: torch.nn.functional.conv1d(x[None], w[:, :, None]),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float16)])
def test_autocast_in_forward_and_in_backward(function, dtypes):
    """One compiled function, backward in each state; thirds are exact in no dtype, so that a cast shows."""

    def session(compile):
        compiled = compile(function)
        for forward_on, backward_on in itertools.product((False, True), (False, True, False)):
            x, w = ((t.detach() / 3).requires_grad_() for t in (leaf(3, 3), leaf(3, 3, seed=1)))
            with torch.autocast("cpu", dtypes[0], enabled=forward_on):
                y = compiled(x, w)
            with torch.autocast("cpu", dtypes[1], enabled=backward_on):
                yield y, attempt_later(lambda y=y: y.backward(torch.ones_like(y) / 3))
            yield y, x, w

    check_session(session)


def test_a_second_derivative_under_autocast():
    def session(compile):
        compiled = compile(lambda x, w: (x @ w).exp() @ w)
        for first_on, second_on in itertools.product((False, True), repeat=2):
            x, w = ((t.detach() / 3).requires_grad_() for t in (leaf(3, 3), leaf(3, 3, seed=1)))
            y = compiled(x, w)
            with torch.autocast("cpu", torch.bfloat16, enabled=first_on):
                (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=second_on):
                yield g, attempt_later(lambda g=g, w=w: torch.autograd.grad((g * g).sum(), w))

    check_session(session)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("backward_mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("inside", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("outside", [torch.no_grad, torch.enable_grad])
def test_grad_modes(outside, inside, backward_mode, create_graph: bool):
    def f(x, w):
        with inside():
            y = x * w
        return y * y * x

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, w = leaf(3), leaf(3, seed=1)
            with outside():
                y = compiled(x, w)
            yield y
            with backward_mode():
                yield attempt_later(lambda y=y, x=x: torch.autograd.grad(y.sum(), x, create_graph=create_graph))

    check_session(session)


def test_once_differentiable_beside_others():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        a, b = compile(lambda x, w: (Once.apply(x) * w, x * x * w))(x, w)
        (g,) = torch.autograd.grad(b.sum(), x, create_graph=True)
        yield g
        yield torch.autograd.grad(g.sum(), w, retain_graph=True)
        g, h = torch.autograd.grad((a + b).sum(), (x, w), create_graph=True)
        yield g, h
        yield attempt_later(lambda: torch.autograd.grad(g.sum(), w, retain_graph=True))
        yield attempt_later(lambda: torch.autograd.grad(h.sum(), x))

    check_session(session)


def test_deterministic_mode_of_the_backward():
    def session(compile):
        y = compile(lambda x, i: x[i])(x := leaf(4), torch.tensor([0, 1, 0]))
        torch.use_deterministic_algorithms(True)
        try:
            yield attempt(lambda: backward([y]))
        finally:
            torch.use_deterministic_algorithms(False)
        yield x

    check_session(session)


def test_default_dtype_of_the_backward():
    class Adding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g + torch.ones(3)

    def session(compile):
        y = compile(lambda x: Adding.apply(x))(x := plain(3).requires_grad_())
        backward([y])
        yield x

    check_session(session)


def written_and_kept(op):
    def function(x):
        op(x)
        return x

    return function


KEEPING = {
    "tanh": torch.tanh,
    "exp_": written_and_kept(torch.exp_),
    "of a view": lambda x: x[1:].sigmoid(),
    "several": lambda x: torch.max(x.exp(), 0),
    "svd": lambda x: torch.linalg.svd(x[None] * x[:, None] + torch.eye(2))[1],
    "prod": lambda x: x.prod(0),
    "a single factor": lambda x: x[:1].prod(),
}


@pytest.mark.parametrize("function", KEEPING.values(), ids=KEEPING)
@pytest.mark.parametrize("unpack", [lambda t: t, lambda t: t.clone()], ids=["the same", "a copy"])
def test_a_second_derivative_under_hooks_on_all_that_is_saved(function, unpack):
    """It comes by results that their ops keep, and prod is differentiated by the formula that the data ask for."""

    def session(compile):
        compiled = compile(function)
        for zero in (False, True):
            root = leaf(2)
            x = root * 0 if zero else root.clone()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), unpack):
                y = compiled(x)
            y = y if isinstance(y, torch.Tensor) else y[0]
            (first,) = torch.autograd.grad(y, root, torch.ones_like(y), create_graph=True)
            yield first
            yield torch.autograd.grad(y.sum() + first.square().sum(), (root, y))

    check_session(session, rtol=1e-5)


def packed_inside(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 2, lambda t: t / 2):
        return x.tanh()


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)


@pytest.mark.parametrize("function", [packed_inside, checkpointed])
def test_a_second_derivative_by_a_result_that_was_packed_inside(function):
    def session(compile):
        x = leaf(2)
        y = compile(function)(x)
        (first,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        yield first
        yield torch.autograd.grad(y.sum() + first.square().sum(), (x, y))

    check_session(session, rtol=1e-5)


WRITES = {
    "exp_": lambda x: x.exp_(),
    "relu_": lambda x: x.relu_(),
    "two": lambda x: x.tanh_().sigmoid_(),
    "not kept": lambda x: x.sigmoid_().mul_(2),
    "read afterwards": lambda x: (x.square_(), x.sin())[0],
}
VIEWS = {"itself": lambda x: x, "transposed": lambda x: x.t(), "a part": lambda x: x[1:]}


@pytest.mark.parametrize("inner", VIEWS)
@pytest.mark.parametrize("outer", VIEWS)
@pytest.mark.parametrize("op", WRITES)
def test_a_written_view_is_differentiated_twice_by_itself_where_hooks_packed_it(op, outer, inner):
    def session(compile):
        root = leaf(3)
        x = VIEWS[outer](root * 2)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            out = compile(lambda x: WRITES[op](VIEWS[inner](x)))(x)
        (gradient,) = torch.autograd.grad(out.sum(), root, create_graph=True)
        yield out.detach(), torch.autograd.grad(gradient.square().sum(), (root, out), allow_unused=True)

    check_session(session, rtol=1e-5)
