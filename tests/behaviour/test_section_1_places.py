"""BEHAVIOUR 1: tensors that a function reaches by itself are read, in every call, from where they are by then."""

from __future__ import annotations

import array
import collections
import concurrent.futures
import dataclasses
import functools
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, plain
from tests.behaviour.test_training_loops import seeded


@pytest.fixture(autouse=True)
def on_device() -> None:
    """Where tensors lie around a function has nothing to do with devices."""
    harness.set_device("cpu")


class _Object:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class _Slotted:
    __slots__ = ("net", "w")


class _OfClass:
    w = torch.ones(3)
    parts = types.SimpleNamespace(w=torch.ones(3))

    @classmethod
    def by_class(cls, x):
        return x * cls.w


def _other():
    return torch.tensor([2.0, 3.0, 5.0])


# -- containers are exchanged --------------------------------------------------------------------------


class _Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = [torch.ones(3), torch.ones(3)]
        self.pair = (torch.ones(3), 1)
        self.by_name = {"of": {"w": torch.ones(3)}}
        self.object = _Object(parts=(1, torch.ones(3)))

    def forward(self, x):
        of = self.by_name["of"]["w"]
        return x * self.several[1] * self.pair[0] * of * self.object.parts[1]


MODULE_CHANGES = {
    "list": lambda m: setattr(m, "several", [_other(), _other()]),
    "reversed": lambda m: (m.several.__setitem__(0, _other()), m.several.reverse()),
    "tuple": lambda m: setattr(m, "pair", (_other(), 1)),
    "outer": lambda m: setattr(m, "by_name", {"of": {"w": _other()}}),
    "inner": lambda m: m.by_name.update(of={"w": _other()}),
    "of an object": lambda m: setattr(m.object, "parts", (1, _other())),
    "object": lambda m: setattr(m, "object", _Object(parts=(1, _other()))),
}


@pytest.mark.parametrize("within", ["itself", "a part", "a closure"])
@pytest.mark.parametrize("change", MODULE_CHANGES.values(), ids=MODULE_CHANGES.keys())
def test_a_container_of_a_module_is_exchanged(change, within):
    def session(compile):
        m = _Kept()
        compiled = compile({"itself": m, "a part": nn.Sequential(m), "a closure": lambda x: m(x)}[within])
        for k in range(4):
            yield compiled(plain(2, 3, seed=k))
            if k in (0, 2):
                change(m)

    check_session(session)


def _of_a_list():
    parts = [torch.ones(3)]

    def change():
        nonlocal parts
        parts = [_other()]

    return (lambda x: x * parts[0]), change


def _of_a_tuple_in_a_dict():
    parts = {"k": (1, torch.ones(3))}
    return (lambda x: x * parts["k"][1]), lambda: parts.update(k=(1, _other()))


def _of_an_object():
    o = _Object(a=_Object(parts=[{"w": torch.ones(3)}]))
    return (lambda x: x * o.a.parts[0]["w"]), lambda: setattr(o.a, "parts", [{"w": _other()}])


def _of_a_deque():
    parts = collections.deque([torch.ones(3), torch.ones(3)], maxlen=2)
    return (lambda x: x * parts[-1]), lambda: parts.append(_other())


def _of_a_method():
    o = _Object(state=(torch.ones(3), torch.ones(3)))

    def step(self, x):
        return x * self.state[0]

    return types.MethodType(step, o), lambda: setattr(o, "state", (_other(), _other()))


@pytest.mark.parametrize("make", [_of_a_list, _of_a_tuple_in_a_dict, _of_an_object, _of_a_deque, _of_a_method])
def test_a_container_in_a_closure_is_exchanged(make):
    def session(compile):
        f, change = make()
        compiled = compile(f)
        for k in range(4):
            yield compiled(plain(2, 3, seed=k))
            if k in (0, 2):
                change()

    check_session(session)


@pytest.mark.parametrize("later", ["the other", "the one that is read"])
def test_a_tensor_in_two_places_goes_from_one_of_them(later):
    def session(compile):
        w = torch.ones(3)
        o = _Object(all=[w, torch.ones(3)], last=w)
        compiled = compile(lambda x: x * (o.all[0] if len(x) > 1 else o.last))
        yield compiled(plain(2, 3))
        if later == "the other":
            o.last = _other()
        else:
            o.all[0] = _other()
        yield compiled(plain(2, 3))
        yield compiled(plain(1, 3))

    check_session(session)


# -- where they may lie ----------------------------------------------------------------------------------


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = seeded(nn.Linear(3, 3))

    def forward(self, x):
        return self.layer(x)


class _Trainer:
    def __init__(self):
        self.algorithm = _Object(agent=_Object(net=_Net()))
        self.options = {"a": {"b": [torch.ones(3)]}}

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
    slotted.net, slotted.w = _Net(), torch.ones(3)
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


@pytest.mark.parametrize("f", PLACES.values(), ids=PLACES.keys())
def test_a_tensor_is_found(f):
    def session(compile):
        compiled = compile(f)
        for k in range(2):
            yield compiled(plain(2, 3, seed=k))

    check_session(session, rtol=1e-5)


def test_a_tensor_of_a_python_module(monkeypatch):
    settings = types.ModuleType("aotcheck_test_settings")
    settings.w = torch.ones(3)  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "settings", settings)

    def session(compile):
        vars(settings).update(w=torch.ones(3))
        compiled = compile(lambda x: x * settings.w)
        yield compiled(plain(2, 3))
        vars(settings).update(w=_other())
        yield compiled(plain(2, 3))

    check_session(session)


# -- imports inside ----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["from", "import", "module"])
@pytest.mark.parametrize("known", [False, True])
def test_a_value_that_is_imported_inside(kind, known, monkeypatch, tmp_path):
    (tmp_path / "aotcheck_test_late.py").write_text("import torch\nN = 2\nw = torch.ones(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def session(compile):
        monkeypatch.delitem(sys.modules, "aotcheck_test_late", raising=False)
        if known:
            __import__("aotcheck_test_late")
        compiled = compile({"from": _from_it, "import": _all_of_it, "module": _Importing()}[kind])
        yield compiled(plain(2, 3))
        sys.modules["aotcheck_test_late"].N = 5  # type: ignore[attr-defined]
        yield compiled(plain(2, 3))
        sys.modules["aotcheck_test_late"].w = _other()  # type: ignore[attr-defined]
        yield compiled(plain(2, 3))

    check_session(session)


# -- other things that hold values ---------------------------------------------------------------------------

_LOCAL = threading.local()


def _of_a_thread():
    _LOCAL.factor, _LOCAL.w = 2, torch.ones(3)

    def change():
        _LOCAL.factor = 5

    return (lambda x: x * _LOCAL.factor), change


def _of_an_array():
    numbers = array.array("f", [1.0, 2.0])
    return (lambda x: x * numbers[0] * memoryview(numbers)[1]), lambda: numbers.__setitem__(0, 5.0)


def _of_a_window():
    window = memoryview(bytearray(b"ab"))
    return (lambda x: x * window[1]), lambda: window.__setitem__(1, 3)


def _of_a_read_only_mapping():
    inner = {"factor": 2}
    mapping = types.MappingProxyType(inner)
    return (lambda x: x * mapping["factor"]), lambda: inner.update(factor=5)


@pytest.mark.parametrize("make", [_of_a_thread, _of_an_array, _of_a_window, _of_a_read_only_mapping])
def test_a_value_is_read_in_every_call(make):
    def session(compile):
        f, change = make()
        compiled = compile(f)
        for k in range(4):
            yield compiled(plain(3, seed=k))
            if k == 1:
                change()

    check_session(session)


def _an_ndarray():
    numbers = np.zeros((2, 2))[:, 0]
    return numbers, lambda: numbers.__setitem__(0, numbers[0] + 1)


def _a_structured_one():
    numbers = np.zeros(2, dtype=[("a", "i4"), ("b", "f4")])
    return numbers, lambda: numbers["a"].__setitem__(1, numbers["a"][1] + 1)


def _an_array():
    numbers = array.array("i", [0, 1])
    return numbers, lambda: numbers.append(numbers[-1] + 1)


def _a_bytearray():
    numbers = bytearray(2)
    return numbers, lambda: numbers.__setitem__(0, numbers[0] + 1)


def _a_window():
    numbers = memoryview(bytearray(2))
    return numbers, lambda: numbers.__setitem__(1, numbers[1] + 1)


def _one_in_a_dictionary():
    numbers = np.zeros(1)
    held = {"a": [numbers]}
    return numbers, lambda: held["a"][0].__iadd__(1)


def _gives(x):
    return x * 2


def _raises(x):
    raise KeyError(3)


def _captures(x):
    return x * _AROUND


_AROUND = torch.ones(3)
_ARRAYS = [_an_ndarray, _a_structured_one, _an_array, _a_bytearray, _a_window, _one_in_a_dictionary]


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("goes_on", [_gives, _raises, _captures])
@pytest.mark.parametrize("make", _ARRAYS)
def test_each_call_changes_an_array_once(make, goes_on):
    def session(compile):
        numbers, change = make()

        def f(x):
            change()
            return goes_on(x)

        compiled = compile(f)
        for k in range(10):
            yield attempt(lambda k=k: compiled(plain(3, seed=k))), bytes(numbers)

    check_session(session)


@pytest.mark.filterwarnings("ignore:aotcheck runs this function eagerly")
@pytest.mark.parametrize("make", _ARRAYS)
def test_a_refused_call_changes_no_array(make):
    numbers, change = make()

    def f(x):
        change()
        return x[x > 0]

    before = bytes(numbers)
    compiled = aotcheck.aot_function(f)
    for _ in range(2):
        with pytest.raises(aotcheck.UnsupportedError):
            compiled(plain(3))
        assert bytes(numbers) == before
    once, change_once = make()
    change_once()
    with aotcheck.patch_config(on_unsupported="eager"):
        compiled(plain(3))
    assert bytes(numbers) == bytes(once)


def test_an_array_that_changes_to_and_fro_is_compiled():
    def session(compile):
        numbers = np.zeros(1, dtype=np.int64)

        def f(x):
            numbers[0] ^= 1
            return x * int(numbers[0])

        compiled = compile(f)
        for k in range(6):
            yield compiled(plain(3, seed=k)), int(numbers[0])

    assert len(check_session(session).forwards) == 2


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("passed", [False, True])
def test_an_array_that_a_tensor_lies_in(passed):
    def session(compile):
        numbers = np.ones(2, dtype=np.float32)
        inside = torch.from_numpy(numbers)

        def f(x):
            numbers[0] += 1
            return x * 2 if passed else x * inside

        compiled = compile(f)
        for k in range(4):
            yield compiled(inside if passed else plain(2, seed=k)), numbers.tolist()

    check_session(session)


def test_values_of_several_threads():
    local = threading.local()
    compiled = aotcheck.aot_function(lambda x: x * local.factor)

    def work(factor):
        local.factor = factor
        return [compiled(plain(3)) for _ in range(3)]

    for factor in (2, 3, 2):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            found = pool.submit(work, factor).result()
        assert all(torch.equal(y, plain(3) * factor) for y in found)
