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
