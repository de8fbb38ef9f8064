"""What higher derivatives free, drop and check of the graphs before them."""

import functools
import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import grad

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Square
from tests.behaviour.harness import attempt_later, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import gradients


def _the_base(x, view, write):
    write(view(x))
    return x


def _an_intermediate_base(x, view, write):
    y = x.clone()
    write(view(y))
    return y


def _the_base_and_the_view(x, view, write):
    v = view(x)
    write(v)
    return x, v


def _the_view(x, view, write):
    v = view(x)
    write(v)
    return v


def _the_base_and_what_is_made_of_the_view(x, view, write):
    v = view(x)
    write(v)
    return x, v * 2


def _the_base_while_all_else_ends(x, view, write):
    v = view(x)
    write(v)
    w = (v * 2).view(-1)
    w.add_(w * 3)
    return x


_WRITES = {
    "sigmoid": lambda v: v.sigmoid_(),
    "sqrt": lambda v: v.abs_().sqrt_(),
    "square": lambda v: v.mul_(v),
    "tanh of a list": lambda v: torch._foreach_tanh_([v]),
}


@pytest.mark.parametrize(
    "results",
    [
        _the_base,
        _an_intermediate_base,
        _the_base_and_the_view,
        _the_view,
        _the_base_and_what_is_made_of_the_view,
        _the_base_while_all_else_ends,
    ],
    ids=lambda f: f.__name__.strip("_"),
)
@pytest.mark.parametrize("view", [lambda x: x.view(-1), lambda x: x[0]], ids=["view", "row"])
@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("keep", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@session(rtol=1e-5)
def test_what_second_and_third_derivatives_free_of_a_base_written_through_a_view(compile, results, view, write, keep):
    def gradients(of, to, keep, given=None):
        return attempt_later(
            lambda: torch.autograd.grad(
                [of], to, None if given is None else [given], create_graph=True, retain_graph=keep, allow_unused=True
            )
        )

    x = leaf(2, 3)
    out = compile(lambda y: results(y, view, write))(x / 8)
    root = out[0] if isinstance(out, tuple) else out
    cotangent = torch.full_like(root, 2).detach().requires_grad_()
    first = gradients(root, [x], keep[0], cotangent)
    yield out, first
    if isinstance(first, tuple) and first[0].requires_grad:
        second = gradients(first[0].sum(), [x, cotangent], keep[1])
        yield second
        if isinstance(second, tuple) and second[0] is not None and second[0].requires_grad:
            yield gradients(second[0].sum(), [x, cotangent], False)
        yield gradients(first[0].sum(), [x, cotangent], False)
    yield gradients(root, [x], False, cotangent.detach())


def test_a_written_view_and_its_base_are_freed_after_a_second_derivative():
    compiled = aotcheck.aot_function(lambda a, v: (v.exp_(), None)[1])

    def once():
        x = leaf(2, 3)
        a = x / 8
        v = a.t()
        compiled(a, v)
        (g,) = torch.autograd.grad([a.sum()], [x], create_graph=True)
        g.sum().backward(retain_graph=True)
        return weakref.ref(a), weakref.ref(v), weakref.ref(g)

    gc.collect()
    gc.disable()
    try:
        assert [r() for _ in range(2) for r in once()] == [None] * 6
    finally:
        gc.enable()


def _checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda y: (y * y).mul_(2) * y, x, use_reentrant=False)


FUNCTIONS = {
    "a product": lambda x: x * x * x,
    "a chain": lambda x: (x * x).sin(),
    "a result that is saved": lambda x: x.exp() * 2,
    "a custom Function": lambda x: Square.apply(x * x),
    "a checkpoint": _checkpointed,
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("freed", [None, 0, 1], ids=["kept", "the call's is freed", "the first derivative's is freed"])
@session
def test_a_derivative_after_the_graphs_of_lower_derivatives_were_dropped(compile, f, freed):
    x = leaf(3)
    graphs = [compile(f)(x)]
    for _ in range(2):
        graphs += grad(graphs[-1].sum(), x, create_graph=True)
    if freed is not None:
        yield attempt_later(functools.partial(grad, graphs[freed].sum(), x))
    last = graphs.pop().sum()
    graphs.clear()
    yield attempt_later(functools.partial(grad, last, x))


def square_of_exp(x):
    return torch.exp2(x) * x


def product(x):
    return x * x


ORDERS = {
    "gradient, then result": lambda y, g, h: [g, y],
    "result, then gradient": lambda y, g, h: [y, g],
    "both at once, then each": lambda y, g, h: [y.sum() + g.sum(), y, g],
    "second gradient, gradient, result": lambda y, g, h: [h, g, y],
    "result, second gradient": lambda y, g, h: [y, h],
    "all at once": lambda y, g, h: [y.sum() * g.sum() + h.sum()],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", [torch.square, square_of_exp, product, torch.neg, torch.exp2])
@session(rtol=1e-6)
def test_a_backward_frees_what_derivatives_share_with_the_forward(compile, function, order: str):
    f = compile(function)
    x = leaf(3)
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    h = None
    if g.requires_grad and g.grad_fn is not None:
        (h,) = torch.autograd.grad(g.sum(), x, create_graph=True, allow_unused=True)
    for root in ORDERS[order](y, g, g if h is None else h):
        if root.requires_grad:
            yield attempt_later(functools.partial(gradients, root, (x,)))


@session
def test_a_second_derivative_after_create_graph_without_retain_graph(compile):
    f = compile(torch.exp2)
    x = leaf(3)
    y = f(x)
    y.backward(torch.ones_like(y), create_graph=True, retain_graph=False)
    g = x.grad
    yield attempt_later(lambda: torch.autograd.grad(g.sum(), x))
    x.grad = None


_SAVED_TWICE = {
    "exp": lambda x: x.exp(),
    "sin": lambda x: x.sin(),
    "mul": lambda x: x * x,
    "cumsum": lambda x: (x * 2).cumsum(0),
    "tanh of a part": lambda x: torch.cat([x[:1].tanh(), x[1:]]),
    "exp_": lambda x: x.exp_(),
    "exp_ of a view": lambda x: (x[:].exp_(), x)[1],
}


@pytest.mark.parametrize("op", _SAVED_TWICE.values(), ids=_SAVED_TWICE)
@pytest.mark.parametrize("written", ["x", "output", "tangent", "gradient", "nothing"])
@pytest.mark.parametrize("strided", [False, True])
@session
def test_what_a_backward_with_create_graph_saves_must_not_be_written(compile, op, written, strided):
    root = leaf(3)
    x = root * 1
    out = compile(op)(x)
    tangent = plain(6)[::2].requires_grad_() if strided else leaf(3, seed=1)
    (gradient,) = torch.autograd.grad(out, root, tangent, create_graph=True)
    with torch.no_grad():
        tensors = {"x": x, "output": out, "tangent": tangent, "gradient": gradient, "nothing": plain(2)}
        tensors[written].add_(1)
    yield attempt_later(
        lambda: torch.autograd.grad(gradient, [root, tangent], plain(3), allow_unused=True, retain_graph=True)
    )


@session
def test_what_a_second_derivative_with_create_graph_saves_must_not_be_written(compile):
    root = leaf(3)
    x = root * 1
    out = compile(torch.sin)(x)
    (first,) = torch.autograd.grad(out.sum(), root, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), root, create_graph=True)
    with torch.no_grad():
        x.add_(1)
    yield attempt_later(lambda: torch.autograd.grad(second.sum(), root))


@pytest.mark.parametrize("op", [torch.relu_, torch.tanh_, torch.exp_], ids=["relu_", "tanh_", "exp_"])
@pytest.mark.parametrize("keep", [False, True])
@session
def test_a_second_derivative_by_a_mutated_argument_whose_graph_was_freed(compile, op, keep):
    root = leaf(3)
    x = root * 1
    compile(op)(x)
    (gradient,) = torch.autograd.grad(x.sum(), root, create_graph=True, retain_graph=keep)
    yield gradient
    yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root))
