"""Every kind of object (dataclass, slots, frozen, namespace, dict subclass, model output) as argument, result and
written argument.
"""

import dataclasses
import io
import threading
import types
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import session
from tests.behaviour.inputs import leaf, plain


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: Any = None
    n: int = 2

    def scaled(self):
        return self.x * self.n


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    y: Any = None
    n: int = 2


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    y: Any = None
    n: int = 2


class Plain:
    """No dataclass."""

    def __init__(self, x, y=None, n=2):
        self.x, self.y, self.n = x, y, n


class Named(dict):
    """A dictionary whose items are attributes, too."""

    def __init__(self, **items):
        super().__init__(n=2, **items)
        self.made = True

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Output(OrderedDict):
    """Fields are attributes and items, as in the outputs of well-known models."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                super().__setitem__(field.name, value)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


@dataclasses.dataclass
class Lines(Output):
    x: torch.Tensor = None
    y: Any = None
    n: int = 2


KINDS = {
    "dataclass": Batch,
    "frozen": Frozen,
    "slots": Slotted,
    "plain": Plain,
    "namespace": lambda x, y=None: types.SimpleNamespace(x=x, y=y, n=2),
    "dictionary": lambda x, y=None: Named(x=x, y=y),
    "output": Lines,
}


@pytest.mark.parametrize("kind", KINDS)
@session
def test_objects_of_every_kind_are_arguments(compile, kind):
    def f(o, k=1, *, more=None):
        rest = 0 if more is None else more["o"].x.sum()
        return (o.x * o.n).sum() * k + rest + (0 if o.y is None else o.y[0].sum())

    g = compile(f)
    for k in range(3):
        x, y = leaf(3, seed=k), leaf(3, seed=k + 1)
        loss = g(KINDS[kind](x, [y])) + g(KINDS[kind](x), 2, more={"o": KINDS[kind](y)})
        loss.backward()
        yield loss, x, y


def seen(o):
    """What can be told of an object."""
    items = dict(o.items()) if isinstance(o, dict) else None
    return type(o).__name__, o.x, o.y, o.n, items, list(items or ()), getattr(o, "__dict__", None) or None


@pytest.mark.parametrize("kind", KINDS)
@session
def test_objects_of_every_kind_are_results(compile, kind):
    def f(x, y):
        h = x * y
        return KINDS[kind](h, (h.sum(), [h + 1, h])), h

    g = compile(f)
    for k in range(3):
        x, y = leaf(3, seed=k), leaf(3, seed=k + 1)
        o, h = g(x, y)
        yield seen(o), o.x is h, o.y[1][1] is h
        if kind == "output":
            yield o["x"] is o.x, o[0] is o.x
        (o.x.sum() * 2 + o.y[0]).backward()
        yield x, y


WRITES = {
    "tensor": lambda o: o.x.mul_(2),
    "attribute": lambda o: setattr(o, "x", o.x * 3),
    "number": lambda o: setattr(o, "n", o.n + 1),
    "part": lambda o: o.y.append(o.x + 1),
    "new": lambda o: setattr(o, "more", o.x - 1),
    "gone": lambda o: delattr(o, "y"),
}


def can_be_written(kind, write):
    """Whether objects of that kind allow that write: a frozen one none, some no attributes but those of their class."""
    return kind != "frozen" and not (write in ("new", "gone") and kind in ("slots", "dictionary"))


@pytest.mark.parametrize(("kind", "write"), [(k, w) for k in KINDS for w in WRITES if can_be_written(k, w)])
@session
def test_writes_to_argument_objects_of_every_kind_reach_the_caller(compile, kind, write):
    def f(o, p):
        WRITES[write](o)
        return o, p, o.x * 2

    g = compile(f)
    for k in range(3):
        x = plain(3, seed=k)
        o, p = KINDS[kind](x, [x * 2]), KINDS[kind](leaf(3))
        one, other, product = g(o, p)
        yield one is o, other is p, product, x, p.x
        o.y = getattr(o, "y", None)
        yield seen(o), getattr(o, "more", None), o.x is x


@session
def test_objects_in_objects_keep_their_identity(compile):
    def f(a, b):
        a.y.x.mul_(2)
        return a.y.x + b.x, a is b, b.y, a.y is b.y

    g = compile(f)
    inner = Batch(plain(3), Plain(plain(2)))
    o = Batch(plain(3, seed=1), inner)
    for a, b in ((o, inner), (o, Batch(plain(3), inner.y)), (Batch(plain(3), Batch(plain(3))), Batch(plain(3), inner))):
        out, same, y, inside = g(a, b)
        yield out, same, y is b.y, a.y.x, type(y).__name__, inside


@session
def test_methods_and_numbers_of_argument_objects_are_read_on_every_call(compile):
    g = compile(lambda o: o.scaled() if o.n < 3 else o.x - o.n)
    for n in (2, 3, 1, 3, 2):
        yield g(Batch(plain(3), n=n))


@session
def test_a_module_takes_and_returns_objects(compile):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(plain(3))

        def forward(self, batch, config):
            h = batch.x * self.weight * config.n
            return Lines(h.sum(), (h, batch.y))

    net = Net()
    g = compile(net)
    for k in range(3):
        x = leaf(3, seed=k)
        o = g(Batch(x, plain(2)), types.SimpleNamespace(n=k + 1, name="a"))
        o.x.backward()
        yield seen(o), x, net.weight


class Knot:
    """Holds itself."""

    def __init__(self, x):
        self.itself, self.x, self.n, self.y = self, x, 1, None


HOLDING = {
    "itself": Knot,
    "an object": lambda x: Batch(x, object()),
    "a lock": lambda x: Batch(x, threading.Lock()),
    "an iterator": lambda x: Batch(x, iter([1])),
    "a reference": lambda x: Batch(x, weakref.ref(_parent)),
    "much": lambda x: Batch(x, list(range(600))),
}

_parent = Batch(plain(3))


@pytest.mark.parametrize("holding", HOLDING)
@session
def test_argument_objects_may_hold_themselves_locks_and_iterators(compile, holding):
    def f(o, y):
        o.n += 1
        o.x = o.x * y
        return o.x * o.n

    g = compile(f)
    for x in (plain(3), leaf(3)):
        o = HOLDING[holding](x)
        for k in range(3):
            y = plain(3, seed=k)
            yield g(o, y), o.x, o.n, type(o.y).__name__
        if x.requires_grad:
            o.x.sum().backward()
            yield x


def test_an_argument_of_an_unregistered_class_without_state_is_refused():
    with pytest.raises(aotcheck.UnsupportedError, match="register it") as error:
        aotcheck.aot_function(lambda o, x: x * 2)(io.StringIO(), plain(3))
    assert error.value.reason == "unregistered container"
