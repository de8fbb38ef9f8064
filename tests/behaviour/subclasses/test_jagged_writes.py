"""Jagged tensors written by the function, or by the caller before the backward."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, session, write
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.wrappers import jagged


@session
def test_a_jagged_tensor_whose_view_has_a_history_is_written_in_inference_mode(compile):
    x = jagged(2, 3, grad=True) * 2
    v = x.unsqueeze(-1)
    with torch.inference_mode():
        out = compile(lambda x, v: (x.sin_(), v)[1])(x, v)
    yield out, x


@pytest.mark.parametrize("product", [torch.mul, torch.complex], ids=["mul", "complex"])
@session
def test_the_caller_writes_a_jagged_result_whose_values_were_saved(compile, product):
    """Of a ragged tensor itself eager says otherwise that it was written since."""

    def f(x, offsets):
        y = torch.nested.nested_tensor_from_jagged(x.detach(), offsets)
        return product(x, x), y

    x = leaf(3, 2)
    z, y = compile(f)(x, to_device(torch.tensor([0, 2, 3])))
    write(y)
    yield attempt_later(lambda: z.abs().sum().backward()), x.grad


@pytest.mark.parametrize(
    "f",
    [torch.sum, torch.mean, lambda x: (x * x).sum(), lambda x: x.sum(-1), lambda x: x.sin(), lambda x: x * 2],
    ids=["sum", "mean", "product", "rows", "sin", "double"],
)
@session
def test_the_caller_writes_a_jagged_argument_of_a_leaf_before_the_backward(compile, f):
    """The graph takes the leaf's memory; what eager saved and says to be written is the ragged tensor."""

    values = plain(3)
    x = torch.nested.nested_tensor_from_jagged(values, to_device(torch.tensor([0, 2, 3])))
    values.requires_grad_()
    y = compile(f)(x)
    with torch.no_grad():
        x.copy_(x.detach() * 2)
    yield attempt_later(lambda: y.sum().backward()), values.grad


@pytest.mark.parametrize("requires_grad", [False, True])
@session
def test_a_jagged_tensor_and_its_view_as_arguments_of_which_one_is_written(compile, requires_grad):
    def f(x, view):
        x.exp_()
        return view * 2

    leaf_ = jagged(2, 2, grad=requires_grad)
    x = leaf_ * 1
    view = x.view_as(x)
    y = compile(f)(x, view)
    yield leaf_, x, view, y
    if requires_grad:
        y.backward(y.detach())
        yield leaf_


@pytest.mark.parametrize("op", [lambda x: x.softmax(-1), torch.exp, torch.sin], ids=["softmax", "exp", "sin"])
@pytest.mark.parametrize("which", [0, 1], ids=["argument", "result"])
@session
def test_the_caller_writes_a_saved_jagged_tensor_before_the_backward(compile, op, which):
    """Eager's message asks the ragged tensor for its size, which raises another error."""

    values = plain(3, 2)
    offsets = torch.tensor([0, 1, 3], device=values.device)
    x = torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_() * 1
    result = compile(op)(x)
    with torch.no_grad():
        (x, result)[which].mul_(2)
    try:
        result.backward(torch.ones_like(result.detach()))
    except Exception as error:
        yield type(error)


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.zero_(), lambda x: x.values().add_(1)])
@pytest.mark.parametrize("kind", ["plain", "leaf", "non-leaf", "view", "view of a leaf", "view of a non-leaf"])
@session
def test_a_jagged_argument_or_its_view_is_written(compile, write, kind):
    def f(x):
        write(x)
        return x * 2

    root = x = jagged(2, 3, grad="leaf" in kind)
    x = x * 1 if "non-leaf" in kind else x
    x = x.transpose(1, 2) if "view" in kind else x
    out = attempt(lambda: compile(f)(x))
    yield root, x, out
    if isinstance(out, torch.Tensor) and out.requires_grad:
        yield attempt_later(lambda: out.backward(torch.ones_like(out)))
    yield root, x


@agrees(lambda: given(jagged(2, 3, grad=True) * 2), lambda: given(jagged(1, 1, grad=True) * 2), probe=False)
def test_a_jagged_argument_with_a_history_is_written(x):
    x.neg_()
    return x.clone()


@session
def test_the_caller_writes_a_saved_jagged_argument_before_the_backward(compile):
    """Eager's own message asks a ragged tensor for what it cannot say."""

    x = jagged(2, 3, grad=True) * 2
    y = compile(lambda x: x.sin())(x)
    with torch.no_grad():
        x.mul_(2)
    yield attempt(lambda: y.backward(torch.ones_like(y)))
