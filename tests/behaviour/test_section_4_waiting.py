"""BEHAVIOUR 4: a view that was written, and for whose history autograd looks only when the caller asks for it."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf

VIEWS = {
    "transpose": lambda x: x.t(),
    "part": lambda x: x[:1],
    "diagonal": lambda x: x.diagonal(),
    "real part": lambda x: x.real,
    "conjugate": lambda x: x.conj(),
    "view of a view": lambda x: x.t()[1:],
}


def quietly(write):
    with torch.no_grad():
        write()


WRITES = {
    "its base": lambda x, v: x.mul_(2),
    "itself": lambda x, v: v.mul_(2),
    "under no_grad": lambda x, v: quietly(lambda: x.mul_(2)),
    "its base, then looked at": lambda x, v: (x.mul_(2), v.grad_fn),
    "its base, then used, then its base": lambda x, v: (x.mul_(2), v * 2, x.mul_(2)),
}
LATER = {
    "nothing": lambda x, v: None,
    "other data": lambda x, v: setattr(v, "data", torch.ones(7, dtype=v.dtype)),
    "the base's data": lambda x, v: setattr(v, "data", x.detach()),
    "a look under no_grad": lambda x, v: quietly(lambda: v.grad_fn),
    "the base is transposed": lambda x, v: quietly(lambda: x.t_()),
    "the base is written": lambda x, v: x.mul_(2),
    "it is written": lambda x, v: v.mul_(2),
    "the base is cut": lambda x, v: x.detach_(),
    "the base goes elsewhere": lambda x, v: quietly(lambda: x.set_(torch.ones(5, dtype=x.dtype))),
}


def of_argument(view, write):
    def function(x):
        v = view(x)
        write(x, v)
        return x, v

    return function, lambda w: (w.clone(),)


def of_view_argument(view, write):
    return of_argument(view, write)[0], lambda w: (w.clone()[:],)


def of_what_is_made_inside(view, write):
    function = of_argument(view, write)[0]
    return lambda w: function(w.clone()), lambda w: (w,)


def of_view_made_inside(view, write):
    function = of_argument(view, write)[0]
    return lambda x: function(x.view_as(x)), lambda w: (w.clone(),)


def as_argument(view, write):
    def function(x, v):
        write(x, v)
        return x, v

    def given(w):
        x = w.clone()
        return x, view(x)

    return function, given


def leafness(t):
    found = attempt_later(lambda: (t.is_leaf, t.requires_grad, t.grad_fn is not None))
    return "refused" if isinstance(found, Raised) else found  # the message names nodes


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "where", [of_argument, of_view_argument, of_what_is_made_inside, of_view_made_inside, as_argument]
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_view_that_was_written_and_not_looked_at_since(view, write, where, mode):
    function, given = where(VIEWS[view], WRITES[write])

    def session(compile):
        compiled = compile(function)
        for later in LATER.values():
            w = leaf(2, 2, dtype=torch.complex64)
            with mode():
                x, v = compiled(*given(w))
            yield isinstance(attempt_later(lambda x=x, v=v, later=later: later(x, v)), Raised)
            yield [leafness(t) for t in (v, v, x)]
            total = attempt_later(lambda x=x, v=v: (v * 3).abs().sum() + (x * 2).abs().sum())
            found = attempt_later(lambda total=total, w=w: torch.autograd.grad(total, w))
            yield "raised" if isinstance(found, Raised) else found

    check_session(session)
