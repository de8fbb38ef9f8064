"""What eager's graph of a stage keeps for its backward, tensor by tensor.

Note [Writes through views]
The history that a base has of a write through a view of it hides the node of the write itself, and shows nothing of
what that keeps. But it looks, when it runs, whether what it keeps is as it was. So it runs, in the sandbox of a
backward, as if the operands of the op had been written since: if that does not stop it, such ops keep nothing; if it
does, what is kept are the operands that stop it alone. What a custom Function wrote is left out: to run its backward
is not for us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.partition.saved import held_by_hooks, nodes_behind_output, saved_by
from aotcheck.autograd.replicas import WriteUnderGrad
from aotcheck.autograd.subclasses import is_wrapper

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture
    from aotcheck.autograd.stage import Stage

_keeps_nothing: set[Any] = set()


def kept_behind(capture: Capture, stage: Stage) -> list[list[Tensor] | None]:
    """For each tensor of the stage what the nodes behind it keep; None where some of that was written since.

    What hooks of the user's packed is left out, and in its place is what they need to unpack it.
    """
    if stage.kept is None:
        known: dict[Any, list[Tensor] | None] = {}
        stage.kept = [_kept_behind(capture, a.tensor, stage.ends, known) for a in stage.attached]
    return stage.kept


def _kept_behind(
    capture: Capture, output: Tensor, ends: Sequence[Any], known: dict[Any, list[Tensor] | None]
) -> list[Tensor] | None:
    found: list[Tensor] = []
    for node in nodes_behind_output(output, ends):
        if node not in known:
            try:
                known[node] = _kept_by(capture, node, output)
            except RuntimeError:  # written since: a backward that comes here raises
                known[node] = None
        kept = known[node]
        if kept is None:
            return None
        found += kept
    return found


def _kept_by(capture: Capture, node: Any, near: Tensor) -> list[Tensor]:
    if _torch.is_write_through_view(node):
        write = capture.maker.kernels.writes.get(_torch.sequence_number(node))
        return [] if write is None else _kept_by_write(capture, node, write)
    packed = held_by_hooks(node)
    return saved_by(node, near) if packed is None else packed


def _kept_by_write(capture: Capture, node: Any, write: WriteUnderGrad) -> list[Tensor]:
    """See Note [Writes through views]."""
    if write.kind in _keeps_nothing:
        return []
    with capture.tracing(), torch.no_grad():
        gradient = _gradient_for(node, write.operands[0])

    def stops(written: Sequence[Tensor]) -> bool:
        with contextlib.ExitStack() as versions:
            for t in written:
                versions.enter_context(_torch.at_another_version(t))
            try:
                capture.run_node(node, gradient)
            except RuntimeError:
                return True
        return False

    if stops(()):  # by something that is no write since
        return []
    if not stops(write.operands):
        _keeps_nothing.add(write.kind)
        return []
    return [t for t in write.operands if stops((t,))]


def _gradient_for(node: Any, view: Tensor) -> Tensor:
    base = _torch.base_of(view)
    if base is not None and is_wrapper(base):
        return torch.empty_like(base)
    return torch.empty(_torch.gradient_shape(node), dtype=_torch.gradient_dtype(node, 0), device=view.device)
