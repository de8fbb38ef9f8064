"""BEHAVIOUR 1: tensors that a function leaves around it: what a call finds is what the call before has left."""

from __future__ import annotations

import collections

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain


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


class Recurrent(torch.nn.Module):
    """Makes what it needs when it is first called, and goes on with its state."""

    def __init__(self, detached):
        super().__init__()
        self.cell = torch.nn.LSTMCell(3, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(plain(*p.shape) / 8)
        self.state, self.mask, self.detached = None, None, detached
        self.register_buffer("scale", None, persistent=False)

    def forward(self, x):
        if self.mask is None or self.mask.shape[0] != x.shape[0]:
            self.mask = torch.tril(torch.ones(x.shape[0], x.shape[0]))
        if self.scale is None:
            self.scale = torch.arange(1.0, 4.0)
        h, c = self.cell(self.mask @ x * self.scale, self.state)
        self.state = (h.detach(), c.detach()) if self.detached else (h, c)
        return h


def through(compile, net, whole):
    """The module itself compiled, or a function that has it in its closure."""
    return compile(net) if whole else compile(lambda x: net(x))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("detached", [False, True])
def test_modules_make_masks_lazily_and_go_on_with_their_state(detached, whole):
    def session(compile):
        net = Recurrent(detached)
        f = through(compile, net, whole)
        total = 0
        for k in range(4):
            x = leaf(2, 3, seed=k)
            y = f(x)
            total = y.sum() + (0 if detached else total)
            if detached:
                total.backward()
            yield x, y, net.state, net.mask, net.scale, type(net.state), [p.grad for p in net.parameters()]
        if not detached:
            total.backward()
            yield net.state, [p.grad for p in net.parameters()]
        net.state = None
        yield f(plain(3, 3)), net.state, net.mask

    check_session(session)


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
def test_tensors_kept_around_a_function(kind):
    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_forward_hook_keeps(whole):
    def session(compile):
        torch.manual_seed(0)
        features, all_of_them = {}, []
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        net[1].register_forward_hook(lambda module, args, out: features.update(relu=out, given=args))
        net.register_forward_hook(lambda module, args, out: all_of_them.append(out.detach()))
        f = through(compile, net, whole)
        for k in range(4):
            x = leaf(2, 3, seed=k)
            y = f(x)
            yield y, features, all_of_them
            (features["relu"].sum() + y.sum()).backward()
            yield x, [p.grad for p in net.parameters()]

    check_session(session, rtol=1e-6)


def test_a_global_is_made_by_the_first_call():
    def f(x):
        global _table
        if _table is None:
            _table = torch.arange(3.0) * 2
        return x * _table

    def session(compile):
        global _table
        _table = None
        g = compile(f)
        for k in range(3):
            yield g(plain(3, seed=k)), _table
        first = _table
        yield g(plain(3)), _table is first

    check_session(session)


_table = None


@pytest.mark.parametrize("kind", ["variable", "method", "appends", "pairs"])
def test_what_is_kept_in_every_call_is_compiled_for_once_or_twice(kind):
    f = aotcheck.aot_function(FUNCTIONS[kind](Store()))
    before = aotcheck.counters().compiled
    for k in range(12):
        f(plain(3, seed=k))
    assert aotcheck.counters().compiled - before <= 3


def test_lists_that_grow_and_are_read_settle_for_eager():
    def session(compile):
        history = []

        def f(x):
            history.append(x * 2)
            return sum(history)

        g = compile(f)
        for k in range(12):
            yield g(plain(3, seed=k)), history

    check_session(session)


def test_an_error_leaves_what_was_kept_as_eager_does():
    def session(compile):
        store = Store()

        def f(x, y):
            store.last = x * 2
            return x @ y

        g = compile(f)
        for y in (plain(3), plain(2)):
            yield attempt(lambda y=y: g(plain(3), y)), store.last

    check_session(session)
