"""Wrappers that the function introduces."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode

from tests.behaviour.harness import agrees, attempt, check, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import Tagged, Wraps, two


def test_a_wrapper_made_of_an_argument_that_was_set():
    def f(x):
        x.set_()
        return two_of(x.clone(), x)

    def other(x):
        x.set_(x.new_ones(2, 2))
        return two_of(x.clone(), x)

    two_of = type(two(1))
    for body in (f, other):
        check(body, lambda: given(plain(3)))


@pytest.mark.parametrize("name", ["unsqueeze_", "t_", "squeeze_"])
@pytest.mark.parametrize("is_view", [False, True], ids=["argument", "view"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_wrapper_made_of_an_alias_of_a_wrapper_that_is_reshaped_in_place(name, is_view, when):
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


@agrees(lambda: (plain(2, 2),))
def test_a_wrapper_made_of_a_plain_intermediate_that_is_then_reshaped_in_place(x):
    y = torch.sin(x)
    made = Tagged(y, "of it")
    y.unsqueeze_(0)
    return made, y


@session
def test_a_wrapper_made_of_aliases_of_a_no_grad_view_is_reshaped_in_place(compile):
    """Below its class no version is counted."""

    def function(x, y):
        made = TwoTensor(y.detach(), y.detach())
        made.transpose_(0, -1)
        return (made,)

    x = two(2, 2, grad=True).clone()
    with torch.no_grad():
        y = x.t()
    yield compile(function)(x, y), x, y


@every_class
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64], ids=["bool", "int64"])
@agrees(lambda make: (make(2, 2), leaf(2)), probe=False)
def test_an_integer_wrapper_made_inside_is_filled_from_a_tensor_that_requires_grad(x, y, *, dtype):
    made = x.to(dtype)
    made.fill_(y.sum())
    return made, y * 2


@pytest.mark.parametrize("name", ["transpose_", "unsqueeze_"])
@agrees(lambda: (two(2, 2), two(2, 2, seed=5)))
def test_a_wrapper_made_of_an_argument_and_an_intermediate_is_reshaped_in_place(x, y, *, name):
    made = TwoTensor(x, y * 2)
    getattr(made, name)(*((0, -1) if name == "transpose_" else (0,)))
    return made, x


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
def test_factories_that_make_tensors_like_a_wrapper(make, function):
    check(function, *[lambda: given(make(2, 3, grad=True))] * 2)


_MIDWAY = {
    "a product": lambda x: x * TwoTensor(torch.ones(3, device=x.device), torch.zeros(3, device=x.device)),
    "a constant": lambda x: (TwoTensor(torch.ones(3, device=x.device), torch.arange(3.0, device=x.device)), x * 2),
    "written from": lambda x: TwoTensor(torch.ones(3, device=x.device), torch.zeros(3, device=x.device)).copy_(
        x.detach()
    ),
    "a view of it": lambda x: TwoTensor(x.detach() * 1, x.detach() * 2).view(3, 1)[1:],
    "of one and the same": lambda x: (lambda y: TwoTensor(y, y).mul_(2))(x.detach() * 1),
    "of a view": lambda x: TwoTensor(x.detach()[:2], x.detach()[1:]) * 2,
    "nested": lambda x: TwoTensor(TwoTensor(x.detach(), x.detach() * 1), TwoTensor(x.detach(), x.detach())) * x,
    "two classes": lambda x: (Tagged(x.detach() * 1, "t"), TwoTensor(x.detach() * 1, x.detach() * 2) * x),
    "left again": lambda x: (TwoTensor(torch.ones(3, device=x.device), torch.zeros(3, device=x.device)) * 2).a * x,
    "a leaf": lambda x: (lambda w: (w, w * x))(
        TwoTensor(torch.ones(3, device=x.device), torch.zeros(3, device=x.device)).requires_grad_()
    ),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", _MIDWAY.values(), ids=_MIDWAY)
def test_a_wrapper_made_inside_of_plain_tensors(function, grad):
    check(function, *[lambda: given(leaf(3) if grad else plain(3))] * 2)


@pytest.mark.parametrize(("size", "stride"), [((1,), (2,)), ((2, 1), (1, 5)), ((2, 1, 2), (2, 9, 1))])
def test_a_wrapper_class_that_compares_the_strides_of_its_inner_tensors(size, stride):
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
def test_a_wrapper_made_of_views_of_an_argument_that_is_set_or_reshaped(move, earlier):
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
    "a factory": lambda x: torch.ones(3, device=x.device),
    "a leaf": lambda x: torch.ones(3, requires_grad=True, device=x.device) * x,
    "an op": lambda x: x * 2,
    "random numbers": lambda x: torch.rand(3, device=x.device) + x,
    "written": lambda x: torch.zeros(3, device=x.device).add_(1),
    "a view": lambda x: torch.ones(2, 3, device=x.device).t()[1:],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", _IN_MODE.values(), ids=_IN_MODE)
def test_a_dispatch_mode_inside_makes_wrappers_of_results(function, grad):
    check(_in_mode(function), *[lambda: given(leaf(3) if grad else plain(3))] * 2)


def _in_container(d):
    d["x"] = TwoTensor(d["x"].detach() * 2, d["x"].detach() + 1)
    return d["x"] * 3


def _gradient(d):
    d["x"].grad = TwoTensor(torch.ones_like(d["x"]), torch.zeros_like(d["x"]))
    return d["x"] * 2


@pytest.mark.parametrize("function", [_in_container, _gradient])
@session
def test_an_argument_in_a_dict_and_its_grad_become_wrappers(compile, function):
    compiled = compile(function)
    for _ in range(2):
        x = plain(3)
        d = {"x": x}
        y = compiled(d)
        yield d, y, x, x.grad, type(x)


@pytest.mark.parametrize("before", [False, True])
@session
def test_a_wrapper_made_of_a_plain_argument_that_is_then_reshaped_in_place(compile, before):
    def f(x):
        if before:
            x.transpose_(0, 1)
        made = Tagged(x, "t")
        x.unsqueeze_(0)
        return made

    x = plain(2, 3)
    made = compile(f)(x)
    yield x, made.shape, made.stride(), made.elem.shape


def test_a_wrapper_made_of_arguments():
    check(lambda x, y: TwoTensor(x, y), lambda: given(plain(3), plain(3, seed=1)))


def test_a_wrapper_made_of_intermediates():
    check(lambda x: TwoTensor(x * 2, x + 1) * 3, lambda: given(plain(3)))


def test_a_wrapper_made_by_a_custom_function():
    check(lambda x: Wraps.apply(x) * 3, lambda: given(leaf(3)))


class FromTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.a + x.b

    @staticmethod
    def backward(ctx, g):
        return TwoTensor(g, g * 2)


def test_a_custom_function_turns_a_wrapper_into_a_plain_tensor():
    check(lambda x: FromTwo.apply(x * x), lambda: given(two(3, grad=True)))


def test_a_wrapper_that_is_only_an_intermediate():
    check(lambda x: FromTwo.apply(Wraps.apply(x) * 3), lambda: given(leaf(3)))


@agrees(lambda: given(plain(3)))
def test_a_dispatch_mode_inside_makes_a_wrapper_of_a_factory(x):
    with TwoTensorMode():
        y = torch.ones(3, device=x.device)
    return x * y


@agrees(lambda: given(plain(3)))
def test_a_wrapper_leaf_made_inside(x):
    w = TwoTensor(x.detach().clone(), x.detach() + 1).requires_grad_()
    return x * w, w


def test_a_wrapper_made_of_an_argument_that_was_reshaped_in_place():
    def f(x):
        x.unsqueeze_(0)
        return two_of(x.data, x), x

    def two_of(a, b):
        return type(two(1))(a, b)

    check(f, lambda: given(plain(3, 2)))


@session
def test_an_error_of_the_wrapper_class_is_eagers(compile):
    f = compile(lambda x, y: TwoTensor(x, y) * 2)
    yield attempt(lambda: f(plain(3), plain(4)))
    yield f(plain(3), plain(3))
