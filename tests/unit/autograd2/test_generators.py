"""Random generators: states saved and set, generators that the call brings."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotcheck.autograd2.api import aot_function
from tests.unit.autograd2.agrees import agrees


def test_a_generator_of_the_call_is_where_eager_leaves_it_also_after_going_back() -> None:
    def f(x: Tensor, g: torch.Generator) -> tuple[Tensor, ...]:
        state = g.get_state()
        first = torch.rand(3, generator=g)
        g.set_state(state)
        return x * first, torch.rand(3, generator=g), torch.randn(2, generator=g), torch.rand(2)

    compiled = aot_function(f)
    for seed in (3, 5):
        made = []
        for each in (f, compiled):
            g = torch.Generator().manual_seed(seed)
            torch.manual_seed(seed)
            made.append([*each(torch.ones(3), g), g.get_state(), torch.get_rng_state()])
        assert all(map(torch.equal, *made))


def test_an_error_in_a_graph_leaves_generators_where_eager_does() -> None:
    def f(x: Tensor, g: torch.Generator, k: Tensor) -> Tensor:
        return (x * torch.rand(3, generator=g))[k] + torch.rand(1)

    compiled, states = aot_function(f), []
    for each in (f, compiled):
        g = torch.Generator().manual_seed(1)
        torch.manual_seed(1)
        for k in (1, 7):
            try:
                states.append(each(torch.ones(3), g, torch.tensor([k])))
            except IndexError as error:
                states.append(torch.tensor(len(str(error)) > 0))
        states += [g.get_state(), torch.get_rng_state()]
    assert all(map(torch.equal, states[:4], states[4:]))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", ["weight", "input"])
def test_the_layout_of_a_convolution_decides_how_a_mask_is_drawn(case: str, dynamic: bool) -> None:
    def f(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.nn.functional.conv2d(x, weight) + 2)

    x, weight = torch.ones(4, 3, 2, 2), torch.ones(6).as_strided((2, 3, 1, 1), (3, 1, 3, 3))
    assert weight.is_contiguous()
    if case == "input":
        x, weight = torch.ones(4, 3, 8, 8).to(memory_format=torch.channels_last), torch.ones(4, 3, 3, 3)
    torch.manual_seed(0)
    expected = f(x, weight)
    torch.manual_seed(0)
    assert torch.equal(aot_function(f, dynamic=dynamic)(x, weight), expected)


@pytest.mark.parametrize("draw", [torch.nn.functional.dropout, lambda x: torch.empty_like(x).normal_()])
def test_draws_into_tensors_in_other_orders_keep_their_symbols(draw) -> None:
    compiled = aot_function(draw)
    for n in (4, 3, 5, 6):
        x, drawn = torch.ones(n, 3, 5).mT, []
        for f in (draw, compiled):
            torch.manual_seed(n)
            drawn.append(f(x))
        assert torch.equal(*drawn)
    assert len(compiled.aotcheck.specializations()) == 2


def test_an_op_that_reads_the_workspace_of_another_is_not_asked_for_its_layout() -> None:
    layer, gradients = torch.nn.LSTM(2, 1), []
    for f in (step := lambda x: layer(x)[0].sum(-1), aot_function(step)):
        layer.zero_grad()
        f(torch.ones(1, 4, 2).transpose(0, 1)).sum().backward()
        gradients.append(layer.weight_ih_l0.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_operands_in_rows_lie_as_eagers_too(dynamic: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.linalg.eig(x)[1], torch.fft.hfft2(y, dim=(0, -1))

    inputs = torch.arange(9.0).view(3, 3) + torch.eye(3), torch.ones(5, 6, 7)
    found, expected = aot_function(function, dynamic=dynamic)(*inputs), function(*inputs)
    assert [t.stride() for t in found] == [t.stride() for t in expected]


def test_pointwise_ops_lay_their_results_as_eager_does() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.copysign(x, y.mT).view(-1)

    def step(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.linear(torch.nn.functional.softplus(x @ weight).mT, weight)

    assert torch.equal(aot_function(function)(torch.ones(2, 3), -torch.ones(3, 2)), -torch.ones(6))
    agrees(step, lambda: (torch.ones(2, 3, 3), torch.ones(3, 3, requires_grad=True)))
