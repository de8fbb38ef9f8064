"""BEHAVIOUR 3: tensors that go elsewhere, by ``.data =`` and ``set_``, beside other changes and views of them."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch

from tests.behaviour.harness import (
    Given,
    attempt,
    attempt_later,
    check,
    check_session,
    given,
    leaf,
    plain,
    through_dynamo,
)
from tests.behaviour.wrappers import two


def _non_leaf(*shape: int) -> Given:
    root = leaf(*shape)
    return given(root.clone(), plain(3, 2, seed=4), also=[root])


def _view(*shape: int) -> Given:
    root = leaf(*shape)
    base = root.clone()
    return given(base[:], plain(3, 2, seed=4), also=[root, base])


class _ReturnsView(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].squeeze(0)


# -- changes in place and other data ------------------------------------------------------------------


def _without_grad(x, y):
    with torch.no_grad():
        x.set_(y)


MOVES = {
    "data": lambda x, y: setattr(x, "data", y),
    "set_": lambda x, y: x.set_(y),
    "set_ under no_grad": _without_grad,
}
CHANGES = {"t_": lambda x: x.t_(), "unsqueeze_": lambda x: x.unsqueeze_(0)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("shape", [(2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("make", [_non_leaf, _view])
def test_an_argument_reshaped_in_place_and_moved(make, shape, move, change):
    def before(x, y):
        change(x)
        move(x, y)
        return x * 2

    def after(x, y):
        move(x, y)
        change(x)
        return x * 2

    def itself(x, y):
        change(x)
        move(x, y)
        return x

    for body in (before, after, itself):
        check(body, lambda: make(*shape))


@pytest.mark.parametrize("make", [_non_leaf, _view])
def test_an_argument_reshaped_in_place_and_given_data_of_its_own_storage(make):
    def itself(x, y):
        x.squeeze_()
        x.data = x.unsqueeze(-1)
        return x

    def made_inside(x, y):
        view = x.select(0, 0)
        view.squeeze_()
        view.data = x
        return view

    def back(x, y):
        x.squeeze_()
        x.data = x.unsqueeze(0)
        return x.t()

    for body in (itself, made_inside, back):
        check(body, lambda: make(1, 2), backward=None)


def test_a_view_of_what_went_elsewhere_is_reshaped_in_place():
    def f(x, y):
        view = x.t()
        x.data = y
        view.t_()
        return view

    check(f, lambda: _non_leaf(2, 2))
    check(f, lambda: _non_leaf(3, 2))


# -- where gradients of a leaf arrive -----------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("used", [True, False])
def test_a_leaf_set_to_a_window_on_its_own_storage(mode, used):
    def f(x):
        with mode():
            x.set_(x, 0, ())
        return x

    def session(compile):
        x = leaf(1)
        alive = x * 2 if used else None
        out = attempt(lambda: compile(f)(x))
        yield out, x
        yield attempt_later(lambda: torch.autograd.grad(out, x)), alive is None

    check_session(session)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float32], ids=str)
@pytest.mark.parametrize("used", ["before", "after"])
@pytest.mark.parametrize("alive", [True, False])
def test_a_leaf_that_is_given_data_of_another_dtype(dtype, used, alive):
    def f(x, y):
        z = x * 2 if used == "before" else None
        x.data = y
        return z if z is not None else x * 2

    def session(compile):
        for named in (False, True):
            x, y = leaf(), plain(dtype=dtype, seed=1)
            held = x.exp() if alive else None
            out = attempt(lambda: compile(f)(x, y))  # noqa: B023
            inputs = {"inputs": [x]} if named else {}
            yield attempt_later(lambda: torch.autograd.backward(out, torch.ones_like(out), **inputs))  # noqa: B023
            yield x, x.grad, held is None

    check_session(session)


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[1:], lambda x: x.unsqueeze(0)[:, 1:]])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_view_of_a_leaf_that_is_set_elsewhere_and_used_only_there(view, grad, size):
    def f(x, y):
        with torch.set_grad_enabled(grad):
            v = view(x)
        with torch.no_grad():
            x.set_(y[:size].clone())
        return v, x * 2

    def session(compile):
        x = torch.empty(0).set_(plain(5).untyped_storage(), 0, (3,), (2,)).requires_grad_()
        v, y = compile(f)(x, plain(4, seed=1))
        yield v, x, y
        yield attempt_later(lambda: y.sum().backward()), x.grad
        yield attempt_later(lambda: v.sum().backward()), x.grad

    check_session(session)


def test_a_leaf_used_in_the_shape_that_set_gave_it_and_then_given_another():
    def f(x, y):
        with torch.no_grad():
            before = x.clone()
            x.set_(y)
        v = x.clone()
        x.data = before
        return v, x

    def session(compile):
        for roots in ((0,), (1,), (0, 1)):
            x, y = leaf(), plain(1, seed=1)
            out = attempt(lambda: compile(f)(x, y))  # noqa: B023
            yield out, x, y
            for k in roots:
                yield attempt_later(lambda k=k: out[k].sum().backward()), x, x.grad  # noqa: B023

    check_session(session)


# -- views ----------------------------------------------------------------------------------------------


def test_a_view_of_a_custom_view_beside_what_counts_as_a_write():
    def base_set(x, view, y):
        v = view.mT
        x.set_(y)
        return v

    def given_data(x, view, y):
        view.data = view.clone()
        v = view.t()
        with torch.no_grad():
            view.zero_()
        return v

    def make() -> Given:
        roots = leaf(2), leaf(2, seed=1)
        x = roots[0] * 2
        return given(x, _ReturnsView.apply(x), _ReturnsView.apply(roots[1] * 2), also=roots)

    for body in (base_set, given_data):
        check(body, make, backward=None, probe=False)


@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
def test_an_unsafe_view_in_inference_mode_of_what_is_then_reshaped(split):
    def f(x):
        v, _ = split(x, *((1, 1) if split is torch.unsafe_split else (2, 1)))
        x.squeeze_(1)
        return v

    def session(compile):
        x = leaf(1, 2).clone()
        with torch.inference_mode():
            v = attempt(lambda: compile(f)(x))
        yield v, x

    check_session(session)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
def test_an_unsafe_view_of_what_is_then_given_other_data(split, requires_grad):
    def f(x):
        y = x.clone()
        v, w = split(y, *((1, 1) if split is torch.unsafe_split else (2, 1)))
        y.data = v
        return w, y

    check(f, lambda: given(leaf(1, 2) if requires_grad else plain(1, 2)))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
def test_an_unsafe_view_that_is_then_given_other_data(split, requires_grad):
    def f(x):
        v, w = split(x, *((1, 1) if split is torch.unsafe_split else (2, 1)))
        other = v.clone()
        v.data = other
        return v, w, other

    check(f, lambda: given(leaf(1, 2) if requires_grad else plain(1, 2)))


def test_a_view_that_takes_the_place_of_an_argument_and_is_set():
    def f(x, y):
        v = y.t()
        y.data = x
        torch.utils.swap_tensors(x, v)
        x.set_(y)

    def make() -> Given:
        shared = plain(3, seed=1)
        return given(plain(3), shared[:], also=[shared])

    check(f, make)


def test_a_wrapper_made_of_an_argument_that_was_set():
    def f(x):
        x.set_()
        return two_of(x.clone(), x)

    def other(x):
        x.set_(x.new_ones(2, 2))
        return two_of(x.clone(), x)

    two_of = type(two(1))
    for body in (f, other):
        check(body, lambda: given(plain(3)))


@pytest.mark.parametrize("returned", [(0,), (1,), (0, 1)], ids=str)
def test_a_view_of_one_of_several_views_of_what_is_then_reshaped(returned):
    def f(x):
        x.zero_()
        part = x.unbind()[0]
        several = part, part.view(1, 1)
        x.t_()
        return [several[k] for k in returned]

    check(f, lambda: given(leaf(2, 1).clone()))


@pytest.mark.parametrize("op", [torch.unsafe_split, torch.unsafe_chunk])
def test_a_view_of_an_unsafe_view_made_in_inference_mode(op):
    def f(x):
        with torch.inference_mode():
            v = op(x, 1)[0]
        with torch.inference_mode():
            return v.t()

    check(f, lambda: given(leaf(2, 2)))
    check(f, lambda: given(plain(2, 2)))


def test_a_view_keeps_its_history_when_what_it_was_made_of_goes_elsewhere():
    def fresh(x):
        v = x * 2
        w = v.t()
        v.data = w
        return w, v

    def inference(x):
        with torch.inference_mode():
            v = x.t()
        w = v.t()
        v.data = x
        return w

    for body in (fresh, inference):
        check(body, lambda: given(leaf(1, 2)))
        check(body, lambda: given(leaf(2, 2)))


# -- views of views, made in several modes ---------------------------------------------------------------

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@pytest.mark.parametrize("moved", ["view", "base"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("second", MODES.values(), ids=MODES)
@pytest.mark.parametrize("first", MODES.values(), ids=MODES)
def test_views_of_views_one_of_which_goes_elsewhere(first, second, move, fresh, moved):
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
        for make in (_non_leaf, _view, lambda *shape: given(leaf(*shape), plain(3, 2, seed=4))):
            for which in (0, 1):
                found = make(2, 3)
                t = attempt(lambda: compile(lambda x, y: views(x, y)[which])(*found.args))  # noqa: B023
                yield facts(t), [facts(x) for x in found.args]
                for root in found.also:
                    g = attempt_later(lambda: torch.autograd.grad(t.sum(), root, allow_unused=True))  # noqa: B023
                    yield isinstance(g, tuple)

    check_session(session)


# -- when the history of a view is looked for -----------------------------------------------------------


def _other_strides(x, y):
    x.zero_()
    x.data = x.clone()
    return x


def _other_strides_twice(x, y):
    x.zero_()
    x.data = x.clone()
    x.data = y
    return x


def _reshaped_after_other_strides(x, y):
    x.zero_()
    x.data = x.clone()
    x.unsqueeze_(0)
    return x


@pytest.mark.parametrize("f", [_other_strides, _other_strides_twice, _reshaped_after_other_strides])
def test_what_a_view_showed_of_its_base_when_written_stays_in_its_history(f):
    def session(compile):
        root = leaf()
        base = root.clone()
        x = base.expand(2)
        y = compile(f)(x, plain(2))
        yield y, base
        yield torch.autograd.grad(y.sum(), base)

    check_session(session)


ROWS = {
    "row": lambda x: x.view(1, -1),
    "t": lambda x: x.t(),
    "part": lambda x: x[:1],
    "reshaped": lambda x: x.t().unsqueeze_(0),
    "strided": lambda x: x.t().as_strided_((2,), (2,)),
}
OTHER_DATA = {"argument": lambda x, v: x, "its transpose": lambda x, v: v.transpose(0, -1), "a part": lambda x, v: v[0]}


@pytest.mark.parametrize("other", OTHER_DATA.values(), ids=OTHER_DATA.keys())
@pytest.mark.parametrize("view", ROWS.values(), ids=ROWS.keys())
def test_a_view_made_inside_that_is_written_and_then_lies_otherwise(view, other):
    def f(x):
        v = view(x)
        v.mul_(2)
        v.data = other(x, v)
        return v

    def session(compile):
        root = leaf(2, 3)
        x = root.clone()
        v = compile(f)(x)
        yield v, x
        shape = view(x).shape  # gradients fit what the history recorded
        for g in (torch.ones_like(v), plain(*shape)):
            yield attempt_later(lambda g=g: torch.autograd.grad(v, root, g, retain_graph=True))

    check_session(session)


LOOKS_AT_NOTHING = {
    "data": lambda x, y: setattr(x, "data", y),
    "swap": lambda x, y: torch.utils.swap_tensors(x, x),
    "nothing": lambda x, y: None,
}


@pytest.mark.parametrize("act", LOOKS_AT_NOTHING.values(), ids=LOOKS_AT_NOTHING.keys())
def test_the_history_of_a_written_view_is_not_looked_for_where_eager_does_not(act):
    def f(x, y):
        with torch.no_grad():
            x.zero_()
        with torch.inference_mode():  # where torch could not make the view again to find it
            act(x, y)
        return x.clone()

    def session(compile):
        root = leaf(3, dtype=torch.complex64)
        x = root.conj()
        y = compile(f)(x, plain(2, 3, dtype=torch.complex64))
        yield y, x
        yield attempt_later(lambda: torch.autograd.grad(y.real.sum(), root))

    check_session(session)


# -- .data = as Dynamo writes it ----------------------------------------------------------------------


@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_through_torch_compile_data_is_no_write(context):
    torch._dynamo.reset()

    def f(x, y):
        x.data = y
        return y

    def g(x, y):
        x.data = y
        x.data = y[:1]
        return x * y

    def session(compile):
        for body in (f, g):
            run = compile(body)
            root = leaf(3)
            x, y = root.clone(), plain(3, seed=2)
            with context():
                view = x[:]
            yield run(x, y), x, view, y, x._version, y._version
            kept = x * y
            yield run(x, plain(3, seed=4)), x, x._version
            yield attempt_later(lambda kept=kept, root=root: torch.autograd.grad(kept.sum(), root)), x

    check_session(session, compile=through_dynamo)


def test_through_torch_compile_a_view_of_inference_mode_takes_the_place_of_its_base():
    torch._dynamo.reset()

    def f(x):
        v = x.clone()
        with torch.inference_mode():
            w = v.t()
        v.data = x
        v.data = w
        return w

    def session(compile):
        x = leaf()
        yield compile(f)(x), x

    check_session(session, compile=through_dynamo)


@pytest.mark.parametrize("data", ["base", "other", "none"])
@pytest.mark.parametrize("write", [0, 1, 2], ids=["base", "view", "no"])
def test_a_view_of_a_view_that_got_other_data_has_the_history_that_eager_looks_for_after_a_write(data, write):
    def f(x, y, other):
        v = y.t()
        if data != "none":
            y.data = x if data == "base" else other
        if write < 2:
            (x, y)[write].logical_not_()
        return v

    def session(compile):
        x, other = leaf(2, 1), plain(1, 2, seed=4)
        y = x.t()
        v = compile(f)(x, y, other)
        yield attempt(lambda: torch.autograd.grad(v, [x, y], torch.ones_like(v), allow_unused=True))
        yield v, x, y

    check_session(session)


# -- views that come apart from their bases ---------------------------------------------------------------


def _base_gone(base, view):
    base.data = plain(*base.shape, seed=7)


def _view_gone(base, view):
    view.data = plain(*view.shape, seed=7)


def _to_the_same_storage(base, view):
    both = plain(8, seed=7)
    base.data, view.data = both[:6].view(2, 3), both[2:].view(3, 2)


_WRITTEN_APART = {
    "base": lambda base, view: base.mul_(2),
    "view": lambda base, view: view.mul_(2),
    "base, then view": lambda base, view: (base.mul_(2), view.add_(1)),
    "view, then base": lambda base, view: (view.mul_(3), base.mul_(2)),
    "quietly": lambda base, view: base.detach().mul_(2),
    "a view of it": lambda base, view: view[0].mul_(2),
    "reshaped": lambda base, view: (view.unsqueeze_(0), view.mul_(2)),
}


@pytest.mark.parametrize("write", _WRITTEN_APART.values(), ids=_WRITTEN_APART)
@pytest.mark.parametrize("apart", [_base_gone, _view_gone, _to_the_same_storage])
@pytest.mark.parametrize("used", ["nothing", "products", "views", "the view alone"])
def test_a_view_that_came_apart_from_its_base_is_its_view_all_the_same(apart, write, used):
    def f(base, view):
        write(base, view)
        if used == "products":
            return base * 3, view * 5
        return (base[0], view[0]) if used == "views" else None

    def session(compile):
        compiled = compile(lambda view: f(view, view)) if used == "the view alone" else compile(f)
        for _ in range(2):
            root = leaf(2, 3)
            base = root * 3
            view = base.t()
            apart(base, view)
            out = compiled(view) if used == "the view alone" else compiled(base, view)
            yield base, view, out
            for t in (base, view, *(out or ())):
                gradient = torch.full_like(t, 2)
                yield attempt_later(functools.partial(torch.autograd.grad, t, root, gradient, retain_graph=True))

    check_session(session)


class _ReturnsIt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 3


@pytest.mark.parametrize("make", [_ReturnsIt.apply, lambda x: x * 1, lambda x: x[:]], ids=["custom", "mul", "slice"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_made_under_no_grad_between_two_writes(make, grad):
    def f(x):
        x.zero_()
        v = x.t()
        x.zero_()
        return v

    def session(compile):
        x = make(leaf(2, 2))
        with torch.set_grad_enabled(grad):
            v = attempt(lambda: compile(f)(x))
        yield v
        yield attempt_later(lambda: v.is_leaf), attempt_later(lambda: v.sum().backward())

    check_session(session)


@pytest.mark.parametrize("after", [lambda x, y: None, lambda x, y: y.zero_(), lambda x, y: x.mul_(2)])
def test_a_view_is_written_where_it_was_given_other_data(after):
    def f(x):
        y = x.clone()
        x.data = y
        x.zero_()
        with torch.no_grad():
            v = x.t()
        after(x, y)
        return v

    def session(compile):
        root = leaf(2, 3)
        base = root * 1
        x = base.t()
        v = compile(f)(x)
        yield v, attempt_later(lambda: v.is_leaf), x, base

    check_session(session)


def test_an_alias_of_the_place_that_a_view_had_left_its_base_for():
    def f(x):
        y = x.detach()
        x.data = x.clone()
        x.zero_()
        return y

    def session(compile):
        compiled = compile(f)
        root = leaf(2)
        base = root * 1
        x = base.view(2)
        for _ in range(3):
            y = compiled(x)
            with torch.no_grad():
                y.add_(1)
            yield y, x, base

    check_session(session)


def _beside_another_view(x, y):
    base = x + 1
    v, w = base.t(), base[:]
    v.data = y.clone()
    return v, w


def _where_another_result_is(x, y):
    base = x + 1
    v, w, z = base.t(), base[:], y.clone()
    v.data = z
    return v, w, z


def _its_base_goes(x, y):
    base, z = x + 1, y.clone()
    (v,) = torch.unsafe_chunk(base, 1)
    base.data = z
    return v, z


@pytest.mark.parametrize("f", [_beside_another_view, _where_another_result_is, _its_base_goes])
@pytest.mark.parametrize("kind", [plain, leaf])
def test_a_view_of_what_is_made_inside_and_not_returned_comes_apart_from_it(f, kind):
    check(f, lambda: given(kind(2), plain(2, seed=3)))


def test_a_leaf_that_was_given_data_of_an_inference_tensor_comes_again():
    def f(x, y):
        y.data = x

    def session(compile):
        compiled = compile(f)
        with torch.inference_mode():
            x = plain(3)
        y = leaf(3, seed=2)
        for _ in range(3):
            compiled(x, y)
            yield x, y, y.is_inference(), y.is_leaf

    check_session(session)


@pytest.mark.parametrize(
    "move", [lambda x: setattr(x, "data", x.detach().sum(0)), lambda x: x.t_()], ids=["data", "t_"]
)
@pytest.mark.parametrize("looks", [False, True])
def test_a_view_looks_for_its_history_after_its_written_base_went_elsewhere(move, looks):
    def f(x, view):
        x.zero_()
        used = view * 2 if looks else None
        move(x)
        return view, used

    def session(compile):
        root = leaf(2, 3)
        x = root * 1
        view, used = compile(f)(x, x.view(3, 2))
        for t in [t for t in (view, used) if t is not None]:
            yield attempt_later(lambda t=t: t.sum().backward()), root.grad

    check_session(session)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("f", [lambda x, v: None, lambda x, v: x * 2, lambda x, v: v * 2])
def test_a_view_of_a_leaf_made_under_no_grad_is_given_data_of_another_dtype(dtype, f):
    def moved(x, y, v):
        v.data = y
        return f(x, v)

    def session(compile):
        x = leaf(3)
        with torch.no_grad():
            v = x.t()
        z = compile(moved)(x, plain(3, seed=2, dtype=dtype), v)
        yield z, x, v.dtype, v.data
        if z is not None:
            yield attempt_later(lambda: z.sum().backward()), x.grad

    check_session(session)


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.mul_(2), lambda x: x.mul_(2).t_()])
@pytest.mark.parametrize("looks", ["before", "after", "both"])
@pytest.mark.parametrize("written_there", [False, True])
def test_a_view_looks_for_its_history_between_a_change_of_its_base_and_a_move(change, looks, written_there):
    def f(x, view, y):
        change(x)
        used = view * 2 if looks != "after" else None
        x.data = y
        if written_there:
            x.mul_(3)
        return view, used, view * 3 if looks != "before" else None

    def session(compile):
        root = leaf(2, 3)
        x = root * 1
        out = compile(f)(x, x.view(3, 2), plain(4, 2, seed=1))
        yield out, x
        for t in [t for t in out if t is not None]:
            yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [root], retain_graph=True))

    check_session(session)


@pytest.mark.parametrize("change", [lambda y: y.unsqueeze_(0), lambda y: y.t_(), lambda y: y.set_(torch.ones(2))])
@pytest.mark.parametrize("grad", [False, True])
def test_what_counts_with_an_alias_that_is_reshaped_counts_that_once(change, grad):
    """Once more than that, and a view made in between would look for its history where there is none."""

    def f(x, y):
        change(y)
        view = x.t()
        x.data = plain(4)
        return view

    def session(compile):
        root = leaf(2, 3)
        x = root * 1 if grad else root
        y = x.detach()
        view = compile(f)(x, y)
        yield attempt_later(lambda: view.sum().backward()), root.grad

    check_session(session)


@pytest.mark.parametrize(
    "view", [lambda v: v.t(), lambda v: v[:1], lambda v: v.chunk(2)[0]], ids=["transpose", "slice", "part"]
)
@pytest.mark.parametrize("data", [lambda x, y: x.detach().clone(), lambda x, y: y], ids=["fresh", "argument"])
@pytest.mark.parametrize("written", ["nothing", "view", "base"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_of_a_view_that_was_given_other_data_is_a_view_of_the_same_base(view, data, written, grad):
    """So autograd looks for its history once either was written, and finds a window on the base."""

    def f(x, y):
        v = x.t()
        v.data = data(x, y)
        return view(v)

    def session(compile):
        root = leaf(2, 3)
        x = root * 1 if grad else root
        out = compile(f)(x, plain(2, 3, seed=4))
        yield out, out._base is x
        with torch.no_grad():
            if written != "nothing":
                (out if written == "view" else x).add_(1)
        yield out, x
        yield attempt_later(lambda: out.sum().backward()), root.grad

    check_session(session)


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(3))
def test_a_view_of_what_is_written_before_and_after_has_the_history_of_all_writes(before, after):
    """The call counts them otherwise than the program does."""

    def f(x):
        for _ in range(before):
            x.mul_(2)
        view = x.t()
        x.data = view
        for _ in range(after):
            x.mul_(3)
        return view

    def session(compile):
        root = leaf(2, 1)
        base = root * 1
        x = base.t()
        out = compile(f)(x)
        yield out
        yield attempt_later(lambda: torch.autograd.grad(out.sum(), [root, base, x], allow_unused=True))

    check_session(session)


@pytest.mark.parametrize(
    "view",
    [lambda x, y: x.conj(), lambda x, y: y.t(), lambda x, y: y.conj(), lambda x, y: x.t()],
    ids=["conj", "conj.t", "conj.conj", "t"],
)
@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: None], ids=["written", "not written"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_keeps_its_conjugate_bit_when_what_it_was_made_of_is_conjugated_by_data(view, write, grad):
    def f(x, y):
        v = view(x, y)
        with torch.no_grad():
            write(x)
        x.data = y
        return v

    def session(compile):
        root = leaf(2, 2, dtype=torch.complex64)
        x = root * 1 if grad else root
        out = compile(f)(x, x.conj())
        yield out, x, out.is_conj(), x.is_conj(), out.is_neg()
        yield attempt_later(lambda: torch.autograd.grad(out.real.sum(), root))

    check_session(session)


@pytest.mark.parametrize(
    "view", [lambda v: v.narrow(0, 0, 0), lambda v: v[1:], lambda v: v.diagonal(1)], ids=["empty", "slice", "diagonal"]
)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_view_made_of_what_was_made_inside_and_reshaped_has_the_history_of_the_op_that_made_it(view, written, whole):
    """Of an empty window autograd knows no second derivative, of an empty slice it does."""

    def f(x):
        product = torch.outer(x, x)
        if written:
            product.mul_(2)
        v = view(product)
        v.t_()
        return (product, v) if whole else v

    def session(compile):
        x = leaf(2)
        out = compile(f)(x)
        out = out[-1] if whole else out
        cotangent = torch.ones_like(out, requires_grad=True)
        (gradient,) = torch.autograd.grad(out, x, cotangent, create_graph=True)
        yield out, gradient, gradient.requires_grad
        yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), [x, cotangent], allow_unused=True))

    check_session(session)
