"""BEHAVIOUR 3: what a function does to its inputs, and how its inputs relate."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Given, attempt_later, backward, check, check_session, given, leaf, overlap, plain

# -- data mutation ---------------------------------------------------------------------------------


def test_an_input_written_through_itself():
    def f(x, y):
        x.add_(y)
        return x * y

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_an_input_written_through_a_view():
    def f(x, y):
        x[1:].mul_(2)
        x.view(-1)[0] = 7
        return x + y

    check(f, lambda: given(plain(4), leaf(4, seed=1)))


def test_an_input_written_through_a_chain_of_views():
    def f(x):
        x.t()[1:].unsqueeze(0).transpose(1, 2).add_(3)
        return x * 2

    check(f, lambda: given(plain(3, 4)))


def test_an_input_written_through_detach():
    def f(x):
        y = x * 1
        x.detach().add_(1)
        return y * 2, x * 3

    check(f, lambda: given(leaf(3)))


def test_an_input_written_through_data():
    def f(x):
        x.data.mul_(2)
        return x * x

    check(f, lambda: given(leaf(3)))


def test_an_input_written_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.add_(1)
        return x * 2

    check(f, lambda: given(leaf(3)))


def test_several_inputs_written():
    def f(x, y, z):
        x.add_(z)
        y.copy_(x)
        return x + y + z

    check(f, lambda: given(plain(3), plain(3, seed=1), leaf(3, seed=2)))


def test_a_mutated_input_returned():
    def f(x):
        return x.add_(1)

    check(f, lambda: given(plain(3)))


def test_a_mutated_non_leaf_returned_and_differentiated():
    def f(x, y):
        x.mul_(y)
        return x

    def make() -> Given:
        root, y = leaf(3), leaf(3, seed=1)
        return given(root * 2, y, also=[root])

    check(f, make)


def test_a_non_leaf_written_through_a_view():
    def f(x):
        x[:2].mul_(3)
        return x.sin().sum() * 0 + x.sum()

    def make() -> Given:
        root = leaf(4)
        return given(root.clone(), also=[root])

    check(f, make)


def test_the_gradient_of_a_mutated_non_leaf_flows_through_the_mutation_alone():
    def f(x):
        x.mul_(5)

    def session(compile):
        root = leaf(3)
        x = root * 2
        yield compile(f)(x), x
        backward([x * 3])
        yield root, x

    check_session(session)


def test_a_leaf_that_requires_grad_is_not_written():
    check(lambda x: x.add_(1), lambda: given(leaf(3)))


def test_a_view_of_a_leaf_that_requires_grad_is_not_written():
    check(lambda x: x[0].add_(1), lambda: given(leaf(3)))


def test_what_was_written_before_the_error_stays_written():
    def f(buffer, x):
        buffer.add_(1)
        return x.add_(1)

    check(f, lambda: given(plain(3), leaf(3)))


def test_a_buffer_that_did_not_require_grad_and_now_does():
    def f(buffer, x):
        buffer.add_(x)
        return buffer * 2

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_a_buffer_that_got_a_gradient_and_is_not_returned():
    def f(buffer, x):
        buffer.mul_(x)

    def session(compile):
        buffer, x = plain(3), leaf(3, seed=1)
        yield compile(f)(buffer, x), buffer
        backward([buffer * 2])
        yield buffer, x

    check_session(session)


def test_an_input_that_gets_requires_grad():
    def f(x):
        y = x.requires_grad_()
        return y * 2

    check(f, lambda: given(plain(3)))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str
)
def test_an_input_of_any_dtype_written(dtype: torch.dtype):
    def f(x):
        x[0] = x[1]
        return x.clone()

    check(f, lambda: given(plain(3).abs().to(dtype)))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_input_of_any_shape_written(shape: tuple[int, ...], dtype: torch.dtype):
    def f(x, y):
        x.add_(y)
        return x * y

    check(f, lambda: given(plain(*shape, dtype=dtype), leaf(*shape, seed=1, dtype=dtype)))


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
def test_an_input_of_any_layout_written(layout):
    def f(x, y):
        x.mul_(2)
        return x + y, x.relu()

    check(f, lambda: given(layout(plain(2, 4, 3, 5)), layout(leaf(2, 4, 3, 5, seed=1))))


def test_an_expanded_input_is_not_written_as_eager_does_not():
    def f(x):
        return x.add_(1)

    check(f, lambda: given(plain(3, 1).expand(3, 4)))


def test_an_overlapping_write_that_eager_refuses():
    def f(x):
        x.t().add_(x)
        return x

    check(f, lambda: given(plain(3, 3)))


def test_a_write_through_an_expanded_view_whose_order_does_not_matter():
    def f(x):
        x.expand(4, 3).copy_(x.expand(4, 3))
        return x + 1

    check(f, lambda: given(plain(3)))


def test_indexed_writes():
    def f(x, i, v):
        x[i] = v
        x.index_add_(0, i, v)
        x.index_put_((i,), v, accumulate=True)
        return x * 2

    check(f, lambda: given(plain(5), torch.tensor([1, 3], device=plain(1).device), leaf(2, seed=1)))


def test_masked_writes():
    def f(x, y):
        x.masked_fill_(y > 0, 3)
        x[y < 0] = -1
        return x * y

    check(f, lambda: given(plain(5), leaf(5, seed=1)))


def test_foreach_and_out_variants_write_inputs():
    def f(x, y, z):
        torch._foreach_add_([x, y], 1)
        torch.add(x, y, out=z)
        return x * 2

    check(f, lambda: given(plain(3), plain(3, seed=1), plain(3, seed=2)))


def test_the_values_saved_for_backward_are_those_from_before_a_mutation():
    def f(buffer, x):
        y = x * buffer.clone()
        buffer.zero_()
        return y

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_a_saved_value_modified_in_place_is_an_error_at_backward():
    def f(x):
        y = x.exp()
        y.add_(1)
        return y

    check(f, lambda: given(leaf(3)))


def test_a_saved_input_modified_in_place_is_an_error_at_backward():
    def f(buffer, x):
        y = x * buffer
        buffer.add_(1)
        return y

    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_a_saved_input_modified_by_the_caller_is_an_error_at_backward():
    check(lambda b, x: x * b, lambda: given(plain(3), leaf(3)), after=lambda args, out: args[0].add_(1) is None)


def test_mutations_that_cancel_leave_the_value():
    def f(x):
        x.add_(1)
        x.sub_(1)
        return x * 2

    check(f, lambda: given(plain(3)))


# -- metadata mutation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.unsqueeze_(1),
        lambda x: x.squeeze_(0),
        lambda x: x.as_strided_((2,), (1,), 1),
        lambda x: x.resize_(1, 2),
    ],
    ids=["t_", "transpose_", "swapaxes_", "unsqueeze_", "squeeze_", "as_strided_", "resize_"],
)
@pytest.mark.parametrize("write", [False, True], ids=["alone", "with a write"])
def test_the_metadata_of_an_input_changed(change, write: bool):
    def f(x):
        if write:
            x.mul_(2)
        change(x)
        if write:
            x.add_(1)
        return x * 3

    check(f, lambda: given(plain(1, 3)))


def test_metadata_changes_that_cancel():
    def f(x, y):
        x.t_()
        z = x @ y
        x.t_()
        return z

    check(f, lambda: given(plain(3, 2), leaf(3, 2, seed=1)))


def test_the_metadata_of_a_non_leaf_changed():
    def f(x):
        x.t_()
        return x * 2

    def make() -> Given:
        root = leaf(2, 3)
        return given(root.clone(), also=[root])

    check(f, make)


def test_an_input_detached_in_place():
    def f(x, y):
        x.detach_()
        return x * y

    def make() -> Given:
        root = leaf(3)
        return given(root * 2, leaf(3, seed=1), also=[root])

    check(f, make)


def test_the_metadata_of_one_alias_changed():
    def f(x, y):
        x.t_()
        y.add_(1)
        return x * 2

    def make() -> Given:
        base = plain(2, 3)
        return given(base.view(2, 3), base.view(6), also=[base])

    check(f, make)


# -- set_ and data ---------------------------------------------------------------------------------


def test_an_input_set_to_another():
    def f(x, y):
        x.set_(y)
        return x * 2

    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_an_input_written_before_and_after_set():
    def f(x, y):
        old = x.view(-1)
        x.add_(1)
        x.set_(y)
        x.mul_(2)
        return old.clone(), x * 3

    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_the_data_of_an_input_replaced():
    def f(x, y):
        x.data = y * 2
        return x * 3

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


# -- duplicates and inputs that share storage ------------------------------------------------------


def test_the_same_tensor_passed_twice_gets_one_gradient():
    def make() -> Given:
        x = leaf(3)
        return given(x, x)

    check(lambda x, y: x * y + x, make)


def test_a_mutation_of_a_tensor_passed_twice_is_seen_through_both():
    def f(x, y):
        x.add_(1)
        return y * 2, x is y

    def make() -> Given:
        x = plain(3)
        return given(x, x)

    check(f, make)


def test_a_metadata_mutation_of_a_tensor_passed_twice_is_seen_through_both():
    def f(x, y):
        x.t_()
        return y * 2

    def make() -> Given:
        x = plain(2, 3)
        return given(x, x)

    check(f, make)


def _write_first(x, y):
    x.mul_(2)
    return y + 1


def test_disjoint_views_of_one_storage():
    def make() -> Given:
        base = plain(6)
        return given(base[:3], base[3:], also=[base])

    check(_write_first, make)


def test_interleaved_views_of_one_storage():
    def make() -> Given:
        base = plain(6)
        return given(base[::2], base[1::2], also=[base])

    check(_write_first, make)


def test_overlapping_views_of_one_storage():
    def make() -> Given:
        base = plain(6)
        return given(base[:4], base[2:], also=[base])

    check(_write_first, make)


def test_a_base_and_its_view_are_both_arguments():
    def make() -> Given:
        base = plain(6)
        return given(base, base[2:], also=[])

    check(_write_first, make)
    check(lambda y, x: _write_first(x, y), make)


def test_a_view_and_its_differentiable_base():
    def f(x, y):
        return x * 2, y * 3

    def make() -> Given:
        base = leaf(6)
        return given(base, base[2:])

    check(f, make)


def test_views_of_a_base_that_requires_grad_are_written():
    def f(x, y):
        x.mul_(2)
        return y * 3

    def make() -> Given:
        root = leaf(6)
        base = root.clone()
        return given(base[:4], base[2:], also=[root, base])

    check(f, make)


def test_a_non_leaf_base_and_its_view_are_written():
    def f(base, view):
        view.mul_(2)
        return base * 3

    def make() -> Given:
        root = leaf(6)
        base = root.clone()
        return given(base, base[2:], also=[root])

    check(f, make)


def test_detached_alias_beside_the_tensor():
    def f(x, y):
        y.add_(1)
        return x * 2

    def make() -> Given:
        x = leaf(3)
        return given(x, x.detach())

    check(f, make)


def test_aliases_of_other_shapes():
    def f(x, y):
        x.add_(1)
        return y.sum(0)

    def make() -> Given:
        base = plain(6)
        return given(base.view(2, 3), base.view(3, 2), also=[base])

    check(f, make)


def test_aliases_of_other_dtypes():
    def f(x, y):
        x.zero_()
        return y + 1

    def make() -> Given:
        base = plain(4)
        return given(base, base.view(torch.int32))

    check(f, make)


def test_a_conjugate_and_its_base():
    def f(x, y):
        x.mul_(2)
        return y + 1

    def make() -> Given:
        base = plain(3, dtype=torch.complex64)
        return given(base, base.conj())

    check(f, make)


def test_real_and_imaginary_parts():
    def f(x, y):
        x.mul_(2)
        return y + 1

    def make() -> Given:
        base = plain(3, dtype=torch.complex64)
        return given(base.real, base.imag, also=[base])

    check(f, make)


def test_views_made_under_no_grad():
    def make() -> Given:
        base = plain(6)
        with torch.no_grad():
            return given(base[:4], base[2:], also=[base])

    check(_write_first, make)


def test_parameters_of_one_flat_buffer():
    def f(a, b, x):
        return (a * x).sum() + (b * x).sum()

    def make() -> Given:
        flat = plain(6)
        return given(flat[:3].requires_grad_(), flat[3:].requires_grad_(), plain(3, seed=1), also=[flat])

    check(f, make)


def test_a_write_beyond_the_window_of_a_view():
    def f(x):
        x.as_strided((6,), (1,), 0).mul_(2)
        return x + 1

    def make() -> Given:
        base = plain(6)
        return given(base[2:4], also=[base])

    check(f, make)


# -- a second call ---------------------------------------------------------------------------------


def test_a_second_call_with_another_shape():
    check(lambda x: x.t() * 2, lambda: given(leaf(2, 3)), lambda: given(leaf(4, 5)), lambda: given(leaf(2, 3)))


def test_a_second_call_with_another_number_of_dimensions():
    check(lambda x: x.sum(-1), lambda: given(leaf(2, 3)), lambda: given(leaf(4)))


def test_a_second_call_with_another_dtype():
    check(
        lambda x: x * 2,
        lambda: given(leaf(3)),
        lambda: given(leaf(3, dtype=torch.float64)),
        lambda: given(plain(3).int()),
    )


def test_a_second_call_with_other_strides():
    check(lambda x: x.relu(), lambda: given(leaf(2, 3)), lambda: given(plain(3, 2).t().requires_grad_()))


def test_a_second_call_with_another_requires_grad():
    check(
        lambda x, y: x * y,
        lambda: given(plain(3), leaf(3)),
        lambda: given(leaf(3), plain(3)),
        lambda: given(plain(3), plain(3)),
        lambda: given(leaf(3), leaf(3)),
    )


def test_a_second_call_with_other_aliasing():
    def apart() -> Given:
        return given(plain(3), plain(3, seed=1))

    def same() -> Given:
        x = plain(3)
        return given(x, x)

    def overlapping() -> Given:
        base = plain(5)
        return given(base[:3], base[2:], also=[base])

    check(_write_first, apart, same, overlapping, apart)
    check(_write_first, overlapping, apart)


def test_a_second_call_with_another_overlap():
    check(_write_first, overlap(2), overlap(1), overlap(4), overlap(0))


def test_a_second_call_with_other_values_bakes_nothing_in():
    check(lambda x, n: x * x.sum() + n, lambda: given(leaf(3), 2), lambda: given(leaf(3, seed=4), 2))


def test_a_second_call_with_another_scalar():
    check(lambda x, n: x * n, lambda: given(leaf(3), 2), lambda: given(leaf(3), 3), lambda: given(leaf(3), 0.5))


def test_a_second_call_with_none():
    check(lambda x, y: x if y is None else x * y, lambda: given(leaf(3), leaf(3)), lambda: given(leaf(3), None))


def test_a_second_call_on_the_same_tensors_as_the_first_left_them():
    def f(x, y):
        x.t_()
        x.add_(1)
        return x @ y if x.shape[1] == y.shape[0] else y @ x

    def session(compile):
        x, y = plain(2, 3), leaf(2, 2, seed=1)
        compiled = compile(f)
        for _ in range(3):
            yield compiled(x, y), x, y

    check_session(session)


def test_a_second_call_in_another_grad_mode():
    def session(compile):
        x = leaf(3)
        f = compile(lambda x: x * x)
        yield f(x)
        with torch.no_grad():
            yield f(x)
        y = f(x)
        backward([y])
        yield x, y

    check_session(session)


def test_an_argument_that_was_sliced_without_saying_from_where_to_where():
    """Of which autograd says that it began and ended nowhere; what eager raises is looked for among such views."""

    def f(x, y):
        return torch.gather(x, 0, torch.tensor([0])), y * 2

    def session(compile):
        a = leaf(1)
        part = torch.ops.aten.slice.Tensor(a)
        f_ = compile(f)
        yield f_(a[:], part)
        yield attempt_later(lambda: f_(a.unsqueeze(0), part))

    check_session(session)
