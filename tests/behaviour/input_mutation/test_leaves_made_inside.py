"""Leaves that the function creates (also views of what was detached), seen in results."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, backward, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain, to_device


@pytest.mark.parametrize("later", [False, True], ids=["before", "before and after"])
@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.t()], ids=["detached", "view"])
@agrees(lambda: given(plain(2, 3)))
def test_a_view_of_an_alias_made_before_the_alias_requires_grad(x, *, view, later):
    y = x.detach()
    before = view(y)
    x.t_()
    y.requires_grad_()
    return (before, view(y)) if later else before


@agrees(lambda: given(leaf(4)))
def test_requires_grad_of_a_detached_alias_of_an_input(x):
    y = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((y * y).sum(), y)
    return g * x, y


@session
def test_a_leaf_made_inside_gets_its_grad(compile):
    def f(x):
        y = (x * 2).detach().requires_grad_()
        return y, y * y

    x = leaf(3)
    y, z = compile(f)(x)
    backward([z])
    yield x, y, z, y.grad


@agrees(lambda: given(leaf(2, 3)))
def test_a_leaf_made_inside_of_which_an_alias_is_returned(x):
    y = (x * 2).detach().requires_grad_()
    return y, y.view(-1), y * 3


@agrees(lambda: given(leaf(3)))
def test_a_leaf_made_inside_is_not_returned_but_used(x):
    y = (x * 2).detach().requires_grad_()
    return y * y


@agrees(lambda: given(leaf(3)), lambda: given(plain(3)), anew=True)
def test_a_leaf_made_by_a_factory_with_requires_grad(x):
    y = torch.ones(3, device=x.device, requires_grad=True)
    return y, x * y


@agrees(lambda: given(plain(3)))
def test_a_view_made_before_an_intermediate_requires_grad(x):
    v = x.clone()
    before = v.t()
    v.requires_grad_()
    return v, before, v.t()


@pytest.mark.parametrize("make", [lambda x: x.detach(), lambda x: x * 2, lambda x: x[1:]], ids=["alias", "new", "part"])
@pytest.mark.parametrize("again", [True, False])
@session
def test_a_leaf_made_inside_stops_requiring_grad(compile, make, again):
    def f(x):
        with torch.no_grad():
            v = make(x)
        before = v[:1]
        v.requires_grad_()
        y = v * 3
        v.requires_grad_(False)
        return v, y, before, v * 2

    v, y, before, after = compile(f)(plain(3))
    yield v, y, before, after
    v.requires_grad_(again)
    backward([y])
    yield v, v.grad


@pytest.mark.parametrize(
    "out", [torch.zeros_like, lambda v: torch.zeros_like(v)[1:], lambda v: torch.zeros(2, 2, device=v.device)]
)
@agrees(lambda: (leaf(3, 3),), lambda: non_leaf(3, 3))
def test_requires_grad_of_a_no_grad_view_in_a_function_that_writes_an_out(x, *, out):
    base = x * 2
    with torch.no_grad():
        view = base[1:]
    view.requires_grad_()
    with torch.no_grad():
        written = out(view)
        torch.add(torch.ones_like(written), 1, out=written)
    return view * 1, view, written


def accumulated(w, y):
    (w**3 * y).sum().backward(create_graph=True)
    return w.grad


def assigned(w, y):
    (w.grad,) = torch.autograd.grad((w**3 * y).sum(), w, create_graph=True)
    return w.grad


def a_part(w, y):
    return accumulated(w, y)[1:]


def beside_others(w, y):
    g = accumulated(w, y)
    return g, g * w, y * 2


def of_two(w, y):
    v = y.detach().clone().requires_grad_()
    (w**2 * v**2).sum().backward(create_graph=True)
    return w.grad, v.grad * y


def put_into_an_argument(w, y):
    w.grad = y.detach()
    return w * y


LEAVES = {
    "detached": lambda x: x.detach().requires_grad_(),
    "copied": lambda x: x.detach().clone().requires_grad_(),
    "made": lambda x: torch.ones(3, requires_grad=True, device=x.device),
}


@pytest.mark.parametrize("program", [accumulated, assigned, a_part, beside_others, of_two, put_into_an_argument])
@pytest.mark.parametrize("made", LEAVES)
@pytest.mark.parametrize("create_graph", [False, True])
@session
def test_a_backward_accumulates_into_the_returned_grad_of_a_leaf_made_inside(compile, program, made, create_graph):
    compiled = compile(lambda x, y: program(LEAVES[made](x), y))
    for _ in range(2):
        x, y = plain(3), leaf(3, seed=1)
        out = compiled(x, y)
        out = out if isinstance(out, (tuple, list)) else (out,)
        backward(out[:1], retain_graph=True, create_graph=create_graph)
        yield out, x, y
        yield attempt_later(lambda out=out: backward(out)), out, x, y
        x.mul_(2)
        yield out, x, y


@session
def test_autograd_grad_does_not_accumulate_into_a_leaf_made_inside(compile):
    x, y = plain(3), leaf(3, seed=1)
    out = compile(lambda x, y: accumulated(x.detach().requires_grad_(), y))(x, y)
    yield torch.autograd.grad(out, y, to_device(torch.ones(3)), create_graph=True), out, y.grad


@session
def test_a_returned_grad_without_history_is_not_accumulated_into(compile):
    def f(x, y):
        w = x.detach().requires_grad_()
        (w**3 * y).sum().backward()
        return w.grad, x * y

    x, y = plain(3), leaf(3, seed=1)
    out = compile(f)(x, y)
    backward(out[1:])
    yield out, x, y


SHAPES = [(), (1,), (2,), (1, 2), (2, 2), (0,)]


@pytest.mark.parametrize("then", SHAPES, ids=str)
@pytest.mark.parametrize("first", SHAPES, ids=str)
@pytest.mark.parametrize("use", [lambda t: t.clone(), lambda t: t.unsqueeze(0) * 2], ids=["clone", "view"])
@session
def test_a_leaf_made_inside_is_given_data_of_another_shape_after_it_was_used(compile, use, first, then):
    """What its gradients arrive at was made for the shape that it had."""

    def f(x, y):
        made = x.clone().requires_grad_()
        before = use(made)
        made.data = y
        return made, before, made * 3

    made, before, after = compile(f)(plain(*first), plain(*then, seed=1))
    for t in (made, before, after):
        found = attempt_later(lambda t=t: torch.autograd.grad(t.sum(), made, retain_graph=True))
        yield t, type(found), found if isinstance(found, tuple) else found.type
