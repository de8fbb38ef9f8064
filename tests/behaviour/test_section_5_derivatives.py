"""BEHAVIOUR 5: derivatives of derivatives."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Once
from tests.behaviour.harness import attempt, attempt_later, check_session, leaf, plain


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
def test_second_and_third_derivatives(function, through_a_non_leaf):
    def session(compile):
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

    check_session(session)


def test_a_gradient_that_is_the_tangent_itself():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x + 1)(x)
        tangent = leaf(3, seed=2)
        (g,) = torch.autograd.grad(y, x, tangent, create_graph=True)
        yield g
        yield torch.autograd.grad((g * g).sum(), tangent)

    check_session(session)


def test_a_second_derivative_accumulates_into_leaves():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(lambda x, w: (x * w * w).sum())(x, w)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
        yield x.grad, w.grad
        y.backward()
        yield x.grad, w.grad

    check_session(session)


def test_a_gradient_penalty_over_ten_steps():
    def session(compile):
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

    check_session(session)


def test_a_second_derivative_by_a_written_argument_that_others_are_computed_from():
    def session(compile):
        def f(x):
            x.exp_()
            return x * x

        x = leaf(3)
        argument = x * 1
        y = compile(f)(argument)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield y, g
        yield torch.autograd.grad(g.sum(), x)

    check_session(session)


def test_a_second_derivative_that_is_refused():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: Once.apply(x) * 2)(x)
        (g,) = torch.autograd.grad(y, x, leaf(3, seed=2), create_graph=True)
        yield g
        yield attempt(lambda: g.sum().backward())
        yield attempt(lambda: torch.autograd.grad(g.sum(), x, allow_unused=True))
        yield x.grad

    check_session(session)


# -- results that ops keep and that are written through views ---------------------------------------------


def _the_base(x, view, write):
    write(view(x))
    return x


def _an_intermediate_base(x, view, write):
    y = x.clone()
    write(view(y))
    return y


def _the_base_and_the_view(x, view, write):
    v = view(x)
    write(v)
    return x, v


def _the_view(x, view, write):
    v = view(x)
    write(v)
    return v


def _the_base_and_what_is_made_of_the_view(x, view, write):
    v = view(x)
    write(v)
    return x, v * 2


def _the_base_while_all_else_ends(x, view, write):
    v = view(x)
    write(v)
    w = (v * 2).view(-1)
    w.add_(w * 3)
    return x


_WRITES = {
    "sigmoid": lambda v: v.sigmoid_(),
    "sqrt": lambda v: v.abs_().sqrt_(),
    "square": lambda v: v.mul_(v),
    "tanh of a list": lambda v: torch._foreach_tanh_([v]),
}


@pytest.mark.parametrize(
    "results",
    [
        _the_base,
        _an_intermediate_base,
        _the_base_and_the_view,
        _the_view,
        _the_base_and_what_is_made_of_the_view,
        _the_base_while_all_else_ends,
    ],
    ids=lambda f: f.__name__.strip("_"),
)
@pytest.mark.parametrize("view", [lambda x: x.view(-1), lambda x: x[0]], ids=["view", "row"])
@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("keep", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_what_derivatives_free_of_what_was_written_through_a_view_that_may_have_ended(results, view, write, keep):
    def gradients(of, to, keep, given=None):
        return attempt_later(
            lambda: torch.autograd.grad(
                [of], to, None if given is None else [given], create_graph=True, retain_graph=keep, allow_unused=True
            )
        )

    def session(compile):
        x = leaf(2, 3)
        out = compile(lambda y: results(y, view, write))(x / 8)
        root = out[0] if isinstance(out, tuple) else out
        cotangent = torch.full_like(root, 2).detach().requires_grad_()
        first = gradients(root, [x], keep[0], cotangent)
        yield out, first
        if isinstance(first, tuple) and first[0].requires_grad:
            second = gradients(first[0].sum(), [x, cotangent], keep[1])
            yield second
            if isinstance(second, tuple) and second[0] is not None and second[0].requires_grad:
                yield gradients(second[0].sum(), [x, cotangent], False)
            yield gradients(first[0].sum(), [x, cotangent], False)
        yield gradients(root, [x], False, cotangent.detach())

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize(
    "operands", [lambda x: [x.t()], lambda x: [x, x.t()], lambda x: [x * 1, x.t()]], ids=["t", "x,t", "y,t"]
)
@pytest.mark.parametrize("write", [torch._foreach_abs_, torch._foreach_exp_, torch._foreach_neg_])
@pytest.mark.parametrize("read", [torch._foreach_abs, lambda ts: torch._foreach_mul(ts, ts)], ids=["abs", "square"])
def test_derivatives_of_lists_that_were_written(operands, write, read):
    def f(x):
        ts = operands(x)
        write(ts)
        return ts, read(ts)

    def session(compile):
        x = leaf(2, 2)
        out = compile(f)(x / 8)
        yield out
        for t in [t for ts in out for t in ts]:
            (g,) = torch.autograd.grad(t.sum(), x, create_graph=True)
            yield g
            if g.requires_grad:
                yield torch.autograd.grad((g * g).sum(), x, retain_graph=True, allow_unused=True)

    check_session(session, rtol=1e-4)


_WRITTEN_VIEWS = {
    "its view written": lambda a, v: (v.exp_(), None)[1],
    "the view, returned": lambda a, v: v.relu_(),
    "what is made of both": lambda a, v: (v.sigmoid_(), v * 3, a * 2)[1:],
    "a view of the view": lambda a, v: v[1].exp_(),
    "of a list": lambda a, v: (torch._foreach_exp_([v]), v)[1],
    "a view made inside": lambda a, v: a.t().exp_(),
    "a base made inside": lambda a, v: ((b := a * 2), b.t().exp_()),
    "a view of what was made inside": lambda a, v: (a * 2).t().exp_(),
}


def _seen(gradients):
    return [None if g is None else g.detach().clone() for g in gradients]


@pytest.mark.parametrize("function", _WRITTEN_VIEWS.values(), ids=_WRITTEN_VIEWS)
@pytest.mark.parametrize("ended", [False, True], ids=["lasting", "ended"])
def test_derivatives_come_by_a_view_that_was_written_and_kept_and_its_hooks(function, ended):
    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            x = leaf(2, 3)
            a = x / 8
            v = a.t()
            out = compiled(a, v)
            out = [a, v, *(out if isinstance(out, tuple) else () if out is None else (out,))]
            root = out[-1]
            if ended:  # hooks of a base are called for a view that ended: docs/limits.md
                del v, out[1]
            hooked = {id(t): t for t in out}.values() if not ended else []
            seen = []
            for k, t in enumerate(hooked):
                assert t.grad_fn is not None  # where a view was written by another, torch needs that look at it first
                t.register_hook(lambda g, k=k, seen=seen: seen.append((k, *_seen([g]))))
            cotangent = torch.full_like(root, 2).detach().requires_grad_()
            (first,) = torch.autograd.grad([root], [x], [cotangent], create_graph=True)
            to = [x, cotangent, *([] if ended else out)]
            ones = torch.ones_like(first)
            second = torch.autograd.grad([first], to, [ones], create_graph=True, allow_unused=True)
            yield out, first, second, _seen([g for _, g in seen]), [k for k, _ in seen]
            third = sum(g.sum() for g in second if g is not None)
            for root, gradient in ((third, [torch.ones_like(third)]), (first, [ones])):
                again = functools.partial(torch.autograd.grad, [root], to, gradient, allow_unused=True)
                yield attempt_later(again)
            yield _seen([g for _, g in seen]), [k for k, _ in seen]

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("made", [leaf, lambda *shape: leaf(*shape) * 1], ids=["leaf", "non-leaf"])
def test_a_second_derivative_by_what_was_swapped_comes_to_what_it_became(made):
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        return y.exp() * x

    def session(compile):
        x, y = made(3), plain(3, seed=1)
        z = compile(f)(x, y)
        (first,) = torch.autograd.grad(z, y, torch.ones(3, requires_grad=True), create_graph=True)
        second = torch.autograd.grad(first.sum(), y, allow_unused=True)
        yield x, y, first, second

    check_session(session)


def test_a_view_that_was_written_and_kept_may_be_swapped_by_another_call():
    def session(compile):
        x = leaf(2, 3)
        a = x / 8
        v, other = a.t(), plain(3, 2)
        y = compile(lambda v: v.exp_() * 2)(v)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        del y
        yield attempt(lambda: compile(lambda v, other: torch.utils.swap_tensors(v, other))(v, other))
        yield a, v, other, first
        yield torch.autograd.grad(first.sum(), x, allow_unused=True)

    check_session(session, rtol=1e-5)


def test_a_view_that_was_written_and_kept_is_not_held():
    compiled = aotcheck.aot_function(lambda a, v: (v.exp_(), None)[1])

    def once():
        x = leaf(2, 3)
        a = x / 8
        v = a.t()
        compiled(a, v)
        (g,) = torch.autograd.grad([a.sum()], [x], create_graph=True)
        g.sum().backward(retain_graph=True)
        return weakref.ref(a), weakref.ref(v), weakref.ref(g)

    gc.collect()
    gc.disable()
    try:
        assert [r() for _ in range(2) for r in once()] == [None] * 6
    finally:
        gc.enable()


# -- formulas that depend on data --------------------------------------------------------------------


_PRODUCTS = {
    "of all": lambda x: x.prod(),
    "of all, in another type": lambda x: x.prod(dtype=torch.float64),
    "of rows": lambda x: x.prod(-1),
    "of rows, kept": lambda x: torch.prod(x, 1, keepdim=True),
    "of columns, computed from": lambda x: x.prod(0) * x.sum(0),
    "of what is made of it": lambda x: (x * x).prod(0),
}


@pytest.mark.parametrize("function", _PRODUCTS.values(), ids=_PRODUCTS)
def test_products_are_differentiated_as_their_factors_ask_for(function):
    """By division, with a second derivative that comes by the result, unless a factor is zero."""

    def session(compile):
        compiled = compile(function)
        for values in (
            [[2.0]],
            [[0.0]],
            [[1.0, 2.0], [4.0, -8.0]],
            [[1.0, 0.0], [4.0, -8.0]],
            [[0.0, 0.0], [4.0, 1.0]],
        ):
            x = torch.tensor(values, requires_grad=True)
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

    check_session(session, rtol=1e-5)


# -- what only the second derivative comes by --------------------------------------------------------


class _IgnoresItsSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y, None


class _HasAnAttribute(_IgnoresItsSecond):
    @staticmethod
    def forward(ctx, x, y):
        with torch.enable_grad():
            ctx.attribute = y * x.sort().values
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.attribute, None


class _AppliesAnother(_IgnoresItsSecond):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return _IgnoresItsSecond.apply(g, y), None


def _sorted(function, x):
    return function.apply(x, (x * x).sort().values)


def _written(function, x):
    y = x * 2
    y[0].mul_(x[1])
    return function.apply(x, y * y)


def _beside_it(function, x):
    y = x.sort().values * x
    return function.apply(x, y), y * y


def _another(function, x):
    return function.apply(x, function.apply(x * x, x.sort().values * x))


@pytest.mark.parametrize("function", [_IgnoresItsSecond, _HasAnAttribute, _AppliesAnother])
@pytest.mark.parametrize("body", [_sorted, _written, _beside_it, _another])
@pytest.mark.parametrize("leads", ["leaf", "non-leaf"])
def test_a_custom_backward_computes_with_what_it_gives_no_gradient(function, body, leads):
    def session(compile):
        x = leaf(3)
        x = x if leads == "leaf" else x * 1
        out = compile(functools.partial(body, function))(x)
        out, tangent = out[0] if isinstance(out, tuple) else out, leaf(3, seed=2)
        (first,) = torch.autograd.grad(out, x, tangent, create_graph=True)
        yield first
        second = torch.autograd.grad(first.sum(), (x, tangent), create_graph=True, allow_unused=True)
        yield second
        yield torch.autograd.grad(sum((g * g).sum() for g in second if g is not None), x)

    check_session(session)


@pytest.mark.parametrize("grad", [False, True])
def test_a_second_derivative_by_a_write_to_a_window_without_elements(grad):
    def f(x):
        y = x * 1
        y.unfold(0, 2, 1).square_()
        return y

    def session(compile):
        x = torch.zeros(3, 0, requires_grad=True)
        (first,) = torch.autograd.grad(compile(f)(x), x, torch.ones(3, 0, requires_grad=grad), create_graph=True)
        yield first
        if first.requires_grad:
            yield torch.autograd.grad(first.sum(), x, allow_unused=True)

    check_session(session)


def test_zeros_that_formulas_of_torch_do_not_fill():
    """What lies as none in another test does: what an op gives the first time, its meta kernel is asked."""

    def session(compile):
        x = leaf(1, 5, 7)
        y = compile(lambda x: x.amax(0).abs())(x)
        g = plain(5, 7).requires_grad_()
        (r,) = torch.autograd.grad(y, x, g, create_graph=True)
        yield r
        yield torch.autograd.grad(r, [x, g], plain(1, 5, 7, seed=3), allow_unused=True)

    check_session(session)


class _View(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_second_derivative_by_an_argument_that_no_longer_says_its_history():
    """A view that a custom Function made refuses to, once it was reshaped in place under no_grad."""

    def f(x):
        y = x.clone()
        with torch.no_grad():
            x.t_()
        return y.sin()

    def session(compile):
        x = leaf(2, 2)
        (first,) = torch.autograd.grad(compile(f)(_View.apply(x)), x, plain(2, 2), create_graph=True)
        yield first
        yield torch.autograd.grad(first.sum(), x)

    check_session(session)


@pytest.mark.parametrize("given", [lambda x: x, lambda x: x + 1])
@pytest.mark.parametrize(
    "product", [torch.matmul, lambda x, z: torch.einsum("ij,bjk->bik", x, z)], ids=["matmul", "einsum"]
)
def test_a_second_derivative_of_a_product_of_which_a_transposed_operand_is_saved(product, given):
    def session(compile):
        x, z = leaf(2, 2), leaf(1, 2, 2, seed=1)
        y = compile(lambda x, z: product(given(x), given(z)))(x, z)
        first = torch.autograd.grad(y.square().sum(), (x, z), create_graph=True)
        yield first
        yield torch.autograd.grad(sum(g.square().sum() for g in first), (x, z))

    check_session(session)


@pytest.mark.parametrize("of", [lambda x, y, z: x @ z, lambda x, y, z: (x @ x) @ z, lambda x, y, z: y @ z @ x])
@pytest.mark.parametrize("grad", [False, True])
def test_a_second_derivative_of_a_product_whose_operand_comes_transposed_too(of, grad):
    def session(compile):
        x, z = plain(2, 2), leaf(2, 2, seed=1)
        x.requires_grad_(grad)
        roots = (x, z) if grad else (z,)
        y = compile(of)(x, x.t(), z)
        first = torch.autograd.grad(y.square().sum(), roots, create_graph=True)
        yield first
        second = torch.autograd.grad(sum(g.square().sum() for g in first), roots, create_graph=True)
        yield second
        yield torch.autograd.grad(sum(g.sum() for g in second), roots)

    check_session(session, rtol=1e-5)


def test_a_second_derivative_of_a_product_with_a_transpose_made_under_no_grad():
    def session(compile):
        root = leaf(2, 2)
        x = root.clone()
        with torch.no_grad():
            y = x.t()
        out = compile(torch.matmul)(x, y)
        (first,) = torch.autograd.grad(out.square().sum(), root, create_graph=True)
        yield first
        yield torch.autograd.grad(first.square().sum(), root)

    check_session(session)


class _SameAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_created_graph_beside_a_view_of_a_custom_function_whose_base_was_written():
    def f(x, y):
        with torch.inference_mode():
            t = x.t()
            _SameAgain.apply(y)
        out = t.clone()
        y.zero_()
        return out

    def session(compile):
        g = compile(f)
        x, y = leaf(1, 2), leaf(1, 2, seed=1).clone()
        for _ in range(3):
            out = g(x, y)
            out.sum().backward(create_graph=True)
            yield out, x.grad
        x.grad = None

    check_session(session)
