"""Tensors that share a version counter after one of them moved: what is counted, which backward raises."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.behaviour.harness import Raised, attempt, attempt_later, backward, check_session, session, write
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import same, view_of_leaf, view_of_non_leaf


def writes_an_alias(x, alias):
    v = x[..., :1]
    alias.mul_(2)
    return [v]


def reshapes_a_part(x, alias):
    v = x[..., :1]
    part = alias.unbind()[0]
    part.squeeze_()
    return [v]


@pytest.mark.parametrize("function", [writes_an_alias, reshapes_a_part])
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_an_alias_shares_its_version_counter_with_an_argument_that_the_caller_moved(function, make, mode):
    def apart():
        (x,), roots = make(mode)
        alias = x.detach()
        x.data = x.data.clone()
        return [x, alias], roots

    same(function, apart, calls=1)


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


FUNCTIONS = [written_after, written_before, kept_by_a_custom_function, kept_by_another_result, both_written, read_only]


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
def test_a_moved_alias_shares_the_version_counter_of_its_source(function, calls):
    check(function, calls)


def written_between(w, x, n):
    y = (x * n).exp()
    w.zero_()
    return y * x


@pytest.mark.parametrize("calls", [[tied, tied], [apart, tied, apart, apart, tied]], ids=["first", "later"])
def test_a_moved_alias_shares_its_counter_where_an_argument_is_a_number(calls):
    check(written_between, calls, 1)


@session
def test_two_written_arguments_that_share_a_version_counter(compile):
    def function(v, w, x):
        y = x * w
        v.zero_()
        w.add_(1)
        return y

    compiled = compile(function)
    for ties in (False, False, False, True, False):
        w = plain(2)
        v = w.detach() if ties else plain(2)
        v.data = plain(2, seed=1)
        x = leaf(2, seed=2)
        y = compiled(v, w, x)
        yield y, v, w
        yield attempt_later(lambda y=y, x=x: torch.autograd.grad(y.sum(), x))


@session
def test_an_alias_assigned_data_in_one_call_is_written_in_the_next(compile):
    def function(w, x):
        y = Keeps.apply(x)
        w.zero_()
        w.data = y
        return y

    compiled = compile(function)
    x = leaf(2)
    w = x.detach()
    for _ in range(4):
        y = compiled(w, x)
        yield y, x, w
        yield attempt_later(lambda y=y: torch.autograd.grad(y.sum(), x))


@pytest.mark.parametrize(
    "change", [lambda y: y.unsqueeze_(0), lambda y: y.t_(), lambda y: y.set_(torch.ones(2, device=y.device))]
)
@pytest.mark.parametrize("grad", [False, True])
@session
def test_an_in_place_reshape_of_an_alias_counts_one_version(compile, change, grad):
    """Once more than that, and a view made in between would look for its history where there is none."""

    def f(x, y):
        change(y)
        view = x.t()
        x.data = plain(4)
        return view

    root = leaf(2, 3)
    x = root * 1 if grad else root
    y = x.detach()
    view = compile(f)(x, y)
    yield attempt_later(lambda: view.sum().backward()), root.grad


@session
def test_a_detached_alias_shares_the_version_counter_of_a_moved_argument(compile):
    def before(x, y):
        x.data = y
        return x.detach()

    def after(x, y):
        v = x.detach()
        v.data = y
        return v

    for body in (before, after):
        root, y = leaf(3), plain(3, seed=1)
        with torch.no_grad():
            x = root[:3]
        v = compile(body)(x, y)
        yield v, x, y
        v.zero_()
        yield v, y, attempt_later(lambda: x.is_leaf)  # noqa: B023


class _SumAndFirst(torch.autograd.Function):
    """Returns its first argument beside the sum."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y, x

    @staticmethod
    def backward(ctx, g, h):
        return g + h, g


@pytest.mark.parametrize("part", [lambda x: x.view(3), torch.detach], ids=["view", "detached"])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("moves", ["part", "whole"])
@session
def test_the_result_of_a_custom_function_shares_its_counter_with_a_set_tensor(compile, part, inside, moves):
    def f(x, y):
        x = x * 2 if inside else x
        v = part(x)
        (v if moves == "part" else x).set_()
        return _SumAndFirst.apply(v, y)[1], x

    x, y = leaf(3) * 1, leaf(0 if moves == "part" else 3)
    out = compile(f)(x, y)
    yield out, x, y
    yield attempt_later(lambda: write(out[1])), x
    yield (
        isinstance(attempt_later(lambda: out[0].is_leaf), Raised),
        isinstance(attempt_later(lambda: write(out[0])), Raised),
        x,
    )


def _swapped(a, part, z):
    torch.utils.swap_tensors(a, z * 5)
    part.data = z * 7


@pytest.mark.parametrize("part", [torch.detach, lambda a: a.view(3), lambda a: a.view(3).detach()])
@pytest.mark.parametrize(
    "leave",
    [
        lambda a, part, z: setattr(part, "data", z * 3),
        lambda a, part, z: setattr(a, "data", z * 3),
        lambda a, part, z: part.detach().set_(z * 3) if part.requires_grad else part.set_(z * 3),
        lambda a, part, z: a.set_(z * 3),
        _swapped,
    ],
    ids=["data of the part", "data of the whole", "part set", "whole set", "swapped"],
)
@pytest.mark.parametrize("grad", [False, True])
@session
def test_an_alias_made_inside_shares_its_version_counter_after_a_move(compile, part, leave, grad):
    def f(x, z):
        a = (x if grad else x.detach()) * 2
        p = part(a)
        leave(a, p, z)
        return a, p

    w = leaf(3)
    out = attempt(lambda: compile(f)(leaf(3), plain(3)))
    yield out
    for written in out if isinstance(out, tuple) else ():
        products = [t * w for t in out]
        yield attempt_later(lambda t=written: write(t)), out
        for y in products:
            yield attempt_later(lambda y=y: backward([y], inputs=[w])), w


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("written", ["argument", "alias", "alias of the alias", "first alias"])
@pytest.mark.parametrize("data", [lambda v: v.clone(), lambda v: v * 2, lambda v: v.t().clone()])
@session
def test_a_moved_alias_is_saved_and_shares_the_version_counter_of_the_argument(compile, calls, written, data):
    def f(x):
        alias = x.detach()
        alias.data = data(alias)
        return alias, alias * x

    x = leaf(2, 2)
    compiled = compile(f)
    results = [compiled(x) for _ in range(calls)]
    alias = results[-1][0]
    target = {"argument": x.detach(), "alias": alias, "alias of the alias": alias.detach()}
    target.get(written, results[0][0]).add_(1)
    yield x, results
    for _, out in results:
        yield attempt_later(lambda out=out: torch.autograd.grad(out, x, torch.ones_like(out)))
