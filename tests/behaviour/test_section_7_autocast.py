"""BEHAVIOUR 7: autocast within the kernels of ops that it has no rule for."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, backward, check_session, differentiable, leaf, plain, through_dynamo

HALVES = [torch.float16, torch.bfloat16]


def _matrix(dtype):
    return plain(4, 4, seed=2).div(8).to(dtype)


KERNELS = {
    "roll": lambda x: torch.roll(x, 1),
    "roll of a dimension": lambda x: torch.roll(x, (1, 2), (0, 1)),
    "fftshift": torch.fft.fftshift,
    "isin": lambda x: torch.isin(x, x.t().contiguous()),
    "_chunk_cat": lambda x: torch._chunk_cat([x], 0, 2),
    "matrix_exp": torch.matrix_exp,
    "pinv": torch.linalg.pinv,
    "bilinear": lambda x: torch.nn.functional.bilinear(x, x, x.unsqueeze(0)),
    "convolution": lambda x: torch.convolution(x.view(1, 4, 4), x.view(4, 4, 1), None, [1], [0], [1], False, [0], 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "sparse.mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "pinverse": torch.pinverse,
    "pinverse by method": lambda x: x.pinverse(1e-3),
}


@pytest.mark.parametrize("function", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("cast_to", HALVES, ids=str)
def test_kernels_that_autocast_looks_into(function, dtype, cast_to):
    def session(compile):
        f = compile(function)
        for enabled in (True, False):
            x = _matrix(dtype).requires_grad_(dtype.is_floating_point)
            with torch.autocast("cpu", cast_to, enabled=enabled):
                out = attempt(lambda x=x: f(x))
            yield out
            outputs = differentiable([out])
            yield attempt(lambda outputs=outputs: backward(outputs)) if outputs else None, x

    check_session(session)


def test_off_in_parts_within_a_kernel():
    def f(x):
        with torch.autocast("cpu", enabled=False):
            a = torch.linalg.pinv(x)
        return a, torch.linalg.pinv(x)

    def session(compile):
        with torch.autocast("cpu"):
            yield compile(f)(_matrix(torch.float32))

    check_session(session)


# -- casts that autocast caches ------------------------------------------------------------------------


def _data():
    return plain(4, 3).div(7), plain(3, 2, seed=1).div(3).requires_grad_()


def _multiply(x, w):
    return x @ w


def _two_calls(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu"):
        a, b = f(x, w), f(x * 1.1, w)
    ((a * 1.01).sum() + (b * 3.3).pow(2).sum()).backward()
    yield a, b, w


def _backwards_apart(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu"):
        a, b = f(x, w), f(x * 1.1, w)
    yield a, b
    a.sum().backward()
    yield w
    yield attempt(lambda: b.pow(2).sum().backward()), w


def _written_in_between(compile):
    f, (x, w) = compile(_multiply), _data()
    for _ in range(2):
        with torch.autocast("cpu"):
            yield f(x, w)
            with torch.no_grad():
                w.mul_(2)
            yield f(x, w)


def _beside_what_is_not_compiled(compile):
    f, (x, w) = compile(lambda x, w: (x @ w).relu()), _data()
    with torch.autocast("cpu"):
        first, between, last = f(x, w), x @ w, f(x, w)
    (first + between * 1.7 + last * 0.3).sum().backward()
    yield first, between, last, w


def _no_grad_first(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu"):
        with torch.no_grad():
            a = f(x, w)
        b = f(x, w)
    yield a, b


def _no_grad_last(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu"):
        b = f(x, w)
        with torch.no_grad():
            w.mul_(2)
            a = f(x, w)
    b.sum().backward()
    yield a, b, w


def _cast_by_the_program(compile):
    f, (x, w) = compile(lambda x, w: x.bfloat16() * w.to(torch.bfloat16)[:, 0]), _data()
    with torch.autocast("cpu"):
        for _ in range(3):
            yield f(x, w)
            with torch.no_grad():
                w.mul_(2)


def _written_inside(compile):
    def g(x, w):
        y = x @ w
        with torch.no_grad():
            w.mul_(2)
        z = x @ w
        return y, z, torch.autograd.grad((y.float() * 1.3).sum(), w, retain_graph=True)[0]

    f, (x, w) = compile(g), _data()
    with torch.autocast("cpu"):
        first, second = f(x, w), f(x, w)
    yield first, second, w


def _backward_inside(compile):
    def g(x, w):
        y = (x @ w).float().pow(2).sum()
        y.backward()
        return y

    f, (x, w) = compile(g), _data()
    with torch.autocast("cpu"):
        yield f(x, w), f(x * 2, w)
    yield w


def _module(compile):
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    f = compile(module)
    for _ in range(2):
        with torch.autocast("cpu"):
            y = _data()[0]
            for _ in range(3):
                y = f(y)
        y.float().pow(2).mean().backward()
        yield y, *module.parameters()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad


def _closure(compile):
    x, w = _data()
    f = compile(lambda x: x @ w)
    with torch.autocast("cpu"):
        a, b = f(x), f(x * 1.3)
    (a * 1.1 + b * 1.7).sum().backward()
    yield a, b, w


def _no_cache(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu", cache_enabled=False):
        a, b = f(x, w), f(x * 1.3, w)
    (a * 1.1 + b * 1.7).sum().backward()
    yield a, b, w


def _inference_mode(compile):
    f, (x, w) = compile(_multiply), _data()
    with torch.autocast("cpu"), torch.inference_mode():
        a, b = f(x, w), f(x, w)
    yield a, b


def _saved_tensor_hooks(compile):
    seen = []
    f, (x, w) = compile(_multiply), _data()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.shape), t)[1], lambda t: t)
    with torch.autocast("cpu"):
        f(x, w)
        with hooks:
            a = f(x, w)
    a.sum().backward()
    yield torch.Size([0, 3, 2]) in seen, a, w


def _another_dtype_inside(compile):
    def multiply(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    f, (x, w) = compile(multiply), _data()
    for dtype in (torch.float16, torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            a, b = f(x, w), f(x * 1.3, w)
        (a * 1.1 + b * 1.7).sum().backward()
        yield a, b, w


def _regions_of_other_dtypes(compile):
    f, (x, w) = compile(_multiply), _data()
    for dtype in (torch.float16, torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            a, b = f(x, w), f(x * 1.3, w)
        (a * 1.1 + b * 1.7).sum().backward()
        yield a, b, w


REGIONS = [
    _another_dtype_inside,
    _regions_of_other_dtypes,
    _two_calls,
    _backwards_apart,
    _written_in_between,
    _beside_what_is_not_compiled,
    _no_grad_first,
    _no_grad_last,
    _cast_by_the_program,
    _written_inside,
    _backward_inside,
    _module,
    _closure,
    _no_cache,
    _inference_mode,
    _saved_tensor_hooks,
]


@pytest.mark.parametrize("session", REGIONS, ids=lambda session: session.__name__)
def test_calls_in_one_region(session):
    check_session(session)


def test_calls_in_one_region_of_what_dynamo_compiles():
    check_session(_module, compile=through_dynamo)


@pytest.mark.parametrize("change", ["squeeze_", "t_"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
def test_a_leaf_that_is_reshaped_before_it_is_cast(change, mode):
    """What the cache holds of it has the shape that it had when it was cast."""

    def function(x, y):
        with mode():
            getattr(x, change)(*([0] if change == "squeeze_" else []))
        return torch.addmm(x, y, y[:, :1].expand(-1, x.shape[1])), x

    def session(compile):
        compiled = compile(function)
        for seed in range(2):
            x = leaf(*((1, 2, 3) if change == "squeeze_" else (3, 2)), seed=seed)
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                yield compiled(x, plain(2, 2)), x

    check_session(session)
