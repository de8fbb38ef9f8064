"""Second derivatives through custom backwards; once_differentiable."""

import functools

import pytest
import torch

from tests.behaviour.custom_functions.common import Saving
from tests.behaviour.functions import Once
from tests.behaviour.harness import attempt, attempt_later, session
from tests.behaviour.inputs import leaf, plain


@session
def test_a_once_differentiable_function_and_an_ordinary_result_differentiated_twice(compile):
    x, w = leaf(3), leaf(3, seed=1)
    a, b = compile(lambda x, w: (Once.apply(x) * w, x * x * w))(x, w)
    (g,) = torch.autograd.grad(b.sum(), x, create_graph=True)
    yield g
    yield torch.autograd.grad(g.sum(), w, retain_graph=True)
    g, h = torch.autograd.grad((a + b).sum(), (x, w), create_graph=True)
    yield g, h
    yield attempt_later(lambda: torch.autograd.grad(g.sum(), w, retain_graph=True))
    yield attempt_later(lambda: torch.autograd.grad(h.sum(), x))


@session
def test_create_graph_where_only_a_custom_backward_reads_an_ops_result(compile):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, y * 2

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            return g * y, g * x + h * 2

    x, y = leaf(2, 2), leaf(2, 2, seed=1)
    z = compile(lambda x, y: Product.apply(x.max(0, keepdim=True)[0] + y, y)[1])(x, y)
    yield z, torch.autograd.grad(z, [x, y], torch.ones_like(z), create_graph=True)


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
@session
def test_a_custom_backward_returns_a_view_of_its_gradient_made_under_no_grad(compile, shows, cotangent, way):
    class Shows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return (x + y).unsqueeze(0)

        @staticmethod
        def backward(ctx, g):
            with torch.no_grad():
                return SHOWN[shows](g)

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


@session
def test_a_second_derivative_of_a_once_differentiable_function_is_eagers_error(compile):
    x = leaf(3)
    y = compile(lambda x: Once.apply(x) * 2)(x)
    (g,) = torch.autograd.grad(y, x, leaf(3, seed=2), create_graph=True)
    yield g
    yield attempt(lambda: g.sum().backward())
    yield attempt(lambda: torch.autograd.grad(g.sum(), x, allow_unused=True))
    yield x.grad


class _IgnoresItsSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y, None


class _HasAnAttribute(_IgnoresItsSecond):
    @staticmethod
    def forward(ctx, x, y):
        with torch.enable_grad():
            ctx.attribute = y * x.sort().values
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.attribute, None


class _AppliesAnother(_IgnoresItsSecond):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return _IgnoresItsSecond.apply(g, y), None


def _sorted(function, x):
    return function.apply(x, (x * x).sort().values)


def _written(function, x):
    y = x * 2
    y[0].mul_(x[1])
    return function.apply(x, y * y)


def _beside_it(function, x):
    y = x.sort().values * x
    return function.apply(x, y), y * y


def _another(function, x):
    return function.apply(x, function.apply(x * x, x.sort().values * x))


@pytest.mark.parametrize("function", [_IgnoresItsSecond, _HasAnAttribute, _AppliesAnother])
@pytest.mark.parametrize("body", [_sorted, _written, _beside_it, _another])
@pytest.mark.parametrize("leads", ["leaf", "non-leaf"])
@session
def test_a_custom_backward_computes_with_an_operand_to_which_it_gives_no_gradient(compile, function, body, leads):
    x = leaf(3)
    x = x if leads == "leaf" else x * 1
    out = compile(functools.partial(body, function))(x)
    out, tangent = out[0] if isinstance(out, tuple) else out, leaf(3, seed=2)
    (first,) = torch.autograd.grad(out, x, tangent, create_graph=True)
    yield first
    second = torch.autograd.grad(first.sum(), (x, tangent), create_graph=True, allow_unused=True)
    yield second
    yield torch.autograd.grad(sum((g * g).sum() for g in second if g is not None), x)


class _View(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


@session
def test_a_second_derivative_by_a_custom_view_reshaped_in_place_under_no_grad(compile):
    """A view that a custom Function made refuses to, once it was reshaped in place under no_grad."""

    def f(x):
        y = x.clone()
        with torch.no_grad():
            x.t_()
        return y.sin()

    x = leaf(2, 2)
    (first,) = torch.autograd.grad(compile(f)(_View.apply(x)), x, plain(2, 2), create_graph=True)
    yield first
    yield torch.autograd.grad(first.sum(), x)


class _SameAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g


@session
def test_create_graph_after_a_custom_view_in_inference_mode_and_a_write_to_its_base(compile):
    def f(x, y):
        with torch.inference_mode():
            t = x.t()
            _SameAgain.apply(y)
        out = t.clone()
        y.zero_()
        return out

    g = compile(f)
    x, y = leaf(1, 2), leaf(1, 2, seed=1).clone()
    for _ in range(3):
        out = g(x, y)
        out.sum().backward(create_graph=True)
        yield out, x.grad
    x.grad = None


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("asked", ["everything", "x", "tangent", "both"])
@pytest.mark.parametrize("level", [2, 3])
@session
def test_a_once_differentiable_function_differentiated_twice_and_thrice_is_an_error(compile, trained, asked, level):
    x, tangent = leaf(3), leaf(3, seed=1) if trained else plain(3)
    out = compile(lambda x: Once.apply(x.sin()))(x)
    (gradient,) = torch.autograd.grad(out, x, tangent, create_graph=True)
    if level == 3:
        (gradient,) = torch.autograd.grad(gradient.exp().sum(), x, create_graph=True)
    yield gradient
    wanted = {"x": [x], "tangent": [tangent], "both": [x, tangent], "everything": []}[asked]
    if wanted:
        yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), wanted, allow_unused=True))
    else:
        yield attempt_later(lambda: gradient.sum().backward())


@session
def test_a_custom_backward_is_differentiated_by_the_operand_it_saved(compile):
    x, w = leaf(3), leaf(3, seed=1)
    y = compile(lambda x, w: Saving.apply(x, w, 2))(x, w)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    yield g
    yield torch.autograd.grad(g.sum(), w)


class TwiceOnlyWithoutGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("trained", [False, True])
@session
def test_a_once_differentiable_function_with_create_graph(compile, trained: bool):
    f = compile(lambda x: (TwiceOnlyWithoutGrad.apply(x), x * 3))
    for t in (trained, not trained):
        x, cotangent = leaf(3), plain(3).requires_grad_(t)
        for y in f(x):
            (g,) = torch.autograd.grad([y], [x], [cotangent], create_graph=True)
            yield g.requires_grad, attempt(lambda g=g, x=x: torch.autograd.grad([g.sum()], [x], allow_unused=True))
