""".grad and gradients that share memory with a tangent, an argument or each other."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, session
from tests.behaviour.inputs import given_of, leaf, plain


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.view(4).view(2, 2) + y,
        lambda x, y: x.t().t() - y,
        lambda x, y: torch.stack([x, y]).sum(0),
        lambda x, y: x + y,
    ],
    ids=["views", "transposed twice", "stack", "sum"],
)
@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("kind", ["leaf", "view", "plain"])
@session
def test_gradients_that_alias_their_tangent(compile, function, create_graph, kind):
    x, y = leaf(2, 2), leaf(2, 2, seed=1)
    z = compile(function)(x, y)
    held = torch.ones(2, 2, device=x.device)
    seed = held if kind == "plain" else held[:].requires_grad_() if kind == "view" else held.requires_grad_()
    gradients = torch.autograd.grad(z, [x, y], seed, create_graph=create_graph)
    yield gradients, seed, [g is seed for g in gradients]
    with torch.no_grad():
        seed.mul_(3)
    yield gradients, seed


def _through_a_view(x, g, kept):
    x.view(4).backward(g)


def _through_two_views(x, g, kept):
    (x.view(4) + x.view(4)).backward(g)


def _itself(x, g, kept):
    x.clone().view(4).backward(g)


def _as_it_is(x, g, kept):
    x.backward(g.view(2, 2))


def _of_other_strides(x, g, kept):
    x.t().reshape(4).backward(g)


def _kept_by_a_hook(x, g, kept):
    y = x.clone()
    y.register_hook(lambda gradient: kept.append(gradient))
    y.view(4).backward(g)


def _given_by_a_hook(x, g, kept):
    y = x.view(4)
    y.register_hook(lambda gradient: gradient.detach())
    y.backward(g)


def _through_both(x, g, kept):
    y = x.view(4)
    z = y.detach().requires_grad_()
    (y + z).backward(g)
    kept.append(z.grad)


_ARRIVALS = [
    _through_a_view,
    _through_two_views,
    _itself,
    _as_it_is,
    _of_other_strides,
    _kept_by_a_hook,
    _given_by_a_hook,
    _through_both,
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("arrive", _ARRIVALS, ids=lambda f: f.__name__.strip("_"))
@session
def test_the_grad_of_a_leaf_may_be_a_view_of_the_tangent_of_a_backward_inside(compile, arrive, there: bool):
    def f(x, g):
        kept: list[torch.Tensor] = []
        g = g.clone()
        arrive(x, g, kept)
        g.add_(1)
        return g, kept

    compiled = compile(f)
    for _ in range(2):
        x = leaf(2, 2)
        x.grad = plain(2, 2, seed=3) if there else None
        g, kept = compiled(x, plain(4, seed=1))
        yield x.grad, g, kept
        x.grad.mul_(2)
        yield x.grad, g, kept


@pytest.mark.parametrize("make", [lambda x: x.t(), lambda x: x[:], lambda x: x * 1], ids=["t", "slice", "no view"])
@pytest.mark.parametrize("seed", [lambda x: x, lambda x: x.detach(), lambda x: x * 2], ids=["itself", "alias", "new"])
@pytest.mark.parametrize("grad_mode", [True, False])
@session
def test_the_grad_of_the_callers_leaf_may_alias_an_argument_that_was_the_tangent(compile, make, seed, grad_mode):
    def f(x):
        x.backward(seed(x))
        x.zero_()

    root = leaf(2, 2)
    x = make(root.clone())
    with torch.set_grad_enabled(grad_mode):
        yield attempt(lambda: compile(f)(x))
    yield root.grad, x
    with torch.no_grad():
        x.add_(1)
    yield root.grad


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize("behind", [lambda x: x * 1, lambda x: x.clone()], ids=["mul", "clone"])
@session
def test_the_tangent_of_a_backward_inside_is_written_afterwards(compile, behind, returned):
    def f(x):
        y = x.sum()
        y.backward(y)
        y.zero_()
        return y if returned else None

    root = leaf(3)
    x = behind(root)
    yield compile(f)(x)
    yield root.grad, x


@pytest.mark.parametrize("part", [lambda g: g[2:], lambda g: g[3:], lambda g: g.unfold(0, 2, 2)])
@pytest.mark.parametrize("written", [True, False])
@session
def test_a_view_of_the_tangent_of_a_backward_inside_is_returned(compile, part, written):
    def f(x):
        g = torch.ones_like(x)
        x.backward(g)
        result = part(g)
        return result.zero_() if written else result

    root = leaf(3)
    result = compile(f)(root.clone())
    yield root.grad, result
    result.fill_(5)
    yield root.grad


@pytest.mark.parametrize(
    "lead", [lambda r: r[:], lambda r: r.view(4), lambda r: r * 3], ids=["slice", "view", "product"]
)
@pytest.mark.parametrize("arrive", _ARRIVALS, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("written", [False, True])
@session
def test_the_grad_of_the_callers_leaf_may_be_a_view_of_the_tangent(compile, lead, arrive, copied, written):
    def f(x, g):
        kept: list[torch.Tensor] = []
        g = g.clone() if copied else g
        arrive(x.view(2, 2), g, kept)
        if written:
            g.add_(1)
        return g, kept

    compiled = compile(f)
    for _ in range(2):
        root = leaf(2, 2)
        g, kept = compiled(lead(root), plain(4, seed=1))
        yield root, root.grad, g, kept
        root.grad.mul_(2)
        yield root.grad, g, kept


@pytest.mark.parametrize("lead", [lambda r: r[:], lambda r: r * 3], ids=["slice", "product"])
@pytest.mark.parametrize("change", [lambda g: g.add_(1), lambda g: g.resize_(1).mul_(3)], ids=["written", "resized"])
@session
def test_a_tangent_that_reached_the_callers_leaf_is_written_or_resized(compile, lead, change):
    def f(x):
        g = torch.ones_like(x)
        x.backward(g)
        change(g)

    root = leaf(4)
    compile(f)(lead(root))
    yield root, root.grad


@pytest.mark.parametrize("shrink", [lambda g: g.as_strided_((1,), (1,)), lambda g: g.resize_(0), lambda g: g[:1]])
@agrees(lambda: given_of(leaf(3), lambda root: (root * 2,)), probe=False)
def test_a_tangent_that_reached_the_callers_leaf_is_shrunk_and_returned(x, *, shrink):
    g = x.clone()
    x.backward(g)
    return shrink(g)


@session
def test_writing_the_grad_of_a_leaf_does_not_write_the_tangent(compile):
    x = leaf(3)
    tangent = plain(3, seed=2)
    compile(lambda x: x * 1)(x).backward(tangent)
    x.grad.add_(1)
    yield tangent, x


@session
def test_one_tangent_of_two_results_is_shared_with_grads_as_eager_shares_it(compile):
    x, y = leaf(3), leaf(3, seed=1)
    tangent = plain(3, seed=2)
    out = compile(lambda x, y: (x + y, y + 0))(x, y)
    torch.autograd.backward([out[0], out[1]], [tangent, tangent])
    yield tangent, x, y, x.grad, y.grad
    with torch.no_grad():
        x.grad.add_(1)
    yield tangent, x.grad, y.grad
