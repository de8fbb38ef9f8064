"""BEHAVIOUR 3: views that ``.data =`` took elsewhere, or whose base it did, are still views of that base."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import (
    Raised,
    attempt,
    attempt_later,
    check,
    check_session,
    cotangent,
    given,
    leaf,
    plain,
)


def other(*shape):
    return plain(*shape, seed=4)


def found(action):
    """What it gives; of errors, whose messages name nodes, that there is one."""
    result = attempt_later(action)
    return "raised" if isinstance(result, Raised) else result


def gradients(outputs, root):
    for t in outputs:
        if t.requires_grad:
            yield found(lambda t=t: torch.autograd.grad([t], root, [cotangent(t)], retain_graph=True)[0].contiguous())


def session_of(function, make):
    """The call, and then what the caller writes to each result, with the gradients before and after."""

    def session(compile):
        root = leaf(3, 2)
        x = make(root)
        outputs = compile(function)(x)
        yield outputs, x, root
        yield list(gradients(outputs, root))
        for t in outputs:
            yield found(lambda t=t: t.mul_(2)), outputs, x
            yield list(gradients(outputs, root))

    return session


def no_grad_part(root):
    with torch.no_grad():
        return root[1:]


ARGUMENTS = [
    pytest.param(lambda root: root, id="leaf"),
    pytest.param(lambda root: root * 1, id="computed"),
    pytest.param(lambda root: root[1:], id="view of a leaf"),
    pytest.param(lambda root: root.clone()[1:], id="view"),
    pytest.param(no_grad_part, id="view made under no_grad"),
]
NO_LEAVES = [ARGUMENTS[1], ARGUMENTS[3]]  # of which views may be written
VIEWS = [
    pytest.param(lambda x: x.t(), id="t"),
    pytest.param(lambda x: x[:1], id="part"),
    pytest.param(lambda x: x[1], id="row"),
    pytest.param(lambda x: x.view(-1).view(x.shape), id="view of a view"),
]
MOVES = [
    pytest.param(lambda t, x: other(2, 2), id="other data"),
    pytest.param(lambda t, x: other(3), id="other shape"),
    pytest.param(lambda t, x: x.detach()[-2:], id="data of the argument"),
]


@pytest.mark.parametrize("make", ARGUMENTS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("data", MOVES)
def test_the_base_made_inside_goes_elsewhere(make, view, data):
    def f(x):
        base = x.clone()
        v = view(base)
        base.data = data(base, x)
        return v, base

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", ARGUMENTS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("data", MOVES)
def test_the_base_made_inside_goes_from_place_to_place(make, view, data):
    def f(x):
        base = x.clone()
        base.data = other(2, 3)
        v = view(base)
        base.data = data(base, x)
        base.mul_(2)
        return v, base

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", NO_LEAVES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("data", MOVES)
@pytest.mark.parametrize("written", ["before", "after", "before, and used", "not at all"])
@pytest.mark.parametrize("inside", [False, True], ids=["of the argument", "of what is made inside"])
def test_a_view_goes_elsewhere(make, view, data, written, inside):
    def f(x):
        base = x.clone() if inside else x
        v = view(base)
        if written.startswith("before"):
            v.mul_(2)
        used = v * v if written == "before, and used" else None
        v.data = data(v, x)
        if written == "after":
            v.mul_(2)
        return [t for t in (v, used, base if inside else None) if t is not None]

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", NO_LEAVES)
@pytest.mark.parametrize("change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
@pytest.mark.parametrize("when", ["before", "after", "between", "both"])
@pytest.mark.parametrize("inside", [False, True], ids=["of the argument", "of what is made inside"])
def test_a_view_that_is_reshaped_goes_elsewhere(make, change, when, inside):
    def f(x):
        base = x.clone() if inside else x
        v = base.t()
        if when in ("before", "both"):
            change(v)
        v.data = other(2, 2)
        if when != "before":
            change(v)
        if when == "between":
            v.data = other(1)
        return (v, base) if inside else (v,)

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", ARGUMENTS[:4])
@pytest.mark.parametrize("second", [lambda x, v, w: v, lambda x, v, w: w, lambda x, v, w: x], ids=["v", "w", "base"])
@pytest.mark.parametrize("first", [lambda x, v, w: v, lambda x, v, w: w, lambda x, v, w: x], ids=["v", "w", "base"])
@pytest.mark.parametrize("written", [None, 0, 1, 2], ids=["not written", "v", "w", "base"])
def test_views_of_views_go_elsewhere(make, first, second, written):
    def f(x):
        base = x.clone()
        v = base.t()
        w = v[:1]
        first(base, v, w).data = other(2, 2)
        if written is not None:
            (v, w, base)[written].mul_(2)
        second(base, v, w).data = other(2, 1)
        return v, w, base

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", NO_LEAVES)
def test_a_view_of_a_written_view_moves_after_it(make):
    def f(x):
        y = x.t()
        v = y.t()
        v.mul_(2)
        y.data = other(2, 2)
        used = v * v * y.sum()
        v.data = y
        return used, v, y

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", [ARGUMENTS[3], ARGUMENTS[4]])
def test_a_view_of_a_view_between_two_places(make):
    def f(x):
        y = x.view(2, 2)
        y.data = x
        v = y.t()
        y.data = other(2, 2)
        return v, y

    check_session(session_of(f, make))


@pytest.mark.parametrize("write", [lambda x, y: x.zero_(), lambda x, y: y.mul_(2)], ids=["base", "view"])
@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
@pytest.mark.parametrize("source", [lambda x: x, lambda x: x.detach(), lambda x: torch.ones(2, 2)])
@pytest.mark.parametrize("returned", [0, 1])
def test_set_of_a_view_of_what_was_written_and_reshaped(write, reshape, source, returned):
    """It becomes part of the history of its base, too: torch has no derivative of it."""

    def f(x, y):
        write(x, y)
        reshape(x)
        y.set_(source(x))
        return (x, y)[returned]

    def session(compile):
        root = leaf(2, 2)
        x = root.clone()
        y = x.t()
        out = compile(f)(x, y)
        yield out, x, y
        yield attempt_later(lambda: torch.autograd.grad(out.sum(), root))

    check_session(session)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("recording", [True, False])
def test_a_leaf_viewed_under_no_grad_that_is_given_other_data_is_a_leaf_whatever_writes_it_later(writes, recording):
    def f(x):
        with torch.no_grad():
            view = x.t()
        if writes:
            x.zero_()
        other = x.clone()
        view.requires_grad_()
        view.data = other
        return view

    def session(compile):
        view = compile(f)(plain(2, 3))
        with torch.set_grad_enabled(recording):
            yield attempt_later(lambda: view.add_(1))
        yield attempt_later(lambda: view.is_leaf), view

    check_session(session)


@pytest.mark.parametrize("view", [lambda y: y.unsqueeze(0), lambda y: y.detach().unsqueeze(0)], ids=["view", "alias"])
@pytest.mark.parametrize("of_leaf", [True, False])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_view_made_under_no_grad_is_given_data_of_another_shape_again_and_again(calls, of_leaf, view):
    """No gradient ever arrives at it, of whatever shape."""

    def f(x):
        y = x * 2
        x.data = view(y)
        return y

    def session(compile):
        root = leaf(2)
        base = root if of_leaf else root * 1
        with torch.no_grad():
            x = base.view(2)
        g = compile(f)
        for _ in range(calls):
            y = g(x)
            yield y, x, attempt_later(lambda y=y: y.sum().backward()), root.grad

    check_session(session)


_VIEWS_THAT_WANDER = {
    "a transpose": lambda x: x.t(),
    "a part": lambda x: x.split([1, 2])[1],
    "no view": lambda x: x,
    "made inside": lambda x: x.clone().t(),
}
_BACK = {
    "its own": lambda v, x: v,
    "an alias of its own": lambda v, x: v.detach().t().t(),
    "its transpose's transpose": lambda v, x: v.t().data.t(),
    "where it came from": lambda v, x: x.view(3, 2)[:2] if v.shape == (2, 2) else x,
}


@pytest.mark.parametrize("again", _BACK.values(), ids=_BACK)
@pytest.mark.parametrize("view", _VIEWS_THAT_WANDER.values(), ids=_VIEWS_THAT_WANDER)
@pytest.mark.parametrize("make", [lambda r: r * 2, lambda r: r.detach()], ids=["with a history", "without"])
@pytest.mark.parametrize("both", [False, True])
def test_a_view_of_what_went_elsewhere_and_was_then_given_data_once_more(both, make, view, again):
    """What it is given may be what it has: then it stays, and so do views of it."""

    def function(x):
        v = view(x)
        v.data = v.detach().clone()
        made = v.t()
        v.data = again(v, x)
        return [v, made] if both else [made]

    check_session(session_of(function, make))


@pytest.mark.parametrize("returned", ["later", "both"])
@pytest.mark.parametrize("change", ["nothing", "reshaped", "written"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_view_is_made_again_of_what_went_where_its_op_does_not_go(size: int, change: str, returned: str):
    """On half of a complex number there is no complex tensor."""

    def f(x):
        elsewhere = x.as_strided((0,), (0,), 1)
        torch.sum(torch.ones((0, 2)), 0, out=elsewhere)
        view = torch.view_as_complex(x)
        x.data = elsewhere
        later = view.t()
        if change == "reshaped":
            view.t_()
        elif change == "written":
            view.add_(1)
        return later if returned == "later" else (view, later)

    check(f, lambda: given(plain(size)[:2]))


class SumAndView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(), x.unsqueeze(0)

    @staticmethod
    def backward(ctx, of_sum, of_view):
        return of_sum if of_view is None else of_view.squeeze(0) + (0 if of_sum is None else of_sum)


@pytest.mark.parametrize("compute", [SumAndView.apply, lambda x: (x * 2, x.unsqueeze(0)), lambda x: (x.sin(),)])
@pytest.mark.parametrize("made", ["view", "leaf", "non-leaf"])
def test_gradients_arrive_in_the_shape_that_an_argument_had_when_it_was_used(made: str, compute):
    def f(x, y):
        y.data = x
        return y, *compute(y)

    def session(compile):
        x, y = plain(), plain(1)
        if made == "view":
            with torch.no_grad():
                y = plain().view(1)
        y.requires_grad_()
        if made == "non-leaf":
            y = y * 1
        _, *results = compile(f)(x, y)
        for t in results:
            yield found(lambda t=t: torch.autograd.grad(t.sum(), y, retain_graph=True))

    check_session(session)


_RESHAPES = {
    "t_": lambda v: v.t_(),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "as_strided_": lambda v: v.as_strided_((1,), (1,)),
    "twice": lambda v: v.unsqueeze_(0).squeeze_(),
}
_DATA = {
    "of the reshaped": lambda x, w: w,
    "of the base": lambda x, w: x[:1],
    "fresh": lambda x, w: torch.ones(2),
}


@pytest.mark.parametrize("data", _DATA.values(), ids=_DATA)
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:2], lambda x: x.unsqueeze(0)])
@pytest.mark.parametrize("reshape", _RESHAPES.values(), ids=_RESHAPES)
@pytest.mark.parametrize("of_argument", [True, False])
@pytest.mark.parametrize("begins", [0, 1, 2])
def test_a_view_beside_one_that_was_reshaped_before_is_given_data_of_another_shape(
    begins: int, of_argument: bool, reshape, view, data
):
    """Being reshaped counts as a write, but it came before: the shape that gradients are to have is the former one."""

    def function(x):
        y = x if of_argument else x * 2
        w = y[:1]
        reshape(w)
        v = view(y)
        v.data = data(y, w)
        return w, v, v.sum()

    def session(compile):
        root = leaf(3)
        results = compile(function)(root.clone())
        yield results
        t = results[begins]
        yield found(lambda: torch.autograd.grad([t], [root], torch.ones_like(t)))

    check_session(session)


# -- a view made without grad of what then goes to a storage that is too small for it -------------------------------


SMALLER = {
    "a number": lambda: torch.ones(()),
    "one element": lambda: torch.ones(1),
    "nothing": lambda: torch.ones(0),
    "another shape": lambda: torch.ones(3, 2),
}
VIEWS_OF_IT = {
    "transposed": lambda x: x.t(),
    "part": lambda x: x[1:],
    "flat": lambda x: x.view(-1),
    "detached": lambda x: x.detach(),
}


@pytest.mark.parametrize("view", VIEWS_OF_IT.values(), ids=VIEWS_OF_IT)
@pytest.mark.parametrize("data", SMALLER.values(), ids=SMALLER)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("then", ["nothing", "used", "base written", "view written", "viewed"])
def test_a_view_made_without_grad_of_what_goes_to_a_smaller_storage(view, data, mode, then):
    def function(x, y):
        match then:
            case "used":
                result = y * 2, x * 2
            case "base written":
                result = x.mul_(2), y * 3
            case "view written":
                result = (y.mul_(2),)
            case "viewed":
                result = (y.unsqueeze(0),)
            case _:
                result = ()
        x.data = data().to(x.device)
        return result

    def session(compile):
        compiled = compile(function)
        root = leaf(2, 2)
        x = root.clone()
        with mode():
            y = view(x)
        for _ in range(2):
            results = attempt(lambda: compiled(x, y))
            yield results if isinstance(results, Raised) else len(results)
            for t in (*(() if isinstance(results, Raised) else results), x, y):
                yield attempt_later(lambda t=t: (t.shape, t.requires_grad, t.is_leaf, t.grad_fn is None, t.detach()))
                if t.requires_grad:
                    ones = torch.ones_like(t)
                    yield attempt_later(
                        lambda t=t, ones=ones: torch.autograd.grad(
                            t, [root], ones, retain_graph=True, allow_unused=True
                        )
                    )

    check_session(session)


# -- a view whose base was written has other data for a moment, in which its history is looked for ------------------


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
def test_the_history_of_a_view_is_looked_for_while_it_has_other_data(lent, write, made, used):
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

    def session(compile):
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
            yield from gradients(tensors, [root])

    check_session(session)


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
def test_a_view_by_one_that_went_elsewhere_is_refused_as_the_argument_is(odd, then, wrote):
    def function(x):
        first = x.t()
        second = first.t()
        first.data = x
        return then(first, second)

    def session(compile):
        x = odd()
        views = compile(function)(x)
        view, *_ = views = views if isinstance(views, tuple) else (views,)
        if wrote == "the view under grad":
            yield found(lambda: view.add_(1) is view)
        else:
            quietly(lambda t: t.add_(1), {"the argument": x, "its base": x._base, "the view": view}[wrote])
        for t in (*views, x):
            yield found(lambda t=t: (t.is_leaf, t.grad_fn is None, t.detach()))
        yield found(lambda: torch.autograd.grad(view, [x], torch.ones(view.shape), allow_unused=True))

    check_session(session)
