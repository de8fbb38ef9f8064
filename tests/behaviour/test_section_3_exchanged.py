"""BEHAVIOUR 3: two tensors exchanged (``swap_tensors``), inside or by the caller, and what was known of either."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain

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


KEPT = {
    "by gather": lambda x: x.gather(0, torch.arange(3)),
    "a view of it": lambda x: torch.take_along_dim(x, torch.arange(3), 0),
    "another": lambda x: x.view(3, 1)[:, 0].gather(0, torch.arange(3)),
    "by index_add": lambda x: x.index_add(0, torch.arange(3), x),
    "its values": lambda x: x.sin(),
    "not": lambda x: x * 2,
    "not, written": lambda x: x.clone().mul_(2),
    "what it was copied to": lambda x: x.clone().gather(0, torch.arange(3)),
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("after_backward", [True, False], ids=["after a backward", "before one"])
def test_the_caller_exchanges_a_leaf_that_a_graph_may_keep(kept, after_backward):
    def session(compile):
        compiled = compile(KEPT[kept])
        for _ in range(2):
            x, other = leaf(3), plain(3)
            result = compiled(x)
            if after_backward:
                result.sum().backward()
            found = attempt_later(lambda x=x, other=other: torch.utils.swap_tensors(x, other))
            yield isinstance(found, Raised)  # the message has a count
            yield x.detach(), other.detach(), result

    check_session(session)
