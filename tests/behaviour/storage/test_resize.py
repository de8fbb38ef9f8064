"""Resize_, resize_as_."""

import pytest
import torch

from tests.behaviour.harness import agrees, check, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain


@agrees(lambda: given(plain(2), plain(4, seed=1)))
def test_resize_grows_an_input(x, y):
    x.resize_(4)
    x.copy_(y)
    return x * 2


@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_resize_to_no_elements_and_back(x, y):
    x.resize_(0)
    x.resize_(3)
    x.copy_(y)
    return x * 2


@agrees(lambda: given(plain(4)))
def test_resize_shrinks_an_argument_that_has_a_view(x):
    view = x[2:]
    x.resize_(2)
    view.add_(1)
    return x * 2, view


def test_resize_of_a_tensor_that_requires_grad_is_eagers_error():
    check(lambda x: x.resize_(2), lambda: given(leaf(3)))
    check(lambda x: x.resize_(2), lambda: non_leaf(3))


@pytest.mark.parametrize(
    "out",
    [lambda: plain(0), lambda: plain(3), lambda: plain(2, 2), lambda: plain(6).view(3, 2).t()],
    ids=["empty", "fits", "other size", "strided"],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@agrees(lambda out: given(plain(3), plain(3, seed=1), out()))
def test_out_resizes_an_argument(x, y, z):
    torch.add(x, y, out=z)
    return z * 2


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_out_resizes_an_intermediate(x, y):
    z = torch.empty(0, device=x.device)
    torch.mul(x, y, out=z)
    w = torch.cat([x, y], out=x.new_empty(1))
    return z, z * 2, w


@agrees(lambda: given(plain(1), plain()))
def test_out_resizes_an_argument_that_requires_grad_under_no_grad(x, y):
    y.requires_grad_()
    z = y.clone()
    with torch.no_grad():
        torch.cumsum(x, 0, out=y)
    return z


@session
def test_out_resizes_an_inference_tensor_in_inference_mode(compile):
    def f(x):
        v = x.clone()
        with torch.inference_mode():
            torch.sum(v, 0, out=x)

    with torch.inference_mode():
        x = plain(1)
    compile(f)(x)
    yield x, x.shape


@agrees(lambda: given(plain(1), plain()))
def test_out_resizes_a_view_after_set_of_its_base(x, y):
    v = x.t()
    x.set_(y)
    w = v[1:]
    torch.sum(x, 0, out=w)
    return w


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize(
    "grow",
    [
        lambda x: x.resize_(6),
        lambda x: (x.clone().resize_(6), x.logical_not()),
        lambda x: (x[1:].resize_(4), x),
        lambda x: (x.resize_(2), x.resize_(5)),
        lambda x: x.resize_as_(x.new_zeros(3, 3)),
    ],
    ids=["input", "intermediate", "view", "twice", "as another"],
)
@session
def test_new_elements_of_resize_in_deterministic_mode(compile, grow, dtype):
    compiled = compile(grow)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        x = plain(4).to(dtype)
        yield compiled(x), x
    finally:
        torch.use_deterministic_algorithms(before)
