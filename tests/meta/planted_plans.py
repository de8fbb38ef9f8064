"""Faults that only a call plan shows: several backwards, higher derivatives, hooks, writes between."""

from collections.abc import Callable
from typing import Any

import torch

from tests.meta import planted


class Wrong(torch.autograd.Function):
    """The identity; its backward doubles."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2


class Fails(Wrong):
    """The identity; its backward raises."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        raise RuntimeError("planted")


class Later(Wrong):
    """The identity; the backward of its backward doubles."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return Wrong.apply(gradient)


class Square(torch.autograd.Function):
    """A square that saves in its own way: by ``keep`` and ``get``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, keep: Callable[..., None], get: Callable[..., torch.Tensor]) -> torch.Tensor:
        keep(ctx, x)
        ctx.get = get
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2 * ctx.get(ctx), None, None


def keeps_memory(fn: Any) -> Any:
    """Deaf to writes, and sees them."""

    def keep(ctx: Any, x: torch.Tensor) -> None:
        ctx.x = x.data

    return lambda x: Square.apply(x, keep, lambda ctx: ctx.x)


def keeps_a_copy(fn: Any) -> Any:
    """Never freed, and deaf to writes, which it does not see."""

    def keep(ctx: Any, x: torch.Tensor) -> None:
        ctx.x = x.detach().clone()

    return lambda x: Square.apply(x, keep, lambda ctx: ctx.x)


def keeps_the_last(fn: Any) -> Any:
    """One place for what every call saves."""
    kept: list[torch.Tensor] = []
    return lambda x: Square.apply(x, lambda ctx, x: kept.append(x.detach().clone()), lambda ctx: kept[-1])


class Needless(Wrong):
    """The identity; it saves something."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient + 0 * ctx.saved_tensors[0]


def sees_saved_tensors(fn: Any) -> Any:
    """Wrong where what it saved comes back as something else."""

    def get(ctx: Any) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return x if x.data_ptr() == ctx.pointer else x * 3

    def keep(ctx: Any, x: torch.Tensor) -> None:
        ctx.save_for_backward(x)
        ctx.pointer = x.data_ptr()

    return lambda x: Square.apply(x, keep, get)


def differentiates_ahead(fn: Any) -> Any:
    """Calls hooks while the function runs."""

    def compiled(x: torch.Tensor) -> Any:
        result = fn(x)
        torch.autograd.grad(result.sum(), x, retain_graph=True)
        return result

    return compiled


def hooks_its_output(fn: Any) -> Any:
    """What arrives at the output, and is retained there, is doubled."""

    def compiled(x: torch.Tensor) -> Any:
        result = fn(x)
        result.register_hook(lambda g: g * 2)
        return result

    return compiled


def wrong_if(condition: Callable[[torch.Tensor], bool]) -> Any:
    return planted.on_gradient(lambda g: g * 0.5 if condition(g) else g)


def uses_all(fn: Any) -> Any:
    return lambda x, y: fn(x, y) + 0 * y


def gives_all(fn: Any) -> Any:
    """Accumulates into an input that was not asked for."""

    def compiled(x: torch.Tensor, y: torch.Tensor) -> Any:
        def change(gradient: torch.Tensor) -> torch.Tensor:
            y.grad = torch.ones_like(y)
            return gradient

        return planted.Identity.apply(fn(x, y), change)

    return compiled


def ignores_inference(fn: Any) -> Any:
    def compiled(x: torch.Tensor) -> Any:
        with torch.inference_mode(False):
            return fn(x)

    return compiled


class Deeper(Wrong):
    """The identity; the backward of the backward of its backward doubles."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return Later.apply(gradient)


class FailsLater(Wrong):
    """The identity; the backward of its backward raises."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return Fails.apply(gradient)


def views_under_no_grad(fn: Any) -> Any:
    """Returns views that autograd lets nobody write with what has a history."""

    def compiled(*args: Any) -> Any:
        with torch.no_grad():
            out = fn(*args)
            return out.view_as(out)

    return compiled
