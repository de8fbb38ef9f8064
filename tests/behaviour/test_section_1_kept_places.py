"""BEHAVIOUR 1: where a function may leave tensors: whatever it reaches, by any way, and whatever it makes of that."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import OrderedDict, defaultdict, deque

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain


class Cache:
    """What one layer keeps."""

    made = None

    def __init__(self):
        self.k, self.n = None, 0

    def update(self, k):
        self.k = k if self.k is None else torch.cat([self.k, k])
        self.n += 1
        return self.k

    @classmethod
    def table(cls):
        if cls.made is None:
            cls.made = torch.arange(3.0)
        return cls.made


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
            memo["t"] = torch.arange(3.0)
        seen.append(x * memo["t"])
        return seen[-1]

    return f, lambda: (f.__defaults__, f.__kwdefaults__)


def of_a_function():
    def helper(x):
        if not hasattr(helper, "cache"):
            helper.cache = torch.arange(3.0)
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

    return lambda x: x * Own.table(), lambda: Own.made


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
def test_tensors_are_kept_wherever_a_function_leaves_them(make):
    def session(compile):
        f, kept = make()
        g = compile(f)
        for k in range(4):
            x = leaf(3, seed=k)
            y = g(x)
            yield y, kept()
            y.sum().backward(retain_graph=True)
            yield x

    check_session(session)


@pytest.mark.parametrize("whole", [False, True])
def test_caches_of_layers_are_no_modules(whole):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache, self.weight = Cache(), torch.nn.Parameter(plain(3))
            self.nested = {"a": [None, {"t": None}]}

        def forward(self, x):
            before, self.nested["a"][1]["t"] = self.nested["a"][1]["t"], x * self.weight
            self.nested["a"][0] = x.shape[0]
            return self.cache.update(x * self.weight).sum() + (x if before is None else x + before)

    def session(compile):
        net = torch.nn.Sequential(Layer(), Layer())
        g = compile(net if whole else lambda x: net(x))
        for k in range(4):
            x = leaf(3, seed=k)
            y = g(x)
            y.sum().backward(retain_graph=True)
            yield x, y, [(m.cache.k, m.cache.n, m.nested) for m in net], [p.grad for p in net.parameters()]

    check_session(session)


def inserted(at):
    at.there.insert(0, at.x * 2)
    del at.there[2:]


def shifted(at):
    at.there[:] = [*at.there[1:], at.x * 2]


def appended_and_popped(at):
    at.there.append(at.x * 2)
    at.there.append(at.there.pop(0) + 1)


def popped(at):
    at.there.pop()


def cleared(at):
    at.there.clear()
    at.there += [at.x, at.x * 2]


def in_a_queue(at):
    at.there = deque(at.there) if at.there else deque([at.x])
    at.there.appendleft(at.x * 2)
    at.there.rotate(1)


def left_and_reset(at):
    at.there = at.x * 2 if at.there is None or isinstance(at.there, list) else None


def left_and_deleted(at):
    if hasattr(at, "more"):
        at.there = [at.more]
        del at.more
    else:
        at.more = at.x * 2


def under_other_names(at):
    at.named.clear()
    at.named["a"] = at.x * 2
    at.named[f"b{at.x.shape[0]}"] = at.x * 3


def in_another_order(at):
    at.named.pop("a", None)
    at.named["b"], at.named["a"] = at.x * 2, at.x * 3


def the_least_recently_used_is_dropped(at):
    key = "abc"[at.x.shape[0] % 3]
    if key in at.ordered:
        at.ordered.move_to_end(key)
    else:
        at.ordered[key] = at.x * 2
    at.numbers[key] = len(at.ordered)
    while len(at.ordered) > 2:
        at.ordered.popitem(last=False)


def by_default(at):
    at.lists["ab"[at.x.shape[0] % 2]].append(at.x * 2)


WAYS = [
    inserted,
    shifted,
    appended_and_popped,
    popped,
    cleared,
    in_a_queue,
    left_and_reset,
    left_and_deleted,
    under_other_names,
    in_another_order,
    the_least_recently_used_is_dropped,
    by_default,
]


class Places:
    """Where the functions above leave tensors."""

    def __init__(self):
        self.x, self.there, self.named = None, [plain(2), plain(2, seed=1), plain(2, seed=2)], {}
        self.ordered, self.numbers, self.lists = OrderedDict(), OrderedDict(), defaultdict(list)


@pytest.mark.parametrize("way", WAYS)
def test_what_becomes_of_containers_around_a_function(way):
    def session(compile):
        at = Places()

        def f(x):
            at.x = x
            way(at)
            return x + 1

        g = compile(f)
        for k, n in enumerate((2, 3, 2, 4, 3, 2)):
            there = at.there
            if way is popped and k % 2:
                there = at.there = [plain(2, seed=k), plain(2, seed=k + 1), plain(2, seed=k + 2)]
            yield g(plain(n, seed=k)), at.there, at.there is there, list(at.ordered.items()), list(at.named.items())
            yield list(at.numbers.items()), dict(at.lists), getattr(at, "more", None), at.x

    check_session(session)


def test_a_set_that_tensors_are_added_to():
    def session(compile):
        found = set()

        def f(x):
            y = x * 2
            found.add(y)
            return y

        g = compile(f)
        for k in range(3):
            y = g(plain(3, seed=k))
            yield y, len(found), y in found

    check_session(session)


def test_an_error_after_a_tensor_was_taken_away():
    def session(compile):
        at = Places()

        def f(x, bad):
            y, at.there = x * at.there, None
            at.named["a"] = y
            return y @ bad

        g = compile(f)
        for k, bad in enumerate((plain(2), plain(3), plain(2), plain(3))):
            at.there = plain(3, seed=k)
            yield attempt(lambda k=k, bad=bad: g(plain(3, seed=k), bad)), at.there, at.named

    check_session(session)


def test_one_container_in_several_places_is_one():
    def session(compile):
        at = Places()

        def f(x):
            new = [x * 2, {"inner": [x]}]
            at.there, at.named["same"], at.x = new, new, new[1]["inner"]
            return new, at.x

        g = compile(f)
        for k in range(3):
            new, inner = g(plain(3, seed=k))
            yield new is at.there, at.named["same"] is new, at.x is inner, new[1]["inner"] is inner, at.there

    check_session(session)


def test_containers_that_change_places():
    def session(compile):
        at = Places()
        at.x, at.named = [plain(2, seed=5)], {"n": [1]}
        at.lists = {"n": [2]}

        def f(x):
            at.there, at.x = at.x, at.there
            at.there[0] = at.there[0] + x
            at.named["n"], at.lists["n"] = at.lists["n"], at.named["n"]
            at.numbers["before"] = at.ordered.get("now")
            at.ordered["now"] = [x * 2]
            return at.x[0] * x * at.named["n"][0]

        g = compile(f)
        for k in range(5):
            one, other, now = at.there, at.x, at.ordered.get("now")
            yield g(plain(2, seed=k)), at.there, at.x, at.there is other, at.x is one, at.named, at.lists
            yield at.numbers["before"] is now, at.ordered["now"]

    check_session(session)


def test_containers_and_objects_around_a_function_are_results():
    def session(compile):
        at, cache = Places(), Cache()

        def f(x):
            at.there.append(x)
            cache.update(x)
            return at.there, {"cache": cache, "k": cache.k}, cache

        g = compile(f)
        for k in range(4):
            there, named, same = g(plain(3, seed=k))
            yield there is at.there, named["cache"] is cache, same is cache, named["k"] is cache.k, len(there)
            if k == 1:
                at.there = []

    check_session(session)


def test_what_is_passed_may_be_kept():
    def session(compile):
        at = Places()

        def f(pair, cache, name):
            at.named[name] = {"given": pair, "h": pair[0] * 2}
            y = pair[0] if at.x is None else pair[0] * at.x.k
            at.x = cache
            at.there.append(cache)
            return y

        g = compile(f)
        for k in range(4):
            pair, cache, name = [leaf(3, seed=k)], Cache(), "ab"[k % 2]
            cache.k = plain(3, seed=k)
            y = g(pair, cache, name)
            yield y, at.named[name]["given"] is pair, at.x is cache, at.there[-1] is cache, at.named[name]["h"], at.x.k

    check_session(session)


def test_containers_that_are_exchanged_for_others_like_them():
    def session(compile):
        at = Places()

        def f(x):
            at.named["inner"]["n"] += x.shape[0]
            at.there[1][0] += 1
            at.there[1].append(at.there[0])
            at.named["inner"]["t"] = x * at.there[1][0]
            return x * at.named["inner"]["n"]

        g = compile(f)
        for k in range(4):
            before = at.named, at.there
            at.named, at.there = {"inner": {"n": 0}}, [0, [1, 2]]
            yield g(plain(3, seed=k)), at.named, at.there, before[0], before[1][1:]

    check_session(session)


@pytest.mark.parametrize("empty", [list, dict])
def test_containers_that_become_one(empty):
    def session(compile):
        at = Places()

        def f(x):
            if empty is list:
                at.there.append(1)
            else:
                at.there["k"] = 1
            return x * len(at.x)

        g = compile(f)
        for together in (False, True, False, True):
            at.there = empty()
            at.x = at.there if together else empty()
            yield g(plain(3)), len(at.there), len(at.x)

    check_session(session)


def test_what_is_kept_keeps_nothing_else_alive():
    at, gone = Places(), []
    f = aotcheck.aot_function(lambda x: at.there.append(x) or at.x.update(x * 2) + at.x.n)
    for k in range(4):
        at.x, at.there = Cache(), []
        for _ in range(2):
            f(plain(3, seed=k))
        gone += [weakref.ref(at.x), weakref.ref(at.x.k), weakref.ref(at.there[0])]
    at.x, at.there = Cache(), []
    f(plain(3))
    gc.collect()
    assert [r() for r in gone] == [None] * len(gone)


def test_a_variable_that_the_first_call_binds():
    def session(compile):
        def make():
            def f(x):
                nonlocal table
                try:
                    table  # raises where nothing was assigned
                except NameError:
                    table = x * 2
                return x + table

            if make is None:
                table = None
            return f, lambda: table

        f, table_of = make()
        g = compile(f)
        for k in range(3):
            yield g(plain(3, seed=k)), table_of()

    check_session(session)
