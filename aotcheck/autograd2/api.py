"""The entry points, under torch's names."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import nn

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.config import config, count
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.frontend.bind import Bound, bind
from aotcheck.autograd2.runtime.compile import Compiler, Compilers, nop
from aotcheck.autograd2.specialize import Specialization, key_of, specialize
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.run import UserError

__all__ = ["Compiled", "aot_function", "aot_module", "compiled_function", "compiled_module"]

_lock = threading.RLock()


class Compiled:
    """A function with its specializations, the last used one last."""

    def __init__(self, fn: Callable[..., Any], compilers: Compilers) -> None:
        self.fn = fn
        self.compilers = compilers
        self.known: OrderedDict[Any, Specialization] = OrderedDict()
        self.gradients = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function does with these arguments."""
        try:
            return self._call(args, kwargs)
        except UnsupportedError as error:
            if config().on_unsupported != "eager":
                raise
            count("refused", error.reason)
            return self.fn(*args, **kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if foreign := _torch.foreign_state():
            if foreign == "saved-tensor hooks":
                refuse(Event.FOREIGN, foreign)
            return self.fn(*args, **kwargs)
        bound = self.bind(args, kwargs, self.gradients)
        key = key_of(bound, self.gradients)
        found = self.known.get(key)
        if found is None:
            with _lock:
                try:
                    found, bound = self._compile(args, kwargs)
                except UserError as error:
                    count("eager_after_user_error")
                    return self._original(args, kwargs, error)
        return found.run(bound)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], gradients: bool) -> Bound:
        """What a call brings."""
        bound = bind(self.fn, args, kwargs)
        if gradients:
            bound.add_gradients()
        return bound

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Specialization, Bound]:
        made, needs = specialize(
            self.fn, args, kwargs, lambda gradients: self.bind(args, kwargs, gradients), self.compilers
        )
        count("compiled")
        self.gradients = self.gradients or needs.gradients
        bound = self.bind(args, kwargs, self.gradients)
        self.known[key_of(bound, self.gradients)] = made
        while len(self.known) > config().cache_size:
            self.known.popitem(last=False)
        return made, bound

    def _original(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: UserError) -> Any:
        """The function raised while it was traced: the original shows the error on the real inputs."""
        return self.fn(*args, **kwargs)


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler = nop,
    bw_compiler: Compiler | None = None,
    partition_fn: Any = None,
    decompositions: Any = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool | None = None,
) -> Callable[..., Any]:
    """``fn`` compiled ahead of time, forward and backward; it does what ``fn`` does.

    Args:
        fn: takes and returns tensors, in any containers.
        fw_compiler: takes the forward graph and fake example inputs; returns what runs it.
        bw_compiler: the same for backward graphs; ``fw_compiler`` by default.
        inference_compiler: the same where no result requires grad; ``fw_compiler`` by default.

    Raises:
        UnsupportedError: at a call, if ``fn`` does what is refused.
    """
    compilers = Compilers(fw_compiler, bw_compiler or fw_compiler, inference_compiler or fw_compiler)
    compiled = Compiled(fn, compilers)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.aotcheck = compiled  # type: ignore[attr-defined]  # for explain
    return call


def aot_module(mod: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """A module that runs ``mod`` compiled, with its parameters and buffers. Arguments as of ``aot_function``."""
    compiled = aot_function(mod, *args, **kwargs)

    class AOTModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return compiled(*args, **kwargs)

    return AOTModule()


compiled_function = aot_function
compiled_module = aot_module
