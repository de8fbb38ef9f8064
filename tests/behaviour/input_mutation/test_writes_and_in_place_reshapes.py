"""Tensors both written and reshaped in place, in either order: values and histories."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, one_of, session
from tests.behaviour.input_mutation.common import RESHAPES
from tests.behaviour.inputs import given, given_of, leaf, non_leaf, plain
from tests.behaviour.shared import CHANGES
from tests.behaviour.wrappers import two


@agrees(lambda: given_of(plain(3, 2), lambda base: (base.t(), leaf(2, 3))))
def test_a_view_reshaped_in_place_after_a_copy_of_a_leaf_into_it(x, y):
    x.copy_(y)
    x.t_()
    return x * 2


def test_a_view_unsqueezed_in_place_is_written_along_the_new_dimension():
    def f(x):
        x.unsqueeze_(2)
        return x.index_fill_(3, torch.tensor([0], device=x.device), 0)

    def make():
        root = leaf(1, 2, dtype=torch.complex64)
        base = root * 2
        return given(torch.view_as_real(base), also=[root, base])

    check(f, make)


_AND_BACK = {
    "complex": lambda x: torch.view_as_complex(torch.view_as_real(x)),
    "reshaped between": lambda x: torch.view_as_complex(torch.view_as_real(x).view(4, 2)).view(2, 2),
    "conjugated twice": lambda x: x.conj().conj(),
    "as it is": lambda x: x,
}

_RESHAPED = {
    "beyond it": lambda x: x[0, 0].as_strided_((3,), (1,)),
    "whole": lambda x: x.view_as(x).as_strided_((3,), (1,)),
    "transposed": lambda x: x[:, :1].t_(),
    "squeezed": lambda x: x[:, :1].squeeze_(),
}


@pytest.mark.parametrize("write", [lambda v, x: v.zero_(), lambda v, x: x.mul_(2)], ids=["itself", "argument"])
@pytest.mark.parametrize("reshaped", _RESHAPED.values(), ids=_RESHAPED)
@pytest.mark.parametrize("made", _AND_BACK.values(), ids=_AND_BACK)
@pytest.mark.parametrize("inside", [False, True])
@session
def test_a_view_of_a_complex_view_chain_is_reshaped_and_written(compile, made, reshaped, write, inside):
    """Its history is then that of what the ops that made it make of the base, whatever its shape is now."""

    def f(x):
        x = made(x) if inside else x
        v = reshaped(x)
        write(v, x)
        return v

    root = plain(2, 2, dtype=torch.complex64).requires_grad_()
    x = root * 1
    v = compile(f)(x if inside else made(x))
    yield v, x
    yield attempt_later(lambda: torch.autograd.grad(v, root, torch.full_like(v, 2), retain_graph=True))
    yield torch.autograd.grad(x, root, torch.full_like(x, 3))


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:1], lambda x: x.view(-1)], ids=["t", "row", "flat"])
@pytest.mark.parametrize("retained", [False, True])
@session
def test_a_view_reshaped_between_a_recorded_and_an_unrecorded_write(compile, retained, view):
    """The last write counts nothing, so that the view keeps the history of its new shape."""

    def f(x, v):
        x.fill_(0)
        v.unsqueeze_(0)
        x.data.add_(1)

    root = leaf(2, 2)
    x = root * 1
    v = view(x)
    if retained:
        v.retain_grad()
    compile(f)(x, v)
    yield type(v.grad_fn).__name__, x, v
    (v * v).sum().backward()
    yield root.grad, v.grad if retained else None


change = one_of(CHANGES)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0), lambda v: v.as_strided_((1,), (1,))])
@agrees(lambda: given(leaf(2, 3)))
def test_a_view_reshaped_in_place_is_returned_without_its_base(x, *, change, written):
    y = x * 2
    v = y.t()
    change(v)
    if written:
        v.mul_(3)
    return v


@pytest.mark.parametrize("returned", [(0,), (1,), (0, 1)], ids=str)
@agrees(lambda: given(leaf(2, 1).clone()))
def test_views_of_a_written_argument_that_is_then_reshaped(x, *, returned):
    x.zero_()
    part = x.unbind()[0]
    several = part, part.view(1, 1)
    x.t_()
    return [several[k] for k in returned]


WRITES = {
    "once": lambda x, y: y.mul_(x),
    "twice": lambda x, y: y.mul_(2).add_(x),
    "a copy": lambda x, y: y.copy_(x),
    "a part": lambda x, y: y[0].mul_(x[1]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("reshape", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("make", [leaf, two], ids=["plain", "wrapper"])
@pytest.mark.parametrize("third", [False, True])
@session
def test_an_argument_written_from_a_written_one_is_then_reshaped(compile, write, reshape, make, third):
    """What it takes over leads to the other, and has to be attached before."""

    def f(x, y, z):
        x.mul_(2)
        write(x, y)
        reshape(y)
        if third:
            z.mul_(y[0, 0])
            z.t_()
        return y

    roots = [make(2, 2) for _ in range(3)]
    roots = [r if r.requires_grad else r.requires_grad_() for r in roots]
    args = [r.clone() for r in roots]
    y = compile(f)(*args)
    yield y, args
    for t in args:
        found = torch.autograd.grad(t.sum(), roots, allow_unused=True, retain_graph=True)
        yield [g if g is None else g.contiguous() for g in found]


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
@session
def test_an_argument_is_written_reshaped_and_written_again_outside_autograd(compile, looked_at, again, reshape, write):
    """The gradient that the caller retained is that of what was written first, before it was reshaped."""

    def function(x, y):
        write(x, y)
        reshape(x)
        again(x)
        if looked_at:
            return x * 2, x[0]
        return x.sum()

    root, y = leaf(2, 2), leaf(2, 2, seed=1)
    x = root * 2
    if again is not UNSEEN["seen"]:
        x.retain_grad()
    out = compile(function)(x, y)
    yield x, out
    sum(t.sum() for t in (out if looked_at else [out])).backward()
    yield root.grad, y.grad, x.grad if x.retains_grad else None


@pytest.mark.parametrize(
    "last", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x], ids=["t_", "unsqueeze_", "no"]
)
@pytest.mark.parametrize("write", [lambda y, v: y.copy_(v), lambda y, v: y.mul_(v)], ids=["copied", "multiplied"])
@pytest.mark.parametrize(
    "made", [lambda x: x * 2, lambda x: x[0:1], lambda x: x.unbind(0)[0]], ids=["result", "view", "part"]
)
@pytest.mark.parametrize("make", [lambda: leaf(2, 2), lambda: leaf(2, 2).clone()], ids=["leaf", "no leaf"])
@session
def test_an_argument_written_from_a_result_is_then_reshaped(compile, make, made, write, last):
    def f(x, y):
        v = made(x)
        write(y, v)
        last(y)
        return v

    x, root = make(), leaf(2, 2, seed=3)
    y = root.clone()
    v = compile(f)(x, y)
    yield v, x, y
    yield torch.autograd.grad(y.sum(), (x, root), retain_graph=True, allow_unused=True)
    yield torch.autograd.grad(v.sum(), (x, root), allow_unused=True)


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("write", [torch.Tensor.zero_, lambda t: t.mul_(2)], ids=["zero_", "mul_"])
@pytest.mark.parametrize("change", [lambda t: t.unsqueeze_(0), lambda t: t.t_()], ids=["unsqueeze_", "t_"])
@agrees(lambda size: non_leaf(size))
def test_writes_around_an_in_place_reshape_where_the_storage_grew(x, *, change, write):
    write(x)
    x.untyped_storage().resize_(64)
    change(x)
    write(x)
    return x
