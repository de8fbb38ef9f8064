"""A later call whose arguments overlap otherwise or are the same tensor."""

from collections.abc import Iterator

import pytest
import torch

from tests.behaviour.entry_points.common import write_first
from tests.behaviour.harness import check, one_of, session, through_dynamo
from tests.behaviour.inputs import Given, given, given_of, leaf, plain


@pytest.fixture(params=[None, through_dynamo], ids=["aot_function", "torch.compile"])
def compile_(request: pytest.FixtureRequest) -> Iterator:
    torch._dynamo.reset()
    yield request.param
    torch._dynamo.reset()


def write_second_between(x, y):
    z = x * 2
    y.add_(1)
    return z, x * 3


def read(x, y):
    return x * y, x + 1


function = one_of([write_first, write_second_between, read])


def apart() -> Given:
    return given(plain(3), plain(3, seed=1))


def overlap_of_views(offset: int, grad: bool = False):
    def make() -> Given:
        root = plain(8).requires_grad_(grad)
        base = root * 1
        return given(base[:3], base[offset : offset + 3], also=[root, base])

    return make


def test_an_overlap_appears(function, compile_):
    check(function, apart, overlap_of_views(1), compile=compile_)


def test_an_overlap_moves(function, compile_):
    check(function, overlap_of_views(1), overlap_of_views(2), overlap_of_views(1), compile=compile_)


def test_an_overlap_vanishes(function, compile_):
    check(function, overlap_of_views(1), overlap_of_views(4), apart, compile=compile_)


def same() -> Given:
    x = plain(3)
    return given(x, x)


def test_a_later_call_gets_the_same_tensor_twice(function, compile_):
    check(function, apart, same, apart, compile=compile_)
    check(function, same, apart, compile=compile_)


def test_a_later_call_gets_two_equal_views(function, compile_):
    check(function, overlap_of_views(0), overlap_of_views(1), same, overlap_of_views(0), compile=compile_)


def test_an_overlap_appears_between_tensors_that_require_grad(function, compile_):
    check(
        function,
        overlap_of_views(4, True),
        overlap_of_views(1, True),
        overlap_of_views(0, True),
        overlap_of_views(4, True),
        compile=compile_,
    )


def test_an_overlap_appears_between_a_detached_alias_and_a_leaf(compile_):
    def f(x, y):
        y.mul_(2)
        return x * 3

    def detached() -> Given:
        x = leaf(3)
        return given(x, x.detach())

    check(f, lambda: given(leaf(3), plain(3)), detached, compile=compile_)


def test_a_later_call_gets_interleaved_views(function, compile_):
    def interleaved() -> Given:
        base = plain(6)
        return given(base[::2], base[1::2], also=[base])

    check(function, interleaved, apart, compile=compile_)
    check(function, apart, interleaved, overlap_of_views(1), compile=compile_)


def test_a_base_and_a_view_in_another_order(function, compile_):
    def base_first() -> Given:
        base = plain(3)
        return given(base, base[:])

    check(function, base_first, lambda: given_of(plain(3), lambda base: (base[:], base)), apart, compile=compile_)


@session(compile="compile_")
def test_an_alias_in_a_closure_appears_and_moves(compile):
    base = plain(6)
    held = [base[:3]]

    def f(x):
        x.mul_(2)
        return held[0] * 3, x * 1

    compiled = compile(f)
    yield compiled(plain(3)), base
    yield compiled(base[1:4]), base
    yield compiled(base[2:5]), base
    yield compiled(base[:3]), base


def test_the_third_of_three_aliases_moves(compile_):
    def f(x, y, z):
        y.add_(1)
        return x * 2, z * 3

    def make(i: int, j: int):
        def make() -> Given:
            base = plain(10)
            return given(base[:3], base[i : i + 3], base[j : j + 3], also=[base])

        return make

    check(f, make(1, 2), make(1, 5), make(5, 6), make(5, 1), compile=compile_)
