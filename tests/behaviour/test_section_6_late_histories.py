"""BEHAVIOUR 6: histories of wrappers and their views where a base is cut off, or an op counts no write."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import Halves
from tests.behaviour.harness import attempt_later, backward, check, check_session, differentiable, leaf, plain
from tests.behaviour.wrappers import extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def with_its_view(function, make, observed=None):
    """A session of ``function`` of what is computed of a leaf, and of a view of that."""

    def session(compile):
        root = make(2, 2, grad=True)
        x = root * 1
        y = x.view(4)
        results = compile(function)(x, y)
        yield results, x, y
        for t in differentiable((results, x, y)):
            yield attempt_later(lambda t=t: backward([t], retain_graph=True)), root, results, x, y

    return session


# -- a base is cut from its history


def written_and_cut(x, y):
    y.zero_()
    x.detach_()
    return (x,)


def written_used_and_cut(x, y):
    y.mul_(2)
    x.detach_()
    return x, y * 2


def written_reshaped_and_cut(x, y):
    y.mul_(y)
    y.unsqueeze_(0)
    x.detach_()
    return x, y * 2


def written_cut_and_required(x, y):
    y.mul_(2)
    x.detach_()
    x.requires_grad_()
    return x, y * 2, x * 3


def written_cut_and_written(x, y):
    y.mul_(2)
    x.detach_()
    x.mul_(3)
    return (x,)


def looked_at_and_cut(x, y):
    x.mul_(2)
    looked_at = y.is_leaf  # autograd looks for its history here
    x.detach_()
    return x, y * 2, looked_at


CUT = [
    written_and_cut,
    written_used_and_cut,
    written_reshaped_and_cut,
    written_cut_and_required,
    written_cut_and_written,
    looked_at_and_cut,
]


@every_class
@pytest.mark.parametrize("function", CUT)
def test_a_view_keeps_its_history_where_its_base_is_cut(function, make):
    check_session(with_its_view(function, make))


def test_a_view_of_a_view_of_what_is_written_and_cut():
    """Torch refuses to say its history; the call goes through all the same."""

    def function(x, y):
        row = x[0]
        more = row.expand(2, *row.shape)
        y.mul_(2)
        x.detach_()
        return (more,)

    def session(compile):
        x = two(2, 2, grad=True) * 1
        (more,) = compile(function)(x, x.view(4))
        yield held_values(more), held_values(x)

    check_session(session)


def held_values(x):
    return [getattr(x, name).clone() for name in x.__tensor_flatten__()[0]]


def test_a_leaf_is_cut_and_required_again():
    def function(x):
        before = x * 2
        x.detach_()
        x.requires_grad_()
        return before, x, x * 3

    check(function, lambda: (two(2, 2, grad=True),))


@pytest.mark.parametrize("view", ["unsqueeze", "detach"])
def test_a_view_of_a_view_argument_that_is_told_to_require_grad_later(view):
    def function(x):
        y = x.unsqueeze(0) if view == "unsqueeze" else x.detach()
        x.requires_grad_()
        return y, x * 2

    check(function, lambda: (two(2, 2).t(),))


# -- ops that count no write of wrappers


def one_and_reshaped(x, y):
    torch._foreach_zero_([y])
    y.unsqueeze_(0)
    return (y,)


def twice_and_reshaped(x, y):
    torch._foreach_zero_([y, y])
    y.squeeze_()
    y.unsqueeze_(0)
    return (y * 2,)


def reshaped_and_one(x, y):
    y.unsqueeze_(0)
    torch._foreach_mul_([y, y], 2)
    y.squeeze_(0)
    return (y,)


def a_view_made_before(x, y):
    torch._foreach_zero_([y])
    z = x.unsqueeze(0)
    y.unsqueeze_(0)
    return (z,)


def a_base_and_a_view_that_is_reshaped(x, y):
    torch._foreach_mul_([x], 2)
    y.unsqueeze_(0)
    return (y * 2,)


UNCOUNTED = [one_and_reshaped, twice_and_reshaped, reshaped_and_one, a_view_made_before]
UNCOUNTED += [a_base_and_a_view_that_is_reshaped]


@every_class
@pytest.mark.parametrize("function", UNCOUNTED)
def test_an_op_on_several_writes_a_view_that_is_then_reshaped(function, make):
    check_session(with_its_view(function, make))


@every_class
@pytest.mark.parametrize("write", ["random_", "zero_", "mul_"])
def test_a_part_of_a_view_that_was_written_is_reshaped(make, write):
    def function(x, y):
        getattr(y, write)(*([3] if write == "mul_" else []))
        part = y[1:2]
        part.squeeze_(0)
        return (part,)

    check_session(with_its_view(function, make))


# -- versions of what wrappers hold


@every_class
@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_"])
def test_a_wrapper_is_reshaped_of_which_something_kept_what_it_holds(make, name):
    """Below its class no write is counted, and no error raised."""

    def function(x):
        getattr(x, name)(*([0] if name == "unsqueeze_" else []))
        return ()

    def session(compile):
        x = make(2, 1)
        inner = getattr(x, x.__tensor_flatten__()[0][0])
        w = leaf(2, 1)
        product = inner * (two(2, 1, grad=True) if make is nested else w)
        compile(function)(x)
        yield x, attempt_later(lambda: backward([product])), w.grad

    check_session(session)


def test_a_tensor_requires_grad_after_a_wrapper_of_a_view_of_it_was_reshaped():
    def function(x, y):
        x.transpose_(0, -1)
        y.requires_grad_()
        return (y * 2,)

    def session(compile):
        y = plain(2, 2)
        x = tagged(2, 2)
        x.elem = y.view(4).view(2, 2)
        yield compile(function)(x, y), x, y

    check_session(session)


# -- ragged sizes


def test_a_backward_for_which_torch_makes_a_plain_tensor_of_ragged_size():
    def function(x):
        y, _ = Halves.apply(x)
        return y.view_as(x)

    def session(compile):
        values = plain(4, 3)
        offsets = torch.tensor([0, 2, 4], device=values.device)
        root = torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_()
        result = compile(function)(root * 2)
        try:
            result.backward(torch.ones_like(result.detach()))
        except Exception as error:
            yield type(error)
        yield root.grad

    check_session(session)


@pytest.mark.parametrize("view", ["values", "view of values", "two"])
@pytest.mark.parametrize("write", ["logical_not_", "zero_"])
def test_views_of_a_ragged_argument_made_before_its_memory_was_written_by_another(view, write):
    """A view of a ragged tensor that is a view of plain memory; torch refuses to say its history afterwards."""

    def function(x, y):
        v = x.values()
        made = {"values": (v,), "view of values": (v[1:],), "two": (v, v.unsqueeze(0))}[view]
        with torch.no_grad():
            getattr(y, write)()
        return made

    def session(compile):
        values = plain(3, 2)
        alias = values.detach()
        offsets = torch.tensor([0, 1, 3], device=values.device)
        x = torch.nested.nested_tensor_from_jagged(alias, offsets).requires_grad_().unsqueeze(-1)
        results = compile(function)(x, values)
        yield [t.detach().clone() for t in results], values

    check_session(session)


@pytest.mark.parametrize("op", [lambda x: x.softmax(-1), torch.exp, torch.sin], ids=["softmax", "exp", "sin"])
@pytest.mark.parametrize("which", [0, 1], ids=["argument", "result"])
def test_a_ragged_tensor_that_an_op_keeps_is_written_before_the_backward(op, which):
    """Eager's message asks the ragged tensor for its size, which raises another error."""

    def session(compile):
        values = plain(3, 2)
        offsets = torch.tensor([0, 1, 3], device=values.device)
        x = torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_() * 1
        result = compile(op)(x)
        with torch.no_grad():
            (x, result)[which].mul_(2)
        try:
            result.backward(torch.ones_like(result.detach()))
        except Exception as error:
            yield type(error)

    check_session(session)


@pytest.mark.parametrize("write", ["mul_", "fill_", "exp_"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside its base"])
def test_a_ragged_view_of_a_part_is_written(write, beside):
    """What the view does not show of its base keeps its gradient."""

    def function(x, *_):
        getattr(x, write)(*([2] if write != "exp_" else []))
        return ()

    def session(compile):
        root = leaf(3, 2)
        base = root * 1
        offsets = torch.tensor([0, 1, 3], device=root.device)
        x = torch.nested.nested_tensor_from_jagged(base[:, 0], offsets)
        compile(function)(x, *([base] if beside else []))
        yield base, attempt_later(lambda: backward([base])), root

    check_session(session)


def into_a_row(x, y):
    part = y[1]
    with torch.no_grad():
        y.fill_(2)
    return (part,)


def into_the_ragged_tensor(x, y):
    part = y[1]
    x.exp_()
    return (part,)


@pytest.mark.parametrize("function", [into_a_row, into_the_ragged_tensor])
@pytest.mark.parametrize("way", ["row", "values under no_grad"])
def test_a_view_of_a_plain_view_of_a_ragged_tensor_that_is_then_written(function, way):
    """Its history cannot be looked for anew, so it is made before the write."""

    def session(compile):
        offsets = torch.tensor([0, 1, 4], device=plain(1).device)
        x = torch.nested.nested_tensor_from_jagged(plain(4, 2), offsets).requires_grad_() * 1
        with torch.set_grad_enabled(way == "row"):
            y = x.unbind()[1] if way == "row" else x.values()
        results = compile(function)(x, y)
        yield [t.data.clone() for t in (*results, y)], [attempt_later(lambda t=t: t.is_leaf) for t in results]

    check_session(session)
