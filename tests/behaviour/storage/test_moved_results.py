"""Results and views (returned) whose base or own memory moved: what they alias and what autograd knows."""

import contextlib

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import agrees, attempt, attempt_later, check, check_session, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.shared import GRAD_MODES, MODES, quietly, same, view_of_leaf, view_of_non_leaf
from tests.behaviour.storage.common import MOVES_BY_SETATTR, PLAIN_AND_LEAVES, _non_leaf_and_plain, _view


def given_fresh_data(x):
    with torch.no_grad():
        v = x.view(-1)
    v.as_strided_((1,), (1,))
    v.data = torch.zeros((), device=x.device)
    return [v]


def view_of_what_moved_twice(x):
    x.data = x * 2
    v = x.squeeze()
    x.data = x.clone()
    return [v]


def view_made_in_inference_mode(x):
    with torch.inference_mode():
        v = x.view_as(x)
    with torch.no_grad():
        v.transpose_(0, -1)
    v.data = torch.ones(2, device=x.device)
    return [v]


def both_elsewhere(x):
    v = x.select(-1, -1)
    x.data = torch.ones(2, 2, device=x.device)
    v.data = torch.ones(2, device=x.device)
    return [v]


@pytest.mark.parametrize(
    "function", [given_fresh_data, view_of_what_moved_twice, view_made_in_inference_mode, both_elsewhere]
)
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_a_result_whose_data_or_base_moved_is_still_a_view(function, make, mode):
    same(function, lambda: make(mode), calls=1)


def test_an_inference_mode_view_of_a_leaf_that_moves_is_written():
    def f(x):
        with torch.inference_mode():
            v = x.t()
        x.data = torch.ones(2, device=x.device)
        v.exp_()
        return [v]

    same(f, lambda: ([x := plain(4).view(2, 2).requires_grad_()], [x]))


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
@pytest.mark.parametrize("requires", [False, True])
def test_requires_grad_of_a_no_grad_view_before_its_data_is_assigned(shape, requires):
    def f(x):
        x.requires_grad_(requires)
        x.data = torch.ones(*shape, device=x.device)
        return [x.unsqueeze(0)]

    same(f, lambda: view_of_non_leaf("no_grad"), calls=1)


@pytest.mark.parametrize("moved", ["view", "base"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("move", MOVES_BY_SETATTR.values(), ids=MOVES_BY_SETATTR)
@pytest.mark.parametrize("second", GRAD_MODES.values(), ids=GRAD_MODES)
@pytest.mark.parametrize("first", GRAD_MODES.values(), ids=GRAD_MODES)
def test_views_of_views_made_in_several_modes_one_of_which_moves(first, second, move, fresh, moved):
    def views(x, y):
        x = x * 2 if fresh else x
        with first():
            v = x.t()
        with second():
            w = v.t()
        with contextlib.suppress(RuntimeError):
            move(v if moved == "view" else x, y)
        return v, w

    def facts(t):
        def told(attribute):
            try:
                found = getattr(t, attribute)
                return found if isinstance(found, bool) else found is None
            except RuntimeError:  # how eager puts it goes by the names of nodes
                return "refused"

        return told("is_leaf"), told("grad_fn"), t.requires_grad, t.detach().clone()

    def session(compile):
        for make in (_non_leaf_and_plain, _view, lambda *shape: given(leaf(*shape), plain(3, 2, seed=4))):
            for which in (0, 1):
                found = make(2, 3)
                t = attempt(lambda: compile(lambda x, y: views(x, y)[which])(*found.args))  # noqa: B023
                yield facts(t), [facts(x) for x in found.args]
                for root in found.also:
                    g = attempt_later(lambda: torch.autograd.grad(t.sum(), root, allow_unused=True))  # noqa: B023
                    yield isinstance(g, tuple)

    check_session(session)


@pytest.mark.parametrize(
    "view", [lambda v: v.t(), lambda v: v[:1], lambda v: v.chunk(2)[0]], ids=["transpose", "slice", "part"]
)
@pytest.mark.parametrize("data", [lambda x, y: x.detach().clone(), lambda x, y: y], ids=["fresh", "argument"])
@pytest.mark.parametrize("written", ["nothing", "view", "base"])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_view_of_a_view_that_moved_has_the_same_base(compile, view, data, written, grad):
    """So autograd looks for its history once either was written, and finds a window on the base."""

    def f(x, y):
        v = x.t()
        v.data = data(x, y)
        return view(v)

    root = leaf(2, 3)
    x = root * 1 if grad else root
    out = compile(f)(x, plain(2, 3, seed=4))
    yield out, out._base is x
    with torch.no_grad():
        if written != "nothing":
            (out if written == "view" else x).add_(1)
    yield out, x
    yield attempt_later(lambda: out.sum().backward()), root.grad


@pytest.mark.parametrize("returned", ["v", "w", "vw"])
@pytest.mark.parametrize("fresh", [False, True], ids=["an argument's data", "fresh data"])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", ["plain", "plain view", "no leaf", "view"])
@session
def test_a_view_of_a_view_that_moves_before_or_after_the_base_is_reshaped(compile, make, mode, first, fresh, returned):
    def f(x, y):
        with MODES[mode]():
            v = x[0:1]
        w = v.t()
        if first:
            v.data = y.clone() if fresh else y[0:1]
        x.t_()
        if not first:
            v.data = y.clone() if fresh else y[0:1]
        return tuple([{"v": v, "w": w}[name] for name in returned])

    x, y = PLAIN_AND_LEAVES[make](), plain(2, 2, seed=3)
    out = attempt(lambda: compile(f)(x, y))
    # Which words refuse a history depends on whether there was one.
    yield [attempt_later(lambda t=t: t.is_leaf) is True for t in out], [t.detach() for t in out], x, y


@pytest.mark.parametrize("returned", ["v", "w", "vw"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", PLAIN_AND_LEAVES)
@session
def test_a_view_of_a_view_that_moves_to_a_clone(compile, make, mode, returned):
    def f(x):
        with MODES[mode]():
            v = x.t()
        w = v[:1]
        v.data = x.clone()
        return tuple([{"v": v, "w": w}[name] for name in returned])

    x = PLAIN_AND_LEAVES[make]()
    yield x, compile(f)(x)


def _give_data(v):
    v.data = torch.ones(3, device=v.device)


GOES = {
    "set to nothing": lambda v: v.set_(),
    "set to nothing and written": lambda v: (v.set_(), v.add_(1)),
    "set to what was made inside": lambda v: v.set_(torch.ones(3, device=v.device)),
    "set and written": lambda v: (v.set_(torch.ones(3, device=v.device)), v.mul_(2)),
    "set under no_grad": lambda v: quietly(v.set_),
    "given data and written": lambda v: (_give_data(v), v.mul_(2)),
    "reshaped and given data": lambda v: (v.unsqueeze_(0), _give_data(v)),
}

WRITTEN = {
    "": (lambda x, v: None, lambda w: None),
    "written before and after": (lambda x, v: v.mul_(2), lambda w: w.mul_(5)),
    "base written before": (lambda x, v: x.mul_(2), lambda w: None),
    "written after under no_grad": (lambda x, v: None, lambda w: quietly(lambda: w.mul_(5))),
}

INPUTS = {"": lambda: given(plain(2, 2)), "with a history": lambda: non_leaf(2, 2)}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
def test_a_view_of_a_view_whose_storage_is_then_replaced(go, write, make):
    before, after = write

    def f(x):
        v = x.t()
        before(x, v)
        w = v[0:1]
        go(v)
        after(w)
        return w, w * 2

    check(f, make)


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
@agrees(lambda: given(leaf(2, 2)))
def test_a_view_of_a_view_of_an_intermediate_whose_storage_is_then_replaced(x, *, go):
    y = x * 2
    v = y.t()
    w = v.unsqueeze(0)
    go(v)
    w.mul_(3)
    return w, y


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
@agrees(INPUTS["with a history"])
def test_a_view_whose_view_chain_has_two_views_with_replaced_storage(x, *, go):
    u = x.t()
    v = u.unsqueeze(0)
    w = v[..., 0]
    go(v)
    go(u)
    return w


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
@agrees(lambda: given(plain(3, 3)))
def test_a_view_of_a_view_of_an_argument_that_gets_that_view_as_data(x, *, go):
    v = x[1:]
    x.data = v
    w = v[1:]
    go(v)
    w.fill_(3)
    return w


def test_a_view_of_a_view_of_a_custom_function_result_that_is_set_to_nothing():
    def f(x):
        v = x[1:]
        again = v.detach()
        w = v.expand(2, 2, 2)[0]
        with torch.no_grad():
            v.set_()
            again.mul_(-1)
        return w, again

    def viewed(make):
        root = make()
        return given(View.apply(root), also=[root])

    check(f, lambda: viewed(lambda: plain(3, 2)))
    check(f, lambda: viewed(lambda: plain(3, 2).requires_grad_()))


def test_a_view_of_a_view_that_gets_data_after_its_base_was_set_to_nothing():
    def f(x):
        v = x.view(3, 1)
        x.set_()
        x.add_(1)
        with torch.inference_mode():
            w = v.squeeze(-1)
            z = x * 2
        v.unsqueeze_(0)
        v.data = z
        return w, x * 2

    def make():
        root = leaf(1, 3)
        base = root.clone()
        return given(base.t(), also=[base])

    check(f, make)
