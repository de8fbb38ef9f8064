"""BEHAVIOUR 3: a later call may differ in anything that the first one had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.behaviour.harness import Given, attempt, backward, check, check_session, given, leaf, plain, through_dynamo


@pytest.fixture(params=[None, through_dynamo], ids=["aot_function", "torch.compile"])
def compile_(request: pytest.FixtureRequest) -> Iterator:
    torch._dynamo.reset()
    yield request.param
    torch._dynamo.reset()


def write_first(x, y):
    x.mul_(2)
    return x * 3, y * 5


def write_second_between(x, y):
    z = x * 2
    y.add_(1)
    return z, x * 3


def read(x, y):
    return x * y, x + 1


@pytest.fixture(params=[write_first, write_second_between, read], ids=lambda f: f.__name__)
def function(request: pytest.FixtureRequest):
    return request.param


def apart() -> Given:
    return given(plain(3), plain(3, seed=1))


def same() -> Given:
    x = plain(3)
    return given(x, x)


def overlap(offset: int, grad: bool = False):
    def make() -> Given:
        root = plain(8).requires_grad_(grad)
        base = root * 1
        return given(base[:3], base[offset : offset + 3], also=[root, base])

    return make


def test_an_overlap_appears(function, compile_):
    check(function, apart, overlap(1), compile=compile_)


def test_an_overlap_moves(function, compile_):
    check(function, overlap(1), overlap(2), overlap(1), compile=compile_)


def test_an_overlap_vanishes(function, compile_):
    check(function, overlap(1), overlap(4), apart, compile=compile_)


def test_a_tensor_is_given_twice_later(function, compile_):
    check(function, apart, same, apart, compile=compile_)
    check(function, same, apart, compile=compile_)


def test_equal_windows_later(function, compile_):
    check(function, overlap(0), overlap(1), same, overlap(0), compile=compile_)


def test_an_overlap_appears_with_a_gradient(function, compile_):
    check(function, overlap(4, True), overlap(1, True), overlap(0, True), overlap(4, True), compile=compile_)


def test_an_overlap_appears_between_a_detached_alias_and_a_leaf(compile_):
    def f(x, y):
        y.mul_(2)
        return x * 3

    def detached() -> Given:
        x = leaf(3)
        return given(x, x.detach())

    check(f, lambda: given(leaf(3), plain(3)), detached, compile=compile_)


def test_interleaved_later(function, compile_):
    def interleaved() -> Given:
        base = plain(6)
        return given(base[::2], base[1::2], also=[base])

    check(function, interleaved, apart, compile=compile_)
    check(function, apart, interleaved, overlap(1), compile=compile_)


def test_a_base_and_a_view_in_another_order(function, compile_):
    def base_first() -> Given:
        base = plain(3)
        return given(base, base[:])

    def view_first() -> Given:
        base = plain(3)
        return given(base[:], base)

    check(function, base_first, view_first, apart, compile=compile_)


def test_an_alias_in_a_closure_appears_and_moves(compile_):
    def session(compile):
        base = plain(6)
        held = [base[:3]]

        def f(x):
            x.mul_(2)
            return held[0] * 3, x * 1

        compiled = compile(f)
        yield compiled(plain(3)), base
        yield compiled(base[1:4]), base
        yield compiled(base[2:5]), base
        yield compiled(base[:3]), base

    check_session(session, compile=compile_)


def test_the_third_of_three_aliases_moves(compile_):
    def f(x, y, z):
        y.add_(1)
        return x * 2, z * 3

    def make(i: int, j: int):
        def make() -> Given:
            base = plain(10)
            return given(base[:3], base[i : i + 3], base[j : j + 3], also=[base])

        return make

    check(f, make(1, 2), make(1, 5), make(5, 6), make(5, 1), compile=compile_)


# -- other properties ----------------------------------------------------------------------------------


def test_another_shape(compile_):
    check(
        lambda x, y: (x.add_(y), x.t() * 2, x.view(-1))[1:],
        lambda: given(plain(2, 3), leaf(3)),
        lambda: given(plain(4, 5), leaf(5)),
        lambda: given(plain(4, 3), leaf(3)),
        lambda: given(plain(1, 1), leaf(1)),
        lambda: given(plain(0, 3), leaf(3)),
        compile=compile_,
    )


def test_another_dtype(compile_):
    check(
        lambda x, y: (x.mul_(2), x * y)[1],
        lambda: given(plain(3), leaf(3)),
        lambda: given(plain(3).int(), leaf(3)),
        lambda: given(plain(3), leaf(3, dtype=torch.float64)),
        lambda: given(plain(3, dtype=torch.complex64), leaf(3)),
        compile=compile_,
    )


def test_other_strides_and_offsets(compile_):
    def view(take):
        def make() -> Given:
            base = plain(24)
            return given(take(base), also=[base])

        return make

    check(
        lambda x: (x.add_(1), x.relu(), x.view(x.shape))[1:],
        view(lambda b: b[:6].view(2, 3)),
        view(lambda b: b[6:12].view(2, 3)),
        view(lambda b: b[:6].view(3, 2).t()),
        view(lambda b: b.view(4, 6)[::2, ::2]),
        compile=compile_,
    )


def test_another_requires_grad(compile_):
    def non_leaf() -> Given:
        root = leaf(3)
        return given(root * 1, plain(3, seed=1), also=[root])

    check(
        lambda x, y: (x * y, x.view(-1)),
        lambda: given(plain(3), plain(3, seed=1)),
        lambda: given(leaf(3), plain(3, seed=1)),
        lambda: given(plain(3), leaf(3, seed=1)),
        non_leaf,
        lambda: given(leaf(3), leaf(3, seed=1)),
        compile=compile_,
    )


def test_another_requires_grad_of_a_written_input(compile_):
    def non_leaf() -> Given:
        root = leaf(3)
        return given(root * 1, plain(3, seed=1), also=[root])

    check(
        write_first,
        lambda: given(plain(3), plain(3, seed=1)),
        non_leaf,
        lambda: given(plain(3), leaf(3, seed=1)),
        lambda: given(plain(3), plain(3, seed=1)),
        compile=compile_,
    )


def test_another_grad_mode(compile_):
    def session(compile):
        f = compile(lambda x, y: (x.mul_(2), x * y)[1])
        for mode in (torch.no_grad, torch.enable_grad, torch.no_grad):
            x, y = plain(3), leaf(3, seed=1)
            with mode():
                out = f(x, y)
            if out.requires_grad:
                backward([out])
            yield out, x, y

    check_session(session, compile=compile_)


def test_another_autocast_state(compile_):
    def session(compile):
        f = compile(lambda x, y: x @ y)
        for options in (None, torch.bfloat16, torch.float16, None, torch.bfloat16):
            x, y = leaf(2, 3), leaf(3, 2, seed=1)
            with torch.autocast("cpu", options or torch.bfloat16, enabled=options is not None):
                out = f(x, y)
            yield out
            backward([out])
            yield x, y

    check_session(session, compile=compile_)


def test_another_default_dtype(compile_):
    def session(compile):
        f = compile(lambda x: x + torch.ones(3, device=x.device))
        x = plain(3).int()
        yield f(x)
        torch.set_default_dtype(torch.float64)
        try:
            yield f(x)
        finally:
            torch.set_default_dtype(torch.float32)
        yield f(x)

    check_session(session, compile=compile_)


def test_other_values_under_the_same_key(compile_):
    def f(x, i, w):
        y = x.index_select(0, i) * w.sum()
        x.index_add_(0, i, y.detach())
        return torch.where(x > 0, x, w[0]) * y.sum(), x.argsort(), x.max()

    index = [torch.tensor(v) for v in ([0, 1], [2, 2], [3, 0])]

    def call(k: int):
        return lambda: given(plain(4, seed=k), index[k].to(plain(1).device), leaf(2, seed=k + 3))

    check(f, call(0), call(1), call(2), compile=compile_)


def test_other_values_of_a_zero_dim_tensor(compile_):
    check(
        lambda x, n: (x * n, n + 1, x.clamp(min=n)),
        *[lambda k=k: given(leaf(3), torch.tensor(float(k), device=plain(1).device)) for k in (2, 0, -3)],
        compile=compile_,
    )


def test_other_values_of_python_scalars():
    check(
        lambda x, n: x * n + torch.full_like(x, n),
        *[lambda n=n: given(leaf(3), n) for n in (2, 3, 2.5, True, 0, 1, -0.0, 2)],
    )


def test_other_values_of_python_integers(compile_):
    check(
        lambda x, n: x * n + torch.full_like(x, n),
        *[lambda n=n: given(leaf(3), n) for n in (2, 3, True, 0, 1, 2)],
        compile=compile_,
    )


def test_other_values_of_a_constant_made_inside(compile_):
    def session(compile):
        k = [1]
        f = compile(lambda x, n: x * torch.tensor([n, 2, 3], device=x.device))
        for n in (1, 4, 1):
            k[0] = n
            yield f(plain(3), n)

    check_session(session, compile=compile_)


def test_conj_and_neg_bits_appear(compile_):
    check(
        lambda x: (x * 2, x.view(-1)),
        lambda: given(plain(3, dtype=torch.complex64)),
        lambda: given(plain(3, dtype=torch.complex64).conj()),
        lambda: given(plain(3, dtype=torch.complex64)),
        compile=compile_,
    )
    check(
        lambda x: (x * 2, x.view(-1)),
        lambda: given(plain(3, dtype=torch.complex64).imag),
        lambda: given(plain(3, dtype=torch.complex64).conj().imag),
        compile=compile_,
    )


def test_a_view_where_a_base_was(compile_):
    def view() -> Given:
        base = leaf(2, 3)
        return given(base[1:].view(3), also=[base])

    def detached() -> Given:
        return given(plain(2, 3)[1].detach())

    check(
        lambda x: (x.view(-1), x * 2), lambda: given(leaf(3)), view, detached, lambda: given(leaf(3)), compile=compile_
    )


def test_another_storage_size(compile_):
    def of(size: int):
        def make() -> Given:
            base = plain(size)
            return given(base[:3], also=[base])

        return make

    check(lambda x: (x * 2, x[1:]), of(3), of(5), of(3), compile=compile_)


def test_a_parameter_where_a_tensor_was(compile_):
    check(
        lambda x: (x, x * 2),
        lambda: given(plain(3)),
        lambda: given(torch.nn.Parameter(plain(3))),
        lambda: given(plain(3)),
        compile=compile_,
    )


def test_none_and_containers_of_other_lengths(compile_):
    def f(xs, y):
        total = sum(x.sum() for x in xs)
        return total if y is None else total * y

    check(
        f,
        lambda: given([leaf(3), leaf(2)], leaf(2)),
        lambda: given([leaf(3)], None),
        lambda: given([leaf(3), leaf(2), leaf(1)], leaf(2)),
        compile=compile_,
    )


def test_a_call_with_a_leaf_after_one_with_a_view_made_in_inference_mode():
    def session(compile):
        f = compile(lambda x: None)
        root = leaf(3)
        with torch.inference_mode():
            view = root.view(3)
        yield f(view)
        yield f(leaf(3))

    check_session(session)


def test_a_view_and_then_another_tensor_are_swapped():
    def f(x):
        view = x.t()
        torch.utils.swap_tensors(x, x)
        return view * 2

    def session(compile):
        compiled = compile(f)
        base = leaf(4)
        for x in (base.as_strided((2,), (1,)), leaf(2) * 1, base[:2]):
            yield attempt(lambda x=x: compiled(x))

    check_session(session)


@pytest.mark.parametrize("kept", ["swapped", "made"])
def test_what_was_swapped_is_told_to_keep_its_gradient(kept):
    def f(x):
        y = x.detach() if kept == "swapped" else x * 2
        torch.utils.swap_tensors(x, y)
        (y if kept == "swapped" else x).retain_grad()
        return y * 3

    def session(compile):
        x = leaf(2) * 1
        attempt(lambda: compile(f)(x))
        yield x.retains_grad, x

    check_session(session)
