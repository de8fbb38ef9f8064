"""Views of one another or of intermediates; multi-output views, parts of one op."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt_later, backward, check, check_session, one_of, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.outputs.common import check_views
from tests.behaviour.shared import INPUTS, KINDS_OF_VIEWS


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the whole"])
@pytest.mark.parametrize("start", [0, 1])
@agrees(lambda: given(to_device(torch.ones(1)).as_strided((1,), (2,))))
def test_the_offset_of_an_empty_part_of_a_clone_with_gaps(x, *, start, beside):
    x.neg_()
    y = x.clone()
    return (y.narrow(0, start, 0), y) if beside else y.narrow(0, start, 0)


@agrees(lambda: given(to_device(torch.ones(2)).as_strided((1, 2), (1, 1))), compile=aotcheck.aot_function)
def test_the_offset_of_an_empty_part_that_out_resizes(x):
    y = torch.zeros_like(x)
    part = y[1:]
    torch.mul(x, 2, out=part)
    return part


@pytest.mark.parametrize(
    "like",
    [
        torch.zeros_like,
        torch.rand_like,
        lambda x: torch.zeros_like(x, memory_format=torch.contiguous_format),
        torch.neg,
        lambda x: torch.add(x, x.clone()),
    ],
    ids=["zeros", "random", "in rows", "negated", "sum"],
)
@pytest.mark.parametrize(
    "geometry", [((1, 2), (3, 1)), ((2, 1, 3), (1, 9, 2)), ((1,), (3,)), ((1, 2), (0, 1))], ids=str
)
@agrees(lambda geometry: given(to_device(torch.ones(20)).as_strided(*geometry)), compile=aotcheck.aot_function)
def test_the_offset_of_an_empty_part_of_a_like_tensor_that_is_overwritten(x, *, like):
    y = like(x)
    torch.cumsum(x, 0, out=y)
    return [y.narrow(d, 1, 0) for d in range(y.dim())]


@agrees(lambda: given(plain(4, dtype=torch.complex64)))
def test_returned_parts_of_two_dtypes_none_of_which_starts_at_offset_zero(x):
    y = x.clone()
    return y[1:], torch.view_as_real(y)[1:, 1], torch.view_as_real(y)[2:, 0]


view = one_of(KINDS_OF_VIEWS)


def test_an_alias_of_an_intermediate_is_returned_alone(view):
    check_views(lambda x: view(x * 2), lambda: given(leaf(2, 4)))
    check_views(lambda x: view(x * 2), lambda: given(plain(2, 4)))


def test_an_alias_of_an_intermediate_is_returned_with_the_base(view):
    def f(x):
        y = x * 2
        return view(y), y

    check_views(f, lambda: given(leaf(2, 4)))
    check_views(f, lambda: given(plain(2, 4)))


def test_aliases_of_an_intermediate_whose_base_is_not_returned(view):
    def f(x):
        y = x * 2
        return y[0], view(y), y.view(-1)

    check_views(f, lambda: given(leaf(2, 4)))
    check_views(f, lambda: given(plain(2, 4)))


def test_aliases_made_before_and_after_an_intermediate_is_mutated(view):
    def f(x):
        y = x * 2
        before = view(y)
        y.mul_(3)
        return before, view(y)

    check_views(f, lambda: given(leaf(2, 4)))


def test_an_output_aliases_another_output():
    def f(x):
        y = x * 2
        z = y[0]
        return z, y, z.view(-1, 1), y.detach(), z.detach()

    check_views(f, lambda: given(leaf(2, 3)))
    check_views(f, lambda: given(plain(2, 3)))


def test_outputs_alias_one_another_through_several_alias_bases():
    def f(x, y):
        a, b = x * 2, y * 3
        return a[0], b[0], a.t(), b.t(), x[0], y[1:]

    check_views(f, lambda: given(leaf(2, 3), leaf(2, 3, seed=1)))


make = one_of(INPUTS)

SPLITS = {
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(1),
    "split with sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(2, 1),
    "tensor_split": lambda x: torch.tensor_split(x, 2, 1),
    "hsplit": lambda x: torch.hsplit(x, 2),
    "unsafe_split": lambda x: torch.unsafe_split(x, 1),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2),
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [1, 1]),
}
split = one_of(SPLITS)


def test_multi_output_views_of_an_input(split, make):
    check_views(split, make)


def test_multi_output_views_of_an_intermediate(split):
    check_views(lambda x: split(x * 2), lambda: given(leaf(2, 4)))
    check_views(lambda x: (y := x * 2, split(y)), lambda: given(leaf(2, 4)))


def test_one_of_several_multi_output_views_is_returned(split, make):
    check_views(lambda x: split(x)[1], make)
    check(lambda x: split(x * 2)[1], make)


def test_a_view_of_a_multi_output_view(split, make):
    check(lambda x: [y.contiguous().view(-1) for y in split(x)], make)
    check_views(lambda x: [y[0] for y in split(x)], make)


@pytest.mark.parametrize("which", [0, 1])
def test_a_write_by_the_caller_to_a_multi_output_view_passes_or_raises_as_in_eager(split, which: int):
    for kind in INPUTS.values():
        for function in (lambda x: split(x), lambda x: split(x * 2), lambda x: [y[0] for y in split(x)]):

            def session(compile, kind=kind, function=function):
                made = kind()
                outputs = compile(function)(*made.args)
                yield made.args, attempt_later(lambda: outputs[which].mul_(2) is None), outputs

            check_session(session)


def test_a_multi_output_view_is_written_inside(split):
    def f(x):
        split(x)[0].mul_(2)
        return x * 3

    for kind in INPUTS.values():
        check(f, kind)

    def of_an_intermediate(x):
        y = x * 2
        split(y)[0].mul_(2)
        return y

    for kind in INPUTS.values():
        check(of_an_intermediate, kind)


@session
def test_the_caller_writes_the_base_of_a_multi_output_view(compile, split):
    root = leaf(2, 4)
    x = root * 1
    outputs = compile(split)(x)
    x.mul_(2)
    yield x, outputs
    yield attempt_later(lambda: backward([outputs[0] * 1])), root


def test_multi_output_views_made_under_no_grad(split):
    def f(x):
        with torch.no_grad():
            return split(x)

    for kind in INPUTS.values():
        check_views(f, kind)


@agrees(lambda: given(leaf(3, dtype=torch.complex64)))
def test_the_imaginary_part_of_an_intermediate_that_is_then_written(x):
    y = x.clone()
    part = y.imag
    y.mul_(2)
    return part


@session
def test_the_grad_fn_of_a_split_part_raises_after_its_saved_base_was_written(compile):
    def f(x):
        v = torch.stack([x])
        parts = torch.split(v, 1)
        v.sigmoid_()
        return parts[0], v

    x = leaf()
    part, v = compile(f)(x)
    yield torch.autograd.grad(v, x, torch.ones_like(v)), v
    with pytest.raises(RuntimeError, match="is a view and its base or another view of its base"):
        _ = part.grad_fn
