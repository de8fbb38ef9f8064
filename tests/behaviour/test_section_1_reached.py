"""BEHAVIOUR 1: what a function does to tensors and modules that it reaches by itself, before anything else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import check_session, leaf, plain
from tests.behaviour.test_training_loops import seeded


@pytest.fixture(autouse=True)
def on_device() -> None:
    """How tensors are reached has nothing to do with devices."""
    harness.set_device("cpu")


# -- methods of tensors in a closure ---------------------------------------------------------------------


def _require(t, wanted):
    t.requires_grad = wanted


def _give(t, data):
    t.data = data


DONE = {
    "hook": lambda x, w, b, seen: w.register_hook(lambda g: g * 2),
    "post-accumulate hook": lambda x, w, b, seen: w.register_post_accumulate_grad_hook(
        lambda t: seen.append(t.grad.clone())
    ),
    "told to require grad": lambda x, w, b, seen: b.requires_grad_(),
    "told not to": lambda x, w, b, seen: w.requires_grad_(len(x) > 2),
    "requires grad is assigned": lambda x, w, b, seen: _require(b, True),
    "data are assigned": lambda x, w, b, seen: _give(b, x.detach() * 2),
    "data of a leaf are assigned": lambda x, w, b, seen: _give(w, b * 2),
    "data are written": lambda x, w, b, seen: w.data.add_(1),
    "reshaped": lambda x, w, b, seen: b.unsqueeze_(0).t_().squeeze_(1),
    "written": lambda x, w, b, seen: b.add_(x.detach()),
    "written by an index": lambda x, w, b, seen: b.__setitem__(0, 5.0),
    "cut": lambda x, w, b, seen: b.detach_(),
    "gradient is dropped": lambda x, w, b, seen: setattr(w, "grad", None),
}


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("do", DONE.values(), ids=DONE.keys())
def test_what_is_done_to_a_tensor_in_a_closure(do, used_before):
    def session(compile):
        w, b = leaf(3), plain(3, seed=2)
        seen: list[torch.Tensor] = []

        def f(x):
            before = x * w * b.detach().clone() if used_before else x
            do(x, w, b, seen)
            return before + x * w * b

        compiled = compile(f)
        for k in range(3):
            x = leaf(3, seed=k)
            y = compiled(x)
            y.sum().backward()
            yield y, x.grad, w, w.grad, b, b.grad, list(seen)

    check_session(session)


READ = {
    "numpy": lambda t: torch.from_numpy(t.numpy()),
    "tolist": lambda t: t.tolist()[0],
    "item": lambda t: t[0].item(),
    "data_ptr": lambda t: 2 if t.data_ptr() else 1,
}


@pytest.mark.parametrize("read", READ.values(), ids=READ.keys())
def test_what_a_tensor_in_a_closure_holds_is_refused(read):
    w = plain(3)
    before = w.clone()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: x * read(w))(plain(3))
    assert torch.equal(w, before)


def test_parameters_in_a_closure_are_frozen_inside():
    def session(compile):
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

    check_session(session, rtol=1e-5)


# -- modules that change which modules they consist of --------------------------------------------------------


class _Alternating(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = seeded(nn.Linear(3, 3)), nn.Linear(3, 3)
        self.now = self.first

    def forward(self, x):
        self.now = self.second if self.now is self.first else self.first
        return self.now(x)


class _MadeLate(nn.Module):
    def forward(self, x):
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(x.shape[-1], 2)
            nn.init.constant_(self.layer.weight, 0.5)
        return self.layer(x)


@pytest.mark.parametrize("in_closure", [False, True])
@pytest.mark.parametrize("kind", [_Alternating, _MadeLate])
def test_a_module_that_assigns_a_part(kind, in_closure):
    def session(compile):
        torch.manual_seed(1)
        net = kind()
        compiled = compile((lambda x: net(x)) if in_closure else net)
        for k in range(4):
            y = compiled(plain(2, 3, seed=k))
            y.sum().backward()
            yield y, [p.grad for p in net.parameters()], [name for name, _ in net.named_modules()]

    check_session(session, rtol=1e-5)


def test_a_part_becomes_another_one_that_is_there():
    def session(compile):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Tanh())
        net.active = net[0]
        compiled = compile(lambda x: net.active(x))
        for k in (0, 1, 2, 0):
            net.active = net[k]
            yield compiled(plain(2, 3))

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("passed", [False, True])
def test_a_module_is_told_to_train_inside(passed):
    def session(compile):
        net = nn.Sequential(seeded(nn.Linear(3, 3)), nn.Tanh())

        def f(model, x, train):
            model.train(train)
            return model(x)

        compiled = compile(f if passed else lambda _, x, train: f(net, x, train))
        for k, train in enumerate((True, False, True, True, False)):
            yield compiled(net if passed else None, plain(2, 3, seed=k), train), net.training, net[0].training

    check_session(session, rtol=1e-5)
