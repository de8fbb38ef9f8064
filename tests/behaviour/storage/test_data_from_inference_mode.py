""".data = outside inference mode, of data made in an inference mode inside."""

import pytest
import torch

from tests.behaviour.harness import (
    Raised,
    agrees,
    attempt,
    attempt_later,
    check,
    one_of,
    session,
    through_dynamo,
    write,
)
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import view_of_leaf, view_of_non_leaf
from tests.behaviour.storage.common import DATA, PLAIN_AND_LEAVES


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 2


NEW_DATA = {
    "alike": torch.ones_like,
    "a result": lambda x: x * 3,
    "its own part": lambda x: x[:1],
    "another shape": lambda x: torch.ones(5, device=x.device),
}


@pytest.mark.parametrize("data", NEW_DATA.values(), ids=NEW_DATA.keys())
@agrees(lambda: (leaf(2, 3),), lambda: (leaf(2, 3),), probe=False)
def test_inference_data_assigned_to_a_leaf_that_a_custom_function_saved(x, *, data):
    squared = Square.apply(x)
    with torch.inference_mode():
        made = data(x)
    x.data = made
    return squared


def base_made_inside_given_inference_data(x):
    base = x.exp()
    v = base.expand(2, *base.shape)
    with torch.inference_mode():
        base.data = v.clone()
    return [v]


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
@session
def test_a_view_result_whose_base_is_assigned_inference_data(compile, shape):
    x = leaf(*shape)
    (v,) = compile(base_made_inside_given_inference_data)(x)
    yield v, v.is_leaf, torch.autograd.grad(v.sum(), x)


def reshaped_in_place(x):
    with torch.inference_mode():
        x.data = x.clone()
    x.squeeze_()
    return []


def zeroed(x):
    x.zero_()
    with torch.inference_mode():
        x.data = x * 2
    return []


def written_as_one(x):
    with torch.inference_mode():
        x.data = x * 2
    x.exp_()
    return []


def split_and_cut(x):
    with torch.inference_mode():
        x.data = torch.ones(2, device=x.device)
    part = x.split(1)[0]
    x.detach_()
    return [part]


@pytest.mark.parametrize("function", [reshaped_in_place, zeroed, written_as_one, split_and_cut])
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
@session
def test_inference_data_assigned_in_each_of_several_calls(compile, function, make, mode):
    (x,), roots = make(mode, 2)
    compiled = compile(function)
    for _ in range(3):
        found = attempt(lambda: compiled(x))
        leafness = attempt(lambda: x.is_leaf)
        told = "refused" if isinstance(leafness, Raised) else leafness
        yield found, x.is_inference(), told, x.requires_grad, [x._base is r for r in roots]


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
@session
def test_inference_data_assigned_to_an_argument_that_is_saved(compile, shape):
    def f(x):
        y = x * x
        with torch.inference_mode():
            x.data = torch.ones(*shape, device=x.device)
        return y

    root = leaf(2, 2)
    x = root * 1
    y = compile(f)(x)
    yield y, x.is_inference()
    g = attempt_later(lambda: torch.autograd.grad(y.sum(), root))
    yield "raised" if isinstance(g, Raised) else g


@session(compile=through_dynamo)
def test_through_torch_compile_a_base_is_assigned_its_inference_mode_view(compile):
    torch._dynamo.reset()

    def f(x):
        v = x.clone()
        with torch.inference_mode():
            w = v.t()
        v.data = x
        v.data = w
        return w

    x = leaf()
    yield compile(f)(x), x


@pytest.mark.parametrize("then", [lambda v: (v,), lambda v: (v, v.t()), lambda v: (v.detach(),)], ids=range(3))
@pytest.mark.parametrize("data", ["argument", "result", "returned", "itself"])
@pytest.mark.parametrize("around", [False, True], ids=["inside", "around"])
@pytest.mark.parametrize("make", ["plain", "leaf"])
@session
def test_an_inference_tensor_counts_no_versions_after_data_assignment(compile, make, around, data, then):
    def f(x, y):
        with torch.inference_mode():
            v = y * 2
        other = x * 3
        v.data = {"argument": x, "result": other, "returned": other, "itself": v.data}[data]
        return (*then(v), other) if data == "returned" else then(v)

    x, y = PLAIN_AND_LEAVES[make](), plain(2, 2, seed=3)
    with torch.inference_mode(around):
        out = attempt(lambda: compile(f)(x, y))
    yield x, out
    yield attempt_later(lambda: write(out[0])), x, out


data = one_of(DATA)


def test_data_assigned_to_a_view_made_in_inference_mode(data):
    def f(x, y):
        with torch.inference_mode():
            v = x[0]
            v.data = x
        return v

    def another(x, y):
        with torch.inference_mode():
            v = x[1:]
        v.data = y
        return v

    check(f, lambda: given(plain(3), data()))
    check(another, lambda: given(plain(3), data()))


SOURCES = {
    "part": lambda x: x[:1],
    "last": lambda x: x.narrow(0, 1, 1),
    "result": lambda x: x * 2,
    "itself": lambda x: x,
}

THEN = {
    "emptied": lambda v, x: v.set_(),
    "set elsewhere": lambda v, x: v.set_(torch.ones(2, 2, device=v.device)),
    "set back": lambda v, x: v.set_(x.detach()),
    "reshaped": lambda v, x: v.unsqueeze_(0),
    "other data": lambda v, x: setattr(v, "data", torch.ones(2, 2, device=v.device)),
    "nothing": lambda v, x: None,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("kind", ["leaf", "no leaf", "plain"])
@pytest.mark.parametrize("grad", [True, False])
@session
def test_a_tensor_assigned_inference_data_stays_an_inference_tensor(compile, source, then, kind, grad):
    def f(x):
        v = SOURCES[source](x)
        with torch.inference_mode():
            data = v.clone()
        v.data = data
        THEN[then](v, x)
        return v, v.is_inference()

    root = plain(2, 2) if kind == "plain" else leaf(2, 2)
    x = root * 1 if kind == "no leaf" else root
    with torch.set_grad_enabled(grad):
        out = attempt(lambda: compile(f)(x))
    yield out, x, root
