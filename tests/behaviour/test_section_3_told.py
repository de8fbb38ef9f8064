"""BEHAVIOUR 3: leaves that are views made inside, under no_grad or of what was detached, beside writes to the base."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain


def quietly(action):
    with torch.no_grad():
        return action()


WRITES = {
    "not": lambda x, v, w: None,
    "the base": lambda x, v, w: x.mul_(2),
    "the base, by what requires grad": lambda x, v, w: x.mul_(w),
    "the base, under no_grad": lambda x, v, w: quietly(lambda: x.mul_(2)),
    "the view, under no_grad": lambda x, v, w: quietly(lambda: v.mul_(3)),
}
MADE = {
    "view under no_grad": lambda x: quietly(lambda: x.view(4)),
    "part under no_grad": lambda x: quietly(lambda: x[0]),
    "detached": lambda x: x.detach(),
    "part of what was detached": lambda x: x.detach()[0],
}
ARGUMENTS = {
    "a leaf": lambda w: (torch.ones(2, 2),),
    "no leaf": lambda w: (w.clone(),),
    "detached of a leaf": lambda w: (w.detach(),),
    "a view": lambda w: (torch.ones(2, 2).view(2, 2),),
}


def leafness(t):
    try:
        return t.is_leaf, t.grad_fn is None
    except RuntimeError as error:  # of a view that was made under no_grad
        return Raised(type(error), str(error))


def same(made, told, before, after, arguments):
    def function(x, w):
        WRITES[before](x, x, w)
        v = MADE[made](x)
        if told == "at once":
            v.requires_grad_()
        part = v * 2
        if told == "later":
            v.requires_grad_()
        used = v * 3
        WRITES[after](x, v, w)
        return x, v, part, used

    def session(compile):
        w = leaf(2, 2)
        given = ARGUMENTS[arguments](w)
        results = compile(function)(*given, w)
        yield [leafness(t) for t in results]
        yield [t.requires_grad for t in results], [t.detach() for t in results]
        for t in results:
            yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [w], allow_unused=True, retain_graph=True))

    check_session(session)


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("after", WRITES)
@pytest.mark.parametrize("before", WRITES)
@pytest.mark.parametrize("told", ["at once", "later"])
@pytest.mark.parametrize("made", MADE)
def test_a_leaf_made_inside_beside_writes(made, told, before, after, arguments):
    same(made, told, before, after, arguments)


@pytest.mark.parametrize("by", ["attribute", "method"])
@pytest.mark.parametrize("order", [(0,), (1,), (0, 1), (1, 0), (0, 1, 1)])
@pytest.mark.parametrize("write", ["nothing", "base", "view", "quietly"])
def test_a_view_is_told_whose_base_was_written_and_told_before(write, order, by):
    def f(x, y):
        if write == "quietly":
            with torch.no_grad():
                x.zero_()
        elif write != "nothing":
            {"base": x, "view": y}[write].zero_()
        for t in [(x, y)[k] for k in order]:
            if by == "method":
                t.requires_grad_()
            else:
                t.requires_grad = True
        return x * 2, y * 3

    def session(compile):
        x = plain(2)
        y = x.view(2)
        results = compile(f)(x, y)
        yield x.is_leaf, y.requires_grad
        for t in results:
            if t.requires_grad:
                t.sum().backward()
        yield results, x.grad

    check_session(session)
