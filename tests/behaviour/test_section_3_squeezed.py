"""BEHAVIOUR 3: a lazily conjugated or negated tensor squeezed in place by a dimension, which eager does on a copy."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf

LAZY = {
    "conjugated": lambda x: x.conj(),
    "negated": lambda x: torch._neg_view(x),
    "conjugated part": lambda x: x[:, :1].conj(),
}
WITH_GAPS = {"negated with gaps": lambda x: x.conj().imag, "its transpose": lambda x: x.conj().imag.t()}
"""What is squeezed of these eager lays out anew, over what lies in the gaps."""


def quietly(write):
    with torch.no_grad():
        write()


WRITES = {
    "not written": lambda x: None,
    "written": lambda x: x.mul_(2),
    "written under no_grad": lambda x: quietly(lambda: x.mul_(2)),
    "read": lambda x: x * 2,
}
SQUEEZES = {
    "a dimension": lambda x: x.squeeze_(0),
    "dimensions": lambda x: x.squeeze_((0,)),
    "the last": lambda x: x.squeeze_(-1),
    "under no_grad": lambda x: quietly(lambda: x.squeeze_(0)),
    "twice": lambda x: x.squeeze_(0).unsqueeze_(0).squeeze_(0),
}


@pytest.mark.parametrize("then", WRITES)
@pytest.mark.parametrize("squeeze", SQUEEZES)
@pytest.mark.parametrize("first", WRITES)
@pytest.mark.parametrize("lazy", LAZY | WITH_GAPS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_squeezed_in_place(lazy, first, squeeze, then):
    def function(x):
        WRITES[first](x)
        SQUEEZES[squeeze](x)
        WRITES[then](x)
        return x, x * 3

    def session(compile):
        w = leaf(1, 2, dtype=torch.complex64)
        base = w.clone()
        x = (LAZY | WITH_GAPS)[lazy](base)
        y, z = compile(function)(x)
        yield x, y, z, x.shape, x.is_conj(), x.is_neg()
        yield attempt_later(lambda: torch.autograd.grad(z.sum().abs() + y.sum().abs(), [w], allow_unused=True))

    check_session(session)


HOOKS = {
    "on the argument": lambda x, seen: x.register_hook(seen),
    "on its node": lambda x, seen: x.grad_fn.register_prehook(lambda gradients: seen(gradients[0])),
}


@pytest.mark.parametrize("given", ["alone", "with its base"])
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("squeeze", SQUEEZES)
@pytest.mark.parametrize("first", WRITES)
@pytest.mark.parametrize("lazy", LAZY)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_the_caller_has_a_hook_on_what_is_squeezed_in_place(lazy, first, squeeze, hook, given):
    """Whatever is copied for it, the history that the argument came with leads to what it then has."""

    def function(x, *others):
        WRITES[first](x)
        SQUEEZES[squeeze](x)
        return x, x * 3, *[t * 2 for t in others]

    def session(compile):
        w, seen = leaf(1, 2, dtype=torch.complex64), []
        base = w.clone()
        x = LAZY[lazy](base)
        x.retain_grad()
        others = (base,) if given == "with its base" else ()
        hook(x, seen.append)
        results = compile(function)(x, *others)
        yield results, x.shape, x.is_conj(), x.is_neg()
        loss = sum(t.sum().abs() for t in results)
        yield attempt_later(lambda: torch.autograd.grad(loss, [w, x, base], allow_unused=True)), seen
        yield x.grad

    check_session(session)
