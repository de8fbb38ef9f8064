"""What is in force on this thread beside what the public API tells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.nn.utils import parametrize
from torch.utils._device import DeviceContext, _device_constructors

from aotcheck._torch.names import private
from aotcheck._torch.saved import has_saved_tensor_hooks, top_hooks

_C = torch._C
_functorch = private("torch._C._functorch")
_PYTHON, _PYTHON_SNAPSHOT = _C.DispatchKey.Python, _C.DispatchKey.PythonTLSSnapshot
set_grad_enabled_raw: Callable[[bool], None] = private("torch._C._set_grad_enabled")
_get_current_function_mode_stack = private("torch.overrides._get_current_function_mode_stack")


def functorch_active() -> bool:
    """Whether a torch.func transform (vmap, grad, jvp ...) is running on this thread."""
    return bool(_C._are_functorch_transforms_active())


def is_of_transform(t: torch.Tensor) -> bool:
    """Whether ``t`` is what a torch.func transform made of a tensor, be that over or not."""
    return bool(_functorch.is_functorch_wrapped_tensor(t))


_LEAVE: dict[str, Callable[[], int]] = {
    "Vmap": private("torch._C._functorch._vmap_decrement_nesting"),
    "Grad": private("torch._C._functorch._grad_decrement_nesting"),
    "Jvp": private("torch._C._functorch._jvp_decrement_nesting"),
    "Functionalize": private("torch._C._functorch._func_decrement_nesting"),
}
"""How a transform is left, by its kind. The function of torch 2.11 that leaves several leaves each twice."""


class TransformsLeftOnError:
    """torch.func transforms that what runs inside has entered and not left are left if it raises.

    Functions of torch's leave them by themselves. In a graph of Dynamo's entering and leaving are nodes like others.
    """

    __slots__ = ("_depth", "_disabled", "_inplace", "_level")

    def __enter__(self) -> None:
        self._depth, self._level = _functorch.get_dynamic_layer_stack_depth(), dual_level()
        self._inplace = _functorch.get_inplace_requires_grad_allowed()
        self._disabled = _C._autograd._saved_tensors_hooks_get_disabled_error_message()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        while _functorch.get_dynamic_layer_stack_depth() > self._depth:
            _LEAVE[_functorch.peek_interpreter_stack().key().name]()
        _functorch.set_inplace_requires_grad_allowed(self._inplace)
        torch.autograd.forward_ad._current_level = self._level
        with contextlib.suppress(RuntimeError):  # it was not entered
            _C._exit_dual_level(level=self._level + 1)
        if self._disabled is None:
            _C._autograd._saved_tensors_hooks_enable()


def dual_level() -> int:
    """The level of forward-mode differentiation that is active; -1 if none is."""
    return int(torch.autograd.forward_ad._current_level)


def function_mode_depth() -> int:
    """How many function modes there are on this thread."""
    return int(_C._len_torch_function_stack())


def function_modes_active() -> bool:
    """Whether there are function modes on this thread but those that say on which device tensors are made."""
    if not _C._len_torch_function_stack():
        return False
    return any(type(m) is not DeviceContext for m in _get_current_function_mode_stack())


def jit_tracing() -> bool:
    """Whether ``torch.jit.trace`` records on this thread."""
    return bool(_C._is_tracing())


def parametrizations_are_cached() -> bool:
    """Whether what parametrizations compute is kept: the process is in ``parametrize.cached()``."""
    return bool(parametrize._cache_enabled)


def _find_fx_traces() -> Callable[[], bool]:
    """What tells whether FX is tracing: a function from torch 2.14 on, which has a flag for each thread."""
    found: Callable[[], bool] | None = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    if found is not None:
        return found
    return lambda: bool(_symbolic_trace._is_fx_tracing_flag)


_fx_traces = _find_fx_traces()


def another_tracer_active() -> bool:
    """Whether FX is tracing on this thread, as ``make_fx`` does."""
    return _fx_traces()


def default_device() -> torch.device:
    """The device on which factories make tensors; asked of torch only where something is in force that may tell it."""
    if _C._len_torch_function_stack() or getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is not None:
        return torch.get_default_device()
    return _CPU


def makes_on_default_device(function: Any) -> bool:
    """Whether it is a factory that makes tensors on the default device where it is told no other."""
    return function in _device_constructors()


def determinism() -> tuple[bool, bool, bool]:
    """Whether deterministic algorithms are asked for, whether their lack is but warned about, and whether new memory
    is filled then."""
    warns, fills = _C._get_deterministic_algorithms_warn_only(), _C._get_deterministic_fill_uninitialized_memory()
    return _C._get_deterministic_algorithms(), warns, fills


_CPU = torch.device("cpu")

AMBIENT: dict[str, Any] = {
    "modes": _C._len_torch_dispatch_stack,
    "function_modes": _C._len_torch_function_stack,
    "transforms": _C._are_functorch_transforms_active,
    "hooks": top_hooks,
    "forward_ad": torch.autograd.forward_ad,
    "deterministic": _C._get_deterministic_algorithms,
    "warn_only": _C._get_deterministic_algorithms_warn_only,
    "jit_tracing": _C._is_tracing,
    "parametrize": parametrize,
}
"""What the sources of ``ambient_state`` name."""


def ambient_state() -> dict[str, Any]:
    """What is in force on this thread: sources in terms of ``AMBIENT``, each with what it gives now.

    Active dispatch modes and function modes; whether torch.func transforms are in force, or no saved-tensor hooks; the
    level of forward-mode differentiation; determinism; whether ``torch.jit.trace`` records;
    whether parametrizations are cached.
    """
    return {
        "modes()": _C._len_torch_dispatch_stack(),
        "function_modes()": _C._len_torch_function_stack(),
        "transforms()": _C._are_functorch_transforms_active(),
        "(hooks(True) is None)": not has_saved_tensor_hooks(),
        "forward_ad._current_level": dual_level(),
        "deterministic()": _C._get_deterministic_algorithms(),
        "warn_only()": _C._get_deterministic_algorithms_warn_only(),
        "jit_tracing()": _C._is_tracing(),
        "parametrize._cache_enabled": parametrize._cache_enabled,
    }


def mode_depths() -> tuple[int, int]:
    """How many dispatch modes and how many function modes are active."""
    return int(_C._len_torch_dispatch_stack()), int(_C._len_torch_function_stack())


def dispatch_keys() -> tuple[str, str]:
    """Which dispatch keys this thread includes and excludes, but for those of modes."""
    sets = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
    included, excluded = (str(keys.remove(_PYTHON).remove(_PYTHON_SNAPSHOT)) for keys in sets)
    return included, excluded


def autograd_flags() -> tuple[bool, bool]:
    """Autograd's hidden switches: view replay and multithreading."""
    return bool(_C._is_view_replay_enabled()), bool(_C._is_multithreading_enabled())
