"""Table entries: custom autograd Functions, modules, autograd inside and the other structured forms."""

from typing import Any

from aotcheck.program.called import forms, functions
from aotcheck.program.ops.registry import DTypes, Group, Work, entry

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

_GROUP_OF: dict[Any, Group] = {
    functions.Inside: Group.AUTOGRAD,
    functions.Module: Group.MODULE,
    forms.Transform: Group.TRANSFORM,
    forms.Control: Group.CONTROL,
    forms.Optimizer: Group.OPTIMIZER,
}
FUNCTIONS |= {made.__name__: made for made in _GROUP_OF}


def _form(made: Any, name: str, signature: str, **fields: Any) -> None:
    dtypes = fields.pop("dtypes", DTypes.FLOATING)
    path, function = f"{made.__name__}.{name}", getattr(made, name)
    entry(path, signature, fields.pop("group", _GROUP_OF[made]), function=function, dtypes=dtypes, **fields)


_form(functions.Inside, "doubles", "self", results=0, dtypes=DTypes.DIFFERENTIABLE)
_form(functions.Inside, "negates_after", "self", results=0, dtypes=DTypes.DIFFERENTIABLE)
_form(functions.Inside, "logs", "container self", results=0, dtypes=DTypes.DIFFERENTIABLE)
_form(functions.Inside, "checkpointed", "self same", weight=3, dtypes=DTypes.DIFFERENTIABLE)
_form(functions.Inside, "checkpointed_reentrant", "self same")
_form(functions.Inside, "checkpointed_dropout", "self same {True|True|True|False}")
# In no stream yet, only in the corpus.
_form(functions.Inside, "checkpointed_norm", "self statistics statistics", ndim=(2, 3), work=Work.INEXACT, weight=0)
_form(functions.Inside, "checkpointed_count", "self same", weight=0)
_form(functions.Inside, "checkpointed_selectively", "self same", weight=1)
_form(functions.Inside, "autocast_off", "self mat_t", ndim=(1, 3), work=Work.INEXACT)
_form(functions.Inside, "autocast_half", "self mat_t", ndim=(1, 3), work=Work.INEXACT)
entry("torch.autograd.grad", "self", Group.AUTOGRAD, results=None, weight=0)
entry("Tensor.backward", "self", Group.AUTOGRAD, results=0, weight=0)

_M = functions.Module
_form(_M, "linear", "self mat_t bias", ndim=(1, 3), weight=4)
_form(_M, "conv", "self conv_weight bias", ndim=(4, 4))
_NORM = "self channels channels statistics statistics flag"
_form(_M, "batch_norm", _NORM, ndim=(2, 3), work=Work.INEXACT, weight=6)
_form(_M, "layer_norm", "self vec vec", ndim=(1, 4), work=Work.INEXACT)
_form(_M, "embedding", "index table", dtypes=DTypes.ANY)
_form(_M, "dropout", "self flag", weight=4)
for _name in ("gru", "lstm", "lstm_cell"):
    _form(_M, _name, "self mat_t bias", ndim=(2, 2), results=None, work=Work.INEXACT, weight=1)
for _name in ("rnn_cell", "gru_cell", "weight_norm"):
    _form(_M, _name, "self mat_t bias", ndim=(2, 2), work=Work.INEXACT, weight=1)
_form(_M, "attention", "self vec {True|False}", ndim=(2, 3), work=Work.INEXACT, weight=2)
_form(_M, "hooked", "self mat_t bias", ndim=(1, 3))
_form(_M, "gradients", "self mat_t bias", ndim=(1, 3), results=None)
_form(_M, "ensemble", "self mat_t bias", ndim=(1, 3))
_form(_M, "tied", "self vec", ndim=(1, 3))
_form(_M, "counting", "self", ndim=(1, 4), results=None)

_T = forms.Transform
for _name in ("grad", "vmap", "vmap_columns", "dual", "batched"):
    _form(_T, _name, "self same", ndim=(_name.startswith("vmap") + ("columns" in _name), 3))
for _name in ("grad_and_value", "vjp", "jvp", "jvp_rule"):
    _form(_T, _name, "self same", results=None)
for _name, _dims in {"jacrev": (1, 2), "jacfwd": (1, 2), "hessian": (1, 1), "vmap_view": (1, 4)}.items():
    _form(_T, _name, "self", ndim=_dims)
_form(_T, "vmap_write", "self same", ndim=(1, 3), writes=True, weight=1)
_form(_T, "per_sample", "self vec", ndim=(2, 2), weight=3)
_form(_T, "generated_rule", "self", ndim=(1, 3))
_form(_T, "vmap_rule", "self", ndim=(2, 3))

_C = forms.Control
_form(_C, "branch", "self flag", dtypes=DTypes.NUMERIC, weight=4)
_form(_C, "loop", "self number", dtypes=DTypes.NUMERIC, weight=4)
_form(_C, "scaled", "self number", dtypes=DTypes.NUMERIC, weight=6)
_form(_C, "caught", "self same", dtypes=DTypes.NUMERIC, weight=3)
_form(_C, "prints", "self {'a'|'b'} number", results=0, dtypes=DTypes.ANY, prints=True)
_form(_C, "prints_in_backward", "self", results=0, dtypes=DTypes.DIFFERENTIABLE, prints=True, weight=1)
_form(_C, "appends", "container self", results=0, dtypes=DTypes.NUMERIC, group=Group.CONTAINER)
_form(_C, "stateful", "self same", dtypes=DTypes.NUMERIC, weight=3)
_form(_C, "subclassed", "self", weight=1)
_form(_C, "sparse", "self mat", ndim=(2, 2), weight=1)
_form(_C, "sparsely", "self", ndim=(1, 3), weight=1)
_form(_C, "cond", "self flag", weight=2)
_form(_C, "cond_on_data", "self", weight=1)
_form(_C, "while_loop", "self", results=None, weight=1)
_form(_C, "mapped", "self same", ndim=(1, 3), results=None, weight=1)
_form(_C, "scanned", "self", ndim=(1, 3), results=None, weight=1)
_form(_C, "associated", "self", ndim=(1, 3), weight=1)
# In no stream, only in the corpus: a process that has a group cannot fork, and takes a second to get it.
_form(_C, "distributed", "self same", weight=0)

_form(forms.Optimizer, "sgd", "self same {False|True}", results=0, writes=True, weight=6)
_form(forms.Optimizer, "adam", "self same", results=0, writes=True, work=Work.INEXACT, weight=6)
_KINDS = "{'Adam'|'AdamW'|'RMSprop'} {False|True}"
_form(forms.Optimizer, "foreach", f"self same {_KINDS}", results=0, writes=True, work=Work.INEXACT, weight=4)
_form(forms.Optimizer, "training", "self same")
