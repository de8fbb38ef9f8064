"""Every entry and the state it leaves; thread safety."""

import concurrent.futures
import gc
import threading
import warnings
from typing import Any

import pytest
import torch

from aotcheck import _torch
from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import Raised, attempt, check, session, through_dynamo
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import AROUND, ENTRIES, mlp, seeded


@torch.library.custom_op("aotcheck_asked::add_into", mutates_args={"b"})
def _add_into(b: torch.Tensor, x: torch.Tensor) -> None:
    b.add_(x)


def _inference(x):
    with torch.inference_mode():
        return x[x > 0]


def _autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        _add_into(x, x)
        return y


@pytest.mark.parametrize("function", [_inference, _autocast], ids=["inference mode", "autocast"])
def test_modes_entered_by_a_refused_dynamo_graph_are_exited(function: Any):
    torch._dynamo.reset()
    f = torch.compile(function, backend=backend())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(to_device(torch.ones(2, 2)))
    assert not torch.is_inference_mode_enabled()
    weight = torch.ones(2, 2, requires_grad=True, device=plain(1).device)
    assert (weight * 2).requires_grad
    sums = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            sums.append((to_device(torch.ones(1, 2)) @ weight).sum().item())
        with torch.no_grad():
            weight.mul_(2)
    assert sums == [4.0, 8.0, 16.0]


def test_inference_mode_entered_by_a_frame_that_raised_ends_with_the_call():
    """Dynamo's code enters inference mode by hand, and leaves it when the frame that raised ends."""

    def f(x):
        guard = enter(True)
        x.view(3, 3)
        return guard

    enter = torch.autograd.grad_mode._enter_inference_mode
    before = _torch.autograd_flags(), _torch.dispatch_keys(), torch.is_inference_mode_enabled()
    for compiled in (f, aotcheck.aot_function(f), through_dynamo(f)):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="invalid for input"):
                compiled(plain(2))
            gc.collect()
            assert (_torch.autograd_flags(), _torch.dispatch_keys(), torch.is_inference_mode_enabled()) == before


@session
def test_one_module_called_from_several_threads_is_as_in_eager(compile):
    compiled = compile(seeded(mlp(4, 4, 4)))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        yield list(pool.map(lambda k: [compiled(plain(k % 3 + 1, 4, seed=k)) for _ in range(5)], range(12)))


def test_threads_that_trace_at_once_do_not_disturb_each_other():
    """Each its own functions; none is refused, classes are told, and the generator ends where it began."""
    wrong = []
    before = torch.get_rng_state()

    def trace(n):
        for k in range(10):
            x = plain(n + 1, k + 1)
            try:
                out = aotcheck.aot_function(lambda x: x * (2 if isinstance(x, torch.Tensor) else 3))(x)
                if not torch.equal(out, x * 2):
                    wrong.append((n, k))
            except aotcheck.UnsupportedError as error:
                wrong.append((n, k, error))

    threads = [threading.Thread(target=trace, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.equal(torch.get_rng_state(), before)


@session
def test_grad_and_inference_mode_after_an_error_inside_no_grad(compile):
    def f(x):
        with torch.no_grad():
            return x @ x

    yield attempt(lambda: compile(f)(leaf(2, 3)))
    yield torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@session
def test_autocast_is_off_after_an_error_inside_it(compile):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    yield attempt(lambda: compile(f)(leaf(2, 3)))
    yield torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def _sets_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * torch.ones(3, device=x.device)


def _sets_determinism(x):
    torch.use_deterministic_algorithms(True)
    return x * 2


def _sets_autocast(x):
    torch.set_autocast_enabled("cpu", True)
    return x @ x.t()


def _state():
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize("function", [_sets_default_dtype, _sets_determinism, _sets_autocast])
def test_a_function_that_changes_global_state_for_good_is_refused(function):
    before = _state()
    with pytest.raises(aotcheck.UnsupportedError, match="global state"):
        aotcheck.aot_function(function)(leaf(2, 3))
    assert _state() == before


def _restores_what_it_sets(x):
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3, device=x.device)
    finally:
        torch.set_default_dtype(torch.float32)
    return x * y, torch.ones(3, device=x.device)


def test_a_function_that_restores_the_default_dtype_it_sets():
    check(_restores_what_it_sets, *[lambda: given(leaf(2, 3))] * 2)


def _modes():
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
@session(compile="entry")
def test_every_entry_restores_global_state_also_after_an_error(compile, function, around):
    compiled = compile(function)
    for _ in range(2):
        with around():
            before = _modes()
            out = attempt(lambda: compiled(plain(2, 3)))
            yield Raised(out.type, "") if isinstance(out, Raised) else out
            assert _modes() == before
        yield _modes()


@pytest.mark.parametrize("refused", [lambda x: x * bool(x.sum() > 0), lambda x: (torch.manual_seed(1), x)[1]])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_refusal_restores_global_state(refused, around):
    generator = torch.get_rng_state()
    with around():
        before = _modes()
        with pytest.raises(aotcheck.UnsupportedError):
            aotcheck.aot_function(refused)(plain(2, 3))
        assert _modes() == before
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
@session
def test_a_backward_that_raises_restores_global_state(compile, around):
    x = leaf(2, 3)
    y = compile(lambda x: _RaisingBackward.apply(x * x))(x)
    for _ in range(2):
        with AROUND[around]():
            before = _modes()
            yield attempt(lambda: y.sum().backward(retain_graph=True))
            assert _modes() == before
    yield x, torch.rand(1, device=x.device)


class _Other(torch.overrides.TorchFunctionMode):
    """Computes something else."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.neg(*args) if func is torch.Tensor.relu else func(*args, **(kwargs or {}))


@pytest.mark.parametrize("first", [False, True])
@session
def test_a_torch_function_mode_around_some_calls_changes_results(compile, first: bool):
    f = compile(lambda x: x.relu() + torch.ones(3, device=x.device))
    x = plain(3)
    for inside in (first, not first, first):
        with _Other() if inside else torch.device("cpu"):
            yield f(x), f(x)
        yield f(x)
