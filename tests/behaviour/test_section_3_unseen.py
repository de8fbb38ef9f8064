"""BEHAVIOUR 3: writes that autograd does not count, and data that make an inference tensor of a view."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, leaf, plain

VIEWS = {"alias": lambda x: x.view(x.shape), "row": lambda x: x[:1], "column": lambda x: x[:, :1], "t": lambda x: x.t()}
COUNTED = {"itself": lambda x: x.mul_(2), "an alias": lambda x: x.detach().add_(1), "none": lambda x: None}
UNSEEN = {"data": lambda x: x.data.add_(1), "none": lambda x: None}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
def test_a_view_of_a_quiet_view_made_between_a_write_that_counts_and_one_that_does_not(
    view, counted, unseen, grad, is_leaf
):
    def f(x):
        COUNTED[counted](x)
        made = VIEWS[view](x)
        UNSEEN[unseen](x)
        return made

    def session(compile):
        root = leaf(2, 2)
        with torch.no_grad():
            x = (root if is_leaf else root * 1).view(2, 2)
        with torch.set_grad_enabled(grad):
            out = attempt(lambda: compile(f)(x))
        yield out, x, root

    check_session(session)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
def test_a_view_of_a_quiet_view_made_before_what_that_is_made_of_gets_a_history(view, counted, twice, swapped):
    def f(x, y):
        with torch.no_grad():
            quiet = x.t()
            COUNTED[counted](x)
        made = VIEWS[view](quiet)
        made = VIEWS[view](made) if twice else made
        if swapped:
            torch.utils.swap_tensors(made, y)
        x.mul_(made if swapped else y)
        return made, quiet

    def session(compile):
        x, y = plain(2, 2), leaf(2, 2)
        out = attempt(lambda: compile(f)(x, y))
        yield out, x, y, attempt_later(lambda: torch.autograd.grad(x.sum(), y))

    check_session(session)


@pytest.mark.parametrize("view", [lambda x: x.unbind(0)[-1], lambda x: x[:1]], ids=["one of several", "part"])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["elsewhere", "there"])
@pytest.mark.parametrize("unseen", [lambda x, part: part.mul_(2), lambda x, part: x.data.mul_(2)], ids=["part", "data"])
def test_a_view_made_before_a_write_that_does_not_count_finds_the_history_of_one_that_did(view, elsewhere, unseen):
    def f(x):
        part = torch.unsafe_split(x, 1)[0]
        x.mul_(2)
        made = view(x)
        if elsewhere:
            made.data = x.clone()
        unseen(x, part)
        return made

    def session(compile):
        root = leaf(2, 2)
        out = compile(f)(root * 1)
        yield out, root
        if not elsewhere:
            yield torch.autograd.grad(out, root, torch.ones_like(out))

    check_session(session)


SOURCES = {
    "part": lambda x: x[:1],
    "last": lambda x: x.narrow(0, 1, 1),
    "result": lambda x: x * 2,
    "itself": lambda x: x,
}
THEN = {
    "emptied": lambda v, x: v.set_(),
    "set elsewhere": lambda v, x: v.set_(torch.ones(2, 2)),
    "set back": lambda v, x: v.set_(x.detach()),
    "reshaped": lambda v, x: v.unsqueeze_(0),
    "other data": lambda v, x: setattr(v, "data", torch.ones(2, 2)),
    "nothing": lambda v, x: None,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("kind", ["leaf", "no leaf", "plain"])
@pytest.mark.parametrize("grad", [True, False])
def test_a_tensor_that_data_made_an_inference_tensor_stays_one(source, then, kind, grad):
    def f(x):
        v = SOURCES[source](x)
        with torch.inference_mode():
            data = v.clone()
        v.data = data
        THEN[then](v, x)
        return v, v.is_inference()

    def session(compile):
        root = plain(2, 2) if kind == "plain" else leaf(2, 2)
        x = root * 1 if kind == "no leaf" else root
        with torch.set_grad_enabled(grad):
            out = attempt(lambda: compile(f)(x))
        yield out, x, root

    check_session(session)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("written", ["argument", "alias", "alias of the alias", "first alias"])
@pytest.mark.parametrize("data", [lambda v: v.clone(), lambda v: v * 2, lambda v: v.t().clone()])
def test_an_alias_with_other_data_is_saved_and_counts_with_the_argument(calls, written, data):
    def f(x):
        alias = x.detach()
        alias.data = data(alias)
        return alias, alias * x

    def session(compile):
        x = leaf(2, 2)
        compiled = compile(f)
        results = [compiled(x) for _ in range(calls)]
        alias = results[-1][0]
        target = {"argument": x.detach(), "alias": alias, "alias of the alias": alias.detach()}
        target.get(written, results[0][0]).add_(1)
        yield x, results
        for _, out in results:
            yield attempt_later(lambda out=out: torch.autograd.grad(out, x, torch.ones_like(out)))

    check_session(session)
