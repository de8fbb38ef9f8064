"""BEHAVIOUR 5: nodes that a backward comes by without a gradient."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf


class Materializing(torch.autograd.Function):
    """Two results; given no gradient at all it is given zeros, if it wants that."""

    @staticmethod
    def forward(ctx, x, materializes):
        ctx.set_materialize_grads(materializes)
        ctx.save_for_backward(x)
        return x * 2, x * 5

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        if g is None and h is None:
            return None, None
        return (g if h is None else h * 2 if g is None else g + h) * x, None


class GivesNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return None, g


def first(x, y, materializes):
    return (Materializing.apply(x, materializes)[0],)


def both(x, y, materializes):
    return Materializing.apply(x, materializes)


def behind(x, y, materializes):
    return (Materializing.apply(x, materializes)[0].exp(),)


def beside_one(x, y, materializes):
    a, b = Materializing.apply(x, materializes)
    return a + y, b


def written(x, y, materializes):
    a = x.clone()
    a[1:] = Materializing.apply(x, materializes)[0][1:]
    return (a,)


@pytest.mark.parametrize("given", [(0,), (0, 1), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("materializes", [False, True])
@pytest.mark.parametrize("function", [first, both, behind, beside_one, written])
def test_a_custom_function_that_another_gives_nothing(function, materializes, create_graph, order, given):
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)

        def f(x, y):
            results = function(x, y, materializes)
            return GivesNothing.apply(results[0], y), *results

        results = compile(f)(x, y)
        wanted = [results[k] for k in given if k < len(results)]

        def gradients(of):
            return torch.autograd.grad(
                of, [x, y], [torch.ones_like(r) for r in of], retain_graph=True, create_graph=create_graph,
                allow_unused=True,
            )  # fmt: skip

        for of in ([wanted, results[:1]], [results[:1], wanted])[order]:
            found = gradients(of)
            yield found
            more = [g for g in found if g is not None and g.requires_grad]
            if more:
                yield gradients(more)
        yield attempt_later(lambda: wanted[0].sum().backward())
        yield attempt_later(lambda: wanted[0].sum().backward())
        yield x.grad, y.grad

    check_session(session)


def test_what_stands_for_a_result_that_nobody_has_is_given_nothing():
    class AndItself(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gives):
            ctx.gives = gives
            return x, x * 2

        @staticmethod
        def backward(ctx, g, h):
            return (g + h if ctx.gives else None), None

    def session(compile):
        x = leaf(3)

        def f(x):
            a, b = AndItself.apply(x.clone(), True)
            return AndItself.apply(a, False)[0], b

        a, b = compile(f)(x)
        yield torch.autograd.grad(a, x, torch.ones(3), retain_graph=True, allow_unused=True)
        yield torch.autograd.grad(b, x, torch.ones(3), retain_graph=True)
        yield torch.autograd.grad([a, b], x, [torch.ones(3), torch.ones(3)])

    check_session(session)


def given_nothing(x, y):
    return (GivesNothing.apply(x, y),)


def beside(x, y):
    return torch._foreach_mul([x, y.detach()], 2.0)


def behind_another(x, y):
    return GivesNothing.apply(x, y), x * 2


def apart(x, y):
    return x * 2, y * 2


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("hooked", ["x", "y"])
@pytest.mark.parametrize("way", ["grad", "backward"])
@pytest.mark.parametrize("made", ["leaf", "clone", "view", "part"])
@pytest.mark.parametrize("function", [given_nothing, beside, behind_another, apart])
def test_a_hook_registered_inside_on_an_argument_that_is_given_nothing(function, made, way, hooked, root, raises):
    def session(compile):
        leaves = leaf(3), leaf(3, seed=1)
        x, y = [{"leaf": t, "clone": t.clone(), "view": t.view(3), "part": t.clone().unbind()[0]}[made] for t in leaves]
        seen = []

        def f(x, y):
            t = x if hooked == "x" else y
            t.register_hook((lambda g: g * 2) if raises else (lambda g: seen.append(g is None)))
            return function(x, y)

        results = compile(f)(x, y)
        of = results[root % len(results)]
        if way == "grad":
            yield attempt_later(lambda: torch.autograd.grad(of, [x, y], torch.ones_like(of), allow_unused=True))
        else:
            yield attempt_later(lambda: of.sum().backward())
        yield seen, [t.grad for t in leaves]

    check_session(session)


WRITES = {
    "by a list op without a derivative": lambda x, y: torch._foreach_copy_([x], [y]),
    "by an op without a derivative": lambda x, y: x.floor_divide_(2),
    "by one that keeps it": lambda x, y: x.exp_(),
}
PLACES = {"itself": lambda x: x, "what is computed of it": lambda x: x * 1, "a view of it": lambda x: x[:2]}


@pytest.mark.parametrize("then", ["nothing", "a write"])
@pytest.mark.parametrize("way", ["backward", "gradients", "others", "inputs"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_written_is_met_without_a_gradient(write, place, way, then):
    def f(x, y):
        t = place(x)
        write(t, y[: len(t)])
        return t, torch._foreach_mul([t, y], 2)[1]

    def session(compile):
        root, y = leaf(3), leaf(3, seed=1).requires_grad_(way in ("others", "inputs"))
        x = root * 1
        _, result = compile(f)(x, y)
        if then == "a write":
            with torch.no_grad():
                x.add_(1)
        ones = torch.ones_like(result)
        if way == "backward":
            yield attempt_later(lambda: result.backward(ones))
        elif way == "inputs":
            yield attempt_later(lambda: result.backward(ones, inputs=[y]))
        else:
            wanted = root if way == "gradients" else y
            yield attempt_later(lambda: torch.autograd.grad(result, wanted, ones, allow_unused=True))
        yield root.grad, y.grad

    check_session(session)
