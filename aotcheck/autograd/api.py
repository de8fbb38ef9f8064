"""The entry points, under the names and signatures of functorch's, so that switching is changing an import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.config import OnUnsupported
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.function import CompiledFunction
from aotcheck.autograd.graphs.compile_graph import Compiler, Compilers, nop
from aotcheck.autograd.partition.joint import default_partition


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """``f`` taking its arguments as one list, as a compiler may return it; emptying the list frees memory early."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """``compiler`` with its result boxed."""

    def boxed(module: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        return make_boxed_func(compiler(module, example_inputs))

    return boxed


def _compilers(
    fw_compiler: Compiler | None,
    bw_compiler: Compiler | None,
    inference_compiler: Compiler | None,
    decompositions: dict[Any, Any] | None,
    partition_fn: Any,
    keep_inference_input_mutations: bool,
    dynamic: bool,
) -> Compilers:
    if dynamic:
        raise UnsupportedError("symbolic sizes", "dynamic=True is not supported yet; each shape is specialized")
    return Compilers(
        fw_compiler,
        bw_compiler or fw_compiler,
        inference_compiler or fw_compiler,
        decompositions,
        None if partition_fn is default_partition else partition_fn,
        keep_inference_input_mutations,
    )


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler | None = None,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: dict[Any, Any] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
) -> CompiledFunction:
    """``fn`` traced ahead of time, forward and backward, into functional ATen graphs that the compilers turn into code.

    A compiler is called with (GraphModule, example inputs as fake tensors) and returns a callable, boxed or not;
    without one the graph is interpreted. Arguments and results may be any pytree of tensors and plain Python values.
    Raises UnsupportedError, with inputs untouched, for what cannot be compiled; whatever ``fn`` itself raises is raised
    as eager raises it.
    """
    compilers = _compilers(
        fw_compiler,
        bw_compiler,
        inference_compiler,
        decompositions,
        partition_fn,
        keep_inference_input_mutations,
        dynamic,
    )
    return CompiledFunction(fn, compilers)


class CompiledModule(torch.nn.Module):
    """A module whose forward runs compiled; its parameters, buffers and submodules are those of ``orig_module``."""

    def __init__(self, module: torch.nn.Module, compilers: Compilers) -> None:
        super().__init__()
        self.orig_module = module
        self._run: Callable[..., Any] = CompiledFunction(module, compilers)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward``, and the hooks that this module has. Those of all modules are called for ``orig_module``."""
        if any(_torch.hooks_of(self)):
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module through compiled code."""
        return self._run(*args, **kwargs)


def aot_module(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """``mod`` with its forward compiled; its state is read on every call: a replaced parameter or ``eval()`` is seen.

    Takes the arguments of ``aot_function`` after its first.
    """
    return CompiledModule(mod, aot_function(mod, *args, **kwargs).compilers)


def aot_module_simplified(
    mod: Any,
    args: Sequence[Any],
    fw_compiler: Compiler | None = None,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: dict[Any, Any] | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    on_unsupported: OnUnsupported = OnUnsupported.RAISE,
) -> Callable[..., Any]:
    """``mod``, over flat inputs, compiled for ``args`` at once; the result takes inputs one by one.

    ``args`` are real tensors and Python scalars. The result has ``zero_grad``, ``named_parameters`` and
    ``named_buffers`` of ``mod``.
    """
    for name, p in [*mod.named_parameters(), *mod.named_buffers()] if isinstance(mod, torch.nn.Module) else []:
        if isinstance(p, _torch.FakeTensor):
            raise UnsupportedError("fake parameter", f"{name} is a fake tensor; build the module with real parameters")
    compilers = _compilers(
        fw_compiler,
        bw_compiler,
        inference_compiler,
        decompositions,
        partition_fn,
        keep_inference_input_mutations,
        False,
    )
    compiled = CompiledFunction(mod, compilers, on_unsupported)
    if not any(isinstance(a, _torch.FakeTensor) for a in args):
        compiled.prepare(tuple(args))

    def forward(*runtime_args: Any) -> Any:
        return compiled(*runtime_args)

    if isinstance(mod, torch.nn.Module):
        forward.zero_grad = mod.zero_grad  # type: ignore[attr-defined]
        forward.named_parameters = mod.named_parameters  # type: ignore[attr-defined]
        forward.named_buffers = mod.named_buffers  # type: ignore[attr-defined]
    return forward


compiled_function = aot_function
compiled_module = aot_module

__all__ = [
    "CompiledModule",
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "compiled_function",
    "compiled_module",
    "default_partition",
    "make_boxed_compiler",
    "make_boxed_func",
    "nop",
]
