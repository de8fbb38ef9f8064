"""BEHAVIOUR 3: leaves that begin, and views that are read, after something befell an argument."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Given, attempt, attempt_later, check, check_session, given, leaf, non_leaf, plain


def _non_leaf() -> Given:
    root = leaf(2, 2)
    return given(root.clone(), leaf(2, 2, seed=3), also=[root])


def _alias() -> Given:
    root = leaf(2, 2)
    return given(root.clone().detach(), leaf(2, 2, seed=3), also=[root])


MAKERS = {
    "non-leaf": _non_leaf,
    "leaf": lambda: given(leaf(2, 2), leaf(2, 2, seed=3)),
    "plain": lambda: given(plain(2, 2), leaf(2, 2, seed=3)),
    "alias": _alias,
}


# -- cut from its history and told to require grad again ------------------------------------------------


def _cut(h, w):
    h.detach_()
    h.requires_grad_()
    return (h * w).sum()


def _used_before_and_after(h, w):
    before = h * w
    h.detach_()
    h.requires_grad_()
    return before, (h * w).sum(), h


def _view_made_in_between(h, w):
    h.detach_()
    view = h.t()
    h.requires_grad_()
    return view, h * w


def _what_leads_to_both(h, w):
    before, first = (h * w).exp(), h[0]
    h.detach_()
    h.requires_grad_()
    both = h * before
    return first, before, both, both.sum(), h[1]


def _written_before(h, w):
    with torch.no_grad():
        h.mul_(2)
    before = h * w
    h.detach_()
    h.requires_grad_()
    return before, h * w


def _written_after(h, w):
    h.detach_()
    h.requires_grad_()
    result = h * w
    with torch.no_grad():
        h.mul_(2)
    return result, h.t()


def _assigned(h, w):
    h.detach_()
    h.requires_grad = True
    return h, h + w


def _reshaped(h, w):
    h.detach_()
    h.t_()
    h.requires_grad_()
    return h * w, h[0]


def _view_that_requires_grad(h, w):
    h.detach_()
    view = h.unsqueeze(0)
    view.requires_grad_()
    return view, view * w, h * 2


CUTS = [
    _cut,
    _used_before_and_after,
    _view_made_in_between,
    _what_leads_to_both,
    _written_before,
    _written_after,
    _assigned,
    _reshaped,
    _view_that_requires_grad,
]


@pytest.mark.parametrize("f", CUTS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_argument_cut_from_its_history_requires_grad_again(make, f):
    check(f, make)
    check(f, make, make)


def test_a_written_argument_is_cut_and_requires_grad_again():
    def f(h, w):
        h.mul_(w)
        before = h * 2
        h.detach_()
        h.requires_grad_()
        return before, h * w

    check(f, _non_leaf)


def test_truncated_backpropagation_through_time():
    def step(h, w, x):
        h.detach_()
        h.requires_grad_()
        return torch.tanh(h @ w + x)

    def make():
        h, w, xs = non_leaf(2, 3), leaf(3, 3, seed=1), [plain(2, 3, seed=k) for k in range(3)]
        return given(h.args[0], w, *xs, also=h.also)

    def loop(h, w, *xs):
        for x in xs:
            h = step(h, w, x)
        return h, h.sum()

    check(loop, make, rtol=1e-5)


# -- moved, and then told to require grad ---------------------------------------------------------------


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: setattr(x, "data", y),
        lambda x, y: x.set_(y),
        lambda x, y: x.set_(x),
        lambda x, y: x.t_(),
        lambda x, y: x.unsqueeze_(0),
    ],
    ids=["data", "set_", "set_ to itself", "t_", "unsqueeze_"],
)
@pytest.mark.parametrize("viewed", [lambda x: x.unsqueeze(-1), lambda x: x.select(0, 0), lambda x: x.t()[0]])
def test_what_moved_requires_grad(viewed, change, used):
    def view_before(x, y):
        change(x, y)
        view = viewed(x)
        x.requires_grad_()
        return (view, x * 2) if used else view

    def view_itself(x, y):
        change(x, y)
        view = viewed(x)
        view.requires_grad_()
        return (view, view * 2) if used else view

    def of_view(x, y):
        change(x, y)
        view = x.view_as(x)
        result = viewed(view)
        view.requires_grad_()
        return (result, view * 2) if used else result

    def for_a_while(x, y):
        change(x, y)
        x.requires_grad_()
        result = viewed(x).clone()
        x.requires_grad_(False)
        return (result, x * 2) if used else result

    for f in (view_before, view_itself, of_view, for_a_while):
        check(f, lambda: given(plain(2, 2), plain(2, 2, seed=4)))


# -- cut from its history and moved ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [_non_leaf, MAKERS["leaf"]], ids=["non-leaf", "leaf"])
@pytest.mark.parametrize("source", [leaf, plain])
def test_what_was_cut_has_the_history_of_set_(source, make):
    def f(x, y):
        x.detach_()
        view = x.unsqueeze(0)
        x.set_(y)
        return view

    def itself(x, y):
        x.detach_()
        x.set_(y)
        x.requires_grad_()
        return x

    for body in (f, itself):
        check(body, lambda: given(make().args[0], source(2, 2, seed=5)), backward=None)


def test_a_view_made_without_grad_of_what_is_cut_and_moved():
    def f(x):
        with torch.no_grad():
            view = x.unsqueeze(0)
        x.detach_()
        x.data = view
        return view

    def reshaped(x):
        with torch.no_grad():
            view = x.view_as(x)
        x.detach_()
        x.squeeze_()
        return view.unsqueeze(0)

    for body in (f, reshaped):
        check(body, lambda: non_leaf(1, 2))


@pytest.mark.parametrize("later", [False, True], ids=["before", "before and after"])
@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.t()], ids=["detached", "view"])
def test_what_was_made_of_a_late_leaf_before_it_was_one(view, later):
    def f(x):
        y = x.detach()
        before = view(y)
        x.t_()
        y.requires_grad_()
        return (before, view(y)) if later else before

    check(f, lambda: given(plain(2, 3)))


# -- views that custom Functions gave -------------------------------------------------------------------


class _ReturnsView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grads):
        return grads[0]


class _ReturnsInput(_ReturnsView):
    @staticmethod
    def forward(ctx, x):
        return x


@pytest.mark.parametrize("written", [0, 1], ids=["itself", "base"])
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
def test_a_custom_view_that_is_read_after_a_write_is_refused(function, written):
    def make():
        root = leaf(2, 2)
        base = root.clone()
        return given(function.apply(base), base, leaf(2, 2, seed=3), also=[root])

    def unused(*args):
        with torch.no_grad():
            args[written].fill_(1)
        args[0].view_as(args[0])
        return args[2] * 2

    def used(*args):
        with torch.no_grad():
            args[written].fill_(1)
        return args[0] * args[2]

    for body in (unused, used):
        check(body, make)


@pytest.mark.parametrize("before", [True, False], ids=["by the caller", "by an earlier call"])
@pytest.mark.parametrize(
    "use", [lambda x: x.zero_(), lambda x: x.detach() * 2, lambda x: x.view_as(x), lambda x: x * 2]
)
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
def test_a_custom_view_whose_history_eager_refuses_to_say_is_an_argument(function, use, before):
    def session(compile):
        @compile
        def f(x):
            with torch.no_grad():
                return None if use(x) is x else use(x)

        @compile
        def g(x):
            return use(x)

        root = leaf(2, 2)
        x = function.apply(root.clone())
        if before:
            with torch.no_grad():
                x.fill_(3)
        yield attempt(lambda: f(x))
        yield attempt(lambda: f(x))
        yield attempt(lambda: g(x))
        yield x.detach()

    check_session(session)


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
def test_a_custom_view_of_a_view_that_requires_grad_by_itself_and_is_written(function, quiet):
    def f(x):
        view = function.apply(x)
        with quiet():
            x.zero_()
        return view

    def session(compile):
        view = compile(f)(plain(2, 2).view(4).requires_grad_())
        yield view.requires_grad, view.detach()
        with pytest.raises(RuntimeError, match="has been modified inplace"):
            view.grad_fn.name()

    check_session(session)


# -- views made before a leaf began, which then ends ------------------------------------------------------


@pytest.mark.parametrize("change", [lambda x: x.squeeze_(), lambda x: x.mul_(2)])
def test_a_view_made_before_its_base_required_grad_for_a_while(change):
    def f(x):
        v = x.t()
        x.requires_grad_()
        y = x.clone()
        x.requires_grad_(False)
        change(x)
        return y, v

    check(f, lambda: given(plain(1)))


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("writes", [lambda x, v: v.zero_(), lambda x, v: x.detach().zero_(), lambda x, v: None])
def test_a_view_of_an_odd_view_was_made_before_that_requires_grad(quiet, writes):
    def f(x):
        v = x.t()
        x.requires_grad_()
        writes(x, v)
        return v

    def session(compile):
        base = plain(2, 3)
        with quiet():
            x = base.view(3, 2)
        v = compile(f)(x)
        yield v, v.requires_grad, x.requires_grad, attempt_later(lambda: v.is_leaf)

    check_session(session)


_VIEWS_OF_COMPLEX = {
    "imaginary": lambda x: x.imag,
    "real": lambda x: x.conj().real,
    "a part": lambda x: torch.view_as_real(x)[0],
    "reshaped": lambda x: x.imag.unsqueeze_(0),
    "window": lambda x: x[0],
    "window reshaped": lambda x: x[0].unsqueeze_(0),
}
_AFTER_CUT = {
    "nothing": lambda x: None,
    "told to require grad": lambda x: x.requires_grad_(),
    "told so and used": lambda x: x.requires_grad_() * 2,
}


@pytest.mark.parametrize("view", _VIEWS_OF_COMPLEX.values(), ids=_VIEWS_OF_COMPLEX)
@pytest.mark.parametrize("since", _AFTER_CUT.values(), ids=_AFTER_CUT)
@pytest.mark.parametrize("used", [False, True])
def test_a_view_of_what_is_made_inside_keeps_its_history_when_that_is_cut(used, since, view):
    """Be it told to require grad afterwards, and be the view one of a view that nobody else needs."""

    def function(x):
        made = x * (1 + 2j)
        part = view(made)
        other = part * 2 if used else None
        made.detach_()
        return part, other, since(made), made

    def session(compile):
        x = leaf(2, 2)
        part, *others = compile(function)(x)
        yield part, others
        yield torch.autograd.grad([t.sum().abs() for t in (part, others[0]) if t is not None], [x], allow_unused=True)

    check_session(session)
