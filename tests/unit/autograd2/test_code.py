"""Graphs as Python functions: ops called straight, values let go of."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aotcheck._torch2.dispatch import TENSOR, quick_op
from aotcheck.autograd2.api import aot_function
from aotcheck.autograd2.config import patch_config
from aotcheck.autograd2.ir.graph import Graph
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.runtime.compile import function_of

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
        self.most = max(self.most, sum(r() is not None for r in self.made))
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
