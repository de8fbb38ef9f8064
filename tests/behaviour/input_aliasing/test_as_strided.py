"""As_strided of an argument beyond its own elements, within its storage; storage offsets."""

import torch

from tests.behaviour.harness import agrees, check
from tests.behaviour.input_aliasing.common import of_detached, of_leaf, of_plain
from tests.behaviour.inputs import given_of, plain
from tests.behaviour.shared import of_non_leaf


def test_as_strided_beyond_the_argument_is_returned():
    check(lambda x: x.as_strided((8,), (1,), 0), of_plain(lambda b: b[2:4]))
    check(lambda x: (x.as_strided((8,), (1,), 0), x * 2), of_detached(lambda b: b[2:4]))


def test_as_strided_without_an_offset_starts_where_the_view_does():
    for kind in (of_plain, of_leaf, of_non_leaf, of_detached):
        check(lambda x: (x.as_strided((2,), (1,)), x * 2), kind(lambda b: b[2:6]))


def test_as_strided_beyond_the_argument_is_read():
    check(lambda x: x.as_strided((8,), (1,), 0) * 2, of_plain(lambda b: b[2:4]))


@agrees(
    of_plain(lambda b: b[2:4], lambda b: b[6:]),
    of_detached(lambda b: b[2:4], lambda b: b[6:]),
    of_plain(lambda b: b[2:4], lambda b: b),
    anew=True,
)
def test_a_write_beyond_the_argument_is_seen_by_another_argument(x, y):
    x.as_strided((8,), (1,), 0).mul_(2)
    return x * 1, y * 3


@agrees(of_non_leaf(lambda b: b[2:4]))
def test_a_write_beyond_the_argument_through_its_detached_alias(x):
    x.detach().as_strided((8,), (1,), 0).mul_(2)
    return x * 3


def test_a_write_beyond_an_argument_that_has_a_grad_fn():
    def f(x):
        x.as_strided((4,), (1,), 2).mul_(2)
        return x * 3

    check(f, of_non_leaf(lambda b: b[2:6]))

    def further(x):
        x.as_strided((8,), (1,), 0).mul_(2)
        return x * 3

    check(further, of_non_leaf(lambda b: b[2:6]))


@agrees(of_plain(lambda b: b[2:4]))
def test_resize_of_an_argument_beyond_its_part_of_the_storage(x):
    x.resize_(5)
    x.mul_(2)
    return x * 1


def test_an_alias_of_an_argument_with_a_storage_offset_is_returned():
    for view in (lambda x: x.view(2, 2), lambda x: x[1:], lambda x: x.view(torch.int32), lambda x: x.detach()):
        for kind in (of_plain, of_non_leaf, of_detached):
            check(view, kind(lambda b: b[3:7]))


@agrees(lambda: given_of(plain(6), lambda base: (base[2:4],)))
def test_a_write_beyond_a_view_argument_is_seen_by_its_base(x):
    x.as_strided((6,), (1,), 0).mul_(2)
    return x + 1
