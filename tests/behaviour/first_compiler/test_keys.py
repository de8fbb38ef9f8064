"""Dictionaries and sets with tensors as keys, beyond "the same tensor"."""

import collections
import functools
from typing import Any

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import Item, _Named, _places, seeded


@session
def test_argument_objects_are_found_as_keys_of_captured_dictionaries_and_sets(compile):
    a, b, c = (Item(plain(3, seed=k)) for k in range(3))
    table, members = {a: 2, b: 5}, {b}
    g = compile(lambda item, y: item.x * y * table.get(item, 7) + (item in members))
    for item in (a, b, c, a, b, c):
        yield g(item, plain(3))


class _Dictionary(dict):  # type: ignore[type-arg]
    pass


def _set_a_tensor(d, x):
    d[x] = x * 2
    return d[x] + 1


def _count(d, x):
    d[x] = d.get(x, 0) + 1
    return x * d[x]


def _set_a_number(d, x):
    d[x] = 1
    return x * len(d)


def _set_by_a_tuple(d, x):
    d[x, 0] = 1
    return x * len(d)


def _set_within(d, x):
    d["within"] = {x: 1}
    return x * len(d)


def _set_tensors_within(d, x):
    d["within"] = {x: x * 2}
    return x * len(d)


def _set_and_fail(d, x):
    d[x] = 1
    raise ValueError(len(d))


WRITES = {
    f.__name__: f
    for f in (_set_a_tensor, _count, _set_a_number, _set_by_a_tuple, _set_within, _set_tensors_within, _set_and_fail)
}


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, _Dictionary])
@pytest.mark.parametrize("passed", [False, True], ids=["around", "passed"])
@session
def test_items_set_by_a_tensor_have_the_callers_tensor_as_key(compile, write, kind, passed):
    d = kind()
    x, y = leaf(3), plain(3, seed=1)
    compiled = functools.partial(compile(write), d) if passed else compile(lambda t: write(d, t))
    for t in (x, x, y, x):
        result = attempt(lambda t=t: compiled(t))
        keys = [k[0] if isinstance(k, tuple) else k for k in d if type(k) is not str]
        yield result, _places(keys, x, y), _places(d.get("within", ()), x, y), len(d)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_result_dictionaries_with_tensor_keys_have_the_callers_tensors(compile):
    compiled = compile(lambda x, y: {x: x * y, y: [{x: 1}]})
    x, y = leaf(3), plain(3, seed=1)
    for _ in range(2):
        result = compiled(x, y)
        yield _places(result, x, y), result[x], _places(result[y][0], x, y)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
def test_a_refused_trace_leaves_no_tensor_keys():
    d: dict[Any, Any] = {}
    s: set[Any] = set()

    def f(x):
        d[x] = x * 2
        s.add((x, 1))
        return x[x > 0]

    compiled = aotcheck.aot_function(f)
    with pytest.raises(aotcheck.UnsupportedError):
        compiled(plain(3))
    assert not d
    assert not s


LOOKUPS = {
    "get": lambda d, x: x * d.get(x, 1.0),
    "item": lambda d, x: x * d[x],
    "in": lambda d, x: x * 2 if x in d else x * 3,
    "of keys": lambda d, x: x * len(d.keys() & {x}),
    "of a set": lambda d, x: x * 2 if x in set(d) else x * 3,
    "pop": lambda d, x: x * d.pop(x, 1.0),
    "tried": lambda d, x: _tried(d, x),
}


def _tried(d, x):
    try:
        return x * d[x]
    except Exception:  # as users do
        return x * 7


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("look_up", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("passed", [False, True], ids=["around", "passed"])
@session
def test_lookups_of_an_argument_in_a_dictionary_are_as_in_eager(compile, look_up, passed):
    x, y = leaf(3), plain(3, seed=1)
    d = {x: 5.0}
    compiled = functools.partial(compile(look_up), d) if passed else compile(lambda t: look_up(d, t))
    for t in (x, y, x):
        yield attempt(lambda t=t: type(compiled(t))), _places(d, x, y)
    d[y] = 2.0
    for t in (x, y):
        yield attempt(lambda t=t: compiled(t).detach()) if t in d else None


SETS = {
    "set": lambda *tensors: set(tensors),
    "frozenset": lambda *tensors: frozenset(tensors),
    "within a list": lambda *tensors: [frozenset(tensors)],
}


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("make", SETS.values(), ids=SETS)
@session
def test_membership_of_a_parameter_in_a_set_is_as_in_eager(compile, make):
    net = seeded(nn.Linear(2, 2))
    frozen = make(net.bias)
    members = frozen[0] if isinstance(frozen, list) else frozen

    def f(params):
        found = frozen[0] if isinstance(frozen, list) else frozen
        return [p * 0 if p in found else p * 2 for p in params]

    assert net.bias in members
    compiled = compile(f)
    for _ in range(2):
        yield compiled(list(net.parameters()))


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_captured_set_of_arguments_seen_before_is_as_in_eager(compile):
    seen: set[Any] = set()

    def f(x):
        new = x not in seen
        seen.add(x)
        return x * (2 if new else 1)

    compiled = compile(f)
    x, y = leaf(3), plain(3, seed=1)
    for t in (x, x, y, y, x):
        yield compiled(t), sorted(_places(seen, x, y))


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("kept", ["function", "hook"])
@session
def test_a_tensor_that_replaces_another_in_a_captured_set_persists(compile, kept):
    found, module = {plain(3)}, nn.Identity()

    def exchange(x):
        found.clear()
        found.add(x * 2)

    def f(x):
        exchange(x)
        return x * 3

    if kept == "hook":
        module.register_forward_hook(lambda module, args, out: exchange(out))
    compiled = compile(module if kept == "hook" else f)
    for k in range(3):
        yield compiled(plain(3, seed=k)), list(found)


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_captured_set_that_gets_tensors_later_is_read_anew(compile):
    seen: set[Any] = set()
    compiled = compile(lambda x: x * (2 if x in seen else 3))
    x = leaf(3)
    yield compiled(x)
    seen.add(x)
    yield compiled(x)


class _Collecting(_Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for p, factor in self.factors.items():
            x = x + p.detach() * factor
        return x + sum(p.sum() for p in self.parameters())


def _steps_inside():
    w = nn.Parameter(plain(3))
    optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.5)

    def f(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        return len(optimizer.state)

    return f


def _has_dictionaries_of_its_own():
    def f(x):
        factors, seen = {x: 2}, {x}
        return x * factors[x] if x in seen else x

    return f


def _logs():
    log = {plain(2)}

    def f(x):
        log.add(x)
        return x * len((1, 2))

    return f


COMPILED = {
    "a module that collects its parameters": _Collecting,
    "steps of an optimizer": _steps_inside,
    "dictionaries of its own": _has_dictionaries_of_its_own,
    "a log": _logs,
}


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
def test_tensor_keys_that_are_no_arguments_do_not_stop_compilation(make, recwarn):
    def session(compile):
        compiled = compile(make())
        for k in range(4):
            yield compiled(plain(3, seed=k))

    assert check_session(session).graphs
    assert not [w for w in recwarn if "as it is" in str(w.message)]


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
def test_tensor_keys_that_stop_compilation_are_warned_of():
    d: dict[Any, Any] = {}
    x = plain(3)

    def f(x):
        d[x] = 1
        return x * 2

    with pytest.warns(RuntimeWarning, match="has a tensor for a key") as caught:
        for _ in range(3):
            aotcheck.aot_function(f)(x)
    assert any("as it is" in str(w.message) for w in caught)
    compiled = aotcheck.aot_function(lambda x: x * d[x])
    with pytest.warns(RuntimeWarning, match="looks up a tensor") as caught:
        for _ in range(3):
            compiled(x)
    assert len(caught) == 1
