"""Gradients of what moved after autograd recorded it."""

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check, check_session, one_of, session
from tests.behaviour.inputs import Given, given, leaf, plain
from tests.behaviour.shared import moves_and_writes, reshapes, same, uses_and_writes
from tests.behaviour.storage.common import DATA, _session, found


def given_the_shape_it_had_and_written(x):
    x.data = torch.ones(2, device=x.device)
    x.copy_(x)
    return [x]


def given_another_shape_and_reshaped(x):
    x.data = torch.ones(1, 2, device=x.device)
    x.transpose_(0, -1)
    return [x]


@pytest.mark.parametrize(
    "function",
    [uses_and_writes, moves_and_writes, reshapes, given_the_shape_it_had_and_written, given_another_shape_and_reshaped],
)
@pytest.mark.parametrize("data", [(), (3,), (3, 1)], ids=str)
def test_a_non_leaf_that_the_caller_assigned_data_of_another_shape(function, data):
    def other():
        root = leaf(2)
        x = root * 1
        x.data = plain(*data, seed=1)
        return [x], [root]

    same(function, other, calls=1)


class SumAndView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(), x.unsqueeze(0)

    @staticmethod
    def backward(ctx, of_sum, of_view):
        return of_sum if of_view is None else of_view.squeeze(0) + (0 if of_sum is None else of_sum)


@pytest.mark.parametrize("compute", [SumAndView.apply, lambda x: (x * 2, x.unsqueeze(0)), lambda x: (x.sin(),)])
@pytest.mark.parametrize("made", ["view", "leaf", "non-leaf"])
@session
def test_gradients_have_the_shape_that_an_argument_had_when_it_was_used(compile, made: str, compute):
    def f(x, y):
        y.data = x
        return y, *compute(y)

    x, y = plain(), plain(1)
    if made == "view":
        with torch.no_grad():
            y = plain().view(1)
    y.requires_grad_()
    if made == "non-leaf":
        y = y * 1
    _, *results = compile(f)(x, y)
    for t in results:
        yield found(lambda t=t: torch.autograd.grad(t.sum(), y, retain_graph=True))


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: setattr(x, "data", y),
        lambda x, y: x.set_(y),
        lambda x, y: x.set_(x),
        lambda x, y: x.t_(),
        lambda x, y: x.unsqueeze_(0),
    ],
    ids=["data", "set_", "set_ to itself", "t_", "unsqueeze_"],
)
@pytest.mark.parametrize("viewed", [lambda x: x.unsqueeze(-1), lambda x: x.select(0, 0), lambda x: x.t()[0]])
def test_requires_grad_of_an_argument_that_moved_or_was_reshaped_in_place(viewed, change, used):
    def view_before(x, y):
        change(x, y)
        view = viewed(x)
        x.requires_grad_()
        return (view, x * 2) if used else view

    def view_itself(x, y):
        change(x, y)
        view = viewed(x)
        view.requires_grad_()
        return (view, view * 2) if used else view

    def of_view(x, y):
        change(x, y)
        view = x.view_as(x)
        result = viewed(view)
        view.requires_grad_()
        return (result, view * 2) if used else result

    def for_a_while(x, y):
        change(x, y)
        x.requires_grad_()
        result = viewed(x).clone()
        x.requires_grad_(False)
        return (result, x * 2) if used else result

    for f in (view_before, view_itself, of_view, for_a_while):
        check(f, lambda: given(plain(2, 2), plain(2, 2, seed=4)))


@session
def test_a_leaf_used_while_it_has_data_of_another_shape(compile):
    def f(x, w):
        before = x.detach()
        x.data = w
        y = x.clone()
        x.data = before
        return y

    w, x = plain(2), leaf(3, 4)
    y = compile(f)(x, w)
    yield y, x.detach(), attempt_later(lambda: torch.autograd.grad(y, [x], [torch.ones_like(y)]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float32], ids=str)
@pytest.mark.parametrize("used", ["before", "after"])
@pytest.mark.parametrize("alive", [True, False])
@session
def test_gradients_of_a_leaf_that_is_assigned_data_of_another_dtype(compile, dtype, used, alive):
    def f(x, y):
        z = x * 2 if used == "before" else None
        x.data = y
        return z if z is not None else x * 2

    for named in (False, True):
        x, y = leaf(), plain(dtype=dtype, seed=1)
        held = x.exp() if alive else None
        out = attempt(lambda: compile(f)(x, y))  # noqa: B023
        inputs = {"inputs": [x]} if named else {}
        yield attempt_later(lambda: torch.autograd.backward(out, torch.ones_like(out), **inputs))  # noqa: B023
        yield x, x.grad, held is None


@session
def test_a_leaf_used_in_the_shape_of_set_and_then_assigned_its_former_data(compile):
    def f(x, y):
        with torch.no_grad():
            before = x.clone()
            x.set_(y)
        v = x.clone()
        x.data = before
        return v, x

    for roots in ((0,), (1,), (0, 1)):
        x, y = leaf(), plain(1, seed=1)
        out = attempt(lambda: compile(f)(x, y))  # noqa: B023
        yield out, x, y
        for k in roots:
            yield attempt_later(lambda k=k: out[k].sum().backward()), x, x.grad  # noqa: B023


data = one_of(DATA)


def test_data_of_another_shape_assigned_to_a_result(data):
    def f(x, y):
        v = x * 2
        v.data = y
        return v

    def fresh(x, y):
        v = x * 2
        v.data = y + 1
        return v

    for body in (f, fresh):
        check_session(_session(body, lambda: given(leaf(3), data()), [data, lambda: plain(3)]))


def test_results_computed_before_and_after_data_assignment_to_an_intermediate(data):
    def f(x, y):
        v = x * 2
        before = v.sum()
        v.data = y
        return before, v * 2, v

    def first(x, y):
        return f(x, y)[0]

    check_session(_session(first, lambda: given(leaf(3), data()), [lambda: plain()]))
    check_session(_session(lambda x, y: f(x, y)[1], lambda: given(leaf(3), data()), [data]))


def test_a_written_argument_is_assigned_data_of_another_shape(data):
    def f(x, y):
        x.zero_()
        v = x.clone()
        x.data = y
        return v

    def non_leaf() -> Given:
        root = leaf(3)
        return given(root * 2, data(), also=[root])

    check_session(_session(f, non_leaf, [lambda: plain(3)]))


def test_a_view_of_a_written_base_is_assigned_data_of_another_shape():
    def f(x, y):
        with torch.no_grad():
            x.zero_()
        v = x.clone()
        x.data = y
        return v

    def view() -> Given:
        root = leaf(2, 1)
        return given(root.t(), root)

    check_session(_session(f, view, [lambda: plain(1, 2)]))


def test_gradients_of_a_no_grad_view_that_is_assigned_data(data):
    def f(x, y):
        with torch.no_grad():
            v = x[1:]
        v.data = y
        return v

    check_session(_session(f, lambda: given(leaf(3), data()), [data]))


@session
def test_a_view_assigned_data_inside_is_written_by_the_caller(compile, data):
    def f(x, y):
        v = x[1:]
        v.data = y
        return v

    root, y = leaf(3), data()
    x = root.clone()
    v = compile(f)(x, y)
    yield v, x, v._base is x
    yield attempt(lambda: v.add_(1)), x, v, y


def test_a_view_of_a_leaf_that_is_assigned_its_own_sum():
    def f(x):
        used = x.sum()
        x.data = used
        return x.t()

    check_session(_session(f, lambda: given(leaf(1)), [lambda: plain()]))

    def unused(x):
        x.data = x.sum()
        return x.t()

    check_session(_session(unused, lambda: given(leaf(1)), [lambda: plain()]))


def test_a_leaf_gets_another_shape_when_no_result_refers_to_its_accumulator():
    def data(x):
        x.data = x[:2]
        return (x * 2).sum()

    def copied(x):
        x.data = x[:2].clone()
        return x[1:]

    def transposed(x):
        (x * 2).sum()
        with torch.no_grad():
            x.t_()
        return x * 3

    check(data, lambda: given(leaf(3)))
    check(copied, lambda: given(leaf(3)))
    check(transposed, lambda: given(leaf(3, 2)))


def test_a_leaf_gets_another_shape_while_a_result_refers_to_its_accumulator():
    def data(x):
        part = x[:2]
        x.data = part
        return x * 2

    def transposed(x):
        twice = [x * 2]
        with torch.no_grad():
            x.t_()
        return x * 3 + twice[0].shape[0]

    check_session(_session(data, lambda: given(leaf(3)), [lambda: plain(2)]))
    check_session(_session(transposed, lambda: given(leaf(3, 2)), [lambda: plain(2, 3)]))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@session
def test_a_used_leaf_is_set_or_gets_another_shape_in_each_grad_mode(compile, mode):
    def set_(x):
        with torch.no_grad():
            x.set_(x)
        with torch.inference_mode(False), torch.enable_grad():
            return x * 3

    def data(x):
        with torch.inference_mode(False), torch.enable_grad():
            before = x[:2]
            x.data = before
            return x[1:]

    for body in (set_, data):
        x = leaf(3)
        with mode():
            outputs = compile(body)(x)
        yield outputs, x
        out = outputs[1] if isinstance(outputs, tuple) else outputs
        yield attempt_later(lambda out=out, x=x: torch.autograd.grad(out, x, torch.ones_like(out)))


@pytest.mark.parametrize("before", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("after", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
@session
def test_a_leaf_gets_another_dtype_and_shape_after_a_sum_used_it(compile, before, after, shape):
    def f(x, y):
        z = x.clone()
        s = z + y
        y.data = x
        return s, z

    x, y = leaf(3, 3, dtype=after), leaf(*shape, seed=1, dtype=before)
    s, z = compile(f)(x, y)
    yield s, z, y
    yield attempt_later(lambda: torch.autograd.backward([s, z], [torch.ones_like(s), torch.ones_like(z)]))
    yield x, y
