"""Backends with one fault each, and some that do nothing wrong; none compiles anything."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from aotcheck import UnsupportedError
from aotcheck._torch import pytree
from aotcheck.backends import EVERY_PROMISE, Backend, Promise

_EVERYTHING = EVERY_PROMISE | {Promise.MODULES}


def _backend(compile_target: Callable[..., Any]) -> Backend:
    return Backend(compile_target.__name__.strip("_"), compile_target, _EVERYTHING)


def _over_results(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def compile_target(target: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return pytree.tree_map_only(torch.Tensor, change, target(*args, **kwargs))

        return call

    return compile_target


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def _doubled_gradient(target: Any) -> Any:
    return _over_results(lambda t: _Doubled.apply(t) if t.requires_grad else t)(target)


def _lost_buffer(target: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = {name: b.clone() for name, b in target.named_buffers()} if isinstance(target, nn.Module) else {}
        result = target(*args, **kwargs)
        if before:
            with torch.no_grad():
                for name, buffer in target.named_buffers():
                    buffer.data = before[name]
        return result

    return call


def _other_mask(target: Any) -> Any:
    """Random ops draw what they would after another seed."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = torch.get_rng_state()
        torch.manual_seed(12345)
        start = torch.get_rng_state()
        result = target(*args, **kwargs)
        if torch.equal(torch.get_rng_state(), start):  # it draws nothing
            torch.set_rng_state(before)
        return result

    return call


def _first_size_only(target: Any) -> Any:
    """A batch of another size is filled up to the first one's, and what comes out is cut."""
    size: list[int] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        x = args[0]
        size.append(len(x))
        missing = size[0] - len(x)
        if missing > 0:
            x = torch.cat([x, x[-1:].expand(missing, *x.shape[1:])])
        return target(x, *args[1:], **kwargs)[: size[-1]]

    return call


def _refuses(target: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("planted reason", "say it otherwise")

    return call


def _fails(target: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("planted error")

    return call


def _ends_the_process(target: Any) -> Any:
    return lambda *args, **kwargs: os._exit(3)


def _hangs(target: Any) -> Any:
    return lambda *args, **kwargs: time.sleep(600)


_calls = [0]


def _handed_over() -> dict[str, int]:
    _calls[0] += 1
    return {"planted fallback": _calls[0]}


doubled_gradient = _backend(_doubled_gradient)
lost_buffer = _backend(_lost_buffer)
other_mask = _backend(_other_mask)
first_size_only = _backend(_first_size_only)
refuses = _backend(_refuses)
fails = _backend(_fails)
refuses_by_class = replace(fails, refuses=("ValueError",))
ends_the_process = _backend(_ends_the_process)
hangs = _backend(_hangs)
rounds = _backend(_over_results(lambda t: t * (1 + 2.0**-23) if t.dtype is torch.float32 else t))
is_off = _backend(_over_results(lambda t: t * (1 + 1e-3) if t.dtype is torch.float32 else t))
rounds_in_half = _backend(_over_results(lambda t: t * (1 + 2.0**-7) if t.dtype is torch.bfloat16 else t))
is_off_in_half = _backend(_over_results(lambda t: t * 1.25 if t.dtype is torch.bfloat16 else t))
hands_over = replace(_backend(lambda target: target), refusals=_handed_over)
compiles_nothing = replace(_backend(lambda target: target), compilations=lambda: 0)
of_functions = Backend("of functions", lambda target: target)
