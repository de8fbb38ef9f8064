"""What the caller does: calls, their steps, and whether they share inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace

from aotcheck.program import Backward, Call, Inputs, Probe, Program

__all__ = ["delete_calls", "delete_steps", "same_inputs", "simplify_steps"]


def _effective(calls: tuple[Call, ...], index: int) -> Inputs | None:
    """The inputs of a call, or of the call whose arguments it reuses."""
    return next((c.inputs for c in reversed(calls[: index + 1]) if c.inputs is not None), None)


def _with_calls(program: Program, kept: list[int]) -> Program:
    """Some of the calls; one that reused the arguments of a call that is gone gets inputs of its own."""
    made: list[Call] = []
    for place, index in enumerate(kept):
        call = program.calls[index]
        if call.inputs is None and (place == 0 or kept[place - 1] != index - 1):
            call = replace(call, inputs=_effective(program.calls, index))
        made.append(call)
    return replace(program, calls=tuple(made))


def delete_calls(program: Program) -> Iterator[Program]:
    """Each call alone, then all but each."""
    count = len(program.calls)
    if count > 1:
        for index in range(count):
            yield _with_calls(program, [index])
    if count > 2:
        for index in range(count):
            yield _with_calls(program, [i for i in range(count) if i != index])


def _with_call(program: Program, index: int, call: Call) -> Program:
    return replace(program, calls=(*program.calls[:index], call, *program.calls[index + 1 :]))


def _defaults(call: Call) -> dict[str, object]:
    """The fields of a call that are not at their default, with it."""
    return {
        f.name: f.default
        for f in fields(Call)
        if f.name != "inputs" and f.default is not MISSING and getattr(call, f.name) != f.default
    }


def delete_steps(program: Program) -> Iterator[Program]:
    """Nothing but the call; then each step on its own."""
    for index, call in enumerate(program.calls):
        defaults = _defaults(call)
        if len(defaults) > 1:
            yield _with_call(program, index, replace(call, **defaults))  # type: ignore[arg-type]  # its own defaults
        for name, default in defaults.items():
            yield _with_call(program, index, replace(call, **{name: default}))  # type: ignore[arg-type]
        for i in range(len(call.probes)):
            yield _with_call(program, index, replace(call, probes=call.probes[:i] + call.probes[i + 1 :]))


def same_inputs(program: Program) -> Iterator[Program]:
    """A later call on the same arguments again, or on equal ones."""
    for index, call in enumerate(program.calls[1:], 1):
        before = _effective(program.calls, index - 1)
        if call.inputs is not None and before is not None:
            yield _with_call(program, index, replace(call, inputs=None))
            yield _with_call(program, index, replace(call, inputs=before))


def _simpler_backwards(backward: Backward) -> Iterator[Backward]:
    outputs = backward.outputs
    yield replace(backward, outputs=(0,))
    for i in range(len(outputs)):
        if len(outputs) > 1:
            yield replace(backward, outputs=(outputs[i],))
            yield replace(backward, outputs=outputs[:i] + outputs[i + 1 :])
    yield replace(backward, outputs=tuple(range(len(outputs))))
    for seed in range(backward.cotangent):
        yield replace(backward, cotangent=seed)


def _simpler_probes(probe: Probe) -> Iterator[Probe]:
    for index in range(probe.index):
        yield replace(probe, index=index)
    for seed in range(probe.seed):
        yield replace(probe, seed=seed)


def simplify_steps(program: Program) -> Iterator[Program]:
    """Backwards through fewer outputs, smaller numbers."""
    for index, call in enumerate(program.calls):
        if call.backward is not None:
            for backward in _simpler_backwards(call.backward):
                yield _with_call(program, index, replace(call, backward=backward))
        for i, probe in enumerate(call.probes):
            for simpler in _simpler_probes(probe):
                probes = (*call.probes[:i], simpler, *call.probes[i + 1 :])
                yield _with_call(program, index, replace(call, probes=probes))
