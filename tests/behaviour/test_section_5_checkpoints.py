"""BEHAVIOUR 5: checkpoints and saved-tensor hooks inside, beside what else leads to the same leaves."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import Given, backward, check, check_session, given, leaf, plain


def counts(u, w, seen):
    seen.add_(1)
    return (u * w).sin()


def draws(u, w, seen):
    return torch.rand_like(u) * u * w


def normalizes(u, w, seen):
    return F.batch_norm(u * w, seen[0], seen[1], training=True) * u


def arguments() -> Given:
    return given(leaf(4, 3), leaf(4, 3, seed=1), plain(2, 3))


@pytest.mark.parametrize("block", [counts, draws, normalizes])
@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize(
    "after", [lambda a, x, w: a * w, lambda a, x, w: (a * x).exp(), lambda a, x, w: a @ w.t()], ids=["w", "x", "mm"]
)
def test_what_leads_on_from_a_checkpoint_to_the_same_leaves_does_not_run_it_again(block, preserve, after):
    """The checkpoint's result is returned too, so what comes after it is a backward of its own."""

    def f(x, w, seen):
        a = checkpoint(lambda u, v: block(u, v, seen), x, w, use_reentrant=False, preserve_rng_state=preserve)
        return a, after(a, x, w)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, w, seen = arguments().args
            a, b = compiled(x, w, seen)
            backward([b], retain_graph=True)
            yield x, w, seen, torch.rand(1)
            backward([a, b])
            yield x, w, seen, torch.rand(1)

    check_session(session, rtol=1e-5)


def test_what_is_unpacked_is_unpacked_once():
    def f(x, w, seen):
        def unpack(t):
            seen.add_(1)
            return t

        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
            a = (x * w).tanh()
        return a, a * x

    check(f, arguments)
    check(lambda x, w, seen: f(x * 1, w * 1, seen), arguments)
