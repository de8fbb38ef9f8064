"""Runs of a program, with what the ladder needs to see of them."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotcheck import _torch
from aotcheck.autograd.api import aot_function
from aotcheck.autograd.counters import counters
from aotcheck.blame.specimen import Specimen
from aotcheck.oracle import Difference, Phase, Place, Severity, compare
from aotcheck.oracle.execute import Observation, Run, identity
from aotcheck.oracle.reference import Reference
from aotcheck.program import Program, Scene, function_of, make_call


class Anew(Run):
    """A program whose calls are each compiled for themselves; ``specimens`` are what was compiled.

    ``prepare`` is called with that of the call ``prepared`` before the call is made.
    """

    def __init__(
        self,
        program: Program,
        device: torch.device,
        prepare: Callable[[Specimen], None] | None = None,
        prepared: int = 0,
    ) -> None:
        super().__init__(program, identity, device)
        self.specimens: list[Specimen] = []
        self.prepare, self.prepared = prepare, prepared

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled for this call."""
        specimen = Specimen(function_of(self.program), scene, self.device)
        self.specimens.append(specimen)
        self.function = specimen.compiled
        if self.prepare is not None and specimen.assembly is not None and len(self.scenes) - 1 == self.prepared:
            self.prepare(specimen)
        return make_call(self.program.calls[len(self.scenes) - 1], self.function, scene.args)


class EagerCall(Run):
    """A program run eagerly until one call has been made; ``edges`` say where the gradients of its inputs arrive."""

    def __init__(self, program: Program, device: torch.device, call: int) -> None:
        super().__init__(program, identity, device)
        self.at = call
        self.edges: dict[str, GradientEdge] = {}
        past(self, call)

    def forward(self, scene: Scene) -> object:
        """The function itself."""
        if len(self.scenes) - 1 == self.at:
            self.edges = {name: e for name, t in scene.inputs.items() if (e := edge(t)) is not None}
        return super().forward(scene)


def past(run: Run, call: int) -> None:
    """Go on with a run until a call has been made."""
    for seen in run.calls():
        if seen.call == call and seen.phase is Phase.FORWARD:
            break


def edge(t: Tensor) -> GradientEdge | None:
    """Where the gradients of a tensor arrive; None where there are none or autograd refuses to say."""
    if not t.requires_grad or _torch.leafness(t) is None:
        return None
    with torch.enable_grad():
        return get_gradient_edge(t)


def first_difference(run: Run, reference: Reference, last: Place | None = None) -> Difference | None:
    """The first hard difference of a run, up to the step that ``last`` is in."""
    for index, compiled in enumerate(run.observations()):
        if index >= len(reference.eager):
            return None
        hard = [d for d in compare(reference.pair(index, compiled)) if d.severity is Severity.HARD]
        if hard:
            return hard[0]
        if last is not None and compiled.step == (last.call, last.phase, last.nth, last.steps):
            return None
    return None


class Reusing(Run):
    """A program run as a caller runs it; ``reused`` are the calls for which no code was made."""

    def __init__(self, program: Program, device: torch.device) -> None:
        super().__init__(program, aot_function, device)
        self.reused: set[int] = set()

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled when it is first called."""
        before = counters().compiled
        try:
            return super().forward(scene)
        finally:
            if counters().compiled == before:
                self.reused.add(len(self.scenes) - 1)


@dataclasses.dataclass(frozen=True)
class Question:
    """What a rung is asked about.

    Args:
        specimen: a call as it was taken apart.
        reference: what eager does with the program.
        call: which call it is, from 0.
        differentiated: a backward came before the difference, or shows it.
        refused: one side refuses a backward that the other does.
    """

    specimen: Specimen
    reference: Reference
    call: int
    differentiated: bool = True
    refused: bool = True

    @property
    def eager(self) -> Observation:
        """What eager shows when the call is over."""
        return self.reference.eager[self.index]

    @property
    def index(self) -> int:
        """Which of eager's observations that is."""
        steps = enumerate(self.reference.eager)
        return next(k for k, o in steps if o.call == self.call and o.phase is Phase.FORWARD)
