"""Wrapper subclasses as inputs, outputs, parameters, intermediates."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.harness import agrees, check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.wrappers import Tagged, extra, nested, tagged, two


@session
def test_attributes_of_a_wrapper_are_assigned_inside(compile):
    def f(x):
        x.note = "seen"
        x.tag = x.tag + "!"
        return x * 2

    compiled = compile(f)
    x = tagged(3)
    for _ in range(2):
        y = compiled(x)
        yield x, y, x.note, x.tag, y.tag


@session
def test_the_caller_changes_metadata_of_a_wrapper_between_calls(compile):
    compiled = compile(lambda x: x * x.scale)
    x = tagged(3, grad=True)
    for scale in (1, 3, 1):
        x.scale, x.grad = scale, None
        y = compiled(x)
        y.backward(cotangent(y))
        yield x, y


MAKERS: list[Callable[..., Any]] = [two, extra, tagged, nested]

every_class = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@every_class
def test_a_wrapper_as_input_and_output(make):
    check(lambda x: x * 2 + 1, lambda: given(make(3)))


@every_class
def test_the_gradient_of_a_wrapper(make):
    check(lambda x: (x * x, x + 1), lambda: given(make(3, grad=True)))


@every_class
@agrees(lambda make: given(make(3, grad=True)))
def test_wrapper_intermediates_get_no_grad_of_the_caller(x):
    return (x * 3).sum(), x.exp().log() if False else x * 2


@every_class
def test_a_wrapper_with_plain_tensors(make):
    check(lambda x, y: (x * y, y + 1), lambda: given(make(3), leaf(3, seed=2)))


@pytest.mark.parametrize("make", [two, extra, nested], ids=lambda make: make.__name__)
def test_a_plain_leaf_gets_a_wrapper_as_its_gradient(make):
    check(lambda x, y: x * y, lambda: given(make(3, grad=True), leaf(3, seed=2)))


@every_class
@session
def test_a_wrapper_argument_with_a_history(compile, make):
    x = make(3, grad=True)
    y = x * 2
    f = compile(lambda y: y * y)
    z = f(y)
    yield x, y, z
    z.backward(cotangent(z))
    yield x, y, z


@every_class
def test_a_reduction_of_a_wrapper(make):
    check(lambda x: x.sum(), lambda: given(make(3, 2, grad=True)))


@every_class
def test_a_wrapper_input_is_returned(make):
    check(lambda x: (x, x), lambda: given(make(3, grad=True)))


@every_class
@agrees(lambda make: (lambda t: given(t, t))(make(3)))
def test_the_same_wrapper_is_passed_twice_and_written(x, y):
    x.mul_(2)
    return x + y


@every_class
def test_a_second_call_with_other_values(make):
    check(lambda x: x * x, lambda: given(make(3, grad=True)), lambda: given(make(3, seed=5, grad=True)))


def test_later_calls_with_another_wrapper_class():
    calls = [lambda make=make: given(make(3, grad=True)) for make in MAKERS]
    check(lambda x: x * x, lambda: given(leaf(3)), *calls, lambda: given(leaf(3)))


@agrees(lambda: given(tagged(3, tag="a")), lambda: given(tagged(3, tag="b")), lambda: given(tagged(3, tag="a")))
def test_a_later_call_with_other_metadata(x):
    return x * x.scale if x.tag == "a" else x + 1


def test_metadata_of_a_wrapper_that_ops_change():
    check(lambda x: ((x * 3) * 2, x + 1), lambda: given(tagged(3, grad=True)))


def test_metadata_of_a_wrapper_is_read_inside():
    check(lambda x: x * x.get_complicated_metadata().foo, lambda: given(extra(3)), lambda: given(extra(3, constant=7)))


@session
def test_metadata_of_a_wrapper_is_changed_inside(compile):
    def f(x):
        x.add_constant(3)
        return x * x.constant_attribute

    x = extra(3)
    y = compile(f)(x)
    yield x, y, x.constant_attribute, y.constant_attribute


@session
def test_a_wrapper_from_a_closure(compile):
    w = two(3, seed=4, grad=True)

    w.grad = None
    f = compile(lambda x: x * w)
    y = f(plain(3))
    yield y, w
    y.backward(cotangent(y))
    yield y, w


def test_the_tagged_test_class_flattens_and_counts_products():
    x = Tagged(plain(2), "x")
    assert x.__tensor_flatten__() == (["elem"], {"tag": "x", "scale": 1})
    assert (x * x).scale == 2
