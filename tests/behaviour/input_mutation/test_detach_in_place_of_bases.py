"""Detach_ of a tensor that has views, made before, between and afterwards."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, one_of, session
from tests.behaviour.input_mutation.common import RESHAPES
from tests.behaviour.inputs import Given, given_of, leaf, non_leaf, plain
from tests.behaviour.shared import CHANGES

change = one_of(CHANGES)


@pytest.mark.parametrize("part", [torch.view_as_real, lambda x: x.imag, lambda x: x[:1]])
@pytest.mark.parametrize("change", [lambda v: v.unsqueeze_(0), lambda v: v.squeeze_(), lambda v: v.as_strided_((), ())])
@session
def test_a_view_reshaped_in_place_before_its_base_is_detached_in_place(compile, part, change):
    def f(view, x):
        change(view)
        x.detach_()
        return view * 2

    root = leaf(1, dtype=torch.complex64)
    x = root.clone()
    view = part(x)
    y = compile(f)(view, x)
    yield x, view, y
    yield attempt_later((y.real.sum() + view.real.sum()).backward)
    yield root


def test_a_no_grad_view_whose_base_is_detached_in_place_and_moved():
    def f(x):
        with torch.no_grad():
            view = x.unsqueeze(0)
        x.detach_()
        x.data = view
        return view

    def reshaped(x):
        with torch.no_grad():
            view = x.view_as(x)
        x.detach_()
        x.squeeze_()
        return view.unsqueeze(0)

    for body in (f, reshaped):
        check(body, lambda: non_leaf(1, 2))


_VIEWS_OF_COMPLEX = {
    "imaginary": lambda x: x.imag,
    "real": lambda x: x.conj().real,
    "a part": lambda x: torch.view_as_real(x)[0],
    "reshaped": lambda x: x.imag.unsqueeze_(0),
    "window": lambda x: x[0],
    "window reshaped": lambda x: x[0].unsqueeze_(0),
}

_AFTER_CUT = {
    "nothing": lambda x: None,
    "told to require grad": lambda x: x.requires_grad_(),
    "told so and used": lambda x: x.requires_grad_() * 2,
}


@pytest.mark.parametrize("view", _VIEWS_OF_COMPLEX.values(), ids=_VIEWS_OF_COMPLEX)
@pytest.mark.parametrize("since", _AFTER_CUT.values(), ids=_AFTER_CUT)
@pytest.mark.parametrize("used", [False, True])
@session
def test_a_view_of_an_intermediate_keeps_its_history_when_the_base_is_detached(compile, used, since, view):
    """Be it told to require grad afterwards, and be the view one of a view that nobody else needs."""

    def function(x):
        made = x * (1 + 2j)
        part = view(made)
        other = part * 2 if used else None
        made.detach_()
        return part, other, since(made), made

    x = leaf(2, 2)
    part, *others = compile(function)(x)
    yield part, others
    yield torch.autograd.grad([t.sum().abs() for t in (part, others[0]) if t is not None], [x], allow_unused=True)


@agrees(lambda: non_leaf(4))
def test_detach_in_place_with_a_view_made_before(x):
    view = x[1:]
    x.detach_()
    return view, x * 2


@agrees(lambda: non_leaf(4))
def test_detach_in_place_with_a_view_made_after(x):
    x.detach_()
    return x[1:], x * 2


@agrees(lambda: non_leaf(4))
def test_detach_in_place_and_a_write_through_a_view_made_before(x):
    view = x[1:]
    x.detach_()
    view.mul_(2)
    return view * 3, x * 2


@agrees(lambda: given_of(leaf(4), lambda root: (root * 1, leaf(3, seed=1))))
def test_detach_in_place_and_a_write_through_a_view_made_after(x, w):
    x.detach_()
    x[1:].mul_(w)
    return x * 2


_SINCE = {
    "nothing": lambda x, y, view: None,
    "written": lambda x, y, view: x.mul_(2),
    "written and cut again": lambda x, y, view: x.mul_(y).detach_(),
    "told to require grad": lambda x, y, view: x.requires_grad_(),
    "told so and used": lambda x, y, view: x.requires_grad_() * 2,
    "reshaped": lambda x, y, view: x.t_(),
}

_WRITES_TO_BASE = {
    "by the view": lambda x, y, view: view.copy_(y),
    "itself": lambda x, y, view: x.copy_(y),
    "twice": lambda x, y, view: (view.copy_(y), x.mul_(2)),
    "and the view is reshaped": lambda x, y, view: (view.copy_(y), view.t_()),
}


@pytest.mark.parametrize("write", _WRITES_TO_BASE.values(), ids=_WRITES_TO_BASE)
@pytest.mark.parametrize("since", _SINCE.values(), ids=_SINCE)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("seen", [0, 1, 2])
@session
def test_detach_in_place_of_a_written_argument_whose_view_is_an_argument(compile, seen, trained, since, write):
    """The view, an argument too, keeps its history; where the base was written since, that leads nowhere."""

    def function(x, y, view):
        made = x[0] if seen == 0 else None
        write(x, y, view)
        made = x[0] if seen == 1 else made
        x.detach_()
        since(x, y, view)
        return x[0] if seen == 2 else made

    root, y = leaf(2, 2), leaf(2, 2, seed=1)
    x = root * 2 if trained else plain(2, 2, seed=2)
    view = x.t()
    made = compile(function)(x, y, view)
    yield x, view, made
    for t in (view, made):
        wanted = [y, root]
        yield attempt_later(lambda t=t, wanted=wanted: torch.autograd.grad(t.sum(), wanted, allow_unused=True))


@pytest.mark.parametrize("reshape", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("view", [lambda v: v.unsqueeze(0), lambda v: v[..., :1], lambda v: v.clone()])
@session
def test_a_view_of_a_view_reshaped_in_place_before_its_base_is_detached(compile, view, reshape):
    """To repeat the change would be one of a view of a leaf."""

    def f(x):
        base = x * 2
        part = base[:, 1:]
        reshape(part)
        base.detach_()
        return base, view(part)

    x = leaf(3, 3)
    base, out = compile(f)(x)
    yield base, out
    out.sum().backward()
    yield x.grad, attempt_later(lambda: base.add_(1)), base


PARTS = {"chunk": lambda x: x.chunk(3)[0], "unbind": lambda x: x.unbind()[0], "slice": lambda x: x[:2]}

LATER = {
    "written": lambda x, y: x.zero_(),
    "written under another name": lambda x, y: y.mul_(2),
    "written unseen": lambda x, y: x.data.mul_(2),
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("make", [leaf, non_leaf], ids=["leaf", "non-leaf"])
@session
def test_a_part_of_a_no_grad_view_whose_base_was_detached_in_place(compile, make, part, later):
    def f(x, y):
        y.detach_()
        made = PARTS[part](x)
        LATER[later](x, y)
        return made, made.view(-1), x.t()

    y = make(3)
    y = y.args[0] if isinstance(y, Given) else y
    with torch.no_grad():
        x = y.t()
    yield compile(f)(x, y), x, y
