"""The same tensor twice."""

import pytest

from tests.behaviour.harness import check
from tests.behaviour.inputs import Given, given, leaf, plain


def test_the_same_tensor_three_times_and_a_view_of_it():
    def f(a, b, c, d):
        b.mul_(2)
        d.add_(1)
        return a * c, d, b is c

    def make() -> Given:
        x = plain(4)
        return given(x, x, x, x[1:])

    check(f, make)


def test_the_same_tensor_as_an_argument_and_in_a_list():
    def f(x, many):
        many[0].mul_(2)
        return x * 3, [m * 2 for m in many]

    def make() -> Given:
        x = plain(3)
        return given(x, [x, plain(3, seed=1), x])

    check(f, make)


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
    def make() -> Given:
        x = plain(2, 3)
        return given(x, x)

    check(lambda x, y: (change(x), y.add_(1), y, x is y)[1:], make)


def test_set_of_a_tensor_passed_twice():
    def f(x, y, z):
        x.set_(z)
        return y * 2

    def make() -> Given:
        x = plain(3)
        return given(x, x, plain(4, seed=1))

    check(f, make)


def test_the_same_tensor_passed_twice_gets_one_gradient():
    def make() -> Given:
        x = leaf(3)
        return given(x, x)

    check(lambda x, y: x * y + x, make)


def test_a_mutation_of_a_tensor_passed_twice_is_seen_through_both():
    def f(x, y):
        x.add_(1)
        return y * 2, x is y

    def make() -> Given:
        x = plain(3)
        return given(x, x)

    check(f, make)
