"""Example inputs are copies that a compiler cannot tell from the arguments."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotcheck._torch import storage_key
from aotcheck.backends import Backend, with_examples
from aotcheck.backends.examples import Copies
from aotcheck.oracle import Outcome, check
from tests.meta.small import DOUBLE, MUTATES, RETURNS_A_RANDOM_NUMBER, TRAINED, VIEW


def copied(*args: Any) -> Any:
    return pytree.tree_map(Copies().of, args)


def test_leaves_views_and_histories_are_kept() -> None:
    leaf = torch.arange(6.0, requires_grad=True)
    view, made, detached = leaf[1:4], leaf * 2, leaf.detach()[2:]
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    a, (b, c), d, p, again, n = copied(leaf, [view, made], detached, parameter, leaf, 3)
    assert again is a is not leaf
    assert (a.is_leaf, a.requires_grad) == (True, True)
    assert b._base is a
    assert b.grad_fn is not None
    assert not c.is_leaf
    assert storage_key(c) != storage_key(a)
    assert (d.requires_grad, storage_key(d)) == (False, storage_key(a))
    assert (type(p), p.requires_grad, n) == (torch.nn.Parameter, False, 3)
    for one, other in ((leaf, a), (view, b), (made, c), (detached, d)):
        assert torch.equal(one, other)
        assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
        assert storage_key(one) != storage_key(other)


def test_views_without_gradients_bits_and_modes_are_kept() -> None:
    base = torch.ones(2, 3, dtype=torch.complex64)
    with torch.inference_mode():
        inference = torch.ones(3)[1:]
    b, view, conjugate, i = copied(base, base.t(), base.conj(), inference)
    assert view._base is b
    assert storage_key(conjugate) == storage_key(b)
    assert (conjugate.is_conj(), i.is_inference(), i.shape) == (True, True, (2,))
    view.fill_(5)
    assert b.eq(5).all()
    assert base.eq(1).all()


def test_a_freed_storage_stays_freed() -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    (found,) = copied(freed)
    assert (found.shape, found.untyped_storage().nbytes()) == ((4,), 0)
    assert freed.untyped_storage().nbytes() == 0


def test_a_wrapper_is_cloned() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    (found,) = copied(TwoTensor(torch.ones(2), torch.zeros(2)))
    assert type(found) is TwoTensor


def looks(fn: Callable[..., Any], examples: tuple[Any, ...]) -> Callable[..., Any]:
    """A compiler that runs the function to see what it does, and spoils what it was given."""
    fn(*examples)
    for t in pytree.tree_leaves(examples):
        if isinstance(t, torch.Tensor):
            t.detach().zero_()
    return fn


@pytest.mark.parametrize("program", [DOUBLE, MUTATES, TRAINED, VIEW, RETURNS_A_RANDOM_NUMBER])
def test_a_compiler_that_runs_the_function_on_examples_is_not_seen(program: Any) -> None:
    verdict = check(program, Backend("looks", with_examples(looks)), torch.device("cpu"))
    assert verdict.outcome is Outcome.AGREES, verdict.hard


def test_examples_are_made_of_the_first_call_alone() -> None:
    seen: list[tuple[Any, ...]] = []

    def make(fn: Callable[..., Any], examples: tuple[Any, ...]) -> Callable[..., Any]:
        seen.append(examples)
        return fn

    compiled = with_examples(make)(lambda x: x + 1)
    assert seen == []
    assert [compiled(torch.ones(n)).tolist() for n in (1, 2)] == [[2.0], [2.0, 2.0]]
    assert len(seen) == 1
