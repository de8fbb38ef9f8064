"""Grad mode, deterministic mode, default dtype, restored state after errors."""

import pytest
import torch
from torch import nn

from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import AROUND


@agrees(lambda: given(leaf(3), leaf(3, seed=1)))
def test_no_grad_inside(x, y):
    with torch.no_grad():
        z = x * y
    return z * x, z


@session
def test_enable_grad_inside_a_no_grad_call(compile):
    def f(x):
        with torch.enable_grad():
            y = x * x
        return y, x * 2

    x = leaf(3)
    with torch.no_grad():
        y, z = compile(f)(x)
        yield x, y, z
    backward([y])
    yield x


def test_a_function_decorated_with_no_grad():
    check(torch.no_grad()(lambda x: x * 2), lambda: given(leaf(3)))


@session
def test_set_grad_enabled_by_the_function_lasts_after_the_call_as_in_eager(compile):
    def f(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y

    try:
        yield compile(f)(leaf(3))
    finally:
        torch.set_grad_enabled(True)


@session
def test_a_leaf_is_written_in_a_call_under_no_grad(compile):
    x = leaf(3)
    with torch.no_grad():
        yield compile(lambda x: x.mul_(2))(x), x


@session
def test_the_default_dtype_is_read_on_every_call(compile):
    f = compile(lambda x: (x + torch.ones(3, device=x.device), torch.tensor([0.5], device=x.device)))
    yield f(plain(3).int())
    torch.set_default_dtype(torch.float64)
    try:
        yield f(plain(3).int())
    finally:
        torch.set_default_dtype(torch.float32)


def _deterministic(x, k):
    y = torch.zeros_like(x).index_put((k,), x[k], accumulate=True)
    return y + torch.zeros_like(x).scatter_add(0, k[:, None].expand(2, 3), x), torch.empty(3, device=x.device).isnan()


@session
def test_deterministic_mode_is_read_on_every_call(compile):
    f = compile(_deterministic)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        for enabled in (True, True):
            torch.use_deterministic_algorithms(enabled)
            x = leaf(2, 3)
            out = f(x, torch.tensor([0, 1], device=x.device))
            backward([out[0]])
            yield x, out
    finally:
        torch.use_deterministic_algorithms(before)


@session
def test_an_op_that_deterministic_mode_forbids_raises_only_then(compile):
    f = compile(
        lambda x: nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear").put(
            torch.tensor([0, 0], device=x.device), torch.tensor([1.0, 2.0], device=x.device)
        )
    )
    try:
        for enabled in (False, True, False):
            torch.use_deterministic_algorithms(enabled)
            yield attempt(lambda: f(plain(2, 3)).shape)
    finally:
        torch.use_deterministic_algorithms(False)


def _switched(x, y):
    a = x * y
    torch.set_grad_enabled(False)
    b = a * y
    torch.set_grad_enabled(True)
    c = b * x
    with torch.set_grad_enabled(False), torch.enable_grad():
        d = c * x
    return a, b, c, d


def _written_without_grad(x, y):
    z = x * 2
    with torch.no_grad():
        z.mul_(y)
        w = z * 2
    z.add_(1)
    return z, w


def _inference_within(x, y):
    with torch.inference_mode():
        a = y.detach() * 2
        with torch.inference_mode(False):
            b = x * 3
    return a, b


@pytest.mark.parametrize("enabled", [True, False], ids=["under grad", "under no_grad"])
@pytest.mark.parametrize("function", [_switched, _written_without_grad, _inference_within])
@session
def test_grad_mode_changed_inside(compile, function, enabled):
    f = compile(function)
    for _ in range(2):
        x, y = leaf(3), leaf(3, seed=1)
        with torch.set_grad_enabled(enabled):
            out = f(x, y)
        yield out, torch.is_grad_enabled()
        backward([t for t in out if t.requires_grad and not t.is_inference()] or [x.sum()])
        yield x, y


INSIDE = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference mode": torch.inference_mode,
    "no inference mode": lambda: torch.inference_mode(False),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no autocast": lambda: torch.autocast("cpu", enabled=False),
}


@pytest.mark.parametrize("outside", ["nothing", "no_grad", "inference mode", "autocast", "all"])
@pytest.mark.parametrize("first", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("second", INSIDE.values(), ids=INSIDE)
@session
def test_grad_inference_and_autocast_modes_nested_in_any_order(compile, outside, first, second):
    def f(x, w):
        a = x @ w
        with first():
            b = x @ w
            with second():
                c = x @ w
                v = x[1:]
            d = b.detach() * 2
        return a, b, c, d, v, x @ w

    compiled = compile(f)
    for _ in range(2):
        x, w = leaf(2, 3), leaf(3, 2, seed=1)
        with AROUND[outside]():
            out = attempt(lambda: compiled(x, w))  # noqa: B023
        yield out
        if isinstance(out, Raised):
            continue
        yield [t.is_inference() for t in out]
        roots = [t for t in out if t.requires_grad and not t.is_inference()]
        if roots:
            yield attempt_later(lambda: backward(roots))  # noqa: B023
        yield x, w


@pytest.mark.parametrize("warn_only", [False, True])
@session
def test_deterministic_mode_fills_empty_tensors(compile, warn_only):
    compiled = compile(lambda x: (torch.empty(3, device=x.device), x.new_empty(2), torch.empty_like(x)))
    try:
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        yield compiled(plain(2, 3)), torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.float32])
@session
def test_the_default_dtype_decides_the_dtype_of_every_op_that_reads_it(compile, dtype):
    def f(x):
        n = x.int()
        return (
            n / 2,
            n.float().mean(),
            torch.rand(2, device=x.device),
            torch.full((2,), 1.5, device=x.device),
            torch.arange(0.0, 2.0, device=x.device),
            n * 0.5,
            n.sin(),
        )

    compiled = compile(f)
    for d in (torch.float32, dtype, torch.float32):
        torch.set_default_dtype(d)
        try:
            yield compiled(plain(2, 3))
        finally:
            torch.set_default_dtype(torch.float32)
