"""BEHAVIOUR 5: what backwards of a program's own find around them: gradients, and what the call has kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import check_session, leaf, plain
from tests.behaviour.test_section_5_own_checkpoints import accumulated, gradients, linear

again = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")


# -- gradients --------------------------------------------------------------------------------------------


def sets(w, g):
    w.grad = g if w.grad is None else w.grad + g


def adds(w, g):
    if w.grad is not None:
        w.grad.add_(g)


def drops(w, g):
    del w.grad


@again
@pytest.mark.parametrize("before", ["none", "ones"])
@pytest.mark.parametrize("change", [sets, adds, drops])
@pytest.mark.parametrize("where", ["closure", "context"])
def test_gradients_that_a_custom_backward_changes(change, where, before):
    def session(compile):
        net = linear()

        class Own(Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x)
                ctx.w = w
                return x @ w

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                change(net.weight if where == "closure" else ctx.w, x.t() @ g)
                return g @ ctx.w.t(), None

        f = compile(lambda x: Own.apply(x, net.weight).sum())
        accumulated(net, before)
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


@again
def test_gradients_that_a_hook_reads():
    def session(compile):
        net, seen = linear(), []
        net.register_full_backward_hook(lambda m, gi, go: seen.append(m.weight.grad is None))
        f = compile(lambda x: net(x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net), list(seen)

    check_session(session)


# -- what backwards find around them ----------------------------------------------------------------------


class Place:
    def __init__(self) -> None:
        self.items: list[torch.Tensor] = []
        self.named: dict[str, torch.Tensor] = {}
        self.one: torch.Tensor | None = None


KEEPING = {
    "an attribute": (lambda p, t: setattr(p, "one", t), lambda p: p.one),
    "a new attribute": (lambda p, t: setattr(p, "other", t), lambda p: p.other),
    "a list": (lambda p, t: p.items.append(t), lambda p: p.items[-1]),
    "a dictionary": (lambda p, t: p.named.update(a=t), lambda p: p.named["a"]),
    "a tuple": (lambda p, t: setattr(p, "one", (t, 1)), lambda p: p.one[0]),
    "its shape": (lambda p, t: setattr(p, "one", t), lambda p: p.one.shape[0]),
}
KEPT = {"itself": lambda t: t.detach(), "what is computed": lambda t: t.detach() * 2}


@again
@pytest.mark.parametrize("what", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("keep", "find"), KEEPING.values(), ids=KEEPING)
def test_a_custom_backward_that_finds_what_the_forward_kept(keep, find, what):
    def session(compile):
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

    check_session(session)


MODULES = {
    "attribute": (lambda m, t: setattr(m, "inp", t), lambda m: m.inp),
    "list": (lambda m, t: m.seen.append(t), lambda m: m.seen[-1]),
}


@again
@pytest.mark.parametrize("before", ["absent", "none", "tensor"])
@pytest.mark.parametrize("what", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("keep", "find"), MODULES.values(), ids=MODULES)
def test_a_hook_of_a_module_that_finds_what_another_kept(keep, find, what, before):
    def session(compile):
        net = nn.Sequential(linear(), nn.ReLU())
        net[0].seen = []
        if before != "absent":
            net[0].inp = None if before == "none" else torch.zeros(2, 3)
        net[0].register_forward_hook(lambda m, i, o: keep(m, what(i[0])))
        net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * find(m),))
        f = compile(net)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).sum().backward()
            yield x.grad, gradients(net)

    check_session(session)


@again
def test_a_checkpoint_that_runs_again_what_keeps_a_tensor():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.last = torch.ones(2, 3)

        def block(self, x):
            out = self.inner(x) * self.last
            self.last = x.detach()
            return out

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False).sum()

    def session(compile):
        net = Keeps()
        f = compile(net)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net), net.last

    check_session(session)


def test_what_is_kept_once_and_found_again_later_is_compiled():
    class Caches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.table = None

        def block(self, x):
            if self.table is None:
                self.table = torch.arange(3.0).cos()
            return self.inner(x) * self.table

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False).sum()

    def session(compile):
        net = Caches()
        f = compile(net)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net), net.table

    check_session(session)
    net = Caches()
    f = aotcheck.aot_module(net)
    f(leaf(2, 3)).backward()
    before = aotcheck.counters().compiled
    f(leaf(2, 3)).backward()
    assert aotcheck.counters().compiled == before + 1


@pytest.mark.parametrize("beside", [True, False])
def test_what_is_kept_and_not_used_by_backwards(beside):
    def session(compile):
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

    check_session(session)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_hook_gives_its_module_a_new_attribute(register: str):
    def session(compile):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).to(plain(1).device)
        getattr(module[0], register)(lambda m, *grads: setattr(m, "came", grads[-1][0]))
        f = compile(module)
        for k in range(3):
            x = plain(1, 2, seed=k).requires_grad_()
            out = f(x)
            out.sum().backward()
            yield out, x.grad, module[0].came * 2

    check_session(session, rtol=1e-6)
