"""What a trace holds is freed with the compiled function and what its calls returned."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import aotcheck
from aotcheck.autograd.effects.capture import Capture


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * ctx.saved_tensors[0].exp()


def _hooked(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return y.sin()


def _hooked_with_a_tensor_of_its_own(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: g * y)
    return y.sin()


def _penalty(x: Tensor) -> Tensor:
    (g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
    return g * x


def _retained(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.sin()
    y.retain_grad()
    return y, y.cos()


def _returned_with_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    return y, y.t()


def _checkpointed(x: Tensor) -> Tensor:
    result: Tensor = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    return result


_FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "pointwise": torch.sin,
    "written argument": lambda x: (x * 2).mul_(3),
    "view of a result": _returned_with_a_view,
    "custom Function": _Exp.apply,
    "hook": _hooked,
    "hook that uses a tensor of the function": _hooked_with_a_tensor_of_its_own,
    "backward inside": _penalty,
    "retained gradient": _retained,
    "random": lambda x: torch.dropout(x, 0.5, True),
    "checkpoint": _checkpointed,
}


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[Capture]:
    """Those made in the test that are alive."""
    made: weakref.WeakSet[Capture] = weakref.WeakSet()
    make = Capture.__init__

    def noted(self: Capture, *args: Any, **kwargs: Any) -> None:
        made.add(self)
        make(self, *args, **kwargs)

    monkeypatch.setattr(Capture, "__init__", noted)
    return made


def _left(traces: weakref.WeakSet[Capture]) -> list[str]:
    gc.collect()
    return [str(t.mode) for t in traces]


def _flat(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", list(_FUNCTIONS))
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "no leaf"])
def test_a_trace_ends_with_its_function(name: str, leaf: bool, traces: weakref.WeakSet[Capture]) -> None:
    def train() -> None:
        x = torch.randn(3, 3, requires_grad=True)
        results = _flat(aotcheck.aot_function(_FUNCTIONS[name])(x if leaf else x.clone()))
        torch.stack([t.sum() for t in results]).sum().backward()

    train()
    assert _left(traces) == []


@pytest.mark.parametrize("name", ["pointwise", "written argument", "view of a result", "random"])
def test_that_of_an_ordinary_function_ends_without_the_collector(name: str, traces: weakref.WeakSet[Capture]) -> None:
    def train() -> None:
        x = torch.randn(3, 3, requires_grad=True)
        results = _flat(aotcheck.aot_function(_FUNCTIONS[name])(x.clone()))
        torch.stack([t.sum() for t in results]).sum().backward()

    train()
    gc.disable()
    try:
        train()
        assert list(traces) == []
    finally:
        gc.enable()


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_a_trace_of_which_no_backward_is_called_ends_too(name: str, traces: weakref.WeakSet[Capture]) -> None:
    aotcheck.aot_function(_FUNCTIONS[name])(torch.randn(3, 3, requires_grad=True))
    assert _left(traces) == []


def test_one_of_which_a_second_backward_was_traced_later_ends_too(traces: weakref.WeakSet[Capture]) -> None:
    def train() -> None:
        x = torch.randn(3, 3, requires_grad=True)
        compiled = aotcheck.aot_function(lambda x: x.exp().sin())
        (g,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        g.sum().backward()

    train()
    assert _left(traces) == []


def test_that_of_a_wrapper_ends_too(traces: weakref.WeakSet[Capture]) -> None:
    def train() -> None:
        x = TwoTensor(torch.randn(3, 3), torch.randn(3, 3)).requires_grad_()
        aotcheck.aot_function(lambda x: x.sin())(x).sum().backward()

    train()
    assert _left(traces) == []


def test_one_that_was_refused_or_raised_ends_too(traces: weakref.WeakSet[Capture]) -> None:
    def raises(x: Tensor) -> None:
        x.sin()
        raise ValueError("by the function")

    with pytest.raises(ValueError, match="by the function"):
        aotcheck.aot_function(raises)(torch.randn(3, requires_grad=True))
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(lambda x: x.sin().nonzero())(torch.randn(3, requires_grad=True))
    assert _left(traces) == []


def test_what_a_call_returned_works_after_its_function_is_gone() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    result = aotcheck.aot_function(lambda x: x.exp().sin())(x).sum()
    gc.collect()
    (g,) = torch.autograd.grad(result, x, create_graph=True)
    gc.collect()
    (second,) = torch.autograd.grad(g.sum(), x)
    eager = x.exp().sin().sum()
    (expected,) = torch.autograd.grad(eager, x, create_graph=True)
    assert torch.equal(g, expected)
    assert torch.allclose(second, torch.autograd.grad(expected.sum(), x)[0])


def test_an_escaped_replica_does_not_keep_its_trace(traces: weakref.WeakSet[Capture]) -> None:
    kept: list[Any] = []

    def keeps(x: Tensor) -> Tensor:
        kept.append(weakref.ref(x))
        return x.sin()

    aotcheck.aot_function(keeps)(torch.randn(3, requires_grad=True))
    assert _left(traces) == []
    assert kept[0]() is None
