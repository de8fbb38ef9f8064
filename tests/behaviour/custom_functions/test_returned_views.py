"""Operands and views of operands that custom Functions return, and writes to them."""

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import Raised, attempt, attempt_later, check, session, through_dynamo
from tests.behaviour.inputs import leaf, non_leaf, plain


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
@session
def test_a_view_of_a_custom_function_is_read_around_a_write_to_it_or_its_base(
    compile, read: str, grad: bool, written: str
):
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

    g = compile(f)
    x = plain(2, 2)
    yield attempt_later(lambda: g(x, x))
    a = leaf(2, 2)
    base = a * 2
    view = View.apply(base)
    yield attempt_later(lambda: g(base, view))
    yield base


class _ViewOfTheFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x.unsqueeze(0)

    @staticmethod
    def backward(ctx, g, h):
        return g + h.squeeze(0), g


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("given_grad", [False, True])
@session
def test_a_view_that_requires_grad_of_a_written_base_that_does_not(compile, grad, given_grad):
    def f(x, y):
        _, view = _ViewOfTheFirst.apply(x, y)
        with torch.set_grad_enabled(grad):
            x.zero_()
        return view

    x, y = (leaf(3) * 1 if given_grad else plain(3)), leaf(3, seed=1)
    view = compile(f)(x, y)
    yield x, view.requires_grad
    for refused in (lambda: view.is_leaf, lambda: view.sum().backward(), lambda: view.zero_()):
        outcome = attempt_later(refused)  # whose message names a node
        yield outcome.type if isinstance(outcome, Raised) else "nothing raised"
    yield x, y


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("written", [0, 1], ids=["base", "view"])
@pytest.mark.parametrize("function", [Same, View])
@session
def test_a_function_of_a_view_that_requires_grad_whose_base_or_view_is_then_written(compile, function, written, mode):
    """Its base requires none, and autograd refuses to say its history once that was written."""

    def f(*args):
        made = function.apply(args[1])
        with mode():
            args[written].zero_()
        return made

    base = plain(2, 2)
    made = compile(f)(base, base.t().requires_grad_())
    yield made.requires_grad, made._base is base
    yield isinstance(attempt_later(lambda: made.grad_fn), Raised)


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
@session
def test_a_view_that_a_function_made_with_grad_enabled_raises_after_a_write(compile, written, how):
    def write(t):
        if how == "hidden":
            t.data.mul_(2)
            return
        with torch.set_grad_enabled(how == "grad"):
            t.mul_(2)

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
def test_dynamo_compiles_functions_that_return_their_operand(function):
    check(function, lambda: non_leaf(2, 2), probe=False, compile=through_dynamo)  # what is raised names nodes
