"""Dispatch: modes and keys, and whether torch calls what a subclass or a mode says of an op."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck._torch.names import private

_C = torch._C
_DisableTorchDispatch = private("torch._C._DisableTorchDispatch")
_PreserveDispatchKeyGuard = private("torch._C._PreserveDispatchKeyGuard")
_disable_current_modes = private("torch.utils._python_dispatch._disable_current_modes")
_pre_dispatch_modes: Callable[[], int] = private("torch._ops.mode_stack_state_for_pre_dispatch")().count
_set_meta_in_tls = private("torch._C._set_meta_in_tls_dispatch_include")
_restore_dispatch = private("torch._C._RestorePythonTLSSnapshot")
_skip_one_hop: Callable[..., Any] | None = getattr(_C, "_skip_one_hop_torch_function", None)  # from torch 2.13 on

META = torch.device("meta")
without_torch_function: Callable[[], contextlib.AbstractContextManager[Any]] = private("torch._C.DisableTorchFunction")
with_torch_function: Callable[[], contextlib.AbstractContextManager[Any]] = private("torch._C._EnableTorchFunction")
disabled_torch_function = private("torch._C._disabled_torch_function_impl")
disabled_torch_dispatch: Any = private("torch._C._disabled_torch_dispatch_impl")


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """No torch-dispatch mode is active inside; for work of ours that a tracer must not record."""
    if not _C._len_torch_dispatch_stack() and not _pre_dispatch_modes():
        return contextlib.nullcontext()
    return cast("contextlib.AbstractContextManager[Any]", _disable_current_modes())


class meta_kernels:
    """Below this, ops on tensors of any device run their meta kernels: shapes and strides only, no data."""

    __slots__ = ("_dispatch", "_keys")

    def __enter__(self) -> None:
        """Meta kernels from now on."""
        self._dispatch = _DisableTorchDispatch()
        self._dispatch.__enter__()
        self._keys = _PreserveDispatchKeyGuard()
        self._keys.__enter__()
        _set_meta_in_tls(True)

    def __exit__(self, *_: object) -> None:
        """As before."""
        self._keys.__exit__(None, None, None)
        self._dispatch.__exit__(None, None, None)


class FunctionMode(torch.overrides.TorchFunctionMode):
    """Public base of our function mode, named here beside the dispatch mode."""


def past_function_modes(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call ``func``, of which function modes are not told, while they are active for what it calls."""
    if _skip_one_hop is not None:
        return _skip_one_hop(func, (), args, kwargs)
    return _without_own_check(func)(*args, **kwargs)


def _without_own_check(func: Any) -> Any:
    """``func``, a function in Python, with the same code, but that it does not ask itself whether to call a mode.

    The code looks up torch's checks in the globals of the function, so those of this one have a check that says no.
    They are copied anew for each call, since somebody may have put something else in their place.
    """
    unchecked = dict.fromkeys(("has_torch_function", "has_torch_function_unary"), _no)
    made = types.FunctionType(func.__code__, {**func.__globals__, **unchecked}, func.__name__, func.__defaults__)
    made.__kwdefaults__ = func.__kwdefaults__
    return made


def _no(*_: object) -> bool:
    return False


def as_before_dispatch() -> contextlib.AbstractContextManager[Any]:
    """Ops that a dispatch mode's handler calls inside are dispatched from the top again, view tracking included."""
    return cast("contextlib.AbstractContextManager[Any]", _restore_dispatch())


@contextlib.contextmanager
def as_if_called() -> Iterator[None]:
    """The same for work of ours: ops are dispatched as those of a caller without any mode of ours."""
    with _restore_dispatch(), without_modes():
        included = _C._dispatch_tls_local_include_set()
        for key in (_C.DispatchKey.Python, _C.DispatchKey.PythonTLSSnapshot):  # they are for modes
            included = included.remove(key)
        with _C._ForceDispatchKeyGuard(included, _C._dispatch_tls_local_exclude_set()):
            yield


make_subclass: Callable[..., Tensor] = functools.partial(Tensor._make_subclass, dispatch_device=True)
"""Takes a class and a tensor: that as one of the class on the same storage, without grad, which is asked for its
device and answers the dispatch keys (autograd, autocast) of ``device_for_backend_keys``.
"""


def dispatch_mode_depth() -> int:
    """How many torch-dispatch modes are active on this thread."""
    return int(_C._len_torch_dispatch_stack())


def has_python_meta_kernel(func: Any) -> bool:
    """Whether an op that is run without data is done by Python code, which looks for errors in ways of its own."""
    return _C.DispatchKey.Meta in func.py_kernels


def lacks_meta_kernel(error: Exception) -> bool:
    """Whether an op that was run without data raised ``error`` because it has no kernel for that."""
    unsupported = private("torch._subclasses.fake_tensor.UnsupportedOperatorException")
    if isinstance(error, (NotImplementedError, unsupported)):
        return True
    return isinstance(error, RuntimeError) and "There was no fake impl registered" in str(error)
