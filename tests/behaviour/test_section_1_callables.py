"""BEHAVIOUR 1: modules, functions and other values that are no tensors, as arguments."""

from __future__ import annotations

import decimal
import fractions
import pathlib
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import check_session, leaf, plain
from tests.behaviour.test_training_loops import seeded, state


@pytest.fixture(autouse=True)
def on_device() -> None:
    """What arguments bring along has nothing to do with devices."""
    harness.set_device("cpu")


def _net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def _write(net):
    with torch.no_grad():
        net[0].weight.fill_(3)


CHANGES = {
    "nothing": lambda net: None,
    "eval": lambda net: net.eval(),
    "probability": lambda net: setattr(net[1], "p", 0.25),
    "a parameter": lambda net: setattr(net[0], "weight", nn.Parameter(torch.ones(4, 3))),
    "what a parameter holds": _write,
    "a layer": lambda net: net.__setitem__(1, nn.Tanh()),
    "a hook": lambda net: net[0].register_forward_hook(lambda module, args, out: out * 5),
    "frozen": lambda net: net[0].requires_grad_(False),
}

PASSED = {
    "first": (lambda net, x: net(x) * 2, lambda f, net, x: f(net, x)),
    "keyword": (lambda x, net=None: net(x), lambda f, net, x: f(x, net=net)),
    "in a list": (lambda nets, x: nets[0](x), lambda f, net, x: f([net], x)),
    "method": (lambda forward, x: forward(x), lambda f, net, x: f(net.forward, x)),
    "lambda": (lambda g, x: g(x), lambda f, net, x: f(lambda t: net(t) * 2, x)),
}


@pytest.mark.parametrize("passed", PASSED.values(), ids=PASSED.keys())
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_module_that_is_an_argument_changes(change, passed):
    f, call = passed

    def session(compile):
        net = _net()
        compiled = compile(f)
        for k in range(4):
            x = leaf(5, 3, seed=k)
            net.zero_grad()
            y = call(compiled, net, x)
            y.sum().backward()
            yield y, x.grad, [p.grad for p in net.parameters()], state(net)
            if k == 1:
                change(net)

    check_session(session, rtol=1e-4)


def test_several_modules_in_turn():
    def session(compile):
        nets = [_net(), seeded(nn.Linear(3, 2))]
        compiled = compile(lambda net, x: net(x).square().mean())
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        for k in range(6):
            net, optimizer = nets[k % 2], optimizers[k % 2]
            loss = compiled(net, plain(5, 3, seed=k))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss, state(net)

    check_session(session, rtol=1e-4)


def test_a_module_that_is_given_a_module():
    def session(compile):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(2))
                self.calls = 0

            def forward(self, inner, x):
                self.calls += 1
                self.last = inner(x)
                return self.last * self.scale

        outer, inner = Outer(), seeded(nn.Linear(3, 2))
        compiled = compile(outer)
        for k in range(3):
            compiled(inner, plain(2, 3, seed=k)).sum().backward()
            yield outer.last, outer.calls, outer.scale.grad, inner.weight.grad

    check_session(session)


class _Scale:
    def __init__(self):
        self.factor, self.w, self.calls = 2, torch.ones(3), 0

    def __call__(self, x):
        self.calls += 1
        return x * self.factor * self.w


def test_an_object_that_can_be_called_changes():
    def session(compile):
        scale = _Scale()
        compiled = compile(lambda g, x: g(x))
        yield compiled(scale, plain(3)), scale.calls
        scale.factor = 5
        yield compiled(scale, plain(3)), scale.calls
        scale.w = plain(3, seed=2)
        yield compiled(scale, plain(3)), scale.calls
        yield compiled(_Scale(), plain(3))

    check_session(session)


def test_functions_that_are_made_for_each_call_but_alike():
    compiled = aotcheck.aot_function(lambda g, x: g(x))
    before, w = aotcheck.counters().compiled, plain(3)
    for k in range(6):
        factor = k // 3
        result = compiled(lambda x, factor=factor: x * w * factor, plain(3))
        assert torch.equal(result, plain(3) * w * factor)
    assert aotcheck.counters().compiled == before + 2


def test_functions_of_a_library_are_told_apart():
    def session(compile):
        compiled = compile(lambda x, g: g(x))
        for g in (torch.sin, F.relu, torch.ops.aten.cos.default, nn.functional.silu, torch.sin, abs):
            yield compiled(plain(3), g)

    check_session(session, rtol=1e-6)


VALUES = [
    torch.nn.attention.SDPBackend.MATH,
    torch.nn.attention.SDPBackend.FLASH_ATTENTION,
    torch.per_tensor_affine,
    torch.finfo(torch.float32),
    torch.iinfo(torch.int8),
    fractions.Fraction(1, 2),
    decimal.Decimal("1.5"),
    pathlib.PurePosixPath("a"),
    re.compile("a"),
    frozenset({1, "a"}),
]


def test_values_that_are_no_numbers_are_told_apart():
    def session(compile):
        compiled = compile(lambda x, value, other: x * 2 if value == other else x * 3)
        for value in VALUES:
            for other in (value, VALUES[0]):
                yield compiled(plain(3), value, other)

    check_session(session)


def test_the_kernel_of_attention_is_an_argument():
    def attend(q, backend):
        with torch.nn.attention.sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, q, q)

    def session(compile):
        compiled = compile(attend)
        backends = torch.nn.attention.SDPBackend
        for backend in (backends.MATH, backends.FLASH_ATTENTION, backends.MATH):
            q = leaf(1, 2, 3, 4)
            compiled(q, backend).sum().backward()
            yield q.grad

    check_session(session, rtol=1e-5)
