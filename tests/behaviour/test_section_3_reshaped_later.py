"""BEHAVIOUR 3: arguments that are written, reshaped in place afterwards, and take histories from one another."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf
from tests.behaviour.wrappers import two

WRITES = {
    "once": lambda x, y: y.mul_(x),
    "twice": lambda x, y: y.mul_(2).add_(x),
    "a copy": lambda x, y: y.copy_(x),
    "a part": lambda x, y: y[0].mul_(x[1]),
}
RESHAPES = {
    "t_": lambda y: y.t_(),
    "twice": lambda y: y.t_().unsqueeze_(0),
    "written between": lambda y: y.t_().mul_(3).t_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("reshape", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("make", [leaf, two], ids=["plain", "wrapper"])
@pytest.mark.parametrize("third", [False, True])
def test_an_argument_written_from_one_that_was_written_and_then_reshaped(write, reshape, make, third):
    """What it takes over leads to the other, and has to be attached before."""

    def f(x, y, z):
        x.mul_(2)
        write(x, y)
        reshape(y)
        if third:
            z.mul_(y[0, 0])
            z.t_()
        return y

    def session(compile):
        roots = [make(2, 2) for _ in range(3)]
        roots = [r if r.requires_grad else r.requires_grad_() for r in roots]
        args = [r.clone() for r in roots]
        y = compile(f)(*args)
        yield y, args
        for t in args:
            found = torch.autograd.grad(t.sum(), roots, allow_unused=True, retain_graph=True)
            yield [g if g is None else g.contiguous() for g in found]

    check_session(session)


@pytest.mark.parametrize("reshape", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("view", [lambda v: v.unsqueeze(0), lambda v: v[..., :1], lambda v: v.clone()])
def test_a_view_of_one_that_was_reshaped_before_its_base_was_cut(view, reshape):
    """To repeat the change would be one of a view of a leaf."""

    def f(x):
        base = x * 2
        part = base[:, 1:]
        reshape(part)
        base.detach_()
        return base, view(part)

    def session(compile):
        x = leaf(3, 3)
        base, out = compile(f)(x)
        yield base, out
        out.sum().backward()
        yield x.grad, attempt_later(lambda: base.add_(1)), base

    check_session(session)
