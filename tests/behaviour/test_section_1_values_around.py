"""BEHAVIOUR 1: where Python values around a function may lie, how they change, and what a trace does to them."""

from __future__ import annotations

import argparse
import collections
import contextvars
import dataclasses
import functools
import gc
import itertools
import os
import random
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain

_factor = 2
_activation = torch.tanh
_variable = contextvars.ContextVar("_variable", default=2)
_of_its_own = types.ModuleType("settings_of_its_own")
exec("factor = 2\ndef scaled(x): return x * factor", vars(_of_its_own))


class _Settings:
    factor = 2

    @classmethod
    def scaled(cls, x):
        return x * cls.factor


class _Object:
    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


@dataclasses.dataclass(slots=True)
class _Slots:
    factor: int = 2


class _Attributes(dict):
    __getattr__ = dict.__getitem__


class _Numbers(list):
    pass


class _Summand:
    def __init__(self) -> None:
        self.behind_an_operator = 2

    def __add__(self, x):
        return x + self.behind_an_operator


class _Doubled:
    def __get__(self, owner, kind):
        return owner.behind_a_descriptor * 2


class _Described:
    doubled = _Doubled()

    def __init__(self) -> None:
        self.behind_a_descriptor = 1


class _Helped(nn.Module):
    factor = 2

    def helper(self, x):
        return x * _factor * self.factor

    def forward(self, x):
        return self.helper(x)


def _first(x):
    return _second(x)


def _second(x):
    return _third(x)


def _third(x):
    return _fourth(x)


def _fourth(x):
    return x * _factor


def _with_an_attribute(x):
    return x * _with_an_attribute.factor


_with_an_attribute.factor = 2  # type: ignore[attr-defined]


def _set_global(name):
    return lambda value: globals().__setitem__(name, value)


def _around():
    """By name: a function or module, and what changes a value that it uses."""
    slots, attributes, numbers = _Slots(), _Attributes(factor=2), _Numbers([2])
    summand, described, array = _Summand(), _Described(), np.array([2.0, 3.0])
    deep = functools.reduce(lambda inner, _: _Object(inner=inner), range(5), _Object(factor=2))
    record = collections.namedtuple("record", "values")([2])
    held = _Object(factor=2)
    reference = weakref.ref(held)
    partial = functools.partial(lambda x, factor: x * factor, factor=2)
    many, raw = list(range(1000)), bytearray(b"ab")
    names = _Object(w0=1, w1=2)
    namespace = argparse.Namespace(factor=2)

    class Patched(nn.Module):
        def act(self, x):
            return x + 1

        def forward(self, x):
            return self.act(x)

    return {
        "a class": (lambda x: x * _Settings.factor, lambda v: setattr(_Settings, "factor", v)),
        "a class method": (lambda x: _Settings.scaled(x), lambda v: setattr(_Settings, "factor", v)),
        "a class attribute of a module": (_Helped(), lambda v: setattr(_Helped, "factor", v)),
        "a global of a method": (_Helped(), _set_global("_factor")),
        "a method": (Patched(), lambda v: setattr(Patched, "act", lambda self, x: x * v)),
        "forward": (Patched(), lambda v: setattr(Patched, "forward", lambda self, x: x * v)),
        "a Python module": (lambda x: x * _of_its_own.factor, lambda v: setattr(_of_its_own, "factor", v)),
        "a function of it": (lambda x: _of_its_own.scaled(x), lambda v: setattr(_of_its_own, "factor", v)),
        "a global function": (
            lambda x: _activation(x),
            lambda v: _set_global("_activation")([torch.tanh, torch.neg][v % 2]),
        ),
        "helpers of helpers": (lambda x: _first(x), _set_global("_factor")),
        "a global that was not there": (
            lambda x: x * _appears if "_appears" in globals() else x,  # noqa: F821
            _set_global("_appears"),
        ),
        "slots": (lambda x: x * slots.factor, lambda v: setattr(slots, "factor", v)),
        "a kind of dictionary": (lambda x: x * attributes.factor, lambda v: attributes.update(factor=v)),
        "a kind of list": (lambda x: x * numbers[0], lambda v: numbers.__setitem__(0, v)),
        "a list in a named tuple": (lambda x: x * record.values[0], lambda v: record.values.__setitem__(0, v)),
        "far away": (
            lambda x: x * deep.inner.inner.inner.inner.inner.factor,
            lambda v: setattr(deep.inner.inner.inner.inner.inner, "factor", v),
        ),
        "a namespace": (lambda x: x * namespace.factor, lambda v: setattr(namespace, "factor", v)),
        "an attribute of the function": (_with_an_attribute, lambda v: setattr(_with_an_attribute, "factor", v)),
        "an operator": (lambda x: summand + x, lambda v: setattr(summand, "behind_an_operator", v)),
        "a descriptor": (lambda x: described.doubled * x, lambda v: setattr(described, "behind_a_descriptor", v)),
        "an array": (lambda x: x * float(array[0]), lambda v: array.__setitem__(0, v)),
        "an array that is a tensor": (
            lambda x: x * torch.tensor(array, dtype=torch.float32)[0],
            lambda v: array.__setitem__(0, v),
        ),
        "bytes": (lambda x: x * raw[0], lambda v: raw.__setitem__(0, v)),
        "a context variable": (lambda x: x * _variable.get(), _variable.set),
        "a weak reference": (lambda x: x * reference().factor, lambda v: setattr(held, "factor", v)),
        "keywords of a partial": (partial, lambda v: partial.keywords.update(factor=v)),
        "a long list": (lambda x: x * many[900], lambda v: many.__setitem__(900, v)),
        "a name made of parts": (
            lambda x: sum(x * getattr(names, f"w{k}") for k in range(2)),
            lambda v: setattr(names, "w1", v),
        ),
        "all attributes": (lambda x: sum(x * v for v in vars(names).values()), lambda v: setattr(names, "w1", v)),
        "the environment": (
            lambda x: x * int(os.environ.get("AOTCHECK_FACTOR", "1")),
            lambda v: os.environ.__setitem__("AOTCHECK_FACTOR", str(v)),
        ),
    }


@pytest.mark.parametrize("where", _around())
def test_a_value_is_changed_between_calls(where, monkeypatch):
    for owner in (_Settings, _Helped, _of_its_own, _with_an_attribute):
        monkeypatch.setattr(owner, "factor", 2)
    monkeypatch.setitem(globals(), "_factor", 2)
    monkeypatch.setitem(globals(), "_activation", torch.tanh)
    monkeypatch.setenv("AOTCHECK_FACTOR", "2")

    def session(compile):
        globals().pop("_appears", None)
        function, change = _around()[where]
        compiled = compile(function)
        for value in (None, 3, 4, 3, 3):
            if value is not None:
                change(value)
            x = leaf(4)
            y = compiled(x)
            yield y, torch.autograd.grad(y.sum(), x)
        change(2)

    contextvars.copy_context().run(check_session, session)


# -- what a trace changes ----------------------------------------------------------------------------


class _Stepping(nn.Module):
    """Counts its calls, which nothing reads."""

    steps_of_all = 0

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.again, self.sizes, self.last = 0, 0, [0], None

    def forward(self, x):
        self.steps += 1
        self.again = self.again + 2
        _Stepping.steps_of_all += 1
        self.last = types.SimpleNamespace(size=len(x))
        return x * 2


def test_steps_that_nothing_reads_are_counted_without_a_retrace(monkeypatch):
    def session(compile):
        monkeypatch.setattr(_Stepping, "steps_of_all", 0)
        calls = 0
        net = _Stepping()

        def f(x):
            nonlocal calls
            calls += 1
            return net(x)

        compiled = compile(f)
        before = aotcheck.counters().compiled
        for k in range(12):
            if k == 7:
                net.steps = 100
            yield compiled(plain(3 + k % 2)), calls, net.steps, net.again, _Stepping.steps_of_all, net.last.size
        assert aotcheck.counters().compiled <= before + 2

    check_session(session)


class _Every(nn.Module):
    """Does something in every tenth step."""

    written: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("written", torch.zeros(3))
        self.step = 0

    def forward(self, x):
        self.step += 1
        if self.step % 10 == 0:
            self.written.add_(x)
        return x + self.written


@pytest.mark.filterwarnings("ignore:aotcheck")
def test_what_is_done_in_every_tenth_step():
    def session(compile):
        net = _Every()
        compiled = compile(net)
        for k in range(31):
            yield compiled(plain(3, seed=k)), net.step, net.written.clone()

    check_session(session)


def test_values_that_are_changed_at_other_places(monkeypatch):
    def session(compile):
        slots, counts, sizes = _Slots(), collections.Counter(), _Object(of=[0])
        monkeypatch.setattr(_Settings, "factor", 0)
        monkeypatch.setattr(_with_an_attribute, "factor", 0)

        def f(x):
            slots.factor += 1
            counts["calls"] += 1
            _Settings.factor = (_Settings.factor + 1) % 3
            _with_an_attribute.factor += len(x)
            sizes.of = [len(x), sizes.of[0]]
            return x * slots.factor + counts["calls"] * _Settings.factor + _with_an_attribute(x) + sizes.of[1]

        compiled = compile(f)
        for n in (3, 4, 3, 5):
            yield compiled(plain(n)), slots.factor, dict(counts), _Settings.factor, list(sizes.of)

    check_session(session)


def test_a_call_that_raises_counts_once():
    def session(compile):
        outer = _Object(calls=0, inner=_Object(calls=0, log=[]))

        def f(x):
            outer.calls += 1
            outer.inner.calls += 1
            outer.inner.log.append(outer.calls)
            if outer.calls % 2:
                raise ValueError(outer.calls)
            return x * outer.inner.calls

        compiled = compile(f)
        for _ in range(5):
            yield attempt(lambda: compiled(plain(3))), outer.calls, outer.inner.calls

    check_session(session)


def test_a_trace_that_begins_again_counts_once():
    def session(compile):
        w, outer = torch.ones(3), _Object(calls=0, inner=_Object(calls=0))
        net = _Stepping()
        net.w = torch.ones(3)

        def f(x):
            outer.calls = outer.calls + len(x)
            outer.inner.calls += 1
            return net(x) * net.w + w * outer.inner.calls

        compiled = compile(f)
        for _ in range(4):
            yield compiled(plain(3)), outer.calls, outer.inner.calls, net.steps

    check_session(session)


@functools.lru_cache
def _positions(n: int) -> torch.Tensor:
    return torch.arange(n) * 2.0


def test_a_cache_of_results_does_not_keep_tensors_of_a_trace():
    def session(compile):
        _positions.cache_clear()
        compiled = compile(lambda x: x + _positions(len(x)))
        for n in (3, 3, 4):
            yield compiled(plain(n))
        _positions.cache_clear()

    check_session(session)
    aotcheck.aot_function(lambda x: x + _positions(len(x)))(plain(5))
    assert _positions(5).tolist() == [0, 2, 4, 6, 8]


@pytest.mark.filterwarnings("ignore:aotcheck")
@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, 0.5, momentum=0.5), lambda p: torch.optim.Rprop(p)])
def test_an_optimizer_that_makes_its_state_in_the_first_step(optimizer):
    def session(compile):
        w = leaf(4)
        steps = optimizer([w])

        def step(x):
            steps.zero_grad()
            loss = (w * x).sum()
            loss.backward()
            steps.step()
            return loss.detach()

        compiled = compile(step)
        for k in range(4):
            yield attempt(lambda k=k: compiled(plain(4, seed=k))), w
            yield [t for t in steps.state[w].values() if isinstance(t, torch.Tensor)]

    check_session(session)


# -- what cannot be part of a key --------------------------------------------------------------------

_own, _of_numpy = random.Random(), np.random.default_rng()

DRAWS = {
    "random": lambda: lambda x: x * random.random(),
    "numpy": lambda: lambda x: x * float(np.random.rand()),
    "of its own": lambda: functools.partial(lambda own, x: x * own.random(), random.Random(3)),
    "of numpy": lambda: functools.partial(lambda own, x: x * float(own.random()), np.random.default_rng(3)),
    "a method": lambda: (lambda draw: lambda x: x * draw())(random.Random(3).random),
    "count": lambda: (lambda numbers: lambda x: x * next(numbers))(itertools.count()),
    "generator": lambda: (lambda numbers: lambda x: x * next(numbers))(k * k for k in range(9)),
    "iterator": lambda: (lambda numbers: lambda x: x * next(numbers))(iter([3, 1, 2, 4, 5])),
}


@pytest.mark.filterwarnings("ignore:aotcheck")
@pytest.mark.parametrize("draws", DRAWS.values(), ids=DRAWS)
def test_numbers_that_each_call_draws(draws):
    def session(compile):
        random.seed(3)
        np.random.seed(3)
        compiled = compile(draws())
        for _ in range(3):
            yield compiled(plain(3))
        yield random.random(), float(np.random.rand())

    check_session(session)


HELD = {
    "tuple": lambda t: (1, t),
    "kind of tuple": lambda t: collections.namedtuple("pair", "a b")(1, t),
    "set": lambda t: {t, 1},
    "deque": lambda t: collections.deque([1, t]),
    "keys": lambda t: {t: 1},
    "nested": lambda t: [({"t": t},)],
    "slots": lambda t: _Slots(t),
}


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
@pytest.mark.parametrize("where", ["closure", "default", "keyword", "partial"])
def test_tensors_in_all_kinds_of_objects_around_a_function(held, where):
    def session(compile):
        t = plain(3)
        of = held(t)
        functions = {
            "closure": lambda x: x * t if of else x,
            "default": lambda x, of=of: x * 2 if of else x,
            "keyword": lambda x, *, of=of: x * 2 if of else x,
            "partial": functools.partial(lambda of, x: x * 2 if of else x, of),
        }
        compiled = compile(functions[where])
        for _ in range(3):
            yield compiled(plain(3))
            t.add_(1)

    check_session(session)


class _Raises:
    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_objects_that_raise_whatever_they_are_asked():
    def session(compile):
        odd, listed = _Raises(), [_Raises()]
        compiled = compile(lambda x: x * len(listed) if odd is not None else x)
        yield compiled(plain(3)), compiled(plain(3))

    check_session(session)


def test_objects_around_a_function_are_not_kept_alive():
    class Slotted(tuple):
        __slots__ = ()

    compiled = aotcheck.aot_function(lambda x: x * len(holder.what))
    holder = _Object(what=[])
    references = []
    for _ in range(3):
        item = _Object(big=torch.ones(3))
        references += [weakref.ref(item), weakref.ref(item.big)]
        holder.what = Slotted((item, [item.big]))
        compiled(plain(3))
        del item
    holder.what = ()
    compiled(plain(3))
    del compiled
    gc.collect()
    assert all(r() is None for r in references)
