"""Parameters and buffers that are wrappers, quantized weights, training with them."""

import copy

import pytest
import torch
from torch import nn

from tests.behaviour.harness import check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.subclasses.common import every_class_and_jagged
from tests.behaviour.wrappers import Tagged, nested, quantized, tagged, two


class Scale(nn.Module):
    """A weight and a buffer, both of one class, the buffer a running mean."""

    def __init__(self, make):
        super().__init__()
        self.weight = nn.Parameter(make(3))
        self.register_buffer("mean", make(3, seed=4))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x)
        return x * self.weight + self.mean


@every_class_and_jagged
@session
def test_a_wrapper_parameter_and_a_wrapper_buffer_that_is_written(compile, make):
    module = Scale(make)
    compiled = compile(module)
    for seed in (0, 1):
        x = make(3, seed=seed)
        y = compiled(x)
        yield x, y, dict(module.named_parameters()), dict(module.named_buffers())
        y.backward(cotangent(y))
        yield module.weight, module.weight.grad


def _steps(module):
    with torch.no_grad():
        module.weight.sub_(module.weight.grad)


def _replaces(module):
    module.weight = nn.Parameter(module.weight.detach() * 2)


def _loads(module):
    module.load_state_dict(copy.deepcopy(module.state_dict()))


def _freezes(module):
    module.weight.requires_grad_(False)


def _thaws_another_class(module):
    module.weight = nn.Parameter(tagged(3, seed=7) if not isinstance(module.weight, Tagged) else two(3))


@every_class_and_jagged
@pytest.mark.parametrize("change", [_steps, _replaces, _loads, _freezes, _thaws_another_class])
@session
def test_the_caller_changes_a_wrapper_parameter_between_calls(compile, make, change):
    module = Scale(make)
    module.mean = to_device(torch.zeros(3))
    module.forward = lambda x: x * module.weight
    compiled = compile(module)
    for _ in range(3):
        x = leaf(3) if make is not tagged and change is not _thaws_another_class else plain(3)
        y = compiled(x)
        yield x, y, dict(module.named_parameters())
        if y.requires_grad:
            y.backward(cotangent(y))
        yield x, module.weight, module.weight.grad
        change(module)


@every_class_and_jagged
@session
def test_two_modules_share_a_wrapper_parameter(compile, make):
    first, second = Scale(make), Scale(make)
    second.weight = first.weight
    module = nn.Sequential(first, second)
    x = make(3)
    y = compile(module)(x)
    y.backward(cotangent(y))
    yield x, y, dict(module.named_parameters()), dict(module.named_buffers())


@every_class_and_jagged
def test_a_wrapper_parameter_is_passed_and_returned(make):
    check(lambda p: (p, p * 2, p.detach(), p.t()), lambda: given(nn.Parameter(make(2, 3))))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("make", [two, nested])
@session(rtol=1e-6)
def test_training_with_wrapper_parameters(compile, make, optimizer):
    module = Scale(make)
    compiled, o = compile(module), optimizer(module.parameters(), lr=0.5)
    for seed in range(3):
        o.zero_grad()
        y = compiled(make(3, seed=seed))
        y.sum().backward()
        o.step()
        yield y, dict(module.named_parameters()), dict(module.named_buffers())


class Linear(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.bias = torch.nn.Parameter(plain(2, seed=8))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight, self.bias)


@session
def test_a_frozen_quantized_weight(compile):
    m = Linear(quantized(2, 3))
    m.weight.requires_grad_(False)
    f = compile(m)
    x = leaf(4, 3)
    y = f(x)
    yield x, y, dict(m.named_parameters())
    y.backward(cotangent(y))
    yield x, y, dict(m.named_parameters())


@session
def test_a_quantized_weight_that_requires_grad(compile):
    m = Linear(quantized(2, 3))
    f = compile(m)
    x = leaf(4, 3)
    y = f(x)
    y.backward(cotangent(y))
    yield x, y, dict(m.named_parameters())


def test_a_quantized_tensor_is_dequantized_by_ops_it_does_not_know():
    check(lambda q, x: (q + x, q[1:]), lambda: given(quantized(3, 2), plain(3, 2)))
