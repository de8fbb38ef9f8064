"""Numbers, functions, variables and attributes with plain values that closures, defaults and globals hold: read per
call, assigned.
"""

import functools

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.entry_points.common import Holder, _Settings
from tests.behaviour.harness import attempt, check_session, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import _Object


def test_an_unbound_closure_variable_is_bound_by_the_first_call():
    def session(compile):
        def make():
            def f(x):
                nonlocal table
                try:
                    table  # raises where nothing was assigned
                except NameError:
                    table = x * 2
                return x + table

            if make is None:
                table = None
            return f, lambda: table

        f, table_of = make()
        g = compile(f)
        for k in range(3):
            yield g(plain(3, seed=k)), table_of()

    check_session(session)


@session
def test_an_attribute_that_is_a_tensor_or_another_value_is_read_on_every_call(compile):
    holder = Holder(None)

    def f(x):
        kept = holder.tensor
        if isinstance(kept, torch.Tensor):
            return x * kept
        return x * len(kept) if isinstance(kept, list) else x

    g = compile(f)
    for kept in (None, plain(3), [1, 2], "a", leaf(3), {}, None, plain(3)):
        holder.tensor = kept
        yield g(plain(3))


_in_globals = 1


def _by_helper(value):
    return lambda x: x * value()


@pytest.mark.parametrize("where", ["closure", "global", "default", "keyword", "list", "object", "helper", "partial"])
@session
def test_a_captured_number_is_read_on_every_call(compile, where: str):
    global _in_globals
    k, _in_globals, numbers, settings = 1, 1, [1], _Settings()

    def with_default(x, k=1, *, factor=1):
        return x * k * factor

    f = compile(
        {
            "closure": lambda x: x * k,
            "global": lambda x: x * _in_globals,
            "default": with_default,
            "keyword": with_default,
            "list": lambda x: x * numbers[0],
            "object": lambda x: x * settings.scale,
            "helper": _by_helper(lambda: k),
            "partial": functools.partial(lambda numbers, x: x * numbers[0], numbers),
        }[where]
    )
    for k in (1, 2, 2, 2.5, True, 1):
        _in_globals = numbers[0] = settings.scale = k
        if where == "default":
            with_default.__defaults__ = (k,)
        if where == "keyword":
            with_default.__kwdefaults__ = {"factor": k}
        yield f(plain(3, dtype=torch.int64))


@session
def test_a_captured_function_replaced_by_another_is_called(compile):
    def f(x):
        return activation(x)

    compiled = compile(f)
    for activation in (torch.relu, torch.neg, F.hardtanh, lambda x: x * 2, lambda x: x * 3):  # noqa: B007
        yield compiled(plain(3))


def test_a_captured_variable_that_the_function_counts_is_counted():
    def session(compile):
        calls, in_turn = 0, {"k": 0}

        def f(x):
            nonlocal calls
            calls += 1
            in_turn["k"] = (in_turn["k"] + 1) % 2
            return x * calls + in_turn["k"]

        compiled = compile(f)
        for _ in range(5):
            yield compiled(plain(3)), calls, in_turn["k"]

    check_session(session)


@session
def test_a_call_that_raises_counts_once_in_captured_objects(compile):
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


class _Raises:
    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


@session
def test_captured_objects_that_raise_on_every_access_do_no_harm(compile):
    odd, listed = _Raises(), [_Raises()]
    compiled = compile(lambda x: x * len(listed) if odd is not None else x)
    yield compiled(plain(3)), compiled(plain(3))
