"""When autograd updates the grad_fn of a view whose written base moves."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check_session, session
from tests.behaviour.inputs import given, given_of, leaf, non_leaf, plain
from tests.behaviour.storage.common import _quietly, _session

COUNTED = {
    "written": _quietly(lambda x, y: x.mul_(2)),
    "view written": _quietly(lambda x, y: y.mul_(2)),
    "reshaped in vain": _quietly(lambda x, y: x.squeeze_(0)),
    "nothing": lambda x, y: None,
}

DATA = {
    "its view": lambda x, y, z: y,
    "a part of its view": lambda x, y, z: y[..., :1],
    "turned": lambda x, y, z: x.mT,
    "another": lambda x, y, z: z[:1],
    "a result": lambda x, y, z: (y * 3).detach(),
}


@pytest.mark.parametrize("view", [lambda x: x[0:1], lambda x: x.t()], ids=["part", "transposed"])
@pytest.mark.parametrize("used", [False, True], ids=["not used", "used"])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("make", [leaf, lambda *n: leaf(*n).clone()], ids=["leaf", "no leaf"])
@session
def test_the_grad_fn_of_a_view_argument_written_before_its_base_moves(compile, make, counted, data, used, view):
    def f(x, y, z):
        COUNTED[counted](x, y)
        x.data = DATA[data](x, y, z)
        return y * 2 if used else z * 2

    x, z = make(2, 2), plain(2, 2, seed=3)
    y = view(x)
    out = compile(f)(x, y, z)
    yield out, x, y
    yield attempt_later(lambda: y.sum().backward()), x.is_leaf and x.grad


@pytest.mark.parametrize(
    "move", [lambda x: setattr(x, "data", x.detach().sum(0)), lambda x: x.t_()], ids=["data", "t_"]
)
@pytest.mark.parametrize("looks", [False, True])
@session
def test_the_grad_fn_of_a_view_whose_base_is_written_and_then_moves(compile, move, looks):
    def f(x, view):
        x.zero_()
        used = view * 2 if looks else None
        move(x)
        return view, used

    root = leaf(2, 3)
    x = root * 1
    view, used = compile(f)(x, x.view(3, 2))
    for t in [t for t in (view, used) if t is not None]:
        yield attempt_later(lambda t=t: t.sum().backward()), root.grad


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.mul_(2), lambda x: x.mul_(2).t_()])
@pytest.mark.parametrize("looks", ["before", "after", "both"])
@pytest.mark.parametrize("written_there", [False, True])
@session
def test_the_grad_fn_of_a_view_that_is_read_between_a_change_and_a_move_of_its_base(
    compile, change, looks, written_there
):
    def f(x, view, y):
        change(x)
        used = view * 2 if looks != "after" else None
        x.data = y
        if written_there:
            x.mul_(3)
        return view, used, view * 3 if looks != "before" else None

    root = leaf(2, 3)
    x = root * 1
    out = compile(f)(x, x.view(3, 2), plain(4, 2, seed=1))
    yield out, x
    for t in [t for t in out if t is not None]:
        yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [root], retain_graph=True))


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(3))
@session
def test_the_grad_fn_of_a_view_whose_base_is_written_before_and_after_it_moves(compile, before, after):
    """The call counts them otherwise than the program does."""

    def f(x):
        for _ in range(before):
            x.mul_(2)
        view = x.t()
        x.data = view
        for _ in range(after):
            x.mul_(3)
        return view

    root = leaf(2, 1)
    base = root * 1
    x = base.t()
    out = compile(f)(x)
    yield out
    yield attempt_later(lambda: torch.autograd.grad(out.sum(), [root, base, x], allow_unused=True))


def test_a_view_of_an_argument_negated_in_place_that_is_then_assigned_the_view():
    def f(x):
        v = x.t()
        x.logical_not_()
        x.data = v
        return v

    check_session(_session(f, lambda: given(leaf(2, 2)), [lambda: plain(2, 2)]))


@pytest.mark.parametrize("times", [1, 2, 3])
@agrees(lambda: non_leaf(2, 2))
def test_the_grad_fn_of_a_view_whose_base_is_written_several_times_and_moves(x, *, times):
    """The call writes it once: when its views were made is not told by counting."""
    for _ in range(times):
        x.neg_()
    y = x.clone()
    v = x.t()
    x.data = y
    x.zero_()
    return v


@pytest.mark.parametrize("part", [lambda x: torch.split(x, [1, 1])[0], lambda x: x.t(), lambda x: x.unbind()[1]])
@agrees(lambda: given_of(leaf(2, 2), lambda root: (root.clone(), plain(2, 2, seed=4))))
def test_a_view_of_a_written_argument_moved_to_memory_that_is_written_by_another(x, y, *, part):
    """The part was made after the history of what it is of, whenever the memory was written last."""
    x.zero_()
    v = part(x)
    x.data = y
    y.zero_()
    return v


def _quiet_view(x):
    with torch.no_grad():
        return x[0:1]


def _inference_view(x):
    with torch.inference_mode():
        return x.t()


VIEWS = {
    "unbound": lambda x: x.unbind(0)[0],
    "split": lambda x: x.split(1)[1],
    "quietly": _quiet_view,
    "in inference mode": _inference_view,
}

COUNTED_CHANGES = {
    "reshaped": lambda x, y: y.unsqueeze_(0),
    "reshaped in vain": lambda x, y: y.squeeze_(0),
    "put back": lambda x, y: y.set_(x),
    "written": lambda x, y: y.detach().mul_(2),
    "alias reshaped": lambda x, y: x.detach().t_(),
    "alias put back": lambda x, y: x.detach().set_(x.detach()),
}


@pytest.mark.parametrize("move", ["x", "y", "both", "neither"])
@pytest.mark.parametrize("counted", COUNTED_CHANGES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("make", [leaf, plain], ids=["leaf", "plain"])
@session
def test_a_view_made_after_a_reshape_set_or_write_of_an_alias_that_then_moves(compile, make, view, counted, move):
    def f(x, y):
        COUNTED_CHANGES[counted](x, y)
        v = VIEWS[view](x)
        if move in ("x", "both"):
            x.data = x.detach().clone()
        if move in ("y", "both"):
            y.data = y.clone()
        return v

    x = make(2, 2)
    y = x.detach()
    v = compile(f)(x, y)
    yield v, x, y
    yield attempt_later(lambda: v.requires_grad and v.sum().backward()), x.grad
