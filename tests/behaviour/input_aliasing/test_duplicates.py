"""The same tensor twice."""

import pytest

from tests.behaviour.harness import agrees, check
from tests.behaviour.inputs import Given, given, given_of, leaf, plain


@agrees(lambda: given_of(plain(4), lambda x: (x, x, x, x[1:])))
def test_the_same_tensor_three_times_and_a_view_of_it(a, b, c, d):
    b.mul_(2)
    d.add_(1)
    return a * c, d, b is c


@agrees(lambda: given_of(plain(3), lambda x: (x, [x, plain(3, seed=1), x])))
def test_the_same_tensor_as_an_argument_and_in_a_list(x, many):
    many[0].mul_(2)
    return x * 3, [m * 2 for m in many]


def test_the_same_non_leaf_twice_is_written_once():
    def f(x, y):
        x.mul_(2)
        return x * y

    def make() -> Given:
        root = leaf(3)
        x = root * 1
        return given(x, x, also=[root])

    check(f, make)


@pytest.mark.parametrize(
    "change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.resize_(1, 2), lambda x: x.detach_()]
)
def test_a_metadata_change_of_a_tensor_passed_twice(change):
    check(lambda x, y: (change(x), y.add_(1), y, x is y)[1:], lambda: given_of(plain(2, 3), lambda x: (x, x)))


@agrees(lambda: given_of(plain(3), lambda x: (x, x, plain(4, seed=1))))
def test_set_of_a_tensor_passed_twice(x, y, z):
    x.set_(z)
    return y * 2


def test_the_same_tensor_passed_twice_gets_one_gradient():
    check(lambda x, y: x * y + x, lambda: given_of(leaf(3), lambda x: (x, x)))


@agrees(lambda: given_of(plain(3), lambda x: (x, x)))
def test_a_mutation_of_a_tensor_passed_twice_is_seen_through_both(x, y):
    x.add_(1)
    return y * 2, x is y
