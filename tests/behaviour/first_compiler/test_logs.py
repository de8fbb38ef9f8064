"""What a function appends to / keeps / reads in backwards around it."""

import types

import pytest
import torch
from torch import nn
from torch.autograd import Function

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import KEPT, _only_appended_to, again, integers, seeded, through


@pytest.mark.parametrize("whole", [False, True])
@session(rtol=1e-6)
def test_tensors_that_forward_hooks_keep_are_those_of_eager(compile, whole):
    torch.manual_seed(0)
    features, all_of_them = {}, []
    net = to_device(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)))
    net[1].register_forward_hook(lambda module, args, out: features.update(relu=out, given=args))
    net.register_forward_hook(lambda module, args, out: all_of_them.append(out.detach()))
    f = through(compile, net, whole)
    for k in range(4):
        x = leaf(2, 3, seed=k)
        y = f(x)
        yield y, features, all_of_them
        (features["relu"].sum() + y.sum()).backward()
        yield x, [p.grad for p in net.parameters()]


@pytest.mark.on_the_cpu
def test_a_captured_list_that_is_only_appended_to_does_not_recompile():
    f, log = _only_appended_to()
    compiled = aotcheck.aot_function(f)
    before = aotcheck.counters().compiled
    for _ in range(12):
        compiled(plain(3))
    assert aotcheck.counters().compiled == before + 1
    assert len(log) == 36


class _Keeper:
    def __init__(self):
        self.kept = None
        self.by_name = {}
        self.came = []

    def forward_hook(self, name):
        def hook(module, args, out):
            self.by_name[name] = out

        return hook

    def backward_hook(self, module, to, come):
        self.kept = come[0]

    def all_that_came(self, module, to, come):
        self.by_name["came"] = come

    def append_what_came(self, module, to, come):
        self.came.append([come[0].clone()])

    def as_an_object(self, module, to, come):
        self.by_name["came"] = types.SimpleNamespace(first=come[0])


class _Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keeper):
        ctx.keeper = keeper
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.keeper.kept = g
        return g * 2, None


_CAME: list[torch.Tensor] = []


class _Appending(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        _CAME.append(g)
        return g * 2


def _net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))


def _by_a_forward_hook(net, keeper):
    net[1].register_forward_hook(keeper.forward_hook("tanh"))
    return lambda x: net(x)


def _by_a_backward_hook(net, keeper):
    net[1].register_full_backward_hook(keeper.backward_hook)
    return lambda x: net(x)


def _by_a_backward_hook_of_a_module(net, keeper):
    net[1].register_full_backward_hook(keeper.backward_hook)
    return net


def _as_a_tuple(net, keeper):
    net[1].register_full_backward_hook(keeper.all_that_came)
    return net


def _appended_in_a_list(net, keeper):
    net[1].register_full_backward_hook(keeper.append_what_came)
    return lambda x: net(x)


def _of_an_object(net, keeper):
    net[1].register_full_backward_hook(keeper.as_an_object)
    return lambda x: net(x)


def _by_a_custom_backward(net, keeper):
    return lambda x: _Keeping.apply(net(x), keeper)


def _in_a_global(net, keeper):
    return lambda x: _Appending.apply(net(x))


KEEPING = [
    _by_a_forward_hook,
    _by_a_backward_hook,
    _by_a_backward_hook_of_a_module,
    _as_a_tuple,
    _appended_in_a_list,
    _of_an_object,
    _by_a_custom_backward,
    _in_a_global,
]


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("make", KEEPING, ids=lambda make: make.__name__.strip("_"))
@session
def test_tensors_that_hooks_and_custom_backwards_keep_are_those_of_eager(compile, make):
    _CAME.clear()
    net, keeper = _net(), _Keeper()
    compiled = compile(make(net, keeper))
    for k in range(3):
        x = leaf(2, 3, seed=k)
        y = compiled(x)
        y.sum().backward()
        by_name = {k: getattr(v, "first", v) for k, v in keeper.by_name.items()}
        yield y, x.grad, keeper.kept, by_name, keeper.came, list(_CAME), [p.grad for p in net.parameters()]


_FACTOR = 1.0

_FACTORS = {"of": 1.0}


class _Settings:
    factor = 1.0


class _Reversing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -_FACTOR * _FACTORS["of"] * _Settings.factor * g


def _scaled(ctx, g):
    return g * ctx.factor * _FACTOR * ctx.settings.factor


class _ReversingBySetup(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(x, settings):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor, ctx.settings = _ReversingBySetup.factor, inputs[1]

    @staticmethod
    def backward(ctx, g):
        return _scaled(ctx, g), None


class _WithReversal(nn.Module):
    def forward(self, x):
        return _Reversing.apply(x)


def _change_factor():
    global _FACTOR
    _FACTOR = 2.0


CHANGES = {
    "a global": _change_factor,
    "in a dictionary": lambda: _FACTORS.update(of=3.0),
    "of a class": lambda: setattr(_Settings, "factor", 5.0),
    "of the Function's own": lambda: setattr(_ReversingBySetup, "factor", 7.0),
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("kind", ["function", "setup", "module", "apply"])
@session
def test_values_that_a_custom_backward_reads_may_change_between_calls(compile, kind, change):
    global _FACTOR
    _FACTOR, _FACTORS["of"], _Settings.factor, _ReversingBySetup.factor = 1.0, 1.0, 1.0, 1.0
    apply, settings = _Reversing.apply, _Settings()
    compiled = compile(
        {
            "function": lambda x: _Reversing.apply(x),
            "setup": lambda x: _ReversingBySetup.apply(x, settings),
            "module": _WithReversal(),
            "apply": lambda x: apply(x),
        }[kind]
    )
    for k in range(3):
        x = leaf(3, seed=k)
        compiled(x).sum().backward()
        yield x.grad
        if k == 0:
            change()


class Place:
    def __init__(self) -> None:
        self.items: list[torch.Tensor] = []
        self.named: dict[str, torch.Tensor] = {}
        self.one: torch.Tensor | None = None


KEPT_AND_READ = {
    "an attribute": (lambda p, t: setattr(p, "one", t), lambda p: p.one),
    "a new attribute": (lambda p, t: setattr(p, "other", t), lambda p: p.other),
    "a list": (lambda p, t: p.items.append(t), lambda p: p.items[-1]),
    "a dictionary": (lambda p, t: p.named.update(a=t), lambda p: p.named["a"]),
    "a tuple": (lambda p, t: setattr(p, "one", (t, 1)), lambda p: p.one[0]),
    "its shape": (lambda p, t: setattr(p, "one", t), lambda p: p.one.shape[0]),
}


@again
@pytest.mark.parametrize("what", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("keep", "find"), KEPT_AND_READ.values(), ids=KEPT_AND_READ)
@session
def test_a_custom_backward_reads_a_tensor_that_its_forward_put_into_an_object(compile, keep, find, what):
    place = Place()

    class Own(Function):
        @staticmethod
        def forward(ctx, x):
            keep(place, what(x))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * find(place)

    f = compile(lambda x: Own.apply(x.sin()).sum())
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad
    x, y = leaf(2, 3, seed=4), leaf(2, 3, seed=5)
    first, second = f(x), f(y)
    first.backward()
    second.backward()
    yield x.grad, y.grad


@pytest.mark.parametrize("beside", [True, False])
@session
def test_a_custom_forward_appends_a_tensor_to_a_list_that_its_backward_does_not_read(compile, beside):
    kept = []

    class Own(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach()
            if beside:
                kept.append(ctx.x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.x

    f = compile(lambda x: Own.apply(x.sin()).sum())
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, list(kept)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_how_often_a_custom_backward_appends_to_a_list_where_one_result_has_a_gradient(compile):
    log = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            log.append(1)
            return a * 2 + b * 3

    compiled = compile(lambda x: Two.apply(x))
    for k in range(4):
        x = leaf(3, seed=k)
        backward([compiled(x)[k % 2]])
        yield x, len(log)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_list_to_which_a_backward_hook_and_the_caller_append(compile):
    net, log = integers(nn.Linear(2, 2)), []
    net.register_full_backward_hook(lambda m, gi, go: log.append("hook"))
    compiled = compile(net)
    for k in range(3):
        y = compiled(leaf(3, 2, seed=k))
        net.number = k
        backward([y])
        log.append("caller")
        yield log.count("hook"), log.count("caller"), net.number
