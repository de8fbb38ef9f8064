"""Views as autograd sees them: of which base, how made, and how to make them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

CreationMeta = torch._C._autograd.CreationMeta
_creation_meta = torch._C._autograd._get_creation_meta
_set_creation_meta = torch._C._autograd._set_creation_meta

conj_view = torch.ops.aten._conj.default
neg_view = torch.ops.aten._neg_view.default


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd takes ``tensor`` for a view of another tensor."""
    return bool(tensor._is_view())


def base_of(t: Tensor) -> Tensor | None:
    """The tensor of which ``t`` is a differentiable view, or None."""
    return t._base


def view_func_of(t: Tensor) -> Callable[[Tensor], Tensor]:
    """Rebuilds the view ``t`` from another base of the same geometry, by view replay where torch recorded it."""
    return cast("Callable[[Tensor], Tensor]", t._view_func_unsafe)


def made_with_tensors(t: Tensor) -> bool:
    """Whether other tensors took part in making the view ``t``, as the offsets of a ragged tensor do."""
    base, met = base_of(t), list[Tensor]()
    assert base is not None

    def note(x: Tensor) -> Tensor:
        met.append(x)
        return x

    with torch.no_grad():
        t._view_func_unsafe(base, tensor_visitor_fn=note)
    return bool(met)


def creation_meta(t: Tensor) -> Any:
    """How the view ``t`` was made: decides whether eager allows writing to it under grad."""
    return _creation_meta(t)


def set_creation_meta(t: Tensor, meta: Any) -> None:
    """Make eager treat writes to the view ``t`` as it treats those to a view made as ``meta`` says."""
    _set_creation_meta(t, meta)
