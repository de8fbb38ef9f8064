"""BEHAVIOUR 1: Python values around a function, and what its modules consist of, are read in every call."""

from __future__ import annotations

import concurrent.futures
import copy
import enum
import functools
import pickle
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain
from tests.behaviour.test_training_loops import batches, mlp, seeded, state


def _net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)))


def _forward_hook(net):
    net[0].register_forward_hook(lambda module, args, out: out * 2)


def _pre_hook(net):
    net[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def _backward_hook(net):
    net[3].register_full_backward_hook(lambda module, to, come: (to[0] * 2,))


def _backward_pre_hook(net):
    net[3].register_full_backward_pre_hook(lambda module, come: (come[0] * 2,))


def _forward_of_its_own(net):
    net.forward = types.MethodType(lambda self, x: self[0](x) * 2, net)


CHANGES = {
    "a layer like it": lambda net: net.__setitem__(0, seeded(nn.Linear(4, 4))),
    "a layer without parameters": lambda net: net.__setitem__(1, nn.Tanh()),
    "a layer more": lambda net: net.append(nn.Linear(2, 3)),
    "a layer less": lambda net: net.__delitem__(1),
    "a layer twice": lambda net: net.__setitem__(3, net[0]),
    "probability": lambda net: setattr(net[1], "p", 0.25),
    "momentum": lambda net: setattr(net[2], "momentum", 0.5),
    "eps": lambda net: setattr(net[2], "eps", 0.5),
    "no statistics": lambda net: setattr(net[2], "track_running_stats", False),
    "no bias": lambda net: setattr(net[0], "bias", None),
    "a bias": lambda net: setattr(net[3], "bias", nn.Parameter(torch.ones(2))),
    "a part in eval": lambda net: net[2].eval(),
    "forward hook": _forward_hook,
    "forward pre-hook": _pre_hook,
    "backward hook": _backward_hook,
    "backward pre-hook": _backward_pre_hook,
    "forward": _forward_of_its_own,
    "weight norm": lambda net: nn.utils.parametrizations.weight_norm(net[0]),
}

REACHED = {"module": lambda net: net, "closure": lambda net: lambda x: net(x), "method": lambda net: net.forward}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("reach", REACHED.values(), ids=REACHED)
def test_a_module_is_changed_between_calls(reach, change):
    def session(compile):
        net = _net()
        compiled = compile(reach(net))
        for k, x in enumerate(batches(5, 4)):
            if k == 3:
                change(net)
            if k == 8:
                net.eval()
            for p in net.parameters():
                p.grad = None
            y = compiled(x)
            y.square().sum().backward()
            yield y, state(net), [p.grad for p in net.parameters()], torch.rand(1)

    check_session(session, rtol=1e-6)


def test_hooks_come_and_go():
    def session(compile):
        net = _net()
        handle = net[0].register_forward_hook(lambda module, args, out: out * 2)
        compiled = compile(lambda x: net(x))
        yield compiled(plain(3, 4))
        handle.remove()
        yield compiled(plain(3, 4))
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 1)
        try:
            yield compiled(plain(3, 4))
        finally:
            handle.remove()
        yield compiled(plain(3, 4))

    check_session(session)


_in_globals = 1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class _Settings:
    def __init__(self) -> None:
        self.scale = 1
        self.nested = {"factors": [1, 1]}


class _Scaled(nn.Module):
    def __init__(self, settings: _Settings) -> None:
        super().__init__()
        self.settings, self.k, self.activation = settings, 1, torch.relu
        self.skipped: set[int] = set()

    @property
    def twice(self) -> int:
        return self.k * 2

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.twice * getattr(self, "k")  # noqa: B009  # as of a name that is not known beforehand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(3):
            if k not in self.skipped:
                x = x + k
        return self.activation(self.helper(x) * self.settings.scale * self.settings.nested["factors"][1])


def test_attributes_of_modules_and_of_objects_in_them():
    def session(compile):
        net = _Scaled(_Settings())
        compiled = compile(net)
        x = plain(5)
        yield compiled(x)
        for change in (
            lambda: setattr(net, "k", 3),
            lambda: setattr(net, "k", 3.0),
            lambda: setattr(net.settings, "scale", -1),
            lambda: net.settings.nested["factors"].__setitem__(1, 5),
            lambda: net.settings.nested.__setitem__("factors", [1, 7]),
            lambda: setattr(net, "settings", _Settings()),
            lambda: net.skipped.add(1),
            lambda: setattr(net, "skipped", {2}),
            lambda: setattr(net, "activation", F.hardtanh),
            lambda: setattr(net, "activation", lambda x: x),
        ):
            change()
            yield compiled(x)
            yield compiled(x)

    check_session(session)


def _by_helper(value):
    return lambda x: x * value()


@pytest.mark.parametrize("where", ["closure", "global", "default", "keyword", "list", "object", "helper", "partial"])
def test_a_number_around_a_function(where: str):
    def session(compile):
        global _in_globals
        k, _in_globals, numbers, settings = 1, 1, [1], _Settings()

        def with_default(x, k=1, *, factor=1):
            return x * k * factor

        f = compile(
            {
                "closure": lambda x: x * k,
                "global": lambda x: x * _in_globals,
                "default": with_default,
                "keyword": with_default,
                "list": lambda x: x * numbers[0],
                "object": lambda x: x * settings.scale,
                "helper": _by_helper(lambda: k),
                "partial": functools.partial(lambda numbers, x: x * numbers[0], numbers),
            }[where]
        )
        for k in (1, 2, 2, 2.5, True, 1):
            _in_globals = numbers[0] = settings.scale = k
            if where == "default":
                with_default.__defaults__ = (k,)
            if where == "keyword":
                with_default.__kwdefaults__ = {"factor": k}
            yield f(plain(3, dtype=torch.int64))

    check_session(session)


def test_a_function_in_a_closure_is_another():
    def session(compile):
        def f(x):
            return activation(x)

        compiled = compile(f)
        for activation in (torch.relu, torch.neg, F.hardtanh, lambda x: x * 2, lambda x: x * 3):  # noqa: B007
            yield compiled(plain(3))

    check_session(session)


def test_a_tensor_that_a_dictionary_loses():
    def session(compile):
        weights = {"w": leaf(3)}
        f = compile(lambda x: x * weights["w"] if "w" in weights else x)
        for _ in range(2):
            yield f(plain(3))
        w = weights.pop("w")
        yield f(plain(3))
        weights["w"] = w * 2
        yield f(plain(3))

    check_session(session)


# -- what the function itself changes ----------------------------------------------------------------


class _Counting(nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.mean.lerp_(x.mean(0), 1 / self.steps)
        return x - self.mean


class _ActNorm(nn.Module):
    """Its parameters are set from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.is_set = nn.Parameter(torch.zeros(4)), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_set:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
            self.is_set = True
        return x + self.shift


class _Rotary(nn.Module):
    """What it computed for the longest sequence is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.cos = 0, torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.longest:
            self.longest = len(x)
            self.cos = torch.arange(len(x)).cos()[:, None]
        return x * self.cos[: len(x)]


class _Queue(nn.Module):
    """Written in turn, where a number says."""

    queue: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(6, 4))
        self.place, self.places = 0, [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.queue[self.place : self.place + 2] = x[:2]
        self.place = (self.place + 2) % 6
        self.places[0] += 1
        return self.queue.sum(0) * self.places[0]


@pytest.mark.parametrize("make", [_Counting, _ActNorm, _Rotary, _Queue])
def test_a_value_that_the_module_sets_itself(make):
    def session(compile):
        net = make()
        compiled = compile(net)
        for k, n in enumerate((3, 3, 2, 5, 4, 6, 6)):
            yield (
                compiled(plain(n, 4, seed=k)),
                state(net),
                [v for v in vars(net).values() if isinstance(v, (int, list))],
            )

    check_session(session)


def test_a_variable_that_the_function_counts():
    def session(compile):
        calls, in_turn = 0, {"k": 0}

        def f(x):
            nonlocal calls
            calls += 1
            in_turn["k"] = (in_turn["k"] + 1) % 2
            return x * calls + in_turn["k"]

        compiled = compile(f)
        for _ in range(5):
            yield compiled(plain(3)), calls, in_turn["k"]

    check_session(session)


def test_a_log_does_not_make_it_trace_again():
    log: list[int] = []

    def f(x):
        log.append(len(x))
        return x * 2

    compiled = aotcheck.aot_function(f)
    before = aotcheck.counters().compiled
    for _ in range(3):
        compiled(plain(3))
    assert aotcheck.counters().compiled == before + 1


def test_a_value_that_changes_in_each_call_is_warned_of():
    net = _Counting()
    compiled = aotcheck.aot_module(net)
    with pytest.warns(RuntimeWarning, match="changes 'steps'"):
        for k in range(9):
            compiled(plain(3, 4, seed=k))


def test_an_attribute_that_nobody_reads_does_not_make_it_trace_again():
    net = mlp(4, 4)
    compiled = aotcheck.aot_module(net)
    before = aotcheck.counters().compiled
    for k in range(3):
        net.epoch = k
        compiled(plain(3, 4))
    assert aotcheck.counters().compiled == before + 1


# -- in training -------------------------------------------------------------------------------------


def test_averaged_weights_and_their_statistics():
    """`update_bn` sets the momentum of every batch norm to None, which then asks how many batches it has seen."""

    def session(compile):
        net = seeded(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
        averaged = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        compiled, of_average = compile(net), compile(averaged)
        for x in batches(6, 4):
            optimizer.zero_grad()
            loss = (compiled(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(net)
            with torch.no_grad():
                yield of_average(x), loss, state(net, averaged)

    check_session(session)
    compiled = aotcheck.aot_module(nn.BatchNorm1d(4))
    compiled(plain(6, 4))
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        swa_utils.update_bn(list(batches(6, 4)), compiled)


def test_a_temperature_that_is_annealed():
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits, self.temperature = nn.Linear(4, 3), 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gumbel_softmax(self.logits(x), tau=self.temperature, hard=True)

    def session(compile):
        net = seeded(Choice())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        compiled = compile(net)
        for x in batches(5, 4):
            optimizer.zero_grad()
            y = compiled(x)
            (y * x[:, :3]).sum().backward()
            optimizer.step()
            net.temperature = max(net.temperature * 0.7, 0.3)
            yield y, state(net)

    check_session(session)


def test_a_learning_rate_that_a_schedule_lowers():
    def session(compile):
        w = leaf(4)
        optimizer = torch.optim.SGD([w], lr=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def step(x):
            loss = (w * x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = compile(step)
        for k in range(4):
            yield compiled(plain(4, seed=k)), w
            schedule.step()

    check_session(session)


# -- copies ------------------------------------------------------------------------------------------


def test_a_copy_of_a_compiled_module_has_parameters_of_its_own():
    def session(compile):
        compiled = compile(seeded(mlp(4, 4, 1)))
        x = plain(3, 4)
        compiled(x).sum().backward()
        other = copy.deepcopy(compiled)
        with torch.no_grad():
            for p in other.parameters():
                p.add_(1)
        other(x).square().sum().backward()
        for net in (compiled, other):
            yield net(x), [(p, p.grad) for p in net.parameters()]

    check_session(session)


def test_a_compiled_module_is_pickled():
    compiled = aotcheck.aot_module(seeded(mlp(4, 4, 1)))
    x = plain(3, 4)
    expected = compiled(x)
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), expected)


def test_plain_values_as_arguments_and_results():
    def session(compile):
        f = compile(lambda x, which: (x[which] if isinstance(which, slice) else x * 2, which))
        for which in (slice(0, 2), slice(1, 3), Colour.RED, Colour.BLUE, ..., b"bytes", range(2), Colour.RED):
            y, back = f(plain(4), which)
            yield y, repr(back)
        g = compile(lambda x, colour=Colour.RED: x * colour.value)
        yield g(plain(3)), g(plain(3), Colour.BLUE), g(plain(3), colour=Colour.BLUE), attempt(lambda: g(plain(3)))

    check_session(session)


def test_a_callable_argument_is_read_in_each_call():
    class Times:
        def __init__(self, k: int) -> None:
            self.k = k

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    def session(compile):
        f = compile(lambda x, g: g(x))
        g = Times(1)
        for g.k in range(3):
            yield f(plain(3), g)
        for k in range(3):
            yield f(plain(3), Times(k)), f(plain(3), functools.partial(torch.mul, other=k))

    check_session(session)


def test_threads_that_call_one_module():
    def session(compile):
        compiled = compile(seeded(mlp(4, 4, 4)))
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            yield list(pool.map(lambda k: [compiled(plain(k % 3 + 1, 4, seed=k)) for _ in range(5)], range(12)))

    check_session(session)
