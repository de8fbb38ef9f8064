"""Written through views made inside, expanded or overlapping views."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, session
from tests.behaviour.inputs import Given, given, given_of, leaf, plain
from tests.behaviour.shared import grad, written_at_once


@agrees(lambda: given(plain(4), leaf(4, seed=1)))
def test_an_input_written_through_a_view(x, y):
    x[1:].mul_(2)
    x.view(-1)[0] = 7
    return x + y


@agrees(lambda: given(plain(3, 4)))
def test_an_input_written_through_a_chain_of_views(x):
    x.t()[1:].unsqueeze(0).transpose(1, 2).add_(3)
    return x * 2


@agrees(lambda: given_of(leaf(4), lambda root: (root.clone(),)))
def test_a_non_leaf_written_through_a_view(x):
    x[:2].mul_(3)
    return x.sin().sum() * 0 + x.sum()


def test_a_write_to_a_view_of_a_leaf_that_requires_grad_is_eagers_error():
    check(lambda x: x[0].add_(1), lambda: given(leaf(3)))


@agrees(lambda: given(plain(3, 3)))
def test_a_write_from_an_overlapping_view_is_eagers_error(x):
    x.t().add_(x)
    return x


@agrees(lambda: given(plain(3)))
def test_a_write_through_an_expanded_view_whose_order_does_not_matter(x):
    x.expand(4, 3).copy_(x.expand(4, 3))
    return x + 1


def test_an_input_written_through_an_expanded_view_of_equal_values():
    check(lambda x: (x.unsqueeze(0).expand(4, 3).fill_(2), x * 3)[1], lambda: given(plain(3)))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.fill_(2),
        lambda y: y.zero_(),
        lambda y: y.copy_(torch.ones_like(y)),
        lambda y: y.add_(1),
        lambda y: y.mul_(y),
        lambda y: y.masked_fill_(y > 0, 1),
        lambda y: y.__setitem__(0, 4),
        lambda y: y.clamp_(min=0),
        lambda y: y.random_(1, 5),
        lambda y: torch.add(y, 1, out=y),
        lambda y: torch._foreach_add_([y], 1),
        lambda y: torch._foreach_zero_([y]),
        lambda y: y[0].add_(1),
        lambda y: y[:, :1].add_(1),
    ],
    ids=[
        "fill_",
        "zero_",
        "copy_",
        "add_",
        "mul_ of itself",
        "masked_fill_",
        "setitem",
        "clamp_",
        "random_",
        "out=",
        "foreach_add_",
        "foreach_zero_",
        "a row",
        "a column",
    ],
)
@agrees(
    lambda: given_of(plain(3), lambda base: (base.expand(4, 3),)),
    lambda: given_of(plain(3, 1), lambda base: (base.expand(3, 4),)),
    anew=True,
)
def test_a_write_to_an_expanded_input_succeeds_or_fails_as_in_eager(x, *, write):
    write(x)
    return x * 2


def test_an_expanded_input_is_read_and_differentiated():
    check(lambda x: (x * x, x.sum(0)), lambda: given_of(leaf(3), lambda root: (root.expand(4, 3),)))


def test_a_row_of_an_expanded_non_leaf_is_written():
    def f(x):
        x[0].mul_(2)
        return x * 3

    def make() -> Given:
        root = leaf(3)
        base = root * 1
        return given(base.expand(4, 3), also=[root, base])

    check(f, make)


@agrees(lambda: given(plain(1, 3)))
def test_a_write_to_an_empty_view_then_a_read_of_the_transpose(x):
    x[1:] = x
    return torch.ne(x, x.T)


@agrees(lambda: given(leaf(2, 3)))
def test_an_intermediate_is_written_through_views(x):
    y = x * 2
    y[0].mul_(3)
    z = y.t()
    z[1:].zero_()
    return y


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("twice", [False, True])
@session
def test_an_empty_view_and_its_base_are_written_by_a_foreach_op(compile, twice: bool, create_graph: bool):
    def f(x, y):
        torch._foreach_clamp_min_([x, x] if twice else [y, x], 0)
        return x

    leaf = torch.empty(0, requires_grad=True, device=plain(1).device)
    base = leaf.clone()
    view = base.t()
    out = compile(f)(base, view) if not twice else compile(f)(view, None)
    grad = torch.ones(0, requires_grad=create_graph, device=plain(1).device)
    yield torch.autograd.grad(out, (leaf, base, view), grad, allow_unused=True, create_graph=create_graph)


@pytest.mark.parametrize("after", ["", "t_", "t_ twice", "read", "base"])
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=written_at_once)])
@pytest.mark.parametrize("write", [torch._foreach_exp_, lambda xs: torch._foreach_mul_(xs, 2.0)], ids=["exp", "mul"])
@pytest.mark.parametrize("view", [lambda a: a[1:], lambda a: a[:], lambda a: a.unsqueeze(0)[0], lambda a: a.t()])
@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("given", ["view", "both"])
@session
def test_a_view_that_one_foreach_op_writes_twice(compile, given, rows, view, write, times, after):
    def f(x, base=None):
        write([x] * times)
        if after.startswith("t_"):
            x.t_()
        if after == "t_ twice":
            x.t_()
        return x * 2 if after.endswith("read") else x

    root = leaf(rows, 2)
    base = root.clone()
    x = view(base)
    out = compile(f)(x) if given == "view" else compile(f)(x, base)
    for of in [[base]] if after == "base" else [[out], [base], [out, base]]:
        tangents = [torch.ones_like(t) for t in of]
        yield attempt_later(lambda of=of, tangents=tangents: grad(of, [root, base, x], tangents))
    yield out, x, base
