"""Views that are leaves: requires_grad_ of a view, of a no_grad view, and writes to the view or its base."""

import pytest
import torch

from tests.behaviour.harness import Raised, agrees, attempt_later, check, check_session, session
from tests.behaviour.inputs import given, leaf, plain


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("writes", [lambda x, v: v.zero_(), lambda x, v: x.detach().zero_(), lambda x, v: None])
@session
def test_a_view_of_a_no_grad_view_made_before_that_requires_grad(compile, quiet, writes):
    def f(x):
        v = x.t()
        x.requires_grad_()
        writes(x, v)
        return v

    base = plain(2, 3)
    with quiet():
        x = base.view(3, 2)
    v = compile(f)(x)
    yield v, v.requires_grad, x.requires_grad, attempt_later(lambda: v.is_leaf)


@agrees(lambda: given(plain(4)))
def test_requires_grad_of_a_view_of_an_input(x):
    y = x[1:].requires_grad_()
    return y * y, y


@agrees(lambda: given(plain(4)))
def test_requires_grad_of_a_view_whose_base_is_written_next_to_it(x):
    y = x[1:].requires_grad_()
    z = y * 2
    x[0] = 9
    return z, x * 2


@pytest.mark.parametrize("stops", [True, False])
def test_a_view_that_requires_grad_until_its_base_is_written(stops):
    def f(x, view, y):
        view.requires_grad_()
        w = view * 2
        if stops:
            view.requires_grad_(False)
        x.copy_(y)
        return w, view * 3

    def alone(x, view, y):
        return f(x, view, y)[0]

    def make():
        x = plain(3)
        return given(x, x.view(3), leaf(3, seed=1))

    for body in (f, alone):
        check(body, make)


def _written_quietly(view, base=None):
    with torch.no_grad():
        view.mul_(2)
    return view * 3


def _written_detached(view, base=None):
    view.detach().mul_(2)
    return view * view


def _transposed_quietly(view, base=None):
    with torch.no_grad():
        view.t_()
    return view * 3


def _refused(view, base=None):
    return view.mul_(2)


@pytest.mark.parametrize("f", [_written_quietly, _written_detached, _transposed_quietly, _refused])
def test_a_view_argument_that_is_a_leaf(f):
    """As what is made by reshaping does."""
    check(f, lambda: given(plain(12).view(4, 3).requires_grad_()))


def _base_written(view, base):
    with torch.no_grad():
        base.mul_(2)
    return view * 3


@pytest.mark.parametrize("f", [_written_quietly, _base_written, _written_detached])
@pytest.mark.parametrize("first", ["view", "base"])
def test_a_view_argument_that_is_a_leaf_and_its_base(f, first):
    def make():
        base = plain(12)
        view = base.view(4, 3).requires_grad_()
        return given(view, base) if first == "view" else given(base, view)

    check(f if first == "view" else lambda base, view: f(view, base), make)
    if first == "view":

        def session(compile):
            view, base = make().args
            compile(f)(view, base)
            yield view._version, base._version

        check_session(session)


@agrees(lambda: given(plain(2, 3)))
def test_a_view_made_inside_that_requires_grad_after_its_base_was_written(x):
    view = x.t()
    x.zero_()
    view.requires_grad_()
    return view


def _quiet_view(grad, told, of=lambda base: base.t(), base=lambda: leaf(2, 3)):
    made_of = base()
    with grad():
        view = of(made_of)
    if told:
        view.requires_grad_()
    return given(view, also=[made_of])


def _told(x):
    x.requires_grad_()
    return x, x * 2


def _told_by_assignment(x):
    y = x * 2
    x.requires_grad = True
    return x, y, x * 3


def _no_longer_told(x):
    y = x * 2
    x.requires_grad_(False)
    return x, y, x * 3


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("f", [torch.clone, lambda x: (x, x.clone()), _told, _told_by_assignment, _no_longer_told])
def test_requires_grad_of_a_no_grad_view_of_a_leaf(grad, told, f):
    check(f, lambda: _quiet_view(grad, told))


@session
def test_no_grad_views_that_are_leaves_get_specializations_of_their_own(compile):
    f = compile(lambda x: x * 2)
    for told in (False, True, None, False, True):
        view = leaf(3, 2) if told is None else _quiet_view(torch.no_grad, told).args[0]
        f(view).sum().backward()
        yield view.grad


@session
def test_requires_grad_of_a_view_made_under_grad_and_then_under_no_grad(compile):
    f = compile(lambda x: x.t().requires_grad_())
    x = leaf(2, 3)
    for grad in (torch.enable_grad, torch.no_grad):
        with grad():
            view = f(x)
        (g,) = torch.autograd.grad(view, [view], [torch.ones_like(view)])
        yield view.is_leaf, g


@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad])
def test_a_view_of_a_leaf_view_whose_base_is_written(grad):
    def f(base, view):
        inner = view.t()
        with grad():
            base.zero_()
        return inner

    def make():
        base = plain(2, 3)
        with torch.no_grad():
            view = base.t()
        return given(base, view.requires_grad_())

    check(f, make)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_of", [lambda x: x, lambda x: x.view(6)])
@agrees(lambda: given(plain(2, 3).view(3, 2).requires_grad_()))
def test_a_no_grad_view_of_a_leaf_view(x, *, context, made_of):
    """It requires grad as their base does, which does not."""
    inner = made_of(x)
    with context():
        view = inner[1:]
    return view.clone(), inner * 2


@session
def test_a_base_is_written_from_its_leaf_view(compile):
    """Then the leaf is in the graph's interior, and no gradient may arrive at it."""

    base = plain(2, 3)
    view = base.t().requires_grad_()
    result = compile(lambda base, view: base.copy_(view.t()))(base, view)
    yield attempt_later(lambda: result.backward(torch.ones_like(result))), view.grad, view.is_leaf


def test_requires_grad_of_a_no_grad_view_argument_before_it_is_written():
    def made():
        root = leaf(2)
        base = root.clone()
        with torch.no_grad():
            view = base.view_as(base)
        return given(view, plain(2, seed=1), also=[root])

    def f(x, y):
        x.requires_grad_()
        y.copy_(x)
        with torch.no_grad():
            x.zero_()
        return y

    def viewed_before(x, y):
        view = x.unsqueeze(0)
        x.requires_grad_()
        return view

    for body in (f, viewed_before):
        check(body, made, backward=None, probe=False)


def quietly(action):
    with torch.no_grad():
        return action()


WRITES = {
    "not": lambda x, v, w: None,
    "the base": lambda x, v, w: x.mul_(2),
    "the base, by what requires grad": lambda x, v, w: x.mul_(w),
    "the base, under no_grad": lambda x, v, w: quietly(lambda: x.mul_(2)),
    "the view, under no_grad": lambda x, v, w: quietly(lambda: v.mul_(3)),
}

MADE = {
    "view under no_grad": lambda x: quietly(lambda: x.view(4)),
    "part under no_grad": lambda x: quietly(lambda: x[0]),
    "detached": lambda x: x.detach(),
    "part of what was detached": lambda x: x.detach()[0],
}

ARGUMENTS = {
    "a leaf": lambda w: (torch.ones(2, 2, device=w.device),),
    "no leaf": lambda w: (w.clone(),),
    "detached of a leaf": lambda w: (w.detach(),),
    "a view": lambda w: (torch.ones(2, 2, device=w.device).view(2, 2),),
}


def leafness(t):
    try:
        return t.is_leaf, t.grad_fn is None
    except RuntimeError as error:  # of a view that was made under no_grad
        return Raised(type(error), str(error))


def same(made, told, before, after, arguments):
    def function(x, w):
        WRITES[before](x, x, w)
        v = MADE[made](x)
        if told == "at once":
            v.requires_grad_()
        part = v * 2
        if told == "later":
            v.requires_grad_()
        used = v * 3
        WRITES[after](x, v, w)
        return x, v, part, used

    def session(compile):
        w = leaf(2, 2)
        given = ARGUMENTS[arguments](w)
        results = compile(function)(*given, w)
        yield [leafness(t) for t in results]
        yield [t.requires_grad for t in results], [t.detach() for t in results]
        for t in results:
            yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [w], allow_unused=True, retain_graph=True))

    check_session(session)


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("after", WRITES)
@pytest.mark.parametrize("before", WRITES)
@pytest.mark.parametrize("told", ["at once", "later"])
@pytest.mark.parametrize("made", MADE)
def test_a_leaf_view_made_inside_and_writes_to_it_and_its_base(made, told, before, after, arguments):
    same(made, told, before, after, arguments)


@pytest.mark.parametrize("by", ["attribute", "method"])
@pytest.mark.parametrize("order", [(0,), (1,), (0, 1), (1, 0), (0, 1, 1)])
@pytest.mark.parametrize("write", ["nothing", "base", "view", "quietly"])
def test_requires_grad_of_a_view_and_of_its_base_in_either_order(write, order, by):
    def f(x, y):
        if write == "quietly":
            with torch.no_grad():
                x.zero_()
        elif write != "nothing":
            {"base": x, "view": y}[write].zero_()
        for t in [(x, y)[k] for k in order]:
            if by == "method":
                t.requires_grad_()
            else:
                t.requires_grad = True
        return x * 2, y * 3

    def session(compile):
        x = plain(2)
        y = x.view(2)
        results = compile(f)(x, y)
        yield x.is_leaf, y.requires_grad
        for t in results:
            if t.requires_grad:
                t.sum().backward()
        yield results, x.grad

    check_session(session)
