"""BEHAVIOUR 3 and 4: views that lie elsewhere than their bases, on either side of a call, and what autograd knows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.behaviour.harness import Raised, attempt, attempt_later, check_session, leaf, plain

MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def facts(t: Tensor, others: list[Tensor]) -> Any:
    """What autograd says of ``t``; how eager refuses to say it goes by the names of nodes."""
    found = attempt(lambda: t.is_leaf)
    refused = isinstance(found, Raised)
    return (
        t.detach() if refused else t,
        "refused" if refused else found,
        t.requires_grad,
        [t._base is x for x in others],
    )


def same(function: Callable[..., Any], make: Callable[[], tuple[list[Tensor], list[Tensor]]], calls: int = 2) -> None:
    """``make`` gives arguments, and the leaves (and bases) behind them."""

    def session(compile):
        args, roots = make()
        compiled = compile(function)
        for _ in range(calls):
            outputs = attempt(lambda: compiled(*args))
            if isinstance(outputs, Raised):
                yield outputs
                return
            known = [*args, *roots]
            yield [facts(t, known) for t in [*args, *outputs]]
            for t in [*outputs, *args]:
                if t.requires_grad and (t.is_floating_point() or t.is_complex()):
                    ends = [x for x in [*roots, *args] if x.requires_grad and attempt(lambda x=x: x.is_leaf) is True]
                    g = attempt_later(
                        lambda t=t, ends=ends: torch.autograd.grad(t.sum(), ends, allow_unused=True, retain_graph=True)
                    )
                    yield "raised" if isinstance(g, Raised) else g

    check_session(session)


def view_of_leaf(mode: str = "grad", *shape: int) -> tuple[list[Tensor], list[Tensor]]:
    root = leaf(*shape or (2, 2))
    with MODES[mode]():
        return [root.t()], [root]


def view_of_non_leaf(mode: str = "grad", *shape: int) -> tuple[list[Tensor], list[Tensor]]:
    root = leaf(*shape or (2, 2))
    base = root * 1
    with MODES[mode]():
        return [base.t()], [root, base]


# -- results


def given_fresh_data(x):
    with torch.no_grad():
        v = x.view(-1)
    v.as_strided_((1,), (1,))
    v.data = torch.zeros(())
    return [v]


def view_of_what_moved_twice(x):
    x.data = x * 2
    v = x.squeeze()
    x.data = x.clone()
    return [v]


def view_made_in_inference_mode(x):
    with torch.inference_mode():
        v = x.view_as(x)
    with torch.no_grad():
        v.transpose_(0, -1)
    v.data = torch.ones(2)
    return [v]


def both_elsewhere(x):
    v = x.select(-1, -1)
    x.data = torch.ones(2, 2)
    v.data = torch.ones(2)
    return [v]


def base_made_inside_given_inference_data(x):
    base = x.exp()
    v = base.expand(2, *base.shape)
    with torch.inference_mode():
        base.data = v.clone()
    return [v]


@pytest.mark.parametrize(
    "function", [given_fresh_data, view_of_what_moved_twice, view_made_in_inference_mode, both_elsewhere]
)
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_a_result_that_left_its_base_is_its_view(function, make, mode):
    same(function, lambda: make(mode), calls=1)


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
def test_a_result_whose_base_was_given_data_of_inference_mode(shape):
    def session(compile):
        x = leaf(*shape)
        (v,) = compile(base_made_inside_given_inference_data)(x)
        yield v, v.is_leaf, torch.autograd.grad(v.sum(), x)

    check_session(session)


# -- arguments


def uses_and_writes(x):
    y = x * 2
    with torch.no_grad():
        x.zero_()
    return [y]


def views_and_sets(x):
    y = x.squeeze()
    with torch.no_grad():
        x.set_(x.view_as(x))
    return [y]


def requires_and_views(x):
    x.requires_grad_()
    return [x, x.squeeze()]


def reshapes(x):
    x.unsqueeze_(0)
    v = x.unsqueeze(0)
    with torch.no_grad():
        v.transpose_(0, 1)
    return [v]


def moves_and_writes(x):
    x.data = torch.zeros(())
    v = x.expand(2)
    x.mul_(2)
    return [v]


@pytest.mark.parametrize("function", [uses_and_writes, views_and_sets, requires_and_views, reshapes, moves_and_writes])
@pytest.mark.parametrize("data", [(), (2,), (3,)], ids=str)
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_an_argument_that_left_its_base_before_the_call(function, make, mode, data):
    def elsewhere():
        args, roots = make(mode, 2)
        args[0].data = plain(*data, seed=1)
        return args, roots

    same(function, elsewhere, calls=1)


def test_a_leaf_that_is_itself_a_view_and_was_given_other_data():
    def f(x):
        with torch.inference_mode():
            v = x.t()
        x.data = torch.ones(2)
        v.exp_()
        return [v]

    same(f, lambda: ([x := plain(4).view(2, 2).requires_grad_()], [x]))


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
@pytest.mark.parametrize("requires", [False, True])
def test_told_to_require_grad_before_it_is_given_data(shape, requires):
    def f(x):
        x.requires_grad_(requires)
        x.data = torch.ones(*shape)
        return [x.unsqueeze(0)]

    same(f, lambda: view_of_non_leaf("no_grad"), calls=1)


# -- written before the call, and not looked at since


@pytest.mark.parametrize("data", [(), (2,), (3,)], ids=str)
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_a_view_written_before_the_call_has_the_history_that_it_shows_when_it_is_looked_at(make, used, hidden, data):
    def f(x):
        if hidden:
            x.detach().mul_(2)
        x.data = torch.ones(*data)
        return [x * 2] if used else []

    def written():
        args, roots = make("grad", 2)
        with torch.no_grad():
            args[0].mul_(2)
        return args, roots

    same(f, written, calls=1)


def given_the_shape_it_had_and_written(x):
    x.data = torch.ones(2)
    x.copy_(x)
    return [x]


def given_another_shape_and_reshaped(x):
    x.data = torch.ones(1, 2)
    x.transpose_(0, -1)
    return [x]


@pytest.mark.parametrize(
    "function",
    [uses_and_writes, moves_and_writes, reshapes, given_the_shape_it_had_and_written, given_another_shape_and_reshaped],
)
@pytest.mark.parametrize("data", [(), (3,), (3, 1)], ids=str)
def test_a_non_leaf_whose_history_records_another_shape(function, data):
    def other():
        root = leaf(2)
        x = root * 1
        x.data = plain(*data, seed=1)
        return [x], [root]

    same(function, other, calls=1)


# -- version counters


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
def test_an_alias_counts_versions_with_what_left_its_storage(function, make, mode):
    def apart():
        (x,), roots = make(mode)
        alias = x.detach()
        x.data = x.data.clone()
        return [x, alias], roots

    same(function, apart, calls=1)


# -- data made in inference mode


def reshaped_in_place(x):
    with torch.inference_mode():
        x.data = x.clone()
    x.squeeze_()
    return []


def zeroed(x):
    x.zero_()
    with torch.inference_mode():
        x.data = x * 2
    return []


def written_as_one(x):
    with torch.inference_mode():
        x.data = x * 2
    x.exp_()
    return []


def split_and_cut(x):
    with torch.inference_mode():
        x.data = torch.ones(2)
    part = x.split(1)[0]
    x.detach_()
    return [part]


@pytest.mark.parametrize("function", [reshaped_in_place, zeroed, written_as_one, split_and_cut])
@pytest.mark.parametrize("mode", ["grad", "no_grad"])
@pytest.mark.parametrize("make", [view_of_leaf, view_of_non_leaf])
def test_given_data_of_inference_mode_and_called_again(function, make, mode):
    def session(compile):
        (x,), roots = make(mode, 2)
        compiled = compile(function)
        for _ in range(3):
            found = attempt(lambda: compiled(x))
            leafness = attempt(lambda: x.is_leaf)
            told = "refused" if isinstance(leafness, Raised) else leafness
            yield found, x.is_inference(), told, x.requires_grad, [x._base is r for r in roots]

    check_session(session)


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
def test_saved_and_then_given_data_of_inference_mode(shape):
    def f(x):
        y = x * x
        with torch.inference_mode():
            x.data = torch.ones(*shape)
        return y

    def session(compile):
        root = leaf(2, 2)
        x = root * 1
        y = compile(f)(x)
        yield y, x.is_inference()
        g = attempt_later(lambda: torch.autograd.grad(y.sum(), root))
        yield "raised" if isinstance(g, Raised) else g

    check_session(session)


# -- what only the trace refused


def test_a_mask_filled_with_a_complex_number():
    def f(x):
        mask = torch.logical_not(x)
        return mask.masked_fill_(mask, complex(1.0, 2.0))

    def session(compile):
        for x in (plain(3), torch.zeros(3)):
            yield compile(f)(x)

    check_session(session)


@pytest.mark.parametrize(
    "use",
    [lambda x: x.imag.zero_(), lambda x: torch.view_as_real(x).zero_(), lambda x: x[0].imag.zero_(), lambda x: x.imag],
    ids=["imag", "view_as_real", "part", "kept"],
)
def test_swapped_with_itself_after_a_part_of_it_was_written(use):
    def f(x):
        use(x)
        torch.utils.swap_tensors(x, x)
        return x

    def session(compile):
        x = plain(2, 2, dtype=torch.complex64) * 2
        found = attempt(lambda: compile(f)(x))
        yield "raised" if isinstance(found, Raised) else found

    check_session(session)
