"""Dynamo and Inductor, imported only where they are used: that takes seconds."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import fx

_dynamo: Any = torch._C._dynamo
_SKIP = _dynamo.eval_frame._FrameExecStrategy(
    _dynamo.eval_frame._FrameAction.SKIP, _dynamo.eval_frame._FrameAction.SKIP
)
_SKIP_ALONE = _dynamo.eval_frame._FrameExecStrategy(
    _dynamo.eval_frame._FrameAction.SKIP, _dynamo.eval_frame._FrameAction.DEFAULT
)
_F = TypeVar("_F", bound=Callable[..., Any])

TRACE_LOG = "torch.__trace"
"""Name of torch's logger of structured traces, to which ``logging.disable`` means nothing; pytest shows it all."""

DYNAMO = "torch._dynamo"
"""Dynamo's module."""

USED_BY_BACKENDS = (
    "torch._dynamo.debug_utils",
    "torch._dynamo.repro.after_aot",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.compiler_bisector",
    "torch._inductor.fx_utils",
    "torch._inductor.pattern_matcher",
)
"""Modules that torch's backends import when they are first used."""


def dynamo_is_imported() -> bool:
    """Whether anybody has imported Dynamo."""
    return DYNAMO in sys.modules


def dynamo_counts() -> tuple[int, int]:
    """How many frames Dynamo has traced in this process, and how many graphs it has handed to an AOT autograd."""
    if not dynamo_is_imported():
        return 0, 0
    from torch._dynamo.utils import counters

    return sum(counters["frames"].values()), counters["aot_autograd"]["total"]


def dynamo_graphs() -> int:
    """How many graphs Dynamo has made in this process and handed to a backend."""
    if not dynamo_is_imported():
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def lowers_version(target: object) -> bool:
    """Whether a node of Dynamo's with this target takes back that ``set_``, which stands for ``.data =``, counts."""
    names = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    return names == (f"{DYNAMO}.variables.builtin", "_lower_version_count_by_1")


def assigns_data(target: object) -> bool:
    """Whether a node of Dynamo's with this target is ``.data =``, for which torch has an op from 2.15 on."""
    op: Any = getattr(torch.ops.aten, "shallow_copy_data_", None)
    return op is not None and target in (op, op.default)


def unwrap_dynamo(error: BaseException) -> BaseException:
    """The user's error inside the wrappers that Dynamo puts around it; ``error`` itself where there is none."""
    exc = sys.modules.get("torch._dynamo.exc")
    found: BaseException = error
    while exc is not None and isinstance(found, exc.TorchDynamoException):
        inner = getattr(found, "inner_exception", None) or found.__cause__ or found.__context__
        if not isinstance(inner, BaseException):
            break
        found = inner
    return found


def inductor_compiler(
    module: fx.GraphModule, examples: Sequence[Any], config: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., Any]:
    """What Inductor makes of a functional graph of ATen ops, without torch's AOT autograd in between.

    ``config`` is of Inductor's own configuration what is to be otherwise.
    """
    from torch._inductor import config as settings
    from torch._inductor.compile_fx import compile_fx_inner

    with settings.patch(dict(config)):
        compiled: Callable[..., Any] = compile_fx_inner(module, examples)
    return compiled


def inductor_config(options: Mapping[str, Any] | None, mode: str | None) -> dict[str, Any]:
    """What ``torch.compile`` sets of Inductor's configuration for these options, or for this mode."""
    from torch import _TorchCompileInductorWrapper

    set_by: dict[str, Any] = _TorchCompileInductorWrapper(mode, dict(options or {}), None).config
    return set_by


def inductor_decompositions() -> dict[Any, Any]:
    """The decompositions that Inductor expects to have been made."""
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Any] = select_decomp_table()
    return table


def hide_from_dynamo(function: _F) -> _F:
    """``function``, which Dynamo is not to trace, nor anything that it calls."""
    hidden: Any = function
    hidden._torchdynamo_disable = True
    _dynamo.eval_frame.set_code_exec_strategy(hidden.__code__, _SKIP)
    return function


def past_dynamo(function: _F) -> _F:
    """``function``, which Dynamo is not to trace, as it does not what is written in C++; what it calls it may."""
    past: Any = function
    _dynamo.eval_frame.set_code_exec_strategy(past.__code__, _SKIP_ALONE)
    return function


class WithoutDynamo:
    """What is given to ``torch.compile`` runs as it is, in every thread: Dynamo knows no other stance.

    A trace that met it would have Dynamo compile for tensors of the trace. Loading Dynamo takes seconds, so where
    nobody has loaded it, the first ``torch.compile`` inside takes the stance.
    """

    __slots__ = ()
    _lock: ClassVar[Any] = threading.RLock()
    _inside: ClassVar[int] = 0
    _undo: ClassVar[Callable[[], None]]

    def __enter__(self) -> None:
        with WithoutDynamo._lock:
            WithoutDynamo._inside += 1
            if WithoutDynamo._inside == 1:
                dynamo = sys.modules.get(DYNAMO)
                WithoutDynamo._undo = _once_dynamo_loads() if dynamo is None else _take_stance(dynamo.eval_frame)

    def __exit__(self, *exception: object) -> None:
        with WithoutDynamo._lock:
            WithoutDynamo._inside -= 1
            if not WithoutDynamo._inside:
                WithoutDynamo._undo()


@functools.cache
def _eager_stance(frames: Any) -> Any:
    return frames.DynamoStance("force_eager")


def _take_stance(frames: Any) -> Callable[[], None]:
    """Have Dynamo compile nothing until what this returns is called."""
    before, frames._stance = frames._stance, _eager_stance(frames)
    return lambda: setattr(frames, "_stance", before)


def _once_dynamo_loads() -> Callable[[], None]:
    """The same where Dynamo is not loaded."""
    names, compile = vars(torch), torch.compile

    def loading(*args: Any, **kwargs: Any) -> Any:
        with WithoutDynamo._lock:
            if names["compile"] is loading:
                names["compile"] = compile
                WithoutDynamo._undo = _take_stance(importlib.import_module(DYNAMO).eval_frame)
        return compile(*args, **kwargs)

    names["compile"] = loading
    return functools.partial(names.__setitem__, "compile", compile)


class WithoutCompiledAutograd:
    """Backwards inside are run by the engine, whatever the caller has asked for."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _dynamo.compiled_autograd.set_autograd_compiler(None, False)

    def __exit__(self, *exception: object) -> None:
        _dynamo.compiled_autograd.set_autograd_compiler(*self._before)
