"""BEHAVIOUR 5: custom backwards that call backwards themselves, as checkpoints of a program's own do."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check_session, leaf, plain

pytestmark = pytest.mark.filterwarnings("error:aotcheck runs a function as it is")


def linear(*, frozen: bool = False) -> nn.Linear:
    net = nn.Linear(3, 3)
    with torch.no_grad():
        net.weight.copy_(plain(3, 3, seed=4))
        net.bias.copy_(plain(3, seed=5))
    return net.requires_grad_(not frozen)


def by_method(y, g, x):
    y.backward(g)


def by_function(y, g, x):
    torch.autograd.backward(y, g)


def of_several(y, g, x):
    with torch.enable_grad():
        other = y * 2
    torch.autograd.backward([y, other], [g, g])


def twice(y, g, x):
    y.backward(g, retain_graph=True)
    y.backward(g * 2)


WAYS = [by_method, by_function, of_several, twice]


def checkpoint_of(run, call=by_method, again=None):
    """A checkpoint that runs ``run``, and in the backward ``again`` or the same again, and backwards by ``call``."""

    class Own(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with torch.no_grad():
                return run(x)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = (again or run)(x)
            call(y, g, x)
            return x.grad

    return Own.apply


def gradients(net):
    return [p.grad for p in net.parameters()]


def accumulated(net, how):
    for p in net.parameters():
        p.grad = torch.ones_like(p) if how == "ones" else None


@pytest.mark.parametrize("before", ["none", "ones"])
@pytest.mark.parametrize("call", WAYS)
def test_what_it_brings_to_parameters_is_accumulated(call, before):
    def session(compile):
        net = linear()
        f = compile(lambda x: checkpoint_of(net, call)(x).sum())
        accumulated(net, before)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


@pytest.mark.parametrize("which", ["weight", "bias"])
def test_inputs_of_the_backward_inside(which):
    def session(compile):
        net = linear()
        run = checkpoint_of(net, lambda y, g, x: y.backward(g, inputs=[x, getattr(net, which)]))
        f = compile(lambda x: run(x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


PROGRAMS = {
    "alone": lambda run, net, x: run(x),
    "and directly": lambda run, net, x: run(x) + net(x * 2),
    "behind": lambda run, net, x: run(net(x)),
    "before": lambda run, net, x: net(run(x)),
    "twice": lambda run, net, x: run(run(x)),
    "beside": lambda run, net, x: run(x) * run(x * 2),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("frozen", [False, True])
def test_what_else_leads_to_the_same_parameters(program, frozen):
    def session(compile):
        net = linear(frozen=frozen)
        run = checkpoint_of(net)
        f = compile(lambda x: program(run, net, x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.run = checkpoint_of(self.inner)

    def forward(self, x):
        return self.run(x.sin()).exp()


def test_in_a_module():
    def session(compile):
        net = Block()
        f = compile(net)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).sum().backward()
            yield x.grad, gradients(net)

    check_session(session, rtol=1e-5)


def test_in_training():
    def session(compile):
        net = Block()
        f = compile(net)
        optimizer = torch.optim.SGD(net.parameters(), 1e-6)
        for seed in range(3):
            optimizer.zero_grad(set_to_none=seed % 2 == 0)
            loss = f(leaf(2, 3, seed=seed)).sum()
            loss.backward()
            optimizer.step()
            yield list(net.parameters()), gradients(net)

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("way", ["grad", "inputs", "grad of another"])
def test_it_is_accumulated_whatever_gradients_are_asked_for(way):
    def session(compile):
        net = linear()
        run = checkpoint_of(net)
        f = compile(lambda x, y: (run(x) * y).sum())
        for seed in range(2):
            x, y = leaf(2, 3, seed=seed), leaf(2, 3, seed=seed + 1)
            out = f(x, y)
            if way == "inputs":
                yield attempt_later(lambda out=out, x=x: out.backward(inputs=[x]))
            else:
                yield torch.autograd.grad(out, [x if way == "grad" else y])
            yield x.grad, y.grad, gradients(net)

    check_session(session)


def test_parameters_that_only_the_backward_inside_uses_are_not_used_by_the_call():
    def session(compile):
        net = linear()
        f = compile(lambda x: checkpoint_of(net)(x).sum())
        x = leaf(2, 3)
        yield attempt_later(lambda: torch.autograd.grad(f(x), [net.weight]))
        yield gradients(net)

    check_session(session)


@pytest.mark.parametrize("returned", ["none", "zeros"])
@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("trained", ["leaf", "computed", "view"])
def test_into_an_argument(trained, retained, returned):
    class Own(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x)
            ctx.w = w
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = x @ ctx.w
            y.backward(g, retain_graph=retained)
            return x.grad, None if returned == "none" else torch.zeros(3, 3)

    def session(compile):
        f = compile(lambda x, w: Own.apply(x, w).sum())
        for seed in range(2):
            x, weight = leaf(2, 3, seed=seed), leaf(3, 3, seed=2)
            w = {"leaf": weight, "computed": weight * 2, "view": weight.t()}[trained]
            yield attempt_later(f(x, w).backward)
            yield x.grad, weight.grad

    check_session(session)


def test_of_one_that_only_brings_gradients_to_others():
    class Own(Function):
        @staticmethod
        def forward(ctx, x, net):
            ctx.save_for_backward(x)
            ctx.net = net
            return net(x)

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                ctx.net(ctx.saved_tensors[0].detach()).backward(g)
            return None, None

    def session(compile):
        net = linear()
        f = compile(lambda x: Own.apply(x, net).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


def test_hooks_on_what_it_brings_gradients_to():
    def session(compile):
        net, seen = linear(), []
        net.weight.register_hook(lambda g: g * 2)
        net.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        f = compile(lambda x: checkpoint_of(net)(x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net), list(seen)

    check_session(session)


def test_a_backward_that_has_gradients_itself():
    def session(compile):
        net = linear()
        f = compile(lambda x: checkpoint_of(net)(x * x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            (g,) = torch.autograd.grad(f(x), [x], create_graph=True)
            yield g, gradients(net)
            g.sum().backward()
            yield x.grad, gradients(net)

    check_session(session)


@pytest.mark.parametrize("power", [2, 3])
def test_a_derivative_that_comes_by_it_again(power):
    def session(compile):
        net = linear()
        f = compile(lambda x: (checkpoint_of(net)(x) ** power).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            out = f(x)
            (g,) = torch.autograd.grad(out, [x], create_graph=True)
            yield g, gradients(net)
            (g.sum() + out).backward()
            yield x.grad, gradients(net)

    check_session(session)


def test_several_backwards_of_one_call():
    def session(compile):
        net = linear()
        f = compile(lambda x: (checkpoint_of(net)(x), x * 2))
        x = leaf(2, 3)
        a, b = f(x)
        b.sum().backward()
        yield x.grad, gradients(net)
        for _ in range(2):
            a.sum().backward(retain_graph=True)
            yield x.grad, gradients(net)
        (a * 2 + f(x)[0]).sum().backward()
        yield x.grad, gradients(net)

    check_session(session)


def test_a_graph_of_its_own_kept_from_the_forward():
    class Own(Function):
        @staticmethod
        def forward(ctx, x, net):
            ctx.x = x.detach().requires_grad_()
            with torch.enable_grad():
                ctx.y = net(ctx.x)
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            ctx.y.backward(g)
            return ctx.x.grad, None

    def session(compile):
        net = linear()
        f = compile(lambda x: Own.apply(x, net).sum())
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net)

    check_session(session)


def test_one_that_has_gradients_itself_is_refused():
    net = linear()
    run = checkpoint_of(net, lambda y, g, x: y.backward(g, create_graph=True))
    with pytest.raises(aotcheck.UnsupportedError, match="with create_graph"):
        aotcheck.aot_function(lambda x: run(x).sum())(leaf(2, 3))
    assert gradients(net) == [None, None]


def test_a_parameter_that_is_frozen_before_the_backward():
    def session(compile):
        net = linear()
        f = compile(lambda x: checkpoint_of(net)(x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            net.bias.requires_grad_(True)
            out = f(x)
            net.bias.requires_grad_(False)
            out.backward()
            yield x.grad, gradients(net)

    check_session(session)


def test_beside_a_reentrant_checkpoint():
    def session(compile):
        net, other = linear(), linear()
        f = compile(lambda x: checkpoint_of(net)(torch.utils.checkpoint.checkpoint(other, x, use_reentrant=True)).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, gradients(net), gradients(other)

    check_session(session)


def test_with_a_partition_of_the_users_it_is_refused():
    def partition(*args, **kwargs):
        return aotcheck.default_partition(*args, **kwargs)

    net = linear()
    f = aotcheck.aot_function(lambda x: checkpoint_of(net)(x).sum(), partition_fn=partition)
    with pytest.raises(aotcheck.UnsupportedError, match="with a partition_fn"):
        f(leaf(2, 3))
    assert gradients(net) == [None, None]


class Retaining(Function):
    """Brings the gradient of its second argument there by a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = x @ ctx.w
        y.backward(g, retain_graph=True)
        return x.grad, None


def hooked(x, w):
    inside = w * 2
    inside.register_hook(lambda g: None if g is None else g * 3)
    return (Retaining.apply(x, inside),)


def returned(x, w):
    inside = w * 2
    return Retaining.apply(x, inside), inside


INSIDE = {
    "computed": lambda x, w: (Retaining.apply(x, w * 2),),
    "hooked": hooked,
    "returned": returned,
    "and used": lambda x, w: (Retaining.apply(x, w * 2).sum() + (w * 2).exp().sum(),),
    "view": lambda x, w: (Retaining.apply(x, w.t()).sum() + w.sum(),),
    "reshaped": lambda x, w: (Retaining.apply(x, w.view(-1).view(3, 3)),),
}


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("f", INSIDE.values(), ids=INSIDE)
def test_what_it_goes_by_that_the_function_computed(f, is_leaf):
    def session(compile):
        compiled = compile(f)
        for seed in range(2):
            x, weight = leaf(2, 3, seed=seed), leaf(3, 3, seed=2)
            results = compiled(x, weight if is_leaf else weight * 2)
            yield attempt_later(sum(r.sum() for r in results).backward)
            yield x.grad, weight.grad

    check_session(session, rtol=1e-5)


def test_a_sparse_gradient():
    def session(compile):
        table = nn.Embedding(5, 3, sparse=True)
        with torch.no_grad():
            table.weight.copy_(plain(5, 3))
        run = checkpoint_of(lambda x: x * table(torch.tensor([1, 2])))
        f = compile(lambda x: run(x).sum())
        for seed in range(2):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, table.weight.grad.to_dense()

    check_session(session)
