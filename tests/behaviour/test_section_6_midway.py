"""BEHAVIOUR 6: wrapper subclasses that a function introduces itself, and a caller's dispatch modes around the call."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import Tagged, extra, jagged, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


# -- factories ---------------------------------------------------------------------------------------

_FACTORIES = {
    "ones_like": lambda x: torch.ones_like(x) * 2,
    "full_like": lambda x: torch.full_like(x, 3) + x,
    "empty_like": lambda x: torch.empty_like(x).fill_(4),
    "new_zeros": lambda x: x.new_zeros(2, 3),
    "new_tensor": lambda x: x * torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "other dtype": lambda x: torch.zeros_like(x, dtype=torch.int64),
    "requires grad": lambda x: torch.ones_like(x, requires_grad=True) * x,
    "written": lambda x: torch.zeros_like(x).add_(x).t(),
}


@every_class
@pytest.mark.parametrize("function", _FACTORIES.values(), ids=_FACTORIES)
def test_a_factory(make, function):
    check(function, *[lambda: given(make(2, 3, grad=True))] * 2)


_MIDWAY = {
    "a product": lambda x: x * TwoTensor(torch.ones(3), torch.zeros(3)),
    "a constant": lambda x: (TwoTensor(torch.ones(3), torch.arange(3.0)), x * 2),
    "written from": lambda x: TwoTensor(torch.ones(3), torch.zeros(3)).copy_(x.detach()),
    "a view of it": lambda x: TwoTensor(x.detach() * 1, x.detach() * 2).view(3, 1)[1:],
    "of one and the same": lambda x: (lambda y: TwoTensor(y, y).mul_(2))(x.detach() * 1),
    "of a view": lambda x: TwoTensor(x.detach()[:2], x.detach()[1:]) * 2,
    "nested": lambda x: TwoTensor(TwoTensor(x.detach(), x.detach() * 1), TwoTensor(x.detach(), x.detach())) * x,
    "two classes": lambda x: (Tagged(x.detach() * 1, "t"), TwoTensor(x.detach() * 1, x.detach() * 2) * x),
    "left again": lambda x: (TwoTensor(torch.ones(3), torch.zeros(3)) * 2).a * x,
    "a leaf": lambda x: (lambda w: (w, w * x))(TwoTensor(torch.ones(3), torch.zeros(3)).requires_grad_()),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", _MIDWAY.values(), ids=_MIDWAY)
def test_made_midway(function, grad):
    check(function, *[lambda: given(leaf(3) if grad else plain(3))] * 2)


@pytest.mark.parametrize(("size", "stride"), [((1,), (2,)), ((2, 1), (1, 5)), ((2, 1, 2), (2, 9, 1))])
def test_a_class_that_holds_strides_against_each_other_that_no_op_looks_at(size, stride):
    """The graph computes anew what eager writes into memory that is laid out already."""

    def f(x):
        written = x.clone()
        torch.add(x, x, out=written)
        w = TwoTensor(written, x)
        return w.a.stride(), w

    check(f, *[lambda: given(plain(40).as_strided(size, stride))] * 2)


_ELSEWHERE = {
    "set_": lambda x, y: x.set_(y),
    "set_ to what is made inside": lambda x, y: x.set_(y * 2),
    "data": lambda x, y: setattr(x, "data", y),
    "reshaped": lambda x, y: x.unsqueeze_(0),
    "cut from its history": lambda x, y: x.detach_(),
}


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("move", _ELSEWHERE.values(), ids=_ELSEWHERE)
def test_made_of_views_of_an_argument_that_goes_elsewhere(move, earlier):
    """What it holds lies where the argument lay when the view was made."""

    def f(x, y):
        before = x.detach()[:1]
        move(x, y)
        after = x[:1]
        return TwoTensor(before if earlier else after, after if after.dim() == before.dim() else after.view(2)[:1])

    def make():
        x = leaf(2)
        return given(x.clone() if move is _ELSEWHERE["cut from its history"] else plain(2), plain(2, seed=1), also=[x])

    if not (earlier and move is _ELSEWHERE["reshaped"]):
        check(f, make)


def _in_mode(function):
    def f(x):
        with TwoTensorMode():
            return function(x)

    return f


_IN_MODE = {
    "a factory": lambda x: torch.ones(3),
    "a leaf": lambda x: torch.ones(3, requires_grad=True) * x,
    "an op": lambda x: x * 2,
    "random numbers": lambda x: torch.rand(3) + x,
    "written": lambda x: torch.zeros(3).add_(1),
    "a view": lambda x: torch.ones(2, 3).t()[1:],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", _IN_MODE.values(), ids=_IN_MODE)
def test_a_mode_inside(function, grad):
    check(_in_mode(function), *[lambda: given(leaf(3) if grad else plain(3))] * 2)


# -- an input that becomes one -----------------------------------------------------------------------


def _in_container(d):
    d["x"] = TwoTensor(d["x"].detach() * 2, d["x"].detach() + 1)
    return d["x"] * 3


def _gradient(d):
    d["x"].grad = TwoTensor(torch.ones(3), torch.zeros(3))
    return d["x"] * 2


@pytest.mark.parametrize("function", [_in_container, _gradient])
def test_an_argument_becomes_one(function):
    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            x = plain(3)
            d = {"x": x}
            y = compiled(d)
            yield d, y, x, x.grad, type(x)

    check_session(session)


_MADE = {
    "plain": lambda x: x.detach() * 2,
    "two": lambda x: TwoTensor(x.detach() * 2, x.detach() + 1),
    "tagged": lambda x: Tagged(x.detach() * 2, "t"),
}


@pytest.mark.parametrize("made", _MADE.values(), ids=_MADE)
@pytest.mark.parametrize("make", [plain, leaf, two, tagged, lambda *s: two(*s, grad=True)])
def test_an_argument_swapped_for_a_wrapper_is_refused(make, made):
    def f(x):
        y = made(x)
        torch.utils.swap_tensors(x, y)
        return x * 3, y

    x = make(3)
    if isinstance(made(x), TwoTensor | Tagged) or isinstance(x, TwoTensor | Tagged):
        with pytest.raises(aotcheck.UnsupportedError, match="swapped wrapper"):
            aotcheck.aot_function(f)(x)
        assert type(x) is type(make(3))
    else:
        check(f, lambda: given(make(3)))


@pytest.mark.parametrize("first", [plain, two, tagged])
@pytest.mark.parametrize("second", [two, tagged])
def test_swapped_arguments_are_refused_where_one_is_a_wrapper(first, second):
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        return x * 3, y + 1

    for x, y in ((first(3), second(3, seed=2)), (second(3, seed=2), first(3))):
        with pytest.raises(aotcheck.UnsupportedError, match="swapped wrapper"):
            aotcheck.aot_function(f)(x, y)
        assert {type(x), type(y)} == {type(first(3)), type(second(3))}


@pytest.mark.parametrize("write", ["mul_", "add_", "copy_"])
def test_a_plain_argument_is_written_from_a_wrapper(write):
    def f(x, w):
        getattr(x, write)(w)
        return x * 2

    check(f, lambda: given(plain(3), two(3, seed=2)), probe=False)


# -- what else a class lets ops do -------------------------------------------------------------------


def test_attributes_that_are_assigned_inside():
    def f(x):
        x.note = "seen"
        x.tag = x.tag + "!"
        return x * 2

    def session(compile):
        compiled = compile(f)
        x = tagged(3)
        for _ in range(2):
            y = compiled(x)
            yield x, y, x.note, x.tag, y.tag

    check_session(session)


def test_metadata_that_the_caller_changes_between_calls():
    def session(compile):
        compiled = compile(lambda x: x * x.scale)
        x = tagged(3, grad=True)
        for scale in (1, 3, 1):
            x.scale, x.grad = scale, None
            y = compiled(x)
            y.backward(cotangent(y))
            yield x, y

    check_session(session)


def test_an_inner_tensor_that_the_caller_replaces_between_calls():
    def session(compile):
        compiled = compile(lambda x: x * x.a)
        x = two(3)
        for seed in (1, 2):
            yield x, compiled(x)
            x.a = plain(3, seed=seed)

    check_session(session)


# -- modes of the caller's ---------------------------------------------------------------------------


class Doubling(TorchDispatchMode):
    """Changes what an op gives."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func in (torch.ops.aten.sin.default, torch.ops.aten.cos.default) else out


class Logging(TorchDispatchMode):
    """Notes which ops run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [leaf, lambda *s: two(*s, grad=True), lambda *s: tagged(*s, grad=True)])
def test_a_mode_that_changes_results(make):
    def session(compile):
        compiled = compile(lambda x: x.sin() + x.cos() * 2)
        for active in (False, True, False):
            x = make(3)
            if active:
                with Doubling():
                    y = compiled(x)
                    y.backward(cotangent(y))
            else:
                y = compiled(x)
                y.backward(cotangent(y))
            yield x, y

    check_session(session, rtol=1e-6)


def test_a_mode_around_the_backward_alone():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x.sin() * x)(x)
        with Doubling():
            y.backward(torch.ones(3))
        yield x, y

    check_session(session, rtol=1e-6)


def test_a_mode_around_the_forward_alone():
    def session(compile):
        x = leaf(3)
        with Doubling():
            y = compile(lambda x: x.sin() * x)(x)
        y.backward(torch.ones(3))
        yield x, y

    check_session(session, rtol=1e-6)


def test_a_mode_that_wraps():
    def session(compile):
        compiled = compile(lambda x: torch.zeros(3) + x)
        for _ in range(2):
            x = leaf(3)
            with TwoTensorMode():
                y = compiled(x)
            yield x, y, attempt_later(lambda: y.backward(cotangent(y))), x  # noqa: B023

    check_session(session)


def test_a_mode_sees_what_runs():
    def session(compile):
        compiled = compile(lambda x: (x * 2).sin())
        with Logging() as mode:
            y = compiled(plain(3))
        yield y, mode.seen

    check_session(session)


def test_a_mode_and_a_write():
    def session(compile):
        def f(x, w):
            x.add_(w.sin())
            return x.t(), x * 2

        compiled = compile(f)
        for make in (plain, two):
            x, w = make(2, 3), make(2, 3, seed=1)
            with Doubling():
                y = compiled(x, w)
            yield x, w, y

    check_session(session, rtol=1e-6)


def test_jagged_under_a_mode():
    def session(compile):
        x = jagged(2, 3, grad=True)
        with Doubling():
            y = compile(lambda x: x.sin())(x)
        y.backward(torch.ones_like(y))
        yield x, y

    check_session(session, rtol=1e-6)
