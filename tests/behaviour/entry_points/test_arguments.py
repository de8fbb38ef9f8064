"""Pytrees, None, scalars, kwargs, generators, duplicates of containers; what results look like."""

import decimal
import enum
import fractions
import pathlib
import re
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.harness import attempt, backward, check, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import Item


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: given({"a": leaf(3), "b": [plain(3, seed=1), leaf(3, seed=2)]}),
        lambda: given(OrderedDict(b=leaf(3), a=(plain(3, seed=1), None, 2))),
        lambda: given(Point(leaf(3), plain(3, seed=1))),
        lambda: given([leaf(3), [leaf(3, seed=1), [2.5, None, True, "x"]]]),
    ],
    ids=["dict", "ordered dict", "named tuple", "nested lists"],
)
def test_nested_containers_are_arguments_and_results(make):
    def f(tree):
        leaves = torch.utils._pytree.tree_leaves(tree)
        total = 0
        for x in leaves:
            if isinstance(x, (torch.Tensor, int, float)):
                total = total + x * 2
        return {"total": total, "tree": tree}

    check(f, make)


@session
def test_keyword_arguments_may_be_defaults_numbers_or_tensors(compile):
    f = compile(lambda x, *, y, n=2: (x * y * n, y))
    for more in ({}, {"n": 3}, {"n": plain(3, seed=4)}):
        x, y = leaf(3), leaf(3, seed=1)
        out = f(x, y=y, **more)
        backward([out[0]])
        yield x, y, out


@pytest.mark.parametrize("nest", [lambda size: size, lambda size: [size], lambda size: {"size": (1, size)}])
@session
def test_torch_sizes_stay_torch_sizes_as_arguments_and_results(compile, nest):
    def f(x, size=None, nested=None):
        given = size if size is not None else nested[0]
        return x.new_ones(given).sum() * given.numel(), nest(x.shape), given

    compiled, x = compile(f), leaf(2, 3)
    yield compiled(x, torch.Size((2, 2)))
    yield compiled(x, size=torch.Size((4,)))
    yield compiled(x, nested=[torch.Size(()), 2])
    yield compiled(x, nested=[torch.Size((5,)), 2])


def test_a_function_of_numbers_alone_returns_a_number():
    check(lambda n: n + 1, lambda: given(2), lambda: given(3))


def test_a_function_without_arguments_returns_a_tensor():
    check(lambda: torch.ones(3), lambda: given())


@session
def test_a_generator_argument_advances_as_in_eager(compile, device: str):
    generator = torch.Generator(device).manual_seed(3)
    f = compile(lambda n, g: torch.rand(n, generator=g, device=device))
    yield f(3, generator), generator.get_state()
    yield f(3, generator), generator.get_state()


@session
def test_a_list_passed_twice_is_not_taken_for_two_lists(compile):
    f = compile(lambda a, b: (len(a), len(b), a[0] * b[0]))
    xs, ys = [plain(3)], [plain(3, seed=1)]
    yield f(xs, ys)
    yield f(xs, xs)


def both_lists(a, b):
    a.append(b[0] * 2)
    return len(b) * b[0], a is b


def both_objects(a, b):
    a.y = a.x * 2
    return b.x + 1, hasattr(b, "y"), a is b


def both_in_a_list(items, _):
    items[0].x = items[0].x * 3
    return sum(item.x for item in items), items[0] is items[1]


def neither(a, b):
    return a["x"] + b["x"], a is b


TWICE = {
    both_lists: lambda x: (items := [x], list(items)),
    both_objects: lambda x: (Item(x), Item(x)),
    both_in_a_list: lambda x: ([Item(x), Item(x)], None),
    neither: lambda x: ({"x": x}, {"x": x}),
}


@pytest.mark.parametrize("f", TWICE)
@session
def test_lists_and_objects_passed_twice_stay_one(compile, f):
    g = compile(f)
    for k in range(6):
        a, b = TWICE[f](plain(3, seed=k))
        if k % 2:
            a, b = ([a[0], a[0]], None) if b is None else (a, a)
        yield g(a, b)
        for item in a if f is both_in_a_list else (a, b):
            yield item if isinstance(item, (dict, list)) else vars(item)


VALUES = [
    torch.nn.attention.SDPBackend.MATH,
    torch.nn.attention.SDPBackend.FLASH_ATTENTION,
    torch.per_tensor_affine,
    torch.finfo(torch.float32),
    torch.iinfo(torch.int8),
    fractions.Fraction(1, 2),
    decimal.Decimal("1.5"),
    pathlib.PurePosixPath("a"),
    re.compile("a"),
    frozenset({1, "a"}),
]


@pytest.mark.on_the_cpu
@session
def test_plain_python_values_as_arguments_are_distinguished(compile):
    compiled = compile(lambda x, value, other: x * 2 if value == other else x * 3)
    for value in VALUES:
        for other in (value, VALUES[0]):
            yield compiled(plain(3), value, other)


@pytest.mark.on_the_cpu
@session(rtol=1e-5)
def test_an_sdpa_backend_passed_as_an_argument_is_used(compile):
    def attend(q, backend):
        with torch.nn.attention.sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, q, q)

    compiled = compile(attend)
    backends = torch.nn.attention.SDPBackend
    for backend in (backends.MATH, backends.FLASH_ATTENTION, backends.MATH):
        q = leaf(1, 2, 3, 4)
        compiled(q, backend).sum().backward()
        yield q.grad


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@session
def test_slices_enums_and_bytes_are_arguments_and_results(compile):
    f = compile(lambda x, which: (x[which] if isinstance(which, slice) else x * 2, which))
    for which in (slice(0, 2), slice(1, 3), Colour.RED, Colour.BLUE, ..., b"bytes", range(2), Colour.RED):
        y, back = f(plain(4), which)
        yield y, repr(back)
    g = compile(lambda x, colour=Colour.RED: x * colour.value)
    yield g(plain(3)), g(plain(3), Colour.BLUE), g(plain(3), colour=Colour.BLUE), attempt(lambda: g(plain(3)))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2,),
        lambda x: [x * 2, x * 3],
        lambda x: {"z": x * 2, "a": [x * 3, (x * 4,)]},
        lambda x: Pair(x * 2, x * 3),
        lambda x: (x * 2, None, 3, 0.5, "text", True),
        lambda x: None,
        lambda x: 7,
        lambda x: (),
        lambda x: {},
    ],
    ids=[
        "one-tuple",
        "list",
        "nested, in order",
        "named tuple",
        "None and scalars",
        "None",
        "a scalar",
        "empty tuple",
        "empty dict",
    ],
)
def test_containers_of_results_keep_their_types_and_order(function):
    check(function, lambda: given(leaf(3)))
