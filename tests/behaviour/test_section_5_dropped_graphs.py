"""BEHAVIOUR 5: derivatives of a graph that nothing leads to any more; they can be taken all the same."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import grad

from tests.behaviour.functions import Square
from tests.behaviour.harness import attempt_later, check_session, leaf

pytestmark = pytest.mark.usefixtures("device")


def _checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda y: (y * y).mul_(2) * y, x, use_reentrant=False)


FUNCTIONS = {
    "a product": lambda x: x * x * x,
    "a chain": lambda x: (x * x).sin(),
    "a result that is saved": lambda x: x.exp() * 2,
    "a custom Function": lambda x: Square.apply(x * x),
    "a checkpoint": _checkpointed,
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("freed", [None, 0, 1], ids=["kept", "the call's is freed", "the first derivative's is freed"])
def test_a_derivative_whose_graphs_before_were_dropped(f, freed):
    def session(compile):
        x = leaf(3)
        graphs = [compile(f)(x)]
        for _ in range(2):
            graphs += grad(graphs[-1].sum(), x, create_graph=True)
        if freed is not None:
            yield attempt_later(functools.partial(grad, graphs[freed].sum(), x))
        last = graphs.pop().sum()
        graphs.clear()
        yield attempt_later(functools.partial(grad, last, x))

    check_session(session)
