"""Checks whether a simple op in a candidate is wrong by itself, so that the candidate would show another bug.

Note [Own bugs]
    Passes replace an op by a simpler one, since most bugs come from how tensors share memory and history, not from the
    op. But if the backend gets the simpler op wrong too, under the same coarse key, the finding would become that op's
    bug. So an op that a candidate brings in must not show a difference by itself, on plain operands or on operands as
    in the candidate, that would explain the key. There is one exception: if more than half of the other ops of its kind
    (:data:`KINDS`) show the key in the same place, the op is not the cause, and the candidate counts.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aotcheck.minimize.edit import inputs_of
from aotcheck.minimize.passes.ops import KINDS, calls_with_places, in_its_place, operands_of, with_call, writes
from aotcheck.minimize.primitive import is_primitive_root, plain_inputs
from aotcheck.oracle import CoarseKey
from aotcheck.program import Call, Expr, Inputs, Literal, OpCall, Program, Ref

__all__ = ["Placed", "alone", "brought_in", "explains", "is_shared", "name_of"]

_MOST_DTYPES = 3


@dataclass(frozen=True)
class Placed:
    """An op call of a program.

    Args:
        at: None for the body, else the number of the call whose inputs it builds.
        index: its number among the op calls there.
        call: the op call.
    """

    at: int | None
    index: int
    call: OpCall


def brought_in(candidate: Program, current: Program) -> list[Placed]:
    """The calls of ``candidate`` to ops that ``current`` calls less often."""
    before = list(calls_with_places(current))
    new = Counter(call.path for _, _, call in calls_with_places(candidate))
    new.subtract(call.path for _, _, call in before)
    kept = {call for _, _, call in before}
    return [Placed(*found) for found in calls_with_places(candidate) if new[found[2].path] > 0 and found[2] not in kept]


def alone(call: OpCall, program: Program) -> Iterator[Program]:
    """Programs with only ``call``, on plain operands of each dtype of ``program``'s inputs, called plainly and as
    ``program`` is called."""
    operands = list(dict.fromkeys(operands_of(call)))
    if not operands:
        return
    given = [t for _, inputs in inputs_of(program) for t in inputs.tensors]
    trained = any(t.requires_grad for t in given) and not writes(call)
    names: dict[Expr, Ref] = {operand: Ref(f"x{index}") for index, operand in enumerate(operands)}
    statement = replace(call, target=None if writes(call) else "v0", args=tuple(names.get(a, a) for a in call.args))
    body, outputs = (statement,), Literal(None) if writes(call) else Ref("v0")
    params = tuple(ref.name for ref in names.values())
    for dtype in list(dict.fromkeys(t.dtype for t in given))[:_MOST_DTYPES]:
        inputs = plain_inputs((dtype,) * len(params), trained)
        plans = (Call(inputs),), tuple(_with(call, inputs) for call in program.calls)
        for plan in dict.fromkeys(plans):
            yield Program(params, body, outputs, plan)


def _with(call: Call, inputs: Inputs) -> Call:
    return call if call.inputs is None else replace(call, inputs=inputs)


def explains(key: CoarseKey, target: CoarseKey) -> bool:
    """True if an op that shows ``key`` by itself may be the cause of ``target`` in a program with the op."""
    return key == target or is_primitive_root(key, target)


def _others_of_its_kind(placed: Placed, program: Program) -> Iterator[Program]:
    """``program`` with each other simple op of the same kind in place of one."""
    for kind in KINDS:
        if placed.call.path in kind:
            for path in kind:
                if path != placed.call.path and (other := in_its_place(placed.call, path)) is not None:
                    yield with_call(program, placed.index, other, placed.at)


def name_of(call: OpCall) -> str:
    """The name of the op, however it is spelled: ``neg`` of ``torch.neg``, ``Tensor.neg`` and
    ``torch.ops.aten.neg.default``."""
    parts = call.path.split(".")
    return parts[3] if call.path.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


Shows = Callable[[Program], bool | None]
"""Whether a program shows the key that is looked for; None where eager does not do it."""


def is_shared(placed: Placed, program: Program, shows: Shows) -> bool:
    """True if most other ops of the kind show the key in the same place."""
    said = [shown for other in _others_of_its_kind(placed, program) if (shown := shows(other)) is not None]
    return 2 * sum(said) > len(said)
