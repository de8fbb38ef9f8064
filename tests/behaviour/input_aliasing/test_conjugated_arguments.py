"""Lazily conjugated or negated arguments and their real and imaginary parts: written, squeezed in place."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, backward, check, session, write
from tests.behaviour.inputs import Given, given, leaf, plain
from tests.behaviour.shared import quietly

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
@session
def test_a_conjugated_or_negated_view_is_squeezed_in_place_by_a_dimension(compile, make, dim, grad):
    """Kernels know of neither, so a copy is squeezed, and copied back to where its result fits."""

    root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
    z = root * 1
    x = make(z)
    out = compile(lambda x: x.squeeze_(dim) * 2)(x)
    yield x, z, out
    if grad:
        out.backward(torch.ones_like(out))
        yield root.grad


@pytest.mark.parametrize("part", [lambda z: z.imag, lambda z: z.conj().imag], ids=["plain", "negated"])
@session
def test_a_squeezed_lazy_view_is_copied_back_once(compile, part):
    """It comes back to other places than it was taken from, so that a second time is not the same as the first."""

    z = torch.view_as_complex(leaf(3, 2)).clone()
    x = part(z)
    compile(lambda x: x.unsqueeze_(0).squeeze_(0))(x)
    yield x, z


PARTS = {
    "real part": lambda x: x.real,
    "imaginary part": lambda x: x.imag,
    "of a row": lambda x: x[0].real,
    "of the conjugate": lambda x: torch.view_as_real(x.conj()[:, 0]),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.fill_(1), lambda x: x[0].mul_(2)])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_parts_of_a_written_lazy_conjugate(compile, write, part, grad):
    def f(x):
        write(x)
        a = part(x)
        a.mul_(3)
        return a * 2, x * 1

    root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
    z = root * 1
    out = compile(f)(z.conj())
    yield z, out
    if grad:
        (out[0].sum() + out[1].abs().sum()).backward()
        yield root.grad


LAZY_VIEWS = {
    "conjugated": lambda x: x.conj(),
    "negated": lambda x: torch._neg_view(x),
    "conjugated part": lambda x: x[:, :1].conj(),
}

WITH_GAPS = {"negated with gaps": lambda x: x.conj().imag, "its transpose": lambda x: x.conj().imag.t()}
"""What is squeezed of these eager lays out anew, over what lies in the gaps."""

WRITES = {
    "not written": lambda x: None,
    "written": lambda x: x.mul_(2),
    "written under no_grad": lambda x: quietly(lambda: x.mul_(2)),
    "read": lambda x: x * 2,
}

SQUEEZES = {
    "a dimension": lambda x: x.squeeze_(0),
    "dimensions": lambda x: x.squeeze_((0,)),
    "the last": lambda x: x.squeeze_(-1),
    "under no_grad": lambda x: quietly(lambda: x.squeeze_(0)),
    "twice": lambda x: x.squeeze_(0).unsqueeze_(0).squeeze_(0),
}


@pytest.mark.parametrize("then", WRITES)
@pytest.mark.parametrize("squeeze", SQUEEZES)
@pytest.mark.parametrize("first", WRITES)
@pytest.mark.parametrize("lazy", LAZY_VIEWS | WITH_GAPS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@session
def test_a_lazy_view_is_squeezed_in_place_between_writes(compile, lazy, first, squeeze, then):
    def function(x):
        WRITES[first](x)
        SQUEEZES[squeeze](x)
        WRITES[then](x)
        return x, x * 3

    w = leaf(1, 2, dtype=torch.complex64)
    base = w.clone()
    x = (LAZY_VIEWS | WITH_GAPS)[lazy](base)
    y, z = compile(function)(x)
    yield x, y, z, x.shape, x.is_conj(), x.is_neg()
    yield attempt_later(lambda: torch.autograd.grad(z.sum().abs() + y.sum().abs(), [w], allow_unused=True))


HOOKS = {
    "on the argument": lambda x, seen: x.register_hook(seen),
    "on its node": lambda x, seen: x.grad_fn.register_prehook(lambda gradients: seen(gradients[0])),
}


@pytest.mark.parametrize("given", ["alone", "with its base"])
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("squeeze", SQUEEZES)
@pytest.mark.parametrize("first", WRITES)
@pytest.mark.parametrize("lazy", LAZY_VIEWS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@session
def test_the_caller_has_a_hook_on_a_lazy_view_that_is_squeezed_in_place(compile, lazy, first, squeeze, hook, given):
    """Whatever is copied for it, the history that the argument came with leads to what it then has."""

    def function(x, *others):
        WRITES[first](x)
        SQUEEZES[squeeze](x)
        return x, x * 3, *[t * 2 for t in others]

    w, seen = leaf(1, 2, dtype=torch.complex64), []
    base = w.clone()
    x = LAZY_VIEWS[lazy](base)
    x.retain_grad()
    others = (base,) if given == "with its base" else ()
    hook(x, seen.append)
    results = compile(function)(x, *others)
    yield results, x.shape, x.is_conj(), x.is_neg()
    loss = sum(t.sum().abs() for t in results)
    yield attempt_later(lambda: torch.autograd.grad(loss, [w, x, base], allow_unused=True)), seen
    yield x.grad


def test_a_complex_non_leaf_written_through_its_real_part():
    def f(x):
        x.real.mul_(2)
        torch.view_as_real(x)[..., 1].add_(1)
        return x * 3

    def make() -> Given:
        root = leaf(3, dtype=torch.complex64)
        return given(root * 1, also=[root])

    check(f, lambda: given(plain(3, dtype=torch.complex64)))
    check(f, make)


def test_a_conjugated_input_is_written():
    def f(x):
        x.mul_(2)
        return x * 3, x.conj()

    def make(view) -> Given:
        base = plain(3, dtype=torch.complex64)
        return given(view(base), also=[base])

    check(f, lambda: make(torch.conj))
    check(f, lambda: make(lambda x: x.conj().imag))


@pytest.mark.parametrize(
    "lazy", [torch.conj, lambda x: x.conj().imag, lambda x: x.conj() * 1], ids=["conj", "neg", "no"]
)
@session
def test_a_detached_alias_of_a_conjugate_is_written_from_it(compile, lazy):
    def f(x):
        y = x.detach()
        y.copy_(x)
        return y

    root = leaf(3, dtype=torch.complex64)
    x = lazy(root)
    y = compile(f)(x)
    yield y, x, root, y._is_view(), attempt_later(lambda: write(y))
    yield y, x, root, attempt_later(lambda: backward([y])), root.grad


@pytest.mark.parametrize("view", ["real", "imag", "view_as_real of the conjugate", "part"])
@pytest.mark.parametrize("trained", [False, True])
def test_a_conjugated_input_is_written_and_read_as_real(view, trained):
    seen = {
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "view_as_real of the conjugate": lambda x: torch.view_as_real(x.conj()),
        "part": lambda x: torch.view_as_real(x[1:].conj())[..., 0],
    }[view]

    def before(x):
        v = seen(x)
        x.mul_(2)
        return v * 3

    def after(x):
        x.mul_(2)
        return seen(x) * 3

    def through(x):
        x.add_(1)
        seen(x).mul_(2)
        return x * 3

    def make():
        base = plain(3, dtype=torch.complex64) * 1j + plain(3, seed=2)
        root = base.requires_grad_(trained)
        return given((root * 2).conj(), also=[root])

    for body in (before, after, through):
        check(body, make)


@agrees(lambda: (plain(2, 3, dtype=torch.complex64).t().clone(),))
def test_the_real_view_of_a_transposed_complex_tensor_is_written(x):
    torch.view_as_real(x).mul_(2)
    return x.clone(), x * 1
