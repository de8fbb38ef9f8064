"""The record of a function that only computes: it returns what it made, and leaves its arguments as they were.

Note [Plain functions]
Most functions write nothing, return no views and cut nothing from its history. Of those an epilogue has little to say,
but would look for much: the record is then written down at once. It is the one that the epilogue's builder would make,
but that a group has no turn where there is one alone. Results that share parts of the graph, or are computed from each
other, are attached as the builder does it: see Note [Shared parts] and Note [Cuts]. Whatever the first look does not
know to be plain is the builder's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.functions import function_heads
from aotcheck.autograd.eager_graph.regions import Cut, Group
from aotcheck.autograd.eager_graph.saved import look_up_again, look_up_once
from aotcheck.autograd.eager_graph.shared import complex_heads, shared_heads
from aotcheck.autograd.effects.node_order import order_nodes
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import differentiable_dtype
from aotcheck.autograd.errors import TraceMode
from aotcheck.autograd.ir.trace import geometry_of, recorded_geometry
from aotcheck.autograd.record.record import Attached, GraphOutput, Record, Role, Root
from aotcheck.autograd.record.steps import Arg, Attach, Constant, Ref, Result
from aotcheck.autograd.replicas.replicas import Replica

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture

_TRACED_FIRST = TraceMode()


def plain_record(capture: Capture, outputs: Sequence[Any]) -> tuple[Record, list[Cut]] | None:
    """The record, with its cuts, of a function that gave ``outputs``, gradients and what holds tensors being as before.

    None if it did anything but compute, or might have. Used inside the tracing mode, as the epilogue's builder is.
    """
    look_up_again()
    if not (_is_traced_plainly(capture) and _leaves_arguments(capture)):
        return None
    known: set[int] = {id(a.replica) for a in capture.arguments}
    made: dict[int, Result] = {}
    fresh: list[Tensor] = []
    for o in outputs:
        if isinstance(o, Tensor) and id(o) not in made:
            state = id(capture.tracer.table.state(o)) if _is_fresh(capture, o) else None
            if state is None or state in known or id(o) in known:
                return None
            known.add(state)
            made[id(o)] = Result(len(fresh))
            fresh.append(o)
    returns: list[Ref | Constant] = [made[id(o)] if isinstance(o, Tensor) else Constant(o) for o in outputs]
    read = capture.tracer.table.read
    attached = tuple([Attached(made[id(o)], o, o.device) for o in fresh if o.requires_grad])
    if attached:
        look_up_once(is_packed=capture.hooks or not capture.tracer.only_computes)
    alone = len(attached) == 1 and not _is_divided(capture, attached[0].tensor)
    record = Record(
        roots=tuple([Root(r.source, r.requires_grad, r.real_is_leaf is not False) for r in capture.roots]),
        leaves=(),
        flats=(),
        outputs=tuple([GraphOutput(read(o), Role.USER_OUTPUT, geometry_of(o), o) for o in fresh]),
        attached=attached,
        groups=(Group((0,)),) if alone else (),
        cuts=(),
        before=(),
        steps=(Attach(0),) if alone else (),
        returns=tuple(returns),
        written_placeholders=frozenset(),
        entry_grad=capture.entry_grad,
        entry_inference=False,
    )
    return (record, []) if alone or not attached else _attached(capture, record)


def _is_divided(capture: Capture, result: Tensor) -> bool:
    """Whether something stands for parts of what is behind the only ``result``."""
    ends = capture.ends
    if shared_heads([result], ends) or function_heads([result], ends, capture.apart):
        return True
    for r in capture.roots:
        if r.replica.dtype.is_complex:
            return bool(complex_heads([result], ends))
    return False


def _attached(capture: Capture, record: Record) -> tuple[Record, list[Cut]]:
    """``record`` with its results in groups, and the cuts between these."""
    results = Results(capture)
    results.attached += record.attached
    results.names.update({id(a.tensor): a.ref for a in record.attached})
    trained = [a.tensor for a in record.attached]
    results.group([*trained, *results.stand_for_shared(trained)], capture.together)
    results.attach_independent()
    results.attach_all()
    order_nodes(results)
    grouped = dataclasses.replace(
        record,
        attached=tuple(results.attached),
        groups=tuple(results.groups),
        cuts=results.cut_targets(),
        before=tuple(results.before),
        steps=tuple(results.steps),
    )
    return grouped, results.cuts


def _is_traced_plainly(capture: Capture) -> bool:
    """Whether nothing was noted of the trace that an epilogue is built for, but for what befell arguments' memory."""
    kernels, tracer, inputs = capture.maker.kernels, capture.tracer, capture.inputs
    noted = (
        *(kernels.detached, kernels.required, kernels.required_besides, kernels.moved, kernels.retained),
        *(kernels.hooks, kernels.swapped),
        *(tracer.regeometried, tracer.set_calls, tracer.reshapings, tracer.table.flat_inputs),
        *(capture.wrappers, capture.poisoned, capture.onward, inputs.generators),
    )
    return (
        not any(noted)
        and capture.mode == _TRACED_FIRST
        and capture.casts is None
        and not capture.entry_inference
        and capture.exit_grad == capture.entry_grad
        and not any(inputs.requires_alone)
        and not any(inputs.is_custom_view)
    )


def _leaves_arguments(capture: Capture) -> bool:
    """Whether the arguments are leaves, and the same tensors as before: none was written or got a history."""
    for a in capture.arguments:
        t = a.replica
        if type(t) is not Replica or t.requires_grad != a.requires_grad or _torch.version_of(t) != a.version:
            return False
        if a.inference or a.edge is not None or _torch.leafness(t) is not True:
            return False
    for r in capture.roots:
        state = r.state
        if type(r.source) is not Arg or state.version or state.sized or state.flat is not None:
            return False
        if state.storage.nbytes() != capture.entry_nbytes[id(state)]:
            return False
    return True


def _is_fresh(capture: Capture, o: Tensor) -> bool:
    """Whether a result is all of a storage made inside, and no leaf that requires grad, nor a view to autograd."""
    if type(o) is not Replica or o.is_inference() or _torch.base_of(o) is not None:
        return False
    table = capture.tracer.table
    state, geometry, window = table.state(o), geometry_of(o), capture.tracer.unsafe_views.get(id(o))
    if state.is_input or state.sized or state.flat is not None or state.storage.nbytes() != state.nbytes:
        return False
    if window is not None and table.state(window.source) is not state:
        return False
    if len(state.roots) != 1 or state.roots[0].geometry != geometry:
        return False
    if not o.requires_grad:
        return True
    return _torch.leafness(o) is False and differentiable_dtype(o) and recorded_geometry(o) == geometry
