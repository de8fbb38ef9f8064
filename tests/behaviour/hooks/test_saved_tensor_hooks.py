"""Saved-tensor hooks around the call and inside."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf
from tests.behaviour.shared import arguments


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
def test_an_unpack_hook_inside_is_called_once():
    def f(x, w, seen):
        def unpack(t):
            seen.add_(1)
            return t

        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
            a = (x * w).tanh()
        return a, a * x

    check(f, arguments)
    check(lambda x, w, seen: f(x * 1, w * 1, seen), arguments)


@session
def test_saved_tensor_hooks_around_the_call(compile):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
    backward([y])
    yield x


@pytest.mark.parametrize("op", [lambda x: torch._foreach_mul([x], 3)[0], lambda x: torch._foreach_neg([x])[0]])
@session
def test_what_a_foreach_op_saves_through_hooks_is_freed_by_its_backward(compile, op):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        x = leaf(3)
        y = compile(op)(x)
    for _ in range(2):  # the second raises of what multiplied, not of what negated
        yield attempt_later(lambda: backward([y])), x


@session(rtol=1e-6)
def test_save_on_cpu_around_the_call(compile):
    with torch.autograd.graph.save_on_cpu():
        x = leaf(3)
        y = compile(lambda x: x.exp() * x)(x)
    backward([y])
    yield x


@agrees(lambda: given(leaf(3)))
def test_saved_tensor_hooks_inside(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
        y = x * x
    return y * 2


@session
def test_saved_tensor_hooks_disabled_around_the_call(compile):
    x = leaf(3)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        y = compile(lambda x: x * x)(x)
    backward([y])
    yield x
