"""BEHAVIOUR 5: custom Functions and checkpointing, inside and around."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Once, Same, View
from tests.behaviour.harness import (
    Raised,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    non_leaf,
    plain,
    through_dynamo,
)

# -- custom Functions --------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("asked", ["everything", "x", "tangent", "both"])
@pytest.mark.parametrize("level", [2, 3])
def test_a_function_that_is_differentiated_twice_against_its_word(trained, asked, level):
    def session(compile):
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

    check_session(session)


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
def test_a_function_that_saves_nothing_and_asks_for_it(asks, others):
    def f(x):
        return (AsksInVain.apply(x, asks), *[x.sin()] * others)

    def session(compile):
        x = leaf(3)
        out = compile(f)(x)
        for o in out:
            for _ in range(2):
                yield attempt_later(lambda o=o: o.sum().backward())
                yield x

    check_session(session)


class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, n):
        ctx.save_for_backward(x, w)
        ctx.n = n
        return x * w * n

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.n * 7, g * x * ctx.n * 5, None


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w, x + w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, g, h):
        _, w, out = ctx.saved_tensors
        return g * w * 3 + h, g * out


def test_a_custom_backward_is_the_users_and_not_the_derivative():
    check(lambda x, w: Saving.apply(x, w, 2), lambda: given(leaf(3), leaf(3, seed=1)))
    check(lambda x, w: Saving.apply(x * 1, w * 1, 2) * 2, lambda: given(leaf(3), leaf(3, seed=1)))
    check(WithSetup.apply, lambda: given(leaf(3), leaf(3, seed=1)))
    check(WithSetup.apply, lambda: given(leaf(3), leaf(3, seed=1)), backward=[1])


def test_a_custom_backward_twice_in_one_function():
    check(lambda x, w: Saving.apply(Saving.apply(x, w, 2), w, 3), lambda: given(leaf(3), leaf(3, seed=1)))


def test_a_custom_backward_differentiated_again():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(lambda x, w: Saving.apply(x, w, 2))(x, w)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield g
        yield torch.autograd.grad(g.sum(), w)

    check_session(session)


def test_needs_input_grad():
    seen = []

    class Looking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return tuple(g * (k + 2) if needed else None for k, needed in enumerate(ctx.needs_input_grad))

    assert not seen
    for make in (
        lambda: given(leaf(3), leaf(3)),
        lambda: given(leaf(3), plain(3)),
        lambda: given(plain(3), leaf(3)),
        lambda: given(plain(3), plain(3)),
    ):
        check(Looking.apply, make)


def test_an_error_in_a_custom_backward():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("not today")

    def session(compile):
        x = leaf(3)
        y = attempt(lambda: compile(lambda x: Failing.apply(x))(x))
        yield attempt_later(lambda: backward([y]))

    check_session(session)


def test_a_custom_backward_that_gives_the_wrong_number_of_gradients():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    def session(compile):
        x, y = leaf(3), leaf(3)
        z = attempt(lambda: compile(lambda x, y: Wrong.apply(x, y))(x, y))
        yield attempt_later(lambda: backward([z]))

    check_session(session)


# -- checkpointing -----------------------------------------------------------------------------------


def test_checkpointing_inside():
    def f(x, w):
        y = checkpoint(lambda x, w: (x * w).relu() * x, x, w, use_reentrant=False)
        return y * 2

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_checkpointing_around_the_compiled_function(reentrant: bool):
    def session(compile):
        f = compile(lambda x, w: (x * w).relu() * x)
        for _ in range(2):
            x, w = leaf(3), leaf(3, seed=1)
            y = checkpoint(f, x, w, use_reentrant=reentrant)
            yield y
            backward([y])
            yield x, w

    check_session(session)


@pytest.mark.parametrize("written", ["base", "view"])
@pytest.mark.parametrize(
    "read, grad",
    [
        ("before", True),
        ("after", True),
        ("both", True),
        ("view before", True),
        ("before", False),
        ("view before", False),
    ],
)
def test_a_view_that_a_custom_function_gave_and_a_write_near_it(read: str, grad: bool, written: str):
    def f(base, view):
        results = []
        if read in ("before", "both"):
            results.append(view * 2)
        if read == "view before":
            results.append(view.as_strided((2,), (1,)))
        with torch.set_grad_enabled(grad):
            (base if written == "base" else view).add_(1)
        if read in ("after", "both"):
            results.append(view * 3)
        return results

    def session(compile):
        g = compile(f)
        x = plain(2, 2)
        yield attempt_later(lambda: g(x, x))
        a = leaf(2, 2)
        base = a * 2
        view = View.apply(base)
        yield attempt_later(lambda: g(base, view))
        yield base

    check_session(session)


def test_a_function_that_leads_nowhere_is_backpropagated_twice():
    """Its argument is a view that autograd was not told of, and it saves nothing that a backward could free."""

    def session(compile):
        base = leaf(4) * 2
        with torch.no_grad():
            x = base.view(2, 2)
        y = compile(View.apply)(x)
        yield y.requires_grad
        for _ in range(2):
            yield attempt_later(lambda: y.backward(torch.ones_like(y)))
        yield x.grad

    check_session(session)


class _ViewOfTheFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x.unsqueeze(0)

    @staticmethod
    def backward(ctx, g, h):
        return g + h.squeeze(0), g


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("given_grad", [False, True])
def test_a_view_that_requires_grad_of_a_written_base_that_does_not(grad, given_grad):
    def f(x, y):
        _, view = _ViewOfTheFirst.apply(x, y)
        with torch.set_grad_enabled(grad):
            x.zero_()
        return view

    def session(compile):
        x, y = (leaf(3) * 1 if given_grad else plain(3)), leaf(3, seed=1)
        view = compile(f)(x, y)
        yield x, view.requires_grad
        for refused in (lambda: view.is_leaf, lambda: view.sum().backward(), lambda: view.zero_()):
            outcome = attempt_later(refused)  # whose message names a node
            yield outcome.type if isinstance(outcome, Raised) else "nothing raised"
        yield x, y

    check_session(session)


class TwiceOnlyWithoutGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("trained", [False, True])
def test_a_once_differentiable_function_with_create_graph(trained: bool):
    def session(compile):
        f = compile(lambda x: (TwiceOnlyWithoutGrad.apply(x), x * 3))
        for t in (trained, not trained):
            x, cotangent = leaf(3), plain(3).requires_grad_(t)
            for y in f(x):
                (g,) = torch.autograd.grad([y], [x], [cotangent], create_graph=True)
                yield g.requires_grad, attempt(lambda g=g, x=x: torch.autograd.grad([g.sum()], [x], allow_unused=True))

    check_session(session)


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
def test_a_function_that_saves_what_it_made_of_an_inference_tensor(returned):
    def session(compile):
        x = leaf(3)
        with torch.inference_mode():
            y = plain(3, seed=1)
        argument = x * 2
        out = compile(lambda x, y: KeepsAResultThatNobodyNeeds.apply(x, y)[returned])(argument, y)
        yield out, argument
        sum(t.sum() for t in (*out, argument)).backward()
        yield x

    check_session(session)


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
def test_a_function_of_a_view_that_leads_nowhere_is_freed_if_it_asks_for_what_it_saved(function):
    def session(compile):
        x = leaf(3)
        with torch.no_grad():
            view = x.view(3)
        out = compile(lambda v: function.apply(v))(view)
        for y in (*out, *out):
            yield attempt_later(lambda y=y: y.backward(torch.ones_like(y)))
        yield x.grad

    check_session(session)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("written", [0, 1], ids=["base", "view"])
@pytest.mark.parametrize("function", [Same, View])
def test_what_a_custom_function_gave_of_a_view_that_requires_grad_beside_its_base(function, written, mode):
    """Its base requires none, and autograd refuses to say its history once that was written."""

    def f(*args):
        made = function.apply(args[1])
        with mode():
            args[written].zero_()
        return made

    def session(compile):
        base = plain(2, 2)
        made = compile(f)(base, base.t().requires_grad_())
        yield made.requires_grad, made._base is base
        yield isinstance(attempt_later(lambda: made.grad_fn), Raised)

    check_session(session)


# -- views that a Function makes with gradients recorded ------------------------------------------------


class ViewUnderGrad(torch.autograd.Function):
    """Its result is a view of its operand, made as Dynamo's rewritten Functions make it."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3


@pytest.mark.parametrize("how", ["grad", "no_grad", "hidden"])
@pytest.mark.parametrize("written", ["operand", "result", "by the caller"])
def test_a_view_that_a_function_made_under_grad_is_refused_once_it_was_written(written, how):
    def write(t):
        if how == "hidden":
            t.data.mul_(2)
            return
        with torch.set_grad_enabled(how == "grad"):
            t.mul_(2)

    def session(compile):
        @compile
        def f(x):
            y = ViewUnderGrad.apply(x)
            z = y.t()
            if written == "operand":
                write(x)
            elif written == "result":
                write(y)
            return y, z

        def leafness(t):
            found = attempt_later(lambda: t.is_leaf)
            return "refused" if isinstance(found, Raised) else found  # the message names a node

        x = leaf(2, 2)
        outputs = attempt(lambda: f(x.clone()))
        if isinstance(outputs, Raised):
            yield outputs
            return
        yield [leafness(t) for t in outputs]
        if written == "by the caller":
            yield isinstance(attempt_later(lambda: write(outputs[0])), Raised)
            yield [leafness(t) for t in outputs]

    check_session(session)


class ReturnsItsOperand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class ReturnsAProductBeside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y, x

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return (g + h * 2) * y, h * 5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ReturnsItsOperand.apply(x).mT,
        lambda x: ReturnsItsOperand.apply(x + 1),
        lambda x: ReturnsAProductBeside.apply(x, x.clone())[1].mT,
        lambda x: ReturnsAProductBeside.apply(x + 1, x)[1],
        lambda x: ReturnsAProductBeside.apply(x + 1, x)[1].mT,
        lambda x: ReturnsAProductBeside.apply(x + 1, x),
    ],
    ids=["view", "of a sum", "view of one of two", "one of two, of a sum", "view of that", "both"],
)
def test_what_dynamo_makes_of_a_function_that_returns_its_operand(function):
    check(function, lambda: non_leaf(2, 2), probe=False, compile=through_dynamo)  # what is raised names nodes


# -- applied to what is no argument --------------------------------------------------------------------


class _Scaled(torch.autograd.Function):
    """Computes its gradients by a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            return torch.autograd.grad((x * w).sum() * 2, (x, w), grad.sum())


class _Kept(torch.autograd.Function):
    """Uses a tensor in its backward alone."""

    @staticmethod
    def forward(x, w):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad):
        return grad, grad * ctx.saved_tensors[0]


_scaled = _Scaled.apply


@pytest.mark.parametrize("apply", [_scaled, _Scaled.apply, _Kept.apply], ids=["bound before", "Function", "kept"])
@pytest.mark.parametrize("where", ["closure", "list", "module"])
def test_a_custom_function_is_applied_to_what_is_no_argument(apply, where: str):
    def session(compile):
        w = leaf(3, seed=1)
        module = torch.nn.ParameterList([w])
        f = compile(
            {
                "closure": lambda x: apply(x, w),
                "list": (lambda ws: lambda x: apply(apply(x, ws[0]), ws[0]))([w]),
                "module": lambda x: apply(x, module[0]) + w,
            }[where]
        )
        for k in range(3):
            x = leaf(3, seed=k)
            y = f(x)
            backward([y])
            yield y, x, list(module)

    check_session(session)


@pytest.mark.parametrize("where", [lambda op: lambda x: op(x, x), lambda op: partial(op, torch.ones(3))])
def test_a_method_of_c_that_applies_a_custom_function_is_refused(where):
    """As ``Function.apply`` is from torch 2.15 on, where it was bound before aotcheck was imported."""
    op = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Scaled)
    with pytest.raises(aotcheck.UnsupportedError, match=r"_Scaled\.apply") as caught:
        aotcheck.aot_function(where(op))(leaf(3))
    assert caught.value.reason == "custom function bound before"


# -- what is saved and not asked for


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
def test_a_function_that_does_not_ask_for_what_it_saved(caller, program):
    check_session(lambda compile: caller(compile(program)))
