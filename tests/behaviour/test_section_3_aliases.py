"""BEHAVIOUR 3: inputs that are the same tensor or share storage, and writes that show it."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Given, attempt_later, backward, check, check_session, given, leaf, plain


def _read(x, y):
    return x * 2, y * 3, (x.sum() + y.sum()) * 1


def _write_first(x, y):
    x.mul_(2)
    return x * 3, y * 5


def _write_second(x, y):
    z = x * 2
    y.add_(1)
    return z, x * 3, y * 5


def _write_both(x, y):
    x.mul_(2)
    y.add_(1)
    x.sub_(3)
    return x * 1, y * 1


def _return_aliases(x, y):
    return x.view(-1), y[...], x.as_strided((2,), (1,))


def _write_and_return(x, y):
    y.mul_(2)
    return x, y, x[...], y.detach()


BODIES = [_read, _write_first, _write_second, _write_both, _return_aliases, _write_and_return]


@pytest.fixture(params=BODIES, ids=lambda body: body.__name__.strip("_"))
def body(request: pytest.FixtureRequest):
    return request.param


def of_plain(*views):
    """Views of one plain base that is looked at as well."""

    def make() -> Given:
        base = plain(8)
        return given(*[view(base) for view in views], also=[base])

    return make


def of_leaf(*views):
    def make() -> Given:
        base = leaf(8)
        return given(*[view(base) for view in views], also=[base])

    return make


def of_non_leaf(*views):
    def make() -> Given:
        root = leaf(8)
        base = root * 1
        return given(*[view(base) for view in views], also=[root, base])

    return make


def of_detached(*views):
    """Views whose base is unknown to autograd: `_base` is None."""

    def make() -> Given:
        base = plain(8)
        return given(*[view(base).detach() for view in views], also=[base])

    return make


KINDS = {"plain": of_plain, "leaf": of_leaf, "non-leaf": of_non_leaf, "detached": of_detached}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest):
    return request.param


def test_disjoint_views(body, kind):
    check(body, kind(lambda b: b[:4], lambda b: b[4:]))


def test_interleaved_views(body, kind):
    check(body, kind(lambda b: b[::2], lambda b: b[1::2]))


def test_rows_and_columns(body, kind):
    check(body, kind(lambda b: b.view(2, 4)[:, :2], lambda b: b.view(2, 4)[:, 2:]))


def test_overlapping_views(body, kind):
    check(body, kind(lambda b: b[:5], lambda b: b[3:]))


def test_equal_views(body, kind):
    check(body, kind(lambda b: b[2:6], lambda b: b[2:6]))


def test_views_of_other_shapes(body, kind):
    check(body, kind(lambda b: b.view(2, 4), lambda b: b.view(4, 2).t()))


def test_a_base_and_its_view(body, kind):
    check(body, kind(lambda b: b, lambda b: b[2:]))
    check(body, kind(lambda b: b[2:], lambda b: b))


def test_a_view_and_a_view_of_it(body, kind):
    check(body, kind(lambda b: b[1:], lambda b: b[1:][2:]))


def test_a_detached_alias_beside_a_view(body, kind):
    check(body, kind(lambda b: b[:5], lambda b: b.detach()[3:]))
    check(body, kind(lambda b: b.detach()[3:], lambda b: b[:5]))


def test_a_view_made_under_no_grad_beside_a_view(body, kind):
    def quiet(b):
        with torch.no_grad():
            return b[3:]

    check(body, kind(lambda b: b[:5], quiet))
    check(body, kind(quiet, lambda b: b[:5]))


def test_data_beside_the_tensor(body, kind):
    check(body, kind(lambda b: b, lambda b: b.data))


def test_an_expanded_view_beside_its_base(body, kind):
    check(body, kind(lambda b: b, lambda b: b[:1].expand(4)))
    check(body, kind(lambda b: b[:1].expand(4), lambda b: b[1:]))


@pytest.mark.parametrize("split", [torch.unbind, lambda b: b.split(1), lambda b: b.chunk(2)])
def test_pieces_of_a_multi_output_view(body, kind, split):
    check(body, kind(lambda b: split(b.view(2, 4))[0], lambda b: split(b.view(2, 4))[1]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.int16, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize("reading", [_write_first, _write_second, _write_both, _return_aliases])
def test_views_of_another_dtype(reading, dtype: torch.dtype):
    def make() -> Given:
        base = plain(8).abs()
        return given(base, base.view(dtype))

    check(reading, make)
    check(lambda x, y: reading(y, x), make)


def test_views_of_another_dtype_overlap():
    def make() -> Given:
        base = plain(8).abs()
        return given(base[:4], base[2:].view(torch.int32), also=[base])

    check(_write_both, make)


COMPLEX = {
    "conj": (lambda b: b, lambda b: b.conj()),
    "two conjugates": (lambda b: b.conj(), lambda b: b.conj()),
    "real": (lambda b: b, lambda b: b.real),
    "imag": (lambda b: b, lambda b: b.imag),
    "real and imag": (lambda b: b.real, lambda b: b.imag),
    "view_as_real": (lambda b: b, torch.view_as_real),
    "neg": (lambda b: b.imag, lambda b: b.conj().imag),
    "real and conj": (lambda b: b.real, lambda b: b.conj()[1:]),
}


@pytest.mark.parametrize("views", COMPLEX.values(), ids=COMPLEX)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "non-leaf"])
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_complex_tensors_and_their_parts(body, views, grad: bool, swapped: bool):
    def make() -> Given:
        root = plain(3, dtype=torch.complex64).requires_grad_(grad)
        base = root * 1
        made = [view(base) for view in views]
        return given(*(reversed(made) if swapped else made), also=[root, base])

    check(body, make)


# -- more than two -----------------------------------------------------------------------------------


def test_several_bases_out_of_order():
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


def test_several_pairs_and_a_stranger():
    def f(a, b, c, d, e):
        c.add_(a[0] * e.sum())
        e.mul_(2)
        return a * b, c * d, e * 1

    def make() -> Given:
        p, q = plain(6), plain(6, seed=1)
        return given(p[:4], q[:4], p[2:], q[2:], leaf(3).detach(), also=[p, q])

    check(f, make)


def test_the_same_tensor_three_times_and_a_view_of_it():
    def f(a, b, c, d):
        b.mul_(2)
        d.add_(1)
        return a * c, d, b is c

    def make() -> Given:
        x = plain(4)
        return given(x, x, x, x[1:])

    check(f, make)


def test_the_same_tensor_nested_in_a_list_and_alone():
    def f(x, many):
        many[0].mul_(2)
        return x * 3, [m * 2 for m in many]

    def make() -> Given:
        x = plain(3)
        return given(x, [x, plain(3, seed=1), x])

    check(f, make)


def test_the_same_non_leaf_twice_is_written_and_counted_once():
    def f(x, y):
        x.mul_(2)
        return x * y

    def make() -> Given:
        root = leaf(3)
        x = root * 1
        return given(x, x, also=[root])

    check(f, make)


@pytest.mark.parametrize(
    "change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.resize_(1, 2), lambda x: x.detach_()]
)
def test_the_same_tensor_twice_changes_its_metadata(change):
    def make() -> Given:
        x = plain(2, 3)
        return given(x, x)

    check(lambda x, y: (change(x), y.add_(1), y, x is y)[1:], make)


def test_the_same_tensor_twice_is_set():
    def f(x, y, z):
        x.set_(z)
        return y * 2

    def make() -> Given:
        x = plain(3)
        return given(x, x, plain(4, seed=1))

    check(f, make)


# -- flat buffers ------------------------------------------------------------------------------------


def _flat() -> Given:
    flat = plain(9)
    a, b = torch.nn.Parameter(flat[:6].view(2, 3)), torch.nn.Parameter(flat[6:])
    return given(a, b, plain(4, 2, seed=1), also=[flat])


def test_parameters_of_one_flat_buffer_in_a_linear_layer():
    check(lambda a, b, x: torch.nn.functional.linear(x, a.t(), b[:3][:3]), _flat)


def test_parameters_of_one_flat_buffer_are_updated():
    def f(a, b, x):
        y = x @ a + b
        with torch.no_grad():
            a.mul_(2)
            b.sub_(1)
        return y.detach(), a * 2

    check(f, _flat)


def test_a_flat_leaf_and_its_views():
    def f(flat, a, b):
        return (flat * 2).sum() + (a * b).sum()

    def make() -> Given:
        flat = leaf(6)
        return given(flat, flat[:3], flat[3:])

    check(f, make)


def test_the_gradient_views_of_a_flat_gradient():
    def f(grads, a, b):
        grads.zero_()
        a.add_(1)
        b.sub_(1)
        return grads * 2

    def make() -> Given:
        grads = plain(6)
        return given(grads, grads[:3], grads[3:])

    check(f, make)


# -- beyond a window ---------------------------------------------------------------------------------


def test_an_output_reaches_beyond_a_window():
    check(lambda x: x.as_strided((8,), (1,), 0), of_plain(lambda b: b[2:4]))
    check(lambda x: (x.as_strided((8,), (1,), 0), x * 2), of_detached(lambda b: b[2:4]))


def test_as_strided_without_an_offset_starts_where_the_view_does():
    for kind in (of_plain, of_leaf, of_non_leaf, of_detached):
        check(lambda x: (x.as_strided((2,), (1,)), x * 2), kind(lambda b: b[2:6]))


def test_a_read_beyond_a_window():
    check(lambda x: x.as_strided((8,), (1,), 0) * 2, of_plain(lambda b: b[2:4]))


def test_a_write_beyond_a_window_seen_by_another_input():
    def f(x, y):
        x.as_strided((8,), (1,), 0).mul_(2)
        return x * 1, y * 3

    check(f, of_plain(lambda b: b[2:4], lambda b: b[6:]))
    check(f, of_detached(lambda b: b[2:4], lambda b: b[6:]))
    check(f, of_plain(lambda b: b[2:4], lambda b: b))


def test_a_write_beyond_a_window_of_a_detached_input():
    def f(x):
        x.detach().as_strided((8,), (1,), 0).mul_(2)
        return x * 3

    check(f, of_non_leaf(lambda b: b[2:4]))


def test_a_write_beyond_a_window_of_a_view_with_a_history():
    def f(x):
        x.as_strided((4,), (1,), 2).mul_(2)
        return x * 3

    check(f, of_non_leaf(lambda b: b[2:6]))

    def further(x):
        x.as_strided((8,), (1,), 0).mul_(2)
        return x * 3

    check(further, of_non_leaf(lambda b: b[2:6]))


def test_a_resize_beyond_a_window():
    def f(x):
        x.resize_(5)
        x.mul_(2)
        return x * 1

    check(f, of_plain(lambda b: b[2:4]))


def test_an_input_with_an_offset_whose_alias_is_returned():
    for view in (lambda x: x.view(2, 2), lambda x: x[1:], lambda x: x.view(torch.int32), lambda x: x.detach()):
        for kind in (of_plain, of_non_leaf, of_detached):
            check(view, kind(lambda b: b[3:7]))


# -- leaves ------------------------------------------------------------------------------------------


def test_a_leaf_and_its_view_written_under_no_grad():
    def f(x, y):
        with torch.no_grad():
            y.mul_(2)
        return x * x

    check(f, of_leaf(lambda b: b, lambda b: b[2:]))


def test_a_leaf_and_a_detached_alias_written_after_a_use():
    def f(x, y):
        z = x * x
        y.mul_(2)
        return z

    check(f, of_leaf(lambda b: b, lambda b: b.detach()))
    check(f, of_leaf(lambda b: b, lambda b: b.data))


def _no_grad_write(t):
    with torch.no_grad():
        t.mul_(2)


_AFTER_THE_CUT = {
    "cut again": lambda x, v, y: x.detach_(),
    "view written": lambda x, v, y: v.mul_(2),
    "base written": lambda x, v, y: x.mul_(2),
    "base written with a history": lambda x, v, y: x.mul_(y),
    "view written under no_grad": lambda x, v, y: _no_grad_write(v),
    "base written under no_grad": lambda x, v, y: _no_grad_write(x),
    "requires grad again": lambda x, v, y: x.requires_grad_(),
}


@pytest.mark.parametrize("use", _AFTER_THE_CUT.values(), ids=_AFTER_THE_CUT)
@pytest.mark.parametrize("from_a_leaf", [False, True])
def test_a_view_whose_base_was_cut_from_its_history(use, from_a_leaf):
    def f(x, v, y):
        use(x, v, y)
        return v * x.t()

    def session(compile):
        root, y = leaf(2, 3), leaf(2, 3, seed=1)
        x = root.detach().requires_grad_() if from_a_leaf else root * 1
        v = x.t()
        x.detach_()
        for _ in range(2):
            out = attempt_later(lambda: compile(f)(x, v, y))
            yield out, x, v
            if isinstance(out, torch.Tensor):
                yield attempt_later(lambda out=out: out.sum().backward(retain_graph=True))
                yield root, y

    check_session(session)


def test_a_view_of_a_leaf_made_under_no_grad_written():
    def f(x, y):
        y.mul_(2)
        return x * 3

    def quiet(b):
        with torch.no_grad():
            return b[2:]

    check(f, of_leaf(lambda b: b, quiet))


def test_a_custom_functions_view_as_an_input():
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(2, 4)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(8) * 2

    check(lambda x: x * 3, of_non_leaf(Rows.apply))
    check(lambda x, y: (x * 3, y * 2), of_non_leaf(Rows.apply, lambda b: b[2:]))
    check(lambda x: x.mul_(2) * 3, of_non_leaf(Rows.apply))


def test_what_the_caller_writes_later_is_seen_by_the_aliases():
    def session(compile):
        root = leaf(8)
        base = root * 1
        a, b = base[:5], base[3:]
        out = compile(lambda a, b: (a.view(-1), b[1:], a * b))(a, b)
        yield out, a, b
        base.mul_(2)
        yield out, a, b, base
        out[0].add_(1)
        yield out, a, b, base
        yield attempt_later(lambda: backward([base.sum() + out[1].sum()])), root

    check_session(session)


@pytest.mark.parametrize("given_twice", ["view", "base", "view and base"])
def test_a_list_that_holds_a_tensor_twice_is_written(given_twice: str):
    def f(x, view):
        tensors = {"view": [view, view], "base": [x, x], "view and base": [view, x, x]}[given_twice]
        torch._foreach_mul_(tensors, 2)
        return x * 1, view * 1, x.view(2, 2)

    def session(compile):
        source = leaf(4)
        x = source * 1
        view = x[1:]
        out = compile(f)(x, view)
        yield out, x, view
        for y in (*out, x, view):
            yield torch.autograd.grad([y.sum()], [source], retain_graph=True)

    check_session(session)


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(4)], ids=["t", "row", "view"])
@pytest.mark.parametrize("write", [torch._foreach_sin_, lambda ts: torch._foreach_mul_(ts, 3)], ids=["sin", "mul"])
def test_a_list_that_holds_equal_views_is_written(view, write):
    def f(*views):
        write(list(views))
        return views[0].clone(), views[1].view_as(views[1])

    def session(compile):
        compiled = compile(f)
        for n in (2, 3, 4):
            source = leaf(2, 2)
            x = source * 1
            views = [view(x) for _ in range(n)]
            out = compiled(*views)
            yield out, views, x
            for y in (*out, *views, x):
                for of in (source, x):
                    yield torch.autograd.grad([y.sum()], [of], retain_graph=True, allow_unused=True)

    check_session(session)


def test_a_list_that_holds_a_view_of_another_dtype_twice_is_written():
    def f(x, part):
        torch._foreach_abs_([part, part])
        return part, x

    def session(compile):
        compiled = compile(f)
        source = leaf(3, dtype=torch.complex64)
        x = source * 1
        part = x.real
        for _ in range(2):
            out = compiled(x, part)
            grads = [torch.ones_like(y) for y in out]
            yield out, torch.autograd.grad(out, [source, x, part], grads, retain_graph=True)

    check_session(session)


def test_a_list_that_holds_a_result_twice_is_written():
    def f(x):
        y = x * 3
        view = y[1:]
        torch._foreach_mul_([view, y, y], 2)
        return y, view

    check(f, lambda: given(leaf(4)), backward=[1])


@pytest.mark.parametrize("reshape", [lambda x: None, lambda x: x.t_(), lambda x: x.unsqueeze_(0)])
def test_a_list_that_holds_a_view_twice_of_what_is_reshaped_before_is_written(reshape):
    def f(x):
        view = x.as_strided((2,), (1,))
        reshape(x)
        torch._foreach_mul_([view, view], 2)
        return view

    def session(compile):
        source = leaf(2, 3)
        x = source * 1
        argument = x[0:0]
        out = compile(f)(argument)
        yield out, argument, x
        for y in (out, x):
            yield torch.autograd.grad([y.sum()], [source], retain_graph=True)

    check_session(session)


@pytest.mark.parametrize("view", [torch.real, lambda x: x.t(), torch.conj], ids=["real", "t", "conj"])
def test_views_in_a_list_whose_base_was_detached_in_place(view):
    def f(x, y, z):
        x.detach_()
        return torch._foreach_mul([y], [z])

    def session(compile):
        x, z = leaf(2, 3, dtype=torch.complex64), leaf(dtype=torch.float32)
        y = view(x)
        (out,) = compile(f)(x, y, z)
        yield out, x, y
        yield attempt_later(lambda: torch.autograd.grad(out, [y, z], torch.ones_like(out)))

    check_session(session)
