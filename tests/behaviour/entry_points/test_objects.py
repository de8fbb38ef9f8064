"""Dataclasses, user objects, callables, modules passed as arguments or results."""

import functools
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tests.behaviour.harness import attempt, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import Item, seeded, state


@session
def test_an_object_argument_that_is_also_captured_is_one_object(compile):
    a, b = Item(plain(3)), Item(plain(3, seed=1))

    def f(item, y):
        item.x = item.x * 2
        item.n += 1
        return a.x + y, item is a, a.n

    g = compile(f)
    for item in (a, b, a, b, a, Item(plain(3))):
        yield g(item, plain(3)), a.x, b.x, a.n, b.n, item.x


@session
def test_a_configuration_passed_to_the_module_that_holds_it_is_one_object(compile):
    class Net(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.weight = config, torch.nn.Parameter(plain(3))

        def forward(self, x, config):
            return x * self.weight * config.scale + self.config.shift, config is self.config

    config = types.SimpleNamespace(scale=2, shift=1)
    net = Net(config)
    g = compile(net)
    for k in range(5):
        if k == 2:
            config.scale, config.shift = 3, 0
        x = leaf(3, seed=k)
        y, same = g(x, types.SimpleNamespace(scale=5, shift=2) if k == 4 else config)
        y.sum().backward()
        yield x, y, same, net.weight


@session
def test_a_cache_that_a_module_keeps_and_is_passed_again_is_one_object(compile):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.cache = torch.nn.Parameter(plain(3)), None

        def forward(self, x, cache=None):
            self.cache = cache = cache or self.cache or Item([])
            cache.x.append(x * self.weight)
            cache.n += 1
            return sum(cache.x), cache

    net = Net()
    g = compile(net)
    cache = None
    for k in range(5):
        y, same = g(plain(3, seed=k), cache)
        yield y, same is net.cache, cache is None or same is cache, same.x, same.n
        cache = same if k % 2 == 0 else None


class Box:
    """Registered with pytree."""

    def __init__(self, value):
        self.value = value


pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda parts, _: Box(*parts))


@session
def test_writes_to_an_object_registered_with_pytree_reach_the_caller(compile):
    def f(box):
        box.value = box.value * 2
        return box.value + 1

    g = compile(f)
    for k in range(3):
        box = Box(leaf(3, seed=k))
        for _ in range(2):
            yield g(box), box.value


@session
def test_an_error_after_a_write_to_an_object_leaves_it_as_eager_does(compile):
    def f(item, y):
        item.n += 1
        item.x = item.x * 2
        return item.x @ y

    held = Item(plain(3))
    g = compile(lambda item, y: f(item, y) + held.n)
    for k, y in enumerate((plain(3), plain(2), plain(2), plain(3))):
        for item in (held, Item(plain(3, seed=k))):
            yield attempt(lambda item=item, y=y: g(item, y)), item.x, item.n


def _net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def _write(net):
    with torch.no_grad():
        net[0].weight.fill_(3)


CHANGES = {
    "nothing": lambda net: None,
    "eval": lambda net: net.eval(),
    "probability": lambda net: setattr(net[1], "p", 0.25),
    "a parameter": lambda net: setattr(net[0], "weight", nn.Parameter(to_device(torch.ones(4, 3)))),
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


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("passed", PASSED.values(), ids=PASSED.keys())
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@session(rtol=1e-4)
def test_a_module_argument_that_the_caller_changes_is_read_anew(compile, change, passed):
    f, call = passed

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


@pytest.mark.on_the_cpu
@session(rtol=1e-4)
def test_modules_passed_in_turn_are_trained(compile):
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


@pytest.mark.on_the_cpu
@session
def test_a_module_passed_to_a_compiled_module_is_differentiated(compile):
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


class _Scale:
    def __init__(self):
        self.factor, self.w, self.calls = 2, to_device(torch.ones(3)), 0

    def __call__(self, x):
        self.calls += 1
        return x * self.factor * self.w


@pytest.mark.on_the_cpu
@session
def test_a_callable_object_is_read_and_counts_its_calls(compile):
    scale = _Scale()
    compiled = compile(lambda g, x: g(x))
    yield compiled(scale, plain(3)), scale.calls
    scale.factor = 5
    yield compiled(scale, plain(3)), scale.calls
    scale.w = plain(3, seed=2)
    yield compiled(scale, plain(3)), scale.calls
    yield compiled(_Scale(), plain(3))


@pytest.mark.on_the_cpu
@session(rtol=1e-6)
def test_library_functions_as_arguments_are_distinguished(compile):
    compiled = compile(lambda x, g: g(x))
    for g in (torch.sin, F.relu, torch.ops.aten.cos.default, nn.functional.silu, torch.sin, abs):
        yield compiled(plain(3), g)


@session
def test_attributes_of_a_callable_argument_are_read_on_every_call(compile):
    class Times:
        def __init__(self, k: int) -> None:
            self.k = k

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    f = compile(lambda x, g: g(x))
    g = Times(1)
    for g.k in range(3):
        yield f(plain(3), g)
    for k in range(3):
        yield f(plain(3), Times(k)), f(plain(3), functools.partial(torch.mul, other=k))
