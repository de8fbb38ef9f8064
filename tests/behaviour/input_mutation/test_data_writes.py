"""In-place ops on inputs, out=, foreach, index_put, copy_; all dtypes and layouts."""

from typing import Any

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, backward, check, session
from tests.behaviour.inputs import Given, given, leaf, non_leaf, plain, to_device

_FACTORIES = {
    "arange": lambda x: torch.arange(3, out=x),
    "arange from": lambda x: torch.arange(1, 7, 2, out=x),
    "linspace": lambda x: torch.linspace(0, 1, 3, out=x),
    "logspace": lambda x: torch.logspace(0, 2, 3, out=x),
    "zeros": lambda x: torch.zeros(3, out=x),
    "ones": lambda x: torch.ones(3, out=x),
    "full": lambda x: torch.full((3,), 5.0, out=x),
    "eye": lambda x: torch.eye(2, out=x),
    "eye of two sizes": lambda x: torch.eye(2, 3, out=x),
    "rand": lambda x: torch.rand(3, out=x),
    "randn": lambda x: torch.randn(3, out=x),
    "randint": lambda x: torch.randint(0, 9, (3,), out=x),
    "normal": lambda x: torch.normal(0.0, 1.0, (3,), out=x),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("shape", [(3,), (0,), (2,), (2, 3), (3, 3)])
@pytest.mark.parametrize("function", _FACTORIES.values(), ids=_FACTORIES.keys())
@session
def test_factories_with_out_write_and_resize_an_argument(compile, function: Any, shape: tuple[int, ...]):
    f = compile(function)
    for k in range(2):
        torch.manual_seed(k)
        x = plain(*shape)
        alias = x.view(-1) if x.numel() else x
        out = f(x)
        yield out is x, out, alias, torch.rand(1, device=x.device)


@session
def test_masked_fill_of_a_bool_tensor_with_a_complex_number(compile):
    def f(x):
        mask = torch.logical_not(x)
        return mask.masked_fill_(mask, complex(1.0, 2.0))

    for x in (plain(3), to_device(torch.zeros(3))):
        yield compile(f)(x)


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_an_input_written_through_itself(x, y):
    x.add_(y)
    return x * y


@agrees(lambda: given(plain(3), plain(3, seed=1), leaf(3, seed=2)))
def test_several_inputs_written(x, y, z):
    x.add_(z)
    y.copy_(x)
    return x + y + z


@agrees(lambda: given(plain(3)))
def test_a_mutated_input_returned(x):
    return x.add_(1)


def test_a_mutated_non_leaf_returned_and_differentiated():
    def f(x, y):
        x.mul_(y)
        return x

    def make() -> Given:
        root, y = leaf(3), leaf(3, seed=1)
        return given(root * 2, y, also=[root])

    check(f, make)


@session
def test_the_gradient_of_a_mutated_non_leaf_flows_through_the_mutation_alone(compile):
    def f(x):
        x.mul_(5)

    root = leaf(3)
    x = root * 2
    yield compile(f)(x), x
    backward([x * 3])
    yield root, x


def test_a_write_to_a_leaf_that_requires_grad_is_eagers_error():
    check(lambda x: x.add_(1), lambda: given(leaf(3)))


@agrees(lambda: given(plain(3), leaf(3)))
def test_writes_before_an_error_stay(buffer, x):
    buffer.add_(1)
    return x.add_(1)


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_a_buffer_requires_grad_after_a_write_from_a_leaf(buffer, x):
    buffer.add_(x)
    return buffer * 2


@session
def test_a_buffer_written_from_a_leaf_and_not_returned(compile):
    def f(buffer, x):
        buffer.mul_(x)

    buffer, x = plain(3), leaf(3, seed=1)
    yield compile(f)(buffer, x), buffer
    backward([buffer * 2])
    yield buffer, x


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str
)
@agrees(lambda dtype: given(plain(3).abs().to(dtype)))
def test_an_input_of_any_dtype_written(x):
    x[0] = x[1]
    return x.clone()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@agrees(lambda shape, dtype: given(plain(*shape, dtype=dtype), leaf(*shape, seed=1, dtype=dtype)))
def test_an_input_of_any_shape_written(x, y):
    x.add_(y)
    return x * y


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.permute(0, 3, 1, 2),
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x[:, ::2],
        lambda x: x[1:],
        lambda x: x.transpose(-1, -2),
    ],
    ids=["permuted", "channels last", "strided", "with an offset", "transposed"],
)
@agrees(lambda layout: given(layout(plain(2, 4, 3, 5)), layout(leaf(2, 4, 3, 5, seed=1))))
def test_an_input_of_any_layout_written(x, y):
    x.mul_(2)
    return x + y, x.relu()


@agrees(lambda: given(plain(5), torch.tensor([1, 3], device=plain(1).device), leaf(2, seed=1)))
def test_indexed_writes(x, i, v):
    x[i] = v
    x.index_add_(0, i, v)
    x.index_put_((i,), v, accumulate=True)
    return x * 2


@agrees(lambda: given(plain(5), leaf(5, seed=1)))
def test_masked_writes(x, y):
    x.masked_fill_(y > 0, 3)
    x[y < 0] = -1
    return x * y


@agrees(lambda: given(plain(3)))
def test_writes_that_cancel_restore_the_value(x):
    x.add_(1)
    x.sub_(1)
    return x * 2


@agrees(lambda: given(plain(3), plain(3) > 0, plain(3).int(), plain(3).double()))
def test_inputs_of_several_dtypes_are_all_written(a, b, c, d):
    a.add_(1)
    b.logical_not_()
    c.mul_(2)
    d.copy_(a)
    return a + d


@agrees(lambda: given(plain(2, 3)), lambda: non_leaf(2, 3), anew=True)
def test_a_mutated_input_returned_with_its_views(x):
    x.add_(1)
    return x, x[0], x.view(-1), x.detach()


def test_a_non_leaf_written_repeatedly():
    def f(x, y):
        for _ in range(3):
            x.mul_(y)
            x[0].add_(y[0])
        return x.sum()

    def make() -> Given:
        root, y = leaf(3), leaf(3, seed=1)
        return given(root * 2, y, also=[root])

    check(f, make)


@session
def test_a_copy_into_an_input_replaces_its_history(compile):
    def f(x, y):
        x.copy_(y)

    root, y = leaf(3), leaf(3, seed=1)
    x = root * 2
    compile(f)(x, y)
    backward([x])
    yield root, x, y


@agrees(lambda: given(plain(2, 3), leaf(3, dtype=torch.float64)), lambda: given(plain(2, 3), plain(3).int()), anew=True)
def test_a_write_of_another_dtype_and_of_a_broadcast(x, y):
    x.copy_(y)
    x += 1
    return x * 2


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.complex128, torch.int8, torch.int16, torch.uint8, torch.bool],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0,), (3,)], ids=str)
@agrees(lambda dtype, shape: given(plain(*shape).abs().to(dtype), plain(*shape, seed=1).abs().to(dtype)))
def test_zero_dim_and_zero_size_inputs_of_any_dtype_written(x, y):
    x.copy_(y)
    return x.clone(), x.view(-1), x * y


def test_a_zero_dim_input_written_with_a_scalar_and_used_with_another_dtype():
    check(lambda x, y: (x.add_(2), x * y, y * 3), lambda: given(plain(dtype=torch.float64), leaf(3)))
    check(lambda x, y: (x * y).sum(), lambda: given(leaf(dtype=torch.float64), leaf(3)))


def _indices(*values: int) -> torch.Tensor:
    return torch.tensor(values, device=plain(1).device)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, i, v: x.index_add_(0, i, v),
        lambda x, i, v: x.index_put_((i,), v, accumulate=True),
        lambda x, i, v: x.scatter_add_(0, i, v),
        lambda x, i, v: x.put_(i, v, accumulate=True),
        lambda x, i, v: x.scatter_reduce_(0, i, v, "sum"),
        lambda x, i, v: x.index_reduce_(0, i, v, "prod"),
    ],
    ids=["index_add_", "index_put_", "scatter_add_", "put_", "scatter_reduce_", "index_reduce_"],
)
@agrees(
    lambda: given(plain(4), _indices(1, 1, 3, 1), plain(4, seed=1)),
    lambda: given(plain(4), _indices(1, 1, 3, 1), leaf(4, seed=1)),
    anew=True,
)
def test_duplicate_indices_accumulate(x, i, v, *, write):
    write(x, i, v)
    return x * 2


def test_duplicate_indices_are_gathered_and_accumulate_in_the_gradient():
    check(lambda x, i: (x[i], x.gather(0, i), x.index_select(0, i)), lambda: given(leaf(4), _indices(1, 1, 3, 1)))


def test_an_error_of_a_write_is_eagers_and_keeps_the_writes_before_it():
    def f(x, y):
        x.add_(1)
        x.copy_(y)
        return x

    check(f, lambda: given(plain(3), plain(4)))
    check(lambda x, y: (x.mul_(2), x.add_(y)), lambda: given(plain(3).int(), plain(3)))


@session
def test_the_error_of_a_write_to_a_leaf_may_be_caught_inside(compile):
    def f(x):
        try:
            x.add_(1)
        except RuntimeError:
            return x * 2
        return x * 3

    x = leaf(3)
    yield attempt(lambda: compile(f)(x)), x


def test_gradients_use_the_history_that_an_input_had_when_it_was_used():
    def f(x, y):
        y.mul_(2)
        z = x * y
        x.mul_(0)
        return z, y * 3

    def make():
        a, b = leaf(3), leaf(3, seed=1)
        return given(a * 2, b * 2, also=[a, b])

    check(f, make)


@session
def test_the_grad_of_an_input_stays_when_the_input_is_written(compile):
    f = compile(lambda x: x.mul_(2))
    x = leaf(3) * 2
    f(x).sum().backward(inputs=[x])
    x.mul_(2)
    kept = x.grad
    f(x)
    yield x, x.grad, x.grad is kept


_TOO_LARGE = {
    "add_": lambda x, y: x.add_(y),
    "floor_divide_": lambda x, y: x.floor_divide_(y),
    "pow_": lambda x, y: x.pow_(y),
    "eq_": lambda x, y: x.eq_(y),
    "atan2_": lambda x, y: x.atan2_(y),
    "clamp_": lambda x, y: x.clamp_(y, y),
    "addr_": lambda x, y: x.addr_(y, y),
}


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("write", _TOO_LARGE.values(), ids=_TOO_LARGE)
@agrees(lambda: given(plain(2), plain(2, seed=1)))
def test_an_operand_too_large_for_the_written_tensor_is_eagers_error(x, y, *, write, caught):
    """Meta kernels of many ops resize the tensor instead."""
    try:
        write(x[1:], y)
    except RuntimeError:
        if not caught:
            raise
        x.mul_(5)
    return x * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("number", [complex(2, 0), complex(0, 1)], ids=str)
@session
def test_masked_fill_of_any_dtype_with_a_complex_number(compile, dtype, number):
    for fill in (torch.Tensor.masked_fill, torch.Tensor.masked_fill_):
        x, mask = plain(3).to(dtype), torch.tensor([True, False, True], device=plain(1).device)
        yield attempt(lambda fill=fill, x=x, mask=mask: compile(lambda x, m: fill(x * 1, m, number))(x, mask))
