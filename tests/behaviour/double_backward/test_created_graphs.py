"""What gradients of a created graph are."""

import pytest
import torch

from tests.behaviour.harness import session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import INF, numbers

PARTS = {
    "parts of a sum": lambda a, b: torch.cat([a, b]) * 3,
    "parts by way of a sine": lambda a, b: (torch.stack([a, b]) * 3).sin(),
    "parts that are transposed": lambda a, b: torch.cat([a.t(), b])[1:3].exp(),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("mode", [False, True], ids=["no_grad", "grad"])
@session(rtol=1e-5)
def test_gradients_that_share_a_storage_are_written_by_the_caller(compile, name, mode):
    a, b = leaf(2, 2), leaf(2, 2, seed=1)
    y = compile(PARTS[name])(a, b)
    seed = torch.full_like(y, 2).requires_grad_()
    gradients = torch.autograd.grad(y, [a, b], seed, create_graph=True)
    with torch.set_grad_enabled(mode):
        gradients[0].mul_(2)
    yield gradients
    seeds = [torch.ones_like(g) for g in gradients]
    yield torch.autograd.grad(gradients, [a, b, seed], seeds, allow_unused=True)


@session
def test_two_gradients_are_one_tensor(compile):
    a, b = leaf(2, 2), leaf(2, 2, seed=1)
    y = compile(lambda a, b: (a + b).t() * 2)(a, b)
    seed = torch.ones_like(y).requires_grad_()
    first, second = torch.autograd.grad(y, [a, b], seed, create_graph=True)
    yield first, second, first is second
    seen = []
    first.register_hook(lambda g: seen.append(("first", g)))
    second.register_hook(lambda g: seen.append(("second", g)))
    yield torch.autograd.grad(second, [first, second, seed], torch.ones_like(second)), seen


@session
def test_a_second_derivative_by_the_tangent_where_the_gradient_is_the_tangent(compile):
    x = leaf(3)
    y = compile(lambda x: x + 1)(x)
    tangent = leaf(3, seed=2)
    (g,) = torch.autograd.grad(y, x, tangent, create_graph=True)
    yield g
    yield torch.autograd.grad((g * g).sum(), tangent)


@pytest.mark.parametrize(
    "cast", [lambda x: x.double(), lambda x: x.real, lambda x: x.abs()], ids=["cast", "real", "abs"]
)
@pytest.mark.parametrize(
    "use", [lambda v: v.sin() * INF, lambda v: v * v, lambda v: v.exp()], ids=["sin", "square", "exp"]
)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@session
def test_a_real_result_and_its_gradient_are_differentiated_by_a_complex_leaf(compile, cast, use):
    for parts in ((0, 1, -2), (INF, 2, 0)):
        x = numbers(*parts)
        y = compile(lambda x: use(cast(x)))(x)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        yield g
        yield torch.autograd.grad([y, g], x, [torch.full_like(y, INF), torch.ones_like(g)])


def difference(a, b):
    return (a - b).sin()


def through_complex(a, b):
    return (a + b.to(a.dtype)).t() * 2


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float32), (torch.complex64, torch.float32)], ids=["real", "complex"]
)
@pytest.mark.parametrize("function", [difference, through_complex], ids=["difference", "through complex"])
@session
def test_a_gradient_that_is_computed_from_another_gradient(compile, function, dtypes):
    a, b = (plain(2, 2, seed=k).to(dtype).requires_grad_() for k, dtype in enumerate(dtypes))
    y = compile(function)(a, b)
    seed = torch.full_like(y, 2).requires_grad_()
    ga, gb = torch.autograd.grad(y, [a, b], seed, create_graph=True)
    seen = []
    ga.register_hook(lambda g: seen.append(("first", g)))
    gb.register_hook(lambda g: seen.append(("second", g)))
    yield torch.autograd.grad(gb, [ga, gb, seed], torch.ones_like(gb), allow_unused=True, retain_graph=True)
    yield torch.autograd.grad(ga, [ga, gb, seed], torch.ones_like(ga), allow_unused=True, retain_graph=True)
    cotangents = [torch.full_like(g, INF) for g in (ga, gb)]
    yield torch.autograd.grad([ga, gb], [seed, a], cotangents, allow_unused=True), seen


@session
def test_hooks_on_gradients_of_a_created_graph(compile):
    a, b = plain(3).requires_grad_(), plain(3, seed=1).requires_grad_()
    y = compile(lambda a, b: ((a - b) * (a + b)).sin())(a, b)
    gradients = torch.autograd.grad(y, [a, b], torch.ones_like(y), create_graph=True)
    seen = []
    for k, g in enumerate(gradients):
        g.register_hook(lambda grad, k=k: seen.append((k, grad)))
    for g in gradients:
        yield torch.autograd.grad(g.sum(), [a, b], retain_graph=True)
    yield seen


@session
def test_grad_with_and_without_create_graph_on_one_function(compile):
    f = compile(lambda x, w: (x * w * w).sum())
    for create in (False, True, False, True):
        x, w = leaf(3), leaf(3, seed=1)
        (g,) = torch.autograd.grad(f(x, w), x, create_graph=create)
        yield g
        if create:
            g.sum().backward()
        yield x, w
