"""BEHAVIOUR 3: inputs whose geometry changes, by themselves or through out=."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Given, attempt_later, check, check_session, given, leaf, non_leaf, plain

# -- geometry ----------------------------------------------------------------------------------------


CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.squeeze_(),
    "as_strided_": lambda x: x.as_strided_((2,), (1,), 1),
    "resize_": lambda x: x.resize_(2, 1),
    "resize_as_": lambda x: x.resize_as_(torch.empty(2, 1)),
    "detach_": lambda x: x.detach_(),
}


@pytest.fixture(params=CHANGES.values(), ids=CHANGES)
def change(request: pytest.FixtureRequest):
    return request.param


def test_a_changed_input_is_returned(change):
    check(lambda x: change(x), lambda: given(plain(1, 3)))


def test_an_input_is_written_before_the_change(change):
    check(lambda x: (x.mul_(2), change(x), x * 3)[2], lambda: given(plain(1, 3)))


def test_an_input_is_written_after_the_change(change):
    check(lambda x: (change(x), x.mul_(2), x * 3)[2], lambda: given(plain(1, 3)))


def test_a_view_made_before_the_change(change):
    def f(x):
        view = x[0]
        change(x)
        view.mul_(2)
        return view, x * 3

    check(f, lambda: given(plain(1, 3)))


def test_a_view_made_after_the_change(change):
    def f(x):
        change(x)
        view = x.view(-1) if x.is_contiguous() else x[0]
        view.mul_(2)
        return view, x * 3

    check(f, lambda: given(plain(1, 3)))


def test_a_change_of_one_of_two_inputs_that_overlap(change):
    def make() -> Given:
        base = plain(6)
        return given(base[:3].view(1, 3), base[2:], also=[base])

    check(lambda x, y: (change(x), y.mul_(2), x * 3)[2], make)
    check(lambda x, y: (y.mul_(2), change(x), x.add_(1), y * 3)[3], make)


def test_a_change_of_a_view_of_an_input_that_is_passed_too(change):
    def make() -> Given:
        base = plain(1, 3)
        return given(base, base.view(1, 3))

    check(lambda x, y: (change(y), y.add_(1), x * 3)[2], make)
    check(lambda x, y: (change(x), y.add_(1), x * 3)[2], make)


def test_a_change_of_an_input_passed_twice(change):
    def make() -> Given:
        x = plain(1, 3)
        return given(x, x)

    check(lambda x, y: (change(x), y.add_(1), x * 3)[2], make)


def test_a_change_under_no_grad(change):
    def f(x):
        with torch.no_grad():
            change(x)
        return x * 3

    check(f, lambda: given(plain(1, 3)))


def test_a_change_of_data(change):
    check(lambda x: (change(x.data), x * 3)[1], lambda: given(leaf(1, 3)))


@pytest.mark.parametrize("name", ["t_", "transpose_", "swapaxes_", "unsqueeze_", "squeeze_", "as_strided_", "detach_"])
@pytest.mark.parametrize("write", [None, "before", "after"])
def test_a_change_of_a_non_leaf(name: str, write: str | None):
    def f(x):
        if write == "before":
            x.mul_(2)
        CHANGES[name](x)
        if write == "after":
            x.mul_(2)
        return x * 3

    check(f, lambda: non_leaf(1, 3))


@pytest.mark.parametrize("name", ["t_", "transpose_", "unsqueeze_", "squeeze_", "as_strided_"])
def test_a_change_of_a_leaf_that_requires_grad(name: str):
    check(lambda x: (CHANGES[name](x), x * 3)[1], lambda: given(leaf(1, 3)))


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_"])
def test_a_change_of_a_leaf_under_no_grad(name: str):
    def f(x):
        with torch.no_grad():
            CHANGES[name](x)
        return x * 3

    check(f, lambda: given(leaf(1, 3)))


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_", "as_strided_"])
def test_a_change_of_a_view_with_a_history(name: str):
    def make() -> Given:
        root = leaf(2, 3)
        base = root * 1
        return given(base[:1], also=[root, base])

    check(lambda x: (CHANGES[name](x), x * 3)[1], make)


def test_a_change_of_an_intermediate(change):
    def f(x):
        y = x * 2
        view = y[0]
        change(y)
        y.add_(1)
        return y, view

    check(f, lambda: given(plain(1, 3)))
    check(lambda x: change(x * 2), lambda: given(leaf(1, 3)))


def test_changes_that_cancel_leave_a_view_of_the_input():
    def f(x):
        y = x.t_()[0]
        x.t_()
        return y, x.view(-1)

    check(f, lambda: given(plain(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_changes_that_cancel_under_no_grad_on_a_leaf():
    def f(x):
        with torch.no_grad():
            x.t_()
            x.t_()
        return x * 2

    check(f, lambda: given(leaf(2, 3)))


def test_two_aliases_change_in_either_order():
    def f(x, y):
        x.t_()
        y.unsqueeze_(0)
        x.add_(1)
        return x * 2, y * 3

    def make() -> Given:
        base = plain(2, 3)
        return given(base.view(2, 3), base.view(6), also=[base])

    check(f, make)
    check(lambda x, y: f(y, x), lambda: given(*reversed(make().args)))


def test_resize_grows_an_input():
    def f(x, y):
        x.resize_(4)
        x.copy_(y)
        return x * 2

    check(f, lambda: given(plain(2), plain(4, seed=1)))


def test_resize_to_nothing_and_back():
    def f(x, y):
        x.resize_(0)
        x.resize_(3)
        x.copy_(y)
        return x * 2

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_resize_shrinks_an_input_whose_view_stays():
    def f(x):
        view = x[2:]
        x.resize_(2)
        view.add_(1)
        return x * 2, view

    check(f, lambda: given(plain(4)))


def test_resize_of_what_requires_grad_is_eagers_error():
    check(lambda x: x.resize_(2), lambda: given(leaf(3)))
    check(lambda x: x.resize_(2), lambda: non_leaf(3))


@pytest.mark.parametrize(
    "out",
    [lambda: plain(0), lambda: plain(3), lambda: plain(2, 2), lambda: plain(6).view(3, 2).t()],
    ids=["empty", "fits", "other size", "strided"],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_that_resizes(out):
    def f(x, y, z):
        torch.add(x, y, out=z)
        return z * 2

    check(f, lambda: given(plain(3), plain(3, seed=1), out()))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_that_resizes_an_intermediate():
    def f(x, y):
        z = torch.empty(0, device=x.device)
        torch.mul(x, y, out=z)
        w = torch.cat([x, y], out=x.new_empty(1))
        return z, z * 2, w

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_a_view_reshaped_in_place_after_it_was_written_from_what_requires_grad():
    def f(x, y):
        x.copy_(y)
        x.t_()
        return x * 2

    def make():
        base = plain(3, 2)
        return given(base.t(), leaf(2, 3), also=[base])

    check(f, make)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.t_().t_(), lambda x: x.unsqueeze_(0).squeeze_(0)])
def test_a_view_reshaped_in_place_beside_its_base_is_counted_once_and_keeps_its_history(rows, change):
    def session(compile):
        root = leaf(2, 3)
        base = root * 1
        view, f = base[2 - rows :], compile(lambda base, view: change(view))
        for _ in range(2):
            f(base, view)
            yield base._version, view
        tangent = torch.ones_like(view, requires_grad=True)
        yield torch.autograd.grad(view, [base, root], tangent, create_graph=True)

    check_session(session)


@pytest.mark.parametrize("rows", [0, 2])
def test_a_view_reshaped_in_place_keeps_the_history_of_the_op_that_made_it(rows: int):
    def f(x):
        view = x.expand(rows, 3)
        view.t_()
        return view

    def session(compile):
        root = leaf(3)
        y = compile(f)(root.clone())
        (g,) = torch.autograd.grad(y, root, torch.ones_like(y).requires_grad_(), create_graph=True)
        yield y, g, g.requires_grad, g.stride()

    check_session(session)


def test_a_view_is_reshaped_in_place_and_then_made_a_leaf():
    def f(x):
        x.t_()
        x.requires_grad_()
        return x * 2

    check(f, lambda: given(plain(3, 2).t()))


def test_what_a_function_resizes_in_between_and_then_frees():
    def f(x):
        torch.cumsum(torch.ones(5), 0, out=x)
        x.untyped_storage().resize_(0)

    def session(compile):
        x = torch.zeros(())
        compile(f)(x)
        yield x.shape, x.stride(), x.untyped_storage().nbytes()

    check_session(session)


@pytest.mark.parametrize("change", [lambda x: x.as_strided_((2, 2), (2, 1), 1), lambda x: x.t_().t_()])
def test_a_view_that_gets_the_geometry_it_has_keeps_its_history(change):
    def session(compile):
        base = leaf(6) * 1
        x = base.as_strided((2, 2), (2, 1), 1)
        seen = []
        x.register_hook(lambda g: seen.append(g.clone()))
        compiled = compile(change)
        for _ in range(2):
            y = compiled(x)
            yield y, x, torch.autograd.grad([y.sum()], [base], retain_graph=True), seen

    check_session(session)


@pytest.mark.parametrize("kind", ["plain", "leaf", "view"])
@pytest.mark.parametrize(
    "change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0), lambda v: v.as_strided_((5,), (1,), 0), lambda v: v]
)
@pytest.mark.parametrize("nbytes", [0, 4])
def test_a_view_that_was_reshaped_in_place_reaches_beyond_what_its_storage_is_shrunk_to(kind, change, nbytes):
    def f(x):
        x.untyped_storage().resize_(24)
        with torch.no_grad():
            v = x.as_strided((3, 2), (2, 1))
            change(v)
        x.untyped_storage().resize_(nbytes)
        return v

    def session(compile):
        x = torch.empty(0).set_(plain(2).untyped_storage(), 0, (2,), (1,))
        x = x[:] if kind == "view" else x.requires_grad_(kind == "leaf")
        y = compile(f)(x)
        yield y.shape, y.stride(), y._base is x, y._base is x._base, y.untyped_storage().nbytes()

    check_session(session)


def test_a_view_that_gets_one_more_dimension_is_written_along_it():
    def f(x):
        x.unsqueeze_(2)
        return x.index_fill_(3, torch.tensor([0], device=x.device), 0)

    def make():
        root = leaf(1, 2, dtype=torch.complex64)
        base = root * 2
        return given(torch.view_as_real(base), also=[root, base])

    check(f, make)


@pytest.mark.parametrize("stride", [0, 2])
def test_a_single_element_that_is_given_an_odd_stride_and_then_written_as_another_dtype(stride):
    def f(x, y):
        x.as_strided_((1,), (stride,), 0)
        y.mul_(3)
        return x

    def make():
        root = leaf(dtype=torch.complex64)
        base = root * 2
        return given(base, base.real, also=[root])

    check(f, make, backward=lambda roots: roots[0].backward(torch.ones_like(roots[0])))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the whole"])
@pytest.mark.parametrize("start", [0, 1])
def test_where_an_empty_part_of_a_written_tensor_with_gaps_lies(start, beside):
    def f(x):
        x.neg_()
        y = x.clone()
        return (y.narrow(0, start, 0), y) if beside else y.narrow(0, start, 0)

    check(f, lambda: given(torch.ones(1).as_strided((1,), (2,))))


def test_where_an_empty_part_lies_that_is_then_resized():
    def f(x):
        y = torch.zeros_like(x)
        part = y[1:]
        torch.mul(x, 2, out=part)
        return part

    check(f, lambda: given(torch.ones(2).as_strided((1, 2), (1, 1))), compile=aotcheck.aot_function)


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
def test_where_an_empty_part_lies_of_what_was_made_like_another_and_wholly_overwritten(like, geometry):
    def f(x):
        y = like(x)
        torch.cumsum(x, 0, out=y)
        return [y.narrow(d, 1, 0) for d in range(y.dim())]

    check(f, lambda: given(torch.ones(20).as_strided(*geometry)), compile=aotcheck.aot_function)


LAZY = {
    "conjugated": lambda z: z.conj(),
    "row": lambda z: z.conj()[:1],
    "column": lambda z: z.conj()[:, :1],
    "negated": lambda z: torch._neg_view(z)[:1],
    "imaginary part": lambda z: z.conj().imag[:, :1],
}


@pytest.mark.parametrize("dim", [0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("make", LAZY.values(), ids=LAZY)
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_lazy_squeezed_in_place_by_a_dimension(make, dim, grad):
    """Kernels know of neither, so a copy is squeezed, and copied back to where its result fits."""

    def session(compile):
        root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
        z = root * 1
        x = make(z)
        out = compile(lambda x: x.squeeze_(dim) * 2)(x)
        yield x, z, out
        if grad:
            out.backward(torch.ones_like(out))
            yield root.grad

    check_session(session)


@pytest.mark.parametrize("part", [lambda z: z.imag, lambda z: z.conj().imag], ids=["plain", "negated"])
def test_the_copy_of_what_is_squeezed_is_copied_back_once(part):
    """It comes back to other places than it was taken from, so that a second time is not the same as the first."""

    def session(compile):
        z = torch.view_as_complex(leaf(3, 2)).clone()
        x = part(z)
        compile(lambda x: x.unsqueeze_(0).squeeze_(0))(x)
        yield x, z

    check_session(session)


PARTS = {
    "real part": lambda x: x.real,
    "imaginary part": lambda x: x.imag,
    "of a row": lambda x: x[0].real,
    "of the conjugate": lambda x: torch.view_as_real(x.conj()[:, 0]),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.fill_(1), lambda x: x[0].mul_(2)])
@pytest.mark.parametrize("grad", [False, True])
def test_parts_of_a_written_lazy_conjugate(write, part, grad):
    def f(x):
        write(x)
        a = part(x)
        a.mul_(3)
        return a * 2, x * 1

    def session(compile):
        root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
        z = root * 1
        out = compile(f)(z.conj())
        yield z, out
        if grad:
            (out[0].sum() + out[1].abs().sum()).backward()
            yield root.grad

    check_session(session)


_AND_BACK = {
    "complex": lambda x: torch.view_as_complex(torch.view_as_real(x)),
    "reshaped between": lambda x: torch.view_as_complex(torch.view_as_real(x).view(4, 2)).view(2, 2),
    "conjugated twice": lambda x: x.conj().conj(),
    "as it is": lambda x: x,
}
_RESHAPED = {
    "beyond it": lambda x: x[0, 0].as_strided_((3,), (1,)),
    "whole": lambda x: x.view_as(x).as_strided_((3,), (1,)),
    "transposed": lambda x: x[:, :1].t_(),
    "squeezed": lambda x: x[:, :1].squeeze_(),
}


@pytest.mark.parametrize("write", [lambda v, x: v.zero_(), lambda v, x: x.mul_(2)], ids=["itself", "argument"])
@pytest.mark.parametrize("reshaped", _RESHAPED.values(), ids=_RESHAPED)
@pytest.mark.parametrize("made", _AND_BACK.values(), ids=_AND_BACK)
@pytest.mark.parametrize("inside", [False, True])
def test_a_view_by_way_of_others_is_reshaped_and_written(made, reshaped, write, inside):
    """Its history is then that of what the ops that made it make of the base, whatever its shape is now."""

    def f(x):
        x = made(x) if inside else x
        v = reshaped(x)
        write(v, x)
        return v

    def session(compile):
        root = plain(2, 2, dtype=torch.complex64).requires_grad_()
        x = root * 1
        v = compile(f)(x if inside else made(x))
        yield v, x
        yield attempt_later(lambda: torch.autograd.grad(v, root, torch.full_like(v, 2), retain_graph=True))
        yield torch.autograd.grad(x, root, torch.full_like(x, 3))

    check_session(session)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("reshaped", [lambda v: v.unsqueeze_(0), lambda v: v.t_() if v.dim() < 3 else v])
def test_a_view_made_inside_is_reshaped_in_place_and_returned(shape, reshaped):
    def f(x):
        y = x.clone()
        v = y.view_as(y) if y.dim() > 2 else y.t()
        reshaped(v)
        return v

    check(f, lambda: given(leaf(*shape)))


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:1], lambda x: x.view(-1)], ids=["t", "row", "flat"])
@pytest.mark.parametrize("retained", [False, True])
def test_a_view_reshaped_between_a_write_and_one_past_autograd(retained, view):
    """The last write counts nothing, so that the view keeps the history of its new shape."""

    def f(x, v):
        x.fill_(0)
        v.unsqueeze_(0)
        x.data.add_(1)

    def session(compile):
        root = leaf(2, 2)
        x = root * 1
        v = view(x)
        if retained:
            v.retain_grad()
        compile(f)(x, v)
        yield type(v.grad_fn).__name__, x, v
        (v * v).sum().backward()
        yield root.grad, v.grad if retained else None

    check_session(session)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0), lambda v: v.as_strided_((1,), (1,))])
def test_a_view_reshaped_in_place_without_its_base(change, written):
    def f(x):
        y = x * 2
        v = y.t()
        change(v)
        if written:
            v.mul_(3)
        return v

    check(f, lambda: given(leaf(2, 3)))


def test_a_view_reshaped_in_place_of_a_storage_that_no_longer_holds_it():
    def f(x):
        v = x.t()
        v.as_strided_((1,), (0,))
        x.untyped_storage().resize_(0)
        return v

    check(f, lambda: given(plain(2).as_strided((3, 0), (1, 1))), probe=False)


@pytest.mark.parametrize("count", [0, 1])
def test_a_part_that_is_reshaped_in_place_has_the_history_of_its_op(count):
    """Of a window without elements autograd gives a gradient of its own making, which requires none."""

    def session(compile):
        base = leaf(1).clone()
        x = base.view(1)

        def f(x):
            v = x.narrow(0, 0, count)
            return v.t_()

        y = compile(f)(x)
        g = torch.ones_like(y).requires_grad_()
        yield torch.autograd.grad(y, base, g, create_graph=True)

    check_session(session)


@pytest.mark.parametrize("part", [torch.view_as_real, lambda x: x.imag, lambda x: x[:1]])
@pytest.mark.parametrize("change", [lambda v: v.unsqueeze_(0), lambda v: v.squeeze_(), lambda v: v.as_strided_((), ())])
def test_a_view_reshaped_before_what_it_is_a_view_of_is_cut_from_its_history(part, change):
    def f(view, x):
        change(view)
        x.detach_()
        return view * 2

    def session(compile):
        root = leaf(1, dtype=torch.complex64)
        x = root.clone()
        view = part(x)
        y = compile(f)(view, x)
        yield x, view, y
        yield attempt_later((y.real.sum() + view.real.sum()).backward)
        yield root

    check_session(session)
