"""BEHAVIOUR 5: backwards inside a function that go on in the caller's graph, and what that graph objects to."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt, check_session, leaf

pytestmark = pytest.mark.usefixtures("device")


def _without_grad(change):
    def f(t):
        with torch.no_grad():
            change(t)

    return f


CHANGES = {
    "transposed": lambda x: x.t_(),
    "transposed twice": lambda x: x.t_().t_(),
    "unsqueezed": lambda x: x.unsqueeze_(0),
    "under no_grad": _without_grad(lambda x: x.t_()),
    "by an alias": lambda x: x.detach().t_(),
    "by a view": lambda x: x.view(2, 2).t_(),
    "transposed and written": lambda x: x.t_().mul_(2),
    "written": lambda x: x.mul_(2),
    "not": lambda x: x,
}


def _outcome(action):
    """What is raised, or None: what the function gives then is looked at by other tests."""
    found = attempt(action)
    return (found.type, found.message) if isinstance(found, Raised) else None


@pytest.mark.parametrize("keeps", [torch.exp, torch.Tensor.clone], ids=["its result", "nothing"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_callers_graph_kept_what_changed_in_place_before_a_backward_inside(change, keeps):
    def f(x):
        change(x)
        (x * 2).backward(torch.ones_like(x))

    def session(compile):
        root = leaf(2, 2)
        yield _outcome(lambda: compile(f)(keeps(root))), root

    check_session(session)


@pytest.mark.parametrize("change", [v for k, v in CHANGES.items() if k != "transposed and written"])
@pytest.mark.parametrize("written_first", [False, True])
def test_the_callers_graph_kept_what_changes_in_place_after_a_backward_inside(change, written_first):
    def f(x, y):
        if written_first:
            y.detach().mul_(2)
        (x * 2).sum().backward(retain_graph=True)
        if not written_first or change is not CHANGES["written"]:
            change(x)

    def session(compile):
        root, other = leaf(2, 2), leaf(2, 2)
        yield _outcome(lambda: compile(f)(root.exp(), other.sigmoid())), root, other

    check_session(session)


def test_what_counts_between_two_backwards_that_go_on():
    def f(x, y):
        (x * 2).sum().backward(retain_graph=True)
        y.t_()
        (x * 3).sum().backward(retain_graph=True)
        (y * 2).sum().backward()

    def session(compile):
        root, other = leaf(2, 2), leaf(2, 2)
        yield _outcome(lambda: compile(f)(root.exp(), other.exp())), root, other

    check_session(session)


def test_a_second_call_changes_in_place_what_the_first_computed_and_kept():
    def f(x):
        x.t_()
        (x * 2).sum().backward(retain_graph=True)
        x.exp_()

    def session(compile):
        g = compile(f)
        root = leaf(2, 2)
        x = root.clone()
        for _ in range(2):
            found = attempt(lambda: g(x))
            yield isinstance(found, Raised), root

    check_session(session)
