"""Inference tensors and mode, outside and inside (called in it)."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device


@pytest.mark.parametrize("classes", [3, 5])
@session
def test_one_hot_called_in_inference_mode_is_as_in_eager(compile, classes: int):
    f = compile(lambda i: F.one_hot(i + 0, classes))
    for values in ([0, 2], [1, 1]):
        with torch.inference_mode():
            out = f(to_device(torch.tensor(values)))
        yield out, out.is_inference()


FIRST_USED = """
import torch, aotcheck
with torch.inference_mode():
    f = aotcheck.aot_function(lambda x: (x.exp().sum(), x * 2), lambda graph, inputs: graph)
    f(torch.ones(2))
x = torch.ones(2, requires_grad=True)
f(x)[1].sum().backward()
assert x.grad.tolist() == [2, 2] and not x.grad.is_inference()
"""


def test_a_function_compiled_first_in_inference_mode_is_differentiated_later():
    subprocess.run([sys.executable, "-c", FIRST_USED], check=True)


@session
def test_requires_grad_false_after_a_write_to_a_conjugate_in_inference_mode(compile):
    base = leaf(3, dtype=torch.complex64)
    view = base.conj()

    def f(x):
        x.zero_()
        x.requires_grad_(False)

    with torch.inference_mode():
        yield attempt_later(lambda: compile(f)(view))


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("dim", [None, 0])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_repeat_interleave_of_an_inference_tensor_outside_inference_mode(compile, repeats, dim, grad):
    def repeated(x):
        return x.repeat_interleave(repeats, dim)

    def cut(x):
        return repeated(x).detach_()

    for compiled in (compile(repeated), compile(cut)):
        for _ in range(2):
            with torch.inference_mode():
                x = plain(2, 3).requires_grad_(grad)
            y = attempt(lambda compiled=compiled, x=x: compiled(x))
            yield x, y, isinstance(y, torch.Tensor) and y._is_view()


@pytest.mark.parametrize("further", [lambda x: x[:1], lambda x: x.view(-1), lambda x: x[:1][:]])
@pytest.mark.parametrize(
    "function",
    [lambda x: (x.is_leaf, x * 2), lambda x: (x.requires_grad, x[:1]), lambda x: x.detach_()],
    ids=["leafness", "history", "cut"],
)
def test_an_argument_is_a_view_of_a_view_that_was_made_in_inference_mode(function, further):
    def argument():
        root = leaf(2, 3)
        with torch.inference_mode():
            whole = root[:]
        return given(further(whole), also=[root, whole])

    check(function, argument, argument)


@agrees(lambda: given(plain(3)))
def test_an_input_is_written_in_an_inference_mode_inside(x):
    with torch.inference_mode():
        x.add_(1)
    return x * 2


@session
def test_results_views_and_writes_of_a_call_under_inference_mode(compile):
    f = compile(lambda x, y: (x * 2, x.view(-1), y.add_(1), y))
    with torch.inference_mode():
        x, y = plain(2, 3), plain(3)
        yield f(x, y), x, y
    x, y = plain(2, 3), plain(3)
    with torch.inference_mode():
        out = f(x, y)
    yield out, x, y


@session
def test_an_inference_tensor_is_passed_outside_inference_mode(compile):
    with torch.inference_mode():
        x = plain(2, 3)
    yield compile(lambda x: (x * 2, x.view(-1), x))(x), x
    yield attempt_later(lambda: compile(lambda x: x.add_(1))(x)), x


@session
def test_one_function_is_called_in_and_outside_inference_mode(compile):
    f = compile(lambda x, y: (x.mul_(2), x * y)[1])
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        x, y = plain(3), leaf(3, seed=1)
        with mode():
            out = f(x, y)
        yield out, x, y
        if out.requires_grad:
            backward([out])
        yield out, x, y


@session
def test_overlapping_inference_tensors_are_passed_and_written(compile):
    def f(x, y):
        x.mul_(2)
        return x * 3, y * 5

    compiled = compile(f)
    with torch.inference_mode():
        base = plain(8)
        yield compiled(base[:5], base[3:]), base
    made_inside = base[:5], base[2:7]
    yield attempt_later(lambda: compiled(*made_inside)), base


@session
def test_a_tensor_and_its_alias_made_in_inference_mode_are_passed_and_written(compile):
    def f(x, y):
        x.mul_(2)
        return x * 3, y * 5

    base = plain(8)
    with torch.inference_mode():
        view = base[2:]
    yield attempt_later(lambda: compile(f)(base, view)), base, view
    yield attempt_later(lambda: compile(f)(view, base)), base, view


@session
def test_a_write_through_a_view_of_an_inference_tensor_outside_raises_as_in_eager(compile):
    with torch.inference_mode():
        x = plain(2, 3)
    yield attempt_later(lambda: compile(lambda x: x.t().zero_())(x)), x


@session
def test_a_view_of_a_leaf_made_in_inference_mode_is_saved_for_the_backward(compile):
    root = leaf(2, 2)
    with torch.inference_mode():
        view = root.t()
    x = root * 2
    out = compile(lambda x, y: (x * y, x.zero_())[0])(x, view)
    backward([out])
    yield out, x, view, root


@session
def test_inference_mode_is_switched_off_inside_a_call_under_it(compile):
    def f(x, y):
        with torch.inference_mode(False):
            with torch.enable_grad():
                v, z = x.view(-1), x * 2
            with torch.no_grad():
                w = x.view(-1)
            u = y.view(-1)
        return v, w, u, z

    x, y = leaf(2, 3), plain(2, 3)
    with torch.inference_mode():
        out = compile(f)(x, y)
    yield out, x, y
    backward([out[0], out[3]])
    yield x


COMPOSITES = {
    "long": lambda x: x.long(),
    "reshape": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "flatten of its transpose": lambda x: x.T.flatten(),
    "matmul": lambda x: x.matmul(x),
    "where": lambda x: torch.where(x > 0, x, 0),
    "dropout of everything": lambda x: torch.nn.functional.dropout(x, 1.0),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", COMPOSITES)
@session
def test_composite_ops_on_inference_tensors(compile, name: str, inside: bool):
    f = compile(COMPOSITES[name])
    with torch.inference_mode():
        x = plain(3, 3)
    with torch.inference_mode(inside):
        yield x, f(x)
        yield x, f(x)


@session
def test_detach_outside_of_an_inference_tensor_may_be_written(compile):
    with torch.inference_mode():
        x = plain(3)
    y = compile(lambda x: x.detach())(x)
    yield attempt_later(lambda: y.add_(1)), x
    yield attempt_later(lambda: compile(lambda x: x.detach().mul_(2))(x)), x
    yield attempt_later(lambda: compile(lambda x: torch._foreach_mul_([x], 2))(x)), x


_MODES = {
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "outside": lambda: torch.inference_mode(False),
}


@pytest.mark.parametrize("made", _MODES.values(), ids=_MODES)
@pytest.mark.parametrize("reshaped", _MODES.values(), ids=_MODES)
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_view_is_reshaped_in_place_in_a_call_under_inference_mode(compile, made, reshaped, grad):
    def f(x):
        with made():
            y = x.view(2, 2)
        with reshaped():
            y.t_()
        return y, x

    source = leaf(2, 2)
    with torch.set_grad_enabled(grad):
        x = (source * 1).view(2, 2)
    with torch.inference_mode():
        out = attempt(lambda: compile(f)(x))
    if isinstance(out, Raised):
        yield out
        return
    y = out[0]
    yield isinstance(attempt_later(lambda: y.is_leaf), Raised), y.requires_grad, y.shape, y.is_inference()
    gradients = attempt_later(lambda: torch.autograd.grad(y.sum(), source))
    yield "refused" if isinstance(gradients, Raised) else gradients


@pytest.mark.parametrize("function", [torch.broadcast_tensors, torch.atleast_2d, torch.meshgrid, torch.cartesian_prod])
@session
def test_ops_that_take_inference_tensors_in_a_list(compile, function):
    with torch.inference_mode():
        x, y = plain(3), plain(3, seed=1)
    yield compile(lambda x, y: function(x, y))(x, y)


@pytest.mark.parametrize("view", [torch.view_as_real, lambda x: x.t(), torch.conj], ids=["real", "t", "conj"])
@pytest.mark.parametrize("kind", ["leaf", "result"])
@session
def test_an_argument_with_a_view_is_reshaped_and_used_in_an_inference_mode_inside(compile, view, kind):
    def f(x, v):
        with torch.inference_mode():
            x.t_()
            x.clone()
        return v, v.clone()

    source = leaf(2, 3, dtype=torch.complex64)
    x = source if kind == "leaf" else source * 1
    v = view(x)
    out = compile(f)(x, v)
    yield out, x, v.is_leaf
    yield attempt_later(
        lambda: torch.autograd.grad([torch.view_as_real(y).sum() if y.is_complex() else y.sum() for y in out], [source])
    )


def _mixed(x, y):
    x.mul_(2)
    with torch.inference_mode():
        z = y * 3
        w = y[1:]
    return z, w, z[:1], x


@pytest.mark.parametrize("outside", [False, True], ids=["inside alone", "outside too"])
@session
def test_a_write_and_an_inference_mode_inside_a_call_with_and_without_it_around(compile, outside):
    x, y = plain(3), plain(3, seed=1)
    f = compile(_mixed)
    for _ in range(2):
        with torch.inference_mode(outside):
            out = f(x, y)
        yield [t.is_inference() for t in out], out, x


@session
def test_inference_tensors_as_arguments_in_and_outside_inference_mode(compile):
    with torch.inference_mode():
        x = plain(3)
    f = compile(lambda x, y: (x * y, x[1:]))
    out = f(x, plain(3, seed=1))
    yield [t.is_inference() for t in out], out
    with torch.inference_mode():
        yield compile(lambda x: x.add_(1))(x)
