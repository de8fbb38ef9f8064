"""What a stream of programs looks like: sizes and shares."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Profile"]


@dataclass(frozen=True)
class Profile:
    """How programs are drawn; percentages of programs.

    Attributes:
        statements: most statements in a body, before the ones that index tensors need.
        idioms: how many of the statements are the first of several that belong together.
        refused: how many are to hold a statement that eager refuses.
        inexact: how many may use ops that round.
        random: how many may draw random numbers.
        second_call: how many make a second call.
        third_call: of those, how many make a third.
        calls: of differentiable calls, how many have a plan of several backwards or of higher derivatives.
        alike: of those, how many have arguments of the first call's geometry.
        inside: how many may tell autograd something while they run (gradients, hooks, checkpoints, autocast) and call
            modules.
        wrappers: how many may hold tensors of wrapper subclasses.
        written_inputs: of backwards with respect to inputs that the call has written, how many stay so.
        trained_later: of further calls of programs whose first call trains nothing, how many train something.
        trained_writes: of a caller's writes to results and arguments, how many are with what has a gradient of its own.
        interleaved: of further calls, how many come before backwards of the call before.
    """

    statements: int = 9
    idioms: int = 12
    refused: int = 12
    inexact: int = 30
    random: int = 30
    second_call: int = 34
    third_call: int = 15
    calls: int = 94
    trained_later: int = 60
    interleaved: int = 30
    alike: int = 50
    inside: int = 40
    wrappers: int = 70
    written_inputs: int = 50
    trained_writes: int = 0

    @property
    def undrawn(self) -> frozenset[str]:
        """The traits (:mod:`aotcheck.program.traits`) that no such program has."""
        without = {
            ("op:autograd", "op:module", "context:block-autocast"): self.inside,
            ("op:subclass", "input:subclass"): self.wrappers,
            ("step:probe-trained",): self.trained_writes,
        }
        return frozenset(trait for traits, share in without.items() if not share for trait in traits)
