"""The table of storages: what each view holds after any order of views, writes and resizes, held against eager.

The graph that the table records is run by hand on the real inputs; torch itself, on the same views, says what is right.
"""

import itertools
from typing import Any

import pytest
import torch

from aotcheck.autograd2 import aot_function, counters
from aotcheck.autograd2.ir.graph import CONSTANT, PLACEHOLDER, Graph, ancestors
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.trace.storage import StorageTable
from aotcheck.autograd2.trace.view import View

aten = torch.ops.aten

VIEWS = {
    "itself": (aten.alias.default, ()),
    "t": (aten.t.default, ()),
    "a row": (aten.select.int, (0, 1)),
    "columns": (aten.slice.Tensor, (1, 1, 3)),
    "the diagonal": (aten.diagonal.default, ()),
    "flat": (aten.view.default, ([12],)),
    "unsqueezed": (aten.unsqueeze.default, (0,)),
}


class Traced:
    """A storage of one real tensor, and the table that follows what is done to views of it."""

    def __init__(self, is_input=True):
        self.graph = Graph()
        self.table = StorageTable(self.graph)
        self.real = torch.arange(12.0).view(3, 4)
        self.first = self.real.clone()
        self.root = self.graph.placeholder(geometry_of(self.real), self.real.device)
        self.table.hold(self.real, self.root)
        if is_input:
            self.table.storage_state(self.real).source = 0

    def view(self, source, name):
        op, args = VIEWS[name]
        made = op(source, *args)
        state, geometry = self.table.storage_state(source), geometry_of(made)
        if geometry not in state.views:
            view = state.views[geometry] = View(state, geometry)
            view.derive(self.table.view(source), op, args)
        return made

    def write(self, t, number):
        """Add a number, in eager and in the table."""
        node = self.graph.like(self.table.read(t), aten.add.Tensor, self.table.read(t), number)
        self.table.write(self.table.view(t), node)
        t.add_(number)

    def value(self, t):
        """What the graph computes for ``t``."""
        wanted = self.table.read(t)
        values = {self.root: self.first}
        values |= {flat: self.first.view(-1) for flat, _, dtype in self.table.flat_inputs if dtype == torch.float32}

        def of(a):
            return [of(x) for x in a] if type(a) in (list, tuple) else values.get(a, a) if type(a).__hash__ else a

        needed = ancestors([wanted])
        for node in self.graph.nodes:
            if node in needed and node.op not in (PLACEHOLDER, CONSTANT):
                kwargs = {k: of(v) for k, v in node.kwargs.items()}
                values[node] = node.op(*[of(a) for a in node.args], **kwargs)
        return values[wanted]

    def agrees(self, *tensors):
        return all(torch.equal(self.value(t), t) for t in tensors)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(VIEWS, VIEWS)])
@pytest.mark.parametrize("is_input", [True, False], ids=["of the caller", "made inside"])
def test_a_write_through_one_view_shows_in_every_other(first, second, is_input):
    traced = Traced(is_input)
    a, b = traced.view(traced.real, first), traced.view(traced.real, second)
    traced.write(a, 100)
    assert traced.agrees(b, a, traced.real)
    traced.write(b, 1000)
    assert traced.agrees(a, traced.real, b)


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(["t", "columns", "a row", "unsqueezed"], 2)])
def test_a_write_through_a_view_of_a_view_shows_in_what_they_are_views_of(first, second):
    traced = Traced()
    outer = traced.view(traced.real, first)
    inner = traced.view(outer, second) if outer.dim() == 2 else traced.view(outer, "unsqueezed")
    traced.write(inner, 100)
    assert traced.agrees(traced.real, outer, inner)
    traced.write(traced.real, 1)
    assert traced.agrees(inner, outer)


def test_what_no_op_is_known_to_make_is_cut_from_the_whole_storage():
    traced = Traced()
    odd = traced.real.as_strided((2, 3), (5, 2), 1)
    assert traced.agrees(odd)
    traced.write(odd, 100)
    assert traced.agrees(traced.real, odd)
    traced.write(traced.view(traced.real, "a row"), 7)
    assert traced.agrees(odd, traced.real)


def test_reading_twice_records_nothing_new():
    traced = Traced()
    row = traced.view(traced.real, "a row")
    traced.write(row, 100)
    assert traced.agrees(traced.real)
    count = len(traced.graph.nodes)
    assert traced.table.read(traced.real) is traced.table.read(traced.real)
    assert traced.table.read(row) is traced.table.read(row)
    assert len(traced.graph.nodes) == count


def test_a_write_beside_a_view_is_not_carried_to_the_whole_for_it():
    traced = Traced()
    row, columns = traced.view(traced.real, "a row"), traced.real[2:, :2]
    assert traced.agrees(row, columns)
    traced.write(row, 100)
    count = len(traced.graph.nodes)
    traced.table.read(columns)
    assert len(traced.graph.nodes) == count
    assert traced.agrees(columns, row, traced.real)


def test_another_tensor_object_on_the_same_place_is_the_same_value():
    traced = Traced()
    traced.write(traced.view(traced.real, "t"), 3)
    again = traced.real.detach().t()
    assert traced.table.read(again) is traced.table.read(traced.real.t())
    assert len(traced.table.states) == 1


@pytest.mark.parametrize("nbytes", [0, 16, 24, 96])
def test_a_storage_that_was_resized_holds_what_it_kept(nbytes):
    def resized(x, n):
        y = x * 2
        y.untyped_storage().resize_(n)
        kept = min(n // 4, 12)
        return y.as_strided((kept,), (1,)) + 0

    x = torch.arange(12.0)
    refused = dict(counters().refused)
    assert torch.equal(aot_function(resized)(x, nbytes), resized(x, nbytes))
    assert dict(counters().refused) == refused


@pytest.mark.parametrize("part", [slice(None), slice(0, 2)])
@pytest.mark.parametrize("refilled", [None, 1.0, 2.0])
def test_an_argument_without_memory_is_filled_for_the_call_and_again_for_its_backward(
    part: slice, refilled: float | None
) -> None:
    def function(parameter: Any, values: Any, x: Any) -> Any:
        parameter.untyped_storage().resize_(36)
        with torch.no_grad():
            parameter.copy_(values)
        y = (x @ parameter[:, part]).sin()
        parameter.untyped_storage().resize_(0)
        return y

    def trained(f: Any) -> Any:
        parameter, x = torch.ones(3, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
        parameter.untyped_storage().resize_(0)
        y = f(parameter, torch.full((3, 3), 0.3), x)
        if refilled is not None:
            parameter.untyped_storage().resize_(36)
            parameter.data.fill_(refilled)
        try:
            y.sum().backward()
        except RuntimeError:
            return "raises"
        return [t.grad.tolist() for t in (parameter, x)]

    assert trained(aot_function(function)) == trained(function)
    assert (trained(function) == "raises") is (refilled is None)


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_strided_in_place_of_a_tensor_that_has_a_history(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.clone().as_strided_((2, 2), (1, 2), 1)

    found = []
    for f in (function, aot_function(function, dynamic=dynamic)):
        x = torch.arange(10.0, requires_grad=True)
        y = f(x)
        place = y.storage_offset(), y.stride(), y.untyped_storage().nbytes()
        found.append((place, y.detach().tolist(), torch.autograd.grad((y * y).sum(), x)[0].tolist()))
    assert found[0] == found[1]
