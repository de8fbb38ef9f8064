"""BEHAVIOUR 5: backwards of complex tensors: what is multiplied by a number, and what lies on memory of real ones."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

BY_NUMBERS = {
    "times": lambda z: z * 2j,
    "times a conjugate": lambda z: z.conj() * (1 + 2j),
    "in place": lambda z: z.mul_(2j),
    "a part, in place": lambda z: (z[:1].mul_(2j), z)[1],
    "a conjugate, in place": lambda z: (z.conj().mul_(2j), z)[1],
    "by": lambda z: z / 2j,
    "number by": lambda z: 2j / z,
    "alone": lambda z: torch.tensor([1.0, 2.0]) * z[0] * 1j,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("op", BY_NUMBERS)
def test_complex_tensors_are_multiplied_by_complex_numbers(op, dtype, create_graph):
    def session(compile):
        z = leaf(2, dtype=dtype)
        out = compile(BY_NUMBERS[op])(z.clone())
        (gradient,) = torch.autograd.grad((out * out).real.sum(), z, create_graph=create_graph)
        yield out.detach(), gradient
        if create_graph:
            yield torch.autograd.grad(gradient.real.sum() + gradient.imag.sum(), z, allow_unused=True)

    check_session(session)


WIDE = {
    "complex": lambda t: torch.view_as_complex(t[:4].view(2, 2)),
    "double": lambda t: t.detach()[:4].view(torch.float64),
}
WRITES = {
    "whole": lambda z: z.zero_(),
    "copied": lambda z: z.copy_(z.flip(0) * 2),
    "first": lambda z: z[:1].add_(1),
    "second": lambda z: z[1].mul_(2),
    "diagonal": lambda z: z.view(2, 1).diagonal().copy_(torch.ones(1, dtype=z.dtype)),
    "indexed": lambda z: z.index_put_((torch.tensor([0]),), torch.ones(1, dtype=z.dtype)),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("size", [4, 5])
def test_elements_of_which_the_memory_does_not_hold_a_whole_number_are_written(size, kind, write, inside):
    def f(z, memory):
        z = WIDE[kind](memory) if inside else z
        WRITES[write](z)
        return z * 2, memory

    def session(compile):
        root = leaf(size)
        memory = root.clone()
        out, whole = compile(f)(WIDE[kind](memory), memory)
        loss = out.real.sum() + whole.sum()
        yield out, whole, attempt_later(lambda: torch.autograd.grad(loss, root))

    check_session(session)


@pytest.mark.parametrize("write", WRITES)
def test_a_complex_argument_lies_on_memory_of_an_odd_number_of_reals(write):
    def session(compile):
        with torch.no_grad():
            z = WIDE["complex"](plain(5))
        weight = leaf(2, dtype=torch.complex64)
        out, written = compile(lambda z, w: ((z * w), WRITES[write](z))[:2])(z, weight)
        yield out, written, z, attempt_later(lambda: torch.autograd.grad(out.real.sum(), weight))

    check_session(session)


ENDS = {
    "tensors": lambda z: (z[0], z[1]),
    "a tensor and a number": lambda z: (z[0], 3.0),
    "a number and a tensor": lambda z: (2.0, z[1]),
    "complex and real": lambda z: (z[0], z[1].real.double()),
    "complex and integer": lambda z: (z[1], torch.tensor(3)),
}


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("line", [torch.linspace, torch.logspace])
def test_what_lies_between_complex_ends_is_complex(line, ends, dtype, default):
    def f(z):
        points = line(*ENDS[ends](z), 4)
        return points, points * z, points.imag.sum() * z.real

    def session(compile):
        torch.set_default_dtype(default)
        try:
            z = leaf(4, dtype=dtype)
            points, product, part = compile(f)(z)
            yield points, product, part, torch.autograd.grad(product.real.sum() + part.sum(), z)
        finally:
            torch.set_default_dtype(torch.float32)

    check_session(session)
