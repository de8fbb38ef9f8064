"""BEHAVIOUR 3: two tensors exchanged (``swap_tensors``) inside, and what was known of either before."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

GOES = {
    "emptied": lambda x: x.set_(),
    "elsewhere": lambda x: x.set_(torch.zeros(1, dtype=x.dtype)),
    "stays": lambda x: None,
}
OTHERS = {"a view": lambda v: v.t(), "a result": lambda v: v * 2}


@pytest.mark.parametrize("view", [lambda x: x.conj(), lambda x: x.t(), lambda x: x[:1]], ids=["conj", "t", "part"])
@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["written", "gone"])
def test_a_view_that_was_written_is_exchanged(view, goes, other, first):
    def f(x, v):
        steps = [lambda: v.mul_(2), lambda: GOES[goes](x)]
        for step in steps if first == "written" else steps[::-1]:
            step()
        torch.utils.swap_tensors(OTHERS[other](v), v)

    def session(compile):
        root = leaf(2, 2, dtype=torch.complex64)
        x = root.clone()
        v = view(x)
        compile(f)(x, v)
        yield x, v, root
        yield attempt_later(lambda: torch.autograd.grad(v, root, torch.ones_like(v), allow_unused=True))

    check_session(session)


@pytest.mark.parametrize("with_argument", [True, False], ids=["argument", "result"])
def test_what_a_ragged_tensor_is_made_of_was_exchanged(with_argument):
    def f(x, y):
        other = y if with_argument else y * 2
        torch.utils.swap_tensors(x, other)
        return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 0, 1]))

    def session(compile):
        x, y = plain(1, 4), plain(2, 3)
        made = compile(f)(x, y)
        yield x, y, made._values, made._values is x
        x.add_(1)
        yield x, y, made._values

    check_session(session)
