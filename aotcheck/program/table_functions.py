"""Table entries: the custom autograd Functions of :mod:`aotcheck.program.functions`."""

from __future__ import annotations

from typing import Any

from aotcheck.program import functions
from aotcheck.program.ops import DTypes, Group, entry

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Any] = {}
"""The Functions by the names that programs give them."""


def _entry(function: Any, signature: str, **fields: Any) -> None:
    FUNCTIONS[function.__name__] = function
    dtypes = fields.pop("dtypes", DTypes.NUMERIC)
    entry(f"{function.__name__}.apply", signature, Group.FUNCTION, function=function.apply, dtypes=dtypes, **fields)


_entry(functions.SavesTensors, "self same", weight=3)
_entry(functions.SavesOutput, "self")
_entry(functions.ReturnsView, "self", weight=3, ndim=(0, 3))
_entry(functions.ReturnsInput, "self")
_entry(functions.MarksDirty, "self", writes=True, weight=4)
_entry(functions.MarksDirtyAndMore, "self same", writes=True, results=None)
_entry(functions.WritesUnmarked, "self", writes=True)
_entry(functions.NonDifferentiable, "self", results=None)
_entry(functions.OnceDifferentiable, "self")
_entry(functions.Unmaterialized, "self", results=None)
