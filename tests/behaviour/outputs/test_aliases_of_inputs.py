"""Views of inputs returned."""

from tests.behaviour.harness import agrees, check, one_of, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.outputs.common import check_views
from tests.behaviour.shared import INPUTS, KINDS_OF_VIEWS

make = one_of(INPUTS)
view = one_of(KINDS_OF_VIEWS)


def test_an_alias_of_an_input_has_eagers_base_and_grad_fn(view, make):
    check_views(view, make)


def test_an_alias_is_returned_with_the_input_and_a_fresh_result(view, make):
    check_views(lambda x: (view(x), x, x * 2), make)


def test_two_aliases_of_one_input(view, make):
    check_views(lambda x: (view(x), x[0], view(x)), make)


def test_aliases_made_before_and_after_the_input_is_mutated(view):
    def f(x):
        before = view(x)
        x.mul_(2)
        return before, view(x), x * 1

    for kind in ("plain", "non-leaf", "view"):
        check_views(f, INPUTS[kind])


@session
def test_the_grad_fn_of_an_alias_is_that_of_its_view_op(compile):
    x = leaf(2, 3)
    y = x * 1
    f = compile(lambda y: (y.t(), y.view(6), y[1:]))
    yield [type(alias.grad_fn).__name__ for alias in f(y)]


@agrees(lambda: given(plain(2, 3)), lambda: non_leaf(2, 3), anew=True)
def test_an_alias_of_an_input_is_written_and_returned(x):
    y = x[0]
    y.mul_(2)
    return y, x.sum()


def test_a_reshape_that_is_a_view_for_one_layout_and_a_copy_for_another():
    check(lambda x: x.reshape(-1), lambda: given(leaf(2, 3)), lambda: given(plain(3, 2).t().requires_grad_()))
