"""BEHAVIOUR 5: views that one op writes twice: autograd gives their base both histories and them the first."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

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


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("base_first", [False, True])
@pytest.mark.parametrize("by", ["leaf", "view"])
def test_a_leaf_that_is_a_view_written_with_its_base_after_that_got_a_history(by, base_first, hooked):
    def session(compile):
        x, w = plain(), leaf()
        v = x.view(()).requires_grad_()
        seen = []
        if hooked:
            v.register_hook(lambda g: seen.append(g.clone()))

        def f(x, v, w):
            x.copy_(w if by == "leaf" else v)
            y = v.clone()
            torch._foreach_neg_([x, v] if base_first else [v, x])
            return y

        y = compile(f)(x, v, w)
        for t in (y, x, v):
            yield attempt_later(lambda t=t: grad(t, [w, v], torch.ones_like(t)))
        yield y, x, v, seen

    check_session(session)
