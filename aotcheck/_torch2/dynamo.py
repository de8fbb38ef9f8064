"""Dynamo and the second compiler: each keeps out of the other's traces."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

__all__ = ["compiling", "hide_from_dynamo", "without_dynamo"]

_frames: Any = torch._C._dynamo.eval_frame
_SKIP = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.SKIP)
_F = TypeVar("_F", bound=Callable[..., Any])


def hide_from_dynamo(function: _F) -> _F:
    """``function``, which Dynamo is not to trace, nor anything that it calls."""
    hidden: Any = function
    hidden._torchdynamo_disable = True
    _frames.set_code_exec_strategy(hidden.__code__, _SKIP)
    return function


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Inside, ``torch.compiler.is_compiling()`` is true, as libraries ask before they branch on data."""
    flag = torch.compiler
    before = flag._is_compiling_flag
    flag._is_compiling_flag = True
    try:
        yield
    finally:
        flag._is_compiling_flag = before


def without_dynamo() -> contextlib.AbstractContextManager[Any]:
    """Inside, what was given to ``torch.compile`` runs as it is; Dynamo would remember what it met in a trace."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()
