"""BEHAVIOUR 6: rows and values of ragged tensors are views of them, which share their versions and their fate."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session
from tests.behaviour.wrappers import jagged


def leaf():
    return jagged(2, 1, grad=True)


def result():
    return jagged(2, 1, grad=True) * 2


def without_gradient():
    return jagged(2, 1)


def view_of_values():
    return torch.nested.nested_tensor_from_jagged(torch.arange(1.0, 7).reshape(3, 2), offsets=torch.tensor([0, 2, 3]))


def view_of_leaf():
    values = torch.arange(1.0, 7).reshape(3, 2)
    x = torch.nested.nested_tensor_from_jagged(values, offsets=torch.tensor([0, 2, 3]))
    values.requires_grad_()
    return x


def reshaped():
    return jagged(2, 1, grad=True).unsqueeze(1)


def row(x):
    return [x[0]]


def under_no_grad(x):
    with torch.no_grad():
        made = x[1]
    return [made, x.unbind()[0]]


def in_inference_mode(x):
    with torch.inference_mode():
        made = x[1]
    return [made]


def before_a_write(x):
    made = x[0]
    with torch.no_grad():
        x.zero_()
    return [made]


def written(x):
    made = x[0]
    with torch.no_grad():
        made.zero_()
    return [made]


def several(x):
    first, second = x.unbind()
    return [first, second, first.sum() * second.sum()]


def values(x):
    return [x.values(), x.values()[1:]]


def of_a_row(x):
    return [x[0].t(), x.transpose(1, -1)[1]]


def of_a_result(x):
    return [(x * 3)[0]]


def beside_a_result(x):
    made = x * 3
    return [made[0], made]


def with_a_hook(x):
    made = x[0]
    if torch.is_grad_enabled() and made.requires_grad:
        made.register_hook(lambda g: g * 2)
    return [made, made * 3]


def write_argument(x, made):
    with torch.no_grad():
        x.mul_(2)


def write_first(x, made):
    with torch.no_grad():
        made[0].mul_(2)


def ask(x, made):
    return [attempt_later(lambda t=t: (t._base is not None, t.grad_fn is None)) for t in made]


@pytest.mark.parametrize("write", [write_argument, write_first], ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    "mode", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=["grad", "no grad", "inference"]
)
@pytest.mark.parametrize(
    "make",
    [leaf, result, without_gradient, view_of_values, view_of_leaf, reshaped],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize(
    "function",
    [
        row,
        under_no_grad,
        in_inference_mode,
        before_a_write,
        written,
        several,
        values,
        of_a_row,
        of_a_result,
        beside_a_result,
        with_a_hook,
    ],
    ids=lambda function: function.__name__,
)
def test_plain_views_of_ragged_tensors(function, make, mode, write):
    def one_call(compiled):
        x = make()

        def call():
            with mode():
                return compiled(x)

        made = attempt(call)
        yield x, made
        if not isinstance(made, list):
            return
        yield x, made, attempt_later(lambda: write(x, made))
        yield ask(x, made)
        results = [t for t in made if t.requires_grad and t.layout is torch.strided]
        yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
        yield x, made

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            yield from one_call(compiled)

    check_session(session)


@pytest.mark.parametrize(
    "write",
    [lambda x: x.zero_(), lambda x: x.unbind()[0].mul_(2), lambda x: (x.unsqueeze(1).mul_(2), x * 2)],
    ids=["itself", "row", "view"],
)
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.unsqueeze(1), lambda x: x * 2], ids=["same", "view", "result"]
)
def test_a_view_of_a_ragged_leaf_is_not_written_and_not_touched(view, write):
    def session(compile):
        compiled = compile(write)
        for requires in (lambda x: x.requires_grad_(), lambda x: x):
            leaf = requires(view_of_values())
            x = view(leaf)
            yield leaf, x, attempt(lambda x=x: compiled(x))
            yield attempt_later(lambda x=x: x.grad_fn is None), x._version, leaf._version

    check_session(session)


# -- rows that are views of nothing, and rows that are leaves


@pytest.mark.parametrize("again", [lambda r: r.t(), lambda r: r[0], lambda r: r.view(-1)], ids=["t", "row", "flat"])
@pytest.mark.parametrize("make", [without_gradient, leaf], ids=lambda make: make.__name__)
def test_a_view_of_a_row_of_what_an_op_gave_in_inference_mode(make, again):
    def session(compile):
        x = make()
        f = compile(lambda x: again(x.positive()[0]))
        for _ in range(2):
            with torch.inference_mode():
                made = f(x)
            yield x, made, made._base
            made.add_(1)
            yield x, made

    check_session(session)


ROWS = {
    "row": lambda x: x[0],
    "unbound": lambda x: x.unbind()[1],
    "values": lambda x: x.values(),
    "part of the values": lambda x: x.values()[1:],
}


@pytest.mark.parametrize("used", [lambda v: v, lambda v: v * 2, lambda v: v.t()], ids=["alone", "doubled", "view"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("make", [without_gradient, view_of_values], ids=lambda make: make.__name__)
def test_a_row_that_is_told_to_require_grad(make, row, used):
    def function(x):
        made = row(x)
        before = made[0:]
        made.requires_grad_()
        return made, used(made), before

    def session(compile):
        x = make()
        made, computed, before = compile(function)(x)
        yield x, made, computed, before, made._base is x
        if computed.grad_fn is not None:
            computed.sum().backward()
        yield x, made, computed
        with torch.no_grad():
            made.add_(1)
        yield x, made

    check_session(session)
