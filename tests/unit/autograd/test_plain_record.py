"""Functions that only compute have the record that the epilogue's builder would make: Note [Plain functions]."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import aotcheck
from aotcheck.autograd.eager_graph.regions import Cut
from aotcheck.autograd.effects import capture as capture_module
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.effects.epilogue import EpilogueBuilder
from aotcheck.autograd.effects.plain_record import plain_record
from aotcheck.autograd.record.record import Record
from aotcheck.autograd.replicas.replicas import Past
from tests.behaviour.alias_free import ORDINARY

Function = Callable[..., Any]


def _comparable(record: Record) -> Record:
    """The record without the turns of groups, and with where gradients arrive in place of what only stands for that."""

    def edge_of(x: Any) -> Any:
        return dataclasses.replace(x, tensor=tuple(x.tensor.edge)) if isinstance(x.tensor, Past) else x

    return dataclasses.replace(
        record,
        groups=tuple(dataclasses.replace(g, turn=()) for g in record.groups),
        attached=tuple(map(edge_of, record.attached)),
        cuts=tuple(map(edge_of, record.cuts)),
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Record | None, Record]]:
    """Of each call that is traced, the record written down at once, if any, and the builder's."""
    records: list[tuple[Record | None, Record]] = []

    def both(capture: Capture, outputs: Sequence[Any]) -> tuple[Record, list[Cut]] | None:
        plain = plain_record(capture, outputs)
        builder = EpilogueBuilder(capture)
        full = builder.build(outputs, [], [])
        records.append((plain and _comparable(plain[0]), _comparable(full)))
        if plain is not None:
            assert [c.edge for c in plain[1]] == [c.edge for c in builder.results.cuts]
        return plain

    monkeypatch.setattr(capture_module, "plain_record", both)
    return records


@pytest.mark.parametrize("case", ORDINARY, ids=lambda case: case.name)
def test_the_record_is_the_builders(case, made):
    aotcheck.aot_function(case.function)(*case.arguments())
    ((plain, full),) = made
    assert plain is None or plain == full


def test_most_ordinary_functions_are_plain(made):
    for case in ORDINARY:
        aotcheck.aot_function(case.function)(*case.arguments())
    assert len([1 for plain, _ in made if plain is not None]) >= 0.85 * len(ORDINARY)


def _leaf() -> Tensor:
    return torch.full((2, 3), 2.0).requires_grad_()


def _writes_intermediate(x: Tensor) -> Tensor:
    return (x * 2).mul_(3)


def _returns_twice(x: Tensor) -> tuple[Tensor, Tensor, int]:
    y = x.exp()
    return y, y, 3


def _counts(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x.detach().argmax() + 1


def _detaches(x: Tensor) -> Tensor:
    y = x * 2
    return y.detach()


def _two_histories(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), x.sin()


def _one_by_the_other(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x.exp()
    return y.sum(), x.sin(), y


def _shared(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x.exp()
    return y.sin(), x.cos(), y * x.tanh()


def _several_of_an_op(x: Tensor) -> tuple[Tensor, ...]:
    values, indices = x.sort()
    mean, var = torch.var_mean(values)
    return mean, indices, var.exp()


@pytest.mark.parametrize(
    "function",
    [_writes_intermediate, _returns_twice, _counts, _detaches, _two_histories, _one_by_the_other, _shared,
     _several_of_an_op],
)  # fmt: skip
def test_plain(function, made):
    aotcheck.aot_function(function)(_leaf())
    ((plain, full),) = made
    assert plain is not None
    assert plain == full


def test_a_view_without_grad_may_be_an_argument(made):
    aotcheck.aot_function(lambda w, x: (w * x).sum())(_leaf(), torch.arange(6.0)[3:])
    ((plain, full),) = made
    assert plain is not None
    assert plain == full


def _views(x: Tensor) -> Tensor:
    return (x * 2).view(-1)


def _returns_argument(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x


def _makes_leaf(x: Tensor) -> Tensor:
    return torch.zeros_like(x).requires_grad_()


def _shares_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.detach() * 2
    return y, y.detach()


def _enables_grad(x: Tensor) -> Tensor:
    torch.set_grad_enabled(not torch.is_grad_enabled())
    return x * 2


def _hooks(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return y.sin()


def _writes_argument(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 2


@pytest.mark.parametrize(
    "function",
    [_views, _returns_argument, _makes_leaf, _shares_memory, _enables_grad, _hooks,
     _writes_argument],
)  # fmt: skip
def test_not_plain(function, monkeypatch):
    records = []

    def noted(capture: Capture, outputs: Sequence[Any]) -> tuple[Record, list[Cut]] | None:
        records.append(plain_record(capture, outputs))
        return records[-1]

    monkeypatch.setattr(capture_module, "plain_record", noted)
    with torch.enable_grad():
        aotcheck.aot_function(function)(_leaf())
    assert set(records) == {None}
