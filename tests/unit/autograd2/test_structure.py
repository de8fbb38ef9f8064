"""Structures: what is taken apart and built again is equal, and new where eager makes a new one."""

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch

from aotcheck.autograd2.ir.structure import Leaf, ListOf, Looked, build, take_apart


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Output:
    loss: Any
    logits: Any = None


class Fields(dict):
    """A dict with attributes besides."""


class Refused(Exception):
    pass


def refuse(name):
    raise Refused(name)


def apart(x, looked=()):
    """The structure of ``x``, and its tensors in order."""
    tensors = []

    def leaf(t):
        found = [k for k, known in enumerate(tensors) if known is t]
        if not found:
            tensors.append(t)
        return found[0] if found else len(tensors) - 1

    position = {id(c): k for k, c in enumerate(looked)}
    return take_apart(x, leaf, lambda c: position.get(id(c)), refuse), tensors


A, B = torch.ones(2), torch.zeros(3)
VALUES = {
    "a tensor": A,
    "a number": 3,
    "none": None,
    "a tuple": (A, 1, "x"),
    "an empty tuple": (),
    "a list in a tuple": ([A, B], [A]),
    "a named tuple": Pair(A, [B]),
    "a dict": {"a": A, 3: {"b": B}},
    "an ordered dict": collections.OrderedDict([("b", A), ("a", B)]),
    "a default dict": collections.defaultdict(list, {"a": [A]}),
    "an object": Output(A, (B, None)),
    "a slice of sizes": (A.shape, torch.float32, torch.device("cpu")),
    "a deque": collections.deque([A, 2]),
}


def equal(a, b):
    """Whether two values are of the same types and hold the same tensors."""
    if isinstance(a, torch.Tensor):
        return a is b
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(equal, a, b))
    return equal(vars(a), vars(b)) if isinstance(a, Output) else a == b


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_is_taken_apart_is_built_again(value):
    structure, tensors = apart(value)
    assert equal(build(structure, tensors, (), {}), value)


def test_containers_that_the_function_made_are_new_in_each_call():
    structure, tensors = apart({"a": [A]})
    first, second = (build(structure, tensors, (), {}) for _ in range(2))
    assert first is not second and first["a"] is not second["a"] and first["a"][0] is A


def test_other_tensors_may_be_built_in():
    structure, _ = apart(Pair(A, {"b": B}))
    assert equal(build(structure, [B, A], (), {}), Pair(B, {"b": A}))


def test_a_tensor_that_stands_twice_is_one_leaf():
    structure, tensors = apart([A, (A, B)])
    assert [id(t) for t in tensors] == [id(A), id(B)] and structure.items == (
        Leaf(0),
        ListOf(tuple, (Leaf(0), Leaf(1))),
    )


def test_containers_of_the_caller_are_given_back_themselves():
    mine, other = [A], {"b": B}
    structure, tensors = apart((mine, other, mine), looked=(other, mine))
    brought = ({"b": A}, [B])
    built = build(structure, tensors, brought, {})
    assert built[0] is brought[1] and built[1] is brought[0] and built[2] is brought[1]
    assert tensors == [] and isinstance(structure.items[0], Looked)


def test_a_tensor_may_be_a_key():
    structure, tensors = apart({A: 1})
    assert list(build(structure, tensors, (), {})) == [A]


def test_a_default_dict_keeps_its_factory():
    structure, tensors = apart(collections.defaultdict(list, {"a": A}))
    assert build(structure, tensors, (), {})["new"] == []


def test_a_dict_of_a_class_of_the_users_keeps_items_and_attributes():
    fields = Fields(a=A)
    fields.note = [B]
    structure, tensors = apart(fields)
    made = build(structure, tensors, (), {})
    assert (type(made), dict(made), made.note) == (Fields, {"a": A}, [B])


def test_a_module_is_built_again():
    layer = torch.nn.Linear(1, 1)
    structure, tensors = apart(layer)
    made = build(structure, tensors, (), {})
    assert type(made) is torch.nn.Linear and made is not layer and made.weight is layer.weight


def test_an_object_of_torchs_is_refused_by_its_class():
    with pytest.raises(Refused, match="Adam"):
        apart(torch.optim.Adam([A]))


def test_a_structure_prints_as_python():
    structure, _ = apart({"a": [A, (B,)], "n": None})
    assert str(structure) == "{'a': [m0, (m1,)], 'n': None}"
    assert str(Leaf(3)) == "m3" and str(apart(Pair(A, 1))[0]) == "Pair(m0, 1)"
