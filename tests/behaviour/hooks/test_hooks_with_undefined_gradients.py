"""Hooks that are called with None, because only other results of their node have a gradient."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.shared import GivesNothing


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", [lambda *shape: [leaf(*shape)], lambda *shape: non_leaf(*shape).args])
@pytest.mark.parametrize("op", [torch.conv2d, torch.conv_transpose2d, lambda x, w: torch.conv2d(x * 2, w) * 3])
@session
def test_a_hook_on_an_argument_whose_second_derivative_is_undefined(compile, op, kind, trained):
    calls = []

    def function(x, weight):
        x.register_hook(lambda gradient: calls.append(gradient is None))
        return op(x, weight)

    compiled = compile(function)
    for _ in range(2):
        (x,) = kind(1, 2, 4, 4)
        weight = plain(2, 2, 2, 2).requires_grad_(trained)
        y = compiled(x, weight)
        tangent = plain(*y.shape).requires_grad_()
        (gradient,) = torch.autograd.grad(y, x, tangent, create_graph=True)
        yield x, y, gradient, list(calls)
        yield attempt_later(gradient.sum().backward), tangent, weight, x, list(calls)


_SPLITS = {
    "of an argument": lambda x: x.split(2),
    "some of them": lambda x: x.chunk(3)[1:],
    "of a result": lambda x: (x * 2).unbind(),
    "unseen by autograd": lambda x: (x * 2).unsafe_split(2),
    "beside their base": lambda x: (y := x * 2, *y.tensor_split(2)),
    "of a view": lambda x: x.view(2, 3).unbind(1),
}


@pytest.mark.parametrize("split", _SPLITS.values(), ids=_SPLITS)
@session
def test_hooks_on_views_that_one_op_made_and_that_share_a_node(compile, split):
    compiled = compile(split)
    for _ in range(2):
        x = leaf(6)
        views = compiled(x)
        seen = []
        for k, v in enumerate(views):
            v.register_hook(lambda g, k=k, seen=seen: seen.append((k, None if g is None else g.clone())))
        yield views
        backward([views[-1]])
        yield x, seen


@pytest.mark.parametrize("split", [torch.unbind, lambda x: x.chunk(2), lambda x: torch.tensor_split(x, 2)])
@pytest.mark.parametrize("inner", [lambda v: v.sin(), lambda v: (v.sin(), v.exp())[1], lambda v: v[..., None] * 2])
@session
def test_a_hook_on_a_part_is_called_where_only_another_part_has_a_gradient(compile, split, inner):
    def f(x):
        first, second = split(x)
        return second, inner(first)

    x = leaf(2)
    part, y = compile(f)(x)
    seen = []
    part.register_hook(lambda g: seen.append(None if g is None else g.clone()))
    yield torch.autograd.grad(y.sum(), x, retain_graph=True), seen
    (g,) = torch.autograd.grad((part.sum(), y.sum()), x, create_graph=True)
    yield g, seen
    yield torch.autograd.grad(g.sum(), x, allow_unused=True) if g.requires_grad else None, seen


class NegatesBesideProduct(torch.autograd.Function):
    """Negates its first argument in place, and gives it beside a product with what it was."""

    @staticmethod
    def forward(ctx, x, y):
        product = x * y
        ctx.save_for_backward(y)
        x.neg_()
        ctx.mark_dirty(x)
        return x, product

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return h * y - g, None


@pytest.mark.parametrize("root", ["written", "product", "both"])
@pytest.mark.parametrize("written_again", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@session
def test_hooks_on_an_argument_that_a_function_with_several_results_marked_dirty(compile, inside, written_again, root):
    """In a backward from another of the results they are called with None, which they may take or not."""

    def f(x, y, hook):
        _, product = NegatesBesideProduct.apply(x, y)
        if inside:
            x.register_hook(hook)
        return product

    compiled = compile(f)
    for _ in range(2):
        x = leaf(3)
        z, seen = x * 2, []

        def hook(g, seen=seen):
            seen.append(None if g is None else g.clone())
            return None if g is None else g * 3

        product = compiled(z, plain(3, seed=1), hook)
        if not inside:
            z.register_hook(hook)
        if written_again:
            z.mul_(2)
        roots = {"written": [z], "product": [product], "both": [z, product]}[root]
        backward(roots)
        yield x, seen


class Beside(torch.autograd.Function):
    """A sum, and beside it what was given, a view of that or another tensor."""

    @staticmethod
    def forward(ctx, x, beside):
        return x + x, beside(x)

    @staticmethod
    def backward(ctx, *gradients):
        given = [g.view(2) for g in gradients if g is not None]
        return sum(given), None


OPS = {
    "an input": lambda x: Beside.apply(x, lambda x: x),
    "a view": lambda x: Beside.apply(x, lambda x: x.view(2, 1)),
    "another": lambda x: Beside.apply(x, lambda x: x * 2),
    "an input, and what is computed of both": lambda x: (y := Beside.apply(x, lambda x: x)) + tuple(t * 3 for t in y),
    "unbind": lambda x: x.unbind(),
    "unbind of what is made inside": lambda x: (x * 2).unbind(),
    "aminmax": lambda x: torch.aminmax(x),
}


@pytest.mark.parametrize("changes", [False, True], ids=["looks", "changes"])
@pytest.mark.parametrize("root", [0, 1, -1])
@pytest.mark.parametrize("hooked", [0, 1])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("make", [leaf, lambda n: leaf(n) * 1], ids=["leaf", "non-leaf"])
@session
def test_a_hook_on_a_result_is_called_with_none_for_another_result_of_its_node(
    compile, make, op, hooked, root, changes
):
    x = make(2)
    out = compile(OPS[op])(x)
    seen = []

    def hook(g):
        seen.append(g if g is None else g.clone())
        return torch.full_like(out[hooked], 5) if changes else None

    out[hooked].register_hook(hook)
    gradient = attempt_later(lambda: torch.autograd.grad(out[root].sum(), x, allow_unused=True))
    yield gradient, len(seen), [g for g in seen if g is not None]


@pytest.mark.parametrize("source", [lambda x: x, lambda x: x * 2], ids=["of an argument", "of what is made inside"])
@pytest.mark.parametrize("use", [lambda b: b * 2, torch.sin], ids=["linear", "nonlinear"])
@pytest.mark.parametrize("root", [0, 1], ids=["from the other part", "from both"])
@session
def test_a_hook_on_a_returned_part_of_unsafe_split(compile, source, use, root):
    def f(x):
        a, b, _ = torch.unsafe_split(source(x), 1)
        return a, use(b), use(b) + a

    x = leaf(3)
    y = x * 1
    results = compile(f)(y)
    seen = []
    results[0].register_hook(seen.append)
    yield torch.autograd.grad(results[1 + root].sum(), [x, y]), seen


@pytest.mark.parametrize("returned", ["operand", "both results", "neither"])
@pytest.mark.parametrize("part", [False, True], ids=["made alone", "made with another"])
@session
def test_a_hook_inside_on_one_operand_of_a_foreach_op(compile, returned, part):
    seen = []

    def f(x):
        v, w = x.unbind() if part else (x[0].sin(), x[1])
        a, b = torch._foreach_mul([v, w], 2)
        v.register_hook(seen.append)
        return {"operand": (b, v * 1), "both results": (b, a), "neither": (b, w * 1)}[returned]

    for root in (0, 1):
        seen.clear()
        x = leaf(2)
        y = compile(f)(x)[root]
        y.backward()
        yield x.grad, list(seen)


@pytest.mark.parametrize(
    "op", [lambda x: x.chunk(2), lambda x: (x * 1).unsafe_chunk(2), lambda x: torch.var_mean(x, 0)]
)
def test_a_hook_inside_on_one_of_two_results_of_an_op_changes_its_gradient(op):
    def f(x):
        a, b = op(x)
        a.register_hook(lambda g: g * 2)
        return a * b, b * 1

    for roots in ([0], [0, 1]):
        check(f, lambda: given(leaf(4)), backward=roots)


_SEVERAL = {
    "split": lambda x: x.split(1),
    "split of what is made of it": lambda x: (x * x).split(1),
    "unbind": lambda x: x.unbind(),
    "a list": lambda x: torch._foreach_mul([x, x * 2, x], 3),
    "topk": lambda x: (*x.topk(2), x * 2),
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
}


@pytest.mark.parametrize("make", _SEVERAL.values(), ids=_SEVERAL)
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("returned", [(1,), (0, 1), (2,)], ids=str)
@session(rtol=1e-4)
def test_a_hook_inside_is_called_with_none_where_only_other_results_of_the_op_have_a_gradient(
    compile, make, returned, used
):
    calls: list[bool] = []

    def f(x):
        several = make(x)
        several[0].register_hook(lambda g: calls.append(g is None))
        others = [(several[0] * 3).sum()] if used else []
        return [several[k] for k in returned] + others

    x = leaf(3, 3)
    out = compile(f)(x)
    for t in out:
        if t.requires_grad:
            found = attempt_later(lambda t=t: t.sum().backward(retain_graph=True))
            yield found, list(calls)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("hook", [lambda g: g * 2, lambda g: None if g is None else g * 2], ids=["of any", "of some"])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.split])
@session
def test_a_hook_inside_on_an_unused_part_is_called_for_the_other_parts(compile, split, hook, inside: bool):
    def f(x):
        parts = split(x * 2 if inside else x, 1)
        parts[1].register_hook(hook)
        return parts[0], parts[0] * parts[2]

    x = leaf(3)
    for out in compile(f)(x):
        yield attempt_later(lambda out=out: torch.autograd.grad(out.sum(), x, retain_graph=True))


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
@session
def test_a_hook_inside_on_the_result_or_on_the_view_that_a_custom_function_returns(compile, function, last):
    x = leaf(3)
    results = compile(function)(x)
    yield results
    root = results[-1] if last else results[0]
    yield attempt_later(lambda: torch.autograd.backward(root, torch.ones_like(root), retain_graph=True))
    yield x.grad
    yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
    yield x.grad


WRITTEN = {
    "zeroed": lambda x, t: t.zero_(),
    "multiplied": lambda x, t: t.mul_(x[:1]),
    "twice": lambda x, t: t.mul_(3).add_(x[1:2]),
    "reshaped": lambda x, t: t.unsqueeze_(0).mul_(2),
}


@pytest.mark.parametrize("root", [0, 1, 2])
@pytest.mark.parametrize("earlier", [False, True], ids=["", "written before"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
@session
def test_hooks_on_parts_of_unsafe_split_of_which_one_was_written(compile, write, earlier, root):
    """A part that was written leads to the node of all of them, which calls the hooks of the others with None."""

    def function(x):
        if earlier:
            x.mul_(2)
        first, second, third, _ = torch.unsafe_split(x, 1)
        write(x, third)
        return first, third, second * third

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
@session
def test_a_hook_inside_on_an_argument_that_gets_an_undefined_gradient(
    compile, function, made, way, hooked, root, raises
):
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
