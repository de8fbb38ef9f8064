"""Conj, neg, real, imag, view(dtype) of arguments and their aliases."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, one_of, session
from tests.behaviour.input_aliasing.common import BODIES, _double_first, _return_aliases, _write_both, _write_second
from tests.behaviour.inputs import Given, given, given_of, leaf, plain, to_device


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.int16, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize("reading", [_double_first, _write_second, _write_both, _return_aliases])
def test_a_tensor_and_its_view_of_another_dtype(reading, dtype: torch.dtype):
    def make() -> Given:
        base = plain(8).abs()
        return given(base, base.view(dtype))

    check(reading, make)
    check(lambda x, y: reading(y, x), make)


def test_a_view_and_a_view_of_another_dtype_overlap():
    check(_write_both, lambda: given_of(plain(8).abs(), lambda base: (base[:4], base[2:].view(torch.int32))))


body = one_of(BODIES)

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
def test_a_complex_tensor_and_its_conjugate_or_parts(body, views, grad: bool, swapped: bool):
    def make() -> Given:
        root = plain(3, dtype=torch.complex64).requires_grad_(grad)
        base = root * 1
        made = [view(base) for view in views]
        return given(*(reversed(made) if swapped else made), also=[root, base])

    check(body, make)


@pytest.mark.parametrize("stride", [0, 2])
def test_an_as_strided_element_is_written_through_its_real_part(stride):
    def f(x, y):
        x.as_strided_((1,), (stride,), 0)
        y.mul_(3)
        return x

    def make():
        root = leaf(dtype=torch.complex64)
        base = root * 2
        return given(base, base.real, also=[root])

    check(f, make, backward=lambda roots: roots[0].backward(torch.ones_like(roots[0])))


@pytest.mark.parametrize("inside", [False, True])
@agrees(lambda: given(to_device(torch.ones(3, dtype=torch.bool))))
def test_bytes_of_bools_that_are_neither_zero_nor_one(x, *, inside):
    y = torch.ones(3, dtype=torch.bool, device=x.device) if inside else x
    view = y.view(torch.uint8)
    view.neg_()
    return view, y.view(torch.uint8)[1:], x


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "write", [lambda t: t.zero_(), lambda t: t.copy_(torch.ones(1, device=t.device)), lambda t: t.add_(1)]
)
@session
def test_a_single_element_of_an_expanded_complex_tensor_is_read_as_real(compile, write, trained: bool):
    def f(x, y, z):
        write(y[1:])
        z.copy_(x)

    memory = to_device(torch.full((), 3, dtype=torch.complex64))
    part = memory.real.requires_grad_(trained)
    z = to_device(torch.zeros(()))
    compile(f)(part, memory.expand(2), z)
    yield memory, z, part


@session
def test_a_conjugate_of_a_conjugate_whose_base_is_then_written(compile):
    """To autograd that is the same op twice, not a window: a gradient that comes by it is the one that was given."""

    base = leaf(2, dtype=torch.complex64).clone()
    x = base.conj()

    def f(x):
        v = x.conj()
        x.zero_()
        return v

    y = compile(f)(x)
    g = torch.ones_like(y).requires_grad_()
    yield torch.autograd.grad(y, base, g)
    yield y.is_conj(), y.grad_fn.name()


def test_the_real_part_and_the_conjugate_of_a_complex_input_are_returned():
    check(lambda x: (x.real, torch.view_as_real(x), x.conj()), lambda: given(plain(3, dtype=torch.complex64)))


WIDE = {
    "complex": lambda t: torch.view_as_complex(t[:4].view(2, 2)),
    "double": lambda t: t.detach()[:4].view(torch.float64),
}

WRITES = {
    "whole": lambda z: z.zero_(),
    "copied": lambda z: z.copy_(z.flip(0) * 2),
    "first": lambda z: z[:1].add_(1),
    "second": lambda z: z[1].mul_(2),
    "diagonal": lambda z: z.view(2, 1).diagonal().copy_(torch.ones(1, dtype=z.dtype, device=z.device)),
    "indexed": lambda z: z.index_put_(
        (torch.tensor([0], device=z.device),), torch.ones(1, dtype=z.dtype, device=z.device)
    ),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("size", [4, 5])
@session
def test_a_view_of_wider_elements_is_written_in_memory_of_odd_size(compile, size, kind, write, inside):
    def f(z, memory):
        z = WIDE[kind](memory) if inside else z
        WRITES[write](z)
        return z * 2, memory

    root = leaf(size)
    memory = root.clone()
    out, whole = compile(f)(WIDE[kind](memory), memory)
    loss = out.real.sum() + whole.sum()
    yield out, whole, attempt_later(lambda: torch.autograd.grad(loss, root))


@pytest.mark.parametrize("write", WRITES)
@session
def test_a_complex_argument_in_a_storage_of_an_odd_number_of_reals_is_written(compile, write):
    with torch.no_grad():
        z = WIDE["complex"](plain(5))
    weight = leaf(2, dtype=torch.complex64)
    out, written = compile(lambda z, w: ((z * w), WRITES[write](z))[:2])(z, weight)
    yield out, written, z, attempt_later(lambda: torch.autograd.grad(out.real.sum(), weight))
