"""Custom ops that write, and gradients of embeddings that are sparse."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from aotcheck.autograd2 import UnsupportedError, aot_function, aot_module


@torch.library.custom_op("aotcheck_unit::moved", mutates_args=("seen", "several"))
def moved(x: torch.Tensor, seen: torch.Tensor | None, several: list[torch.Tensor]) -> torch.Tensor:
    """Writes two of its arguments."""
    for k, t in enumerate([*([] if seen is None else [seen]), *several]):
        t.add_(x.sum() + k)
    return x * 2


@moved.register_fake
def _(x: torch.Tensor, seen: torch.Tensor | None, several: list[torch.Tensor]) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("aotcheck_unit::unknown", mutates_args="unknown")
def unknown(x: torch.Tensor, y: torch.Tensor) -> None:
    """Writes one of them."""
    y.copy_(x)


@pytest.mark.parametrize("seen", [True, False])
def test_a_custom_op_writes_what_it_says(seen: bool) -> None:
    def f(x: torch.Tensor, at: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = moved(x, at, [a.t(), b[1:]])
        unknown(y, b[:1])
        return y + a

    def given() -> list[torch.Tensor | None]:
        return [torch.ones(1, 2), torch.zeros(()) if seen else None, torch.ones(2, 2), torch.arange(4.0).view(2, 2)]

    compiled, ours, eagers = aot_function(f), given(), given()
    for _ in range(2):
        assert torch.equal(compiled(*ours), f(*eagers))
        assert all(a is None or torch.equal(a, b) for a, b in zip(ours, eagers, strict=True))


def test_a_custom_op_is_not_given_memory_twice() -> None:
    with pytest.raises(UnsupportedError, match="share memory"):
        aot_function(lambda x: moved(x, None, [x]))(torch.ones(2))


class Twice(nn.Module):
    """Looks a table up twice, and reads it whole if it is told to."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.table, self.whole = nn.Embedding(4, 2, sparse=True), whole

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        found = self.table(index).sum() + (self.table(index + 1) * 2).sum()
        return found + (self.table.weight * 3).sum() if self.whole else found


@pytest.mark.parametrize(
    "make", [lambda: nn.EmbeddingBag(4, 2, mode="sum", sparse=True), lambda: Twice(False), lambda: Twice(True)]
)
def test_gradients_of_embeddings_are_sparse_where_they_are_in_eager(make: Callable[[], nn.Module]) -> None:
    module, index = make(), torch.tensor([[0, 1], [2, 1]])
    other = copy.deepcopy(module)
    for call in (module, aot_module(other)):
        call(index).sum().backward()
    for p, q in zip(module.parameters(), other.parameters(), strict=True):
        assert p.grad.layout is q.grad.layout and torch.equal(p.grad.to_dense(), q.grad.to_dense())


@pytest.mark.parametrize(
    "f",
    [lambda x: x[:1].expand(3).add_(1), lambda x: x[1:].copy_(x[:-1]), lambda x: torch.add(x[1:], 1, out=x[:-1])],
    ids=["expanded", "copied", "out"],
)
def test_writes_that_overlap_raise_where_eager_does(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for call in (f, aot_function(f)):
        with pytest.raises(RuntimeError, match="unsupported operation") as raised:
            call(torch.arange(4.0))
        assert not isinstance(raised.value, UnsupportedError)
    with pytest.raises(UnsupportedError, match="overlapping"):
        aot_function(lambda x: x[::2].add_(x[:2]))(torch.arange(4.0))


def test_what_has_no_derivative_raises_at_the_backward() -> None:
    y = aot_function(lambda x: x.clone().acosh_())(torch.full((2,), 2.0, requires_grad=True))
    with pytest.raises(NotImplementedError, match="derivative"):
        y.sum().backward()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * torch.tensor(3).item() if bool(torch.arange(3).sum() > 2) else x,
        lambda x: x[torch.tensor([True, False, True])],
        lambda x: torch.cov(x.view(1, -1)),
        lambda x: x.clone().pow_(2).floor_divide_(torch.full((3,), 3.0)).polygamma_(1),
    ],
    ids=["values", "mask", "cov", "in place"],
)
def test_what_constants_decide_is_known(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.arange(3.0)
    assert torch.equal(aot_function(f)(x), f(x))


def test_noise_that_an_op_of_torchs_writes_is_kept() -> None:
    x, drawn = torch.arange(-4.0, 4.0), []
    for call in (nn.functional.rrelu, aot_function(nn.functional.rrelu)):
        torch.manual_seed(0)
        leaf = x.clone().requires_grad_()
        y = call(leaf, training=True)
        y.sum().backward()
        drawn.append((y.detach(), leaf.grad, torch.rand(1)))
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_eager_is_asked_where_there_is_no_meta_kernel_and_must_not_answer_by_values() -> None:
    x, y = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 2, 1])
    loss = aot_function(nn.functional.multi_margin_loss)(x, y)
    assert torch.equal(
        torch.autograd.grad(loss, x)[0], torch.autograd.grad(nn.functional.multi_margin_loss(x, y), x)[0]
    )
    with pytest.raises(UnsupportedError, match="op without a fake kernel"):
        aot_function(lambda x: torch.ops.aten._unique(x)[0])(torch.arange(3.0))


def test_dtypes_that_eager_has_no_kernel_for_raise_as_in_eager() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="Expected both inputs"):
        aot_function(lambda x: torch.complex(x, x))(x)
    assert torch.equal(aot_function(lambda x: x.cumsum(0) @ x)(x), x.cumsum(0) @ x)
