"""Backends by name.

A backend's packages are imported when the backend is resolved, so a campaign on one backend does not load the others.
"""

import difflib
import importlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from aotcheck._torch import dynamo_graphs, dynamo_is_imported
from aotcheck.backends import foreign, variants
from aotcheck.backends.backend import EVERY_PROMISE, Backend, Function, Promise
from aotcheck.backends.errors import BackendUnavailableError, DeviceUnavailableError, UnknownBackendError
from aotcheck.backends.expectations import Expectations


def _identity(fn: Function) -> Function:
    return fn


def _eager() -> Backend:
    """The null test: eager against eager."""
    return Backend("eager", _identity, EVERY_PROMISE | {Promise.MODULES})


_TORCHS = EVERY_PROMISE - {Promise.DOUBLE_BACKWARD}
"""What torch's AOT autograd promises: it raises on a backward of a gradient."""


def _dynamo(
    name: str,
    torch_name: str,
    promises: frozenset[Promise] = EVERY_PROMISE,
    options: dict[str, str | int | bool | Callable[..., Any]] | None = None,
) -> Backend:
    """As a user calls it, graph breaks included, but with static shapes: a script must show the same as a campaign."""

    def compile_with_dynamo(fn: Function) -> Function:
        compiled: Function = torch.compile(fn, backend=torch_name, dynamic=False, options=options)
        return compiled

    return Backend(
        name, compile_with_dynamo, promises | {Promise.MODULES}, torch.compiler.reset, compilations=dynamo_graphs
    )


def _dynamo_eager() -> Backend:
    """Dynamo alone: what it shows is not the AOT autograd's doing."""
    return _dynamo("dynamo_eager", "eager")


def _aot_eager() -> Backend:
    """torch's AOT autograd behind Dynamo, graphs interpreted."""
    return _dynamo("aot_eager", "aot_eager", _TORCHS)


def _aot_eager_decomp_partition() -> Backend:
    """The same with the compiler's decompositions and the min-cut partition."""
    return _dynamo("aot_eager_decomp_partition", "aot_eager_decomp_partition", _TORCHS)


def _inductor() -> Backend:
    """torch's whole compiler, told to draw the random numbers that eager draws: by default it draws its own."""
    _require_compiler("inductor")
    return _dynamo("inductor", "inductor", _TORCHS, {"fallback_random": True})


def _require_compiler(name: str) -> None:
    if not torch.cuda.is_available() and not any(shutil.which(compiler) for compiler in ("g++", "clang++", "c++")):
        raise BackendUnavailableError(
            f"backend '{name}' needs a C++ compiler and none is on PATH; install g++ or clang++"
        )


def _aot_function() -> Backend:
    """torch's own AOT autograd, without Dynamo.

    It has no guards, so only calls with the first call's key are made; and it returns a list for a flat tuple, which
    would hide everything else that it does.
    """
    from functorch.compile import aot_function, nop

    def compile_with_torch(fn: Function) -> Function:
        compiled: Function = aot_function(fn, fw_compiler=nop, bw_compiler=nop)
        return compiled

    return Backend(
        "aot_function",
        compile_with_torch,
        promises=_TORCHS - {Promise.GUARDS, Promise.CONTAINERS, Promise.OBJECTS, Promise.EFFECTS},
    )


def _aot_function_min_cut() -> Backend:
    """The same with torch's min-cut partition in place of its default one."""
    return replace(_aot_function(), name="aot_function_min_cut", compile=variants.aot_function_min_cut)


def _ours() -> Backend:
    """Our AOT autograd, graphs interpreted; it raises ``UnsupportedError`` on what it does not support."""
    aot_function = _from_aotcheck("aot_function")

    def compile_with_aotcheck(fn: Function) -> Function:
        compiled: Function = aot_function(fn)
        return compiled

    promises = EVERY_PROMISE - {Promise.EFFECTS} | {Promise.MODULES}
    return Backend("aotcheck", compile_with_aotcheck, promises, refusals=_our_refusals, compilations=_our_compilations)


def _ours_inductor() -> Backend:
    """The same with Inductor behind it."""
    _require_compiler("aotcheck_inductor")
    return replace(_ours(), name="aotcheck_inductor", compile=variants.aotcheck_inductor, reset=_reset_if_used)


def _ours_second() -> Backend:
    """Our second compiler, graphs interpreted; it raises ``UnsupportedError`` on what it does not support."""
    return _second("aotcheck_second", None)


def _ours_dynamic() -> Backend:
    """The same with all sizes of inputs as symbols."""
    return _second("aotcheck_dynamic", True)


def _second(name: str, dynamic: bool | None) -> Backend:
    aot_function = _from_aotcheck("aot_function", "aotcheck.autograd2")
    counters = _from_aotcheck("counters", "aotcheck.autograd2")

    def compile_with_second(fn: Function) -> Function:
        compiled: Function = aot_function(fn, dynamic=dynamic)
        return compiled

    return replace(
        _ours(),
        name=name,
        compile=compile_with_second,
        refusals=lambda: dict(counters().refused),
        compilations=lambda: counters().compiled,
    )


def _dynamo_ours() -> Backend:
    """Our AOT autograd behind Dynamo, where unsupported programs run eagerly and are counted."""
    _from_aotcheck("aot_function")
    from torch.compiler import list_backends

    # Listed only once the package is installed; in a bare checkout the entry point is not there.
    if "aotcheck" not in list_backends(exclude_tags=()):
        raise BackendUnavailableError("torch does not list backend 'aotcheck'; install the package (pip install -e .)")
    dynamo = _dynamo("dynamo+aotcheck", "aotcheck")
    return replace(dynamo, refusals=_our_refusals, compilations=_our_compilations)


def _our_compilations() -> int:
    compiled: int = _from_aotcheck("counters")().compiled
    return compiled


def _our_refusals() -> Mapping[str, int]:
    return dict(_from_aotcheck("counters")().refused)


def _from_aotcheck(name: str, module: str = "aotcheck") -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BackendUnavailableError(f"aotcheck's own AOT autograd cannot be imported here: {error}") from error
    return found


def _user(spec: str) -> Backend:
    """``module:callable``, where the callable takes a function and returns the compiled one."""
    module, _, attribute = spec.partition(":")
    try:
        target: object = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise UnknownBackendError(f"backend '{spec}': importing '{module}' failed: {_line(error)}") from error
    for part in attribute.split("."):
        target = getattr(target, part, None)
    if isinstance(target, Backend):
        return replace(target, name=spec)
    if not callable(target):
        raise UnknownBackendError(f"backend '{spec}': '{module}' has no callable '{attribute}' (expected fn -> fn)")
    return Backend(spec, target, reset=_reset_if_used)


def _reset_if_used() -> None:
    """Reset Dynamo unless nobody has imported it: that takes seconds."""
    if dynamo_is_imported():
        torch.compiler.reset()


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


_MAKERS: Mapping[str, Callable[[], Backend]] = {
    "eager": _eager,
    "dynamo_eager": _dynamo_eager,
    "aotcheck": _ours,
    "aotcheck_inductor": _ours_inductor,
    "aotcheck_second": _ours_second,
    "aotcheck_dynamic": _ours_dynamic,
    "dynamo+aotcheck": _dynamo_ours,
    "aot_function": _aot_function,
    "aot_function_min_cut": _aot_function_min_cut,
    "aot_eager": _aot_eager,
    "aot_eager_decomp_partition": _aot_eager_decomp_partition,
    "inductor": _inductor,
    **foreign.MAKERS,
}

NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The backends with a name of their own; any other is ``module:callable``."""


def resolve(name: str, expectations: Expectations | None = None) -> Backend:
    """The backend called ``name``, or the one that ``module:callable`` names, with ``expectations`` applied.

    Raises:
        UnknownBackendError: no such backend; the message lists those there are.
        BackendUnavailableError: something that the backend needs is missing.
    """
    backend = _found(name)
    return expectations.applied(backend) if expectations is not None else backend


def _found(name: str) -> Backend:
    maker = _MAKERS.get(name)
    if maker is not None:
        return maker()
    if ":" in name.strip(":"):
        return _user(name)
    close = difflib.get_close_matches(name, NAMES, 1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UnknownBackendError(f"unknown backend '{name}': {hint}choose one of {', '.join(NAMES)} or module:callable")


def recorded(backend: Backend, expectations: Expectations) -> Expectations:
    """The expectations to write into a finding's header, of ``backend``, to which ``expectations`` are applied.

    For torch's backends and ours these are the run's own: the rest is known whenever the backend is resolved. For a
    user's backend, and for one whose package may be missing later, these are all.
    """
    known = backend.name in NAMES and backend.name not in foreign.MAKERS
    return expectations if known else Expectations.of(backend)


def require_device(device: str) -> torch.device:
    """The torch device called ``device``, after a check that it is usable.

    Raises:
        DeviceUnavailableError: torch does not know the device, or it is not on this machine.
    """
    try:
        parsed = torch.device(device)
        torch.empty(1, device=parsed)
    except Exception as error:  # AssertionError, RuntimeError, NotImplementedError, by device and build
        raise DeviceUnavailableError(f"device '{device}' is not available: {_line(error)}") from error
    if parsed.type == "meta":
        raise DeviceUnavailableError("device 'meta' holds no values, so there is nothing to compare; use cpu or cuda")
    return parsed
