"""Finds the wrong step of a record: follows one fact of one tensor through the steps of the call.

Note [Timeline]
The runtime is generated straight-line code, one line per step. The call runs again, and the tensor that differs is
inspected after each line. The last step that changed the wrong fact is wrong. If no step changed the fact, a step that
should change it is missing.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.trace import flat_geometry
from aotcheck.autograd.record.record import Record
from aotcheck.autograd.record.steps import Arg, BaseOf, Constant, Local, Ref, Result
from aotcheck.blame.describe import describe_step
from aotcheck.blame.describe import name as name_of
from aotcheck.blame.specimen import Moment, Specimen, dense, window
from aotcheck.oracle import Difference, OracleKind
from aotcheck.oracle.kinds import Role


@dataclasses.dataclass(frozen=True)
class Wrong:
    """What is wrong with a record: in words, and which of the lines that describe it; None if one is missing."""

    text: str
    line: int | None = None


Fact = Callable[[Tensor], object]
Again = Callable[[Callable[[Specimen], None]], None]
"""Runs a program again up to a call, after what it is given was called with the call's specimen."""

_FACTS: Mapping[OracleKind, Fact] = {
    OracleKind.TYPE: lambda t: type(t).__qualname__,
    OracleKind.DTYPE: lambda t: t.dtype,
    OracleKind.DEVICE: lambda t: t.device,
    OracleKind.SHAPE: lambda t: tuple(t.shape),
    OracleKind.STRIDE: lambda t: t.stride(),
    OracleKind.STORAGE_OFFSET: lambda t: int(t.storage_offset()),
    OracleKind.STORAGE_SIZE: lambda t: t.untyped_storage().nbytes(),
    OracleKind.REQUIRES_GRAD: lambda t: t.requires_grad,
    OracleKind.LEAFNESS: _torch.leafness,
    OracleKind.GRAD_FN: lambda t: _torch.grad_fn_of(t) is not None,
    OracleKind.CONJ: lambda t: t.is_conj(),
    OracleKind.NEG: lambda t: t.is_neg(),
    OracleKind.INFERENCE: lambda t: t.is_inference(),
    OracleKind.ALIASING: _torch.storage_key,
    OracleKind.IDENTITY: id,
}


class Timeline:
    """What ``look`` sees of the tensor ``ref`` at each moment of a call at which it is there."""

    def __init__(self, ref: Ref, look: Fact) -> None:
        self.ref, self.look = ref, look
        self.seen: list[tuple[Moment, object]] = []
        self.last: Moment | None = None
        self.kept: list[Tensor] = []  # so that no address is used twice

    def __call__(self, moment: Moment, scope: Mapping[str, Any]) -> None:
        """Look now."""
        self.last = moment
        t = _found(self.ref, scope)
        if t is not None:
            self.kept.append(t)
            self.seen.append((moment, self.look(t)))

    @property
    def changes(self) -> list[tuple[Moment, object]]:
        """The moments at which the fact became another, the first included if the call made the tensor."""
        made_inside = isinstance(self.ref, (Result, Local))
        changed = self.seen[:1] if made_inside else []
        for (_, before), (moment, after) in zip(self.seen, self.seen[1:], strict=False):
            if not _equal(before, after):
                changed.append((moment, after))
        return changed


def _found(ref: Ref, scope: Mapping[str, Any]) -> Tensor | None:
    match ref:
        case Arg(index):
            found = scope["a"][index]
        case BaseOf(index):
            found = _torch.base_of(scope["a"][index])
        case Result(index):
            found = scope.get(f"r{index}")
        case Local(index):
            found = scope.get(f"l{index}")
    return found if isinstance(found, Tensor) else None


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())
    return a == b


def wrong_step(again: Again, difference: Difference, specimen: Specimen) -> Wrong | None:
    """The step to blame for ``difference``, which the runtime shows; None where none is more likely than another.

    Args:
        again: runs the program again up to the call.
        difference: what the run showed.
        specimen: the call as it was taken apart.
    """
    record = specimen.opened.record
    if not difference.place.phase.differentiates and difference.place.role in (Role.INPUT, Role.OUTPUT):
        ref = _ref(specimen, difference.place.role, difference.place.name)
        if isinstance(ref, Constant) or ref is None or difference.oracle is OracleKind.IDENTITY:
            return Wrong(f"returns another tensor as {difference.place.name}", len(lines(record)) - 1)
        look = _FACTS.get(difference.oracle) or (_contents if difference.place.role is Role.INPUT else _value)
        return _told(record, _run(again, ref, look), difference)
    if difference.oracle is OracleKind.EXCEPTION and not difference.place.phase.differentiates:
        return _raising(record, _run(again, Arg(0), _nothing))
    if difference.oracle is OracleKind.GLOBAL_STATE:
        return _told(record, _run(again, Arg(0), lambda t: torch.is_grad_enabled()), difference)
    return _history(again, specimen, difference)


def _run(again: Again, ref: Ref, look: Fact) -> Timeline:
    timeline = Timeline(ref, look)
    again(lambda specimen: specimen.watch(timeline))
    return timeline


def _ref(specimen: Specimen, role: Role, name: str) -> Ref | Constant | None:
    return specimen.argument(name) if role is Role.INPUT else specimen.returned(name)


def _contents(t: Tensor) -> Tensor:
    storage = t.untyped_storage()
    return window(storage, flat_geometry(storage.nbytes(), torch.uint8)).clone()


def _value(t: Tensor) -> object:
    try:
        return dense(t)
    except RuntimeError:  # freed memory
        return None


def _nothing(t: Tensor) -> object:
    return None


# -- in words


def lines(record: Record) -> list[Moment | None]:
    """For each line that describes a record, the moment after which it has been carried out."""
    return [Moment.GRAPH, *[Moment.step(k) for k in range(len(record.all_steps))], None]


def _at(record: Record, moment: Moment) -> tuple[str, int]:
    """A moment in words, and its line."""
    line = lines(record).index(moment) if moment in lines(record) else 0
    if moment.number is not None:
        return f"step {moment.number + 1} ({describe_step(record.all_steps[moment.number], record)})", line
    return "the graph", line


def _told(record: Record, timeline: Timeline, difference: Difference) -> Wrong:
    name, kind = difference.place.name or difference.place.role.value, difference.oracle.value
    changes = timeline.changes
    if not changes:
        return Wrong(
            f"no step changes the {kind} of {name}: it has {difference.compiled}, eager has {difference.eager}"
        )
    where, line = _at(record, changes[-1][0])
    if changes[-1][0] == Moment.GRAPH:
        if difference.oracle is OracleKind.VALUES:  # what the graph gives is right: see Note [Ladder]
            return Wrong(f"returns {name_of(timeline.ref)} as {name}: {difference.text}", len(lines(record)) - 1)
        return Wrong(
            f"no step changes the {kind} of {name}: it has {difference.compiled}, eager has {difference.eager}"
        )
    return Wrong(f"{where} leaves {name} with {kind} {difference.compiled}, eager has {difference.eager}", line)


def _raising(record: Record, timeline: Timeline) -> Wrong:
    reached = timeline.last
    order = [m for m in lines(record) if m is not None]
    after = order.index(reached) + 1 if reached in order else 0
    if after < len(order):
        where, line = _at(record, order[after])
        return Wrong(f"{where} raises", line)
    return Wrong("raises where the record is done", len(order))


def _history(again: Again, specimen: Specimen, difference: Difference) -> Wrong | None:
    """A step that gives a tensor another history than eager's: found by whether it has another one at all."""
    record = specimen.opened.record
    last: tuple[Moment, str] | None = None
    for name in specimen.scene.inputs:
        ref: Ref | Constant | None = specimen.argument(name)
        if not isinstance(ref, Arg):
            continue
        changes = _run(again, ref, _torch.grad_fn_of).changes
        expected = specimen.has_another_history(name)
        if expected and not changes:
            return Wrong(f"no step gives {name} the history that it has in the trace: {difference.text}")
        if changes and not expected:
            where, line = _at(record, changes[-1][0])
            return Wrong(f"{where} gives {name} a history that it has not in the trace: {difference.text}", line)
        if changes:
            last = changes[-1][0], name
    replicas = specimen.replicas
    for name in replicas.outputs if replicas is not None else ():
        ref = specimen.returned(name)
        if isinstance(ref, (Result, Local)):
            changes = _run(again, ref, _torch.grad_fn_of).changes
            if changes and changes[-1][0].number is not None:
                last = changes[-1][0], name
    if last is None:
        return None
    where, line = _at(record, last[0])
    return Wrong(f"{where} is the last to change the history of {last[1]}: {difference.text}", line)
