"""The order in which autograd runs nodes. It goes by numbers that each thread counts by itself.

The backward of tensors on a GPU runs in a thread of its own. So the nodes that a differentiable backward records there
have lower numbers than those of the forward, and run after them.
"""

import threading

import pytest
import torch

from tests.behaviour.backward.test_summation import BEFORE
from tests.behaviour.harness import session
from tests.behaviour.inputs import leaf
from tests.behaviour.shared import INF, numbers


@pytest.mark.xfail(
    raises=RuntimeError,
    reason="the node of a second derivative needs what the node of the forward saved, freed by then",
)
@session
def test_a_loss_and_its_penalty_where_the_first_backward_ran_in_another_thread(compile):
    x, w = leaf(3), leaf(3, seed=1)
    for _ in range(100):
        x * w  # counts the numbers of this thread beyond those of the other
    loss = compile(lambda x, w: (torch.relu(x * w) ** 2 * w).sum())(x, w)
    found: list[torch.Tensor] = []
    other = threading.Thread(target=lambda: found.extend(torch.autograd.grad(loss, x, create_graph=True)))
    other.start()
    other.join()
    (loss + (found[0] ** 2).sum()).backward()
    yield x.grad, w.grad


@pytest.mark.parametrize("before", BEFORE)
@session
def test_a_result_made_before_a_write_inside_is_summed_after_the_write(compile, before):
    """In which order gradients of results that are differentiated apart are summed is soft."""

    def f(z):
        z = z.clone()
        r = BEFORE[before](z)
        z.conj().mul_(INF)
        return z, r + z.sum()

    x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
    _, y = compile(f)(x.clone())
    yield torch.view_as_real(*torch.autograd.grad(y, x, torch.ones_like(y)))
