"""Optimizers that step inside the function: their state, learning rates, averaged weights."""

import collections
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, check_session, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import _places, batches, seeded, state


class _Momentum(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.5})

    @torch.no_grad()
    def step_on(self, params, grads):
        for p, g in zip(params, grads, strict=True):
            state = self.state[p]
            if not state:
                state["mean"] = torch.zeros_like(p)
            state["mean"].mul_(2).add_(g)
            p.sub_(state["mean"])


class _OfItsOwn:
    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def step_on(self, params, grads):
        for p, g in zip(params, grads, strict=True):
            mean = self.state.setdefault(p, torch.zeros_like(p))
            mean.mul_(2).add_(g)
            p.sub_(mean)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("kind", [_Momentum, lambda params: _OfItsOwn()], ids=["torch", "own"])
@pytest.mark.parametrize("reach", ["method", "closure", "argument"])
@session
def test_optimizer_state_is_found_by_parameters_that_are_passed(compile, kind, reach):
    params = [plain(2), plain(3, seed=1)]
    optimizer = kind(params)
    if reach == "method":
        step = compile(optimizer.step_on)
    elif reach == "closure":
        step = compile(lambda *args: optimizer.step_on(*args))
    else:
        step = functools.partial(compile(lambda o, *args: o.step_on(*args)), optimizer)
    for k in range(3):
        step(params, [plain(2, seed=k), plain(3, seed=k + 1)])
        yield params, _places(optimizer.state, *params), list(optimizer.state.values())


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_optimizer_state_in_a_default_dictionary_persists(compile):
    state: Any = collections.defaultdict(dict)
    params = [to_device(torch.ones(2)), to_device(torch.ones(3))]

    def step(params, grads):
        for p, g in zip(params, grads, strict=True):
            s = state[p]
            if "mean" not in s:
                s["mean"] = torch.zeros_like(p)
            s["mean"].mul_(2).add_(g)
            p.sub_(s["mean"])

    compiled = compile(step)
    for _ in range(3):
        compiled(params, [to_device(torch.ones(2)), to_device(torch.ones(3))])
        yield params, _places(state, *params), list(state.values())


def test_weights_averaged_by_swa_utils_are_those_of_eager():
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
    compiled = aotcheck.aot_module(to_device(nn.BatchNorm1d(4)))
    compiled(plain(6, 4))
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        swa_utils.update_bn(list(batches(6, 4)), compiled)


@session
def test_a_learning_rate_lowered_by_a_schedule_is_used_by_a_step_inside(compile):
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


@pytest.mark.filterwarnings("ignore:aotcheck")
@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, 0.5, momentum=0.5), lambda p: torch.optim.Rprop(p)])
@session
def test_optimizer_state_made_by_the_first_step_inside_persists(compile, optimizer):
    w = leaf(4)
    steps = optimizer([w])

    def step(x):
        steps.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        steps.step()
        return loss.detach()

    compiled = compile(step)
    for k in range(4):
        yield attempt(lambda k=k: compiled(plain(4, seed=k))), w
        yield [t for t in steps.state[w].values() if isinstance(t, torch.Tensor)]


@session
def test_an_optimizer_step_alone_inside(compile):
    torch.manual_seed(0)
    net = to_device(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    compiled = compile(lambda: optimizer.step())
    for k in range(3):
        net(plain(4, 3, seed=k)).square().sum().backward()
        compiled()
        yield list(net.parameters())
        optimizer.zero_grad()
        compiled()
        yield list(net.parameters())


@agrees(lambda: given(leaf(3), plain(3, seed=1)))
def test_an_optimizer_made_and_stepped_inside(w, x):
    optimizer = torch.optim.SGD([w], lr=0.5)
    loss = (w * x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
