"""When autograd updates the grad_fn of a written view that moves, before, between or after."""

import itertools

import pytest
import torch

from tests.behaviour.harness import Raised, attempt, attempt_later, backward, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.storage.common import _quietly, found, gradients_one_by_one


@pytest.mark.parametrize(
    "after", [lambda x, y: setattr(y, "data", x.clone()), lambda x, y: y.data], ids=["too", "alone"]
)
@pytest.mark.parametrize("counted", [lambda y: y.t_(), lambda y: y.squeeze_(0), lambda y: y.mul_(2)], ids=range(3))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("make", [leaf, lambda *n: leaf(*n).clone()], ids=["leaf", "no leaf"])
@session
def test_the_grad_fn_of_a_view_argument_that_moves_after_its_base(compile, make, mode, counted, after):
    def f(x, y):
        with mode():
            counted(y)
        v = y * 2
        x.data = v[0:1].detach()
        after(x, y)
        return v

    x = make(2, 2)
    y = x[0:1]
    v = compile(f)(x, y)
    yield v, x, y
    yield attempt_later(lambda: y.sum().backward(retain_graph=True)), x.is_leaf and x.grad


LENT = {
    "its base's": lambda x, y: x,
    "part of its base": lambda x, y: x[1:2],
    "a number": lambda x, y: torch.ones((), device=x.device),
    "its own shape": lambda x, y: y.detach().clone(),
    "the same place": lambda x, y: y.detach(),
    "another dtype": lambda x, y: torch.ones(3, dtype=torch.float64, device=x.device),
}

WRITES_OF_IT = {
    "a product": lambda x, y: x.mul_(2),
    "a product without grad": lambda x, y: quietly(x.mul_, 2),
    "two writes": lambda x, y: (x.mul_(2), y.mul(2), x.mul_(3)),
}


def quietly(write, by):
    with torch.no_grad():
        write(by)


@pytest.mark.parametrize("lent", LENT.values(), ids=LENT)
@pytest.mark.parametrize("write", WRITES_OF_IT.values(), ids=WRITES_OF_IT)
@pytest.mark.parametrize("made", ["of a leaf", "of a result", "of what is no argument"])
@pytest.mark.parametrize("used", ["then", "before", "both", "viewed"])
@session
def test_the_grad_fn_of_a_view_that_is_read_while_it_has_other_data(compile, lent, write, made, used):
    def function(x, y):
        results = []
        write(x, y)
        own = y.detach()
        y.data = lent(x, y)
        if used == "before":
            results.append(x * 2)
        results.append(y.unsqueeze(0) if used == "viewed" else y.clone())
        y.data = own
        if used == "both":
            results += [y * 3, x * 4]
        return tuple(results)

    compiled = compile(function)
    root = leaf(3, 2)
    x = {"of a leaf": root, "of a result": root.clone(), "of what is no argument": root.clone()[:]}[made]
    y = x[::2]
    for _ in range(2):
        results = attempt(lambda: compiled(x, y))
        yield results if isinstance(results, Raised) else len(results)
        tensors = (*(() if isinstance(results, Raised) else results), x, y)
        for t in tensors:
            yield found(lambda t=t: (t.shape, t.requires_grad, t.is_leaf, t.detach()))
        yield from gradients_one_by_one(tensors, [root])


class Viewed(torch.autograd.Function):
    """A view that autograd does not know the derivative of."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def without_grad(x):
    with torch.no_grad():
        return x.unsqueeze(0).requires_grad_()


ODD = {
    "under no_grad": lambda: without_grad(plain(3)),
    "under no_grad, of a leaf": lambda: without_grad(leaf(3)),
    "under no_grad, of a result": lambda: without_grad(leaf(3) * 2),
    "with others": lambda: (leaf(2, 1, 3) * 2).unbind()[0],
    "by a custom Function": lambda: Viewed.apply(leaf(1, 3) * 2),
    "by an op": lambda: (leaf(1, 3) * 2).view(1, 3),
}
"""Arguments that are views; but for the last, autograd does not look for the history of a written view of these."""

AND_THEN = {
    "the view": lambda first, second: second,
    "both": lambda first, second: (second, first),
    "a view of the view": lambda first, second: second.t(),
}


@pytest.mark.parametrize("wrote", ["the argument", "its base", "the view", "the view under grad"])
@pytest.mark.parametrize("then", AND_THEN.values(), ids=AND_THEN)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@session
def test_a_view_of_a_moved_view_has_eagers_error_for_its_grad_fn(compile, odd, then, wrote):
    def function(x):
        first = x.t()
        second = first.t()
        first.data = x
        return then(first, second)

    x = odd()
    views = compile(function)(x)
    view, *_ = views = views if isinstance(views, tuple) else (views,)
    if wrote == "the view under grad":
        yield found(lambda: view.add_(1) is view)
    else:
        quietly(lambda t: t.add_(1), {"the argument": x, "its base": x._base, "the view": view}[wrote])
    for t in (*views, x):
        yield found(lambda t=t: (t.is_leaf, t.grad_fn is None, t.detach()))
    yield found(lambda: torch.autograd.grad(view, [x], to_device(torch.ones(view.shape)), allow_unused=True))


def _other_strides(x, y):
    x.zero_()
    x.data = x.clone()
    return x


def _other_strides_twice(x, y):
    x.zero_()
    x.data = x.clone()
    x.data = y
    return x


def _reshaped_after_other_strides(x, y):
    x.zero_()
    x.data = x.clone()
    x.unsqueeze_(0)
    return x


@pytest.mark.parametrize("f", [_other_strides, _other_strides_twice, _reshaped_after_other_strides])
@session
def test_a_written_expanded_view_keeps_its_strides_in_its_history_when_it_moves(compile, f):
    root = leaf()
    base = root.clone()
    x = base.expand(2)
    y = compile(f)(x, plain(2))
    yield y, base
    yield torch.autograd.grad(y.sum(), base)


ROWS = {
    "row": lambda x: x.view(1, -1),
    "t": lambda x: x.t(),
    "part": lambda x: x[:1],
    "reshaped": lambda x: x.t().unsqueeze_(0),
    "strided": lambda x: x.t().as_strided_((2,), (2,)),
}

OTHER_DATA = {"argument": lambda x, v: x, "its transpose": lambda x, v: v.transpose(0, -1), "a part": lambda x, v: v[0]}


@pytest.mark.parametrize("other", OTHER_DATA.values(), ids=OTHER_DATA.keys())
@pytest.mark.parametrize("view", ROWS.values(), ids=ROWS.keys())
@session
def test_the_grad_fn_of_a_view_made_inside_that_is_written_and_then_moves(compile, view, other):
    def f(x):
        v = view(x)
        v.mul_(2)
        v.data = other(x, v)
        return v

    root = leaf(2, 3)
    x = root.clone()
    v = compile(f)(x)
    yield v, x
    shape = view(x).shape  # gradients fit what the history recorded
    for g in (torch.ones_like(v), plain(*shape)):
        yield attempt_later(lambda g=g: torch.autograd.grad(v, root, g, retain_graph=True))


LOOKS_AT_NOTHING = {
    "data": lambda x, y: setattr(x, "data", y),
    "swap": lambda x, y: torch.utils.swap_tensors(x, x),
    "nothing": lambda x, y: None,
}


@pytest.mark.parametrize("act", LOOKS_AT_NOTHING.values(), ids=LOOKS_AT_NOTHING.keys())
@session
def test_data_assignment_and_swap_do_not_update_the_grad_fn_of_a_written_view(compile, act):
    def f(x, y):
        with torch.no_grad():
            x.zero_()
        with torch.inference_mode():  # where torch could not make the view again to find it
            act(x, y)
        return x.clone()

    root = leaf(3, dtype=torch.complex64)
    x = root.conj()
    y = compile(f)(x, plain(2, 3, dtype=torch.complex64))
    yield y, x
    yield attempt_later(lambda: torch.autograd.grad(y.real.sum(), root))


@pytest.mark.parametrize("data", ["base", "other", "none"])
@pytest.mark.parametrize("write", [0, 1, 2], ids=["base", "view", "no"])
@session
def test_the_grad_fn_of_a_view_of_a_moved_view_after_a_write(compile, data, write):
    def f(x, y, other):
        v = y.t()
        if data != "none":
            y.data = x if data == "base" else other
        if write < 2:
            (x, y)[write].logical_not_()
        return v

    x, other = leaf(2, 1), plain(1, 2, seed=4)
    y = x.t()
    v = compile(f)(x, y, other)
    yield attempt(lambda: torch.autograd.grad(v, [x, y], torch.ones_like(v), allow_unused=True))
    yield v, x, y


@pytest.mark.parametrize("view", [lambda x: x.unbind(0)[-1], lambda x: x[:1]], ids=["one of several", "part"])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["elsewhere", "there"])
@pytest.mark.parametrize("unseen", [lambda x, part: part.mul_(2), lambda x, part: x.data.mul_(2)], ids=["part", "data"])
@session
def test_the_grad_fn_of_a_view_made_between_a_write_and_one_through_data(compile, view, elsewhere, unseen):
    def f(x):
        part = torch.unsafe_split(x, 1)[0]
        x.mul_(2)
        made = view(x)
        if elsewhere:
            made.data = x.clone()
        unseen(x, part)
        return made

    root = leaf(2, 2)
    out = compile(f)(root * 1)
    yield out, root
    if not elsewhere:
        yield torch.autograd.grad(out, root, torch.ones_like(out))


EVENTS = {
    "turned": lambda x, y: setattr(x, "data", x.mT),
    "turned elsewhere": lambda x, y: setattr(x, "data", x.mT.clone()),
    "put on another": lambda x, y: setattr(x, "data", y),
    "transposed": lambda x, y: x.transpose_(-1, -2),
    "transposed quietly": _quietly(lambda x, y: x.transpose_(-1, -2)),
    "unsqueezed": lambda x, y: x.unsqueeze_(0),
    "written": lambda x, y: x.mul_(2),
    "written quietly": _quietly(lambda x, y: x.mul_(2)),
}

MOVES = set(list(EVENTS)[:3])

WAYS = [way for n in (2, 3) for way in itertools.permutations(EVENTS, n) if MOVES & set(way)]


@pytest.mark.parametrize("way", WAYS, ids=", ".join)
@session
def test_the_grad_fn_of_a_view_argument_moved_reshaped_and_written_in_any_order(compile, way):
    def f(x, y):
        for event in way:
            EVENTS[event](x, y)
        return x[..., 0]

    root = leaf(2, 2)
    x, y = root.clone().view(2, 2), plain(2, 2, seed=3)
    out = compile(f)(x, y)
    yield out, x, y
    yield attempt_later(lambda: backward([out])), root.grad
    yield attempt_later(lambda: torch.autograd.grad(x.sum(), root))
