"""The calls and steps of a program that a backend can be asked for, given its promises."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from aotcheck.backends import Promise
from aotcheck.oracle.execute import Observation
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.snapshot import TensorFacts, snapshot
from aotcheck.program import Backward, Call, Graph, Hook, Of, Probe, Program, Site, Step, build_call, scene_of


def as_promised(program: Program, promises: frozenset[Promise]) -> tuple[Program, Mapping[Promise, int]]:
    """``program`` without the steps that ask for what is not promised, and how many steps were left out or changed, by
    promise.

    Without gradients these are backwards, hooks and writes to gradients; without double backward, backwards of
    gradients and ``create_graph``; without aliasing, the caller's writes after a call.
    """
    changed: Counter[Promise] = Counter()

    def asked(steps: tuple[Step, ...], after: bool) -> Iterator[Step]:
        for step in steps:
            promise, made = _as_promised(step, promises, after)
            if promise is not None:
                changed[promise] += 1
            if made is not None:
                yield made

    calls = tuple(
        replace(call, before=tuple(asked(call.before, False)), steps=tuple(asked(call.steps, True)))
        for call in program.calls
    )
    return (replace(program, calls=calls), changed) if changed else (program, changed)


def _as_promised(step: Step, promises: frozenset[Promise], after: bool) -> tuple[Promise | None, Step | None]:
    """The promise that a step would need and that is not given, and what is made in its place."""
    gradients = isinstance(step, Backward | Hook) or step.site is Site.GRADIENT
    if gradients and Promise.GRADIENTS not in promises:
        return Promise.GRADIENTS, None
    if isinstance(step, Probe) and after and Promise.ALIASING not in promises:
        return Promise.ALIASING, None
    if isinstance(step, Backward) and Promise.DOUBLE_BACKWARD not in promises:
        made = _once(step)
        return (None, step) if made == step else (Promise.DOUBLE_BACKWARD, made)
    return None, step


def _once(step: Backward) -> Backward | None:
    if step.of is not Of.OUTPUTS:
        return None
    graph = Graph.RETAINED if step.graph is Graph.CREATED else step.graph
    return replace(step, graph=Graph.FREED if graph is Graph.CREATED_FREED else graph)


def calls_with_the_first_key(program: Program, device: torch.device, eager: Sequence[Observation]) -> int:
    """The number of calls up to the first whose key differs from the first call's.

    The key has what a specialization may rely on: arguments that are no tensors, grad mode and contexts, and the
    metadata, sharing and offset of each tensor. If a call has the arguments of the call before, their key is read from
    eager's observations after that call.
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
