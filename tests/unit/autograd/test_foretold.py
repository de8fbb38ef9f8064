"""What meta kernels foretell is asked once for operands that lie alike, whatever an op gives besides tensors."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import aotcheck
from aotcheck.autograd.ops.tracer import Tracer
from aotcheck.autograd.ops.twins import Kind, info_of

LOSSES = (F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss, F.binary_cross_entropy)


@pytest.fixture
def kernels_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The ops whose meta kernels were run, but for views, which are made each time."""
    ran: list[Any] = []
    run = Tracer.run

    def noting(tracer: Tracer, func: Any, args: Any, kwargs: Any) -> Any:
        if info_of(func).kind is not Kind.VIEW:
            ran.append(func)
        return run(tracer, func, args, kwargs)

    monkeypatch.setattr(Tracer, "run", noting)
    yield ran


def train(function: Callable[..., Tensor], *arguments: Tensor) -> list[Tensor]:
    """The result of a fresh function that no cache has seen, compiled, and its gradients."""
    compiled = aotcheck.aot_function(lambda *given: function(*given), fw_compiler=lambda graph, _: graph)
    result = compiled(*arguments)
    return [result, *torch.autograd.grad(result.sum(), [a for a in arguments if a.requires_grad])]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_the_summands_of_a_loss_are_measured_once(loss: Callable[..., Tensor], kernels_run: list[Any]) -> None:
    given = torch.linspace(0.1, 0.9, 12).view(3, 4).requires_grad_(), torch.linspace(0.2, 0.8, 12).view(3, 4)
    train(loss, *given)
    kernels_run.clear()
    found = train(loss, *given)
    assert kernels_run == []
    expected = loss(*given)
    torch.testing.assert_close(found, [expected, *torch.autograd.grad(expected, given[0])])


def test_an_op_that_gives_none_for_some_results_is_asked_once(kernels_run: list[Any]) -> None:
    x, w = torch.randn(2, 3, 5, 5, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)
    train(F.conv2d, x, w)
    kernels_run.clear()
    found = train(F.conv2d, x, w)
    assert kernels_run == []
    expected = F.conv2d(x, w)
    torch.testing.assert_close(found, [expected, *torch.autograd.grad(expected.sum(), [x, w])])
