"""BEHAVIOUR 7, item by item: every entry and the state it leaves, random numbers and modes in every place."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import Raised, attempt, attempt_later, backward, check, check_session, given, leaf, plain


def _module_simplified(function):
    """``function`` of one tensor by way of ``aot_module_simplified``, which compiles at construction."""

    class Module(nn.Module):
        def forward(self, x):
            return (function(x),)

    made = []

    def call(x):
        if not made:
            made.append(aotcheck.aot_module_simplified(Module(), [x], fw_compiler=lambda graph, examples: graph))
        return made[0](x)[0]

    return call


class _Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


ENTRIES = {
    "aot_function": aotcheck.aot_function,
    "aot_module": lambda f: aotcheck.aot_module(_Module(f)),
    "aot_module_simplified": _module_simplified,
    "torch.compile": lambda f: torch.compile(f, backend=backend()),
}
every_entry = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


def _state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_anomaly_enabled(),
        len(torch.overrides._get_current_function_mode_stack()),
        torch._C._len_torch_dispatch_stack(),
    )


# -- every entry leaves global state as eager does -----------------------------------------------------

AROUND = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "all": lambda: _all(),
}


@contextlib.contextmanager
def _all():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16), torch.inference_mode():
        yield


def _works(x):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y.float() @ x


def _fails(x):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def _raises(x):
    with torch.inference_mode():
        raise KeyError("on purpose")


ENTRIES_AND_FUNCTIONS = [
    (entry, function)
    for name, entry in ENTRIES.items()
    for function in ([_works] if name == "torch.compile" else [_works, _fails, _raises])  # Dynamo has its own errors
]


@pytest.mark.parametrize(("entry", "function"), ENTRIES_AND_FUNCTIONS)
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_every_entry_leaves_the_state_alone(entry, function, around):
    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            with around():
                before = _state()
                out = attempt(lambda: compiled(plain(2, 3)))
                yield Raised(out.type, "") if isinstance(out, Raised) else out
                assert _state() == before
            yield _state()

    check_session(session, compile=entry)


@pytest.mark.parametrize("refused", [lambda x: x * x.sum().item(), lambda x: (torch.manual_seed(1), x)[1]])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_refusal_leaves_the_state_alone(refused, around):
    generator = torch.get_rng_state()
    with around():
        before = _state()
        with pytest.raises(aotcheck.UnsupportedError):
            aotcheck.aot_function(refused)(plain(2, 3))
        assert _state() == before
    assert torch.equal(torch.get_rng_state(), generator)


class _RaisingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
            raise KeyError("on purpose")


@pytest.mark.parametrize("around", ["nothing", "autocast", "no_grad"])
def test_a_backward_that_raises_leaves_the_state_alone(around):
    def session(compile):
        x = leaf(2, 3)
        y = compile(lambda x: _RaisingBackward.apply(x * x))(x)
        for _ in range(2):
            with AROUND[around]():
                before = _state()
                yield attempt(lambda: y.sum().backward(retain_graph=True))
                assert _state() == before
        yield x, torch.rand(1)

    check_session(session)


# -- modes of gradients and inference in every place ----------------------------------------------------

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
def test_modes_inside_modes(outside, first, second):
    def f(x, w):
        a = x @ w
        with first():
            b = x @ w
            with second():
                c = x @ w
                v = x[1:]
            d = b.detach() * 2
        return a, b, c, d, v, x @ w

    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_dtypes_and_caches(cache, dtype):
    def session(compile):
        compiled = compile(lambda x, w: (x @ w) @ w.t() + F.linear(x, w.t()).sum())
        for d in (dtype, torch.bfloat16, dtype):
            x, w = leaf(2, 3), leaf(3, 2, seed=1)
            for _ in range(2):
                with torch.autocast("cpu", dtype=d, cache_enabled=cache):
                    out = compiled(x, w)
                backward([out])
                yield x, w, out

    check_session(session)


def test_a_cast_that_autocast_cached_before_the_call_is_used():
    def session(compile):
        compiled = compile(lambda x, w: x @ w)
        x, w = leaf(2, 3), leaf(3, 2, seed=1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            before = x @ w
            out = compiled(x, w)
            after = x @ w
        yield before, out, after
        backward([before, out, after])
        yield x, w

    check_session(session)


def test_an_autocast_object_entered_twice_and_across_functions():
    outer = torch.autocast("cpu", dtype=torch.bfloat16)

    @outer
    def g(x, w):
        return x @ w

    def f(x, w):
        with torch.autocast("cpu", enabled=False):
            a = g(x, w)
        return a, g(x.detach(), w), x @ w

    check(f, *[lambda: given(leaf(2, 3), leaf(3, 2, seed=1))] * 2)


@pytest.mark.parametrize("op", ["mm", "bmm", "conv1d", "addmm", "linear", "sdpa", "einsum", "gru", "prelu", "loss"])
def test_ops_under_autocast(op):
    ops = {
        "mm": lambda x: x @ x,
        "bmm": lambda x: torch.bmm(x[None], x[None]),
        "conv1d": lambda x: F.conv1d(x[None], x[:, :, None]),
        "addmm": lambda x: torch.addmm(x, x, x),
        "linear": lambda x: F.linear(x, x, x[0]),
        "sdpa": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
        "gru": lambda x: torch.gru_cell(x, x, x.repeat(3, 1), x.repeat(3, 1)),
        "prelu": lambda x: F.prelu(x @ x, x[0, :1]),
        "loss": lambda x: F.mse_loss(x @ x, x),
    }

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ops[op](x)

    check(f, *[lambda: given(leaf(3, 3).div(4).detach().requires_grad_())] * 2, rtol=1e-6)


# -- deterministic mode, default dtype -------------------------------------------------------------------


@pytest.mark.parametrize("warn_only", [False, True])
def test_deterministic_mode_and_memory_that_is_not_written(warn_only):
    def session(compile):
        compiled = compile(lambda x: (torch.empty(3), x.new_empty(2), torch.empty_like(x)))
        try:
            torch.use_deterministic_algorithms(True, warn_only=warn_only)
            yield compiled(plain(2, 3)), torch.is_deterministic_algorithms_warn_only_enabled()
        finally:
            torch.use_deterministic_algorithms(False)

    check_session(session)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.float32])
def test_the_default_dtype_in_everything_that_asks_for_it(dtype):
    def f(x):
        n = x.int()
        return n / 2, n.float().mean(), torch.rand(2), torch.full((2,), 1.5), torch.arange(0.0, 2.0), n * 0.5, n.sin()

    def session(compile):
        compiled = compile(f)
        for d in (torch.float32, dtype, torch.float32):
            torch.set_default_dtype(d)
            try:
                yield compiled(plain(2, 3))
            finally:
                torch.set_default_dtype(torch.float32)

    check_session(session)


# -- random numbers --------------------------------------------------------------------------------------


def _in_parts(x):
    y = F.dropout(x, 0.5)
    y = checkpoint(lambda y: F.dropout(y.sin(), 0.3) * torch.rand_like(y), y, use_reentrant=False)
    torch.rand(2)
    return y * torch.randn(3)


@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpoint_that_dynamo_found(preserve):
    def session(compile):
        def f(x):
            y = checkpoint(lambda x: F.dropout(x.sin(), 0.5), x, use_reentrant=False, preserve_rng_state=preserve)
            return y * torch.rand(3)

        compiled = compile(f)
        for _ in range(2):
            x = leaf(4, 3)
            y = compiled(x)
            backward([y])
            yield x, y, torch.rand(1)

    check_session(session, compile=ENTRIES["torch.compile"], rtol=1e-6)


@every_entry
def test_every_entry_draws_what_eager_draws(entry):
    def session(compile):
        compiled = compile(_in_parts)
        for _ in range(2):
            x = leaf(4, 3)
            y = compiled(x)
            z = torch.rand(2)
            backward([y])
            yield x, y, z, torch.rand(2)

    check_session(session, compile=entry, rtol=1e-6)


def test_random_numbers_when_a_call_is_traced_again():
    """Traces that are thrown away, for other arguments or since a mode was not enough, draw nothing."""

    def f(x, w):
        x.add_(torch.rand(3))
        y = F.dropout(w * x, 0.5)
        return y, x.view(-1)

    def session(compile):
        compiled = compile(f)
        w = leaf(3)
        base = leaf(4, 3) * 1
        for x in (plain(2, 3), plain(4, 3), base, base[1:], plain(2, 3)):
            y = compiled(x, w)
            yield x, y
            backward([y[0]], retain_graph=True)
            yield w

    check_session(session)


def test_random_numbers_in_a_program_that_raises_in_the_end():
    def f(x):
        y = F.dropout(x, 0.5) + torch.rand(3)
        x.data.add_(y.detach())
        raise ValueError("on purpose")

    check(f, *[lambda: given(leaf(2, 3))] * 2)


@pytest.mark.parametrize("mode", ["no_grad", "inference mode", "autocast", "all"])
def test_random_numbers_in_modes(mode):
    def f(x):
        return F.dropout(x, 0.5), torch.rand_like(x), x.clone().uniform_(), torch.randn(3, requires_grad=True)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            with AROUND[mode]():
                yield compiled(plain(2, 3))

    check_session(session)


def test_two_generators_and_the_default_one():
    def session(compile):
        compiled = compile(
            lambda x, g, h: (
                x * torch.rand(3, generator=g) + torch.rand(3, generator=h) * torch.rand(3) * torch.rand(3, generator=g)
            )
        )
        g, h = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
        for pair in ((g, h), (h, g), (g, g), (g, h)):
            x = leaf(2, 3)
            y = compiled(x, *pair)
            backward([y])
            yield x, y, g.get_state(), h.get_state()

    check_session(session)


def test_the_default_generator_as_an_argument():
    def session(compile):
        compiled = compile(lambda x, g: x * torch.rand(3, generator=g) + torch.rand(3))
        for _ in range(2):
            yield compiled(plain(2, 3), torch.default_generator), torch.rand(1)

    check_session(session)


class _Other(torch.overrides.TorchFunctionMode):
    """Computes something else."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.neg(*args) if func is torch.Tensor.relu else func(*args, **(kwargs or {}))


@pytest.mark.parametrize("first", [False, True])
def test_a_function_mode_of_the_callers(first: bool):
    def session(compile):
        f = compile(lambda x: x.relu() + torch.ones(3))
        x = plain(3)
        for inside in (first, not first, first):
            with _Other() if inside else torch.device("cpu"):
                yield f(x), f(x)
            yield f(x)

    check_session(session)
