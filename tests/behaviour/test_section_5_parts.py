"""BEHAVIOUR 5: parts that one op gives (chunks, splits, rows), some of which are returned and others computed from."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import attempt_later, check_session, leaf

pytestmark = pytest.mark.usefixtures("device")


def by_a_function_that_returns_its_operand(x):
    return Same.apply(x)


def by_a_function_that_returns_a_view(x):
    return View.apply(x)


def by_a_write(x):
    y = x.view(-1)
    y.mul_(3)
    return y


def by_an_op(x):
    return x * 3


def by_a_view(x):
    return x.view(-1)


@pytest.mark.parametrize("roots", [(0, 1), (0,), (1,)], ids=str)
@pytest.mark.parametrize("options", [{}, {"create_graph": True}], ids=["graph freed", "graph created"])
@pytest.mark.parametrize(
    "parts",
    [lambda y: y.chunk(3, -1), lambda y: y.split([1, 2, 3], -1), lambda y: y.view(3, 2).unbind()],
    ids=["chunk", "split", "unbind"],
)
@pytest.mark.parametrize(
    "made",
    [
        by_a_function_that_returns_its_operand,
        by_a_function_that_returns_a_view,
        by_a_write,
        by_an_op,
        by_a_view,
    ],
    ids=lambda made: made.__name__,
)
@pytest.mark.parametrize("with_hook", [False, True], ids=["", "hook"])
def test_one_part_is_returned_and_another_computed_from(made, parts, options, roots, with_hook):
    def function(x):
        first, second, third = parts(made(x))
        if with_hook:
            first.register_hook(lambda g: None if g is None else g * 2)
        return first * first, second, third.clone()

    def session(compile):
        root = leaf(6)
        x = root.clone() if made is by_a_write else root
        results = compile(function)(x)
        yield results
        given = [torch.ones_like(results[k], requires_grad=True) for k in roots]
        yield attempt_later(lambda: torch.autograd.backward([results[k] for k in roots], given, **options))
        yield root.grad
        if options and root.grad is not None and root.grad.requires_grad:
            grad = root.grad
            root.grad = None
            yield attempt_later(lambda: grad.backward(torch.ones_like(grad)))
            yield root.grad, [g.grad for g in given]

    check_session(session)


class _ResultAndView(torch.autograd.Function):
    """Twice its operand, and a view of that."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x.view_as(x)

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 5


def _unless_none(factor):
    return lambda g: None if g is None else g * factor


def hook_on_what_is_dropped(x):
    result, view = _ResultAndView.apply(x)
    result.register_hook(_unless_none(2))
    return (view,)


def hook_on_what_is_used(x):
    result, view = _ResultAndView.apply(x)
    result.register_hook(_unless_none(2))
    return view, result * result


def hooks_on_both(x):
    result, view = _ResultAndView.apply(x)
    result.register_hook(_unless_none(2))
    view.register_hook(_unless_none(3))
    return view * 2, (view * result).sum()


def hook_on_the_view(x):
    result, view = _ResultAndView.apply(x)
    view.register_hook(_unless_none(3))
    return view.view(-1), result


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    "function",
    [hook_on_what_is_dropped, hook_on_what_is_used, hooks_on_both, hook_on_the_view],
    ids=lambda function: function.__name__,
)
def test_a_hook_on_one_of_a_result_and_a_view_of_a_custom_function(function, last):
    def session(compile):
        x = leaf(3)
        results = compile(function)(x)
        yield results
        root = results[-1] if last else results[0]
        yield attempt_later(lambda: torch.autograd.backward(root, torch.ones_like(root), retain_graph=True))
        yield x.grad
        yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
        yield x.grad

    check_session(session)


class Two(torch.autograd.Function):
    """Gives two results, each by what it kept of the other's operand."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, y * 2

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y, g * x + h * 2


@pytest.mark.parametrize(
    "view", [lambda t: t.t(), lambda t: t[:1], lambda t: t.view(4)], ids=["transpose", "row", "flat"]
)
@pytest.mark.parametrize("use", [torch.sub, torch.mul], ids=["difference", "product"])
@pytest.mark.parametrize("lead", [lambda x: x, lambda x: x * 1], ids=["leaf", "no leaf"])
def test_a_view_of_one_of_several_results_is_used_with_another(view, use, lead):
    def f(x, y):
        a, b = Two.apply(x, y)
        part = view(b)
        return use(view(a), part), part

    def session(compile):
        x, y = lead(leaf(2, 2)), lead(leaf(2, 2, seed=1))
        result, part = compile(f)(x, y)
        seen = []
        part.register_hook(seen.append)
        yield torch.autograd.grad(result, [part, x, y], torch.full_like(result, 3), retain_graph=True), seen
        yield torch.autograd.grad([result, part], [x, y], [torch.ones_like(result), torch.ones_like(part)]), seen

    check_session(session)


WRITTEN = {
    "zeroed": lambda x, t: t.zero_(),
    "multiplied": lambda x, t: t.mul_(x[:1]),
    "twice": lambda x, t: t.mul_(3).add_(x[1:2]),
    "reshaped": lambda x, t: t.unsqueeze_(0).mul_(2),
}


@pytest.mark.parametrize("root", [0, 1, 2])
@pytest.mark.parametrize("earlier", [False, True], ids=["", "written before"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
def test_hooks_on_parts_of_what_was_split_unsafely_and_written(write, earlier, root):
    """A part that was written leads to the node of all of them, which calls the hooks of the others with None."""

    def function(x):
        if earlier:
            x.mul_(2)
        first, second, third, _ = torch.unsafe_split(x, 1)
        write(x, third)
        return first, third, second * third

    def session(compile):
        f = compile(function)
        for _ in range(2):
            x = leaf(4)
            given = x * 1
            results = f(given)
            seen = [[] for _ in results]
            for result, calls in zip(results, seen, strict=True):
                result.register_hook(calls.append)
            yield results
            yield torch.autograd.grad(
                results[root], [given, x], torch.ones_like(results[root]), retain_graph=True, allow_unused=True
            )
            yield torch.autograd.grad([r.sum() for r in results], [given, x])
            yield seen

    check_session(session)
