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
