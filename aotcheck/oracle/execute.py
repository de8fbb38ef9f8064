"""Run a program's calls on fresh inputs and observe everything after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck.oracle.kinds import Phase, Role
from aotcheck.oracle.raised import Raised, raised
from aotcheck.oracle.snapshot import Snapshot, snapshot
from aotcheck.oracle.state import generator_states, global_state, seed_generators
from aotcheck.program import (
    Backward,
    BuiltCall,
    GradMode,
    Probe,
    Program,
    Site,
    build_call,
    cotangent,
    function_of,
    poke,
)

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Observation:
    """Everything seen after one step of a call.

    Args:
        call: which call of the plan.
        phase: which step.
        raised: the exception that ended the step, if one did.
        structure: the pytree of the result, leaves by type.
        constants: the leaves of the result that are not tensors, as ``(name, repr)``.
        snapshot: all tensors.
        generators: states of the generators.
        changes: what of the process's state differs from before the step.
    """

    call: int
    phase: Phase
    raised: Raised | None
    structure: str
    constants: tuple[tuple[str, str], ...]
    snapshot: Snapshot
    generators: tuple[torch.Tensor, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Leaves:
    """A result taken apart: its structure, its tensors and its other leaves by name."""

    structure: str
    tensors: tuple[tuple[str, torch.Tensor], ...]
    constants: tuple[tuple[str, str], ...]


def leaves_of(result: object) -> Leaves:
    """Take ``result`` apart. Containers are told apart by their exact type, dicts by the order of their keys."""
    tensors: list[tuple[str, torch.Tensor]] = []
    constants: list[tuple[str, str]] = []

    def walk(value: object, name: str) -> str:
        if isinstance(value, torch.Tensor):
            tensors.append((name, value))
            return "Tensor"
        if isinstance(value, (tuple, list)):
            inside = ", ".join(walk(item, f"{name}[{i}]") for i, item in enumerate(value))
            return f"{type(value).__qualname__}({inside})"
        if isinstance(value, dict):
            inside = ", ".join(f"{key!r}: {walk(item, f'{name}[{key!r}]')}" for key, item in value.items())
            return f"{type(value).__qualname__}({inside})"
        constants.append((name, repr(value)))
        return type(value).__qualname__

    return Leaves(walk(result, "output"), tuple(tensors), tuple(constants))


_NOTHING = Leaves("", (), ())


class _Step:
    """What is compared with what it was before the step, and the step's exception."""

    def __init__(self) -> None:
        self.before = global_state()
        self.error: Raised | None = None

    def run(self, action: Callable[[], Any]) -> Any:
        """Run ``action``; an exception is remembered instead of raised."""
        try:
            return action()
        except Exception as error:  # whatever a program or a compiler raises is an observation
            self.error = raised(error)
            return None


def observe(program: Program, compile_function: Compile, device: torch.device) -> Iterator[Observation]:
    """Run ``program`` on a compiled path, one observation per step: each call, its backward, its probes.

    The caller may stop early: nothing runs that has not been asked for. After a call that raises, its backward and
    probes are left out, and the next call is made.
    """
    function: Callable[..., Any] | None = None
    built: BuiltCall | None = None
    for index, call in enumerate(program.calls):
        built = build_call(program, index, device, built)
        inputs = tuple(built.named.items())
        arguments = built.args
        outcome = _NOTHING

        def look(step: _Step, phase: Phase) -> Observation:
            after = global_state()
            if after.grad_mode != step.before.grad_mode:
                torch.set_grad_enabled(step.before.grad_mode)
            return Observation(
                index,  # noqa: B023  # called within the iteration
                phase,
                step.error,
                outcome.structure,  # noqa: B023
                outcome.constants,  # noqa: B023
                snapshot(inputs, outcome.tensors),  # noqa: B023
                generator_states(device),
                step.before.changes(after),
            )

        seed_generators(device)
        with torch.set_grad_enabled(call.grad_mode is GradMode.ENABLED):
            step = _Step()
            if function is None:
                function = step.run(lambda: compile_function(function_of(program)))
            if function is not None:
                compiled = function
                result = step.run(lambda: compiled(*arguments))  # noqa: B023
                if step.error is None:
                    outcome = leaves_of(result)
            yield look(step, Phase.FORWARD)
        if step.error is not None:
            if function is None:
                return
            continue
        if call.backward is not None:
            step, backward = _Step(), call.backward
            step.run(lambda: _backward(backward, outcome.tensors))  # noqa: B023
            yield look(step, Phase.BACKWARD)
            if step.error is not None:
                _forget_gradients(inputs)
        for probe in call.probes:
            step = _Step()
            sides = {Site.OUTPUT: outcome.tensors, Site.INPUT: leaves_of(arguments).tensors}
            step.run(lambda: _probe(probe, sides[probe.site]))  # noqa: B023
            yield look(step, Phase.PROBE)


NamedTensors = tuple[tuple[str, torch.Tensor], ...]


def _backward(backward: Backward, outputs: NamedTensors) -> None:
    """Through the chosen ones of the distinct outputs that require grad, into the ``.grad`` of the leaves."""
    roots = list({id(t): t for _, t in outputs if t.requires_grad}.values())
    chosen = [roots[i] for i in backward.outputs if i < len(roots)]
    if chosen:
        torch.autograd.backward(chosen, [cotangent(t, backward.cotangent) for t in chosen])


def _forget_gradients(inputs: NamedTensors) -> None:
    """What a backward that raised had accumulated by then is an order that nobody promises: later steps start anew."""
    for _, t in inputs:
        if t.requires_grad and t.grad is not None:
            t.grad = None


def _probe(probe: Probe, side: NamedTensors) -> None:
    if probe.index < len(side):
        poke(side[probe.index][1], probe.seed)


def role_of(name: str) -> Role:
    """Whether ``name`` is an output's or an input's."""
    return Role.OUTPUT if name == "output" or name.startswith("output[") else Role.INPUT
