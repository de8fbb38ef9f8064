"""View arguments of which the caller moved, reshaped or detached the view or its base before the call."""

import functools

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import (
    _transposed_under_no_grad,
    moves_and_writes,
    quietly,
    reshapes,
    same,
    uses_and_writes,
    view_of_leaf,
    view_of_non_leaf,
)


def _no_grad_write(t):
    with torch.no_grad():
        t.mul_(2)


_AFTER_THE_CUT = {
    "cut again": lambda x, v, y: x.detach_(),
    "view written": lambda x, v, y: v.mul_(2),
    "base written": lambda x, v, y: x.mul_(2),
    "base written with a history": lambda x, v, y: x.mul_(y),
    "view written under no_grad": lambda x, v, y: _no_grad_write(v),
    "base written under no_grad": lambda x, v, y: _no_grad_write(x),
    "requires grad again": lambda x, v, y: x.requires_grad_(),
}


@pytest.mark.parametrize("use", _AFTER_THE_CUT.values(), ids=_AFTER_THE_CUT)
@pytest.mark.parametrize("from_a_leaf", [False, True])
@session
def test_a_view_whose_base_the_caller_detached_in_place(compile, use, from_a_leaf):
    def f(x, v, y):
        use(x, v, y)
        return v * x.t()

    root, y = leaf(2, 3), leaf(2, 3, seed=1)
    x = root.detach().requires_grad_() if from_a_leaf else root * 1
    v = x.t()
    x.detach_()
    for _ in range(2):
        out = attempt_later(lambda: compile(f)(x, v, y))
        yield out, x, v
        if isinstance(out, torch.Tensor):
            yield attempt_later(lambda out=out: out.sum().backward(retain_graph=True))
            yield root, y


def views_and_sets(x):
    y = x.squeeze()
    with torch.no_grad():
        x.set_(x.view_as(x))
    return [y]


def requires_and_views(x):
    x.requires_grad_()
    return [x, x.squeeze()]


@pytest.mark.parametrize("function", [uses_and_writes, views_and_sets, requires_and_views, reshapes, moves_and_writes])
@pytest.mark.parametrize("data", [(), (2,), (3,)], ids=str)
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_a_view_argument_that_the_caller_assigned_data_to(function, make, mode, data):
    def elsewhere():
        args, roots = make(mode, 2)
        args[0].data = plain(*data, seed=1)
        return args, roots

    same(function, elsewhere, calls=1)


@pytest.mark.parametrize("data", [(), (2,), (3,)], ids=str)
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_the_grad_fn_of_a_view_that_the_caller_wrote_before_the_call(make, used, hidden, data):
    def f(x):
        if hidden:
            x.detach().mul_(2)
        x.data = torch.ones(*data, device=x.device)
        return [x * 2] if used else []

    def written():
        args, roots = make("grad", 2)
        with torch.no_grad():
            args[0].mul_(2)
        return args, roots

    same(f, written, calls=1)


def writes_the_view(view, base):
    view.mul_(3)
    return view * view, base * 2


def writes_both(view, base):
    view.fill_(3)
    base.mul_(-1)
    return -view, base * base


def writes_what_was_used(view, base):
    before = view * view
    view.mul_(2)
    return before, view * 1


def reshapes_the_view(view, base):
    view.unsqueeze_(0).mul_(2)
    return view * 2, base + 1


def writes_the_base_alone(view, base):
    base.mul_(view.sum())
    return view * 2, base * 2


@pytest.mark.parametrize(
    "function", [writes_the_view, writes_both, writes_what_was_used, reshapes_the_view, writes_the_base_alone]
)
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (4,), (2, 2), ()], ids=str)
@pytest.mark.parametrize(
    "part", [lambda b: b[:1], lambda b: b.view(-1, 1)[:1], lambda b: b[0]], ids=["slice", "view", "select"]
)
@pytest.mark.parametrize("written", [False, True], ids=["as made", "written before"])
@session
def test_a_view_argument_whose_base_the_caller_assigned_data_of_another_shape(compile, function, shape, part, written):
    x = leaf(2)
    base = x.clone()
    if written:
        base.mul_(2)
    view = part(base)
    base.data = plain(*shape, seed=1)
    outputs = compile(function)(view, base)
    yield view, base, outputs
    for t in [*([outputs] if isinstance(outputs, torch.Tensor) else outputs), view, base]:
        if t.requires_grad:
            found = attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [x], retain_graph=True))
            yield "raised" if isinstance(found, Raised) else found  # messages name nodes


def _base_gone(base, view):
    base.data = plain(*base.shape, seed=7)


def _view_gone(base, view):
    view.data = plain(*view.shape, seed=7)


def _to_the_same_storage(base, view):
    both = plain(8, seed=7)
    base.data, view.data = both[:6].view(2, 3), both[2:].view(3, 2)


_WRITTEN_APART = {
    "base": lambda base, view: base.mul_(2),
    "view": lambda base, view: view.mul_(2),
    "base, then view": lambda base, view: (base.mul_(2), view.add_(1)),
    "view, then base": lambda base, view: (view.mul_(3), base.mul_(2)),
    "quietly": lambda base, view: base.detach().mul_(2),
    "a view of it": lambda base, view: view[0].mul_(2),
    "reshaped": lambda base, view: (view.unsqueeze_(0), view.mul_(2)),
}


@pytest.mark.parametrize("write", _WRITTEN_APART.values(), ids=_WRITTEN_APART)
@pytest.mark.parametrize("apart", [_base_gone, _view_gone, _to_the_same_storage])
@pytest.mark.parametrize("used", ["nothing", "products", "views", "the view alone"])
@session
def test_a_view_that_the_caller_moved_apart_from_its_base_is_still_its_view(compile, apart, write, used):
    def f(base, view):
        write(base, view)
        if used == "products":
            return base * 3, view * 5
        return (base[0], view[0]) if used == "views" else None

    compiled = compile(lambda view: f(view, view)) if used == "the view alone" else compile(f)
    for _ in range(2):
        root = leaf(2, 3)
        base = root * 3
        view = base.t()
        apart(base, view)
        out = compiled(view) if used == "the view alone" else compiled(base, view)
        yield base, view, out
        for t in (base, view, *(out or ())):
            gradient = torch.full_like(t, 2)
            yield attempt_later(functools.partial(torch.autograd.grad, t, root, gradient, retain_graph=True))


def _give_data(t, data):
    t.data = data


VIEWS = {"real": lambda b: b.real, "conjugate": lambda b: b.conj(), "real and transposed": lambda b: b.real.t()}

CHANGED = {
    "reshaped": lambda b, v: v.unsqueeze_(0),
    "transposed": lambda b, v: v.transpose_(0, 1),
    "reshaped twice": lambda b, v: v.unsqueeze_(0).squeeze_(0).t_().unsqueeze_(1).squeeze_((1,)).unsqueeze_(2),
    "made another window": lambda b, v: v.as_strided_((2,), (1,), 0),
    "reshaped and written": lambda b, v: v.unsqueeze_(0).mul_(2),
    "reshaped, base written": lambda b, v: (v.unsqueeze_(0), b.mul_(2)),
    "reshaped under no_grad": lambda b, v: quietly(lambda: v.unsqueeze_(0)),
    "given data": lambda b, v: _give_data(v, v.detach()[1:]),
    "set": lambda b, v: v.set_(v[0:1]),
    "set under no_grad": lambda b, v: quietly(lambda: v.set_(v[0:1])),
    "base reshaped": lambda b, v: b.unsqueeze_(0),
    "base set under no_grad": lambda b, v: quietly(lambda: b.set_(b[0:1])),
}

FUNCTIONS = {
    "writes it": lambda b, v: v.mul_(3) * 2,
    "writes its base": lambda b, v: (b.mul_(3), v * 2),
    "reshapes it": lambda b, v: v.unsqueeze_(-1),
    "writes it, a view made": lambda b, v: (v[0], v.mul_(3), v),
    "writes it under no_grad": lambda b, v: (quietly(lambda: v.mul_(3)), v)[1],
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_real_or_conjugate_view_that_the_caller_reshaped_or_moved(view, change, grad):
    def make():
        root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
        base = root * 1
        v = view(base)
        change(base, v)
        return given(base, v, also=[root])

    for function in FUNCTIONS.values():
        check(function, make)


def test_an_imaginary_part_that_the_caller_reshaped_without_its_base():
    def make():
        root = leaf(2, 2, dtype=torch.complex64)
        base = root * 1
        v = base.imag
        v.squeeze_().t_()
        return given(v, also=[root, base])

    check(lambda v: (v.unsqueeze_(0), v[0], v), make)


def test_equal_views_by_other_ops_get_specializations_of_their_own():
    """A write to one that was transposed in place goes back to the base as if it had not been."""

    def made(view):
        def make():
            root = leaf(2, 2, dtype=torch.complex64)
            base = root * 1
            return given(base, view(base), plain(2, 2, seed=1), also=[root])

        return make

    calls = [made(lambda b: b.real.t()), made(lambda b: b.real.t_()), made(lambda b: b.real.t())]
    calls.append(made(lambda b: _transposed_under_no_grad(b.real)))
    check(lambda b, v, w: v.mul_(w) * 2, *calls, *calls[::-1])


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@session
def test_a_real_or_conjugate_view_is_reshaped_again_by_each_call(compile, view):
    root = leaf(2, 2, dtype=torch.complex64)
    base = root * 1
    v = view(base)
    f = compile(lambda v: v.unsqueeze_(0) * 2)
    for _ in range(3):
        out = f(v)
        yield out, v, base
        yield torch.autograd.grad(out.abs().sum(), [root], retain_graph=True)
