"""What a backward checks before it runs, and how it takes its tangents."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse, measure
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.runtime.attachments import WATCHED_PLACE, FindsBackwards, Freed
from aotcheck.autograd.runtime.held import free_held
from aotcheck.autograd.tensors.memory import restride
from aotcheck.autograd.tensors.subclasses import is_jagged, is_wrapper

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Specify retain_graph=True if you need to backward through the graph a second time"
)


def written_since(what: str | None, now: int, version: int) -> str:
    """What eager's backward raises where it needs something at an earlier version than it has."""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{what}] is at version {now}; expected version {version} instead"
    )


def under_grad_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with grad mode on, on tensors that have no history."""

    def call(*args: Any) -> Any:
        with torch.enable_grad():
            return run(*[a.detach() if isinstance(a, Tensor) else a for a in args])

    return call


def reshape_in_backward(t: Tensor, before: Geometry, after: Geometry) -> None:
    """Change the geometry of ``t`` from ``before`` as the traced backward does, as a change that counts as a write.

    Raises:
        UnsupportedError: it has another geometry by now, for which another backward would have to be traced.
    """
    if geometry_of(t) != before:
        raise UnsupportedError("mutation in the backward", "of the metadata of a tensor, for the second time")
    restride(t, after.shape, after.stride, after.offset)


def bring(target: Tensor, gradient: Tensor, retained: bool) -> None:
    """Accumulate ``gradient`` into ``target``, or go on behind it, as a backward does that a backward calls."""
    if target.requires_grad:  # as it may not any more
        torch.autograd.backward([target], [gradient], retained)


def watch(t: Tensor, place: int, ragged: bool = True) -> tuple[Tensor, str | None, int, int]:
    """What ``check_watched`` needs to see whether ``t`` was written before the backward from output ``place``.

    That is a tensor without memory that counts versions with ``t``. ``ragged``: see ``Guard``.
    """
    counter = t.detach()
    if not is_wrapper(t):
        counter.data = (
            measure(t).with_elements(0, t.device) if is_sparse(t) else torch.empty(0, dtype=t.dtype, device=t.device)
        )
    kind = t.layout if is_sparse(t) else t.type()
    what = None if ragged and is_jagged(t) else f"{kind} {list(t.shape)}"
    return counter, what, _torch.version_of(t), place


def check_watched(watched: Sequence[tuple[Tensor, str | None, int, int]], defined: Sequence[bool]) -> None:
    """Raise as eager does where memory that it saved for this backward was written since."""
    for counter, what, version, place in watched:
        now = _torch.version_of(counter)
        if defined[place] and now != version:
            if what is None:
                torch.ops.aten._nested_tensor_size.default(counter)  # eager's message asks for it, which raises
            raise RuntimeError(written_since(what, now, version))


def kind_of(t: Tensor) -> Any:
    """What tells tangents apart that are taken in other ways: the type, or the layout of a sparse tensor."""
    return t.layout if is_sparse(t) else type(t)


def with_strides(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` copied to other strides; where these are 0 it is expanded, as ``t`` then is."""
    if any(n > 1 and step == 0 for n, step in zip(t.shape, stride, strict=True)):
        part = t
        for d, step in enumerate(stride):
            part = part.narrow(d, 0, 1) if step == 0 and part.shape[d] > 1 else part
        return with_strides(part, stride).expand(t.shape)
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def with_strides_lazily(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """The same; what is lazy about ``t`` stays so."""
    conj, neg = t.is_conj(), t.is_neg()
    t = _torch.conj_view(t) if conj else t
    t = with_strides(_torch.neg_view(t) if neg else t, stride)
    t = _torch.conj_view(t) if conj else t
    return _torch.neg_view(t) if neg else t


def frees(node: Any) -> dict[int, Freed]:
    """The results of a Function of ours whose own op in eager keeps what a backward frees."""
    function = getattr(node, "_forward_cls", None)
    return getattr(function, "frees", {})


def check_own(ctx: Any, place: int, freed: Freed) -> None:
    """Raise as the op does that gave the result at ``place`` of the Function of ``ctx``, if it misses something."""
    if freed.objection is not None:
        raise RuntimeError(freed.objection)
    check_not_spent(ctx, (place,))
    _torch.unpack_some(ctx, ())
    own = ctx.kept[0].arguments.own
    _spend(ctx, freed.behind, own[place] if own else frozenset())
    if freed.saved:
        _torch.unpack_some(ctx, freed.saved)
    if freed.watched:
        watched = ctx.kept[WATCHED_PLACE]
        check_watched([(*watched[k][:3], 0) for k in freed.watched], (True,))


def use_context(ctx: Any, user: FindsBackwards, number: int) -> None:
    """Raise if what the Function of ``ctx`` saved is freed; free it after the backward that is running, if that frees.

    Not at once: the Function may have its own turn in the same backward. To the ``user`` it is the one with this
    ``number``.
    """
    check_not_spent(ctx)
    _torch.check_saved(ctx)
    _spend(ctx, None, _held_by_other(user, number))


def use_hidden(ctx: Any, user: FindsBackwards, number: int) -> None:
    """The same where a backward of that Function itself frees nothing of it: see Note [Views that end]."""
    check_not_spent(ctx)
    _spend(ctx, None, _held_by_other(user, number))


def _held_by_other(user: FindsBackwards, number: int) -> frozenset[Any]:
    others = user.arguments.others
    return others[number] if others else frozenset()


def _spend(ctx: Any, places: Sequence[int] | None, holding: frozenset[Any]) -> None:
    """Eager frees what the results at ``places`` need, or any; ``holding`` are nodes among it that hold arguments."""
    if not _torch.backward_keeps_graph():
        _torch.after_backward(functools.partial(_note_spent, ctx, places, holding))


def _note_spent(ctx: Any, places: Sequence[int] | None, holding: frozenset[Any]) -> None:
    before: bool | frozenset[int] = getattr(ctx, "spent", frozenset())
    ctx.spent = True if places is None or isinstance(before, bool) else before.union(places)
    if ctx.kept[0].arguments.places:
        free_held(ctx, holding)
        if ctx.spent is True:
            _torch.clear_saved(ctx)


def check_not_spent(ctx: Any, begins: Sequence[int] | None = None) -> None:
    """Raise as eager does where something else than this backward has freed what it needs.

    That is a derivative of it, or one that ended at a result: see ``check_own``. ``begins``: the places of the results
    from which it comes; None: whichever it may be.
    """
    spent = getattr(ctx, "spent", False)
    if spent and (spent is True or begins is None or not spent.isdisjoint(begins)):
        raise RuntimeError(FREED)


def run_for_all(ctx: Any, nodes: Sequence[int]) -> None:
    """Raise if this backward ran one of ``nodes``, as the Function of ``ctx`` counts them, for other gradients already.

    See Note [Functions for all gradients].

    Raises:
        UnsupportedError: it did.
    """
    now = _torch.backward_number()
    if now < 0 or not isinstance(ctx, torch.autograd.function.BackwardCFunction):  # compiled autograd has its own order
        return
    ran: dict[int, int] = vars(ctx).setdefault("ran", {})
    if any(ran.get(n) == now for n in nodes):
        raise UnsupportedError("second derivative", "summed up with others before a custom backward that is not linear")
    ran.update(dict.fromkeys(nodes, now))


with torch.inference_mode(False):  # this may be imported in it
    DEAD_END = torch.zeros((), device="cpu", requires_grad=True)


@functools.cache
def beyond() -> Tensor:
    """A tensor with a history that a backward comes by only if it comes by everything."""
    with torch.inference_mode(False), torch.enable_grad():
        return DEAD_END.unsqueeze(0)


def raise_if_all_runs(error: str) -> None:
    """Raise what a node does that leads to nobody who could ask for gradients, if the backward leaves nothing out."""
    if _torch.will_run(beyond().grad_fn):
        raise RuntimeError(error)


def refuse_some_gradients(ctx: Any, targets: Sequence[int]) -> None:
    """Raise what a reentrant checkpoint before ``targets`` of ``ctx`` does where some gradients alone are asked for."""
    if isinstance(ctx, torch.autograd.function.BackwardCFunction) and _torch.leaves_something_out():
        nodes = [ctx.next_functions[k][0] for k in targets]
        if any(node is not None and _torch.will_run(node) for node in nodes):
            CheckpointFunction.backward(None)


def raise_if_asked(error: str, ctx: Any, targets: Sequence[int]) -> None:
    """Raise what a node does that is given no gradient, if the backward goes on to one of the ``targets`` behind it."""
    if isinstance(ctx, torch.autograd.function.BackwardCFunction):
        nodes = [ctx.next_functions[k][0] for k in targets]
        if any(node is not None and _torch.will_run(node) for node in nodes):
            raise RuntimeError(error)
