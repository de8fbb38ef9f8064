"""Views as autograd sees them: of which base, how made, and how to make them again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck._torch.dispatch import META, meta_kernels, without_modes
from aotcheck._torch.names import private
from aotcheck._torch.nodes import autograd_sequence_number, grad_fn_of, gradient_shape, leafness, sequence_number
from aotcheck._torch.versions import at_another_version

CreationMeta = private("torch._C._autograd.CreationMeta")
_creation_meta = private("torch._C._autograd._get_creation_meta")
_set_creation_meta = private("torch._C._autograd._set_creation_meta")

conj_view = torch.ops.aten._conj.default
neg_view = torch.ops.aten._neg_view.default
_MORE_THAN_ANY_STORAGE = 1 << 50
_aten = torch.ops.aten
_SHAPE = ("the shape of the result",)
# By the name of a node: the op that made it, and under which names it keeps the op's arguments.
_OPS_OF_VIEWS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "AliasBackward0": (_aten.alias.default, ()),
    "ConjBackward0": (_aten._conj.default, ()),
    "DiagonalBackward0": (_aten.diagonal.default, ("offset", "dim1", "dim2")),
    "ExpandBackward0": (_aten.expand.default, _SHAPE),
    "NegViewBackward0": (_aten._neg_view.default, ()),
    "PermuteBackward0": (_aten.permute.default, ("dims",)),
    "SelectBackward0": (_aten.select.int, ("dim", "index")),
    "SliceBackward0": (_aten.slice.Tensor, ("dim", "start", "end", "step")),
    "SqueezeBackward0": (_aten.squeeze.default, ()),
    "SqueezeBackward1": (_aten.squeeze.dim, ("dim",)),
    "SqueezeBackward2": (_aten.squeeze.dims, ("dim",)),
    "TBackward0": (_aten.t.default, ()),
    "TransposeBackward0": (_aten.transpose.int, ("dim0", "dim1")),
    "UnsqueezeBackward0": (_aten.unsqueeze.default, ("dim",)),
    "ViewAsComplexBackward0": (_aten.view_as_complex.default, ()),
    "ViewAsRealBackward0": (_aten.view_as_real.default, ()),
    "ViewBackward0": (_aten.view.default, _SHAPE),
}
# The same of ops that change the geometry of their argument in place.
_CHANGES_IN_PLACE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "AsStridedBackward1": (_aten.as_strided_.default, ("size", "stride", "storage_offset")),
    "SqueezeBackward3": (_aten.squeeze_.default, ()),
    "SqueezeBackward4": (_aten.squeeze_.dim, ("dim",)),
    "SqueezeBackward5": (_aten.squeeze_.dims, ("dim",)),
    "TBackward1": (_aten.t_.default, ()),
    "TransposeBackward1": (_aten.transpose_.default, ("dim0", "dim1")),
    "UnsqueezeBackward1": (_aten.unsqueeze_.default, ("dim",)),
}


_base: Any = Tensor._base
ABOUT_VIEWS = (Tensor._is_view, _base.__get__)
"""What asks whether a tensor is a view, and of what, as function modes are told of it."""


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd takes ``tensor`` for a view of another tensor."""
    return bool(tensor._is_view())


def base_of(t: Tensor) -> Tensor | None:
    """The tensor of which ``t`` is a differentiable view, or None."""
    return t._base


def view_func_of(t: Tensor) -> Callable[[Tensor], Tensor]:
    """Rebuilds the view ``t`` from another base of the same geometry, by view replay where torch recorded it.

    Of a ragged base, sizes that are ragged are the new base's: another tensor's, of which they tell, would not fit it.
    """
    base = base_of(t)
    if base is not None and base.layout is torch.jagged:
        return functools.partial(_view_of_ragged, t)
    return cast("Callable[[Tensor], Tensor]", t._view_func_unsafe)


def _view_of_ragged(t: Tensor, base: Tensor) -> Tensor:
    ragged: list[Any] = [n for n in base.shape if type(n) is not int]
    made: Tensor = t._view_func_unsafe(base, lambda n: n if type(n) is int or not ragged else ragged[0])
    return made


def view_among(t: Tensor, base: Tensor, others: Mapping[int, Tensor], ragged: Callable[[], Any]) -> Tensor:
    """The ragged view ``t`` of a plain tensor rebuilt from ``base``.

    ``others`` stand for the tensors that took part, by id; ``ragged`` tells the size that is no number among them.
    """
    made: Tensor = t._view_func_unsafe(
        base, lambda n: n if type(n) is int else ragged(), lambda x: others.get(id(x), x)
    )
    return made


def ops_of_view(t: Tensor) -> list[tuple[Any, tuple[Any, ...]]] | None:
    """The ops, with what they take beside their source, by which the view ``t`` was made of its base, the first first.

    As the graph of autograd says; None where it does not.
    """
    base, node, place = base_of(t), grad_fn_of(t), t.output_nr
    assert base is not None
    end = grad_fn_of(base)
    found: list[tuple[Any, tuple[Any, ...]]] = []
    while node is not None and node is not end and getattr(node, "variable", None) is not base:
        op, names = _OPS_OF_VIEWS.get(node.name(), (None, ()))
        if op is None or len(node.next_functions) != 1:
            return None
        shape = [list(gradient_shape(node, place))]
        found.append((op, tuple(shape if names is _SHAPE else [_signed(getattr(node, f"_saved_{n}")) for n in names])))
        ((node, place),) = node.next_functions
    return None if node is None or place != base.output_nr else found[::-1]


def changes_in_place(t: Tensor) -> list[tuple[Any, tuple[Any, ...]]]:
    """The last changes of geometry in the history of ``t``: the ops, with what they take beside it, the first first."""
    node, found = grad_fn_of(t), list[tuple[Any, tuple[Any, ...]]]()
    while node is not None and node.name() in _CHANGES_IN_PLACE:
        op, names = _CHANGES_IN_PLACE[node.name()]
        found.append((op, tuple([_signed(getattr(node, f"_saved_{n}")) for n in names])))
        node = node.next_functions[0][0]
    return found[::-1]


def _signed(x: Any) -> Any:
    """A number, or several, as autograd was given them: it tells of negative ones as if they had no sign."""
    if isinstance(x, (list, tuple)):
        return [_signed(n) for n in x]
    return x - (1 << 64) if isinstance(x, int) and x >= 1 << 63 else x


def waits_for_history(t: Tensor) -> bool:
    """Whether autograd makes the history of the view ``t`` anew when it is next asked for; it is not asked here.

    It does once the memory was written: as the view then lies, on its base as that is.
    """
    base = base_of(t)
    if base is None or not (t.requires_grad and base.requires_grad) or t.is_inference():
        return False
    if type(base) is not Tensor and type(base) is not torch.nn.Parameter:
        return False
    return _renews_history(t)


def replica_waits_for_history(t: Tensor) -> bool:
    """The same of the replica of a view."""
    base = base_of(t)
    if base is None or not (t.requires_grad and base.requires_grad) or t.is_inference():
        return False
    return _renews_history(t)


def _renews_history(t: Tensor) -> bool:
    number = autograd_sequence_number()
    with torch.enable_grad(), torch.inference_mode(False):
        node = grad_fn_of(t)
    if node is None or sequence_number(node) < number:
        return False
    outdate_history(t)
    return True


def outdate_history(t: Tensor) -> None:
    """Let autograd make the history of the view ``t`` anew when it is next asked for."""
    base = base_of(t)
    assert base is not None
    with at_another_version(base), torch.enable_grad(), torch.inference_mode(False):
        grad_fn_of(t)


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


class _Asked(torch.autograd.Function):
    """Where gradients would go of what is given to it."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return torch.empty((), device=META)


def waits_to_have_history(t: Tensor) -> bool:
    """Whether ``t`` is a view whose base requires grad and was written, and autograd has not looked at ``t`` since.

    It has the history of that write once somebody looks, and is a leaf until then. This does not look.
    """
    base = t._base
    if base is None or not base.requires_grad or creation_meta(t) != CreationMeta.DEFAULT:
        return False
    set_creation_meta(t, CreationMeta.NO_GRAD_MODE)  # then to look is refused
    try:
        return leafness(t) is None
    finally:
        set_creation_meta(t, CreationMeta.DEFAULT)


def requires_grad_by_itself(t: Tensor) -> bool:
    """Whether ``t`` requires grad, and not only because its base does.

    A view that autograd was not told of says that it requires grad as its base does, but no gradient goes anywhere,
    until it is told to require grad itself, which shows in nothing else.
    """
    if not t.requires_grad:
        return False
    base = t._base
    if base is None or not base.requires_grad or leafness(t) is not True:
        return True
    if not (t.is_floating_point() or t.is_complex()):
        return False  # it cannot be told to, and torch makes no view of it
    with without_modes(), meta_kernels(), torch.inference_mode(False), torch.enable_grad():
        # A ragged tensor has no aliases.
        view: Tensor = _Asked.apply(t) if t.layout is torch.jagged else _aten.alias.default(t)
    return view.grad_fn is not None and view.grad_fn.next_functions[0][0] is not None


def shows_as_leaf(t: Tensor) -> bool:
    """Whether ``t`` is a leaf that requires grad, asked without need to renew the history of a view that was written.

    That of a view of what requires grad is looked for at the program's first look, in its mode and where it then lies.
    """
    if not t.requires_grad:
        return False
    base = t._base
    renewed = base is not None and base.requires_grad and _creation_meta(t) == CreationMeta.DEFAULT
    return not renewed and leafness(t) is True


def creation_meta(t: Tensor) -> Any:
    """How the view ``t`` was made: decides whether eager allows writing to it under grad."""
    return _creation_meta(t)


def set_creation_meta(t: Tensor, meta: Any) -> None:
    """Make eager treat writes to the view ``t`` as it treats those to a view made as ``meta`` says."""
    _set_creation_meta(t, meta)
