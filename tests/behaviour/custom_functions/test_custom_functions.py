"""Autograd.Function: save, mark_dirty, views, non-differentiable, materialize, setup_context."""

from functools import partial

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.custom_functions.common import Saving
from tests.behaviour.functions import Doubled, Flat, Halves, Same
from tests.behaviour.harness import attempt, attempt_later, backward, check, one_of, session
from tests.behaviour.inputs import given, given_of, leaf, plain, to_device
from tests.behaviour.shared import INPUTS

make = one_of(INPUTS)


class TwoRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[0], x[1]

    @staticmethod
    def backward(ctx, g, h):
        return torch.stack([g, h]) * 2


@pytest.mark.parametrize("function", [Flat, TwoRows, Same], ids=lambda function: function.__name__)
def test_a_custom_function_returns_a_view_of_its_input_or_the_input(function, make):
    check(function.apply, make, probe=False)
    check(lambda x: (function.apply(x), x * 2), make, probe=False)
    check(lambda x: function.apply(x * 2), make, probe=False)


def test_a_view_made_by_a_custom_function_is_written_inside(make):
    def f(x):
        y = Flat.apply(x)
        y.mul_(3)
        return x * 2

    check(f, make)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_an_input_marked_dirty(make):
    check(Twice.apply, make)
    check(lambda x: (Twice.apply(x), x * 3)[1], make)


def test_an_intermediate_marked_dirty(make):
    def f(x):
        y = x * 2
        z = Twice.apply(y)
        return y, z, z is y

    check(f, make)


def test_a_view_marked_dirty(make):
    check(lambda x: (Twice.apply(x[0]), x * 3), make)

    def f(x):
        y = x * 2
        z = Twice.apply(y[0])
        return y, z

    check(f, make)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.mul_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g * y, h * 2


def test_one_output_is_marked_dirty_and_another_is_fresh():
    check(lambda x, y: (*Dirty.apply(x, y), x), lambda: given_of(leaf(3), lambda root: (root * 1, leaf(3, seed=1))))
    check(lambda x, y: (*Dirty.apply(x, y), x), lambda: given(plain(3), leaf(3, seed=1)))


class DirtyAndView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        view = x[None]
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, view, x[:1]

    @staticmethod
    def backward(ctx, g, h, k):
        return g * 2 + h.squeeze(0) * 3 + k.sum() * 5


@pytest.mark.parametrize("wanted", [0, 1, 2, slice(3)])
def test_views_are_returned_with_an_input_marked_dirty(wanted):
    check(lambda x: DirtyAndView.apply(x * 1)[wanted], lambda: given(leaf(3)), probe=False)


def test_an_output_marked_non_differentiable():
    check(Halves.apply, lambda: given(leaf(3)))


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w, x + w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, g, h):
        _, w, out = ctx.saved_tensors
        return g * w * 3 + h, g * out


def test_a_custom_backward_is_the_users_and_not_the_derivative():
    check(lambda x, w: Saving.apply(x, w, 2), lambda: given(leaf(3), leaf(3, seed=1)))
    check(lambda x, w: Saving.apply(x * 1, w * 1, 2) * 2, lambda: given(leaf(3), leaf(3, seed=1)))
    check(WithSetup.apply, lambda: given(leaf(3), leaf(3, seed=1)))
    check(WithSetup.apply, lambda: given(leaf(3), leaf(3, seed=1)), backward=[1])


def test_a_custom_function_applied_twice():
    check(lambda x, w: Saving.apply(Saving.apply(x, w, 2), w, 3), lambda: given(leaf(3), leaf(3, seed=1)))


def test_needs_input_grad():
    seen = []

    class Looking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return tuple(g * (k + 2) if needed else None for k, needed in enumerate(ctx.needs_input_grad))

    assert not seen
    for make in (
        lambda: given(leaf(3), leaf(3)),
        lambda: given(leaf(3), plain(3)),
        lambda: given(plain(3), leaf(3)),
        lambda: given(plain(3), plain(3)),
    ):
        check(Looking.apply, make)


@session
def test_an_error_in_a_custom_backward(compile):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("not today")

    x = leaf(3)
    y = attempt(lambda: compile(lambda x: Failing.apply(x))(x))
    yield attempt_later(lambda: backward([y]))


@session
def test_a_custom_backward_that_gives_the_wrong_number_of_gradients(compile):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    x, y = leaf(3), leaf(3)
    z = attempt(lambda: compile(lambda x, y: Wrong.apply(x, y))(x, y))
    yield attempt_later(lambda: backward([z]))


class _Scaled(torch.autograd.Function):
    """Computes its gradients by a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            return torch.autograd.grad((x * w).sum() * 2, (x, w), grad.sum())


class _Kept(torch.autograd.Function):
    """Uses a tensor in its backward alone."""

    @staticmethod
    def forward(x, w):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad):
        return grad, grad * ctx.saved_tensors[0]


_scaled = _Scaled.apply


@pytest.mark.parametrize("apply", [_scaled, _Scaled.apply, _Kept.apply], ids=["bound before", "Function", "kept"])
@pytest.mark.parametrize("where", ["closure", "list", "module"])
@session
def test_a_custom_function_is_applied_to_captured_tensors(compile, apply, where: str):
    w = leaf(3, seed=1)
    module = torch.nn.ParameterList([w])
    f = compile(
        {
            "closure": lambda x: apply(x, w),
            "list": (lambda ws: lambda x: apply(apply(x, ws[0]), ws[0]))([w]),
            "module": lambda x: apply(x, module[0]) + w,
        }[where]
    )
    for k in range(3):
        x = leaf(3, seed=k)
        y = f(x)
        backward([y])
        yield y, x, list(module)


@pytest.mark.parametrize("where", [lambda op: lambda x: op(x, x), lambda op: partial(op, to_device(torch.ones(3)))])
def test_an_apply_bound_before_aotcheck_was_imported_is_refused(where):
    """As ``Function.apply`` is from torch 2.15 on, where it was bound before aotcheck was imported."""
    op = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Scaled)
    with pytest.raises(aotcheck.UnsupportedError, match=r"_Scaled\.apply") as caught:
        aotcheck.aot_function(where(op))(leaf(3))
    assert caught.value.reason == "custom function bound before"


MARKED = {
    "alone": Doubled.apply,
    "told to keep it": lambda x: (x.retain_grad(), Doubled.apply(x))[1],
    "under no_grad": torch.no_grad()(Doubled.apply),
    "a view": lambda x: (Doubled.apply(x[:1]), x)[1],
    "written before": lambda x: Doubled.apply(x.mul_(1)),
    "written after": lambda x: Doubled.apply(x).mul_(3),
    "asked for it": lambda x: (Doubled.apply(x), x.grad)[1],
    "asked for it before": lambda x: (x.grad, Doubled.apply(x)),
    "given one before": lambda x: (setattr(x, "grad", torch.ones(2, device=x.device)), Doubled.apply(x))[1],
    "given one after": lambda x: (Doubled.apply(x), setattr(x, "grad", torch.ones(2, device=x.device)))[0],
    "only written": lambda x: x.mul_(2),
}

HAVING = {
    "no leaf": lambda: leaf(2) * 1,
    "view": lambda: (leaf(2) * 1).view(2),
    "leaf": lambda: leaf(2),
    "nothing required": lambda: plain(2),
}


@pytest.mark.parametrize("has", ["kept", "given", "none"])
@pytest.mark.parametrize("argument", HAVING)
@pytest.mark.parametrize("marked", MARKED)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@session
def test_an_argument_marked_dirty_loses_its_retained_grad(compile, marked, argument, has):
    x, compiled = HAVING[argument](), compile(MARKED[marked])
    if has == "kept" and x.requires_grad:
        x.retain_grad()
        (x * 2).sum().backward(retain_graph=True)
    elif has == "given":
        x.grad = plain(2, seed=1)
    for _ in range(2):
        y = attempt_later(lambda: compiled(x))
        yield y, x.grad, x.retains_grad
        if isinstance(y, torch.Tensor) and y.requires_grad:
            yield attempt_later(lambda y=y: backward([y])), x.grad


def test_set_materialize_grads_decides_between_none_and_zeros():
    seen = []

    def two(materialize: bool):
        class Two(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, g, h):
                seen.append((g is None, h is None))
                return sum(t * 2 for t in (g, h) if t is not None)

        return Two

    for materialize in (True, False):
        for subset in ([0], [1], [0, 1]):
            check(two(materialize).apply, lambda: given(leaf(3)), backward=subset)


def test_a_custom_backward_that_returns_none():
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    check(First.apply, lambda: given(leaf(3), leaf(3, seed=1)))
    check(lambda x, y: First.apply(x * 1, y * 1), lambda: given(leaf(3), leaf(3, seed=1)))
