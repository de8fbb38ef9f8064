"""BEHAVIOUR 6: which histories wrappers and views of them have, when they are asked for, and what keeps a gradient."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.harness import Raised, attempt_later, check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import extra, jagged, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def ragged(values: torch.Tensor) -> torch.Tensor:
    """Two rows, a view of ``values``."""
    n = len(values)
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, n // 2, n], device=values.device))


# -- inner tensors with a history of their own ---------------------------------------------------------


def test_a_wrapper_that_holds_what_begins_to_require_grad():
    """Its class refuses to be made of two tensors of which one requires grad; it was made before."""

    def session(compile):
        a, b = plain(3), plain(3, seed=1)
        x, y = TwoTensor(a, b), leaf(3, seed=2)
        f = compile(lambda a, x, y: (a.copy_(y), x * 2)[1])
        for _ in range(2):
            yield f(a, x, y).detach(), a.requires_grad, x.a is a, b.requires_grad
        a.backward(cotangent(a))
        yield y

    check_session(session)


def test_a_saved_wrapper_of_which_the_caller_writes_what_it_holds():
    def session(compile):
        root = extra(grad=True)
        x = root * 2

        def f(x):
            inner = x.elem
            inner.addcmul_(x, x)
            return inner

        y = compile(f)(x)
        with torch.no_grad():
            y.add_(1)
        (g,) = torch.autograd.grad(y, x, cotangent(y), create_graph=True)
        yield g
        yield torch.autograd.grad(g, root, torch.ones_like(g))

    check_session(session)


# -- views that autograd was not told of -----------------------------------------------------------------


@every_class
def test_a_view_of_a_leaf_made_under_no_grad_is_told_to_require_grad(make):
    def session(compile):
        x = make(3, 2, grad=True)
        with torch.no_grad():
            v = x.t()

        def f(v):
            v.requires_grad_()
            return v.clone()

        y = compile(f)(v)
        y.backward(cotangent(y))
        yield x.grad, v.grad

    check_session(session)


def test_a_view_of_a_constant_that_a_custom_function_gave_and_that_is_written():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, x):
            return x * 2, v.view_as(v)

        @staticmethod
        def backward(ctx, g, h):
            return h, g * 2

    def f(x):
        v = torch.ones_like(x)
        _, view = Both.apply(v, x)
        with torch.no_grad():
            other = v.transpose(0, 1)
        other.add_(1)
        return other, view

    def session(compile):
        x = extra(2, 2, grad=True)
        other, view = compile(f)(x)
        yield other, view.elem, view.requires_grad, view._base is other._base
        yield isinstance(attempt_later(lambda: view.grad_fn), Raised)  # the message names the Function

    check_session(session)


# -- bases that are cut from their history -------------------------------------------------------------


@pytest.mark.parametrize("cut", ["before", "inside"])
def test_views_of_a_view_whose_base_is_cut_and_that_is_written_afterwards(cut: str):
    """Eager fails an assertion of its own where the history is asked for after the write, and is not asked here."""

    def f(x, v):
        parts = v.t(), v.view(-1).expand(2, 6)
        with torch.no_grad():
            x.zero_()
        if cut == "inside":
            x.detach_()
        return parts

    def session(compile):
        root = two(3, 2, grad=True)
        x = root * 2
        v = x.view(2, 3)
        if cut == "before":
            x.detach_()
        y = compile(f)(x, v)
        yield x, v.requires_grad, [(t.requires_grad, t.a) for t in y]

    check_session(session)


def test_a_view_whose_base_was_cut_leads_where_it_led():
    def session(compile):
        root = two(3, 2, grad=True)
        x = root * 2
        v = x.view(-1)
        x.detach_()

        def f(x, v):
            y = v * 2
            with torch.no_grad():
                x.transpose_(0, 1)
            return y, x * 2

        y, z = compile(f)(x, v)
        y.backward(cotangent(y))
        yield root, x, y, z

    check_session(session)


@every_class
def test_a_wrapper_cut_from_its_history_requires_grad_again(make):
    def session(compile):
        root = make(3, grad=True)
        x = root * 2

        def f(x):
            before = x * 3
            x.detach_()
            x.requires_grad_()
            return before, x * 5

        before, after = compile(f)(x)
        yield x.is_leaf, x.requires_grad
        before.backward(cotangent(before))
        yield root.grad, x.grad
        after.backward(cotangent(after))
        yield root.grad, x.grad

    check_session(session)


# -- changes of geometry -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [two, tagged, plain], ids=lambda make: make.__name__)
@pytest.mark.parametrize("change", ["t_", "squeeze_"])
@pytest.mark.parametrize("written", [False, True])
def test_a_retained_gradient_has_the_shape_of_before_the_argument_was_reshaped(make, change: str, written: bool):
    def session(compile):
        root = make(1, 3).requires_grad_()
        x = root * 2
        x.retain_grad()

        def f(x):
            getattr(x, change)()
            if written:
                with torch.no_grad():
                    x.mul_(2)
            return x

        y = compile(f)(x)
        y.backward(cotangent(y))
        yield root.grad, x.grad, x.detach()

    check_session(session)


@pytest.mark.parametrize("write", ["mul_", "exp_", "bernoulli_", "a view"])
@pytest.mark.parametrize("returned", ["nothing", "it", "another"])
@pytest.mark.parametrize("quietly", [False, True])
def test_a_retained_gradient_of_what_was_written_and_then_reshaped(write: str, returned: str, quietly: bool):
    def f(x):
        match write:
            case "mul_":
                x.mul_(3)
            case "a view":
                x[:, 1:].mul_(3)
            case _:
                getattr(x, write)()
        x.t_()
        if quietly:
            with torch.inference_mode():
                x.squeeze_(0)
        return {"nothing": None, "it": x, "another": x.sin()}[returned]

    def session(compile):
        root = leaf(1, 3)
        x = root * 2
        x.retain_grad()
        torch.manual_seed(0)
        compile(f)(x)
        y = x * 5
        yield attempt_later(lambda: y.backward(cotangent(y)))
        yield root.grad, x.grad, x.detach()

    check_session(session)


def test_a_gradient_is_retained_of_what_is_reshaped_and_to_no_effect_once_more_in_inference_mode():
    def f(x):
        x.t_()
        with torch.inference_mode():
            x.squeeze_(0)

    def session(compile):
        root = leaf(2, 3)
        x = root * 2
        x.retain_grad()
        compile(f)(x)
        y = x * 5
        y.backward(cotangent(y))
        yield root.grad, x.grad, x.detach()

    check_session(session)


def test_what_is_split_unsafely_of_a_wrapper_that_was_squeezed():
    def f(x):
        x.squeeze_()
        return torch.unsafe_chunk(x, 2)[0]

    check(f, lambda: given(two(4, 1)))


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("reshape", [lambda x: x.squeeze_(), lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_()])
def test_a_view_of_a_wrapper_that_is_written_and_then_reshaped(reshape, other):
    """Its new shape comes after the write, to which its base leads."""

    def f(x, y):
        x.mul_(3)
        reshape(y if other else x)
        return x * 2, y

    def make():
        x = two(1, 3, grad=True)
        base = x * 2
        return given(base[:], base[:], also=[x, base])

    check(f, make)


_BOTH_WAYS = {
    "a sum": lambda x, y: x + y,
    "a product": lambda x, y: x * y,
    "each": lambda x, y: (x * y, x * 5, y * 7),
}
_REWRITES = {"mul_": lambda x: x.mul_(3), "relu_": lambda x: x.relu_(), "zero_": lambda x: x.zero_()}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("combine", _BOTH_WAYS.values(), ids=_BOTH_WAYS)
@pytest.mark.parametrize("write", _REWRITES.values(), ids=_REWRITES)
@pytest.mark.parametrize("make", [two, extra, jagged, nested], ids=lambda make: make.__name__)
def test_what_is_computed_of_a_wrapper_before_and_after_a_write(make, write, combine, create_graph):
    """One result leads both to the history that the argument came with and to the one that it has since."""

    def f(x):
        before = x * 2
        write(x)
        return combine(before, x)

    def session(compile):
        a = make(2, 3, grad=True)
        x = a * 5
        y = compile(f)(x)
        outs = y if isinstance(y, tuple) else (y,)
        for out in outs:
            (g,) = torch.autograd.grad(out, a, torch.ones_like(out), retain_graph=True, create_graph=create_graph)
            yield g
            if g.requires_grad:
                yield torch.autograd.grad(g, a, torch.ones_like(g), retain_graph=True, allow_unused=True)

    check_session(session)


# -- inference mode ------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["view_as", "select"])
@pytest.mark.parametrize("trained", ["values", "ragged", "neither"])
@pytest.mark.parametrize("mode", ["around", "inside"])
def test_views_of_a_ragged_tensor_in_inference_mode(view: str, trained: str, mode: str):
    def act(x):
        return x.view_as(x) if view == "view_as" else x.select(0, 0)

    def f(x):
        with torch.inference_mode(mode == "inside"):
            return act(x)

    def session(compile):
        values = plain(4, 2)
        x = ragged(values)
        if trained != "neither":
            (values if trained == "values" else x).requires_grad_()
        with torch.inference_mode(mode == "around"):
            y = compile(act if mode == "around" else f)(x)
        yield y, y.requires_grad, y.is_inference(), attempt_later(lambda: y.is_leaf)

    check_session(session)


def test_a_detached_alias_in_inference_mode_of_a_wrapper_made_there():
    def session(compile):
        x = two(3)
        with torch.inference_mode():
            y = compile(lambda x: TwoTensor(x, x).detach())(x)
        # Its class cannot detach it again, outside.
        yield type(y), y.is_inference(), [(type(t), t.is_inference(), t.a, t.b) for t in (y.a, y.b)], x

    check_session(session)


def test_a_view_in_inference_mode_of_a_row_of_a_ragged_tensor():
    def f(x):
        row = x[0]
        with torch.inference_mode():
            return row.t()

    def session(compile):
        x = ragged(plain(4, 2)).requires_grad_()
        y = compile(f)(x)
        yield y, y.requires_grad, y.is_inference()

    check_session(session)


def test_an_argument_whose_gradient_is_retained_is_cut_and_written_by_way_of_a_view_in_each_call():
    def f(x):
        x.retain_grad()
        total = x.sum()
        x.detach_()
        x[0] = total

    def session(compile):
        x, compiled = leaf(3), compile(f)
        for _ in range(3):
            compiled(x)
            yield x, x.retains_grad, x.grad
            yield torch.autograd.grad((x * 2).sum(), x, retain_graph=True), x.grad

    check_session(session)


# -- writes that eager does not count ------------------------------------------------------------------


@every_class
def test_a_view_written_by_an_op_that_writes_several(make):
    """What ``_foreach`` ops write of wrappers is not counted: a view keeps the history that it had before."""

    def f(x):
        x.neg_()
        torch._foreach_mul_([x], 2)
        return x

    def session(compile):
        x = make(3, grad=True)
        base = x.clone()
        view = base.view(-1)
        y = compile(f)(view)
        for t in (y, base, view):
            yield x, base, view, y
            t.backward(cotangent(t), retain_graph=True)
        yield x, base, view, y

    check_session(session)


def test_a_base_written_and_then_its_views_by_an_op_that_writes_several():
    def f(x, y, base):
        base.neg_()
        torch._foreach_mul_([x, y[1:]], [2, 3])
        return x * 2, y * 5, base * 7

    def session(compile):
        x = two(3, grad=True)
        base = x.clone()
        views = base.view(-1), base[:]
        results = compile(f)(*views, base)
        for t in (*results, base, *views):
            yield x, base, views, results
            t.backward(cotangent(t), retain_graph=True)
        yield x, base, views, results

    check_session(session)


def test_a_view_made_inside_written_by_an_op_that_writes_several():
    def f(x):
        y = x.view(-1)
        y.neg_()
        torch._foreach_abs_([y])
        return y, y * 3, x * 2

    def session(compile):
        leaf_ = two(3, grad=True)
        x = leaf_.clone()
        results = compile(f)(x)
        for t in (*results, x):
            yield leaf_, x, results
            t.backward(cotangent(t), retain_graph=True)
        yield leaf_, x, results

    check_session(session)


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_wrapper_detached_in_inference_mode_keeps_its_history(is_leaf):
    def f(x):
        with torch.inference_mode():
            x.detach_()
        return x * 2

    def session(compile):
        leaf_ = two(3, grad=True)
        x = leaf_ if is_leaf else leaf_ * 1
        y = compile(f)(x)
        yield leaf_, x, y
        y.backward(cotangent(y))
        yield leaf_, x, y

    check_session(session)


# -- views of what goes elsewhere, or gets another shape -----------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_views_of_a_wrapper_that_is_put_on_other_memory(grad):
    def f(x):
        before, elsewhere = x.view(-1), x * 2
        with torch.no_grad():
            x.set_(elsewhere)
        return before, x[:1]

    def session(compile):
        leaf_ = two(3, grad=grad)
        x = leaf_.clone()
        views = compile(f)(x)
        yield leaf_, x, views
        for t in (x, *views):
            with torch.no_grad():
                t.add_(1)
            yield leaf_, x, views
        if grad:
            yield attempt_later(lambda: views[0].backward(cotangent(views[0])))
            yield leaf_

    check_session(session)


@pytest.mark.parametrize("is_view", [False, True])
def test_a_part_of_a_view_that_is_reshaped_after_that_was_written(is_view):
    def f(x):
        y = x.expand(2, 3)
        part = y[1:].add_(1)
        y.swapaxes_(0, 1)
        return part, y, y * 3

    def session(compile):
        leaf_ = tagged(3, grad=True)
        x = leaf_.clone()
        results = compile(f)(x.view(-1) if is_view else x)
        for t in results:
            yield leaf_, results
            t.backward(cotangent(t), retain_graph=True)
        yield leaf_, results

    check_session(session)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_ragged_argument_that_is_a_view_of_another_with_its_ragged_size(requires_grad):
    def f(x, view):
        x.exp_()
        return view * 2

    def session(compile):
        leaf_ = jagged(2, 2, grad=requires_grad)
        x = leaf_ * 1
        view = x.view_as(x)
        y = compile(f)(x, view)
        yield leaf_, x, view, y
        if requires_grad:
            y.backward(y.detach())
            yield leaf_

    check_session(session)


# -- plain views of ragged tensors ---------------------------------------------------------------------


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("way", [lambda x: x, lambda x: x.view_as(x), torch.sin], ids=["itself", "view", "result"])
def test_the_values_of_a_ragged_tensor_written_before_their_backward(part, way):
    """Eager makes the history of a view anew that was written since, with what it keeps as it is then."""

    def f(x):
        values = way(x).values()
        return values[1:] if part else values

    def session(compile):
        leaf_ = jagged(1, 3, grad=True)
        values = compile(f)(leaf_ * 1)
        with torch.no_grad():
            values.add_(1)
        yield leaf_, values
        yield attempt_later(lambda: values.backward(torch.ones_like(values)))
        yield leaf_, values

    check_session(session)
