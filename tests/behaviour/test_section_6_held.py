"""BEHAVIOUR 6: what views of wrappers hold, which the function reads, returns and changes; views detached in place."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.harness import attempt, attempt_later, backward, check, check_session, leaf, plain
from tests.behaviour.wrappers import Tagged, Wraps, extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def held(x, which=-1):
    """One of the tensors that a wrapper holds."""
    return getattr(x, x.__tensor_flatten__()[0][which])


# -- views detached in place


def ragged_view(grad):
    values = plain(3, 2)
    ragged = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3], device=values.device))
    return ragged.requires_grad_(grad)


VIEWS = {
    "ragged": lambda: ragged_view(False),
    "ragged-leaf": lambda: ragged_view(True),
    "wrapper": lambda: two(2, 2).t(),
    "wrapper-with-history": lambda: two(2, 2, grad=True).clone().t(),
    "plain": lambda: plain(2, 2).t(),
    "plain-with-history": lambda: leaf(2, 2).clone().t(),
    "no view": lambda: two(2, 2, grad=True).clone(),
    "plain, no view": lambda: leaf(2, 2).clone(),
}


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad], ids=["grad", "no_grad"])
@pytest.mark.parametrize("detach", [torch.Tensor.detach_, torch.detach_], ids=["method", "function"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_an_argument_is_detached_in_place(make, detach, around):
    """Eager refuses it of views, whether they require grad or not."""

    def session(compile):
        def function(x):
            with around():
                detach(x)
            return x

        x = make()
        yield attempt(lambda: compile(function)(x)), x

    check_session(session)


def test_what_is_computed_is_detached_in_place_by_a_function():
    def function(x):
        y, z = x * 2, x * 3
        torch.detach_(input=y)
        return y, z, y * x

    check(function, lambda: (leaf(3),))


# -- what views hold is one object with what is returned


@every_class
@pytest.mark.parametrize("grad", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("first", ["view", "held"])
@pytest.mark.parametrize("view", ["t", "detach", "data", "view_as"])
def test_what_a_view_holds_is_returned_beside_it(make, grad, first, view):
    views = {"data": lambda x: x.data, "view_as": lambda x: x.view_as(x)}

    def function(x):
        y = views[view](x) if view in views else getattr(x, view)()
        inner = held(y)
        with torch.no_grad():
            inner.zero_()
        return (y, inner) if first == "view" else (inner, y)

    check(function, lambda: (make(2, 2, grad=grad),))


def test_what_a_view_of_a_view_of_a_scalar_holds_is_returned_before_it():
    def function(x):
        y = x.view((1, 1))
        y.fill_diagonal_(0)
        return held(y), y

    def session(compile):
        x = tagged().as_strided((1,), (1,))
        with torch.no_grad():
            yield compile(function)(x), x

    check_session(session)


def test_a_wrapper_that_an_alias_of_a_nested_one_holds_is_returned_after_it():
    def function(x):
        y = x.data
        inner = held(y)
        inner.zero_()
        other = TwoTensor(y * 1, y * 2)
        return y, other, inner

    check(function, lambda: (nested(2),))


def test_what_a_new_wrapper_holds_counts_writes_with_what_it_is_an_alias_of():
    def function(x):
        return TwoTensor(x.detach(), x.detach()), x.sin()

    def session(compile):
        x = two(2, 2, grad=True)
        made, result = compile(function)(x)
        made.a.mul_(3)
        yield x, made, attempt_later(lambda: backward([result]))

    check_session(session)


@pytest.mark.parametrize("name", ["unsqueeze_", "t_", "squeeze_"])
@pytest.mark.parametrize("is_view", [False, True], ids=["argument", "view"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_new_wrapper_of_what_is_reshaped(name, is_view, when):
    def change(x):
        getattr(x, name)(*([0] if name == "unsqueeze_" else []))

    def function(x):
        y = x.view(1, 4) if is_view else x
        if when == "before":
            change(y)
        made = tagged_of(y)
        if when == "after":
            change(y)
        return made, y

    def tagged_of(y):
        return Tagged(y.detach(), "of a view")

    check(function, lambda: (two(1, 4),))


def test_a_wrapper_made_inside_of_a_plain_tensor_that_is_then_reshaped():
    def function(x):
        y = torch.sin(x)
        made = Tagged(y, "of it")
        y.unsqueeze_(0)
        return made, y

    check(function, lambda: (plain(2, 2),))


def test_a_new_wrapper_is_reshaped_which_holds_an_alias_of_a_view_made_under_no_grad():
    """Below its class no version is counted."""

    def function(x, y):
        made = TwoTensor(y.detach(), y.detach())
        made.transpose_(0, -1)
        return (made,)

    def session(compile):
        x = two(2, 2, grad=True).clone()
        with torch.no_grad():
            y = x.t()
        yield compile(function)(x, y), x, y

    check_session(session)


# -- what the caller writes of it before a backward


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("op", [torch.sin, torch.exp], ids=["keeps-operand", "keeps-result"])
def test_what_a_saved_result_holds_is_written(op, part):
    """No version of the wrapper's own is counted, so eager goes on, and reads what was written."""

    def function(x):
        y = Wraps.apply(x)
        return op(y), y

    def session(compile):
        x = leaf(2, 2)
        results = compile(function)(x.clone() * 1)
        with torch.no_grad():
            held(results[0], part).mul_(3)
            held(results[1], part).mul_(5)
        yield attempt_later(lambda: backward([results[0]])), x.grad, results

    check_session(session)


@every_class
@pytest.mark.parametrize("by", ["itself", "view"])
@pytest.mark.parametrize("op", ["exp_", "sigmoid_", "tanh_"])
def test_what_an_argument_holds_is_written_that_an_op_has_written_and_keeps(make, op, by):
    def function(x, y):
        getattr(x if by == "itself" else y, op)()
        return x * 1

    def session(compile):
        root = make(2, 2, grad=True)
        x = root * 1
        y = x.view(4)
        result = compile(function)(x, y)
        inner = held(x)
        with torch.no_grad():
            (held(inner) if make is nested else inner).mul_(3)
        yield result, x, y
        yield attempt_later(lambda: backward([result])), root

    check_session(session, rtol=1e-6)


@every_class
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64], ids=["bool", "int64"])
def test_a_wrapper_of_integers_made_inside_is_filled_from_what_requires_grad(make, dtype):
    def function(x, y):
        made = x.to(dtype)
        made.fill_(y.sum())
        return made, y * 2

    check(function, lambda: (make(2, 2), leaf(2)), probe=False)


@pytest.mark.parametrize("name", ["transpose_", "unsqueeze_"])
def test_a_new_wrapper_is_reshaped_that_holds_an_argument_and_what_is_made_inside(name):
    def function(x, y):
        made = TwoTensor(x, y * 2)
        getattr(made, name)(*((0, -1) if name == "transpose_" else (0,)))
        return made, x

    check(function, lambda: (two(2, 2), two(2, 2, seed=5)))


# -- what wrappers find out and share: how long the longest row of a ragged tensor is


LENGTHS = {
    "softmax": lambda x: torch.softmax(x, 1),
    "softmax of the last": lambda x: torch.softmax(x, -1),
    "softmax twice": lambda x: (torch.softmax(x, 1), torch.softmax(x * 2, 1)),
    "product": lambda x: torch.softmax(x, 1) * x,
    "in place": lambda x: (torch.softmax(x, 1), x.mul_(2)),
    "view": lambda x: (torch.softmax(x, 1), x.unsqueeze(-1), x.detach()),
    "lengths": lambda x: (x._maybe_max_seqlen, x._get_max_seqlen(), x._get_min_seqlen(), x * 2),
    "nothing": lambda x: torch.softmax(x, 1)[0].sum(),
    "made inside": lambda x: torch.softmax(
        torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()).tanh(), 1
    ),
}


@pytest.mark.parametrize("function", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("asked", ["not", "before", "of another"])
@pytest.mark.parametrize("shape", [(4,), (4, 3)], ids=str)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
def test_the_largest_length_of_a_ragged_tensor_is_found_out_once(function, asked, shape, grad):
    def session(compile):
        compiled = compile(function)
        values = plain(*shape)
        x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 4], device=values.device))
        y = x.requires_grad_(grad) * 2
        if asked != "not":
            (x if asked == "of another" else y)._get_max_seqlen()
        for _ in range(2):
            results = compiled(y)
            results = results if isinstance(results, tuple) else (results,)
            ragged = [t for t in (x, y, *results) if isinstance(t, torch.Tensor) and t.layout is torch.jagged]
            yield [t.__tensor_flatten__()[0] for t in ragged]
            for name in ("_max_seqlen_tensor", "_min_seqlen_tensor"):
                yield [[getattr(a, name) is getattr(b, name) for b in ragged] for a in ragged]
        yield results

    check_session(session)
