"""BEHAVIOUR 1: modules that a function finds in its closure."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from tests.behaviour.harness import backward, check_session, leaf, plain


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
def test_the_parameters_of_a_module_are_read_and_differentiated(depth: int, width: int):
    def session(compile):
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

    check_session(session)


_in_globals = nn.Dropout(0.5)


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
def test_whether_a_module_trains_is_looked_at_in_every_call(reach, make):
    def session(compile):
        net = make().to(plain(1).device)
        f = compile(reach(net))
        x = leaf(4, 3)
        for trains in (True, False, True, False, False):
            net.train(trains)
            torch.manual_seed(0)
            yield f(x), list(net.buffers()), torch.rand(1)

    check_session(session, rtol=1e-5)


def test_whether_a_module_among_the_globals_trains():
    def session(compile):
        f = compile(lambda x: _in_globals(x))
        for trains in (True, False, True):
            _in_globals.train(trains)
            torch.manual_seed(0)
            yield f(leaf(3))

    check_session(session)


def test_a_name_in_a_closure_is_bound_to_another_module():
    def session(compile):
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

    check_session(session)


def test_a_parameter_in_a_closure_is_replaced():
    def session(compile):
        net = _deep(1)
        f = compile(lambda x: net(x))
        for k in range(3):
            y = f(leaf(2, 3))
            backward([y])
            yield y, list(net.parameters())
            net[0][0].weight = nn.Parameter(plain(3, 3, seed=k))

    check_session(session)
