"""Modules in closures."""

import functools

import pytest
import torch
from torch import nn

from tests.behaviour.harness import backward, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import seeded


def _deep(depth: int, width: int = 1) -> nn.Module:
    """Linear layers inside modules inside modules, with small integers for parameters."""
    layers = [nn.Linear(3, 3) for _ in range(width)]
    with torch.no_grad():
        for k, p in enumerate(p for layer in layers for p in layer.parameters()):
            p.copy_(plain(*p.shape, seed=k).sign())
    module: nn.Module = nn.Sequential(*layers)
    for _ in range(depth):
        module = nn.Sequential(module, nn.Hardtanh(-4, 4))
    return module.to(plain(1).device)


@pytest.mark.parametrize(("depth", "width"), [(0, 1), (3, 2), (1, 40)])
@session
def test_parameters_of_a_captured_module_are_read_and_differentiated(compile, depth: int, width: int):
    net = _deep(depth, width)
    f = compile(lambda x: net(x).clamp(-8, 8))
    for _ in range(2):
        x = leaf(2, 3)
        y = f(x)
        backward([y])
        yield y, x, list(net.parameters())
        with torch.no_grad():
            for p in net.parameters():
                p.neg_()


class _Trainer:
    def __init__(self, net):
        self.net = net

    def step(self, x):
        return self.net(x)


def _by_helper(net):
    def helper(x):
        return net(x)

    return lambda x: helper(x) * 2


REACHED = {
    "closure": lambda net: lambda x: net(x) * 2,
    "helper": _by_helper,
    "method": lambda net: _Trainer(net).step,
    "forward": lambda net: net.forward,
    "partial": lambda net: functools.partial(lambda m, x: m(x), net),
    "default": lambda net: lambda x, m=net: m(x),
    "list": lambda net: (lambda nets: lambda x: nets[0](x))([net]),
}


@pytest.mark.parametrize("reach", REACHED.values(), ids=REACHED)
@pytest.mark.parametrize("make", [lambda: nn.Dropout(0.5), lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))])
@session(rtol=1e-5)
def test_the_training_flag_of_a_captured_module_is_read_on_every_call(compile, reach, make):
    net = make().to(plain(1).device)
    f = compile(reach(net))
    x = leaf(4, 3)
    for trains in (True, False, True, False, False):
        net.train(trains)
        torch.manual_seed(0)
        yield f(x), list(net.buffers()), torch.rand(1, device=x.device)


_in_globals = nn.Dropout(0.5)


@session
def test_the_training_flag_of_a_global_module_is_read_on_every_call(compile):
    f = compile(lambda x: _in_globals(x))
    for trains in (True, False, True):
        _in_globals.train(trains)
        torch.manual_seed(0)
        yield f(leaf(3))


@session
def test_a_closure_variable_bound_to_another_module_is_read_anew(compile):
    net = _deep(1)

    def f(x):
        return net(x)

    compiled = compile(f)
    for k in range(3):
        x = leaf(2, 3)
        for _ in range(2):
            y = compiled(x)
            backward([y])
            yield y, x, list(net.parameters())
        net = _deep(k)


@session
def test_a_replaced_parameter_of_a_captured_module_is_differentiated(compile):
    net = _deep(1)
    f = compile(lambda x: net(x))
    for k in range(3):
        y = f(leaf(2, 3))
        backward([y])
        yield y, list(net.parameters())
        net[0][0].weight = nn.Parameter(plain(3, 3, seed=k))


@session
def test_the_dtype_of_a_captured_module_is_read_on_every_call(compile):
    net = torch.nn.Linear(3, 3)
    g = compile(lambda x: x.to(next(net.parameters()).dtype) * 2)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.float32):
        net.to(dtype)
        yield g(plain(3))


@pytest.mark.on_the_cpu
@session(rtol=1e-5)
def test_parameters_of_a_captured_module_frozen_inside_get_no_gradients(compile):
    net = seeded(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))

    def f(x, freeze):
        net[0].requires_grad_(not freeze)
        return net(x)

    compiled = compile(f)
    for k, freeze in enumerate((True, False, True, False)):
        net.zero_grad()
        y = compiled(plain(5, 3, seed=k), freeze)
        y.sum().backward()
        yield y, [(p.requires_grad, p.grad) for p in net.parameters()]


@pytest.mark.on_the_cpu
@session(rtol=1e-5)
def test_a_submodule_replaced_by_another_of_the_same_module_is_read_anew(compile):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Tanh())
    net.active = net[0]
    compiled = compile(lambda x: net.active(x))
    for k in (0, 1, 2, 0):
        net.active = net[k]
        yield compiled(plain(2, 3))


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("passed", [False, True])
@session(rtol=1e-5)
def test_train_called_inside_sets_the_training_flags(compile, passed):
    net = nn.Sequential(seeded(nn.Linear(3, 3)), nn.Tanh())

    def f(model, x, train):
        model.train(train)
        return model(x)

    compiled = compile(f if passed else lambda _, x, train: f(net, x, train))
    for k, train in enumerate((True, False, True, True, False)):
        yield compiled(net if passed else None, plain(2, 3, seed=k), train), net.training, net[0].training
