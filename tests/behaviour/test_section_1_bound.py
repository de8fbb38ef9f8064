"""BEHAVIOUR 1: arguments that a function also reaches by another way, or is passed twice, and writes: they are one."""

from __future__ import annotations

import random
import types

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.behaviour.harness import attempt, check_session, leaf, plain


class Item:
    """Some object."""

    def __init__(self, x):
        self.x, self.n = x, 0


def test_an_object_that_is_in_the_closure_too():
    def session(compile):
        a, b = Item(plain(3)), Item(plain(3, seed=1))

        def f(item, y):
            item.x = item.x * 2
            item.n += 1
            return a.x + y, item is a, a.n

        g = compile(f)
        for item in (a, b, a, b, a, Item(plain(3))):
            yield g(item, plain(3)), a.x, b.x, a.n, b.n, item.x

    check_session(session)


def test_a_list_that_is_in_the_closure_too():
    def session(compile):
        ours, other = [plain(3)], [plain(3, seed=1)]

        def f(items, x):
            items.append(x)
            return len(ours) * x, items is ours

        g = compile(f)
        for k, items in enumerate((ours, other, ours, other)):
            yield g(items, plain(3, seed=k)), ours, other

    check_session(session)


def test_objects_that_are_keys_of_what_is_in_the_closure():
    def session(compile):
        a, b, c = (Item(plain(3, seed=k)) for k in range(3))
        table, members = {a: 2, b: 5}, {b}
        g = compile(lambda item, y: item.x * y * table.get(item, 7) + (item in members))
        for item in (a, b, c, a, b, c):
            yield g(item, plain(3))

    check_session(session)


def test_a_configuration_that_a_module_has_and_is_passed():
    class Net(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.weight = config, torch.nn.Parameter(plain(3))

        def forward(self, x, config):
            return x * self.weight * config.scale + self.config.shift, config is self.config

    def session(compile):
        config = types.SimpleNamespace(scale=2, shift=1)
        net = Net(config)
        g = compile(net)
        for k in range(5):
            if k == 2:
                config.scale, config.shift = 3, 0
            x = leaf(3, seed=k)
            y, same = g(x, types.SimpleNamespace(scale=5, shift=2) if k == 4 else config)
            y.sum().backward()
            yield x, y, same, net.weight

    check_session(session)


def test_a_cache_that_a_module_keeps_and_is_passed_again():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.cache = torch.nn.Parameter(plain(3)), None

        def forward(self, x, cache=None):
            self.cache = cache = cache or self.cache or Item([])
            cache.x.append(x * self.weight)
            cache.n += 1
            return sum(cache.x), cache

    def session(compile):
        net = Net()
        g = compile(net)
        cache = None
        for k in range(5):
            y, same = g(plain(3, seed=k), cache)
            yield y, same is net.cache, cache is None or same is cache, same.x, same.n
            cache = same if k % 2 == 0 else None

    check_session(session)


def both_lists(a, b):
    a.append(b[0] * 2)
    return len(b) * b[0], a is b


def both_objects(a, b):
    a.y = a.x * 2
    return b.x + 1, hasattr(b, "y"), a is b


def both_in_a_list(items, _):
    items[0].x = items[0].x * 3
    return sum(item.x for item in items), items[0] is items[1]


def neither(a, b):
    return a["x"] + b["x"], a is b


TWICE = {
    both_lists: lambda x: (items := [x], list(items)),
    both_objects: lambda x: (Item(x), Item(x)),
    both_in_a_list: lambda x: ([Item(x), Item(x)], None),
    neither: lambda x: ({"x": x}, {"x": x}),
}


@pytest.mark.parametrize("f", TWICE)
def test_what_is_passed_twice(f):
    def session(compile):
        g = compile(f)
        for k in range(6):
            a, b = TWICE[f](plain(3, seed=k))
            if k % 2:
                a, b = ([a[0], a[0]], None) if b is None else (a, a)
            yield g(a, b)
            for item in a if f is both_in_a_list else (a, b):
                yield item if isinstance(item, (dict, list)) else vars(item)

    check_session(session)


class Box:
    """Registered with pytree."""

    def __init__(self, value):
        self.value = value


pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda parts, _: Box(*parts))


def test_a_registered_class_whose_objects_are_written():
    def f(box):
        box.value = box.value * 2
        return box.value + 1

    def session(compile):
        g = compile(f)
        for k in range(3):
            box = Box(leaf(3, seed=k))
            for _ in range(2):
                yield g(box), box.value

    check_session(session)


def test_an_error_after_an_object_was_written():
    def f(item, y):
        item.n += 1
        item.x = item.x * 2
        return item.x @ y

    def session(compile):
        held = Item(plain(3))
        g = compile(lambda item, y: f(item, y) + held.n)
        for k, y in enumerate((plain(3), plain(2), plain(2), plain(3))):
            for item in (held, Item(plain(3, seed=k))):
                yield attempt(lambda item=item, y=y: g(item, y)), item.x, item.n

    check_session(session)


def test_a_generator_of_random_numbers():
    def session(compile):
        g = compile(lambda r, x: x * r.randint(1, 9))
        r = random.Random(0)
        for k in range(4):
            yield g(r, plain(3, seed=k))
        yield r.random()

    check_session(session)
