"""Checkpoints of a program's own."""

import pytest
import torch
from torch import nn
from torch.autograd import Function

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import accumulated, linear, parameter_gradients

pytestmark = pytest.mark.filterwarnings("error:aotcheck runs a function as it is")


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


@pytest.mark.parametrize("before", ["none", "ones"])
@pytest.mark.parametrize("call", WAYS)
@session
def test_gradients_of_parameters_accumulate_by_each_kind_of_backward_call(compile, call, before):
    net = linear()
    f = compile(lambda x: checkpoint_of(net, call)(x).sum())
    accumulated(net, before)
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


@pytest.mark.parametrize("which", ["weight", "bias"])
@session
def test_a_backward_in_the_backward_with_inputs(compile, which):
    net = linear()
    run = checkpoint_of(net, lambda y, g, x: y.backward(g, inputs=[x, getattr(net, which)]))
    f = compile(lambda x: run(x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


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
@session
def test_parameters_of_an_own_checkpoint_are_used_by_other_ops_too(compile, program, frozen):
    net = linear(frozen=frozen)
    run = checkpoint_of(net)
    f = compile(lambda x: program(run, net, x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.run = checkpoint_of(self.inner)

    def forward(self, x):
        return self.run(x.sin()).exp()


@session(rtol=1e-5)
def test_an_own_checkpoint_in_a_module(compile):
    net = Block()
    f = compile(net)
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).sum().backward()
        yield x.grad, parameter_gradients(net)


@session(rtol=1e-5)
def test_an_own_checkpoint_in_a_training_loop(compile):
    net = Block()
    f = compile(net)
    optimizer = torch.optim.SGD(net.parameters(), 1e-6)
    for seed in range(3):
        optimizer.zero_grad(set_to_none=seed % 2 == 0)
        loss = f(leaf(2, 3, seed=seed)).sum()
        loss.backward()
        optimizer.step()
        yield list(net.parameters()), parameter_gradients(net)


@pytest.mark.parametrize("way", ["grad", "inputs", "grad of another"])
@session
def test_gradients_of_parameters_are_accumulated_whatever_autograd_grad_asks_for(compile, way):
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
        yield x.grad, y.grad, parameter_gradients(net)


@session
def test_parameters_that_only_the_recomputation_uses_are_unused_for_autograd_grad(compile):
    net = linear()
    f = compile(lambda x: checkpoint_of(net)(x).sum())
    x = leaf(2, 3)
    yield attempt_later(lambda: torch.autograd.grad(f(x), [net.weight]))
    yield parameter_gradients(net)


@session
def test_hooks_on_the_parameters_of_an_own_checkpoint(compile):
    net, seen = linear(), []
    net.weight.register_hook(lambda g: g * 2)
    net.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    f = compile(lambda x: checkpoint_of(net)(x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net), list(seen)


@session
def test_an_own_checkpoint_with_create_graph(compile):
    net = linear()
    f = compile(lambda x: checkpoint_of(net)(x * x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        (g,) = torch.autograd.grad(f(x), [x], create_graph=True)
        yield g, parameter_gradients(net)
        g.sum().backward()
        yield x.grad, parameter_gradients(net)


@pytest.mark.parametrize("power", [2, 3])
@session
def test_a_gradient_penalty_through_an_own_checkpoint(compile, power):
    net = linear()
    f = compile(lambda x: (checkpoint_of(net)(x) ** power).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        out = f(x)
        (g,) = torch.autograd.grad(out, [x], create_graph=True)
        yield g, parameter_gradients(net)
        (g.sum() + out).backward()
        yield x.grad, parameter_gradients(net)


@session
def test_several_backwards_through_an_own_checkpoint_of_one_call(compile):
    net = linear()
    f = compile(lambda x: (checkpoint_of(net)(x), x * 2))
    x = leaf(2, 3)
    a, b = f(x)
    b.sum().backward()
    yield x.grad, parameter_gradients(net)
    for _ in range(2):
        a.sum().backward(retain_graph=True)
        yield x.grad, parameter_gradients(net)
    (a * 2 + f(x)[0]).sum().backward()
    yield x.grad, parameter_gradients(net)


def test_a_backward_in_the_backward_with_create_graph_is_refused():
    net = linear()
    run = checkpoint_of(net, lambda y, g, x: y.backward(g, create_graph=True))
    with pytest.raises(aotcheck.UnsupportedError, match="with create_graph"):
        aotcheck.aot_function(lambda x: run(x).sum())(leaf(2, 3))
    assert parameter_gradients(net) == [None, None]


@session
def test_a_parameter_that_is_frozen_before_the_backward(compile):
    net = linear()
    f = compile(lambda x: checkpoint_of(net)(x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        net.bias.requires_grad_(True)
        out = f(x)
        net.bias.requires_grad_(False)
        out.backward()
        yield x.grad, parameter_gradients(net)


@session
def test_an_own_checkpoint_of_the_result_of_a_reentrant_checkpoint(compile):
    net, other = linear(), linear()
    f = compile(lambda x: checkpoint_of(net)(torch.utils.checkpoint.checkpoint(other, x, use_reentrant=True)).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net), parameter_gradients(other)


def test_an_own_checkpoint_with_a_partition_fn_is_refused():
    def partition(*args, **kwargs):
        return aotcheck.default_partition(*args, **kwargs)

    net = linear()
    f = aotcheck.aot_function(lambda x: checkpoint_of(net)(x).sum(), partition_fn=partition)
    with pytest.raises(aotcheck.UnsupportedError, match="with a partition_fn"):
        f(leaf(2, 3))
    assert parameter_gradients(net) == [None, None]


@session
def test_a_sparse_gradient_of_an_own_checkpoint(compile):
    table = to_device(nn.Embedding(5, 3, sparse=True))
    with torch.no_grad():
        table.weight.copy_(plain(5, 3))
    run = checkpoint_of(lambda x: x * table(torch.tensor([1, 2], device=x.device)))
    f = compile(lambda x: run(x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, table.weight.grad.to_dense()
