"""Geometries, checked against the addresses that they stand for."""

import itertools

import pytest
import sympy
import torch

from aotcheck.autograd2.ir.meta import Geometry, disjoint, geometry_of, row_major, same_strides

FLOAT, HALF = torch.float32, torch.float16


def geometry(shape, stride, offset=0, dtype=FLOAT):
    return Geometry(offset, tuple(shape), tuple(stride), dtype, False, False)


def addresses(g):
    """Of each element, counted in elements."""
    steps = [range(0, n * s, s) if s else [0] * n for n, s in zip(g.shape, g.stride, strict=True)]
    return [g.offset + sum(place) for place in itertools.product(*steps)]


def bytes_of(g):
    return {a * g.dtype.itemsize + k for a in addresses(g) for k in range(g.dtype.itemsize)}


SMALL = [
    geometry(shape, stride)
    for dims in range(4)
    for shape in itertools.product((0, 1, 2, 3) if dims < 3 else (1, 2), repeat=dims)
    for stride in itertools.product((0, 1, 2, 3, 4, 6) if dims < 3 else (0, 1, 2, 4), repeat=dims)
]
FEW = [
    geometry(shape, stride, offset)
    for shape, stride in [
        ((2,), (1,)), ((2,), (2,)), ((3,), (3,)), ((2, 2), (4, 1)), ((2, 2), (4, 2)), ((2, 3), (3, 1)),
        ((3, 2), (1, 3)), ((2, 2), (6, 2)), ((2, 2, 2), (8, 4, 1)), ((), ()), ((0, 2), (2, 1)),
        ((2, 2), (0, 1)), ((3,), (2,)),
    ]
    for offset in (0, 1, 2, 3, 5, 8)
]  # fmt: skip


def test_no_geometry_that_overlaps_itself_is_taken_for_one_that_does_not():
    missed = [g for g in SMALL if len(set(addresses(g))) < len(addresses(g)) and not g.may_overlap_itself]
    assert missed == []


def test_dense_geometries_are_known_not_to_overlap_themselves():
    dense = [g for g in SMALL if g.dense_order is not None and not g.is_empty]
    assert dense and not any(g.may_overlap_itself for g in dense)


def test_a_dense_order_is_there_exactly_where_memory_is_filled_without_gaps():
    for g in SMALL:
        if not g.is_empty:
            found = sorted(addresses(g))
            assert (g.dense_order is not None) == (found == list(range(len(found)))), g


def test_permuted_by_its_dense_order_a_tensor_is_contiguous():
    for g in SMALL:
        order = g.dense_order
        if order is not None and not g.is_empty:
            assert sorted(order) == list(range(len(g.shape)))
            assert torch.empty_strided(g.shape, g.stride, device="meta").permute(order).is_contiguous(), g


def test_the_end_is_just_behind_the_last_address():
    for g in SMALL + FEW:
        assert g.end == (g.offset if g.is_empty else max(addresses(g)) + 1), g
        assert g.numel == len(addresses(g))


def test_what_is_called_disjoint_shares_no_byte():
    dtypes = [g._replace(dtype=dtype) for g in FEW for dtype in (FLOAT, HALF)]
    wrong = [(a, b) for a, b in itertools.combinations(dtypes, 2) if disjoint(a, b) and bytes_of(a) & bytes_of(b)]
    assert wrong == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (geometry((2,), (1,)), geometry((2,), (1,), 2)),
        (geometry((3,), (2,)), geometry((3,), (2,), 1)),
        (geometry((2, 2), (4, 1)), geometry((2, 2), (4, 1), 2)),
        (geometry((0,), (1,)), geometry((4,), (1,))),
        (geometry((2,), (1,), dtype=HALF), geometry((2,), (1,), 1)),
    ],
    ids=["one behind the other", "interleaved", "columns of a matrix", "empty", "of other dtypes"],
)
def test_what_shares_no_byte_in_a_plain_way_is_called_disjoint(a, b):
    assert not bytes_of(a) & bytes_of(b)
    assert disjoint(a, b) and disjoint(b, a)


def test_nothing_is_called_disjoint_from_itself_or_from_what_only_a_guard_tells():
    assert not any(disjoint(g, g) for g in FEW if not g.is_empty)
    n = sympy.Symbol("n", integer=True, positive=True)
    assert not disjoint(geometry((n,), (1,)), geometry((2,), (1,), 5))


def test_symbolic_row_major_geometries_are_dense():
    n = sympy.Symbol("n", integer=True, positive=True)
    g = row_major((n, 3), FLOAT)
    assert g.is_contiguous and g.dense_order == [0, 1] and not g.may_overlap_itself
    turned = g._replace(shape=g.shape[::-1], stride=g.stride[::-1])
    assert turned.dense_order == [1, 0] and not turned.may_overlap_itself


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[1:, 2],
        lambda x: x.conj().t(),
        lambda x: x.conj().imag,
        lambda x: x.expand(2, 3, 4),
    ],
)
def test_the_geometry_of_a_tensor_has_all_that_is_needed_to_make_it_again(view):
    x = torch.randn(3, 4, dtype=torch.complex64)
    v = view(x)
    g = geometry_of(v)
    again = torch.empty(0, dtype=g.dtype).set_(v.untyped_storage(), g.offset, g.shape, g.stride)
    again = torch.conj(again) if g.conj else again
    again = torch._neg_view(again) if g.neg else again
    assert torch.equal(again, v) and again.is_conj() == v.is_conj() and again.is_neg() == v.is_neg()


def test_strides_of_one_element_say_nothing():
    assert same_strides(geometry((1, 2), (7, 1)), geometry((1, 2), (2, 1)))
    assert same_strides(geometry((0, 2), (7, 3)), geometry((0, 2), (2, 1)))
    assert not same_strides(geometry((2, 2), (3, 1)), geometry((2, 2), (2, 1)))
