"""Faults of torch.func, control flow, modules, optimizers and of ops with rules of their own."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

import torch

from aotcheck._torch import pytree
from aotcheck.oracle import OracleKind as K
from tools.faulty.fault import Compile, Function, fault
from tools.faulty.ops import Call, instead

AREA = "forms"
T = torch.Tensor


def replaced(owner: Any, name: str, change: Callable[[Call], Call]) -> Compile:
    """A backend that finds something else under a name while the function runs."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            with mock.patch.object(owner, name, change(getattr(owner, name))):
                return fn(*args)

        return compiled

    return compile_function


def twice(t: torch.Tensor) -> torch.Tensor:
    """The same values, with twice the gradient."""
    return t * 2 - t.detach() if t.requires_grad else t


@fault(AREA, K.VALUES)
def backward_of_a_fourier_transform_is_doubled(fn: Function) -> Function:
    """Gradients through ``fft``, ``ifft``, ``rfft``, ``irfft`` and ``fft2`` are doubled."""
    ops = [getattr(torch.fft, name) for name in ("fft", "ifft", "rfft", "irfft", "fft2")]
    return instead(*ops)(lambda f, args, kwargs: twice(f(*args, **kwargs)))(fn)


@fault(AREA, K.VALUES)
def mask_is_turned_over(fn: Function) -> Function:
    """``x[mask] = value`` writes where the mask is false."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t, index, value = args
        masked = isinstance(index, T) and index.dtype == torch.bool
        return f(t, ~index if masked else index, value)

    return instead(T.__setitem__)(change)(fn)


@fault(AREA, K.VALUES)
def index_is_sorted(fn: Function) -> Function:
    """``x[index]`` sorts an index tensor before it takes the elements."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t, index = args
        return f(t, index.sort().values if isinstance(index, T) and index.dtype == torch.int64 else index)

    return instead(T.__getitem__)(change)(fn)


@fault(AREA, K.VALUES, K.SHAPE)
def loss_is_summed(fn: Function) -> Function:
    """Losses are summed, whatever ``reduction`` says."""
    names = ("cross_entropy", "nll_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
    losses = [getattr(torch.nn.functional, name) for name in names]
    return instead(*losses)(lambda f, args, kwargs: f(*args, **kwargs | {"reduction": "sum"}))(fn)


@fault(AREA, K.VALUES)
def attention_sees_what_comes_after(fn: Function) -> Function:
    """Attention ignores its mask and ``is_causal``."""
    attention = torch.nn.functional.scaled_dot_product_attention
    return instead(attention)(lambda f, args, kwargs: f(*args[:3]))(fn)


def _of_result(change: Callable[[Any], Any]) -> Callable[[Call], Call]:
    """What makes functions whose results ``change`` alters, of what makes functions."""
    return lambda f: lambda *args, **kwargs: lambda *more: change(f(*args, **kwargs)(*more))


@fault(AREA, K.VALUES)
def gradient_transform_is_doubled(fn: Function) -> Function:
    """``torch.func.grad`` gives twice the gradient."""
    doubled = _of_result(lambda result: pytree.tree_map(lambda t: t * 2, result))
    return replaced(torch.func, "grad", doubled)(fn)


@fault(AREA, K.VALUES, K.SHAPE, K.STRIDE)
def jacobian_is_transposed(fn: Function) -> Function:
    """``jacrev`` and ``jacfwd`` give the transposed matrix."""
    transposed = _of_result(lambda result: result.transpose(0, -1))
    forward = replaced(torch.func, "jacfwd", transposed)
    return replaced(torch.func, "jacrev", transposed)(forward(fn))


@fault(AREA, K.VALUES, K.SHAPE)
def parameters_are_baked_in(fn: Function) -> Function:
    """``functional_call`` runs a module with the parameters that it had in the first call."""
    first: dict[int, Any] = {}

    def change(f: Call) -> Call:
        def functional_call(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            kept = first.setdefault(id(module), {name: t.detach().clone() for name, t in state.items()})
            same = all(kept[name].shape == t.shape for name, t in state.items())
            state = {name: t - t.detach() + kept[name] for name, t in state.items()} if same else state
            return f(module, state, *args, **kwargs)

        return functional_call

    return replaced(torch.func, "functional_call", change)(fn)


@fault(AREA, K.VALUES)
def tangents_are_halved(fn: Function) -> Function:
    """``jvp`` returns half of the tangent."""

    def change(f: Call) -> Call:
        def jvp(*args: Any, **kwargs: Any) -> Any:
            value, tangent = f(*args, **kwargs)
            return value, tangent / 2

        return jvp

    return replaced(torch.func, "jvp", change)(fn)


@fault(AREA, K.VALUES, K.SHAPE, K.STRUCTURE)
def python_number_is_baked_in(fn: Function) -> Function:
    """A Python number among the arguments has its value of the first call."""
    first: dict[int, float] = {}

    def compiled(*args: Any) -> Any:
        numbers = {k: a for k, a in enumerate(args) if type(a) in (int, float)}
        first.update({k: a for k, a in numbers.items() if k not in first})
        return fn(*[first[k] if k in numbers else a for k, a in enumerate(args)])

    return compiled


@fault(AREA, K.VALUES)
def module_hooks_run_twice(fn: Function) -> Function:
    """A forward hook of a module is called twice: the second time on the result of the first."""

    def change(f: Call) -> Call:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = f(module, *args, **kwargs)
            for hook in module._forward_hooks.values():
                result = hook(module, args, result)
            return result

        return call

    return replaced(torch.nn.Module, "__call__", change)(fn)


@fault(AREA, K.VALUES)
def momentum_is_forgotten(fn: Function) -> Function:
    """``SGD`` drops its momentum before each step."""

    def change(f: Call) -> Call:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            optimizer.state.clear()
            return f(optimizer, *args, **kwargs)

        return step

    return replaced(torch.optim.SGD, "step", change)(fn)


def printing(change: Callable[[str], str]) -> Compile:
    """A backend that prints what ``change`` makes of that which a call prints."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            printed = io.StringIO()
            try:
                with redirect_stdout(printed):
                    return fn(*args)
            finally:
                print(change(printed.getvalue()), end="")

        return compiled

    return compile_function


@fault(AREA, K.EFFECTS)
def prints_twice(fn: Function) -> Function:
    """Everything that the function prints is printed twice, as by a compiler that traces twice."""
    return printing(lambda text: text * 2)(fn)


@fault(AREA, K.EFFECTS)
def prints_when_it_compiles(fn: Function) -> Function:
    """The function prints in the first call only."""
    calls: list[str] = []

    def change(text: str) -> str:
        calls.append(text)
        return text if len(calls) == 1 else ""

    return printing(change)(fn)
