"""Class attributes, closures of methods, constructors, Python modules and imports inside."""

import concurrent.futures
import dataclasses
import functools
import itertools
import sys
import types
import typing
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import _Object, _other, seeded


@session
def test_a_method_of_an_argument_reads_and_writes_its_closure(compile):
    config, seen = {"factor": 2}, []

    class Batch:
        def __init__(self, x):
            self.x = x

        def scaled(self, y):
            seen.append(y.shape)
            config["calls"] = config.get("calls", 0) + 1
            return self.x * y * config["factor"]

    g = compile(lambda batch, y: batch.scaled(y))
    for k in range(5):
        if k == 3:
            config["factor"] = 5
        yield g(Batch(plain(3, seed=k)), plain(3)), seen, config


@session
def test_a_method_of_a_named_tuple_reads_its_closure(compile):
    config = types.SimpleNamespace(factor=2)

    class Pair(typing.NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

        def scaled(self):
            return self.x * self.y * config.factor

    g = compile(lambda pair: pair.scaled())
    for k in range(4):
        config.factor = 2 + k // 2
        x = leaf(3, seed=k)
        g_x = g(Pair(x, plain(3)))
        g_x.sum().backward()
        yield g_x, x


@session
def test_class_attributes_of_arguments_are_read_and_assigned_on_every_call(compile):
    class Batch:
        factor, made = 2, 0

        def __init__(self, x):
            self.x = x
            type(self).made += 1

        def scaled(self):
            return type(self)(self.x * self.factor)

    class Other(Batch):
        factor = 3

    g = compile(lambda batch: batch.scaled())
    for k in range(8):
        if k == 4:
            Batch.factor = 7
        result = g((Batch, Other)[k % 2](plain(3, seed=k)))
        yield result.x, Batch.made, Other.made, type(result).__name__


@session
def test_tensors_that_a_property_keeps_in_its_class_are_found_again(compile):
    class Batch:
        kept: dict = {}  # noqa: RUF012  # is what this is about

        def __init__(self, x):
            self.x = x

        @property
        def first(self):
            if "first" not in Batch.kept:
                Batch.kept["first"] = self.x * 2
            return Batch.kept["first"]

    g = compile(lambda batch: batch.first + batch.x)
    for k in range(3):
        yield g(Batch(plain(3, seed=k))), Batch.kept


@session
def test_methods_of_objects_within_containers_count_on_every_call(compile):
    count = {"n": 1}

    @dataclasses.dataclass
    class Item:
        x: torch.Tensor

        def next(self):
            count["n"] += 1
            return self.x * count["n"]

    g = compile(lambda d: sum(item.next() for item in d["items"]))
    for k in range(4):
        yield g({"items": [Item(plain(3, seed=k)), Item(plain(3))]}), count


def registers():
    made, count = [], {"n": 0}

    class Made:
        total = 0

        def __init__(self, x):
            self.x = x
            made.append(self)
            count["n"] += 1
            Made.total += 1

    return lambda x: Made(x * 2).x, lambda: ([m.x for m in made], count, Made.total)


def numbers():
    count = {"n": 0}

    @dataclasses.dataclass
    class Made:
        x: torch.Tensor
        number: int = -1

        def __post_init__(self):
            self.number = count["n"]
            count["n"] += 1

    return lambda x: Made(x * 2).number + x, lambda: count


def counts_by_default():
    count = itertools.count()

    @dataclasses.dataclass
    class Made:
        x: torch.Tensor
        number: int = dataclasses.field(default_factory=lambda: next(count))

    return lambda x: Made(x * 2).number + x, lambda: None


def is_one():
    class One:
        made = None

        def __new__(cls):
            if cls.made is None:
                cls.made = super().__new__(cls)
                cls.made.total, cls.made.n = to_device(torch.ones(3)), 0
            return cls.made

    def f(x):
        one = One()
        one.n += 1
        one.total = one.total + x
        return one.total * one.n

    return f, lambda: (One.made.total, One.made.n)


def shares_attributes():
    class Alike:
        shared: dict = {}  # noqa: RUF012  # is what this is about

        def __init__(self):
            self.__dict__ = self.shared

    def f(x):
        one = Alike()
        one.n = getattr(one, "n", 0) + 1
        return x * one.n

    return f, lambda: Alike.shared


@pytest.mark.parametrize("make", [registers, numbers, counts_by_default, is_one, shares_attributes])
@session
def test_effects_of_constructors_happen_on_every_call(compile, make):
    f, seen = make()
    g = compile(f)
    for k in range(4):
        yield g(plain(3, seed=k)), seen()


class _Slotted:
    __slots__ = ("net", "w")


class _OfClass:
    w = torch.ones(3)
    parts = types.SimpleNamespace(w=torch.ones(3))

    @classmethod
    def by_class(cls, x):
        return x * cls.w


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = seeded(nn.Linear(3, 3))

    def forward(self, x):
        return self.layer(x)


class _Trainer:
    def __init__(self):
        self.algorithm = _Object(agent=_Object(net=_Net()))
        self.options = {"a": {"b": [to_device(torch.ones(3))]}}

    def step(self, x):
        return self.algorithm.agent.net(x) * self.options["a"]["b"][0]

    @torch.no_grad()
    def evaluate(self, x):
        return self.step(x)


@dataclasses.dataclass
class _Part:
    w: torch.Tensor
    following: Any = None


def _slotted() -> _Slotted:
    slotted = _Slotted()
    slotted.net, slotted.w = _Net(), to_device(torch.ones(3))
    return slotted


def _with_an_attribute(x):
    return x * _with_an_attribute.w


_with_an_attribute.w = torch.ones(3)  # type: ignore[attr-defined]

_SLOTTED, _TRAINER = _slotted(), _Trainer()

_WEAK = weakref.ref(_TRAINER)

_NETS = {"nets": [_Net(), {"k": _Net()}]}

_PARTS = _Part(torch.ones(3), _Part(torch.ones(3)))

_SET = {_Net()}

_DEFAULT = (torch.ones(3),)

PLACES = {
    "class": lambda x: x * _OfClass.w,
    "object of a class": lambda x: x * _OfClass.parts.w,
    "class method": _OfClass.by_class,
    "slot": lambda x: _SLOTTED.net(x) * _SLOTTED.w,
    "trainer": _TRAINER.step,
    "decorated": _TRAINER.evaluate,
    "partial": functools.partial(_TRAINER.step),
    "partial with an argument": functools.partial(lambda k, x: _TRAINER.step(x) * k, 2),
    "lambda": lambda x: _TRAINER.step(x),
    "weak reference": lambda x: _WEAK().step(x),  # type: ignore[union-attr]
    "modules in containers": lambda x: _NETS["nets"][0](x) * _NETS["nets"][1]["k"](x),  # type: ignore[index]
    "module in a set": lambda x: next(iter(_SET))(x),
    "dataclass": lambda x: x * _PARTS.w * _PARTS.following.w,
    "attribute of a function": _with_an_attribute,
    "default": lambda x, parts=_DEFAULT: x * parts[0],
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("f", PLACES.values(), ids=PLACES.keys())
@session(rtol=1e-5)
def test_tensors_in_classes_slots_weak_references_and_sets_are_found(compile, f):
    compiled = compile(f)
    for k in range(2):
        yield compiled(plain(2, 3, seed=k))


@pytest.mark.on_the_cpu
@session
def test_a_tensor_of_a_python_module_is_read_on_every_call(compile, monkeypatch):
    settings = types.ModuleType("aotcheck_test_settings")
    settings.w = torch.ones(3)  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "settings", settings)

    vars(settings).update(w=torch.ones(3))
    compiled = compile(lambda x: x * settings.w)
    yield compiled(plain(2, 3))
    vars(settings).update(w=_other())
    yield compiled(plain(2, 3))


def _from_it(x):
    from aotcheck_test_late import N

    return x * N


def _all_of_it(x):
    import aotcheck_test_late

    return x * aotcheck_test_late.N


class _Importing(nn.Module):
    def forward(self, x):
        import aotcheck_test_late as late

        return x * late.N * late.w


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("kind", ["from", "import", "module"])
@pytest.mark.parametrize("known", [False, True])
@session
def test_values_imported_inside_a_function_are_read_on_every_call(compile, kind, known, monkeypatch, tmp_path):
    (tmp_path / "aotcheck_test_late.py").write_text("import torch\nN = 2\nw = torch.ones(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    monkeypatch.delitem(sys.modules, "aotcheck_test_late", raising=False)
    if known:
        __import__("aotcheck_test_late")
    compiled = compile({"from": _from_it, "import": _all_of_it, "module": _Importing()}[kind])
    yield compiled(plain(2, 3))
    sys.modules["aotcheck_test_late"].N = 5  # type: ignore[attr-defined]
    yield compiled(plain(2, 3))
    sys.modules["aotcheck_test_late"].w = _other()  # type: ignore[attr-defined]
    yield compiled(plain(2, 3))


def test_types_are_told_while_threads_trace_at_once():
    def trace(n):
        return [
            aotcheck.aot_function(lambda x: x * (2 if type(x) is torch.Tensor else 3))(plain(n, k)) for k in range(1, 9)
        ]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(trace, range(1, 7)))
    assert all(torch.equal(y, plain(*y.shape) * 2) for ys in found for y in ys)
    assert "type" not in globals()
