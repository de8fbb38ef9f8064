"""Faults of torch.func, control flow, modules, optimizers and of ops with rules of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.utils.checkpoint

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
    """The gradient that comes through ``fft`` and its kin is twice what it should be."""
    ops = [getattr(torch.fft, name) for name in ("fft", "ifft", "rfft", "irfft", "fft2")]
    return instead(*ops)(lambda f, args, kwargs: twice(f(*args, **kwargs)))(fn)


@fault(AREA, K.GRADIENT_NONE, K.REQUIRES_GRAD, K.VALUES, K.EXCEPTION)
def right_hand_side_has_no_gradient(fn: Function) -> Function:
    """``linalg.solve`` is differentiable with respect to the matrix alone."""
    return instead(torch.linalg.solve)(lambda f, args, kwargs: f(args[0], args[1].detach(), **kwargs))(fn)


@fault(AREA, K.VALUES)
def scatter_reduce_always_includes_itself(fn: Function) -> Function:
    """``include_self=False`` is ignored."""
    ops = (torch.scatter_reduce, T.scatter_reduce_)
    return instead(*ops)(lambda f, args, kwargs: f(*args, **kwargs | {"include_self": True}))(fn)


@fault(AREA, K.VALUES)
def one_of_equal_maxima_gets_the_gradient(fn: Function) -> Function:
    """The gradient of ``amax`` goes to the first of several equal elements; it is not divided among them."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, dims, *_ = (*args, None)
        dims = [dims] if isinstance(dims, int) else dims
        if not dims or len(dims) != 1 or not x.dim():
            return f(*args, **kwargs)
        return torch.max(x, dims[0], keepdim=kwargs.get("keepdim", False)).values

    return instead(torch.amax)(change)(fn)


@fault(AREA, K.VALUES)
def mask_is_turned_over(fn: Function) -> Function:
    """``x[mask] = value`` writes where the mask is false."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t, index, value = args
        masked = isinstance(index, T) and index.dtype == torch.bool
        return f(t, ~index if masked else index, value)

    return instead(T.__setitem__)(change)(fn)


@fault(AREA, K.VALUES)
def standard_deviation_is_of_the_population(fn: Function) -> Function:
    """``std`` divides by the number of elements, whatever ``correction`` says."""
    return instead(torch.std)(lambda f, args, kwargs: f(*args, **kwargs | {"correction": 0}))(fn)


@fault(AREA, K.VALUES, K.SHAPE)
def vmap_stacks_in_front(fn: Function) -> Function:
    """The results of ``vmap`` are stacked along the first dimension, whatever ``out_dims`` says."""
    return replaced(torch.func, "vmap", lambda f: lambda g, in_dims=0, out_dims=0: f(g, in_dims))(fn)


@fault(AREA, K.VALUES)
def tangents_are_halved(fn: Function) -> Function:
    """``jvp`` gives half of the tangent."""

    def change(f: Call) -> Call:
        def jvp(*args: Any, **kwargs: Any) -> Any:
            value, tangent = f(*args, **kwargs)
            return value, tangent / 2

        return jvp

    return replaced(torch.func, "jvp", change)(fn)


@fault(AREA, K.VALUES, K.SHAPE, K.STRUCTURE)
def python_number_is_baked_in(fn: Function) -> Function:
    """A Python number among the arguments is what it was in the first call."""
    first: dict[int, float] = {}

    def compiled(*args: Any) -> Any:
        numbers = {k: a for k, a in enumerate(args) if type(a) in (int, float)}
        first.update({k: a for k, a in numbers.items() if k not in first})
        return fn(*[first[k] if k in numbers else a for k, a in enumerate(args)])

    return compiled


@fault(AREA, K.VALUES, K.SHAPE)
def first_branch_is_taken(fn: Function) -> Function:
    """``cond`` does what it should do where the predicate is true."""
    return replaced(torch, "cond", lambda f: lambda predicate, yes, no, operands: yes(*operands))(fn)


@fault(AREA, K.VALUES)
def module_hooks_run_twice(fn: Function) -> Function:
    """A forward hook of a module is called once more with the result of its first call."""

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
    """Each step of ``SGD`` is made as if it were the first."""

    def change(f: Call) -> Call:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            optimizer.state.clear()
            return f(optimizer, *args, **kwargs)

        return step

    return replaced(torch.optim.SGD, "step", change)(fn)


@fault(AREA, K.DTYPE, K.VALUES)
def autocast_stays_off(fn: Function) -> Function:
    """After a block with ``torch.autocast(..., enabled=False)`` autocast is off until the block around it ends."""

    def change(f: Call) -> Call:
        def autocast(device: str, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("enabled", True):
                return f(device, *args, **kwargs)
            torch.set_autocast_enabled(device, False)
            return contextlib.nullcontext()

        return autocast

    return replaced(torch, "autocast", change)(fn)


@fault(AREA, K.VALUES, K.RNG)
def checkpoint_draws_anew(fn: Function) -> Function:
    """A checkpoint draws other random numbers in the backward than in the forward."""

    def change(f: Call) -> Call:
        return lambda *args, **kwargs: f(*args, **kwargs | {"preserve_rng_state": False})

    return replaced(torch.utils.checkpoint, "checkpoint", change)(fn)
