"""BEHAVIOUR 5: hooks of modules for their backwards, of which the results, or what lies inside, outlive the call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.behaviour.harness import attempt_later, backward, check_session, leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")


def whole(module: nn.Module) -> nn.Module:
    """The module with parameters of small integers."""
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(plain(*p.shape, seed=k))
    return module


# -- what keeps a tensor ---------------------------------------------------------------------------------


class Square(nn.Module):
    def forward(self, x):
        return x * x


class KeepsOutput(nn.Linear):
    def forward(self, x):
        self.out = super().forward(x)
        return self.out


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


class ReturnsFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        features = self.fc(x)
        return features, features * features


class KeepsFeatures(ReturnsFeatures):
    def forward(self, x):
        self.features, y = super().forward(x)
        return y


class Written(nn.Module):
    def forward(self, x, y):
        y.mul_(x)
        return y * y


def in_a_dictionary():
    net, kept = whole(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[0].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net[0], lambda: kept["out"]


def last_in_a_dictionary():
    net, kept = whole(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[1].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net[1], lambda: kept["out"]


def of_the_whole():
    net, kept = whole(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net.register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net, lambda: kept["out"]


def of_a_part_of_the_whole():
    net, kept = whole(nn.Sequential(nn.Linear(2, 2), Square())), {}
    net[0].register_forward_hook(lambda module, args, out: kept.__setitem__("out", out))
    return net, net, lambda: kept["out"]


def in_an_attribute():
    net = whole(nn.Sequential(KeepsOutput(2, 2), Square()))
    return net, net[0], lambda: net[0].out


def input_in_an_attribute():
    net = whole(nn.Sequential(Square(), KeepsInput(2, 2)))
    return net, net[1], lambda: net[1].inp


def within_in_an_attribute():
    net = whole(KeepsWithin())
    return net, net, lambda: net.within


def features_in_an_attribute():
    net = whole(KeepsFeatures())
    return net, net.fc, lambda: net.features


def detached_in_a_dictionary():
    net, kept = whole(nn.Sequential(nn.Linear(2, 2), Square())), {}
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


# -- hooks -----------------------------------------------------------------------------------------------


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


@pytest.fixture(params=KEEPING, ids=lambda f: f.__name__)
def keeping(request):
    return request.param


@pytest.fixture(params=HOOKS, ids=lambda f: f.__name__)
def hook(request):
    return request.param


def test_a_module_with_hooks_of_which_a_tensor_is_kept(keeping, hook):
    def session(compile):
        net, hooked, kept = keeping()
        log = []
        hook(hooked, log)
        compiled = compile(net)
        for k in range(3):
            x = leaf(3, 2, seed=k)
            backward([compiled(x)])
            yield x, list(net.parameters()), list(log), kept()

    check_session(session)


def test_two_backwards_through_a_module_of_which_a_tensor_is_kept(keeping, hook):
    def session(compile):
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

    check_session(session)


def test_a_backward_from_what_is_kept(keeping, hook):
    def session(compile):
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

    check_session(session)


def test_gradients_and_hooks_of_what_is_kept(keeping):
    def session(compile):
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

    check_session(session)


# -- how often they are called ---------------------------------------------------------------------------


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


@pytest.fixture(params=[in_a_list, in_the_module, in_a_counter, before], ids=lambda f: f.__name__)
def counting(request):
    return request.param


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
    ids=[
        "root",
        "root of several",
        "inner",
        "last",
        "view",
        "kept result",
        "kept own",
        "returned",
        "several results",
    ],
)
def test_how_often_a_hook_is_called(make, counting):
    def session(compile):
        net, of = make()
        count = counting(of(whole(net)))
        compiled = compile(net)
        for k in range(4):
            outputs = compiled(leaf(3, 2, seed=k))
            backward([outputs] if isinstance(outputs, torch.Tensor) else list(outputs))
            yield count()

    check_session(session)


def test_how_often_a_hook_is_called_where_one_result_has_a_gradient(counting):
    def session(compile):
        net = whole(ReturnsFeatures())
        count = counting(net.fc)
        compiled = compile(net)
        for k in range(4):
            backward([compiled(leaf(3, 2, seed=k))[1]])
            yield count()

    check_session(session)


def test_how_often_a_custom_backward_is_called_where_one_result_has_a_gradient():
    def session(compile):
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

    check_session(session)


def test_how_often_a_hook_is_called_where_a_graph_is_created(counting):
    def session(compile):
        net = whole(nn.Sequential(nn.Linear(2, 2), Square()))
        count = counting(net[0])
        compiled = compile(net)
        for k in range(4):
            x = leaf(3, 2, seed=k)
            (g,) = torch.autograd.grad(compiled(x).sum(), [x], create_graph=True)
            yield count(), g

    check_session(session)


def test_what_the_caller_logs_between_a_call_and_its_backward_stays():
    def session(compile):
        net, log = whole(nn.Linear(2, 2)), []
        net.register_full_backward_hook(lambda m, gi, go: log.append("hook"))
        compiled = compile(net)
        for k in range(3):
            y = compiled(leaf(3, 2, seed=k))
            net.number = k
            backward([y])
            log.append("caller")
            yield log.count("hook"), log.count("caller"), net.number

    check_session(session)


# -- what else divides a module --------------------------------------------------------------------------


def test_a_module_with_hooks_that_writes_an_argument(hook):
    def session(compile):
        net, log = Written(), []
        hook(net, log)
        compiled = compile(lambda x, y: net(x, y=y) + y)  # what has a name goes past the hooks
        for k in range(2):
            x, root = leaf(3, 2, seed=k), leaf(3, 2, seed=k + 3)
            y = root * 2
            backward([compiled(x, y)])
            yield x, y, root

    check_session(session)


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


def test_a_module_with_hooks_around_a_function_that_is_not_linear(hook):
    def session(compile):
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

    check_session(session)


def test_a_module_with_hooks_that_is_called_twice_with_a_kept_tensor_between(hook):
    def session(compile):
        net, kept, log = whole(nn.Linear(2, 2)), {}, []
        hook(net, log)

        def f(x):
            kept["between"] = y = net(x)
            return net(y * 2)

        compiled = compile(f)
        for k in range(2):
            x = leaf(3, 2, seed=k)
            backward([compiled(x)])
            yield x, list(net.parameters()), kept["between"]

    check_session(session)
