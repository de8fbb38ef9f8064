"""BEHAVIOUR 5: views that one op writes twice: autograd gives their base both histories and them the first."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf

grad = functools.partial(torch.autograd.grad, allow_unused=True, retain_graph=True)


@pytest.mark.parametrize("after", ["", "t_", "t_ twice", "read", "base"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("write", [torch._foreach_exp_, lambda xs: torch._foreach_mul_(xs, 2.0)], ids=["exp", "mul"])
@pytest.mark.parametrize("view", [lambda a: a[1:], lambda a: a[:], lambda a: a.unsqueeze(0)[0], lambda a: a.t()])
@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("given", ["view", "both"])
def test_a_view_that_one_op_writes_twice(given, rows, view, write, times, after):
    def f(x, base=None):
        write([x] * times)
        if after.startswith("t_"):
            x.t_()
        if after == "t_ twice":
            x.t_()
        return x * 2 if after.endswith("read") else x

    def session(compile):
        root = leaf(rows, 2)
        base = root.clone()
        x = view(base)
        out = compile(f)(x) if given == "view" else compile(f)(x, base)
        for of in [[base]] if after == "base" else [[out], [base], [out, base]]:
            tangents = [torch.ones_like(t) for t in of]
            yield attempt_later(lambda of=of, tangents=tangents: grad(of, [root, base, x], tangents))
        yield out, x, base

    check_session(session)
