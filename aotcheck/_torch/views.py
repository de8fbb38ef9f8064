"""Views as autograd sees them: of which base, how made, and how to make them again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck._torch.dispatch import META, meta_kernels, without_modes
from aotcheck._torch.nodes import leafness

CreationMeta = torch._C._autograd.CreationMeta
_creation_meta = torch._C._autograd._get_creation_meta
_set_creation_meta = torch._C._autograd._set_creation_meta

conj_view = torch.ops.aten._conj.default
neg_view = torch.ops.aten._neg_view.default
_MORE_THAN_ANY_STORAGE = 1 << 50


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

    # The view is made of a stand-in, as the base's storage may have been freed since.
    storage = torch.empty(_MORE_THAN_ANY_STORAGE, dtype=torch.uint8, device=META).untyped_storage()
    with torch.no_grad():
        stand_in = torch.empty(0, dtype=base.dtype, device=META)
        stand_in.set_(storage, base.storage_offset(), base.shape, base.stride())
        with contextlib.suppress(Exception):  # classes that it goes by may object to meta tensors; all are met before
            t._view_func_unsafe(stand_in, tensor_visitor_fn=note)
    return bool(met)


def requires_grad_by_itself(t: Tensor) -> bool:
    """Whether ``t`` requires grad, and not only because its base does.

    A view that autograd was not told of says that it requires grad as its base does, but no gradient goes anywhere,
    until it is told to require grad itself, which shows in nothing else.
    """
    if not t.requires_grad:
        return False
    base = t._base
    if base is None or not base.requires_grad or leafness(t) is not True or t.layout is torch.jagged:
        return True
    with without_modes(), meta_kernels(), torch.inference_mode(False), torch.enable_grad():
        view: Tensor = torch.ops.aten.alias.default(t)
    return view.grad_fn is not None and view.grad_fn.next_functions[0][0] is not None


def creation_meta(t: Tensor) -> Any:
    """How the view ``t`` was made: decides whether eager allows writing to it under grad."""
    return _creation_meta(t)


def set_creation_meta(t: Tensor, meta: Any) -> None:
    """Make eager treat writes to the view ``t`` as it treats those to a view made as ``meta`` says."""
    _set_creation_meta(t, meta)
