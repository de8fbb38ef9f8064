"""BEHAVIOUR 5: gradients of backwards that create a graph are tensors that the caller may go on with as in eager."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

PARTS = {
    "parts of a sum": lambda a, b: torch.cat([a, b]) * 3,
    "parts by way of a sine": lambda a, b: (torch.stack([a, b]) * 3).sin(),
    "parts that are transposed": lambda a, b: torch.cat([a.t(), b])[1:3].exp(),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("mode", [False, True], ids=["no_grad", "grad"])
def test_gradients_that_lie_in_one_memory_are_written(name, mode):
    def session(compile):
        a, b = leaf(2, 2), leaf(2, 2, seed=1)
        y = compile(PARTS[name])(a, b)
        seed = torch.full_like(y, 2).requires_grad_()
        gradients = torch.autograd.grad(y, [a, b], seed, create_graph=True)
        with torch.set_grad_enabled(mode):
            gradients[0].mul_(2)
        yield gradients
        seeds = [torch.ones_like(g) for g in gradients]
        yield torch.autograd.grad(gradients, [a, b, seed], seeds, allow_unused=True)

    check_session(session, rtol=1e-5)


def test_two_gradients_are_one_tensor():
    def session(compile):
        a, b = leaf(2, 2), leaf(2, 2, seed=1)
        y = compile(lambda a, b: (a + b).t() * 2)(a, b)
        seed = torch.ones_like(y).requires_grad_()
        first, second = torch.autograd.grad(y, [a, b], seed, create_graph=True)
        yield first, second, first is second
        seen = []
        first.register_hook(lambda g: seen.append(("first", g)))
        second.register_hook(lambda g: seen.append(("second", g)))
        yield torch.autograd.grad(second, [first, second, seed], torch.ones_like(second)), seen

    check_session(session)


def test_an_op_whose_result_only_a_custom_backward_reads():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, y * 2

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            return g * y, g * x + h * 2

    def session(compile):
        x, y = leaf(2, 2), leaf(2, 2, seed=1)
        z = compile(lambda x, y: Product.apply(x.max(0, keepdim=True)[0] + y, y)[1])(x, y)
        yield z, torch.autograd.grad(z, [x, y], torch.ones_like(z), create_graph=True)

    check_session(session)


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
def test_gradients_that_show_their_tangent(function, create_graph, kind):
    def session(compile):
        x, y = leaf(2, 2), leaf(2, 2, seed=1)
        z = compile(function)(x, y)
        held = torch.ones(2, 2, device=x.device)
        seed = held if kind == "plain" else held[:].requires_grad_() if kind == "view" else held.requires_grad_()
        gradients = torch.autograd.grad(z, [x, y], seed, create_graph=create_graph)
        yield gradients, seed, [g is seed for g in gradients]
        with torch.no_grad():
            seed.mul_(3)
        yield gradients, seed

    check_session(session)


# -- a view of the gradient that a custom backward makes under no_grad ------------------------------------------------

SHOWN = {
    "a view": lambda g: (g.squeeze(0), None),
    "a view of a view": lambda g: (g.squeeze(0).t().t(), None),
    "a part of a split": lambda g: (g.split(1)[0][0], None),
    "one view twice": lambda g: (g.squeeze(0),) * 2,
    "two views": lambda g: (g.squeeze(0), g[0]),
    "detached": lambda g: (g.squeeze(0).detach(), None),
    "detached beside a view": lambda g: (g.squeeze(0).detach(), g[0]),
    "beside what is made": lambda g: (g[0], torch.ones_like(g[0], memory_format=torch.contiguous_format)),
}


@pytest.mark.parametrize("way", ["grad", "backward"])
@pytest.mark.parametrize(
    ("shows", "cotangent"),
    [
        (shows, cotangent)
        for shows in SHOWN
        for cotangent in ("leaf", "no leaf", "a leaf laid out otherwise")
        if not (shows.startswith("detached") and cotangent == "a leaf laid out otherwise")  # docs/limits.md
    ],
)
def test_a_view_of_its_gradient_that_a_custom_backward_makes_under_no_grad(shows, cotangent, way):
    class Shows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return (x + y).unsqueeze(0)

        @staticmethod
        def backward(ctx, g):
            with torch.no_grad():
                return SHOWN[shows](g)

    def session(compile):
        f = compile(lambda x, y: Shows.apply(x, y))
        for _ in range(2):
            x, y = leaf(2, 2), leaf(2, 2, seed=1)
            if cotangent == "a leaf laid out otherwise":
                root = plain(1, 2, 2, seed=2).transpose(1, 2).requires_grad_()
            else:
                root = leaf(1, 2, 2, seed=2)
            c = root * 1 if cotangent == "no leaf" else root
            z = f(x, y)
            if way == "grad":
                found = torch.autograd.grad(z, [x, y], c, create_graph=True, allow_unused=True)
            else:
                z.backward(c, create_graph=True)
                found = x.grad, y.grad
            there = [g for g in found if g is not None]
            yield found, c, [(g._is_view(), g.grad_fn is None, g.is_leaf) for g in there]
            for g in there:
                yield attempt_later(lambda g=g, c=c: torch.autograd.grad(g.sum(), c, None, True, allow_unused=True))
            yield attempt_later(lambda there=there: sum(g.sum() for g in there).backward()), root

    check_session(session)
