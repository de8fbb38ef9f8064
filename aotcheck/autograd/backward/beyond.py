"""What no backward needs but the derivative of one.

Note [Beyond a Function]
The backward of a custom Function may compute with a tensor to which it gives no gradient: one that it kept in an
attribute, or an argument for which it gives None. Such a backward does not come by what that tensor was computed by,
but its derivative does. So what a backward from there reads is saved too, as eager keeps it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.backward.tangents import tangents_of
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import has_packed
from aotcheck.autograd.effects.views import has_history
from aotcheck.autograd.errors import RetraceWithCaptured
from aotcheck.autograd.ir.trace import Value
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Result
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.captured import reachable
from aotcheck.autograd.tensors.subclasses import leaves_of

if TYPE_CHECKING:
    from aotcheck.autograd.backward.stage import Stage
    from aotcheck.autograd.effects.capture import Capture
    from aotcheck.autograd.ir.storage_state import StorageState
    from aotcheck.autograd.replicas.kernel_state import KernelState

Edge = tuple[Any, int]  # a node of autograd, and which of its inputs
Given = Mapping[Any, set[Edge]]  # by the node of a custom Function where the gradients went that it gave


def noting_gradients(capture: Capture, nodes: Iterable[Any]) -> contextlib.AbstractContextManager[Given]:
    """Inside, it is noted to which arguments those of ``nodes`` that are of custom Functions give gradients.

    And of these nodes that they ran.
    """
    given: dict[Any, set[Edge]] = {n: set() for n in nodes if isinstance(n, torch.autograd.function.BackwardCFunction)}
    return _noting(capture, given) if given else contextlib.nullcontext(given)


@contextlib.contextmanager
def _noting(capture: Capture, given: dict[Any, set[Edge]]) -> Iterator[Given]:
    kernels = capture.maker.kernels
    hooks = [n.register_hook(functools.partial(_note, n, given[n], kernels)) for n in given]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def _note(node: Any, given: set[Edge], kernels: KernelState, gradients: Sequence[Tensor | None], _: Any) -> None:
    kernels.note_ran(node)
    given.update(edge for edge, g in zip(node.next_functions, gradients, strict=False) if g is not None)


def values_beyond(
    capture: Capture, stage: Stage, given: Given, live: Mapping[int, tuple[StorageState, Value]]
) -> list[Value]:
    """What is computed by backwards from what custom Functions hold, where the ``stage``'s own backwards end.

    ``given`` is what the Functions gave in those.
    """
    found: list[Value] = []
    if not given:
        return found
    met: set[Edge] = set()
    edges = [t.edges for t in stage.targets]
    ends = [e.node for t in stage.targets if t.is_cut for e in t.edges]

    def parts(g: Tensor) -> list[Value]:
        return [capture.tracer.table.read(x) for x in leaves_of(g)]

    while held := {edge: t for edge, t in _passed_over(given).items() if edge not in met}:
        met.update(held)
        attached = [Attached(Result(0), t, t.device) for t in held.values()]
        seeds = list(zip(attached, tangents_of(capture, attached), strict=True))
        with noting_gradients(capture, nodes_behind([node for node, _ in held], set(stage.ends))) as given:
            try:
                traced = capture.backward.trace(seeds, edges, None, ends, live, parts)
            except RetraceWithCaptured:
                raise
            except Exception:  # so will the derivative
                break
        found += [v for values in traced.values for v in values or ()]
    return found


def _passed_over(given: Given) -> dict[Edge, Tensor]:
    """The tensors with a history that custom Functions hold, and to which they gave no gradient."""
    found: dict[Edge, Tensor] = {}
    for node, edges in given.items():
        for t in _held_by(node):
            edge = _torch.grad_fn_of(t), t.output_nr
            if has_history(t) and edge[0] is not node and edge not in edges:
                found[edge] = t
    return found


def _held_by(node: Any) -> list[Tensor]:
    held = [x for x in reachable(vars(node), 2) if isinstance(x, Tensor)]
    # What is unpacked is detached, of which the class of a wrapper need not know.
    with contextlib.suppress(RuntimeError), _torch.meta_kernels():  # written since: the backward raises
        held += () if has_packed(node) else _torch.saved_by_custom(node)
    return [t for t in held if any(type(x) is Replica for x in leaves_of(t))]
