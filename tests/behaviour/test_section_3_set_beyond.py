"""BEHAVIOUR 3: `set_` to a storage that does not hold what the tensor is to be, or becomes."""

from __future__ import annotations

import pytest

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import check, given, leaf, plain

# -- the storage grows -----------------------------------------------------------------------------

GROWING = {
    "a storage": lambda x, y: x.set_(y.untyped_storage(), 1, (2, 2), (2, 1)),
    "without strides": lambda x, y: x.set_(y.untyped_storage(), 0, (4,)),
    "a tensor": lambda x, y: x.set_(y, 1, (3,), (2,)),
}


@pytest.mark.parametrize("set_", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("made", [False, True], ids=["argument", "made inside"])
def test_a_storage_grows_to_hold_what_is_set_to_it(set_, made):
    def f(x, y):
        y = y * 2 if made else y
        set_(x, y)
        x.fill_(3)
        return y, y + 1

    check(f, lambda: given(plain(2), plain(2, seed=1)))


def test_a_storage_grows_below_a_result_with_a_gradient():
    def f(x, y):
        z = y.exp()
        x.set_(z.detach(), 0, (3,), (1,))
        x[2] = 1
        return z

    check(f, lambda: given(plain(2), leaf(2)))


# -- a tensor that has those sizes already keeps its strides, and the storage its size -------------------

REFUSED = {
    "too long": lambda x, y: x.set_(y.untyped_storage(), 0, (3,), (1,)),
    "too far": lambda x, y: x.set_(y.untyped_storage(), 1, (3,)),
    "a tensor": lambda x, y: x.set_(y, 0, (3,), (1,)),
}


@pytest.mark.parametrize("set_", REFUSED.values(), ids=REFUSED)
def test_of_like_sizes_and_strides_eager_refuses_a_storage_that_is_too_small(set_):
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
def test_strides_are_kept_that_reach_beyond(set_, made, returned):
    def f(x, y):
        y = y * 2 if made else y
        set_(x, y)
        return (x, y) if returned else y

    check(f, lambda: given(plain(4)[::2], plain(2, seed=1)), probe=not returned)


def test_strides_are_kept_that_reach_beyond_until_the_storage_grows():
    def f(x, y):
        z = y * 2
        x.set_(z.untyped_storage())
        z.untyped_storage().resize_(12)
        x.fill_(3)
        return x * 2, z

    check(f, lambda: given(plain(4)[::2], plain(2, seed=1)))


def test_strides_are_kept_that_do_not_reach_beyond():
    def f(x, y):
        x.set_(y.untyped_storage())
        y.add_(1)
        return x * 2, x

    check(f, lambda: given(plain(1).expand(2), plain(2, seed=1)))


@pytest.mark.parametrize("use", [lambda x: x * 2, lambda x: x.fill_(1)], ids=["read", "written"])
def test_what_lies_beyond_is_refused(use):
    """Eager reads and writes what comes after the memory, which may be anything."""

    def f(x, y):
        x.set_(y.untyped_storage())
        use(x)

    x, y = plain(4)[::2], plain(2)
    with pytest.raises(aotcheck.UnsupportedError) as error:
        aotcheck.aot_function(f)(x, y)
    assert error.value.reason == "set_ beyond its storage"
    assert (x.stride(), x.untyped_storage().nbytes()) == ((2,), 16)
