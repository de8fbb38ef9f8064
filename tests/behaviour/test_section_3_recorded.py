"""BEHAVIOUR 3: tensors whose shape or dtype changes after autograd recorded it, as gradients show."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Given, attempt, attempt_later, check, check_session, given, leaf, plain

DATA = {
    "fewer elements": lambda: plain(2, seed=1),
    "no dimension": lambda: plain(seed=1),
    "one more dimension": lambda: plain(1, 3, seed=1),
    "another dtype": lambda: plain(3, dtype=torch.float64, seed=1),
    "requires grad": lambda: leaf(2, seed=1),
}


@pytest.fixture(params=DATA.values(), ids=DATA)
def data(request: pytest.FixtureRequest):
    return request.param


def _session(f, inputs, cotangents):
    """The gradients of the first result for each cotangent, which has a shape of its own, by everything."""

    def session(compile):
        for make in cotangents:
            found: Given = inputs()
            args = found.args
            out = attempt(lambda: compile(f)(*args))  # noqa: B023
            yield out, found.args, found.also
            wanted = [t for t in (*args, *found.also) if t.requires_grad]
            yield attempt_later(lambda: torch.autograd.grad(out, wanted, make(), allow_unused=True))  # noqa: B023

    return session


def test_a_result_given_data_of_another_shape(data):
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


def test_what_is_computed_from_a_result_before_and_after(data):
    def f(x, y):
        v = x * 2
        before = v.sum()
        v.data = y
        return before, v * 2, v

    def first(x, y):
        return f(x, y)[0]

    check_session(_session(first, lambda: given(leaf(3), data()), [lambda: plain()]))
    check_session(_session(lambda x, y: f(x, y)[1], lambda: given(leaf(3), data()), [data]))


def test_an_argument_written_and_then_given_data_of_another_shape(data):
    def f(x, y):
        x.zero_()
        v = x.clone()
        x.data = y
        return v

    def non_leaf() -> Given:
        root = leaf(3)
        return given(root * 2, data(), also=[root])

    check_session(_session(f, non_leaf, [lambda: plain(3)]))


def test_a_view_whose_base_was_written_given_data_of_another_shape():
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


def test_a_view_made_under_no_grad_given_other_data(data):
    def f(x, y):
        with torch.no_grad():
            v = x[1:]
        v.data = y
        return v

    check_session(_session(f, lambda: given(leaf(3), data()), [data]))


def test_a_view_given_other_data_is_written_by_the_caller(data):
    def f(x, y):
        v = x[1:]
        v.data = y
        return v

    def session(compile):
        root, y = leaf(3), data()
        x = root.clone()
        v = compile(f)(x, y)
        yield v, x, v._base is x
        yield attempt(lambda: v.add_(1)), x, v, y

    check_session(session)


def test_a_view_of_a_leaf_that_was_used_in_another_shape():
    def f(x):
        used = x.sum()
        x.data = used
        return x.t()

    check_session(_session(f, lambda: given(leaf(1)), [lambda: plain()]))

    def unused(x):
        x.data = x.sum()
        return x.t()

    check_session(_session(unused, lambda: given(leaf(1)), [lambda: plain()]))


def test_a_leaf_that_gets_another_shape_when_nothing_made_of_it_is_left():
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


def test_a_leaf_that_gets_another_shape_while_something_made_of_it_is_left():
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


def test_a_view_of_a_leaf_that_is_set_in_inference_mode():
    def f(x):
        v = x.t()
        with torch.inference_mode():
            x.set_()
        return v

    def without_grad(x):
        v = x.t()
        with torch.no_grad():
            x.set_()
        return v

    for body in (f, without_grad):
        check_session(_session(body, lambda: given(leaf(1, 1)), [lambda: plain(1, 1)]))


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
def test_the_gradient_of_an_argument_whose_shape_changes_afterwards(change):
    def f(x):
        x.backward(x.detach(), inputs=[x])
        change(x)
        return x * 2

    def session(compile):
        root = leaf(2, 1)
        x = root.clone()
        compiled = compile(f)
        out = compiled(x)
        yield out, x.grad, x
        yield attempt_later(lambda: out.sum().backward()), root

    check_session(session)


def test_the_gradient_of_a_leaf_whose_shape_changes_afterwards():
    def f(x):
        (x * x).sum().backward()
        with torch.no_grad():
            x.t_()

    check(f, lambda: given(leaf(2, 1)))


def test_a_leaf_that_is_set_to_itself():
    def f(x):
        v = x.clone()
        with torch.no_grad():
            x.set_(x)
        return v

    def used_after(x):
        with torch.no_grad():
            x.set_(x)
        return x * 2

    for body in (f, used_after):
        check_session(_session(body, lambda: given(leaf(3)), [lambda: plain(3)]))


def test_a_view_of_what_was_written_unseen_and_then_got_other_data():
    def f(x):
        v = x.t()
        x.logical_not_()
        x.data = v
        return v

    check_session(_session(f, lambda: given(leaf(2, 2)), [lambda: plain(2, 2)]))


def test_what_is_detached_of_an_argument_with_other_data_counts_writes_with_it():
    def before(x, y):
        x.data = y
        return x.detach()

    def after(x, y):
        v = x.detach()
        v.data = y
        return v

    def session(compile):
        for body in (before, after):
            root, y = leaf(3), plain(3, seed=1)
            with torch.no_grad():
                x = root[:3]
            v = compile(body)(x, y)
            yield v, x, y
            v.zero_()
            yield v, y, attempt_later(lambda: x.is_leaf)  # noqa: B023

    check_session(session)


def test_what_a_swap_leaves_in_the_place_of_an_argument_is_written_by_the_caller():
    def f(x):
        v = x.clone()
        torch.utils.swap_tensors(x, v)
        return x, torch._foreach_mul([v], 2)

    def session(compile):
        root = leaf(3)
        x = root.clone()
        v, (w,) = compile(f)(x)
        with torch.no_grad():
            v.zero_()
        yield v is x, v, w
        yield attempt_later(lambda: torch.autograd.grad(w, root, plain(3)))

    check_session(session)


def test_a_view_made_in_inference_mode_given_other_data(data):
    def f(x, y):
        with torch.inference_mode():
            v = x[0]
            v.data = x
        return v

    def another(x, y):
        with torch.inference_mode():
            v = x[1:]
        v.data = y
        return v

    check(f, lambda: given(plain(3), data()))
    check(another, lambda: given(plain(3), data()))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_used_leaf_that_is_set_or_gets_another_shape_in_a_call_of_another_mode(mode):
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

    def session(compile):
        for body in (set_, data):
            x = leaf(3)
            with mode():
                outputs = compile(body)(x)
            yield outputs, x
            out = outputs[1] if isinstance(outputs, tuple) else outputs
            yield attempt_later(lambda out=out, x=x: torch.autograd.grad(out, x, torch.ones_like(out)))

    check_session(session)


@pytest.mark.parametrize("before", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("after", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
def test_a_leaf_that_gets_another_dtype_and_shape_after_something_hung_on_it_and_on_a_result(before, after, shape):
    def f(x, y):
        z = x.clone()
        s = z + y
        y.data = x
        return s, z

    def session(compile):
        x, y = leaf(3, 3, dtype=after), leaf(*shape, seed=1, dtype=before)
        s, z = compile(f)(x, y)
        yield s, z, y
        yield attempt_later(lambda: torch.autograd.backward([s, z], [torch.ones_like(s), torch.ones_like(z)]))
        yield x, y

    check_session(session)


_SETS = {
    "its own storage": lambda x: x.set_(x.untyped_storage()),
    "itself": lambda x: x.set_(x),
    "another": lambda x: x.set_(torch.ones(4)),
    "nothing": lambda x: x.set_(),
}
_CHANGES_SINCE = {
    "squeeze_": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "data": lambda x: setattr(x, "data", torch.ones(2, 3)),
    "data of another dtype": lambda x: setattr(x, "data", torch.ones(1, dtype=torch.float64)),
    "set_": lambda x: x.set_(torch.ones(5)),
}


@pytest.mark.parametrize("uses", [lambda x: (x,), lambda x: (x, x * 2), lambda x: (x, x.unsqueeze(0))])
@pytest.mark.parametrize("change", _CHANGES_SINCE.values(), ids=_CHANGES_SINCE)
@pytest.mark.parametrize("to", _SETS.values(), ids=_SETS)
@pytest.mark.parametrize("shape", [(1,), (2,), (1, 2)])
def test_a_set_under_grad_records_the_shape_that_it_gave(shape, to, change, uses):
    """A gradient of a shape given since, under no_grad, is refused before the missing derivative is missed."""

    def function(x):
        to(x)
        with torch.no_grad():
            change(x)
        return uses(x)

    def session(compile):
        root = leaf(*shape)
        x = root.clone()
        for y in compile(function)(x):
            yield y
            yield attempt_later(lambda y=y: torch.autograd.grad([y], [x], torch.ones_like(y), allow_unused=True))
            yield attempt_later(lambda y=y: torch.autograd.grad([y], [root], torch.ones_like(y), allow_unused=True))

    check_session(session)
