"""Hooks of modules."""

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, one_of, session
from tests.behaviour.hooks.common import KeepsFeatures, KeepsOutput, ReturnsFeatures, Square
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import KEPT, _net, again, integers, linear, parameter_gradients


@session
def test_module_hooks_registered_or_removed_between_calls_are_seen(compile):
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


def test_a_forward_hook_on_the_compiled_module_is_called():
    compiled = aotcheck.aot_module(integers(nn.Linear(3, 3)))
    x = plain(2, 3)
    expected = compiled(x) * 2
    handle = compiled.register_forward_hook(lambda m, args, out: out * 2)
    assert torch.equal(compiled(x), expected)
    handle.remove()
    assert torch.equal(compiled(x) * 2, expected)


@pytest.mark.parametrize("kind", ["itself", "in a module", "in a function"])
@session(rtol=1e-6)
def test_spectral_norm_updates_its_vectors_in_training_alone(compile, kind: str):
    torch.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(3, 4)).to(plain(1).device)
    if kind == "in a function":
        f = compile(lambda x: layer(x))
    else:
        f = compile(layer if kind == "itself" else nn.Sequential(layer, nn.ReLU()))
    x = plain(2, 3)
    for step in ("train", "eval", "eval", "train", "eval"):
        getattr(layer, step)()
        f(x)
        yield layer.weight_u.clone()


@again
@session
def test_a_backward_hook_of_a_module_reads_the_grad_of_a_parameter(compile):
    net, seen = linear(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(m.weight.grad is None))
    f = compile(lambda x: net(x).sum())
    for seed in range(2):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net), list(seen)


MODULES = {
    "attribute": (lambda m, t: setattr(m, "inp", t), lambda m: m.inp),
    "list": (lambda m, t: m.seen.append(t), lambda m: m.seen[-1]),
}


@again
@pytest.mark.parametrize("before", ["absent", "none", "tensor"])
@pytest.mark.parametrize("what", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("keep", "find"), MODULES.values(), ids=MODULES)
@session
def test_a_backward_hook_reads_a_tensor_that_a_forward_hook_put_into_the_module(compile, keep, find, what, before):
    net = nn.Sequential(linear(), nn.ReLU())
    net[0].seen = []
    if before != "absent":
        net[0].inp = None if before == "none" else to_device(torch.zeros(2, 3))
    net[0].register_forward_hook(lambda m, i, o: keep(m, what(i[0])))
    net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * find(m),))
    f = compile(net)
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).sum().backward()
        yield x.grad, parameter_gradients(net)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@session(rtol=1e-6)
def test_a_backward_hook_sets_a_new_attribute_of_its_module(compile, register: str):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).to(plain(1).device)
    getattr(module[0], register)(lambda m, *grads: setattr(m, "came", grads[-1][0]))
    f = compile(module)
    for k in range(3):
        x = plain(1, 2, seed=k).requires_grad_()
        out = f(x)
        out.sum().backward()
        yield out, x.grad, module[0].came * 2


@session
def test_backward_hooks_and_pre_hooks_of_modules_that_change_gradients(compile):
    torch.manual_seed(0)
    net = to_device(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)))
    net[0].register_full_backward_hook(lambda m, gi, go: None)
    net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,))
    compiled = compile(net)
    for _ in range(2):
        x = leaf(2, 3)
        backward([compiled(x)])
        yield x, list(net.parameters())


@session
def test_forward_hooks_of_modules_that_register_tensor_hooks_or_change_inputs(compile):
    torch.manual_seed(0)
    net = to_device(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))
    seen = []
    net[0].register_forward_hook(lambda m, args, out: out.register_hook(lambda g: seen.append(g.clone())) and None)
    net[1].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    compiled = compile(net)
    for _ in range(2):
        x = leaf(2, 3)
        backward([compiled(x)])
        yield x, list(net.parameters()), list(seen)


def in_a_list(module):
    log = []
    module.register_full_backward_hook(lambda m, gi, go: log.append(1))
    return lambda: len(log)


def in_the_module(module):
    module.number = 0
    module.register_full_backward_hook(lambda m, gi, go: setattr(m, "number", m.number + 1))
    return lambda: module.number


def in_a_counter(module):
    counter = {"number": 0}
    module.register_full_backward_hook(lambda m, gi, go: counter.__setitem__("number", counter["number"] + 1))
    return lambda: counter["number"]


def before(module):
    counter = [0]
    module.register_full_backward_pre_hook(lambda m, go: counter.__setitem__(0, counter[0] + 1))
    return lambda: counter[0]


counting = one_of([in_a_list, in_the_module, in_a_counter, before])


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Linear(2, 2), lambda net: net),
        lambda: (nn.Sequential(nn.Linear(2, 2), Square()), lambda net: net),
        lambda: (nn.Sequential(nn.Linear(2, 2), Square()), lambda net: net[0]),
        lambda: (nn.Sequential(nn.Linear(2, 2), Square()), lambda net: net[1]),
        lambda: (nn.Sequential(Square(), nn.Flatten(0)), lambda net: net[1]),
        lambda: (KeepsFeatures(), lambda net: net.fc),
        lambda: (KeepsOutput(2, 2), lambda net: net),
        lambda: (ReturnsFeatures(), lambda net: net.fc),
        lambda: (ReturnsFeatures(), lambda net: net),
    ],
    ids=["root", "root of several", "inner", "last", "view", "kept result", "kept own", "returned", "several results"],
)
@session
def test_how_often_a_backward_hook_is_called(compile, make, counting):
    net, of = make()
    count = counting(of(integers(net)))
    compiled = compile(net)
    for k in range(4):
        outputs = compiled(leaf(3, 2, seed=k))
        backward([outputs] if isinstance(outputs, torch.Tensor) else list(outputs))
        yield count()


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_how_often_a_backward_hook_is_called_where_one_result_has_a_gradient(compile, counting):
    net = integers(ReturnsFeatures())
    count = counting(net.fc)
    compiled = compile(net)
    for k in range(4):
        backward([compiled(leaf(3, 2, seed=k))[1]])
        yield count()


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_how_often_a_backward_hook_is_called_with_create_graph(compile, counting):
    net = integers(nn.Sequential(nn.Linear(2, 2), Square()))
    count = counting(net[0])
    compiled = compile(net)
    for k in range(4):
        x = leaf(3, 2, seed=k)
        (g,) = torch.autograd.grad(compiled(x).sum(), [x], create_graph=True)
        yield count(), g
