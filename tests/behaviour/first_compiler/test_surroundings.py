"""Python values around a function that are not such (class attributes, context variables, thread locals, values in
logs, iterators).
"""

import argparse
import collections
import contextvars
import functools
import os
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, check_session, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import _Counting, _Object, _Slots


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_an_attribute_of_a_tensor_argument_is_read_on_every_call(compile):
    f = compile(lambda x: x * getattr(x, "scale", 1) * (2 if hasattr(x, "doubled") else 1))
    x = leaf(3)
    x.scale = 3
    for scale in (3, 4):
        x.scale = scale
        out = f(x)
        backward([out])
        yield x, out
    x.doubled = None
    yield f(x), f(plain(3))


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("where", ["argument", "result", "module"])
@session
def test_an_attribute_set_on_an_argument_result_or_parameter_stays(compile, where):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(plain(3))

        def forward(self, x):
            y = x * self.weight
            {"argument": x, "result": y, "module": self.weight}[where].seen = 5
            return y

    net = Net()
    compiled = compile(net)
    for _ in range(2):
        x = leaf(3)
        y = compiled(x)
        backward([y])
        yield x, y, net.weight, [getattr(t, "seen", None) for t in (x, y, net.weight)]


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
def test_reading_an_attribute_of_a_tensor_is_warned_of_once():
    f = aotcheck.aot_function(lambda x: x * x.scale)
    x = plain(3)
    x.scale = 2
    with pytest.warns(RuntimeWarning, match="it reads the attribute 'scale' of a tensor") as caught:
        for _ in range(2):
            assert torch.equal(f(x), x * 2)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_module_number_that_changes_on_every_call_is_warned_of():
    net = _Counting()
    compiled = aotcheck.aot_module(net)
    with pytest.warns(RuntimeWarning, match="changes 'steps'"):
        for k in range(9):
            compiled(plain(3, 4, seed=k))


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
            lambda x: x * torch.tensor(array, dtype=torch.float32, device=x.device)[0],
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
def test_python_values_around_a_function_are_read_on_every_call(where, monkeypatch):
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


def test_counters_that_nothing_reads_are_counted_without_a_recompile(monkeypatch):
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


@session
def test_values_assigned_to_slots_classes_and_functions_are_assigned_every_call(compile, monkeypatch):
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


@session
def test_a_trace_that_is_restarted_counts_once(compile):
    w, outer = to_device(torch.ones(3)), _Object(calls=0, inner=_Object(calls=0))
    net = _Stepping()
    net.w = torch.ones_like(w)

    def f(x):
        outer.calls = outer.calls + len(x)
        outer.inner.calls += 1
        return net(x) * net.w + w * outer.inner.calls

    compiled = compile(f)
    for _ in range(4):
        yield compiled(plain(3)), outer.calls, outer.inner.calls, net.steps
