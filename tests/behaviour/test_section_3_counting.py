"""BEHAVIOUR 3: arguments that count versions together wherever they lie by now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.behaviour.harness import attempt_later, check_session, leaf, plain


def tied(*shape: int) -> list[Tensor]:
    """A leaf, and an alias of it that was given other data."""
    x = leaf(*shape)
    alias = x.detach()
    alias.data = plain(*shape, seed=1)
    return [alias, x]


def apart(*shape: int) -> list[Tensor]:
    return [plain(*shape, seed=1), leaf(*shape)]


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2


def written_after(w, x):
    y = x * x
    w.zero_()
    return y


def written_before(w, x):
    w.zero_()
    return x * x


def kept_by_a_custom_function(w, x):
    y = Keeps.apply(x)
    w.mul_(2)
    return y


def kept_by_another_result(w, x):
    y, z = x * x, x * 3
    w.zero_()
    return z, y


def both_written(w, x):
    y = x * 1
    z = y * w
    w.add_(1)
    y.mul_(2)
    return z


def read_only(w, x):
    return x * x * w


def written_between(w, x, n):
    y = (x * n).exp()
    w.zero_()
    return y * x


FUNCTIONS = [
    written_after,
    written_before,
    kept_by_a_custom_function,
    kept_by_another_result,
    both_written,
    read_only,
]


def check(function: Callable[..., Any], calls: Sequence[Callable[..., list[Tensor]]], *others: Any) -> None:
    """Each of ``calls`` makes the arguments of one."""

    def session(compile):
        compiled = compile(function)
        for make in calls:
            w, x = make(2)
            results = compiled(w, x, *others)
            results = results if isinstance(results, tuple) else (results,)
            yield results, w
            for y in results:
                yield attempt_later(lambda y=y, x=x: torch.autograd.grad(y.sum(), x, retain_graph=True))
            w.add_(1)
            yield attempt_later(lambda y=results[-1], x=x: torch.autograd.grad(y.sum(), x))

    check_session(session)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "calls",
    [[tied], [tied, apart, tied, apart], [apart, apart, apart, tied, apart, tied]],
    ids=["at once", "first", "later"],
)
def test_an_alias_given_other_data_counts_with_what_it_was_an_alias_of(function, calls):
    check(function, calls)


@pytest.mark.parametrize("calls", [[tied, tied], [apart, tied, apart, apart, tied]], ids=["first", "later"])
def test_that_is_so_beside_arguments_that_are_no_tensors(calls):
    check(written_between, calls, 1)


def test_two_written_arguments_that_count_together():
    def function(v, w, x):
        y = x * w
        v.zero_()
        w.add_(1)
        return y

    def session(compile):
        compiled = compile(function)
        for ties in (False, False, False, True, False):
            w = plain(2)
            v = w.detach() if ties else plain(2)
            v.data = plain(2, seed=1)
            x = leaf(2, seed=2)
            y = compiled(v, w, x)
            yield y, v, w
            yield attempt_later(lambda y=y, x=x: torch.autograd.grad(y.sum(), x))

    check_session(session)


def test_a_function_that_gives_an_alias_other_data_and_writes_it_in_the_next_call():
    def function(w, x):
        y = Keeps.apply(x)
        w.zero_()
        w.data = y
        return y

    def session(compile):
        compiled = compile(function)
        x = leaf(2)
        w = x.detach()
        for _ in range(4):
            y = compiled(w, x)
            yield y, x, w
            yield attempt_later(lambda y=y: torch.autograd.grad(y.sum(), x))

    check_session(session)
