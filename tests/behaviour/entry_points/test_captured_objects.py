"""Objects that a closure or global holds directly: tensors and containers in their attributes, identity, errors,
lifetime.
"""

import collections
import gc
import weakref

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.entry_points.common import Holder, Places
from tests.behaviour.harness import attempt, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import Cache, _Object


class Store:
    """Something to keep things in."""

    def __init__(self):
        self.last, self.pair, self.seen, self.named, self.count = None, None, [], {}, 0
        self.queue = collections.deque()

    def run(self, x):
        """Keeps what it computed the last time."""
        self.count += 1
        before, self.last = self.last, x * 2
        return x * 3 if before is None else x * before


def keeps_variable(store):
    last = None

    def f(x):
        nonlocal last
        before, last = last, x * 2
        return x if before is None else x * before

    return f


def appends(store):
    losses = store.seen

    def f(x):
        loss = x.sum()
        losses.append(loss.detach())
        store.queue.append(x.detach() * 2)
        store.queue.append(7)
        return loss

    return f


def sets_items(store):
    def f(x):
        old = store.named.get("k")
        store.named["k"] = x * 2 if old is None else torch.cat([old, x])
        store.named["shape"] = tuple(x.shape)
        return store.named["k"].sum()

    return f


def caches(store):
    def f(x):
        for layer in range(2):
            if len(store.seen) <= layer:
                store.seen.append(x + layer)
            else:
                store.seen[layer] = torch.cat([store.seen[layer], x])
        return sum(t.sum() for t in store.seen)

    return f


def pairs(store):
    def f(x):
        kept = x * 2
        store.pair = {"both": [kept, kept, x], "size": x.dim()}
        store.last = kept
        return kept

    return f


def moves(store):
    store.last, store.pair = plain(3), plain(3, seed=1)

    def f(x):
        store.last, store.pair = store.pair, store.last
        return x * store.last

    return f


def shifts(store):
    store.named["old"] = plain(3)

    def f(x):
        store.named["older"] = store.named.get("old", x)
        store.named["old"] = x * 2
        return x * store.named["older"]

    return f


def forgets(store):
    store.queue = collections.deque(maxlen=2)

    def f(x):
        store.queue.append(x.detach() * 2)
        store.seen.append(x.detach() * 3)
        if len(store.seen) > 2:
            store.seen.pop(0)
        return x * (sum(store.queue) + sum(store.seen))

    return f


FUNCTIONS = {
    "moves": moves,
    "shifts": shifts,
    "forgets": forgets,
    "variable": keeps_variable,
    "method": lambda store: store.run,
    "appends": appends,
    "items": sets_items,
    "caches": caches,
    "pairs": pairs,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
@session
def test_tensors_assigned_to_captured_variables_and_objects_persist(compile, kind):
    store = Store()
    f = compile(FUNCTIONS[kind](store))
    for k in range(4):
        x = leaf(3, seed=k)
        y = f(x)
        yield x, y, store.last, store.pair, store.seen, store.named, list(store.queue), store.count
        if kind == "pairs":
            one, other, given = store.pair["both"]
            yield one is other, one is store.last, y is one, given is x
        y.sum().backward(retain_graph=True)
        yield x
    store.seen.clear()
    store.named = {}
    yield f(plain(3)), store.seen, store.named


@pytest.mark.parametrize("kind", ["variable", "method", "pairs"])
def test_captured_state_assigned_on_every_call_compiles_at_most_three_times(kind):
    f = aotcheck.aot_function(FUNCTIONS[kind](Store()))
    before = aotcheck.counters().compiled
    for k in range(12):
        f(plain(3, seed=k))
    assert aotcheck.counters().compiled - before <= 3


@session
def test_an_error_after_an_assignment_to_an_object_leaves_it_as_eager_does(compile):
    store = Store()

    def f(x, y):
        store.last = x * 2
        return x @ y

    g = compile(f)
    for y in (plain(3), plain(2)):
        yield attempt(lambda y=y: g(plain(3), y)), store.last


@session
def test_an_error_after_a_tensor_was_removed_from_an_object_is_as_in_eager(compile):
    at = Places()

    def f(x, bad):
        y, at.there = x * at.there, None
        at.named["a"] = y
        return y @ bad

    g = compile(f)
    for k, bad in enumerate((plain(2), plain(3), plain(2), plain(3))):
        at.there = plain(3, seed=k)
        yield attempt(lambda k=k, bad=bad: g(plain(3, seed=k), bad)), at.there, at.named


@session
def test_a_new_container_assigned_to_several_attributes_stays_one(compile):
    at = Places()

    def f(x):
        new = [x * 2, {"inner": [x]}]
        at.there, at.named["same"], at.x = new, new, new[1]["inner"]
        return new, at.x

    g = compile(f)
    for k in range(3):
        new, inner = g(plain(3, seed=k))
        yield new is at.there, at.named["same"] is new, at.x is inner, new[1]["inner"] is inner, at.there


@session
def test_containers_exchanged_between_attributes_keep_their_identity(compile):
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


@session
def test_captured_containers_and_objects_are_returned_as_themselves(compile):
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


@session
def test_arguments_assigned_to_a_captured_object_keep_their_identity(compile):
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


@session
def test_equal_containers_that_the_caller_replaces_are_written_and_not_the_old(compile):
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


@pytest.mark.parametrize("empty", [list, dict])
@session
def test_two_attributes_that_come_to_hold_one_container_are_one(compile, empty):
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


def test_tensors_kept_in_captured_objects_are_freed_with_them():
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


@session
def test_a_mask_made_again_for_other_dtypes_and_shapes_persists(compile):
    holder = Holder(None)

    def f(x):
        mask = holder.tensor
        if mask is None or mask.dtype != x.dtype or mask.shape != x.shape:
            holder.tensor = torch.ones_like(x)
        holder.tensor = holder.tensor + 1
        return x * holder.tensor

    g = compile(f)
    for n, dtype in ((3, torch.float32), (3, torch.float64), (4, torch.float32), (4, torch.float32)):
        for _ in range(2):
            yield g(plain(n, dtype=dtype)), holder.tensor


def test_captured_objects_that_are_replaced_are_not_kept_alive():
    class Slotted(tuple):
        __slots__ = ()

    compiled = aotcheck.aot_function(lambda x: x * len(holder.what))
    holder = _Object(what=[])
    references = []
    for _ in range(3):
        item = _Object(big=to_device(torch.ones(3)))
        references += [weakref.ref(item), weakref.ref(item.big)]
        holder.what = Slotted((item, [item.big]))
        compiled(plain(3))
        del item
    holder.what = ()
    compiled(plain(3))
    del compiled
    gc.collect()
    assert all(r() is None for r in references)
