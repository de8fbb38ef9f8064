"""Save_for_backward that the backward reads, does not read, or reads in vain."""

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import attempt_later, backward, check_session, session
from tests.behaviour.inputs import leaf, plain


class AsksInVain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, asks):
        ctx.asks = asks
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.asks:
            assert not ctx.saved_tensors
        return g * 2, None


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("others", [0, 1])
@session
def test_saved_tensors_read_where_nothing_was_saved(compile, asks, others):
    def f(x):
        return (AsksInVain.apply(x, asks), *[x.sin()] * others)

    x = leaf(3)
    out = compile(f)(x)
    for o in out:
        for _ in range(2):
            yield attempt_later(lambda o=o: o.sum().backward())
            yield x


@session
def test_a_function_of_a_no_grad_view_that_saves_nothing_is_backpropagated_twice(compile):
    """Its argument is a view that autograd was not told of, and it saves nothing that a backward could free."""

    base = leaf(4) * 2
    with torch.no_grad():
        x = base.view(2, 2)
    y = compile(View.apply)(x)
    yield y.requires_grad
    for _ in range(2):
        yield attempt_later(lambda: y.backward(torch.ones_like(y)))
    yield x.grad


class KeepsAResultThatNobodyNeeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        result = x * y
        x.mul_(2)
        ctx.mark_dirty(x)
        ctx.save_for_backward(result)
        return result, x

    @staticmethod
    def backward(ctx, g, h):
        (result,) = ctx.saved_tensors
        return (0 if g is None else g * result) + (0 if h is None else h * result), None


@pytest.mark.parametrize("returned", [slice(1), slice(1, 2), slice(2), slice(0)], ids=["product", "x", "both", "none"])
@session
def test_a_function_saves_what_it_computed_of_an_inference_tensor(compile, returned):
    x = leaf(3)
    with torch.inference_mode():
        y = plain(3, seed=1)
    argument = x * 2
    out = compile(lambda x, y: KeepsAResultThatNobodyNeeds.apply(x, y)[returned])(argument, y)
    yield out, argument
    sum(t.sum() for t in (*out, argument)).backward()
    yield x


class OfTheLastThere(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g if h is None else h


class MultipliesOnceAsked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return (*ctx.saved_tensors, g * h)


@pytest.mark.parametrize("function", [OfTheLastThere, MultipliesOnceAsked])
@session
def test_a_function_of_a_no_grad_view_is_freed_only_if_its_backward_reads_saved_tensors(compile, function):
    x = leaf(3)
    with torch.no_grad():
        view = x.view(3)
    out = compile(lambda v: function.apply(v))(view)
    for y in (*out, *out):
        yield attempt_later(lambda y=y: y.backward(torch.ones_like(y)))
    yield x.grad


class SavesInVain(torch.autograd.Function):
    """Saves its operand and its result; its backward asks for them if told so, or if a graph is created."""

    @staticmethod
    def forward(ctx, x, asks=False):
        y = x * 2
        ctx.save_for_backward(x, y)
        ctx.asks = asks
        return y

    @staticmethod
    def backward(ctx, g):
        if ctx.asks or torch.is_grad_enabled():
            x, _ = ctx.saved_tensors
            return g * x, None
        return g * 3, None


def _alone(x):
    return SavesInVain.apply(x)


def _among_what_keeps_nothing(x):
    return (SavesInVain.apply(x * 2) + x).sum()


def _among_what_keeps_something(x):
    return SavesInVain.apply(x.sin()) * 2


def _in_a_row(x):
    return SavesInVain.apply(SavesInVain.apply(x) + 1)


def _beside_one_that_asks(x):
    return SavesInVain.apply(x), SavesInVain.apply(x, True)


def _before_one_that_asks(x):
    return SavesInVain.apply(SavesInVain.apply(x, True))


def _of_what_is_written_then(x):
    h = x * 2
    y = SavesInVain.apply(h)
    h.add_(1)
    return y, h


def _whose_result_is_written_then(x):
    y = SavesInVain.apply(x)
    y.add_(1)
    return y


_IN_VAIN = [
    *(_alone, _among_what_keeps_nothing, _among_what_keeps_something, _in_a_row, _beside_one_that_asks),
    *(_before_one_that_asks, _of_what_is_written_then, _whose_result_is_written_then),
]


def _twice(f):
    x = leaf(3)
    out = f(x)
    for y in out if isinstance(out, tuple) else (out,):
        for _ in range(2):
            yield attempt_later(lambda y=y: backward([y]))
        yield x.grad


def _written_in_between(f):
    x = leaf(3)
    out = f(x)
    with torch.no_grad():
        x.add_(1)
    yield attempt_later(lambda: backward([*(out if isinstance(out, tuple) else (out,))]))
    yield x.grad


def _result_written_in_between(f):
    x = leaf(3)
    out = f(x)
    with torch.no_grad():
        (out[0] if isinstance(out, tuple) else out).add_(1)
    yield attempt_later(lambda: backward([*(out if isinstance(out, tuple) else (out,))]))
    yield x.grad


def _differentiated_twice(f):
    x = leaf(3)
    out = f(x)
    y = out[0] if isinstance(out, tuple) else out
    t = torch.ones_like(y).requires_grad_()
    g = attempt_later(lambda: torch.autograd.grad(y, x, t, create_graph=True))
    yield g
    yield attempt_later(lambda: torch.autograd.grad(g[0].sum(), (x, t), allow_unused=True))
    yield attempt_later(lambda: backward([y]))


def _under_hooks(f):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        yield from _written_in_between(f)
        yield from _twice(f)


@pytest.mark.parametrize("program", _IN_VAIN)
@pytest.mark.parametrize(
    "caller", [_twice, _written_in_between, _result_written_in_between, _differentiated_twice, _under_hooks]
)
def test_a_function_whose_backward_does_not_read_saved_tensors(caller, program):
    check_session(lambda compile: caller(compile(program)))


class Branching(torch.autograd.Function):
    """Gives two results, and gradients of either by what the other does not need."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        if g is None:
            return h * x.sin(), h * 3
        if h is None:
            return g * 2, g * y
        return g * 2, h * 3


def of_arguments(x, y):
    return Branching.apply(x, y)


def of_what_is_made(x, y):
    a, b = Branching.apply(x.sin(), y * 2)
    return a.exp(), b * 2


@pytest.mark.parametrize("function", [of_arguments, of_what_is_made])
@pytest.mark.parametrize("roots", [(0,), (1,), (0, 1)], ids=str)
@session(rtol=1e-5)
def test_a_custom_backward_reads_saved_tensors_only_where_a_gradient_is_undefined(compile, function, roots):
    x, y = leaf(3), leaf(3, seed=1)
    results = compile(function)(x, y)
    chosen = [results[k] for k in roots]
    seeds = [torch.ones_like(r) for r in chosen]
    first = torch.autograd.grad(chosen, [x, y], seeds, create_graph=True, allow_unused=True)
    yield first
    trained = [g for g in first if g is not None and g.requires_grad]
    if trained:
        yield torch.autograd.grad(trained, [x, y], [torch.ones_like(g) for g in trained], allow_unused=True)
