"""Set_ of views or of their bases; intermediates."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, check, check_session, session, write
from tests.behaviour.inputs import given, leaf, non_leaf, plain, to_device
from tests.behaviour.storage.common import _session


@agrees(lambda: given(leaf(2, dtype=torch.complex64)), lambda: given(plain(2, dtype=torch.complex64)), anew=True)
def test_a_view_of_an_intermediate_survives_set_of_its_base(x):
    y = x.sum()
    imag = y.imag
    y.set_()
    return imag


def doubles(tensor):
    tensor.mul_(2)


@pytest.mark.parametrize("change", [doubles, write])
@pytest.mark.parametrize(
    "view", [lambda x: x[0], lambda x: x.view(-1), lambda x: x.t(), lambda x: x.unbind()[0], lambda x: x.detach()]
)
@pytest.mark.parametrize("source", [lambda y: (y,), lambda y: (y.untyped_storage(), 0, (2,), (1,)), lambda y: ()])
@session
def test_the_caller_writes_a_view_of_a_leaf_after_set_of_the_view(compile, view, source, change):
    def function(x, y):
        seen = view(x)
        with torch.no_grad():
            seen.set_(*source(y))
        return seen

    compiled = compile(function)
    for _ in range(2):
        x, y = leaf(2, 3), plain(2, 3)
        seen = compiled(x, y)
        yield x, y, seen
        yield attempt_later(lambda seen=seen: change(seen)), x, y, seen


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (4,)])
def test_a_view_of_another_dtype_of_an_argument_that_is_then_set(shape, written):
    def function(x, y):
        view = x.view(torch.int32)
        with torch.no_grad():
            x.set_(y)
        if written:
            view.add_(1)
        return view, x * 2

    for make in (lambda: given(plain(2, 4)), lambda: non_leaf(2, 4), lambda: given(leaf(2, 4))):
        check(function, *[lambda make=make: given(*make().args, plain(*shape))] * 2)


@pytest.mark.parametrize("write", [lambda x, y: x.zero_(), lambda x, y: y.mul_(2)], ids=["base", "view"])
@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
@pytest.mark.parametrize("source", [lambda x: x, lambda x: x.detach(), lambda x: torch.ones(2, 2, device=x.device)])
@pytest.mark.parametrize("returned", [0, 1])
@session
def test_set_of_a_view_whose_base_was_written_and_reshaped(compile, write, reshape, source, returned):
    """It becomes part of the history of its base, too: torch has no derivative of it."""

    def f(x, y):
        write(x, y)
        reshape(x)
        y.set_(source(x))
        return (x, y)[returned]

    root = leaf(2, 2)
    x = root.clone()
    y = x.t()
    out = compile(f)(x, y)
    yield out, x, y
    yield attempt_later(lambda: torch.autograd.grad(out.sum(), root))


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[1:], lambda x: x.unsqueeze(0)[:, 1:]])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
@session
def test_a_view_of_a_leaf_that_is_set_and_used_only_afterwards(compile, view, grad, size):
    def f(x, y):
        with torch.set_grad_enabled(grad):
            v = view(x)
        with torch.no_grad():
            x.set_(y[:size].clone())
        return v, x * 2

    x = to_device(torch.empty(0)).set_(plain(5).untyped_storage(), 0, (3,), (2,)).requires_grad_()
    v, y = compile(f)(x, plain(4, seed=1))
    yield v, x, y
    yield attempt_later(lambda: y.sum().backward()), x.grad
    yield attempt_later(lambda: v.sum().backward()), x.grad


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


@session
def test_a_view_of_an_intermediate_that_is_set_to_a_smaller_storage_and_written(compile):
    def f(x, y):
        v = x * 2
        part = v.unsqueeze(0)
        v.set_(y)
        v.zero_()
        return part * 3, v

    x, y = leaf(3), plain(2, seed=1)
    outputs = attempt(lambda: compile(f)(x, y))
    yield outputs, x, y
    for out in outputs:
        yield attempt_later(lambda: torch.autograd.grad(out, x, torch.ones_like(out), retain_graph=True))  # noqa: B023


def test_a_view_of_a_view_that_is_then_set():
    def f(x, y):
        v = y.t()
        w = v.t()
        v.set_(x)
        return w

    def with_both(x, y):
        v = y.t()
        w = v.t()
        v.set_(x)
        return w, v

    for body in (f, with_both):
        for shape in ((), (2, 2)):
            check(body, lambda shape=shape: given(plain(*shape), plain(*shape, seed=1)))


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize(
    "to", [lambda x: x.set_(), lambda x: x.set_(torch.ones(3, device=x.device)), lambda x: x.unsqueeze_(0)]
)
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x * 2], ids=["t", "more", "*"])
@pytest.mark.parametrize("grad", [True, False])
@session
def test_a_leaf_view_is_viewed_after_its_base_is_set_again_in_each_call(compile, grad, view, to, calls):
    """The second time only the version that both count shows that the base moved."""

    def f(x, y):
        with torch.set_grad_enabled(grad):
            to(x)
        return view(y)

    x = to_device(torch.tensor(1.0))
    y = x.t().requires_grad_()
    g = compile(f)
    for _ in range(calls):
        out = g(x, y)
        out.sum().backward()
        yield out, y.grad.clone()


def test_set_of_a_view_whose_base_moved():
    def made():
        root = leaf(2, 2)
        base = root.clone()
        return given(base, base.view_as(base), plain(2, 2, seed=1), also=[root])

    def by_set(x, view, y):
        v = view.view_as(view)
        x.data = y
        v.set_(v)
        return v

    def of_moved(x, view, y):
        x.data = y
        v = x.unsqueeze(0)
        v.set_(view)
        return v

    def cut_before(x, view, y):
        view.zero_()
        return view.t()

    for body in (by_set, of_moved, cut_before):
        check(body, made, backward=None)


@session
def test_a_write_to_a_view_that_was_made_before_set_of_its_base(compile):
    """Behind it is a derivative that torch does not have."""

    def f(x):
        (part,) = torch.unsafe_chunk(x, 1)
        view = part.t()
        part.set_(x)
        view.zero_()
        return part

    x = leaf(1)
    y = compile(f)(x)
    yield y
    yield attempt_later(lambda: y.sum().backward()), x.grad
