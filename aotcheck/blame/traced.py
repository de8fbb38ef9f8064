"""The rung of the trace: the tensors of the call as the trace describes them, against eager's."""

import dataclasses
from collections.abc import Sequence

from aotcheck.blame.runs import Question
from aotcheck.oracle import Difference, OracleKind, Severity, compare
from aotcheck.oracle.execute import Observation
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.snapshot import Snapshot, TensorFacts

_PLAIN = ("Tensor", "Parameter")
_OF_AUTOGRAD = (OracleKind.REQUIRES_GRAD, OracleKind.LEAFNESS, OracleKind.GRAD_FN)


def judge_trace(question: Question) -> str:
    """What the trace says of the call's tensors when it is over, against what eager shows."""
    specimen, eager = question.specimen, question.eager
    if specimen.refusal:
        return ""
    if specimen.assembly is None or specimen.replicas is None:
        if eager.raised is None and specimen.raised is not None:
            return f"tracing {specimen.raised}, eager raises nothing"
        return ""
    names = list(specimen.inputs_traced)
    snapshot, scene, done = specimen.traced(names)
    if done.raised is not None or eager.raised is not None:
        if (done.raised is None) != (eager.raised is None):
            return f"eager {eager.raised or 'raises nothing'}, the trace {done.raised or 'raises nothing'}"
        return ""
    traced = dataclasses.replace(
        eager,
        structure=scene.words(),
        constants=tuple(scene.constants.items()),
        snapshot=snapshot,
        generators=done.generators,
    )
    pair = question.reference.pair(question.index, traced)
    pair = dataclasses.replace(
        pair, eager=_restricted(pair.eager, names), fills=tuple(_restricted(fill, names) for fill in pair.fills)
    )
    hard = [d for d in compare(pair) if d.severity is Severity.HARD]
    if specimen.capture.entry_inference:  # replicas are asked afterwards, when autograd looks for their histories
        hard = [d for d in hard if d.oracle not in _OF_AUTOGRAD]
    return _said(hard[0], "the trace") if hard else ""


def _said(d: Difference, who: str) -> str:
    return f"{d.oracle.value} of {d.place.name or d.place.role.value}: eager {d.eager}, {who} {d.compiled}"


def _restricted(seen: Observation, names: Sequence[str]) -> Observation:
    """An observation without gradients, hooks and wrappers, and of the inputs only ``names``."""
    kept: list[TensorFacts] = []
    storages: dict[str, str] = {}
    objects: dict[str, str] = {}
    for facts in seen.snapshot.tensors:
        if facts.type not in _PLAIN or (facts.role is Role.INPUT and facts.name not in names):
            continue
        storage = storages.setdefault(facts.storage, facts.name)
        identity = objects.setdefault(facts.identity, facts.name)
        kept.append(dataclasses.replace(facts, storage=storage, identity=identity))
    contents = {name: value for name, value in seen.snapshot.storages if name in names}
    return dataclasses.replace(seen, snapshot=Snapshot(tuple(kept), tuple(contents.items()), ()), firings=(), given=())
