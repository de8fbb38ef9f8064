"""What eager's graph of a stage keeps for its backward, tensor by tensor.

Note [Writes through views]
The history that a base has of a write through a view of it hides the node of the write itself, and shows nothing of
what that keeps. But it looks, when it runs, whether what it keeps is as it was. So for each op it runs once, in the
sandbox of a backward, as if the operands had been written since, one after the other: those are kept that stop it. The
node of a custom Function is known from when it said what it wrote: to run its backward is not for us.

What is found is kept for other writes of the same kind, but not of tensors that are conjugated or negated lazily: those
are written by ``copy_``, whatever op it is that autograd recorded, and what is visible may be an operand of that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.backward.tangents import laziness
from aotcheck.autograd.eager_graph.saved import held_by_hooks, never_asks, saved_by
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad
from aotcheck.autograd.tensors.subclasses import is_jagged, is_wrapper

if TYPE_CHECKING:
    from aotcheck.autograd.backward.stage import Stage
    from aotcheck.autograd.effects.capture import Capture

_OBJECTIONS = ("modified by an inplace operation", "derivative for", "out of bounds for storage")
_kept_operands: dict[Any, tuple[int, ...]] = {}


def kept_behind(capture: Capture, stage: Stage) -> list[list[Tensor] | None]:
    """For each tensor of the stage what the nodes behind it keep; None where some of that was written since.

    What hooks of the user's packed is left out, and in its place is what they need to unpack it.
    """
    if stage.kept is None:
        known: dict[Any, list[Tensor] | None] = {}
        attached = zip(stage.attached, stage.behind(), strict=True)
        stage.kept = [_kept_behind(capture, a.tensor, nodes, known) for a, nodes in attached]
    return stage.kept


def looked_at_behind(capture: Capture, stage: Stage) -> list[list[Tensor] | None]:
    """The same without what custom Functions saved that do not ask for it: nobody looks whether that was written."""
    if not stage.custom:
        return kept_behind(capture, stage)
    attached = list(zip(stage.attached, stage.behind(), strict=True))
    if not any(never_asks(n, a.tensor) for a, nodes in attached for n in nodes):
        return kept_behind(capture, stage)
    known: dict[Any, list[Tensor] | None] = {}
    found = []
    for a, nodes in attached:
        looking = [n for n in nodes if not never_asks(n, a.tensor)]
        found.append(_kept_behind(capture, a.tensor, looking, known))
    return found


def itself(capture: Capture, kept: Tensor) -> Tensor:
    """The wrapper that a node keeps as its own result, where unpacking that lost what it holds."""
    if type(kept) is not Tensor:
        return kept
    node = _torch.grad_fn_of(kept)
    found = [w for w in capture.maker.kernels.wrappers if node is not None and _torch.grad_fn_of(w) is node]
    return next((w for w in found if w.output_nr == kept.output_nr), kept)


def _kept_behind(
    capture: Capture, output: Tensor, nodes: Sequence[Any], known: dict[Any, list[Tensor] | None]
) -> list[Tensor] | None:
    found: list[Tensor] = []
    renewed = _nodes_of_view(output)
    for node in nodes:
        if node in renewed:
            continue
        if node not in known:
            try:
                known[node] = kept_by(capture, node, output)
            except RuntimeError:  # written since: a backward that comes here raises
                known[node] = None
        kept = known[node]
        if kept is None:
            return None
        found += kept
    return found


def _nodes_of_view(t: Tensor) -> set[Any]:
    """The nodes that eager makes anew after a write where ``t`` is a plain view of a wrapper; ours is no view."""
    base, found = _torch.base_of(t), set[Any]()
    if is_wrapper(t) or base is None or not is_wrapper(base):
        return found
    if _torch.creation_meta(t) != _torch.CreationMeta.DEFAULT:
        return found
    node, end = _torch.grad_fn_of(t), _torch.grad_fn_of(base)
    while node is not None and node is not end and len(node.next_functions) == 1:
        found.add(node)
        node = node.next_functions[0][0]
    return found if node is end else set()


def kept_by(capture: Capture, node: Any, near: Tensor) -> list[Tensor]:
    """What ``node``, in the graph of ``near``, keeps, or the write through a view that it is the history of.

    Raises:
        RuntimeError: it was written since.
    """
    if _torch.is_write_through_view(node):
        write = capture.maker.kernels.write_of(node)
        if isinstance(write, WriteUnderGrad):
            return _kept_by_write(capture, node, write)
        if write is None:
            return []
        node = write
    packed = held_by_hooks(node)
    return saved_by(node, near) if packed is None else packed


def self_kept_in(capture: Capture, view: Tensor) -> Any:
    """The history of a write of ``view``, the last that its base has, by an op that keeps it; None if there is none."""
    if is_jagged(view) or not view.requires_grad or _torch.base_of(view) is None:
        return None
    own = node = _torch.grad_fn_of(view)
    steps = 0
    while node is not None and not _torch.is_write_through_view(node):
        node = node.next_functions[0][0] if len(node.next_functions) == 1 else None
        steps += 1
    write = None if node is None else capture.maker.kernels.write_of(node)
    if not isinstance(write, WriteUnderGrad) or not any(t is view for t in write.operands):
        return None
    last = _torch.sequence_number(own)
    if last in capture.maker.kernels.packed and last - _torch.sequence_number(node) == steps:
        # Hooks packed something when the view had its history and nothing else was made: what the op wrote.
        return node if write.operands[0] is view else None
    return node if any(t is view for t in _kept_by_write(capture, node, write)) else None


def objection_to_write(capture: Capture, node: Any) -> str | None:
    """What the history of a write through a view raises because what the write keeps was written since.

    Or because there is no derivative, as of ``set_``, or what it would show of a gradient is not there.
    """
    write = capture.maker.kernels.write_of(node)
    if not isinstance(write, WriteUnderGrad):
        return None
    try:
        with capture.tracer.recording(), torch.no_grad():
            gradient = _gradient_for(node, write.operands[0])
        capture.backward.run_node(node, gradient)
    except (RuntimeError, IndexError) as error:  # the latter of a view that has more dimensions since
        return str(error) if any(reason in str(error) for reason in _OBJECTIONS) else None
    return None


def _kept_by_write(capture: Capture, node: Any, write: WriteUnderGrad) -> list[Tensor]:
    """See Note [Writes through views]."""
    operands = write.operands
    lazy = any(laziness(t) != (False, False) for t in operands)
    if lazy:
        others = [t for _, t in capture.visible if not any(t is o for o in operands)]
        operands += tuple([t for t in others if _torch.version_of(t) >= 0])
    places = None if lazy else _kept_operands.get(write.kind)
    if places is None:
        with capture.tracer.recording(), torch.no_grad():
            gradient = _gradient_for(node, operands[0])
        places, certain = _stopping(capture, node, gradient, operands)
        counted = all(_torch.version_of(t) >= 0 for t in operands)
        if certain and counted and not lazy and len(set(_torch.version_groups(operands))) == len(operands):
            _kept_operands[write.kind] = places
    return [operands[k] for k in places]


def _stopping(
    capture: Capture, node: Any, gradient: Tensor, operands: Sequence[Tensor]
) -> tuple[tuple[int, ...], bool]:
    """Which of ``operands`` must not have been written since, for the node to run; and whether it does run now."""

    def stops(written: Sequence[Tensor]) -> bool:
        with contextlib.ExitStack() as versions:
            for t in written:
                versions.enter_context(_torch.at_another_version(t))
            try:
                capture.backward.run_node(node, gradient)
            except (RuntimeError, IndexError):  # the latter of a view that has more dimensions since
                return True
        return False

    if stops(()):
        return (), False

    def among(places: range) -> list[int]:
        if not places or not stops([operands[k] for k in places]):
            return []
        if len(places) == 1:
            return [*places]
        half = len(places) // 2
        return among(places[:half]) + among(places[half:])

    return tuple(among(range(len(operands)))), True


def _gradient_for(node: Any, view: Tensor) -> Tensor:
    base = _torch.base_of(view)
    if base is not None and is_wrapper(base):
        return torch.empty_like(base)
    shape, dtype = _torch.recorded_gradient(node)
    return torch.empty(shape, dtype=dtype, device=view.device)
