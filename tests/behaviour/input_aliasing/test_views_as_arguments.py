"""Leaf and view, no_grad views, views of non-leaves, view and base both passed, version counters."""

from typing import Any

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, session
from tests.behaviour.input_aliasing.common import of_leaf
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.shared import grad, written_at_once


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("written", [0, 2])
@session
def test_the_version_of_an_argument_is_read_on_every_call(compile, written: int):
    f = compile(lambda x: (x * 2, x._version))
    for k in range(3):
        x = plain(3)
        for _ in range(written + k):
            x.add_(1)
        yield f(x)


@agrees(lambda: given(plain(3)))
def test_the_version_of_an_intermediate_is_that_of_eager(x):
    y = x * 2
    before = y._version
    y.add_(1)
    return y, before, y._version


def _row():
    base = plain(4, 2)
    return given(base[1], also=[base])


def _row_of_a_non_leaf():
    base = leaf(4, 2) * 1
    return given(base[1], also=[base])


@pytest.mark.parametrize("make", [_row, _row_of_a_non_leaf, lambda: given(plain(2)), lambda: non_leaf(2)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().mul_(2) if x._is_view() else x.mul_(2),
        lambda x: (x if x._base is None else x._base).sum(),
        lambda x: x * (2 if x.view(-1)._is_view() else 3),
    ],
    ids=["asks", "its base", "of its own"],
)
def test_is_view_and_base_of_an_argument_are_those_of_eager(function: Any, make: Any):
    check(function, make)


@agrees(of_leaf(lambda b: b, lambda b: b[2:]))
def test_a_leaf_and_its_view_written_under_no_grad(x, y):
    with torch.no_grad():
        y.mul_(2)
    return x * x


@agrees(of_leaf(lambda b: b, lambda b: b.detach()), of_leaf(lambda b: b, lambda b: b.data), anew=True)
def test_a_detached_alias_of_a_leaf_is_written_after_the_leaf_was_used(x, y):
    z = x * x
    y.mul_(2)
    return z


def test_a_no_grad_view_of_a_leaf_is_written():
    def f(x, y):
        y.mul_(2)
        return x * 3

    def quiet(b):
        with torch.no_grad():
            return b[2:]

    check(f, of_leaf(lambda b: b, quiet))


@session
def test_a_view_argument_sliced_without_start_and_end(compile):
    """Of which autograd says that it began and ended nowhere; what eager raises is looked for among such views."""

    def f(x, y):
        return torch.gather(x, 0, torch.tensor([0], device=x.device)), y * 2

    a = leaf(1)
    part = torch.ops.aten.slice.Tensor(a)
    f_ = compile(f)
    yield f_(a[:], part)
    yield attempt_later(lambda: f_(a.unsqueeze(0), part))


@session
def test_the_version_of_a_written_argument_increases_as_in_eager(compile):
    def f(x, y, z):
        x.add_(1)
        x[0].mul_(2)
        y.data.add_(1)
        return x + y + z

    x, y, z = plain(3), plain(3), plain(3)
    compile(f)(x, y, z)
    yield x, y, z, [t._version > 0 for t in (x, y, z)]


@session
def test_a_second_call_with_a_no_grad_view_whose_base_the_first_wrote(compile):
    f = compile(lambda x, y: x.mul_(2))
    x = leaf(3) * 2
    with torch.no_grad():
        y = x.view(-1)
    y.register_hook(lambda g: None) if y.requires_grad else None
    for _ in range(2):
        f(x, y)
    yield x


@written_at_once
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("base_first", [False, True])
@pytest.mark.parametrize("by", ["leaf", "view"])
@session
def test_a_leaf_view_is_written_together_with_its_base_that_already_has_a_history(compile, by, base_first, hooked):
    x, w = plain(), leaf()
    v = x.view(()).requires_grad_()
    seen = []
    if hooked:
        v.register_hook(lambda g: seen.append(g.clone()))

    def f(x, v, w):
        x.copy_(w if by == "leaf" else v)
        y = v.clone()
        torch._foreach_neg_([x, v] if base_first else [v, x])
        return y

    y = compile(f)(x, v, w)
    for t in (y, x, v):
        yield attempt_later(lambda t=t: grad(t, [w, v], torch.ones_like(t)))
    yield y, x, v, seen
