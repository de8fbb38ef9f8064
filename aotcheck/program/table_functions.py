"""Table entries: what :mod:`aotcheck.program.functions` holds: custom autograd Functions, modules, autograd inside."""

from __future__ import annotations

from typing import Any

from aotcheck.program import functions
from aotcheck.program.ops import DTypes, Group, Work, entry

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

_RECIPE = (
    "{'product'|'sum'|'twice'} {'nothing'|'operands'|'second'|'result'|'attribute'}"
    " {'result'|'view'|'input'|'flags'|'copy'}"
)
_COMPOSED: dict[str, Any] = {"results": None, "ndim": (0, 3), "dtypes": DTypes.REAL}
_entry(functions.Composed, f"self same {_RECIPE} {{'nothing'|'late'}} {{True|False}}", weight=6, **_COMPOSED)
_entry(
    functions.ComposedInPlace,
    f"self same {_RECIPE} {{'dirty'|'quietly'}} {{True|False}}",
    writes=True,
    weight=6,
    **_COMPOSED,
)

for _class in (functions.Inside, functions.Module):
    FUNCTIONS[_class.__name__] = _class


def _inside(name: str, signature: str, **fields: Any) -> None:
    entry(
        f"Inside.{name}",
        signature,
        Group.AUTOGRAD,
        function=getattr(functions.Inside, name),
        dtypes=DTypes.DIFFERENTIABLE,
        **fields,
    )


_inside("doubles", "self", results=0)
_inside("negates_after", "self", results=0)
_inside("checkpointed", "self same", weight=3)
entry("torch.autograd.grad", "self", Group.AUTOGRAD, results=None, weight=0)
entry("Tensor.backward", "self", Group.AUTOGRAD, results=0, weight=0)


def _module(name: str, signature: str, **fields: Any) -> None:
    entry(f"Module.{name}", signature, Group.MODULE, function=getattr(functions.Module, name), **fields)


_module("linear", "self mat_t bias", dtypes=DTypes.FLOATING, ndim=(1, 3), weight=4)
_module("conv", "self conv_weight bias", dtypes=DTypes.FLOATING, ndim=(4, 4))
_module(
    "batch_norm",
    "self channels channels statistics statistics flag",
    dtypes=DTypes.FLOATING,
    ndim=(2, 3),
    work=Work.INEXACT,
    weight=6,
)
_module("layer_norm", "self vec vec", dtypes=DTypes.FLOATING, ndim=(1, 4), work=Work.INEXACT)
_module("embedding", "index table")
_module("dropout", "self flag", dtypes=DTypes.FLOATING, weight=4)
