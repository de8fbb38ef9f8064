"""BEHAVIOUR 3: arguments that are written, reshaped in place afterwards, and take histories from one another."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import Same, View
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


_VIEWED = {
    "conj": lambda z: z.conj(),
    "real": lambda z: z.real,
    "view": lambda z: z.view(2, 2),
    "transpose": lambda z: z.t(),
}


@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
@pytest.mark.parametrize("again", [lambda v: v.transpose_(0, -1), lambda v: v.transpose_(0, -1).unsqueeze_(0)])
@pytest.mark.parametrize("part", [lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x[1:]])
def test_a_view_of_a_view_is_reshaped_whose_base_was_reshaped(view, part, again):
    """Autograd makes the history of the view between them anew, on the base as it then is, and again after that."""

    def f(x, whole):
        whole.t_()
        v = part(x)
        again(v)
        return v

    def session(compile):
        z = leaf(2, 2, dtype=torch.complex64)
        whole = z.clone()
        x = view(whole)
        v = compile(f)(x, whole)
        yield v, x, whole
        weights = torch.arange(1.0, v.numel() + 1).view(v.shape)
        for t in (v, whole, x):
            sums = (v * weights).abs().square().sum()
            found = attempt_later(
                lambda sums=sums, t=t: torch.autograd.grad(sums, [t, z], allow_unused=True, retain_graph=True)
            )
            # How a gradient lies is nobody's promise.
            yield [g if g is None else g.resolve_conj().tolist() for g in found] if isinstance(found, tuple) else found

    check_session(session)


VIEWS_OF_VIEWS = {
    "a part of what is viewed": lambda x: x.view(*x.shape, 1)[:, :, 0],
    "real": lambda x: x.real,
    "expanded": lambda x: x.unsqueeze(0).expand(2, *x.shape),
}


@pytest.mark.parametrize("view", VIEWS_OF_VIEWS.values(), ids=VIEWS_OF_VIEWS.keys())
@pytest.mark.parametrize("first", [lambda x: None, lambda x: x.t_()], ids=["as it came", "reshaped before"])
@pytest.mark.parametrize("count", [0, 3])
def test_a_view_by_way_of_another_keeps_its_history_when_it_is_reshaped(count, first, view):
    """Of a window without elements autograd gives back zeros that require no grad, of other views what it is given."""

    def function(x):
        first(x)
        made = view(x)
        made.unsqueeze_(0)
        return made

    def session(compile):
        root = torch.zeros(2, count, dtype=torch.complex64, requires_grad=True)
        made = compile(function)(root.clone())
        yield root, made
        given = torch.ones_like(made).requires_grad_()
        (gradient,) = torch.autograd.grad([made], [root], [given], create_graph=True)
        yield gradient
        yield torch.autograd.grad([gradient], [given], torch.ones_like(gradient))

    check_session(session)


def _under_no_grad(x):
    with torch.no_grad():
        x.mul_(3)


UNSEEN = {
    "under no_grad": _under_no_grad,
    "by an op without a derivative": lambda x: x.logical_not_(),
    "by an alias": lambda x: x.detach().mul_(3),
    "none": lambda x: None,
    "seen": lambda x: x.mul_(3),
}


@pytest.mark.parametrize("write", [lambda x, y: x.mul_(y), lambda x, y: x.copy_(y), lambda x, y: x.t().mul_(y)])
@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0).transpose_(0, 1)])
@pytest.mark.parametrize("again", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("looked_at", [False, True])
def test_an_argument_is_written_reshaped_and_written_once_more_unseen_by_autograd(looked_at, again, reshape, write):
    """The gradient that the caller retained is that of what was written first, before it was reshaped."""

    def function(x, y):
        write(x, y)
        reshape(x)
        again(x)
        if looked_at:
            return x * 2, x[0]
        return x.sum()

    def session(compile):
        root, y = leaf(2, 2), leaf(2, 2, seed=1)
        x = root * 2
        if again is not UNSEEN["seen"]:
            x.retain_grad()
        out = compile(function)(x, y)
        yield x, out
        sum(t.sum() for t in (out if looked_at else [out])).backward()
        yield root.grad, y.grad, x.grad if x.retains_grad else None

    check_session(session)


BESIDE = {
    "a part": lambda x: x.split(1)[0],
    "a row": lambda x: x.unbind(0)[1],
    "what a Function returns": Same.apply,
    "a view of a Function's": View.apply,
    "a window": lambda x: x[:1],
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_a_view_of_what_was_reshaped_in_place_beside_another_that_the_argument_gives(beside, first):
    """The change counts as a write, after which autograd refuses to say the history of some views: it comes first."""

    def function(x):
        v = x.t()
        v.t_()
        w, y = v.t(), beside(x)
        return (y, w) if first else (w, y)

    def session(compile):
        f = compile(function)
        for _ in range(2):
            root = leaf(3, 2)
            out = f(root * 1)
            yield out
            yield torch.autograd.grad([(t * t).sum() for t in out], [root])

    check_session(session)


@pytest.mark.parametrize("first", [False, True])
def test_views_of_two_that_were_reshaped_in_place_are_made_as_these_were(first):
    def function(x):
        u = x.t()
        u.t_()
        v = x.t()
        v.t_()
        w, y = u.t(), v.split(1)[0]
        return (y, w) if first else (w, y)

    def session(compile):
        root = leaf(3, 2)
        out = compile(function)(root * 1)
        yield out
        yield torch.autograd.grad([(t * t).sum() for t in out], [root])

    check_session(session)


KINDS = {"conjugate": lambda x: x.conj(), "alias": lambda x: x.view(x.shape), "row": lambda x: x[:1]}
OTHER_DATA = {"its source": lambda x, v: x, "a copy": lambda x, v: v.detach().resolve_conj().clone()}
OF_THAT = {"transposed": lambda v: v.transpose(0, 1), "row": lambda v: v[:, :1], "unsqueezed": lambda v: v.unsqueeze(0)}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("through", [False, True], ids=["written", "written through the view"])
@pytest.mark.parametrize("of_that", OF_THAT.values(), ids=OF_THAT)
@pytest.mark.parametrize("data", OTHER_DATA.values(), ids=OTHER_DATA)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_view_of_a_view_that_is_given_other_data_is_reshaped_after_a_write(kind, data, of_that, through, both):
    """It gets the history of the write when it is reshaped, not when it was made."""

    def function(x):
        v = kind(x)
        w = of_that(v)
        v.data = data(x, v)
        (w if through else x).mul_(2)
        w.squeeze_()
        return (w, v) if both else w

    def session(compile):
        f = compile(function)
        for _ in range(2):
            root = leaf(1, 2, dtype=torch.complex64)
            x = root * 1
            results = f(x)
            yield results
            w = results[0] if both else results
            yield torch.autograd.grad(w, [x, root], torch.ones_like(w), allow_unused=True)

    check_session(session)
