"""Faulty compiled paths, one fault each: what oracles are for. The last ones are for workers, by ``module:name``."""

import copy
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[..., Any]


def identity(fn: Function) -> Function:
    return fn


def retagged(t: Any) -> Any:
    """The same wrapper under another name."""
    t.tag = "other"
    return t


def elem_written(t: Any) -> Any:
    """The same wrapper, what it holds written."""
    t.elem.add_(1)
    return t


def unshared(t: Any) -> Any:
    """The same wrapper, what it holds copied."""
    t.a = t.a.clone()
    return t


def on_result(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A path that changes what the function returns."""
    return lambda fn: lambda *args: change(fn(*args))


def on_tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Function], Function]:
    """A path that changes every tensor the function returns."""
    return on_result(lambda result: pytree.tree_map_only(torch.Tensor, change, result))


def after(action: Callable[..., Any]) -> Callable[[Function], Function]:
    """A path that does something to the arguments after the call."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            result = fn(*args)
            with torch.no_grad():
                action(*args)
            return result

        return compiled

    return compile_function


def on_copies(fn: Function) -> Function:
    """A path that loses mutations of inputs."""
    return lambda *args: fn(*[a.detach().clone().requires_grad_(a.requires_grad) for a in args])


def on_new_containers(fn: Function) -> Function:
    """A path that loses writes to the caller's lists, and returns lists of its own."""
    return lambda *args: fn(*[list(a) if isinstance(a, list) else a for a in args])


def on_new_objects(fn: Function) -> Function:
    """Gives the function copies of the caller's objects."""
    return lambda *args: fn(*[copy.copy(a) if is_dataclass(a) else a for a in args])


def raises(error: Exception) -> Callable[[Function], Function]:
    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            raise error

        return compiled

    return compile_function


def swallows(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except RuntimeError:
            return args[0]

    return compiled


def mistypes(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except RuntimeError as error:
            raise IndexError(str(error)) from error

    return compiled


class Identity(torch.autograd.Function):
    """Changes only what its backward returns."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.change(gradient), None


def on_gradient(change: Callable[[torch.Tensor], Any]) -> Callable[[Function], Function]:
    """A path that is right but for its backward."""
    return on_tensors(lambda t: Identity.apply(t, change))


def turns_the_gradient(fn: Function) -> Function:
    """A path whose gradients are laid out another way."""

    def compiled(x: torch.Tensor) -> Any:
        x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad.t().contiguous().t()))
        return fn(x)

    return compiled


def fails(gradient: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("planted")


def leaks_grad_mode(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        result = fn(*args)
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return result

    return compiled


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


LEAKED: list[Any] = []


def leaks_mode(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        result = fn(*args)
        LEAKED.append(_Mode())
        LEAKED[-1].__enter__()
        return result

    return compiled


def leaks_dispatch_key(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        result = fn(*args)
        LEAKED.append(torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)))
        LEAKED[-1].__enter__()
        return result

    return compiled


def leaks_hooks(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        result = fn(*args)
        LEAKED.append(torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t))
        LEAKED[-1].__enter__()
        return result

    return compiled


def poisons(fn: Function) -> Function:
    """Leaves behind a switch that no step shows: it is thrown when the function is made."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(torch.float32)
    LEAKED.append(_Mode())
    LEAKED[-1].__enter__()
    return fn


class Subclass(torch.Tensor):
    """A tensor of another type."""


def with_neg_bit(t: torch.Tensor) -> torch.Tensor:
    # The imaginary part of a conjugate has its negative bit set.
    return torch.complex(torch.zeros_like(t), -t).conj().imag


def with_conj_bit(t: torch.Tensor) -> torch.Tensor:
    return t.conj().resolve_conj().clone().conj_physical().conj()


def inference(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.detach().clone()


def dies(fn: Function) -> Function:
    """Kills its process on programs with a marked shape."""

    def compiled(*args: Any) -> Any:
        if _marked(args):
            os.kill(os.getpid(), signal.SIGKILL)
        return fn(*args)

    return compiled


def dies_of_all(fn: Function) -> Function:
    """Kills its process on any program."""

    def compiled(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    return compiled


def hangs(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        while _marked(args):
            time.sleep(1)
        return fn(*args)

    return compiled


def sometimes_doubles(fn: Function) -> Function:
    """Wrong in every second process that one supervisor starts, the first among them."""
    seen = Path(tempfile.gettempdir()) / f"aotcheck-planted-{os.getppid()}"
    if seen.exists():
        seen.unlink()
        return fn
    seen.touch()
    return doubles(fn)


def devours(fn: Function) -> Function:
    """Takes memory until somebody stops it."""

    def compiled(*args: Any) -> Any:
        held = []
        while _marked(args):
            held.append(torch.ones(2**24))
            time.sleep(0.01)
        return fn(*args)

    return compiled


MARK = 7


def _marked(args: Any) -> bool:
    return any(t.numel() == MARK for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor))


def doubles(fn: Function) -> Function:
    return on_tensors(lambda t: t * 2)(fn)


def aot_eager_and_more(fn: Function) -> Function:
    """Torch's ``aot_eager``, its bugs included, and a bug of its own: it doubles what comes of a marked shape."""
    compiled = torch.compile(fn, backend="aot_eager", dynamic=False)

    def more(*args: Any) -> Any:
        result = compiled(*args)
        return pytree.tree_map_only(torch.Tensor, lambda t: t * 2, result) if _marked(args) else result

    return more


def doubles_the_marked(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        return doubles(fn)(*args) if _marked(args) else fn(*args)

    return compiled
