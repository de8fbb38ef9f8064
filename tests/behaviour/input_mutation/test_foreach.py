"""Torch._foreach_ ops that write lists: the same tensor twice, equal or overlapping views, views of inputs."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, session
from tests.behaviour.inputs import given, given_of, leaf, plain
from tests.behaviour.shared import written_at_once


@written_at_once
@pytest.mark.parametrize("given_twice", ["view", "base", "view and base"])
@session
def test_foreach_writes_a_list_with_the_base_or_the_view_twice(compile, given_twice: str):
    def f(x, view):
        tensors = {"view": [view, view], "base": [x, x], "view and base": [view, x, x]}[given_twice]
        torch._foreach_mul_(tensors, 2)
        return x * 1, view * 1, x.view(2, 2)

    source = leaf(4)
    x = source * 1
    view = x[1:]
    out = compile(f)(x, view)
    yield out, x, view
    for y in (*out, x, view):
        yield torch.autograd.grad([y.sum()], [source], retain_graph=True)


@written_at_once
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(4)], ids=["t", "row", "view"])
@pytest.mark.parametrize("write", [torch._foreach_sin_, lambda ts: torch._foreach_mul_(ts, 3)], ids=["sin", "mul"])
@session
def test_foreach_writes_a_list_of_equal_views(compile, view, write):
    def f(*views):
        write(list(views))
        return views[0].clone(), views[1].view_as(views[1])

    compiled = compile(f)
    for n in (2, 3, 4):
        source = leaf(2, 2)
        x = source * 1
        views = [view(x) for _ in range(n)]
        out = compiled(*views)
        yield out, views, x
        for y in (*out, *views, x):
            for of in (source, x):
                yield torch.autograd.grad([y.sum()], [of], retain_graph=True, allow_unused=True)


@written_at_once
@session
def test_foreach_writes_a_list_with_a_real_part_twice(compile):
    def f(x, part):
        torch._foreach_abs_([part, part])
        return part, x

    compiled = compile(f)
    source = leaf(3, dtype=torch.complex64)
    x = source * 1
    part = x.real
    for _ in range(2):
        out = compiled(x, part)
        grads = [torch.ones_like(y) for y in out]
        yield out, torch.autograd.grad(out, [source, x, part], grads, retain_graph=True)


@written_at_once
@agrees(lambda: given(leaf(4)), backward=[1])
def test_foreach_writes_a_list_with_an_intermediate_twice(x):
    y = x * 3
    view = y[1:]
    torch._foreach_mul_([view, y, y], 2)
    return y, view


@written_at_once
@pytest.mark.parametrize("reshape", [lambda x: None, lambda x: x.t_(), lambda x: x.unsqueeze_(0)])
@session
def test_foreach_writes_a_view_twice_whose_base_was_reshaped_in_place(compile, reshape):
    def f(x):
        view = x.as_strided((2,), (1,))
        reshape(x)
        torch._foreach_mul_([view, view], 2)
        return view

    source = leaf(2, 3)
    x = source * 1
    argument = x[0:0]
    out = compile(f)(argument)
    yield out, argument, x
    for y in (out, x):
        yield torch.autograd.grad([y.sum()], [source], retain_graph=True)


@pytest.mark.parametrize("view", [torch.real, lambda x: x.t(), torch.conj], ids=["real", "t", "conj"])
@session
def test_foreach_reads_a_view_whose_base_was_detached_in_place(compile, view):
    def f(x, y, z):
        x.detach_()
        return torch._foreach_mul([y], [z])

    x, z = leaf(2, 3, dtype=torch.complex64), leaf(dtype=torch.float32)
    y = view(x)
    (out,) = compile(f)(x, y, z)
    yield out, x, y
    yield attempt_later(lambda: torch.autograd.grad(out, [y, z], torch.ones_like(out)))


@agrees(lambda: given(plain(3), plain(3, seed=1), plain(3, seed=2)))
def test_foreach_and_out_variants_write_inputs(x, y, z):
    torch._foreach_add_([x, y], 1)
    torch.add(x, y, out=z)
    return x * 2


@written_at_once
@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_foreach_with_the_same_tensor_twice(x, y):
    torch._foreach_mul_([x, y, x], 2)
    torch._foreach_add_([x, x], [y, y])
    return x + y


@written_at_once
@agrees(lambda: given(leaf(3), leaf(3, seed=1)))
def test_foreach_with_the_same_tensor_twice_and_a_gradient(x, w):
    y = x * w
    torch._foreach_mul_([y, y], [w, w])
    return y


@written_at_once
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
@agrees(lambda grad: given(leaf(4) if grad else plain(4)))
def test_foreach_over_overlapping_views(x):
    base = x * 1
    torch._foreach_mul_([base[:3], base[1:]], 2)
    torch._foreach_add_([base[:3], base[1:]], [base[1:], base[:3]])
    return base


@written_at_once
@agrees(lambda: given_of(plain(6), lambda base: (base[:4], base[2:])))
def test_foreach_over_inputs_that_overlap(x, y):
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], [y, x])
    return x + y


@agrees(lambda: given_of(leaf(4), lambda root: (root * 1, leaf(2, seed=1))))
def test_foreach_over_views_of_a_base_that_requires_grad(x, w):
    torch._foreach_mul_([x[:2], x[2:]], [w, w])
    return x * 2


@written_at_once
@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_foreach_copies_between_inputs(x, y):
    torch._foreach_copy_([x, y], [y, x])
    return x + y
