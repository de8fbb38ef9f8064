"""Parameters whose storage grows, is filled, used and freed, and grows again for the backward."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, backward, check, one_of, session
from tests.behaviour.inputs import Given, given, leaf, plain
from tests.behaviour.storage.common import RESIZES, _allocate, _free, _freed


def _freed_leaf(*shape: int) -> torch.Tensor:
    w = leaf(*shape)
    _free(w)
    return w


@pytest.mark.parametrize("factor", [1, 2], ids=["as it was", "otherwise"])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: x @ w,
        lambda x, w: x @ w.t().t(),
        lambda x, w: x @ w[:, 1:],
        lambda x, w: (x @ w) * w.sum() + (w * w).sum(),
        lambda x, w: torch.nn.functional.linear(x, w.t()),
    ],
    ids=["matmul", "views", "part", "several", "linear"],
)
@session
def test_a_parameter_that_is_allocated_for_the_call_and_again_for_the_backward(compile, use, factor):
    def f(w, shard, x):
        _allocate(w, shard)
        y = use(x, w)
        _free(w)
        return y

    w, shard, x = _freed_leaf(2, 3), plain(2, 3, seed=1), leaf(1, 2, seed=2)
    compiled = compile(f)
    for _ in range(2):
        y = compiled(w, shard, x)
        yield y, w.untyped_storage().nbytes()
        _allocate(w, shard * factor)
        y.sum().backward()
        _free(w)
        yield x.grad, w.grad


@pytest.mark.parametrize("between", [True, False])
@session
def test_a_parameter_is_allocated_twice_in_a_call(compile, between):
    def f(w, shard, x):
        _allocate(w, shard)
        y = x * w
        _free(w)
        y = torch.relu(y) if between else y
        _allocate(w, shard)
        y = y * w
        _free(w)
        return y

    w, shard, x = _freed_leaf(3), plain(3, seed=1), leaf(3, seed=2)
    y = compile(f)(w, shard, x)
    _allocate(w, shard)
    yield y, torch.autograd.grad(y.sum(), [x, w])


@session
def test_parameters_that_are_views_of_one_flat_storage_that_is_freed(compile):
    def f(flat, weight, bias, shard, x):
        _allocate(flat, shard)
        y = x * weight * bias
        _free(flat)
        return y

    flat, shard, x = plain(6), plain(6, seed=1), leaf(3, seed=2)
    weight, bias = [flat.detach()[k : k + 3].requires_grad_() for k in (0, 3)]
    _free(flat)
    y = compile(f)(flat, weight, bias, shard, x)
    _allocate(flat, shard)
    yield y, torch.autograd.grad(y.sum(), [x, weight, bias])


@session
def test_a_parameter_whose_memory_only_the_call_frees(compile):
    def f(w, x):
        y = x * w
        _free(w)
        return y

    w, x = leaf(3), leaf(3, seed=2)
    y = compile(f)(w, x)
    _allocate(w, plain(3))
    yield y, torch.autograd.grad(y.sum(), [x, w])


@session
def test_a_parameters_storage_is_shrunk_to_a_part(compile):
    def f(w, x):
        y = x * w
        w.untyped_storage().resize_(4)
        return y, w[:1] * 2

    w, x = leaf(3), leaf(3, seed=2)
    y, z = compile(f)(w, x)
    yield z, w.untyped_storage().nbytes()
    _allocate(w, plain(3))
    yield y, torch.autograd.grad(y.sum() + z.sum(), [x, w])


resize = one_of(RESIZES)


@agrees(*[lambda: given(_freed(3), plain(3, seed=1))] * 2)
def test_a_storage_grown_filled_used_and_freed(x, y, *, resize):
    resize(x, 12)
    x.copy_(y)
    z = x * y
    resize(x, 0)
    return z


def test_a_parameters_storage_grown_filled_used_and_freed(resize):
    """What fully sharded training does, under no_grad, around the use of a parameter that requires grad."""

    def f(w, shard, x):
        with torch.no_grad():
            resize(w, 12)
            w.copy_(shard)
        y = (x + w).sum()
        with torch.no_grad():
            resize(w, 0)
        return y

    def make() -> Given:
        w = leaf(3)
        w.untyped_storage().resize_(0)
        return given(w, plain(3, seed=1), leaf(3, seed=2))

    check(f, make)


@session
def test_a_parameters_storage_is_freed_after_backward_saved_the_parameter(compile, resize):
    def f(w, shard, x):
        with torch.no_grad():
            resize(w, 12)
            w.copy_(shard)
        y = x * w
        with torch.no_grad():
            resize(w, 0)
        return y

    w, shard, x = leaf(3), plain(3, seed=1), leaf(3, seed=2)
    w.untyped_storage().resize_(0)
    y = compile(f)(w, shard, x)
    yield y, x, w
    with torch.no_grad():
        resize(w, 12)
        w.copy_(shard)
    yield attempt_later(lambda: backward([y])), x, w
