"""Graphs as Python functions: ops called straight, values let go of."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from aotcheck._torch2.dispatch import TENSOR, quick_op
from aotcheck.autograd2.api import aot_function
from aotcheck.autograd2.config import patch_config
from aotcheck.autograd2.ir.graph import Graph
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.runtime.compile import function_of
from tests.unit.autograd2.agrees import agrees

aten = torch.ops.aten


def test_an_op_is_called_by_the_function_that_chooses_it() -> None:
    assert quick_op(aten.add.Tensor, [TENSOR, TENSOR], {}) is torch.add
    assert quick_op(aten.add.Tensor, [TENSOR, 2], {})(torch.ones(1), 2).item() == 3


def test_writes_that_a_graph_keeps_come_of_the_users_lines() -> None:
    def function(x: Any, y: Any) -> None:
        x[1:].mul_(3)
        y.t().add_(1)

    graphs = []
    with patch_config(debug=True):
        compiled = aot_function(function, lambda g, _: graphs.append(g) or g, keep_inference_input_mutations=True)
        compiled(torch.ones(4), torch.ones(2, 3))
    copies = [n for n in graphs[0].graph.nodes if n.target is aten.copy_.default]
    assert [f"in {function.__name__}" in n.meta["stack_trace"] for n in copies] == [True, True]


def test_where_no_function_chooses_the_overload_the_op_itself_is_called() -> None:
    called = quick_op(aten.mul.Scalar, [TENSOR, 2], {})  # torch.mul takes a number for a tensor
    assert called is not torch.mul
    assert called(torch.ones(1), 2).item() == 2


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[Any]] = []
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.made.append(weakref.ref(out))
        self.most = max(self.most, len({id(t) for r in self.made if (t := r()) is not None}))
        return out


def test_values_are_let_go_of_after_their_last_use() -> None:
    x, graph = torch.ones(3), Graph()
    first = node = graph.placeholder(geometry_of(x), x.device)
    for _ in range(5):
        node = graph.call(aten.add.Tensor, (node, first))
    function = function_of([first], graph.nodes, [node, None], {})
    with _Watch() as watch:
        (result, nothing) = function(x)
    assert nothing is None
    assert torch.equal(result, 6 * x)
    assert watch.most == 2


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(str(func))
        return func(*args, **(kwargs or {}))


def _recorded(*steps: tuple[Any, ...]) -> tuple[list[str], Tensor, Tensor]:
    """The ops that a graph runs, each step an op and what follows its operand; its input and its result."""
    x, graph = torch.arange(-3.0, 3.0).view(2, 3), Graph()
    node = first = graph.placeholder(geometry_of(x), x.device)
    lies = x.to(torch.device("meta"))
    for op, *rest in steps:
        node, lies = graph.like(node, op, node, *rest), op(lies, *rest)
        node.geometry = geometry_of(lies)
    function = function_of([first], graph.nodes, [node], {})
    ops = _Ops()
    with ops:
        (found,) = function(x)
    return ops.called, x, found


def test_an_op_writes_its_operand_where_nothing_reads_it_any_more() -> None:
    ops, x, found = _recorded((aten.mul.Tensor, 2), (aten.relu.default,), (aten.add.Tensor, 1))
    assert ops == ["aten.mul.Tensor", "aten.relu_.default", "aten.add_.Tensor"]
    assert x.tolist() == [[-3, -2, -1], [0, 1, 2]]
    assert found.tolist() == (x.mul(2).relu() + 1).tolist()


@pytest.mark.parametrize("second", [(aten.lt.Scalar, 1), (aten.t.default,), (aten._to_copy.default,)])
def test_an_op_does_not_write_what_other_ops_gave(second: Any) -> None:
    ops, _, _ = _recorded((aten.mul.Tensor, 2), second, (aten.add.Tensor, 1))
    assert ops[-1] == "aten.add.Tensor"


def _kept(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.relu()


def _viewed(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    part = y[1:]
    z = y.sigmoid()
    return part * z[1:], z


def _twice(x: Tensor) -> Tensor:
    y = x.exp()
    return (y * y).tanh() + 1


def _broadcast(x: Tensor) -> Tensor:
    y = x.sum(0, keepdim=True) * 2
    return y + x.exp()


def _promoted(x: Tensor) -> Tensor:
    return ((x > 0) + (x < 1)).add(1).mul(0.5).neg()


def _complex(x: Tensor) -> Tensor:
    y = torch.view_as_complex(x.reshape(-1, 2) * 3)
    return torch.view_as_real((y.conj() * 2j + 1).neg()).sub(1)


def _scaled(x: Tensor) -> Tensor:
    y = x @ x.t() + x.sum()
    return torch.addmm(y.mul(2), x, x.t(), beta=0.5).div(y.exp().add(1), rounding_mode="floor")


@pytest.mark.parametrize("function", [_kept, _viewed, _twice, _broadcast, _promoted, _complex, _scaled])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_values_that_are_written_in_their_place_are_eagers(function: Any, requires_grad: bool) -> None:
    agrees(function, lambda: (torch.linspace(-1, 1, 16).view(4, 4).requires_grad_(requires_grad),))


def test_autograd_records_while_the_error_of_a_graph_is_handled() -> None:
    compiled = aot_function(lambda x, i: torch.embedding(x * 2, i).relu() + 1)
    x = torch.ones(3, 2, requires_grad=True)
    compiled(x, torch.tensor([0, 2]))
    with pytest.raises(IndexError) as raised:
        compiled(x, torch.tensor([0, 7]))
    assert (x * 2).requires_grad
    assert raised.value.__traceback__ is not None


def _saved(x: Tensor) -> Tensor:
    return torch.addcmul(x, x, x.neg()) * x.mul(2).exp()


def _returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.mul(2)
    return torch.logsumexp(y, 0), y


@pytest.mark.parametrize("function", [_saved, _returned])
def test_a_backward_writes_nothing_that_was_saved(function: Any) -> None:
    found = []
    for f in (function, aot_function(function)):
        x = torch.linspace(-1, 1, 4).requires_grad_()
        results = f(x)
        roots = [results] if isinstance(results, Tensor) else [*results]
        gradients = [torch.autograd.grad(r.sum(), x, retain_graph=True)[0] for r in roots * 3]
        found.append([t.tolist() for t in (*gradients, *roots)])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(), (5,)])
def test_numbers_in_a_graph_are_what_the_ops_make_of_them(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    numbers = [0.1, -0.0, 1 / 3, 2**24 + 1, 2**53 + 1, 1e-46, 3.4e38, float("inf"), -3, 7]

    def function(x: Tensor) -> list[Tensor]:
        made = [op(x, n) for op in (torch.add, torch.sub, torch.mul, torch.div) for n in numbers]
        return [*made, torch.add(x, 0.7 if dtype.is_floating_point else 7, alpha=3), (x * 1.5).mul(2).sub(3)]

    found = []
    for f in (function, aot_function(function)):
        x = (torch.arange(1, 1 + len(torch.empty(shape).view(-1))).view(shape) * 1.7).to(dtype)
        x.requires_grad_(dtype.is_floating_point)
        results = f(x)
        some = [r for r in results if r.requires_grad]
        gradients = torch.autograd.grad(torch.stack([r.double() for r in some]).sum(), x) if some else ()
        found.append([(t.dtype, t.tolist()) for t in (*results, *gradients)])
    assert str(found[0]) == str(found[1])  # nan is nan
