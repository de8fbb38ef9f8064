"""BEHAVIOUR 5: leaves made inside that ops keep before they require grad, or that lie otherwise once they were used."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain


def made_inside(x, y):
    made = torch.ones(2) * 2
    out = x * made
    made.requires_grad_()
    return out, made


def argument(x, y):
    out = x * y
    y.requires_grad_()
    return out, y


def used_again(x, y):
    out = x * y
    y.requires_grad_()
    return out * y, y


def used_beside(x, y):
    out = x * y
    y.requires_grad_()
    return out, y * x, y


def view_of_what_stays(x, y):
    part = y.clone()[:2]
    out = x * part
    part.requires_grad_()
    return out, part


def told_twice(x, y):
    made = y.clone()
    out = x * made
    made.requires_grad_(False)
    made.requires_grad_()
    return out * 2 * made, made


def other_data(x, y):
    made = y.clone()
    out = x * made
    made.data = torch.full((2,), 3.0)
    made.requires_grad_()
    return out, made


FUNCTIONS = [made_inside, argument, used_again, used_beside, view_of_what_stays, told_twice, other_data]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_derivatives_of_a_derivative(f):
    def session(compile):
        x, y = leaf(2), plain(2, seed=1)
        out, *others = compile(f)(x, y)
        ends = [x, *others] if all(o.is_leaf for o in others) else [x, others[-1]]
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        yield first.detach(), first.requires_grad
        second = torch.autograd.grad((first**3).sum(), ends, create_graph=True, allow_unused=True)
        yield [None if g is None else g.detach() for g in second]
        known = sum([(g**2).sum() for g in second if g is not None and g.requires_grad])
        yield torch.autograd.grad(known, ends, allow_unused=True)

    check_session(session)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_told_otherwise_by_the_caller(f):
    def session(compile):
        x, y = leaf(2), plain(2, seed=1)
        out, *others = compile(f)(x, y)
        others[-1].requires_grad_(False)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        yield first.detach()
        if f in (made_inside, argument):
            return  # nothing else leads anywhere
        yield torch.autograd.grad((first**3).sum() + (x**2).sum(), x)

    check_session(session)


SHAPES = [(), (1,), (2,), (1, 2), (2, 2), (0,)]


@pytest.mark.parametrize("then", SHAPES, ids=str)
@pytest.mark.parametrize("first", SHAPES, ids=str)
@pytest.mark.parametrize("use", [lambda t: t.clone(), lambda t: t.unsqueeze(0) * 2], ids=["clone", "view"])
def test_a_leaf_made_inside_is_given_data_of_another_shape_after_it_was_used(use, first, then):
    """What its gradients arrive at was made for the shape that it had."""

    def f(x, y):
        made = x.clone().requires_grad_()
        before = use(made)
        made.data = y
        return made, before, made * 3

    def session(compile):
        made, before, after = compile(f)(plain(*first), plain(*then, seed=1))
        for t in (made, before, after):
            found = attempt_later(lambda t=t: torch.autograd.grad(t.sum(), made, retain_graph=True))
            yield t, type(found), found if isinstance(found, tuple) else found.type

    check_session(session)
