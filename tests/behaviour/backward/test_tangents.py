"""Layout, type, expanded, hooks order of tangents; cotangents."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, session
from tests.behaviour.inputs import leaf, plain

LAYOUTS = {
    "contiguous": lambda: plain(2, 3, 4, 4),
    "channels last": lambda: plain(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: plain(2, 3, 4, 4).transpose(2, 3),
    "expanded": lambda: plain(1).expand(2, 3, 4, 4),
    "strided": lambda: plain(2, 3, 4, 8)[..., ::2],
    "zero strides": lambda: plain(2, 3, 1, 4).expand(2, 3, 4, 4),
    "offset": lambda: plain(3, 3, 4, 4)[1:],
    "negated": lambda: torch.complex(plain(2, 3, 4, 4), plain(2, 3, 4, 4)).conj().imag,
}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: x.view(2, 12, 4) * 2,
        lambda x: x + 1,
        lambda x: x.permute(0, 2, 3, 1) * x.permute(0, 2, 3, 1),
    ],
    ids=["product", "view", "sum", "permuted"],
)
@session
def test_a_tangent_of_any_layout(compile, function):
    f = compile(function)
    for make in LAYOUTS.values():
        x = leaf(2, 3, 4, 4)
        y = f(x)
        y.backward(make().reshape(2, 3, 16).reshape(y.shape) if y.shape != (2, 3, 4, 4) else make())
        yield x, x.grad.stride()


@session
def test_a_tangent_of_a_channels_last_output(compile):
    f = compile(lambda x: x.contiguous(memory_format=torch.channels_last) * 2)
    for make in LAYOUTS.values():
        x = leaf(2, 3, 4, 4)
        f(x).backward(make())
        yield x, x.grad.stride()


@session
def test_the_layout_of_a_gradient_follows_its_leaf(compile):
    f = compile(lambda x: (x * x).sum())
    for make in list(LAYOUTS.values())[:3]:
        x = make().requires_grad_()
        f(x).backward()
        yield x, x.grad.stride()


@session
def test_a_complex_tangent_with_the_conjugate_bit(compile):
    f = compile(lambda x: x * x)
    for make in (lambda: plain(3, dtype=torch.complex64), lambda: plain(3, dtype=torch.complex64).conj()):
        x = leaf(3, dtype=torch.complex64)
        f(x).backward(make())
        yield x


@session
def test_an_empty_tangent_with_the_conjugate_or_negative_bit(compile):
    parts = compile(lambda x, y: torch.complex(x, y))
    for make in (lambda: plain(0, 2, dtype=torch.complex64).conj(), lambda: plain(0, 2, dtype=torch.complex64)):
        x, y = leaf(0, 2), leaf(0, 2)
        z = parts(x, y)
        z.backward(make(), retain_graph=True)
        z.conj().backward(make())
        yield x, y
    x, y = leaf(0), plain(0, dtype=torch.complex64).conj().imag
    compile(lambda x: x.exp())(x).backward(y)
    yield x, y


@session
def test_a_tangent_of_another_dtype_or_shape_is_eagers_error(compile):
    f = compile(lambda x: x * x)
    for make in (lambda: plain(3, dtype=torch.float64), lambda: plain(1), lambda: plain(4), lambda: plain(1, 3)):
        x = leaf(3)
        y = f(x)
        yield attempt_later(lambda y=y, make=make: y.backward(make())), x


@pytest.mark.parametrize("warm", [False, True])
@session
def test_an_empty_tangent_has_the_strides_it_is_given(compile, warm):
    """Eager takes it for contiguous, whatever its strides, and then minds them."""

    f = compile(lambda x: torch.view_as_real(x.clone()))
    if warm:
        f(leaf(0, dtype=torch.complex64))
    x = leaf(0, dtype=torch.complex64)
    out = f(x)
    yield attempt_later(lambda: out.backward(torch.ones((), device=x.device).expand(0, 2)))
    yield x.grad


_TO_NOTHING = {
    "sum": lambda x: x.sum(0),
    "of a row": lambda x: x.unsqueeze(0).sum(1),
    "mean": lambda x: x.mean(0),
    "norm": lambda x: x.norm(dim=0),
    "each": lambda x: x * 2,
}

_LYING = {
    "expanded": lambda y: torch.ones((), device=y.device).expand(y.shape),
    "strided": lambda y: torch.ones(*y.shape, 2, device=y.device)[..., 0],
    "in rows": torch.ones_like,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("lies", _LYING.values(), ids=_LYING)
@pytest.mark.parametrize("function", _TO_NOTHING.values(), ids=_TO_NOTHING)
@session
def test_the_strides_of_an_empty_gradient_follow_those_of_the_tangent(compile, function, lies, create_graph):
    """A view as complex numbers minds."""

    start = torch.ones(0, dtype=torch.complex64, requires_grad=True, device=plain(1).device)
    x = torch.view_as_real(start)
    y = compile(function)(x)
    given = lies(y)
    (gradient,) = torch.autograd.grad([y], [x], [given], retain_graph=True, create_graph=create_graph)
    yield gradient, gradient.stride()
    yield attempt_later(lambda: y.backward(given))
    yield start.grad


def _of_a_written_base(x):
    parts = torch.view_as_real(x)
    x.zero_()
    return parts.clone()


def _of_a_part(x):
    parts = torch.view_as_real(x[:0])
    x.zero_()
    return parts.clone()


def _two_of_written_bases(x):
    parts, flat = torch.view_as_real(x), x.view(-1)
    x.zero_()
    return parts.clone(), flat.clone()


_OF_WRITTEN = {
    "whole": (_of_a_written_base, lambda x: x.clone().t()),
    "no view": (_of_a_written_base, torch.clone),
    "part": (_of_a_part, lambda x: torch.cat([x, torch.ones(2, dtype=x.dtype, device=x.device)]).t()),
    "two": (_two_of_written_bases, lambda x: x.clone().t()),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("lies", _LYING.values(), ids=_LYING)
@pytest.mark.parametrize(("function", "prepare"), _OF_WRITTEN.values(), ids=_OF_WRITTEN)
@session
def test_the_strides_of_an_empty_tangent_decide_an_error_of_view_as_complex(
    compile, function, prepare, lies, create_graph
):
    """What is a view of a written base gives it zeros where it has no elements, whatever its own gradient is."""

    x = torch.ones(0, dtype=torch.complex64, requires_grad=True, device=plain(1).device)
    out = compile(function)(prepare(x))
    out = out if isinstance(out, tuple) else (out,)
    tangents = [lies(y) for y in out]
    for roots in (slice(None), slice(1), slice(1, 2)):
        yield attempt_later(
            lambda roots=roots: torch.autograd.grad(
                out[roots], [x], tangents[roots], retain_graph=True, create_graph=create_graph, allow_unused=True
            )
        )
    for y in out:
        yield attempt_later(lambda y=y: y.abs().sum().backward(retain_graph=True, create_graph=create_graph))
        yield x.grad


_LAZILY = {
    "expanded": lambda y: torch.ones((), dtype=y.dtype, device=y.device).expand(y.shape),
    "overlapping": lambda y: torch.ones(sum(y.shape), dtype=y.dtype, device=y.device).as_strided(
        y.shape, (1,) * y.dim()
    ),
    "strided": lambda y: torch.ones(*y.shape, 2, dtype=y.dtype, device=y.device)[..., 0],
}


@pytest.mark.parametrize("lazy", [torch.conj, lambda t: t.conj().imag, lambda t: t], ids=["conj", "neg", "plain"])
@pytest.mark.parametrize("lies", _LAZILY.values(), ids=_LAZILY)
@pytest.mark.parametrize("rows", [1, 2])
@session
def test_the_strides_of_an_empty_gradient_by_a_conjugated_or_negated_tangent(compile, rows, lies, lazy):
    def f(x):
        y = x.unsqueeze(-2).expand(rows, 2, 0).sum(-1) * 2
        return y, y.real

    x = torch.ones(0, dtype=torch.complex64, requires_grad=True, device=plain(1).device)
    y, part = compile(f)(x)
    given = lazy(lies(y))
    yield torch.autograd.grad([y if given.is_complex() else part], [x], [given])
