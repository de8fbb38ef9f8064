"""What in-place ops, on views too, save, and the caller or another call writes."""

import contextlib

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, backward, session, write
from tests.behaviour.inputs import leaf, plain


@pytest.mark.parametrize("write", [torch.sigmoid_, torch.relu_, torch.Tensor.exp_], ids=["sigmoid", "relu", "exp"])
@session
def test_the_saved_result_of_an_in_place_op_is_written_through_data(compile, write):
    root = leaf(3)
    x = root * 1
    out = compile(lambda x: (write(x), x.data))(x)
    out[1].add_(5)
    backward(out[:1])
    yield root.grad


@session
def test_an_input_that_its_own_in_place_op_saves_may_not_be_written_again(compile):
    x = leaf(3) * 2
    y = compile(lambda x: x.relu_())(x)
    write(y)
    yield x, y, attempt_later(lambda: backward([y]))


@session
def test_the_caller_writes_an_argument_that_the_call_wrote_and_saved(compile):
    f = compile(lambda b, x: torch.square(b.copy_(x)))
    b, x = plain(3), leaf(3)
    y = f(b, x)
    with torch.no_grad():
        b.add_(1)
    yield attempt_later(lambda: y.sum().backward())


@session
def test_an_argument_written_by_two_calls_that_each_save_it(compile):
    f = compile(lambda x: x.relu_())
    a = leaf(3)
    x = a.clone()
    f(x)
    f(x)
    yield attempt_later(lambda: x.sum().backward())


@pytest.mark.parametrize("lazy", [torch.conj, lambda z: z.conj().imag, lambda z: z.t()], ids=["conj", "neg", "no"])
@session
def test_an_in_place_op_on_a_conjugated_or_negated_view_saves_its_result(compile, lazy):
    before = leaf(3, dtype=torch.complex64) * 1
    yield attempt_later(lambda: compile(lambda x: x.real.copy_(plain(3)))(before).sum().backward())
    x = leaf(3, dtype=torch.complex64)
    y = compile(torch.Tensor.exp_)(lazy(x * 1))
    with torch.no_grad():
        y.add_(1)
    yield attempt_later(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))


@pytest.mark.parametrize(
    "lazy", [torch.conj, lambda z: z.conj().imag, lambda z: z.conj()[:2]], ids=["conj", "neg", "part"]
)
@pytest.mark.parametrize(
    "write",
    [
        torch.Tensor.mul_,
        torch.Tensor.copy_,
        pytest.param(lambda v, y: v.addcmul_(y, y), marks=pytest.mark.soft("freed")),  # no operand is needed
    ],
)
@pytest.mark.parametrize("also", [True, False])
@session
def test_an_in_place_op_on_a_conjugated_or_negated_view_saves_its_operands(compile, lazy, write, also):
    x = leaf(3, dtype=torch.complex64)
    y = (leaf(1) if also else plain(1)) * 1
    v = lazy(x * 1)
    compile(write)(v, y)
    with torch.no_grad():
        y.zero_()
    yield attempt_later(lambda: torch.autograd.grad(v, x, torch.ones_like(v)))


@pytest.mark.parametrize("where", ["around", "inside"])
@session
def test_an_in_place_op_on_a_view_saves_its_result_after_a_call_under_saved_tensor_hooks(compile, where):
    hooks = torch.autograd.graph.saved_tensors_hooks
    nothing = contextlib.nullcontext

    def f(x):
        with hooks(lambda t: t, lambda t: t) if where == "inside" else nothing():
            return x.sigmoid_()

    with hooks(lambda t: t, lambda t: t) if where == "around" else nothing():
        y = compile(f)((leaf(3) * 1)[:2])
    yield attempt_later(lambda: y.sum().backward())
    x = leaf(3)
    y = compile(torch.Tensor.sigmoid_)((x * 1)[:2])
    with torch.no_grad():
        y.add_(1)
    yield attempt_later(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))


class _Dirty(torch.autograd.Function):
    runs = 0

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        _Dirty.runs += 1
        (x,) = ctx.saved_tensors
        return g * x


_WRITES = {
    "relu_": lambda x, y: torch.relu_(x),
    "exp_": lambda x, y: x.exp_(),
    "mul_": lambda x, y: x.mul_(y),
    "add_": lambda x, y: x.add_(y),
    "zero_": lambda x, y: x.zero_(),
    "pow_": lambda x, y: x.pow_(2),
    "part": lambda x, y: x[:2].sigmoid_(),
    "custom": lambda x, y: _Dirty.apply(x),
    "custom of a part": lambda x, y: _Dirty.apply(x[:2]),
    "list": lambda x, y: torch._foreach_mul_([x[:1], x[1:]], [y[:1], y[1:]]),
}


@pytest.mark.parametrize("op", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("written", ["x", "y", "base", "output", "nothing"])
@session
def test_what_an_in_place_op_on_a_view_saves_must_not_be_written(compile, op, written):
    def f(x, y):
        op(x, y)
        return x[:], x * 1

    for part in (0, 1):
        root, other = leaf(2, 3), leaf(3, 2, seed=1)
        base, y = root * 1, other * 1
        x = base.t()
        outputs = compile(f)(x, y)
        with torch.no_grad():
            target = {"x": x, "y": y, "base": base, "output": outputs[0], "nothing": plain(2)}[written]
            target.add_(1)
        wanted, out = [root, other], outputs[part]
        yield attempt_later(
            lambda: torch.autograd.grad(out, wanted, plain(3, 2), allow_unused=True)  # noqa: B023
        )


@session
def test_a_view_written_by_one_call_and_by_the_next(compile):
    x = (leaf(2, 3) * 1).t()
    f = compile(lambda x: x.relu_())
    f(x)
    f(x)
    yield attempt_later(lambda: x.backward(plain(3, 2)))


def test_the_backward_of_a_function_that_marks_a_view_dirty_is_traced_once():
    root = leaf(2, 3)
    base = root * 1
    _Dirty.runs = 0
    aotcheck.aot_function(lambda x: _Dirty.apply(x) * 2, fw_compiler=aotcheck.nop)(base.t())
    assert _Dirty.runs <= 1  # and not run to find out what it keeps
