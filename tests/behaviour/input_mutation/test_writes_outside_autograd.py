"""Under no_grad, through detach() and .data."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, session
from tests.behaviour.input_mutation.common import leaf_that_is_a_view
from tests.behaviour.inputs import given, given_of, leaf, non_leaf, plain
from tests.behaviour.shared import VIEWS


@agrees(lambda: given(leaf(3)))
def test_an_input_written_through_detach(x):
    y = x * 1
    x.detach().add_(1)
    return y * 2, x * 3


@agrees(lambda: given(leaf(3)))
def test_an_input_written_through_data(x):
    x.data.mul_(2)
    return x * x


@agrees(lambda: given(leaf(3)))
def test_an_input_written_under_no_grad(x):
    with torch.no_grad():
        x.add_(1)
    return x * 2


UNSEEN_VIEWS = {
    "alias": lambda x: x.view(x.shape),
    "row": lambda x: x[:1],
    "column": lambda x: x[:, :1],
    "t": lambda x: x.t(),
}

COUNTED = {"itself": lambda x: x.mul_(2), "an alias": lambda x: x.detach().add_(1), "none": lambda x: None}

UNSEEN = {"data": lambda x: x.data.add_(1), "none": lambda x: None}


@pytest.mark.parametrize("view", UNSEEN_VIEWS)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
@session
def test_a_view_of_a_no_grad_view_made_between_a_write_and_one_through_data(
    compile, view, counted, unseen, grad, is_leaf
):
    def f(x):
        COUNTED[counted](x)
        made = UNSEEN_VIEWS[view](x)
        UNSEEN[unseen](x)
        return made

    root = leaf(2, 2)
    with torch.no_grad():
        x = (root if is_leaf else root * 1).view(2, 2)
    with torch.set_grad_enabled(grad):
        out = attempt(lambda: compile(f)(x))
    yield out, x, root


@pytest.mark.parametrize("view", UNSEEN_VIEWS)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
@session
def test_a_view_of_a_no_grad_view_made_before_its_base_gets_a_history(compile, view, counted, twice, swapped):
    def f(x, y):
        with torch.no_grad():
            quiet = x.t()
            COUNTED[counted](x)
        made = UNSEEN_VIEWS[view](quiet)
        made = UNSEEN_VIEWS[view](made) if twice else made
        if swapped:
            torch.utils.swap_tensors(made, y)
        x.mul_(made if swapped else y)
        return made, quiet

    x, y = plain(2, 2), leaf(2, 2)
    out = attempt(lambda: compile(f)(x, y))
    yield out, x, y, attempt_later(lambda: torch.autograd.grad(x.sum(), y))


@agrees(lambda: given(leaf(3)))
def test_a_write_under_no_grad_to_a_leaf_that_was_used_before(x):
    y = x * x
    with torch.no_grad():
        x.add_(1)
    return y


@agrees(lambda: given(leaf(3)))
def test_a_write_through_data_after_a_use_is_not_noticed_by_autograd(x):
    y = x * x
    x.data.add_(1)
    return y, x * 2


@agrees(lambda: given(leaf(3)))
def test_a_write_through_a_detached_alias_after_a_use_is_noticed_at_backward(x):
    y = x * x
    x.detach().add_(1)
    return y


@agrees(lambda: non_leaf(3))
def test_a_write_through_a_detached_alias_of_a_non_leaf(x):
    x.detach().mul_(2)
    return x * 3


@agrees(lambda: given(leaf(3)))
def test_a_view_of_data_is_written(x):
    x.data[1:].mul_(2)
    x.data.view(-1)[0] = 7
    return x * x


@agrees(lambda: given(leaf(4)), lambda: non_leaf(4), anew=True)
def test_a_write_under_no_grad_through_a_view_made_with_grad(x):
    y = x[1:]
    with torch.no_grad():
        y.mul_(2)
    return x * 3, y * 2


@agrees(
    lambda: given(plain(4), plain(3)),
    lambda: given(plain(4), leaf(3)),
    lambda: given(leaf(4), plain(3)),
    lambda: given(*non_leaf(4).args, plain(3)),
    anew=True,
)
def test_a_write_with_grad_through_a_view_made_under_no_grad(x, w):
    with torch.no_grad():
        y = x[1:]
    y.mul_(w)
    return x * 3


@agrees(lambda: given(leaf(3)))
def test_an_intermediate_saved_and_then_written_under_no_grad(x):
    y = x * 2
    z = y * y
    with torch.no_grad():
        y.add_(1)
    return z


@agrees(lambda: given(leaf(3)))
def test_an_intermediate_saved_and_then_written_through_data(x):
    y = x * 2
    z = y * y
    y.data.add_(1)
    return z


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_an_input_saved_and_written_through_data_inside(buffer, x):
    y = x * buffer
    buffer.data.add_(1)
    return y


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@agrees(lambda dtype, shape: given_of(leaf(*shape, dtype=dtype), lambda a: (a.unsqueeze(0),)))
def test_a_view_of_a_leaf_written_under_no_grad_and_saved(x):
    with torch.no_grad():
        x.zero_()
    return x * x


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@agrees(leaf_that_is_a_view, leaf_that_is_a_view)
def test_a_no_grad_write_to_a_leaf_that_is_a_view_shows_in_a_view_made_before(x, *, view, used):
    seen = view(x)
    before = seen * seen if used else None
    with torch.no_grad():
        x.mul_(2)
    return seen * 3, before
