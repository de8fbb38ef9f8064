"""Casts that autocast caches: shared by calls in one region, dropped, made before the call."""

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.harness import agrees, attempt, backward, check_session, session, through_dynamo
from tests.behaviour.inputs import given, leaf, plain, to_device


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
@agrees(lambda shape: (leaf(*shape),), lambda shape: (leaf(*shape),))
def test_a_leaf_is_transposed_in_place_after_autocast_dropped_its_cast(x, *, again):
    with torch.autocast("cpu", torch.bfloat16):
        first = x @ torch.ones(x.shape[-1], 2, device=x.device)
    with torch.no_grad():
        x.t_()
    if not again:
        return first, None
    with torch.autocast("cpu", torch.bfloat16):
        return first, x @ torch.ones(x.shape[-1], 2, device=x.device)


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
    module = to_device(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)))
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


SUMMED = {_another_dtype_inside, _regions_of_other_dtypes, _two_calls, _beside_what_is_not_compiled, _module, _closure}
"""Regions in which eager sums the gradients of several calls up before it casts them."""


@pytest.mark.parametrize(
    "session",
    [pytest.param(r, marks=pytest.mark.soft("casts") if r in SUMMED else ()) for r in REGIONS],
    ids=lambda session: session.__name__,
)
def test_calls_in_one_autocast_region_share_cached_casts(session):
    check_session(session)


def test_calls_behind_torch_compile_in_one_autocast_region_share_cached_casts():
    check_session(_module, compile=through_dynamo)


@pytest.mark.parametrize("change", ["squeeze_", "t_"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@session
def test_a_leaf_is_reshaped_in_place_before_autocast_casts_it(compile, change, mode):
    """What the cache holds of it has the shape that it had when it was cast."""

    def function(x, y):
        with mode():
            getattr(x, change)(*([0] if change == "squeeze_" else []))
        return torch.addmm(x, y, y[:, :1].expand(-1, x.shape[1])), x

    compiled = compile(function)
    for seed in range(2):
        x = leaf(*((1, 2, 3) if change == "squeeze_" else (3, 2)), seed=seed)
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            yield compiled(x, plain(2, 2)), x


@agrees(*[lambda: given(leaf(2, 3), leaf(3, 2, seed=1))] * 2)
def test_autocast_casts_a_weight_once(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ w) * (x @ w)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@session
def test_autocast_dtypes_with_and_without_the_cache(compile, cache, dtype):
    compiled = compile(lambda x, w: (x @ w) @ w.t() + F.linear(x, w.t()).sum())
    for d in (dtype, torch.bfloat16, dtype):
        x, w = leaf(2, 3), leaf(3, 2, seed=1)
        for _ in range(2):
            with torch.autocast("cpu", dtype=d, cache_enabled=cache):
                out = compiled(x, w)
            backward([out])
            yield x, w, out


@session
def test_a_cast_that_autocast_cached_before_the_call_is_used(compile):
    compiled = compile(lambda x, w: x @ w)
    x, w = leaf(2, 3), leaf(3, 2, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = x @ w
        out = compiled(x, w)
        after = x @ w
    yield before, out, after
    backward([before, out, after])
    yield x, w
