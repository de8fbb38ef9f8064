"""Set_ in all overloads, of arguments."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, attempt_later, check, check_session, one_of, refuses, session
from tests.behaviour.inputs import Given, given, given_of, leaf, non_leaf, plain
from tests.behaviour.storage.common import SETS, _session


@agrees(lambda: given(plain(3), plain(4, seed=1)))
def test_an_input_written_before_and_after_set(x, y):
    old = x.view(-1)
    x.add_(1)
    x.set_(y)
    x.mul_(2)
    return old.clone(), x * 3


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("used", [True, False])
@session
def test_a_leaf_set_to_a_part_of_its_own_storage(compile, mode, used):
    def f(x):
        with mode():
            x.set_(x, 0, ())
        return x

    x = leaf(1)
    alive = x * 2 if used else None
    out = attempt(lambda: compile(f)(x))
    yield out, x
    yield attempt_later(lambda: torch.autograd.grad(out, x)), alive is None


def test_a_leaf_set_to_itself():
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


set_ = one_of(SETS)


def _two() -> Given:
    return given(plain(3), plain(4, seed=1))


def test_an_input_set(set_):
    check(lambda x, y: (set_(x, y), x * 2)[1], _two)


def test_an_input_set_and_returned(set_):
    check(lambda x, y: set_(x, y), _two)


@agrees(
    lambda: given(plain(3), plain(4, seed=1)),
    lambda: given_of(plain(3), lambda base: (base.view(3), plain(4, seed=1))),
    anew=True,
)
def test_an_input_written_before_it_is_set(x, y, *, set_):
    old = x[1:]
    x.add_(1)
    set_(x, y)
    return old * 1, x * 2


def test_an_input_written_after_it_is_set(set_):
    check(lambda x, y: (set_(x, y), x.mul_(2), x * 3, y * 2)[2:], _two)


@agrees(lambda: given_of(plain(3), lambda base: (base.view(3), plain(4, seed=1))))
def test_a_view_made_before_set_is_written_after_it(x, y, *, set_):
    old = x[1:]
    set_(x, y)
    old.mul_(2)
    x.add_(1)
    return old, x * 3


def test_the_source_of_set_is_written_afterwards(set_):
    check(lambda x, y: (set_(x, y), y.mul_(2), x * 3)[2], _two)


@agrees(_two)
def test_an_intermediate_set_to_an_input(x, y, *, set_):
    z = x * 2
    old = z[1:]
    z.add_(1)
    set_(z, y)
    z.mul_(3)
    return z, old


@agrees(_two)
def test_an_input_set_to_an_intermediate(x, y, *, set_):
    z = y * 2
    set_(x, z)
    x.add_(1)
    return x * 2, z


@agrees(lambda: given(plain(3), plain(4, seed=1), leaf(3)))
def test_an_input_set_under_no_grad_where_another_input_requires_grad(x, y, w, *, set_):
    with torch.no_grad():
        set_(x, y)
    return x * 2, w * w


@agrees(_two)
def test_an_input_set_and_set_back(x, y):
    old = x.view(-1)
    x.set_(y)
    z = x * 2
    x.set_(old)
    return z, x * 3


@agrees(_two)
def test_two_inputs_set_to_one_another(x, y):
    old = x.view(-1)
    x.set_(y)
    y.set_(old)
    x.add_(1)
    return x * 2, y * 3


def test_an_input_set_to_itself():
    check(lambda x: (x.set_(x), x * 2)[1], lambda: given(plain(3)))
    check(lambda x: (x.set_(x[1:]), x * 2)[1], lambda: given(plain(3)))


def test_set_inside_a_custom_function():
    class Set(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            with torch.no_grad():
                x.set_(y)
            return y * 2

        @staticmethod
        def backward(ctx, g):
            return None, g * 2

    def f(x, y):
        z = Set.apply(x, y)
        return z, x * 1

    check(f, lambda: given(plain(3), leaf(4, seed=1)))
    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_set_of_a_detached_parameter_inside_a_custom_function():
    class Unshard(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, full, x):
            w.detach().set_(full)
            ctx.save_for_backward(full)
            return x * full

        @staticmethod
        def backward(ctx, g):
            (full,) = ctx.saved_tensors
            return None, None, g * full

    check(lambda w, full, x: Unshard.apply(w, full, x), lambda: given(leaf(1), plain(3), leaf(3, seed=1)))


def test_set_on_a_non_leaf():
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(*non_leaf(3).args, plain(4, seed=1)))
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(plain(3), leaf(4, seed=1)))
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(plain(3), *non_leaf(4).args))


GROWING = {
    "a storage": lambda x, y: x.set_(y.untyped_storage(), 1, (2, 2), (2, 1)),
    "without strides": lambda x, y: x.set_(y.untyped_storage(), 0, (4,)),
    "a tensor": lambda x, y: x.set_(y, 1, (3,), (2,)),
}


@pytest.mark.parametrize("set_", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("made", [False, True], ids=["argument", "made inside"])
@agrees(lambda: given(plain(2), plain(2, seed=1)))
def test_set_grows_a_storage_that_is_too_small(x, y, *, set_, made):
    y = y * 2 if made else y
    set_(x, y)
    x.fill_(3)
    return y, y + 1


@agrees(lambda: given(plain(2), leaf(2)))
def test_set_grows_the_storage_of_a_result_that_requires_grad(x, y):
    z = y.exp()
    x.set_(z.detach(), 0, (3,), (1,))
    x[2] = 1
    return z


REFUSED = {
    "too long": lambda x, y: x.set_(y.untyped_storage(), 0, (3,), (1,)),
    "too far": lambda x, y: x.set_(y.untyped_storage(), 1, (3,)),
    "a tensor": lambda x, y: x.set_(y, 0, (3,), (1,)),
}


@pytest.mark.parametrize("set_", REFUSED.values(), ids=REFUSED)
def test_set_to_a_storage_too_small_for_equal_sizes_and_strides_is_eagers_error(set_):
    def f(x, y):
        y.add_(1)
        set_(x, y)

    def g(x, y):
        try:
            f(x, y)
        except RuntimeError as error:
            return y, str(error)

    check(f, lambda: given(plain(3), plain(2, seed=1)))
    check(g, lambda: given(plain(3), plain(2, seed=1)))


KEEPING = {
    "a storage": lambda x, y: x.set_(y.untyped_storage()),
    "without strides": lambda x, y: x.set_(y.untyped_storage(), 0, (2,)),
}


@pytest.mark.parametrize("set_", KEEPING.values(), ids=KEEPING)
@pytest.mark.parametrize("made", [False, True], ids=["argument", "made inside"])
@pytest.mark.parametrize("returned", [False, True])
def test_set_keeps_strides_that_reach_beyond_the_storage(set_, made, returned):
    def f(x, y):
        y = y * 2 if made else y
        set_(x, y)
        return (x, y) if returned else y

    check(f, lambda: given(plain(4)[::2], plain(2, seed=1)), probe=not returned)


@agrees(lambda: given(plain(4)[::2], plain(2, seed=1)))
def test_set_keeps_strides_beyond_the_storage_until_it_grows(x, y):
    z = y * 2
    x.set_(z.untyped_storage())
    z.untyped_storage().resize_(12)
    x.fill_(3)
    return x * 2, z


@agrees(lambda: given(plain(1).expand(2), plain(2, seed=1)))
def test_set_keeps_strides_that_do_not_reach_beyond_the_storage(x, y):
    x.set_(y.untyped_storage())
    y.add_(1)
    return x * 2, x


@pytest.mark.parametrize("use", [lambda x: x * 2, lambda x: x.fill_(1)], ids=["read", "written"])
def test_a_use_of_elements_beyond_the_storage_after_set_is_refused(use):
    """Eager reads and writes what comes after the memory, which may be anything."""

    def f(x, y):
        x.set_(y.untyped_storage())
        use(x)

    x, y = plain(4)[::2], plain(2)
    with refuses("set_ beyond its storage"):
        aotcheck.aot_function(f)(x, y)
    assert (x.stride(), x.untyped_storage().nbytes()) == ((2,), 16)
