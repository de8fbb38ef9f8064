"""The fast check: calls like the last one are not bound, and any other call is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from aotcheck.autograd2 import UnsupportedError, aot_function
from aotcheck.autograd2.api import Compiled

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Edges(NamedTuple):
    """Two tensors with names."""

    left: Tensor
    right: Tensor


def _base(*shape: int) -> Tensor:
    return torch.arange(16.0, dtype=torch.float32).view(shape).clone()


def _same(t: Tensor) -> Call:
    return (t, t), {}


def _aliases() -> Call:
    base = _base(2, 8)
    return (base[0], base[1]), {}


KINDS: dict[str, tuple[Callable[..., Any], Callable[[], Call]]] = {
    "tensors": (lambda x, y: x + y, lambda: ((_base(16), _base(16)), {})),
    "list": (lambda xs: sum(x.mul_(2).sum() for x in xs), lambda: (([_base(16), _base(4, 4)],), {})),
    "dict": (lambda d: d["a"] * d["b"]["c"][0], lambda: (({"a": _base(16), "b": {"c": (_base(16),)}},), {})),
    "keywords": (lambda x, *, y: x + y, lambda: ((_base(16),), {"y": _base(16)})),
    "values": (lambda x, n, s, b: x * n if b and s == "a" else x, lambda: ((_base(16), 3, "a", True), {})),
    "duplicates": (lambda x, y: x.mul_(2) + y, lambda: _same(_base(16))),
    "aliases": (lambda x, y: x.mul_(2) + y, _aliases),
    "named tuple": (lambda e: e.left + e.right, lambda: ((Edges(_base(16), _base(16)),), {})),
}


@pytest.mark.parametrize("kind", KINDS)
def test_calls_like_the_last_ones_are_not_bound(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, make = KINDS[kind]
    compiled = aot_function(function)
    for k in range(4):
        if k == 2:
            monkeypatch.setattr(Compiled, "bind", None)
        args, kwargs = make()
        expected, (eager_args, eager_kwargs) = compiled(*args, **kwargs), make()
        assert torch.equal(expected, function(*eager_args, **eager_kwargs))
        assert str(args) == str(eager_args)


def _written(x: Tensor, *others: Any) -> Tensor:
    x.mul_(2)
    return sum((y.sum() for y in others if isinstance(y, Tensor)), x.sum())


_ONE = _base(16)
OTHERS: tuple[Callable[[], tuple[Any, ...]], ...] = (
    lambda: (_base(16), _base(16)),
    lambda: _same(_base(16))[0],
    lambda: (_base(4, 4), _base(16)),
    lambda: (_base(4, 4)[1], _base(16)),
    lambda: (_base(2, 8)[0, 4:], _base(16)),
    lambda: (_base(4, 4).requires_grad_().detach()[1], _base(16)),
    lambda: _aliases()[0],
    lambda: (_base(16), 3),
    lambda: (_base(16), 3.0),
    lambda: (_base(16), True),
    lambda: (_base(16), None),
    lambda: (_base(16).to(torch.float64), _base(16)),
    lambda: (_base(16),),
)


def test_other_calls_do_what_eager_does() -> None:
    compiled = aot_function(_written)
    for make in OTHERS:
        for other in (*OTHERS, make, make):
            args, eager_args = other(), other()
            assert torch.equal(compiled(*args), _written(*eager_args))
            assert str(args) == str(eager_args)
        for _ in range(3):
            compiled(*make())


def test_a_view_whose_base_has_another_shape_is_another_call() -> None:
    def function(a: Tensor, w: Tensor) -> Tensor:
        a.mul_(w)
        return a * 2

    compiled = aot_function(function)
    for shape in 4 * [(2, 8)] + 4 * [(4, 4)]:
        results = []
        for f in (function, compiled):
            base, w = _base(*shape), torch.full((4,), 2.0, requires_grad=True)
            f(base[0, :4], w).sum().backward()
            results.append((base.detach(), w.grad))
        assert str(results[0]) == str(results[1])


def test_state_around_is_looked_at() -> None:
    module = torch.nn.Linear(16, 2)
    compiled = aot_function(lambda x: module(x) * module.training)
    changes: list[Callable[[], Any]] = [
        lambda: None,
        module.eval,
        lambda: setattr(module, "weight", torch.nn.Parameter(torch.ones(2, 16))),
        lambda: module.weight.requires_grad_(False),
        lambda: torch.nn.init.ones_(module.weight),
        lambda: module.__setattr__("forward", lambda x: x),
    ]
    for change in changes:
        change()
        for _ in range(4):
            found, expected = compiled(_base(16)), module(_base(16)) * module.training
            assert torch.equal(found, expected)
            assert found.requires_grad == expected.requires_grad


def test_modes_are_looked_at() -> None:
    compiled = aot_function(lambda x, w: (x @ w, torch.ones(2)))
    modes: list[Callable[[], Any]] = [torch.enable_grad, torch.no_grad, torch.inference_mode]
    modes += [lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.autocast("cpu", torch.float16)]
    w = torch.ones(16, 2, requires_grad=True)
    for _ in range(4):
        for mode in modes:
            with mode():
                for _ in range(2):
                    (found, _), expected = compiled(_base(1, 16), w), _base(1, 16) @ w
            assert (found.dtype, found.requires_grad) == (expected.dtype, expected.requires_grad)
            assert found.is_inference() == expected.is_inference()
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(_base(1, 16), w)[1].dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_each_call_assigns_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"n": 0, "last": torch.zeros(16)}

    def step(x: Tensor) -> Tensor:
        state["n"] += 1
        state["last"] = (x * state["n"] + state["last"])[None][0]
        result: Tensor = state["last"] * 2
        return result

    compiled = aot_function(step)
    for k in range(7):
        with monkeypatch.context() as patch:
            if k == 5:
                patch.setattr(Compiled, "bind", None)
            assert torch.equal(compiled(torch.ones(16)), torch.full((16,), (k + 1) * (k + 2.0)))
        assert state["n"] == k + 1
    state["last"] = 1
    assert torch.equal(compiled(torch.ones(16)), torch.full((16,), 18.0))


def test_what_a_module_holds_is_asked_of_each_dict_by_itself() -> None:
    class Layers(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return sum(((k + 1) * y for k, m in enumerate(self.children()) for y in m.buffers()), x)

    model = Layers()
    model.a, model.b = torch.nn.Module(), torch.nn.Module()
    model.a.register_buffer("y", torch.ones(2))
    compiled = aot_function(model)
    for k in range(6):
        if k == 3:  # as many items with the same names, in another order of modules
            model.b.register_buffer("y", model.a._buffers.pop("y"))
        assert torch.equal(compiled(torch.zeros(2)), model(torch.zeros(2)))


@pytest.mark.parametrize("make", [lambda: torch.full((1,), 4.0).view(1, 1), lambda: torch.full((3,), 4.0)[:3]])
def test_a_view_that_left_the_memory_of_its_base_is_another_kind_of_call(make):
    def halve(x):
        x.data = x / 2

    view, compiled = make(), aot_function(halve)
    compiled(view)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="view of a base that has changed"):
            compiled(view)
    assert view.unique().tolist() == [2]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_call_without_a_view_where_one_was_before(dynamic):
    compiled = aot_function(lambda x, y: x + y, dynamic=dynamic)
    for _ in range(3):
        for x in (torch.ones(2, 3), torch.ones(3, 3)[:2], torch.ones(4, 3)[1:3], torch.ones(4, 3)):
            for y in (x, x[:], x * 2, torch.ones(len(x), 3)):
                assert torch.equal(compiled(x, y), x + y)
