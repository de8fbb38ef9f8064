"""Views among the arguments that do not lie, when the call begins, as the ops give them that made them.

Note [Reshaped views]
Autograd makes the history of a view of its own kind by a window, as the view lies by then. One of another dtype, a
conjugate or a wrapper it makes by the ops that made it, and their result has the geometry that the view had at first:
`v = z.real; v.squeeze_()`, or `z.unsqueeze_(0)`. So the replica of such a view is made by the ops as well. Then it is
changed in place as far as such changes are part of the history that the real one has, and what still differs came by
data (`.data =`) or under no_grad, which no history shows.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import geometry_of
from aotcheck.autograd.replicas.windows import COPYING
from aotcheck.autograd.tensors.memory import restride_wrapper
from aotcheck.autograd.tensors.subclasses import is_jagged, is_wrapper, outer_key, outer_of


def reshaped_since(view: Tensor, base: Tensor) -> Any:
    """What a call's key says of how ``view`` came to lie otherwise than the ops that made it give it.

    None if it does not. Of a wrapper its own geometry is meant; its class is not asked.
    """
    wraps = is_wrapper(base)
    if wraps and (is_jagged(base) or not is_wrapper(view)):
        return None
    with _torch.without_modes(), torch.no_grad(), _torch.meta_kernels() if wraps else contextlib.nullcontext():
        try:
            made = _torch.view_func_of(view)(base)
        except RuntimeError:
            return "its base gives no such view"
    lay, lies = (outer_key(made), outer_key(view)) if wraps else (geometry_of(made), geometry_of(view))
    return None if lay == lies else (lay, _recorded(view), str(_torch.changes_in_place(view)))


def _recorded(t: Tensor) -> Any:
    """Of which shape and dtype gradients are that the history of ``t`` takes."""
    node = _torch.grad_fn_of(t)
    return None if node is None else _torch.recorded_gradient(node, t.output_nr)


def reshape_as(real: Tensor, r: Tensor, base: Tensor, lies: Tensor) -> None:
    """Let ``r``, made of the replica ``base`` as ``real`` was of its own, lie as ``real`` does: as ``lies``.

    Raises:
        UnsupportedError: its history is of another shape than that of ``real``.
    """
    _repeat_changes(real, r, base)
    if geometry_of(r) != geometry_of(lies):
        with _torch.without_modes():
            _torch.set_data(r, lies)


def reshape_wrapper_as(real: Tensor, r: Tensor, base: Tensor) -> None:
    """The same of wrappers; what they hold is not looked at."""
    if is_jagged(real):
        raise UnsupportedError("view of a base that has changed", "the wrapper is not what its base now gives")
    _repeat_changes(real, r, base)
    if outer_key(r) != outer_key(real):
        with _torch.without_modes():
            restride_wrapper(r, outer_of(real), counted=False)


def _repeat_changes(real: Tensor, r: Tensor, base: Tensor) -> None:
    """Change ``r`` in place as the history of ``real`` says it was; nothing is taken for written since."""
    changes = _torch.changes_in_place(real) if r.requires_grad else []
    for op, args in changes:
        version = max(_torch.version_of(base), 1)
        _torch.set_version(base, version - 1)
        with contextlib.ExitStack() as modes:
            modes.enter_context(_torch.without_modes())
            modes.enter_context(torch.inference_mode(False))
            modes.enter_context(torch.enable_grad())
            modes.enter_context(_torch.meta_kernels())
            try:
                if op in COPYING and (r.is_conj() or r.is_neg()):
                    _squeeze(r, *args)
                else:
                    op(r, *args)
            except (RuntimeError, IndexError, AssertionError) as error:  # it was of another shape by then, by `set_`
                raise UnsupportedError("view of a base that has changed", f"{op} in its history: {error}") from error
    recorded = [x for x in (_recorded(real), _recorded(r)) if x is not None]
    if len(recorded) == 2 and recorded[0] != recorded[1]:
        raise UnsupportedError("view of a base that has changed", "its history is of another shape than this gives")


def _squeeze(r: Tensor, dims: Any) -> None:
    """The same of dimensions of what is lazily conjugated or negated, without the copy for which there is no data."""
    gone = {d % r.dim() for d in (dims if isinstance(dims, (list, tuple)) else (dims,))} if r.dim() else set()
    kept = [d for d, n in enumerate(r.shape) if n != 1 or d not in gone]
    r.as_strided_([r.shape[d] for d in kept], [r.stride(d) for d in kept], r.storage_offset())
