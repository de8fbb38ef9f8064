"""Tensors left in such places by a call."""

import functools

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, check_session, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import Cache


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_gradients_accumulated_in_an_attribute_of_a_parameter_persist(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(plain(3))
            self.weight.kept = plain(3, seed=1)

        def forward(self, x):
            if hasattr(self.weight, "kept"):
                self.weight.kept.add_(x.detach())
            return x * self.weight

    net = Net()
    compiled = compile(net)
    for _ in range(2):
        x = leaf(3)
        y = compiled(x)
        backward([y])
        yield x, y, net.weight, net.weight.kept


class Slotted:
    """Has no dictionary."""

    __slots__ = ("last", "seen")

    def __init__(self):
        self.seen = []

    def run(self, x):
        self.last = x * 2 if not hasattr(self, "last") else self.last + x
        self.seen.append(self.last)
        return self.last * 3


def of_objects():
    layers = [Cache() for _ in range(2)]
    return lambda x: x + sum(c.update(x * 2).sum() for c in layers), lambda: [(c.k, c.n) for c in layers]


def of_dictionaries():
    layers = [{"k": None, "at": {"v": [None]}} for _ in range(2)]

    def f(x):
        for c in layers:
            c["k"] = x if c["k"] is None else c["k"] + x
            before, c["at"]["v"][0] = c["at"]["v"][0], x * 2
            x = c["k"] * 2 if before is None else before + c["k"]
        return x

    return f, lambda: layers


def of_an_object_in_an_object():
    outer = Cache()
    outer.k = Cache()
    outer.k.k = Cache()

    def f(x):
        before, outer.k.k.k = outer.k.k.k, x * 2
        return x if before is None else x * before

    return f, lambda: outer.k.k.k


def of_defaults():
    def f(x, seen=[], *, memo={}):  # noqa: B006  # a default that is written is what this is about
        if "t" not in memo:
            memo["t"] = torch.arange(3.0, device=x.device)
        seen.append(x * memo["t"])
        return seen[-1]

    return f, lambda: (f.__defaults__, f.__kwdefaults__)


def of_a_function():
    def helper(x):
        if not hasattr(helper, "cache"):
            helper.cache = torch.arange(3.0, device=x.device)
        helper.calls = getattr(helper, "calls", 0) + 1
        return x * helper.cache

    return lambda x: helper(x) + 1, lambda: dict(vars(helper))


def of_another_closure():
    last = None

    def inner(x):
        nonlocal last
        before, last = last, x * 2
        return x if before is None else x * before

    def between(x):
        return inner(x) + 1

    return lambda x: between(x), lambda: last


def of_a_class():
    class Own(Cache):
        pass

    return lambda x: x * Own.table(x.device), lambda: Own.made


def of_slots():
    holder = Slotted()
    return lambda x: holder.run(x), lambda: (holder.last, holder.seen)


def of_a_partial():
    store, seen = {}, []

    def f(store, x, *, seen):
        if "t" not in store:
            store["t"] = x * 2
        seen.append(x)
        return store["t"] + x

    return functools.partial(f, store, seen=seen), lambda: (store, seen)


REACHED = [
    of_objects,
    of_dictionaries,
    of_an_object_in_an_object,
    of_defaults,
    of_a_function,
    of_another_closure,
    of_a_class,
    of_slots,
    of_a_partial,
]


@pytest.mark.parametrize("make", REACHED)
@session
def test_tensors_kept_in_objects_defaults_classes_and_closures_are_found_again(compile, make):
    f, kept = make()
    g = compile(f)
    for k in range(4):
        x = leaf(3, seed=k)
        y = g(x)
        yield y, kept()
        y.sum().backward(retain_graph=True)
        yield x


@pytest.mark.parametrize("whole", [False, True])
@session
def test_tensors_kept_in_cache_objects_of_layers_are_found_again(compile, whole):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache, self.weight = Cache(), torch.nn.Parameter(plain(3))
            self.nested = {"a": [None, {"t": None}]}

        def forward(self, x):
            before, self.nested["a"][1]["t"] = self.nested["a"][1]["t"], x * self.weight
            self.nested["a"][0] = x.shape[0]
            return self.cache.update(x * self.weight).sum() + (x if before is None else x + before)

    net = torch.nn.Sequential(Layer(), Layer())
    g = compile(net if whole else lambda x: net(x))
    for k in range(4):
        x = leaf(3, seed=k)
        y = g(x)
        y.sum().backward(retain_graph=True)
        yield x, y, [(m.cache.k, m.cache.n, m.nested) for m in net], [p.grad for p in net.parameters()]


@session
def test_tensors_added_to_a_captured_set_persist(compile):
    found = set()

    def f(x):
        y = x * 2
        found.add(y)
        return y

    g = compile(f)
    for k in range(3):
        y = g(plain(3, seed=k))
        yield y, len(found), y in found


@functools.lru_cache
def _positions(n: int, device: torch.device) -> torch.Tensor:
    return torch.arange(n, device=device) * 2.0


def test_an_lru_cache_keeps_real_tensors_and_no_replicas():
    def session(compile):
        _positions.cache_clear()
        compiled = compile(lambda x: x + _positions(len(x), x.device))
        for n in (3, 3, 4):
            yield compiled(plain(n))
        _positions.cache_clear()

    check_session(session)
    aotcheck.aot_function(lambda x: x + _positions(len(x), x.device))(plain(5))
    assert _positions(5, plain(1).device).tolist() == [0, 2, 4, 6, 8]


def test_a_list_that_is_only_appended_to_is_no_reason_to_compile_again():
    losses: list[torch.Tensor] = []

    def f(x):
        losses.append(x.sum().detach())
        return x * 2

    g, before = aotcheck.aot_function(f), aotcheck.counters().compiled
    for k in range(12):
        g(plain(3, seed=k))
    assert len(losses) == 12 and aotcheck.counters().compiled - before <= 3
