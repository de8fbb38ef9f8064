"""Torch.autograd.grad inside."""

import pytest
import torch
from torch import nn

from tests.behaviour.backward.common import calls
from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Same, View
from tests.behaviour.harness import agrees, attempt, attempt_later, backward, check, check_session, refuses, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import seeded


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
@session(rtol=1e-5)
def test_grad_inside_of_parameters_of_a_captured_module(compile, named, create_graph):
    net, w = seeded(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), leaf(3, seed=4)

    def f(x):
        loss = (net(x) * w).square().sum()
        parameters = dict(net.named_parameters()) if named else dict(enumerate(net.parameters()))
        gradients = torch.autograd.grad(loss, [*parameters.values(), w], create_graph=create_graph)
        following = [p - 0.5 * g for p, g in zip((*parameters.values(), w), gradients, strict=True)]
        return loss, following, sum(p.square().sum() for p in following)

    compiled = compile(f)
    for k in range(2):
        loss, following, total = compiled(plain(2, 3, seed=k))
        total.backward()
        yield loss, following, total, w.grad, [p.grad for p in net.parameters()]


@agrees(lambda: given(leaf(3)))
def test_grad_inside_of_an_argument(x):
    (g,) = torch.autograd.grad((x * x).sum(), x)
    return g * 2


def test_grad_inside_with_an_argument_computed_from_another_as_tangent_is_refused():
    def f(x, y):
        return torch.autograd.grad([y * 2], [x], [x], allow_unused=True)

    compiled = aotcheck.aot_function(f)
    x = leaf(3)
    for _ in range(2):
        assert compiled(x, leaf(3)) == f(x, leaf(3)) == (None,)
        with refuses("backward inside"):
            compiled(x, x * 3)


def test_grad_inside_with_an_unrelated_argument_as_tangent():
    def f(x, y):
        return torch.autograd.grad([x * y], [y], [x], retain_graph=True)

    calls(f, lambda: leaf(3) * 2, lambda: leaf(3, seed=1) * 3)


@session
def test_grad_inside_of_a_view_argument_by_its_base(compile):
    compiled = compile(lambda x, y: torch.autograd.grad([y * 2], [x], [y]))
    base = leaf(2, 3) * 2
    yield compiled(base, base.t())


_VIEWS = {
    "t": lambda x: x.t(),
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.transpose(-1, -2),
    "permute": lambda x: x.permute(-1, 0),
    "row": lambda x: x[-1],
    "slice": lambda x: x[:, -2:],
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x[:1].squeeze(0).squeeze(),
    "expand": lambda x: x[:1].expand(3, 2),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.as_strided((2,), (2,)),
    "split": lambda x: x.split(1)[1],
    "real": lambda x: torch.view_as_real(torch.view_as_complex(x)),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("leads", [False, True], ids=["leaf", "non-leaf"])
@session
def test_grad_inside_of_any_kind_of_view_argument_by_its_base(compile, create_graph, leads):
    def f(view, base, g):
        g = g.clone()
        (found,) = torch.autograd.grad([view], [base], [g], create_graph=create_graph)
        with torch.no_grad():
            found.add_(1)
        return g, found

    compiled = compile(f)
    for view in _VIEWS.values():
        base = leaf(2, 2)
        base = base * 2 if leads else base
        v = view(base)
        yield attempt(lambda v=v, base=base: compiled(v, base, plain(*v.shape, seed=1)))


def _only_there(x, y):
    return torch.autograd.grad((x * x).sum(), y, retain_graph=True, allow_unused=True)[0], x * 2


def _there_and_here(x, y):
    z = x * y
    (g,) = torch.autograd.grad(z, [y], torch.ones_like(z), retain_graph=True)
    return g * z


def _for_several(x, y):
    return *torch.autograd.grad((x * y).sum(), [y, x, y], retain_graph=True), x * 2


def _for_several_times(x, y):
    (g,) = torch.autograd.grad((x * 2).sum(), y, retain_graph=True, allow_unused=True)
    (h,) = torch.autograd.grad((x * x).sum(), y, retain_graph=True, allow_unused=True)
    return (x * 2, x * 3) if g is None else (g + h, x * g)


def _for_what_is_written_then(x, y):
    (g,) = torch.autograd.grad((x * 2).sum(), y, retain_graph=True, allow_unused=True)
    x.mul_(2)
    return g, x * 1


def _the_other_way(x, y):
    return torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)[0], x * 1


def _unused_here(x, y):
    return torch.autograd.grad(y.sum(), x, retain_graph=True), x * 1


_ASKED = [
    _only_there, _there_and_here, _for_several, _for_several_times, _for_what_is_written_then, _the_other_way,
    _unused_here,
]  # fmt: skip

_LED_TO = {
    "product": lambda a, b: (a * 2, a),
    "square": lambda a, b: (a * a, a),
    "non-leaf": lambda a, b: (lambda c: (c * c, c))(a * 2),
    "one of two": lambda a, b: (a * b, b),
    "keeping itself": lambda a, b: (a.exp(), a),
    "view of a custom Function": lambda a, b: (lambda c: (Same.apply(c), c))(a * 3),
    "not led to": lambda a, b: (a * 2, b * 3),
}

_VIEWS_WRITTEN = (_for_what_is_written_then, "view of a custom Function")  # refused


@pytest.mark.parametrize(("function", "led"), [(f, a) for f in _ASKED for a in _LED_TO if (f, a) != _VIEWS_WRITTEN])
@session
def test_grad_inside_through_the_callers_graph(compile, function, led):
    arguments = _LED_TO[led]

    compiled = compile(function)
    for k in range(2):
        roots, seen = [leaf(3), leaf(3, seed=1)], []
        x, y = arguments(*roots)
        if k and function is not _for_several:  # then a hook on one of them is refused
            x.register_hook(lambda g, seen=seen: (seen.append(g.clone()), g * 2)[1])
        made = attempt_later(lambda x=x, y=y: compiled(x, y))
        yield made, [r.grad for r in roots], seen
        yield attempt_later(lambda x=x: x.sum().backward()), [r.grad for r in roots], seen


def test_grad_inside_with_create_graph_through_the_callers_graph():
    def f(x, y):
        return torch.autograd.grad((x * 3).sum(), y, create_graph=True)[0] * x

    def session(compile):
        root = leaf(3)
        x = root * 2
        y = compile(f)(x, root)
        yield y
        backward([y])
        yield root.grad

    check_session(session)
    root = leaf(3)
    with refuses("requires grad"):
        aotcheck.aot_function(f)(root * root, root)


def test_grad_inside_of_a_leaf_among_arguments_connected_by_a_custom_view():
    """A custom Function's view is another way to what it is a view of, by a node that no trace has."""

    def f(x, y, v):
        (g,) = torch.autograd.grad([x], [y], [torch.ones_like(x)], retain_graph=True, allow_unused=True)
        return v * 2, g is None

    def make():
        root = leaf(2, 2)
        y = root * 2
        return given(leaf(3), y, View.apply(y), also=[root])

    check(f, make)


@agrees(lambda: given(leaf(3)))
def test_grad_inside_with_create_graph(x):
    (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    return g.sum() + (g * g)


@agrees(lambda: given(leaf(3), leaf(3, seed=1)))
def test_grad_inside_of_an_intermediate(x, w):
    y = x * w
    (g,) = torch.autograd.grad((y * y).sum(), y, retain_graph=True)
    return g * x, y
