"""Operations that the tracer adds of its own, to carry what is written from one window to another."""

from __future__ import annotations

from typing import Any

from aotcheck.autograd.ir.trace import Trace, Value


class Emitter:
    """Records operations whose results are on the device of one of their operands."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def op(self, like: Value, op: Any, *args: Any, **kwargs: Any) -> Value:
        """``op`` on these arguments, its result on the device of ``like``."""
        v = self.trace.call(op, args, kwargs)
        v.device = like.device
        return v

    def viewop(self, op: Any, value: Value, *args: Any, **kwargs: Any) -> Value:
        """An op whose result may share memory with ``value``."""
        v = self.op(value, op, value, *args, **kwargs)
        v.memory = value.memory
        return v
