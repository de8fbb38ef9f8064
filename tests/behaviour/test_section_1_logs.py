"""BEHAVIOUR 1: what a function appends to, keeps of its tensors, and reads in backwards, around it."""

from __future__ import annotations

import collections
import types

import pytest
import torch
from torch import nn

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain
from tests.behaviour.test_training_loops import seeded


@pytest.fixture(autouse=True)
def on_device() -> None:
    """What lies around a function has nothing to do with devices."""
    harness.set_device("cpu")


# -- lists that grow ---------------------------------------------------------------------------------


def _only_appended_to():
    log = []

    def f(x):
        log.append(len(x))
        log.extend(("a", "b"))
        return x * 2

    return f, log


def _by_a_helper():
    log = set()

    def note(what):
        log.add(what)

    def f(x):
        note(len(x))
        return x * 2

    return f, log


def _whose_length_is_read():
    log = []

    def f(x):
        log.append("called")
        return x * len(log)

    return f, log


def _read_under_another_name():
    log = []
    same = log

    def f(x):
        log.append("called")
        return x * len(same)

    return f, log


def _popped_from():
    left = [1, 2, 3]

    def f(x):
        return x * (left.pop() if left else 10)

    return f, left


def _seen_before():
    seen = set()

    def f(x):
        first = len(x) not in seen
        seen.add(len(x))
        return x * (2 if first else 3)

    return f, seen


def _the_last_few():
    last = collections.deque(maxlen=3)

    def f(x):
        last.append(len(x) + sum(last))
        return x * sum(last)

    return f, last


def _in_a_dictionary():
    history = {"calls": []}

    def f(x):
        history["calls"].append(len(x))
        return x * 2

    return f, history


def _begun_anew():
    parts = []

    def f(x):
        parts.clear()
        for k in range(len(x)):
            parts.append(k)
        return x * sum(parts)

    return f, parts


class _Logging(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = []
        self.shapes = []

    def forward(self, x):
        self.shapes.append(tuple(x.shape))
        self.log.append(len(x))
        if len(self.log) > 2:
            self.log.clear()
        return x * (1 + len(self.log))


def _of_a_module():
    net = _Logging()
    return net, (net.log, net.shapes)


GROWING = [
    _only_appended_to,
    _by_a_helper,
    _whose_length_is_read,
    _read_under_another_name,
    _popped_from,
    _seen_before,
    _the_last_few,
    _in_a_dictionary,
    _begun_anew,
    _of_a_module,
]


@pytest.mark.parametrize("make", GROWING, ids=lambda make: make.__name__.strip("_"))
@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
def test_a_list_whose_length_changes(make):
    def session(compile):
        f, log = make()
        compiled = compile(f)
        for n in (2, 2, 3, 2, 3, 3, 2, 2, 2, 2, 2, 2):
            yield compiled(plain(n)), repr(log)

    check_session(session)


def test_what_is_only_appended_to_is_no_part_of_the_key():
    f, log = _only_appended_to()
    compiled = aotcheck.aot_function(f)
    before = aotcheck.counters().compiled
    for _ in range(12):
        compiled(plain(3))
    assert aotcheck.counters().compiled == before + 1
    assert len(log) == 36


def test_a_call_that_raises_after_it_appended():
    def session(compile):
        log, settings = [], types.SimpleNamespace(fails=False)

        def f(x):
            log.append(len(x))
            if settings.fails:
                raise ValueError("told to")
            return x * 2

        compiled = compile(f)
        for settings.fails in (False, True, False, True):
            yield attempt(lambda: compiled(plain(3))), list(log)

    check_session(session)


# -- tensors that hooks and custom backwards keep ------------------------------------------------------


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


@pytest.mark.parametrize("make", KEEPING, ids=lambda make: make.__name__.strip("_"))
def test_what_hooks_and_backwards_keep_can_be_looked_at(make):
    def session(compile):
        _CAME.clear()
        net, keeper = _net(), _Keeper()
        compiled = compile(make(net, keeper))
        for k in range(3):
            x = leaf(2, 3, seed=k)
            y = compiled(x)
            y.sum().backward()
            by_name = {k: getattr(v, "first", v) for k, v in keeper.by_name.items()}
            yield y, x.grad, keeper.kept, by_name, keeper.came, list(_CAME), [p.grad for p in net.parameters()]

    check_session(session)


# -- values that backwards read ------------------------------------------------------------------------

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


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("kind", ["function", "setup", "module", "apply"])
def test_a_value_that_a_custom_backward_reads_changes(kind, change):
    def session(compile):
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

    check_session(session)


# -- gradients inside, of what the function reaches by itself ----------------------------------------------


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_inside_of_parameters_in_a_closure(named, create_graph):
    def session(compile):
        net, w = seeded(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), leaf(3, seed=4)

        def f(x):
            loss = (net(x) * w).square().sum()
            parameters = dict(net.named_parameters()) if named else dict(enumerate(net.parameters()))
            gradients = torch.autograd.grad(loss, [*parameters.values(), w], create_graph=create_graph)
            following = [p - 0.5 * g for p, g in zip((*parameters.values(), w), gradients, strict=True)]
            return loss, following, sum(p.square().sum() for p in following)

        compiled = compile(f)
        for k in range(2):
            loss, following, total = compiled(plain(2, 3, seed=k))
            total.backward()
            yield loss, following, total, w.grad, [p.grad for p in net.parameters()]

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("as_keyword", [False, True])
def test_backward_inside_to_parameters_in_a_closure(as_keyword):
    def session(compile):
        net = seeded(nn.Linear(3, 3))

        def f(x):
            loss = net(x).square().sum()
            if as_keyword:
                torch.autograd.backward(tensors=loss, inputs=[net.weight])
            else:
                loss.backward(inputs=[net.weight])
            return loss.detach()

        compiled = compile(f)
        for k in range(2):
            yield compiled(plain(2, 3, seed=k)), net.weight.grad, net.bias.grad

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", ["tensors", "numbers", "both"])
def test_a_queue_that_is_full_loses_what_it_had_first(kind, whole):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.count = collections.deque(maxlen=2), {"n": 0}
            self.seen.append(0)

        def forward(self, x):
            self.count["n"] += 1
            if kind != "numbers":
                self.seen.append(x.sum())
            if kind != "tensors":
                self.seen.append(x.shape[0])
            return x * 2

    def session(compile):
        net = Net()
        f = compile(net if whole else lambda x: net(x))
        for k in range(5):
            yield f(plain(3 + k % 2, seed=k)), list(net.seen), net.seen.maxlen, net.count

    check_session(session)
