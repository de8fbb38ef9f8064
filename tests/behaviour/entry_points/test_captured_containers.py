"""Lists, dictionaries, sets and deques that a closure or global holds: replaced, filled, emptied, with tensors and
with plain values.
"""

import collections
import functools
import types
from collections import deque

import pytest
import torch
from torch import nn

from tests.behaviour.entry_points.common import Places
from tests.behaviour.harness import attempt, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import _Object, _only_appended_to, _other, _Slots


def test_shapes_appended_to_a_captured_list_persist():
    items = []

    def f(x):
        items.append(x.shape)
        return x * 3

    check(f, lambda: given(leaf(3)))
    assert items == [(3,)] * 2


@session
def test_a_list_argument_that_is_also_captured_is_one_list(compile):
    ours, other = [plain(3)], [plain(3, seed=1)]

    def f(items, x):
        items.append(x)
        return len(ours) * x, items is ours

    g = compile(f)
    for k, items in enumerate((ours, other, ours, other)):
        yield g(items, plain(3, seed=k)), ours, other


@session
def test_a_captured_list_of_tensors_that_grows_is_read_as_in_eager(compile):
    history = []

    def f(x):
        history.append(x * 2)
        return sum(history)

    g = compile(f)
    for k in range(12):
        yield g(plain(3, seed=k)), history


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


@pytest.mark.parametrize("way", WAYS)
@session
def test_containers_of_a_captured_object_are_filled_and_emptied_as_in_eager(compile, way):
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


def _by_a_helper():
    log = set()

    def note(what):
        log.add(what)

    def f(x):
        note(len(x))
        return x * 2

    return f, log


def _whose_length_is_read():
    log = []

    def f(x):
        log.append("called")
        return x * len(log)

    return f, log


def _read_under_another_name():
    log = []
    same = log

    def f(x):
        log.append("called")
        return x * len(same)

    return f, log


def _popped_from():
    left = [1, 2, 3]

    def f(x):
        return x * (left.pop() if left else 10)

    return f, left


def _seen_before():
    seen = set()

    def f(x):
        first = len(x) not in seen
        seen.add(len(x))
        return x * (2 if first else 3)

    return f, seen


def _the_last_few():
    last = collections.deque(maxlen=3)

    def f(x):
        last.append(len(x) + sum(last))
        return x * sum(last)

    return f, last


def _in_a_dictionary():
    history = {"calls": []}

    def f(x):
        history["calls"].append(len(x))
        return x * 2

    return f, history


def _begun_anew():
    parts = []

    def f(x):
        parts.clear()
        for k in range(len(x)):
            parts.append(k)
        return x * sum(parts)

    return f, parts


class _Logging(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = []
        self.shapes = []

    def forward(self, x):
        self.shapes.append(tuple(x.shape))
        self.log.append(len(x))
        if len(self.log) > 2:
            self.log.clear()
        return x * (1 + len(self.log))


def _of_a_module():
    net = _Logging()
    return net, (net.log, net.shapes)


GROWING = [
    _only_appended_to,
    _by_a_helper,
    _whose_length_is_read,
    _read_under_another_name,
    _popped_from,
    _seen_before,
    _the_last_few,
    _in_a_dictionary,
    _begun_anew,
    _of_a_module,
]


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("make", GROWING, ids=lambda make: make.__name__.strip("_"))
@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_captured_lists_and_sets_of_plain_values_are_written_on_every_call(compile, make):
    f, log = make()
    compiled = compile(f)
    for n in (2, 2, 3, 2, 3, 3, 2, 2, 2, 2, 2, 2):
        yield compiled(plain(n)), repr(log)


@pytest.mark.on_the_cpu
@session
def test_an_error_after_an_append_to_a_captured_list_appends_once(compile):
    log, settings = [], types.SimpleNamespace(fails=False)

    def f(x):
        log.append(len(x))
        if settings.fails:
            raise ValueError("told to")
        return x * 2

    compiled = compile(f)
    for settings.fails in (False, True, False, True):
        yield attempt(lambda: compiled(plain(3))), list(log)


def _of_a_list():
    parts = [to_device(torch.ones(3))]

    def change():
        nonlocal parts
        parts = [_other()]

    return (lambda x: x * parts[0]), change


def _of_a_tuple_in_a_dict():
    parts = {"k": (1, to_device(torch.ones(3)))}
    return (lambda x: x * parts["k"][1]), lambda: parts.update(k=(1, _other()))


def _of_an_object():
    o = _Object(a=_Object(parts=[{"w": to_device(torch.ones(3))}]))
    return (lambda x: x * o.a.parts[0]["w"]), lambda: setattr(o.a, "parts", [{"w": _other()}])


def _of_a_deque():
    parts = collections.deque([to_device(torch.ones(3)), to_device(torch.ones(3))], maxlen=2)
    return (lambda x: x * parts[-1]), lambda: parts.append(_other())


def _of_a_method():
    o = _Object(state=(to_device(torch.ones(3)), to_device(torch.ones(3))))

    def step(self, x):
        return x * self.state[0]

    return types.MethodType(step, o), lambda: setattr(o, "state", (_other(), _other()))


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("make", [_of_a_list, _of_a_tuple_in_a_dict, _of_an_object, _of_a_deque, _of_a_method])
@session
def test_a_replaced_captured_container_is_read_on_every_call(compile, make):
    f, change = make()
    compiled = compile(f)
    for k in range(4):
        yield compiled(plain(2, 3, seed=k))
        if k in (0, 2):
            change()


@session
def test_a_tensor_removed_from_a_captured_dictionary_is_not_used(compile):
    weights = {"w": leaf(3)}
    f = compile(lambda x: x * weights["w"] if "w" in weights else x)
    for _ in range(2):
        yield f(plain(3))
    w = weights.pop("w")
    yield f(plain(3))
    weights["w"] = w * 2
    yield f(plain(3))


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
@session
def test_tensors_in_captured_containers_of_every_kind_are_read_on_every_call(compile, held, where):
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
