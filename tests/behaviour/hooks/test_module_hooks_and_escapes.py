"""Full backward hooks of modules of which tensors outlive the call."""

import pytest
import torch
from torch import nn

from tests.behaviour.harness import attempt_later, backward, one_of, session
from tests.behaviour.hooks.common import KeepsFeatures, KeepsOutput, Square
from tests.behaviour.inputs import leaf
from tests.behaviour.shared import integers

pytestmark = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")


class KeepsInput(nn.Linear):
    def forward(self, x):
        self.inp = x
        return super().forward(x)


class KeepsWithin(nn.Module):
    """Keeps what it computes on the way."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        self.within = self.fc(x)
        return self.within * self.within


def in_a_dictionary():
    net, kept = integers(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[0].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net[0], lambda: kept["out"]


def last_in_a_dictionary():
    net, kept = integers(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[1].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net[1], lambda: kept["out"]


def of_the_whole():
    net, kept = integers(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net.register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net, lambda: kept["out"]


def of_a_part_of_the_whole():
    net, kept = integers(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[0].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net, lambda: kept["out"]


def in_an_attribute():
    net = integers(nn.Sequential(KeepsOutput(2, 2), Square()))
    return net, net[0], lambda: net[0].out


def input_in_an_attribute():
    net = integers(nn.Sequential(Square(), KeepsInput(2, 2)))
    return net, net[1], lambda: net[1].inp


def within_in_an_attribute():
    net = integers(KeepsWithin())
    return net, net, lambda: net.within


def features_in_an_attribute():
    net = integers(KeepsFeatures())
    return net, net.fc, lambda: net.features


def detached_in_a_dictionary():
    net, kept = integers(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[0].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out.detach()))
    return net, net[0], lambda: kept["out"]


KEEPING = [
    in_a_dictionary,
    last_in_a_dictionary,
    of_the_whole,
    of_a_part_of_the_whole,
    in_an_attribute,
    input_in_an_attribute,
    within_in_an_attribute,
    features_in_an_attribute,
    detached_in_a_dictionary,
]


def scales(module, log):
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))


def logs(module, log):
    module.register_full_backward_hook(lambda m, gi, go: log.append(1))


def gives_what_came(module, log):
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * go[0].sum(),))


def scales_before(module, log):
    module.register_full_backward_pre_hook(lambda m, go: (log.append(1), (go[0] * 3,))[1])


def keeps_what_came(module, log):
    module.register_full_backward_hook(lambda m, gi, go: log.append((gi[0].clone(), go[0].clone())))


def several(module, log):
    scales_before(module, log)
    logs(module, log)
    gives_what_came(module, log)
    scales(module, log)


HOOKS = [scales, logs, gives_what_came, scales_before, keeps_what_came, several]

keeping = one_of(KEEPING)
hook = one_of(HOOKS)


@session
def test_a_module_with_backward_hooks_of_which_a_tensor_escapes(compile, keeping, hook):
    net, hooked, kept = keeping()
    log = []
    hook(hooked, log)
    compiled = compile(net)
    for k in range(3):
        x = leaf(3, 2, seed=k)
        backward([compiled(x)])
        yield x, list(net.parameters()), list(log), kept()


@session
def test_two_backwards_through_a_module_with_hooks_of_which_a_tensor_escapes(compile, keeping, hook):
    net, hooked, _ = keeping()
    log = []
    hook(hooked, log)
    compiled = compile(net)
    for k in range(2):
        x = leaf(3, 2, seed=k)
        y = compiled(x)
        backward([y], retain_graph=True)
        yield x, list(net.parameters())
        backward([y])
        yield x, list(net.parameters())
        yield type(attempt_later(lambda y=y: backward([y])))


@session
def test_a_backward_from_a_tensor_that_escaped_a_module_with_hooks(compile, keeping, hook):
    net, hooked, kept = keeping()
    log = []
    hook(hooked, log)
    compiled = compile(net)
    for k in range(2):
        x = leaf(3, 2, seed=k)
        y = compiled(x)
        if kept().requires_grad:
            backward([kept()], retain_graph=True)
            yield x, list(net.parameters())
        if kept().requires_grad:
            backward([y * 2, kept() * 3])
            yield x, list(net.parameters())


@session
def test_a_hook_and_retain_grad_on_a_tensor_that_escaped_a_module_with_hooks(compile, keeping):
    net, hooked, kept = keeping()
    scales(hooked, [])
    compiled = compile(net)
    for k in range(2):
        x = leaf(3, 2, seed=k)
        y = compiled(x)
        seen = []
        if kept().requires_grad:
            kept().register_hook(lambda g, seen=seen: seen.append(g.clone()))
            kept().retain_grad()
            yield torch.autograd.grad(y.sum(), [kept()], retain_graph=True, allow_unused=True)
        backward([y])
        yield seen, kept().grad if kept().requires_grad else None, x


class Written(nn.Module):
    def forward(self, x, y):
        y.mul_(x)
        return y * y


@session
def test_a_module_with_backward_hooks_that_writes_an_argument(compile, hook):
    net, log = Written(), []
    hook(net, log)
    compiled = compile(lambda x, y: net(x, y=y) + y)  # what has a name goes past the hooks
    for k in range(2):
        x, root = leaf(3, 2, seed=k), leaf(3, 2, seed=k + 3)
        y = root * 2
        backward([compiled(x, y)])
        yield x, y, root


class Clips(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * x * 2).clamp(-7, 7)


class ClipsInside(nn.Module):
    def forward(self, x):
        return Clips.apply(x * 2) * x


@session
def test_a_module_with_backward_hooks_around_a_backward_that_is_not_linear(compile, hook):
    net, log = ClipsInside(), []
    hook(net, log)
    compiled = compile(net)
    for k in range(2):
        x = leaf(3, 2, seed=k)
        backward([compiled(x)])
        yield x
        x = leaf(3, 2, seed=k)
        y = compiled(x)
        (g,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        backward([y, g])
        yield x


@session
def test_a_module_with_backward_hooks_is_called_twice_and_a_tensor_between_escapes(compile, hook):
    net, kept, log = integers(nn.Linear(2, 2)), {}, []
    hook(net, log)

    def f(x):
        kept["between"] = y = net(x)
        return net(y * 2)

    compiled = compile(f)
    for k in range(2):
        x = leaf(3, 2, seed=k)
        backward([compiled(x)])
        yield x, list(net.parameters()), kept["between"]
