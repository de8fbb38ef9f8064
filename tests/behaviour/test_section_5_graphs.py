"""BEHAVIOUR 5: what a backward finds freed or written, where the graphs of several backwards meet."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check_session, leaf, plain

# -- derivatives of a backward come by nodes of the forward's graph ----------------------------------


def square_of_exp(x):
    return torch.exp2(x) * x


def product(x):
    return x * x


ORDERS = {
    "gradient, then result": lambda y, g, h: [g, y],
    "result, then gradient": lambda y, g, h: [y, g],
    "both at once, then each": lambda y, g, h: [y.sum() + g.sum(), y, g],
    "second gradient, gradient, result": lambda y, g, h: [h, g, y],
    "result, second gradient": lambda y, g, h: [y, h],
    "all at once": lambda y, g, h: [y.sum() * g.sum() + h.sum()],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", [torch.square, square_of_exp, product, torch.neg, torch.exp2])
def test_a_backward_frees_what_derivatives_share_with_the_forward(function, order: str):
    def session(compile):
        f = compile(function)
        x = leaf(3)
        y = f(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        h = None
        if g.requires_grad and g.grad_fn is not None:
            (h,) = torch.autograd.grad(g.sum(), x, create_graph=True, allow_unused=True)
        for root in ORDERS[order](y, g, g if h is None else h):
            if root.requires_grad:
                yield attempt_later(functools.partial(gradients, root, (x,)))

    check_session(session, rtol=1e-6)


def test_a_first_backward_that_frees_leaves_the_second_nothing():
    def session(compile):
        f = compile(torch.exp2)
        x = leaf(3)
        y = f(x)
        y.backward(torch.ones(3), create_graph=True, retain_graph=False)
        g = x.grad
        yield attempt_later(lambda: torch.autograd.grad(g.sum(), x))
        x.grad = None

    check_session(session)


# -- memory that eager saves, and the caller writes ---------------------------------------------------


def test_the_caller_writes_an_argument_that_the_call_wrote_and_saved():
    def session(compile):
        f = compile(lambda b, x: torch.square(b.copy_(x)))
        b, x = plain(3), leaf(3)
        y = f(b, x)
        with torch.no_grad():
            b.add_(1)
        yield attempt_later(lambda: y.sum().backward())

    check_session(session)


def test_the_same_argument_written_by_two_calls_each_saving_it():
    def session(compile):
        f = compile(lambda x: x.relu_())
        a = leaf(3)
        x = a.clone()
        f(x)
        f(x)
        yield attempt_later(lambda: x.sum().backward())

    check_session(session)


def gradients(result, wanted):
    return torch.autograd.grad(result, wanted, torch.ones_like(result), allow_unused=True)


FOREACH = {
    "mul by a number": lambda x, y: torch._foreach_mul([x, y], 2),
    "mul": lambda x, y: torch._foreach_mul([x, y], [y, x]),
    "neg": lambda x, y: torch._foreach_neg([x, y]),
    "abs": lambda x, y: torch._foreach_abs([x, y]),
    "add": lambda x, y: torch._foreach_add([x, y], [y, y]),
    "reciprocal": lambda x, y: torch._foreach_reciprocal([x, y]),
}


@pytest.mark.parametrize("name", FOREACH)
def test_what_foreach_saves_is_watched_and_freed(name: str):
    def session(compile):
        f = compile(lambda x, y: tuple(FOREACH[name](x, y)))
        for written in (None, "x", "y", "result"):
            x, y = leaf(3), leaf(3, seed=1)
            results = f(x, y)
            if written is not None:
                with torch.no_grad():
                    {"x": x, "y": y, "result": results[0]}[written].add_(1)
            for k in (0, 0, 1):
                yield attempt_later(functools.partial(gradients, results[k], (x, y)))

    check_session(session)


def test_a_backward_that_leads_to_no_leaf_raises_what_its_nodes_raise():
    def session(compile):
        def f(x):
            v = x.clone()
            v.set_(x)
            return v

        a = leaf()
        with torch.no_grad():
            x = a.t()  # requires grad, but is neither leaf nor connected
        y = compile(f)(x)
        yield y.requires_grad
        yield attempt_later(lambda: y.backward())

    check_session(session)


# -- results that their own derivative is computed from ----------------------------------------------

OF_THEMSELVES = {
    "tanh": lambda x: torch.tanh(x),
    "softmax": lambda x: torch.softmax(x, 0),
    "beside another result": lambda x: torch.exp(x) * 2 + x,
    "sigmoid in place": lambda x: x.sigmoid_(),
    "exp in place of a result": lambda x: (x * 2).exp_(),
}


_SUMMED = {
    "a view first": lambda x: (x.view(2, 1), x * float("inf")),
    "a view last": lambda x: (x * float("inf"), x.view(2, 1)),
    "returned the other way round": lambda x: (x.view(2, 1), x * float("inf"))[::-1],
    "by an intermediate": lambda x: ((h := x.clone()) * float("inf"), h.clone()),
    "by an intermediate, the other way round": lambda x: ((h := x.clone()).clone(), h * float("inf")),
    "views of views": lambda x: (x.view(2, 1).t(), x * float("inf"), x[:1]),
}


@pytest.mark.parametrize("function", _SUMMED.values(), ids=_SUMMED)
@pytest.mark.parametrize("given_x", [lambda x: x, lambda x: x * 1], ids=["leaf", "non-leaf"])
def test_gradients_are_summed_up_in_the_order_of_the_program(function, given_x):
    """A sum of complex infinities says in which order it was made."""

    def session(compile):
        root = leaf(2, dtype=torch.complex64)
        for out in (compile(function)(given_x(root)),):
            torch.autograd.backward(out, [torch.ones_like(y) for y in out])
            yield torch.view_as_real(root.grad)

    check_session(session)


@pytest.fixture(params=OF_THEMSELVES.values(), ids=OF_THEMSELVES)
def of_itself(request):
    return request.param


def test_second_derivatives_come_by_a_result_and_its_hooks(of_itself):
    def session(compile):
        compiled = compile(of_itself)
        for _ in range(2):
            x = leaf(3)
            y = compiled(x * 0.5)
            seen = []
            y.register_hook(lambda g, seen=seen: seen.append(g.detach().clone()))
            y.register_hook(lambda g: g * 2)
            (g,) = torch.autograd.grad([y], [x], [plain(3, seed=1)], create_graph=True)
            second = torch.autograd.grad([g], [x, y], [plain(3, seed=2)], allow_unused=True, create_graph=True)
            yield seen, g, second
            third = [s for s in second if s is not None and s.requires_grad]
            yield torch.autograd.grad(third, [x, y], [plain(3, seed=3)] * len(third), allow_unused=True), seen

    check_session(session, rtol=1e-5)


def test_a_result_that_its_derivative_is_computed_from_is_freed_at_once(of_itself):
    compiled = aotcheck.aot_function(of_itself)

    def once():
        x = leaf(3)
        y = compiled(x * 0.5)
        (g,) = torch.autograd.grad([y], [x], [plain(3)], create_graph=True)
        g.sum().backward(retain_graph=True)
        return weakref.ref(y), weakref.ref(g)

    gc.collect()
    gc.disable()
    try:
        assert [r() for _ in range(2) for r in once()] == [None] * 4
    finally:
        gc.enable()


def test_what_lies_behind_a_returned_intermediate_and_makes_something_of_no_gradient():
    def f(w, x):
        q = (w * x).sin()
        h = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return torch.nn.functional.scaled_dot_product_attention(w * 2, h, h).sum(), h

    def session(compile):
        compiled = compile(f)
        for roots in ((0,), (1,), (0, 1)):
            w, x = leaf(1, 1, 3, 4), leaf(1, 1, 3, 4, seed=1)
            out = compiled(w, x)
            gradients = [torch.ones_like(out[k]) for k in roots]
            yield torch.autograd.grad([out[k] for k in roots], [w, x], gradients), out

    check_session(session, rtol=1e-5)


class _OfTheFirst(torch.autograd.Function):
    """Gives its second operand no gradient."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


def _through_a_view(x):
    y = x.clone()
    y[:1].mul_(x[1:])
    return y


def _filled(x):
    y = x.clone()
    y.t().zero_()
    return y


BEHIND = {
    "a write through a view": _filled,
    "one that keeps its operands": _through_a_view,
    "an op that keeps its operand": lambda x: x.sin(),
    "both": lambda x: _through_a_view(x).sin(),
    "both, the other way round": lambda x: _through_a_view(x.sin()),
    "nothing kept": lambda x: x + 1,
}


CASES = [(k, first) for k in BEHIND for first in ("backward", "write", "both") if (k, first) != ("both", "write")]


@pytest.mark.parametrize(("behind", "first"), CASES)
@pytest.mark.parametrize("beside", [False, True])
def test_a_backward_that_brings_no_gradient_to_what_is_freed_or_written_since(behind, beside, first):
    """A write through a view is not even looked at then."""

    def f(x):
        y = BEHIND[behind](x)
        z = _OfTheFirst.apply(x, y)
        return (z, y, y.exp()) if beside else (z, y)

    def session(compile):
        x = leaf(2)
        z, y, *_ = compile(f)(x)
        if first != "write":
            y.sum().backward()
        if first != "backward":
            with torch.no_grad():
                x.add_(1)
                y.add_(1)
        yield attempt_later(lambda: z.sum().backward()), x.grad

    check_session(session)


def test_a_write_to_a_view_of_what_set_took_elsewhere():
    """Behind it is a derivative that torch does not have."""

    def f(x):
        (part,) = torch.unsafe_chunk(x, 1)
        view = part.t()
        part.set_(x)
        view.zero_()
        return part

    def session(compile):
        x = leaf(1)
        y = compile(f)(x)
        yield y
        yield attempt_later(lambda: y.sum().backward()), x.grad

    check_session(session)
