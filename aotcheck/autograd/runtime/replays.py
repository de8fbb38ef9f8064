"""Views made again, in the mode in which the program made them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.tensors.memory import plain_window, restride, restride_wrapper
from aotcheck.autograd.tensors.subclasses import is_wrapper


def replay_without_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under no_grad, whatever the caller's grad mode."""
    with torch.no_grad():
        result: Tensor = view_func(base)
    return result


def replay_with_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under grad, whatever the caller's grad mode."""
    with torch.enable_grad():
        result: Tensor = view_func(base)
    return result


def replay_outdated(view_func: Callable[[Tensor], Tensor], base: Tensor) -> Tensor:
    """A view of ``base`` that autograd takes for one made before a write.

    If ``base`` is a view with a history on which hooks hang, the view is made of what that is a view of, to which
    autograd will go back anyhow: ``base`` itself would be taken for written, and lose that history.
    """
    whole = None if is_wrapper(base) or not _torch.has_hooks(base) else _torch.base_of(base)
    if whole is not None and _may_be_given_a_window_instead(base, whole) and _has_history(base):
        with torch.no_grad():
            like = view_func(base)
        if isinstance(like, Tensor) and not is_wrapper(like):
            g = geometry_of(like)
            addresses = {_torch.storage_address(_torch.storage_of(t)) for t in (base, whole, like)}
            if g[3:] == geometry_of(whole)[3:] and len(addresses) == 1:
                with _torch.at_another_version(whole):
                    return whole.as_strided(g.shape, g.stride, g.offset)
    elif whole is not None and _is_made_by_its_op(base, whole):
        with _torch.at_another_version(whole):
            return view_func(_torch.view_func_of(base)(whole))
    counting = _torch.base_of(base)  # of a part split off in inference mode a view counts with this, not with the part
    with _torch.at_another_version(base if counting is None else counting):
        return view_func(base)


def _has_history(view: Tensor) -> bool:
    """Whether ``view``, of what requires grad, is no leaf.

    One whose history autograd would look for anew is not asked: it may be about to lie elsewhere, to look for it there.
    """
    return _torch.creation_meta(view) == _torch.CreationMeta.DEFAULT or _torch.leafness(view) is False


def _may_be_given_a_window_instead(base: Tensor, whole: Tensor) -> bool:
    """Whether autograd makes ``base``, once ``whole`` was written, by a window on that.

    Any other it makes by the op, and without a history where no gradients are recorded: who looks at its history in
    such a mode takes it away.
    """
    if is_wrapper(whole) or not whole.requires_grad:
        return False
    kind = geometry_of(base)[3:]
    return kind == geometry_of(whole)[3:] and not base.is_conj() and not base.is_neg()


def _is_made_by_its_op(base: Tensor, whole: Tensor) -> bool:
    """Whether autograd makes ``base`` by its op, once ``whole`` was written; both lie where they did.

    False where no gradients are recorded: see ``_may_be_given_a_window_instead``.
    """
    if not torch.is_grad_enabled() or is_wrapper(whole) or not whole.requires_grad:
        return False
    if not _has_history(base):
        return False
    if geometry_of(base)[3:] == geometry_of(whole)[3:]:
        return False
    again = _torch.view_func_of(base)(whole)
    there = [_torch.storage_address(_torch.storage_of(t)) for t in (again, base)]
    return geometry_of(again) == geometry_of(base) and there[0] == there[1]


def replay_at(view_func: Callable[[Tensor], Tensor], version: int, base: Tensor) -> Tensor:
    """A view of ``base`` that autograd takes for made when its counter stood at ``version``.

    That is the counter of what ``base`` is a view of, if it is one: it may have another itself.
    """
    whole = _torch.base_of(base)
    whole = base if whole is None else whole
    now = _torch.version_of(whole)
    _torch.set_version(whole, version)
    try:
        return view_func(base)
    finally:
        made = _torch.version_of(whole)  # changes in place count as writes: what was changed so is to be up to date
        _torch.set_version(whole, max(made, now) if made > version else now)


def replay_as_it_lay(
    view_func: Callable[[Tensor], Tensor], lay: Sequence[tuple[tuple[str, ...], Geometry]], base: Tensor
) -> Tensor:
    """A view of the wrapper ``base`` as one made when it, and what it holds by such attributes, ``lay`` otherwise."""
    with contextlib.ExitStack() as places:
        for names, g in lay:
            places.enter_context(_lying(functools.reduce(getattr, names, base), g))
        return view_func(base)


@contextlib.contextmanager
def _lying(t: Tensor, g: Geometry) -> Iterator[None]:
    """Inside, ``t`` lies so."""
    was = geometry_of(t)
    _lay(t, g)
    try:
        yield
    finally:
        _lay(t, was)


def _lay(t: Tensor, g: Geometry) -> None:
    """Let ``t`` lie so; neither its history nor its version counter shows it."""
    version = _torch.version_of(t)
    if is_wrapper(t):
        restride_wrapper(t, (g.shape, g.stride, g.offset))
    else:
        restride(t, g.shape, g.stride, g.offset)
    if version >= 0:
        _torch.set_version(t, version)


def replay_with_room(view_func: Callable[[Tensor], Tensor], window: Geometry, base: Tensor) -> Tensor:
    """A view of ``base`` that lies as ``window`` on another storage, where there may be more than on that of ``base``.

    What it shows nobody looks at; it is taken elsewhere.
    """
    g = geometry_of(base)
    return replay_lying(view_func, g, base, max(x.elements_reached * x.dtype.itemsize for x in (g, window)))


def replay_lying(view_func: Callable[[Tensor], Tensor], g: Geometry, base: Tensor, room: int = 0) -> Tensor:
    """A view of ``base`` as one made when it lay so, on a storage with ``room`` at least, of which nothing is shown."""
    data = base.data
    lie_apart(g, base, room)
    try:
        return view_func(base)
    finally:
        base.data = data


def lie_apart(g: Geometry, t: Tensor, room: int = 0, inference: bool | None = None) -> None:
    """Let ``t`` lie so, on memory of its own with ``room`` at least; it is taken elsewhere before anybody looks.

    It becomes an ``inference`` tensor or ceases to be one, if that is said.
    """
    room = max(room, g.elements_reached * g.dtype.itemsize)
    storage = torch.empty(room, dtype=torch.uint8, device=t.device).untyped_storage()
    kind = t.is_inference() if inference is None else inference
    with torch.no_grad(), torch.inference_mode(kind):
        t.data = plain_window(storage, g, t.device)


def lead_nowhere(view: Tensor) -> None:
    """Let ``view``, of what requires no grad, have the history that it keeps where its base was cut from its own."""
    base = _torch.base_of(view)
    assert base is not None
    for required in (True, False):
        base.requires_grad_(required)
        _torch.outdate_history(view)
    _torch.grad_fn_of(view)


def replay_under_inference_mode(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under inference mode."""
    with torch.inference_mode():
        result: Tensor = view_func(base)
    return result


def replay_outside_with_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made outside the inference mode of the call, under grad."""
    with torch.inference_mode(False):
        return replay_with_grad(view_func, base)


def replay_outside_without_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made outside the inference mode of the call, under no_grad."""
    with torch.inference_mode(False):
        return replay_without_grad(view_func, base)
