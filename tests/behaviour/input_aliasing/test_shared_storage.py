"""Inputs that overlap, interleave, are disjoint; base among the arguments or not."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, check, check_session, one_of, refuses, session
from tests.behaviour.input_aliasing.common import BODIES, of_detached, of_leaf, of_plain
from tests.behaviour.inputs import Given, given, given_of, leaf, plain, to_device
from tests.behaviour.shared import _write_first, of_non_leaf


def test_masked_fill_by_a_mask_that_the_fill_changes_is_refused():
    def fill(x, mask):
        return x.masked_fill_(mask, False)

    x = to_device(torch.tensor([False, True, False, False, False, True, False, False])).reshape(2, 2, 2)
    with pytest.raises(aotcheck.UnsupportedError, match=r"overlapping operands.*masked_fill_"):
        aotcheck.aot_function(fill)(x, x.as_strided((2, 2), (6, 1)))
    assert x.sum() == 2


@pytest.mark.parametrize("mask", [lambda x: x, lambda x: x.view(-1)[:4].view(2, 2), lambda x: x.clone()[0]])
@session
def test_masked_fill_by_a_mask_in_the_same_storage_is_as_in_eager(compile, mask):
    x = to_device(torch.tensor([False, True, False, False, False, True, False, False])).reshape(2, 2, 2)
    yield attempt(lambda: compile(lambda x, mask: x.masked_fill_(mask, False))(x, mask(x))), x


@pytest.mark.parametrize(
    "other", [torch.from_dlpack, lambda x: torch.from_numpy(x.numpy()[2:])], ids=["dlpack", "numpy"]
)
def test_a_write_to_memory_of_two_storages_by_dlpack_or_numpy_is_refused(other):
    x = torch.arange(4.0)
    y = other(x)
    compiled = aotcheck.aot_function(lambda a, b: (a.add_(1), b * 2))
    for _ in range(2):
        compiled(torch.arange(4.0), torch.arange(float(len(y))))
    with refuses("storages that share memory"):
        compiled(x, y)
    assert x.tolist() == [0, 1, 2, 3]

    def session(compile):
        x = torch.arange(4.0)
        reads = compile(lambda a, b: (a + 1, b * 2))
        yield reads(x, other(x))

    check_session(session)


body = one_of(BODIES)

KINDS = {"plain": of_plain, "leaf": of_leaf, "non-leaf": of_non_leaf, "detached": of_detached}
kind = one_of(KINDS)


def test_disjoint_views(body, kind):
    check(body, kind(lambda b: b[:4], lambda b: b[4:]))


def test_interleaved_views(body, kind):
    check(body, kind(lambda b: b[::2], lambda b: b[1::2]))


def test_rows_and_columns_of_one_matrix(body, kind):
    check(body, kind(lambda b: b.view(2, 4)[:, :2], lambda b: b.view(2, 4)[:, 2:]))


def test_overlapping_views(body, kind):
    check(body, kind(lambda b: b[:5], lambda b: b[3:]))


def test_equal_views(body, kind):
    check(body, kind(lambda b: b[2:6], lambda b: b[2:6]))


def test_views_of_one_base_in_different_shapes(body, kind):
    check(body, kind(lambda b: b.view(2, 4), lambda b: b.view(4, 2).t()))


def test_a_base_and_its_view(body, kind):
    check(body, kind(lambda b: b, lambda b: b[2:]))
    check(body, kind(lambda b: b[2:], lambda b: b))


def test_a_view_and_a_view_of_it(body, kind):
    check(body, kind(lambda b: b[1:], lambda b: b[1:][2:]))


def test_a_detached_alias_and_a_view_that_overlap(body, kind):
    check(body, kind(lambda b: b[:5], lambda b: b.detach()[3:]))
    check(body, kind(lambda b: b.detach()[3:], lambda b: b[:5]))


def test_a_no_grad_view_and_a_view_that_overlap(body, kind):
    def quiet(b):
        with torch.no_grad():
            return b[3:]

    check(body, kind(lambda b: b[:5], quiet))
    check(body, kind(quiet, lambda b: b[:5]))


def test_a_tensor_and_its_data(body, kind):
    check(body, kind(lambda b: b, lambda b: b.data))


def test_an_expanded_view_and_its_base(body, kind):
    check(body, kind(lambda b: b, lambda b: b[:1].expand(4)))
    check(body, kind(lambda b: b[:1].expand(4), lambda b: b[1:]))


@pytest.mark.parametrize("split", [torch.unbind, lambda b: b.split(1), lambda b: b.chunk(2)])
def test_pieces_of_a_multi_output_view(body, kind, split):
    check(body, kind(lambda b: split(b.view(2, 4))[0], lambda b: split(b.view(2, 4))[1]))


def test_views_of_several_bases_in_mixed_order():
    def f(a, b, c, d, e):
        b.mul_(2)
        d.add_(1)
        a.sub_(1)
        return a * 1, b * 1, c * 1, d * 1, e * 1

    def make(grad: bool):
        def make() -> Given:
            p, q = plain(6).requires_grad_(grad), plain(6, seed=1).requires_grad_(grad)
            x, y = p * 1, q * 1
            return given(y[1:], x[:4], y[:2], x[3:], x, also=[p, q, y])

        return make

    check(f, make(False))
    check(f, make(True))


def test_two_pairs_of_overlapping_views_and_an_unrelated_argument():
    def f(a, b, c, d, e):
        c.add_(a[0] * e.sum())
        e.mul_(2)
        return a * b, c * d, e * 1

    def make() -> Given:
        p, q = plain(6), plain(6, seed=1)
        return given(p[:4], q[:4], p[2:], q[2:], leaf(3).detach(), also=[p, q])

    check(f, make)


def _flat() -> Given:
    flat = plain(9)
    a, b = torch.nn.Parameter(flat[:6].view(2, 3)), torch.nn.Parameter(flat[6:])
    return given(a, b, plain(4, 2, seed=1), also=[flat])


def test_parameters_of_one_flat_buffer_in_a_linear_layer():
    check(lambda a, b, x: torch.nn.functional.linear(x, a.t(), b[:3][:3]), _flat)


@agrees(_flat)
def test_parameters_of_one_flat_buffer_are_updated(a, b, x):
    y = x @ a + b
    with torch.no_grad():
        a.mul_(2)
        b.sub_(1)
    return y.detach(), a * 2


@agrees(lambda: given_of(leaf(6), lambda flat: (flat, flat[:3], flat[3:])))
def test_a_flat_leaf_and_its_views(flat, a, b):
    return (flat * 2).sum() + (a * b).sum()


@agrees(lambda: given_of(plain(6), lambda grads: (grads, grads[:3], grads[3:])))
def test_a_flat_gradient_and_its_views_are_written(grads, a, b):
    grads.zero_()
    a.add_(1)
    b.sub_(1)
    return grads * 2


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


@agrees(lambda: given_of(leaf(3), lambda x: (x, x.detach())))
def test_a_detached_alias_of_a_leaf_argument_is_written(x, y):
    y.add_(1)
    return x * 2


@agrees(lambda: given_of(plain(6), lambda base: (base.view(2, 3), base.view(3, 2))))
def test_a_write_is_seen_by_an_alias_of_another_shape(x, y):
    x.add_(1)
    return y.sum(0)


def test_overlapping_views_made_under_no_grad():
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


_NORMALIZED = {
    "one tensor for both": lambda x, w, v: (x, None, None, v, v),
    "the weight": lambda x, w, v: (x, v, w, v, w),
    "a part of the bias": lambda x, w, v: (x, w, w, w, v),
    "both and all": lambda x, w, v: (x, v, v, v, v),
    "a window": lambda x, w, v: (x, torch.cat([w, v])[1:4], v, v, w),
}


@pytest.mark.on_the_cpu("on a GPU the kernel decides whether it reads the weight or writes the statistics first")
@pytest.mark.parametrize("operands", _NORMALIZED.values(), ids=_NORMALIZED)
@pytest.mark.parametrize("training", [True, False])
@agrees(lambda: (leaf(4, 3), plain(3, seed=1).abs(), plain(3, seed=2).abs()), rtol=1e-5)
def test_running_statistics_that_share_memory_with_operands_of_batch_norm(x, w, v, *, operands, training):
    x, weight, bias, mean, variance = operands(x, w, v)
    return torch.nn.functional.batch_norm(x * 2, mean, variance, weight, bias, training)


@pytest.mark.parametrize("kept", ["both", "the view"])
@pytest.mark.parametrize("unused", [lambda x: torch.nn.functional.avg_pool1d(x, 1), lambda x: x.view(-1)])
@session
def test_an_unused_view_of_an_argument_that_shares_storage_with_a_saved_one(compile, unused, kept):
    def f(x, y):
        a = torch.sin(x)
        unused(y)
        results = torch._foreach_mul([a, y], 2)
        return results if kept == "both" else results[1]

    whole = to_device(torch.arange(4.0))
    x, y = whole[:1].detach().requires_grad_(), whole.view(2, 2).detach().requires_grad_()
    out = compile(f)(x, y)
    yield out
    for t in [*out] if kept == "both" else [out]:
        grads = torch.autograd.grad(
            t, [x, y], torch.ones_like(t, requires_grad=True), allow_unused=True, create_graph=True,
        )  # fmt: skip
        yield grads
