"""Runs a program's calls on fresh inputs, eagerly or compiled, and observes everything after each step."""

import io
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from aotcheck.oracle.kinds import Phase, Role
from aotcheck.oracle.raised import Raised, raised
from aotcheck.oracle.snapshot import Snapshot, snapshot
from aotcheck.oracle.state import generator_states, global_state, seed_generators
from aotcheck.program import (
    Backward,
    BuiltCall,
    Call,
    Graph,
    Program,
    Scene,
    Step,
    around,
    build_call,
    forget,
    function_of,
    make_call,
    perform,
    phase_of,
    prints,
    scene_of,
)

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
StepKey = tuple[int, Phase, int, int]
"""The call of a step, its kind, its number among those of its kind, and the number of steps after the function."""


def identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Eager as a compiled path: the specification."""
    return fn


@dataclass(frozen=True)
class Observation:
    """Everything observed after one step of a program.

    Args:
        call: the number of the call, from 0.
        phase: the kind of step.
        raised: the exception that ended the step, if one did.
        structure: the pytrees of the result and of arguments that may be written, see ``Scene.words``.
        constants: the leaves of the result that are not tensors, as ``(name, repr)``.
        snapshot: all tensors of the call that the step is about.
        generators: states of the generators.
        changes: the global state that the step changed.
        firings: how often each hook was called since the last step, by name.
        nth: the number of the step among those of its kind in the call, from 1.
        steps: how many steps had run in the call after the function itself.
        printed: the lines that the step printed, in order; not recorded for a program without an op that prints.
        partly: whether a backward of the call, or of another with the same inputs, was for some inputs only.
        given: how often each hook was called with a gradient since the last step.
    """

    call: int
    phase: Phase
    raised: Raised | None
    structure: str
    constants: tuple[tuple[str, str], ...]
    snapshot: Snapshot
    generators: tuple[torch.Tensor, ...]
    changes: tuple[str, ...]
    firings: tuple[tuple[str, int], ...] = ()
    nth: int = 1
    steps: int = 0
    printed: tuple[str, ...] = ()
    partly: bool = False
    given: tuple[int, ...] = ()

    @property
    def step(self) -> StepKey:
        """Which step this is, whichever others were made."""
        return self.call, self.phase, self.nth, self.steps


class Attempt:
    """Runs one step; then has its exception, the changes that it made to global state, and what it printed.

    Args:
        captures: whether to record what the step prints, in place of printing it.
    """

    def __init__(self, captures: bool = False) -> None:
        self.error: Raised | None = None
        self.changes: tuple[str, ...] = ()
        self._output = io.StringIO() if captures else None

    @property
    def printed(self) -> tuple[str, ...]:
        """The lines that were printed."""
        return () if self._output is None else tuple(self._output.getvalue().splitlines())

    def run(self, action: Callable[[], Any]) -> Any:
        """Run ``action``, record an exception instead of raising it, and restore the grad mode."""
        before = global_state()
        try:
            with nullcontext() if self._output is None else redirect_stdout(self._output):
                return action()
        except BaseException as error:  # whatever a program or a compiler raises is an observation, SystemExit too
            if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                raise  # the user's, not the program's
            self.error = raised(error)
            return None
        finally:
            after = global_state()
            self.changes = before.changes(after)
            if after.grad_mode != before.grad_mode:
                torch.set_grad_enabled(before.grad_mode)


def observe(
    program: Program,
    compile_function: Compile,
    device: torch.device,
    alike: Sequence[Observation] = (),
    raises: Mapping[StepKey, Raised] = MappingProxyType({}),
) -> Iterator[Observation]:
    """Run ``program`` on a compiled path; yields one observation for each call and each step around it.

    A step runs when its observation is asked for, so the caller may stop early. After a call that raises, only
    backwards of earlier calls run among its steps; then the next call runs.

    Args:
        program: the program to run.
        compile_function: the compiled path.
        device: where to run.
        alike: eager's observations, for a path that does not promise aliasing: backwards begin at the outputs at which
            eager's began, even if other outputs are one object here.
        raises: steps that count as if they raised this once they are made, as another run of the program does.
    """
    run = Run(program, compile_function, device)
    run.alike, run.raises = alike, raises
    yield from run.observations()


class Run:
    """A program that runs under observation; ``scenes`` has one scene for each call so far."""

    def __init__(self, program: Program, compile_function: Compile, device: torch.device) -> None:
        self.program, self.compile_function, self.device = program, compile_function, device
        self.function: Callable[..., Any] | None = None
        self.scenes: list[Scene] = []
        self.hooks: list[list[torch.Tensor | None]] = []
        self.broken = False
        self.made: Counter[Phase] = Counter()
        self.steps = 0
        self.alike: Sequence[Observation] = ()
        self.raises: Mapping[StepKey, Raised] = {}
        self.prints = prints(program)

    def build(self, index: int, previous: BuiltCall | None) -> BuiltCall:
        """The arguments of a call; ``previous`` are those of the call before."""
        return build_call(self.program, index, self.device, previous)

    def original(self) -> Callable[..., Any]:
        """The function that is compiled."""
        return function_of(self.program)

    def observations(self) -> Iterator[Observation]:
        """Every call."""
        try:
            yield from self.calls()
        finally:
            forget(self.scenes)  # a gradient with a history and the leaf whose it is hold each other

    def calls(self) -> Iterator[Observation]:
        """Every call; the caller drops the gradients at the end."""
        built: BuiltCall | None = None
        for index, call in enumerate(self.program.calls):
            built = self.build(index, built)
            self.scenes.append(scene_of(built))
            self.made.clear()
            self.steps = 0
            seed_generators(self.device)
            yield from self.call(call)
            if self.function is None:
                return

    def call(self, call: Call) -> Iterator[Observation]:
        """One call and the steps around it."""
        scene = self.scenes[-1]
        for before in call.before:
            yield self.step(before, scene)
        with around(call, self.device):
            step = Attempt(self.prints)
            result = step.run(lambda: self.forward(scene))
        if step.error is None:
            try:
                scene.returned(result)
                scene.distinct = self.distinct(len(self.scenes) - 1)
            except Exception as error:
                step.error = self.unobservable(error)
        yield self.look(step, Phase.FORWARD, scene)
        if self.function is None:
            return
        for made in call.steps:
            self.steps += 1
            ago = made.calls_ago if isinstance(made, Backward) else 0
            left_out = self.broken and isinstance(made, Backward)
            if not left_out and ago < len(self.scenes) and (ago or step.error is None):
                yield self.step(made, self.scenes[-1 - ago])

    def distinct(self, call: int) -> list[str] | None:
        """The names of the outputs that were distinct objects in eager's call; None without eager's observations."""
        shown = next((o for o in self.alike if o.call == call and o.phase is Phase.FORWARD), None)
        if shown is None:
            return None
        first: dict[str, str] = {}
        for t in shown.snapshot.tensors:
            if t.role is Role.OUTPUT:
                first.setdefault(t.identity, t.name)
        return list(first.values())

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled when it is first called."""
        if self.function is None:
            self.function = self.compile_function(self.original())
        return make_call(self.program.calls[len(self.scenes) - 1], self.function, scene.args)

    def step(self, made: Step, scene: Scene) -> Observation:
        """One step of the plan, on the tensors of a call."""
        step, phase = Attempt(self.prints), _PHASES[phase_of(made)]
        partly = any(one.partly for one in self.scenes if one.inputs is scene.inputs)
        step.run(lambda: perform(made, scene, self.hooks, self.device))
        step.error = step.error or self.raises.get((len(self.scenes) - 1, phase, self.made[phase] + 1, self.steps))
        seen = replace(self.look(step, phase, scene), partly=partly)
        if step.error is not None and isinstance(made, Backward):
            # How far it came before it raised is an order that nobody promises; so is what it has freed by then.
            forget(self.scenes)
            self.broken = self.broken or made.graph in (Graph.FREED, Graph.CREATED_FREED)
        return seen

    def look(self, step: Attempt, phase: Phase, scene: Scene) -> Observation:
        """The observation after a step."""
        self.made[phase] += 1
        failed = phase.differentiates and step.error is not None
        given = {**scene.inputs, **scene.held()}
        try:
            shown = snapshot(given.items(), scene.outputs.items(), () if failed else self.further(scene))
        except Exception as error:
            # Or a call that raised has left the process so that nothing can be looked at.
            if step.error is None or self.compile_function is identity:
                step.error = self.unobservable(error)
            shown = Snapshot((), (), ())
        seen = Observation(
            len(self.scenes) - 1,
            phase,
            step.error,
            scene.words(),
            tuple(scene.constants.items()),
            shown,
            generator_states(self.device),
            step.changes,
            () if failed else tuple((f"hook[{k}]", len(seen)) for k, seen in enumerate(self.hooks)),
            self.made[phase],
            self.steps,
            step.printed,
            given=() if failed else tuple(sum(g is not None for g in seen) for seen in self.hooks),
        )
        for gradients in self.hooks:
            gradients.clear()
        return seen

    def unobservable(self, error: Exception) -> Raised:
        """The text for a result of a compiled path that cannot be observed, such as a fake tensor.

        Eager's results can be observed; if not, the error is raised.
        """
        if self.compile_function is identity:
            raise error
        seen = raised(error)
        return replace(seen, message=f"what it gives cannot be looked at: {seen.message}", cause="")

    def further(self, scene: Scene) -> Iterator[tuple[Role, str, torch.Tensor | None]]:
        """Gradients that are in no ``.grad`` of an input or output, and gradients of cotangents."""
        for k, gradient in enumerate(scene.results):
            yield Role.RESULT, f"result[{k}]", gradient
        for k, tensor in enumerate(scene.cotangents):
            yield Role.GRADIENT, f"cotangent[{k}].grad", tensor.grad
        for k, gradients in enumerate(self.hooks):
            for n, gradient in enumerate(gradients):
                yield Role.HOOK, f"hook[{k}][{n}]", gradient


_PHASES = {phase.value: phase for phase in Phase}


def role_of(name: str) -> Role:
    """Whether ``name`` is an output's or an input's."""
    return Role.OUTPUT if name == "output" or name.startswith(("output[", "output.")) else Role.INPUT
