"""The harness itself: it is silent where nothing differs, and it sees each kind of difference that is planted."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.behaviour.harness import agrees, check, session
from tests.behaviour.inputs import given, leaf, plain

Broken = Callable[[Any], Any]


def double(x):
    return x * 2


def ignoring(change: Callable[..., Any]) -> Broken:
    """A compiler that compiles anything to `change`."""
    return lambda function: change


def fails(function, make, broken: Broken, match: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=match):
        check(function, make, compile=broken)


@agrees(lambda: given(plain(2, 3), leaf(2, 3)), compile=lambda function: function)
def test_the_identity_differs_in_nothing(x, y):
    x.add_(1)
    return x, x.view(-1), y * 2, y.t(), None, 3


PLANTED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "value": (double, lambda x: x * 3),
    "dtype": (double, lambda x: (x * 2).double()),
    "shape": (double, lambda x: (x * 2).view(-1)),
    "stride": (double, lambda x: (x * 2).t().contiguous().t()),
    "storage offset": (double, lambda x: torch.cat([x, x * 2])[2:]),
    "requires_grad": (double, lambda x: (x * 2).detach()),
    "is a leaf": (double, lambda x: (x * 2).detach().requires_grad_()),
    "conj": (lambda x: torch.complex(x, x), lambda x: torch.complex(x, -x).conj()),
    "grad:": (double, lambda x: x + x.detach()),
    "structure": (lambda x: (x * 2,), lambda x: [x * 2]),
    "identity": (lambda x: [x * 2] * 2, lambda x: [x * 2, x * 2]),
    "storage: ": (lambda x: [x * 2] * 2, lambda x: [x * 2, x * 2]),
    "random number": (double, lambda x: (torch.rand(1), x * 2)[1]),
    "Raised": (lambda x: x.view(7), lambda x: x.view(8)),
    "5 is 6": (lambda x: 5, lambda x: 6),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_difference_is_seen(what: str):
    function, broken = PLANTED[what]
    fails(function, lambda: given(leaf(2, 3)), ignoring(broken), what)


def test_an_alias_that_should_not_be_is_seen():
    fails(lambda x: x.clone(), lambda: given(plain(2, 3)), ignoring(lambda x: x.view(2, 3)), "storage: ")


def test_a_mutation_left_out_is_seen():
    fails(lambda x: x.add_(1) is None, lambda: given(plain(3)), ignoring(lambda x: False), "value")


def test_a_metadata_mutation_left_out_is_seen():
    fails(lambda x: x.t_() is None, lambda: given(plain(2, 3)), ignoring(lambda x: False), "shape")


def test_a_gradient_of_zeros_in_place_of_none_is_seen():
    fails(
        lambda x, y: x * 2,
        lambda: given(leaf(3), leaf(3)),
        ignoring(lambda x, y: x * 2 + y * 0),
        "grad: None is tensor",
    )


def test_nan_in_place_of_a_number_is_seen_and_nan_equals_nan():
    fails(double, lambda: given(leaf(3)), ignoring(lambda x: x * float("nan")), "value")
    check(lambda x: x * float("nan"), lambda: given(leaf(3)), compile=lambda function: function)


def test_an_error_in_place_of_a_result_is_seen():
    def broken(x):
        raise RuntimeError("no")

    fails(double, lambda: given(leaf(3)), ignoring(broken), "Raised")


def test_a_result_in_place_of_an_error_is_seen():
    fails(lambda x: x.add_(1), lambda: given(leaf(3)), ignoring(double), "Raised")


def test_an_error_at_backward_that_should_be_is_seen():
    def f(x):
        y = x.exp()
        y.add_(1)
        return y

    fails(f, lambda: given(leaf(3)), ignoring(lambda x: x.exp() + 1), "Raised")


def test_the_grad_mode_left_changed_is_seen():
    def broken(x):
        torch.set_grad_enabled(False)
        with torch.enable_grad():
            return x * 2

    try:
        fails(double, lambda: given(leaf(3)), ignoring(broken), "grad mode")
    finally:
        torch.set_grad_enabled(True)


def test_a_second_call_that_bakes_in_the_first_is_seen():
    def bakes(function):
        first = []

        def call(x, n):
            first.append(n)
            return function(x, first[0])

        return call

    with pytest.raises(pytest.fail.Exception, match="value"):
        check(lambda x, n: x * n, lambda: given(leaf(3), 2), lambda: given(leaf(3), 3), compile=bakes)


def test_plain_makes_tensors_on_the_device_under_test(device: str):
    assert plain(1).device.type == device


def test_a_session_is_a_test_with_the_parameters_of_its_own():
    @session(compile=lambda function: lambda x: function(x) + 1)
    def off_by_one(compile, factor):
        yield compile(lambda x: x * factor)(plain(3))

    assert list(inspect.signature(off_by_one).parameters) == ["factor"]
    with pytest.raises(pytest.fail.Exception, match="differs from eager's"):
        off_by_one(factor=2)
