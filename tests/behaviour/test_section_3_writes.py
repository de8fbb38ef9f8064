"""BEHAVIOUR 3: data written to inputs, in the corners, and what is saved for backward meanwhile."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import (
    Given,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    non_leaf,
    plain,
    write,
)

# -- who writes, and through what ------------------------------------------------------------------


def test_an_input_written_through_an_expanded_view_of_equal_values():
    check(lambda x: (x.unsqueeze(0).expand(4, 3).fill_(2), x * 3)[1], lambda: given(plain(3)))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.fill_(2),
        lambda y: y.zero_(),
        lambda y: y.copy_(torch.ones_like(y)),
        lambda y: y.add_(1),
        lambda y: y.mul_(y),
        lambda y: y.masked_fill_(y > 0, 1),
        lambda y: y.__setitem__(0, 4),
        lambda y: y.clamp_(min=0),
        lambda y: y.random_(1, 5),
        lambda y: torch.add(y, 1, out=y),
        lambda y: torch._foreach_add_([y], 1),
        lambda y: torch._foreach_zero_([y]),
        lambda y: y[0].add_(1),
        lambda y: y[:, :1].add_(1),
    ],
    ids=[
        "fill_",
        "zero_",
        "copy_",
        "add_",
        "mul_ of itself",
        "masked_fill_",
        "setitem",
        "clamp_",
        "random_",
        "out=",
        "foreach_add_",
        "foreach_zero_",
        "a row",
        "a column",
    ],
)
def test_an_expanded_input_is_written_or_refused_as_eager_does(write):
    def f(x):
        write(x)
        return x * 2

    def make() -> Given:
        base = plain(3)
        return given(base.expand(4, 3), also=[base])

    check(f, make)

    def column() -> Given:
        base = plain(3, 1)
        return given(base.expand(3, 4), also=[base])

    check(f, column)


def test_an_expanded_input_is_read_and_differentiated():
    def make() -> Given:
        root = leaf(3)
        return given(root.expand(4, 3), also=[root])

    check(lambda x: (x * x, x.sum(0)), make)


def test_an_expanded_non_leaf_is_written_where_eager_writes_it():
    def f(x):
        x[0].mul_(2)
        return x * 3

    def make() -> Given:
        root = leaf(3)
        base = root * 1
        return given(base.expand(4, 3), also=[root, base])

    check(f, make)


def test_a_write_under_no_grad_to_a_leaf_that_was_used_before():
    def f(x):
        y = x * x
        with torch.no_grad():
            x.add_(1)
        return y

    check(f, lambda: given(leaf(3)))


def test_a_write_through_data_after_a_use_is_not_noticed_by_autograd():
    def f(x):
        y = x * x
        x.data.add_(1)
        return y, x * 2

    check(f, lambda: given(leaf(3)))


def test_a_write_through_a_detached_alias_after_a_use_is_noticed_at_backward():
    def f(x):
        y = x * x
        x.detach().add_(1)
        return y

    check(f, lambda: given(leaf(3)))


def test_a_write_through_a_detached_alias_of_a_non_leaf():
    def f(x):
        x.detach().mul_(2)
        return x * 3

    check(f, lambda: non_leaf(3))


def test_a_view_of_data_is_written():
    def f(x):
        x.data[1:].mul_(2)
        x.data.view(-1)[0] = 7
        return x * x

    check(f, lambda: given(leaf(3)))


def test_a_write_under_no_grad_through_a_view_made_with_grad():
    def f(x):
        y = x[1:]
        with torch.no_grad():
            y.mul_(2)
        return x * 3, y * 2

    check(f, lambda: given(leaf(4)))
    check(f, lambda: non_leaf(4))


def test_a_write_with_grad_through_a_view_made_under_no_grad():
    def f(x, w):
        with torch.no_grad():
            y = x[1:]
        y.mul_(w)
        return x * 3

    check(f, lambda: given(plain(4), plain(3)))
    check(f, lambda: given(plain(4), leaf(3)))
    check(f, lambda: given(leaf(4), plain(3)))
    check(f, lambda: given(*non_leaf(4).args, plain(3)))


def test_all_inputs_of_several_kinds_are_written():
    def f(a, b, c, d):
        a.add_(1)
        b.logical_not_()
        c.mul_(2)
        d.copy_(a)
        return a + d

    check(f, lambda: given(plain(3), plain(3) > 0, plain(3).int(), plain(3).double()))


def test_a_mutated_input_returned_beside_its_views():
    def f(x):
        x.add_(1)
        return x, x[0], x.view(-1), x.detach()

    check(f, lambda: given(plain(2, 3)))
    check(f, lambda: non_leaf(2, 3))


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


def test_a_copy_into_an_input_cuts_its_former_history():
    def f(x, y):
        x.copy_(y)

    def session(compile):
        root, y = leaf(3), leaf(3, seed=1)
        x = root * 2
        compile(f)(x, y)
        backward([x])
        yield root, x, y

    check_session(session)


def test_a_write_of_another_dtype_and_of_a_broadcast():
    def f(x, y):
        x.copy_(y)
        x += 1
        return x * 2

    check(f, lambda: given(plain(2, 3), leaf(3, dtype=torch.float64)))
    check(f, lambda: given(plain(2, 3), plain(3).int()))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.complex128, torch.int8, torch.int16, torch.uint8, torch.bool],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0,), (3,)], ids=str)
def test_zero_dim_and_zero_size_of_any_dtype(dtype: torch.dtype, shape: tuple[int, ...]):
    def f(x, y):
        x.copy_(y)
        return x.clone(), x.view(-1), x * y

    check(f, lambda: given(plain(*shape).abs().to(dtype), plain(*shape, seed=1).abs().to(dtype)))


def test_a_zero_dim_input_beside_a_scalar_and_another_dtype():
    check(lambda x, y: (x.add_(2), x * y, y * 3), lambda: given(plain(dtype=torch.float64), leaf(3)))
    check(lambda x, y: (x * y).sum(), lambda: given(leaf(dtype=torch.float64), leaf(3)))


def test_a_complex_non_leaf_written_through_its_real_part():
    def f(x):
        x.real.mul_(2)
        torch.view_as_real(x)[..., 1].add_(1)
        return x * 3

    def make() -> Given:
        root = leaf(3, dtype=torch.complex64)
        return given(root * 1, also=[root])

    check(f, lambda: given(plain(3, dtype=torch.complex64)))
    check(f, make)


def test_a_conjugated_input_is_written():
    def f(x):
        x.mul_(2)
        return x * 3, x.conj()

    def make(view) -> Given:
        base = plain(3, dtype=torch.complex64)
        return given(view(base), also=[base])

    check(f, lambda: make(torch.conj))
    check(f, lambda: make(lambda x: x.conj().imag))


@pytest.mark.parametrize(
    "lazy", [torch.conj, lambda x: x.conj().imag, lambda x: x.conj() * 1], ids=["conj", "neg", "no"]
)
def test_what_is_detached_of_a_conjugate_is_written_with_a_history(lazy):
    def f(x):
        y = x.detach()
        y.copy_(x)
        return y

    def session(compile):
        root = leaf(3, dtype=torch.complex64)
        x = lazy(root)
        y = compile(f)(x)
        yield y, x, root, y._is_view(), attempt_later(lambda: write(y))
        yield y, x, root, attempt_later(lambda: backward([y])), root.grad

    check_session(session)


@pytest.mark.parametrize("view", ["real", "imag", "view_as_real of the conjugate", "part"])
@pytest.mark.parametrize("trained", [False, True])
def test_a_conjugated_input_is_written_and_seen_as_real(view, trained):
    seen = {
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "view_as_real of the conjugate": lambda x: torch.view_as_real(x.conj()),
        "part": lambda x: torch.view_as_real(x[1:].conj())[..., 0],
    }[view]

    def before(x):
        v = seen(x)
        x.mul_(2)
        return v * 3

    def after(x):
        x.mul_(2)
        return seen(x) * 3

    def through(x):
        x.add_(1)
        seen(x).mul_(2)
        return x * 3

    def make():
        base = plain(3, dtype=torch.complex64) * 1j + plain(3, seed=2)
        root = base.requires_grad_(trained)
        return given((root * 2).conj(), also=[root])

    for body in (before, after, through):
        check(body, make)


# -- lists of tensors, and the same element twice --------------------------------------------------


def test_foreach_with_the_same_tensor_twice():
    def f(x, y):
        torch._foreach_mul_([x, y, x], 2)
        torch._foreach_add_([x, x], [y, y])
        return x + y

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_foreach_with_the_same_tensor_twice_and_a_gradient():
    def f(x, w):
        y = x * w
        torch._foreach_mul_([y, y], [w, w])
        return y

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
def test_foreach_over_overlapping_windows(grad: bool):
    def f(x):
        base = x * 1
        torch._foreach_mul_([base[:3], base[1:]], 2)
        torch._foreach_add_([base[:3], base[1:]], [base[1:], base[:3]])
        return base

    check(f, lambda: given(leaf(4) if grad else plain(4)))


def test_foreach_over_inputs_that_overlap():
    def f(x, y):
        torch._foreach_add_([x, y], 1)
        torch._foreach_mul_([x, y], [y, x])
        return x + y

    def make() -> Given:
        base = plain(6)
        return given(base[:4], base[2:], also=[base])

    check(f, make)


def test_foreach_over_windows_of_a_base_that_requires_grad():
    def f(x, w):
        torch._foreach_mul_([x[:2], x[2:]], [w, w])
        return x * 2

    def make() -> Given:
        root = leaf(4)
        return given(root * 1, leaf(2, seed=1), also=[root])

    check(f, make)


def test_foreach_copies_between_inputs():
    def f(x, y):
        torch._foreach_copy_([x, y], [y, x])
        return x + y

    check(f, lambda: given(plain(3), plain(3, seed=1)))


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
def test_duplicate_indices_accumulate(write):
    def f(x, i, v):
        write(x, i, v)
        return x * 2

    check(f, lambda: given(plain(4), _indices(1, 1, 3, 1), plain(4, seed=1)))
    check(f, lambda: given(plain(4), _indices(1, 1, 3, 1), leaf(4, seed=1)))


def test_duplicate_indices_are_gathered_and_accumulate_in_the_gradient():
    check(lambda x, i: (x[i], x.gather(0, i), x.index_select(0, i)), lambda: given(leaf(4), _indices(1, 1, 3, 1)))


# -- what is saved for backward --------------------------------------------------------------------


def test_what_is_saved_is_from_before_a_mutation_of_a_view():
    def f(buffer, x):
        y = x * buffer.clone()
        buffer[1:].zero_()
        return y, x * buffer

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_an_intermediate_saved_and_then_written_under_no_grad():
    def f(x):
        y = x * 2
        z = y * y
        with torch.no_grad():
            y.add_(1)
        return z

    check(f, lambda: given(leaf(3)))


def test_an_intermediate_saved_and_then_written_through_data():
    def f(x):
        y = x * 2
        z = y * y
        y.data.add_(1)
        return z

    check(f, lambda: given(leaf(3)))


def test_an_input_saved_and_written_through_data_inside():
    def f(buffer, x):
        y = x * buffer
        buffer.data.add_(1)
        return y

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_a_view_of_what_is_saved_written_inside():
    def f(buffer, x):
        y = x * buffer
        buffer[0].add_(1)
        return y, x * 2

    check(f, lambda: given(plain(3), leaf(3, seed=1)))
    check(f, lambda: given(plain(3), leaf(3, seed=1)), backward=[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.add_(1),
        lambda b: b[0].add_(1),
        lambda b: b.detach().add_(1),
        lambda b: b.view(-1).add_(1),
        lambda b: b.t_(),
        lambda b: b.resize_(2, 3),
    ],
    ids=["itself", "a view", "a detached alias", "a flat view", "metadata only", "resized to its own size"],
)
def test_what_the_caller_changes_between_forward_and_backward(change):
    check(
        lambda b, x: (x * b, x + b),
        lambda: given(plain(2, 3), leaf(2, 3)),
        after=lambda args, out: change(args[0]) is None,
    )


def test_the_caller_writes_an_output_that_was_saved():
    for function in (lambda x: x.exp(), lambda x: x.sigmoid(), lambda x: x.relu(), lambda x: x * 2):
        check(function, lambda: given(leaf(3)), after=lambda args, y: y.mul_(2) is None, rtol=1e-6)


def test_the_caller_writes_an_alias_of_what_was_saved():
    def session(compile):
        base, x = plain(6), leaf(3)
        y = compile(lambda b, x: x * b)(base[:3], x)
        base[3:].add_(1)
        yield attempt_later(lambda: backward([y])), x

    check_session(session)


def test_the_caller_writes_a_leaf_between_forward_and_backward():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(lambda x, w: x * w)(x, w)
        with torch.no_grad():
            w.add_(1)
        yield attempt_later(lambda: backward([y])), x, w

    check_session(session)


def test_the_version_of_an_input_is_eagers():
    def session(compile):
        def f(x, y, z):
            x.add_(1)
            x[0].mul_(2)
            y.data.add_(1)
            return x + y + z

        x, y, z = plain(3), plain(3), plain(3)
        compile(f)(x, y, z)
        yield x, y, z, [t._version > 0 for t in (x, y, z)]

    check_session(session)


def test_an_error_of_a_write_is_eagers_and_comes_after_the_writes_before_it():
    def f(x, y):
        x.add_(1)
        x.copy_(y)
        return x

    check(f, lambda: given(plain(3), plain(4)))
    check(lambda x, y: (x.mul_(2), x.add_(y)), lambda: given(plain(3).int(), plain(3)))


def test_a_refused_write_of_a_leaf_may_be_caught_inside():
    def f(x):
        try:
            x.add_(1)
        except RuntimeError:
            return x * 2
        return x * 3

    def session(compile):
        x = leaf(3)
        yield attempt(lambda: compile(f)(x)), x

    check_session(session)


def test_a_written_input_that_its_own_history_saves_may_not_be_written_again():
    def session(compile):
        x = leaf(3) * 2
        y = compile(lambda x: x.relu_())(x)
        write(y)
        yield x, y, attempt_later(lambda: backward([y]))

    check_session(session)


def test_the_base_of_a_view_made_by_a_custom_function_is_written_after_the_view_was_used():
    def session(compile):
        def f(x, y):
            z = y * 3
            with torch.no_grad():
                x.add_(1)
            return z

        root = leaf(3)
        base = root * 2
        z = compile(f)(base, View.apply(base))
        yield z, base, attempt_later(lambda: backward([z])), root.grad

    check_session(session)


def test_gradients_go_by_the_history_that_an_input_had_when_it_was_used():
    def f(x, y):
        y.mul_(2)
        z = x * y
        x.mul_(0)
        return z, y * 3

    def make():
        a, b = leaf(3), leaf(3, seed=1)
        return given(a * 2, b * 2, also=[a, b])

    check(f, make)


def test_the_real_view_of_a_transposed_complex_tensor_is_written():
    def f(x):
        torch.view_as_real(x).mul_(2)
        return x.clone(), x * 1

    check(f, lambda: (plain(2, 3, dtype=torch.complex64).t().clone(),))


def test_the_gradient_that_an_input_holds_stays_when_it_is_written():
    def session(compile):
        f = compile(lambda x: x.mul_(2))
        x = leaf(3) * 2
        f(x).sum().backward(inputs=[x])
        x.mul_(2)
        kept = x.grad
        f(x)
        yield x, x.grad, x.grad is kept

    check_session(session)


def test_a_view_of_a_custom_function_may_not_be_detached_in_place():
    def f(x, y):
        x.untyped_storage().resize_(0)
        y.detach_()

    def session(compile):
        x, y = plain(3), View.apply(leaf(3))
        yield attempt_later(lambda: compile(f)(x, y)), x.untyped_storage().nbytes(), y

    check_session(session)


def test_a_second_call_with_a_view_made_under_no_grad_whose_base_was_written():
    def session(compile):
        f = compile(lambda x, y: x.mul_(2))
        x = leaf(3) * 2
        with torch.no_grad():
            y = x.view(-1)
        y.register_hook(lambda g: None) if y.requires_grad else None
        for _ in range(2):
            f(x, y)
        yield x

    check_session(session)


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_view_of_a_leaf_written_under_no_grad_and_saved(dtype: torch.dtype, shape: tuple[int, ...]):
    def f(x):
        with torch.no_grad():
            x.zero_()
        return x * x

    def inputs():
        a = leaf(*shape, dtype=dtype)
        return given(a.unsqueeze(0), also=[a])

    check(f, inputs)


def test_a_write_to_an_empty_window_then_a_read_of_a_view():
    def f(x):
        x[1:] = x
        return torch.ne(x, x.T)

    check(f, lambda: given(plain(1, 3)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.long])
@pytest.mark.parametrize("through", [False, True])
def test_a_view_of_integers_that_come_to_require_grad(dtype, through):
    """No view can be made of them afterwards."""

    def f(x, y):
        view, inner = x.view(3), x.view(3)[1:]
        (view if through else x).gt_(y)
        return view, inner

    check(f, lambda: given(torch.zeros(3, dtype=dtype), leaf(3)))


@pytest.mark.parametrize("inside", [False, True])
def test_bytes_of_bools_that_are_neither_0_nor_1(inside):
    def f(x):
        y = torch.ones(3, dtype=torch.bool) if inside else x
        view = y.view(torch.uint8)
        view.neg_()
        return view, y.view(torch.uint8)[1:], x

    check(f, lambda: given(torch.ones(3, dtype=torch.bool)))


_NORMALIZED = {
    "one tensor for both": lambda x, w, v: (x, None, None, v, v),
    "the weight": lambda x, w, v: (x, v, w, v, w),
    "a part of the bias": lambda x, w, v: (x, w, w, w, v),
    "both and all": lambda x, w, v: (x, v, v, v, v),
    "a window": lambda x, w, v: (x, torch.cat([w, v])[1:4], v, v, w),
}


@pytest.mark.parametrize("operands", _NORMALIZED.values(), ids=_NORMALIZED)
@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_that_share_memory_with_what_batch_norm_is_given(operands, training):
    def f(x, w, v):
        x, weight, bias, mean, variance = operands(x, w, v)
        return torch.nn.functional.batch_norm(x * 2, mean, variance, weight, bias, training)

    check(f, lambda: (leaf(4, 3), plain(3, seed=1).abs(), plain(3, seed=2).abs()), rtol=1e-5)


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
def test_an_operand_that_is_too_large_for_what_is_written(write, caught):
    """Meta kernels of many ops resize the tensor instead."""

    def f(x, y):
        try:
            write(x[1:], y)
        except RuntimeError:
            if not caught:
                raise
            x.mul_(5)
        return x * 2

    check(f, lambda: given(plain(2), plain(2, seed=1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("number", [complex(2, 0), complex(0, 1)], ids=str)
def test_a_complex_number_is_filled_in_by_a_mask(dtype, number):
    def session(compile):
        for fill in (torch.Tensor.masked_fill, torch.Tensor.masked_fill_):
            x, mask = plain(3).to(dtype), torch.tensor([True, False, True], device=plain(1).device)
            yield attempt(lambda fill=fill, x=x, mask=mask: compile(lambda x, m: fill(x * 1, m, number))(x, mask))

    check_session(session)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("write", [lambda t: t.zero_(), lambda t: t.copy_(torch.ones(1)), lambda t: t.add_(1)])
def test_a_single_element_without_a_stride_is_read_as_another_dtype(write, trained: bool):
    def f(x, y, z):
        write(y[1:])
        z.copy_(x)

    def session(compile):
        memory = torch.full((), 3, dtype=torch.complex64)
        part = memory.real.requires_grad_(trained)
        z = torch.zeros(())
        compile(f)(part, memory.expand(2), z)
        yield memory, z, part

    check_session(session)


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("write", [torch.Tensor.zero_, lambda t: t.mul_(2)], ids=["zero_", "mul_"])
@pytest.mark.parametrize("change", [lambda t: t.unsqueeze_(0), lambda t: t.t_()], ids=["unsqueeze_", "t_"])
def test_writes_around_a_change_in_place_where_the_storage_grew(change, write, size):
    def grows(x):
        write(x)
        x.untyped_storage().resize_(64)
        change(x)
        write(x)
        return x

    check(grows, lambda: non_leaf(size))
