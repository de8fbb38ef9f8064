"""What of a program's calls a backend can be asked to make, by what it promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from aotcheck.backends import Promise
from aotcheck.oracle.execute import Observation
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.snapshot import TensorFacts, snapshot
from aotcheck.program import Backward, Call, Graph, Of, Program, Step, build_call, scene_of


def as_promised(program: Program, promises: frozenset[Promise]) -> tuple[Program, int]:
    """``program`` without double backward, where that is not promised, and how many steps this changed."""
    if Promise.DOUBLE_BACKWARD in promises:
        return program, 0
    changed = 0
    calls = []
    for call in program.calls:
        steps = tuple(step for step in map(_once, call.steps) if step is not None)
        changed += sum(_once(step) != step for step in call.steps)
        calls.append(replace(call, steps=steps))
    return (replace(program, calls=tuple(calls)), changed) if changed else (program, 0)


def _once(step: Step) -> Step | None:
    if not isinstance(step, Backward):
        return step
    if step.of is not Of.OUTPUTS:
        return None
    graph = Graph.RETAINED if step.graph is Graph.CREATED else step.graph
    return replace(step, graph=Graph.FREED if graph is Graph.CREATED_FREED else graph)


def calls_with_the_first_key(program: Program, device: torch.device, eager: Sequence[Observation]) -> int:
    """The number of calls up to the first whose key differs from the first call's.

    The key is what a specialization may rely on: arguments that are no tensors, grad mode and contexts, and each
    tensor's metadata, sharing and offset. For a call on the same arguments as the one before, it is read from what
    eager left of them.
    """
    first = None
    for index, call in enumerate(program.calls):
        facts: Iterable[TensorFacts]
        given = ""
        if call.inputs is None:
            last = [o for o in eager if o.call == index - 1][-1]
            facts = last.snapshot.tensors
            given = last.structure.partition("; given ")[2]
        else:
            scene = scene_of(build_call(program, index, device, None))
            facts = snapshot(scene.inputs.items(), ()).tensors
            given = scene.words().partition("; given ")[2]
        key = (given, _constants(program.calls, index), call.grad_mode, call.around, tuple(map(_key, _inputs(facts))))
        if first is None:
            first = key
        elif key != first:
            return index
    return len(program.calls)


def _constants(calls: Sequence[Call], index: int) -> object:
    inputs = next(call.inputs for call in reversed(calls[: index + 1]) if call.inputs is not None)
    return inputs.args


def _inputs(facts: Iterable[TensorFacts]) -> Iterable[TensorFacts]:
    return (t for t in facts if t.role is Role.INPUT)


def _key(t: TensorFacts) -> tuple[object, ...]:
    layout = (t.type, t.dtype, t.device, t.shape, t.stride, t.offset, t.storage, t.identity)
    return (*layout, t.requires_grad, t.is_leaf, t.conj, t.neg, t.inference)
