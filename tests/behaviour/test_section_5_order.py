"""BEHAVIOUR 5: gradients of one tensor are summed up in the order in which eager does it."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.harness import check_session, plain
from tests.behaviour.wrappers import tagged

USES = {
    "large": lambda x: x * 1e8,
    "minus large": lambda x: x * -1e8,
    "sine": lambda x: (x * 3).sin() * 1e7,
    "view": lambda x: x.t(),
    "row": lambda x: x.select(0, 0),
    "of a view": lambda x: x.t()[0] * -3e7,
    "written": lambda x: x.mul_(1),
}


@pytest.mark.parametrize("names", itertools.combinations(USES, 4), ids="-".join)
@pytest.mark.parametrize("make", [plain, tagged], ids=["plain", "wrapper"])
def test_the_order_of_summands(names, make):
    def session(compile):
        for order in (names, names[::-1], (*names[2:], *names[:2]), (names[1], names[3], names[0], names[2])):
            root = make(2, 2).requires_grad_()
            x = root * 1
            outputs = compile(lambda x, order=order: [USES[name](x) for name in order])(x)
            yield torch.autograd.grad(outputs, [root], [torch.ones_like(o) for o in outputs])

    check_session(session)


@pytest.mark.parametrize("function", [torch.sin, lambda x: x.cos() * 3], ids=["sin", "cos"])
@pytest.mark.parametrize("make", [plain, tagged], ids=["plain", "wrapper"])
@pytest.mark.parametrize("lead", [lambda r: r.clone(), lambda r: r * 3, lambda r: r], ids=["clone", "product", "leaf"])
def test_the_order_of_summands_of_first_and_second_derivatives(function, make, lead):
    def session(compile):
        root = make(2, 2).requires_grad_()
        x = lead(root)
        y = compile(function)(x)
        first = torch.autograd.grad(y, [root, x], torch.ones_like(y), create_graph=True)
        penalty = sum((g * g).sum() for g in first)
        (y.sum() + penalty).backward()
        yield first, root.grad

    check_session(session)


OF_TWO = {
    "large": lambda x, view: x * 1e8,
    "minus large of the view": lambda x, view: view * -1e8,
    "of the view": lambda x, view: view.exp() * 3e7,
    "base": lambda x, view: x,
    "view": lambda x, view: view,
    "another view": lambda x, view: x.t(),
}


def _quietly(t):
    with torch.no_grad():
        t.mul_(2)


@pytest.mark.parametrize("names", itertools.combinations(OF_TWO, 4), ids="-".join)
@pytest.mark.parametrize(
    "write",
    [
        lambda x, view: x.mul_(2),
        lambda x, view: view.mul_(2),
        lambda x, view: _quietly(x),
        lambda x, view: _quietly(view),
    ],
    ids=["base", "view", "base quietly", "view quietly"],
)
def test_the_order_of_summands_of_a_base_and_its_view_that_are_written(names, write):
    def session(compile):
        for order in itertools.permutations(names):
            root = plain(2, 2).requires_grad_()
            x = root * 1
            view = x.t()

            def f(x, view, order=order):
                write(x, view)
                return [OF_TWO[name](x, view) for name in order]

            outputs = compile(f)(x, view)
            yield torch.autograd.grad(outputs, [root], [torch.ones_like(o) for o in outputs])

    check_session(session)
