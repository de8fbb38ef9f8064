"""What traces of a function were found to need beyond what its calls bring; later keys and traces have it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch

from aotcheck.autograd.errors import (
    RetraceApart,
    RetraceWithCallerGraph,
    RetraceWithCasts,
    RetraceWithGradients,
    RetraceWithValues,
)

NEEDS = (RetraceApart, RetraceWithCallerGraph, RetraceWithCasts, RetraceWithGradients, RetraceWithValues)
"""What a trace raises that ``Needs.learn`` learns from."""


class Needs:
    """What the traces of one function needed so far.

    ``structure`` is that of a call; ``region`` says which autocast is in force besides.
    """

    __slots__ = ("_apart", "_casts", "_formulas", "_not_cast", "_valued", "backwards", "gradients", "swaps")

    def __init__(self) -> None:
        self.gradients = False  # whether the gradients of arguments are arguments too
        self.backwards = False  # whether the function is known to call backwards
        self.swaps = False  # whether it is known to swap arguments, which asks whether views of them are held
        # By region: the arguments that autocast casts, and to what; those that others cast alike.
        self._casts: dict[Hashable, dict[int, torch.dtype]] = {}
        self._not_cast: dict[Hashable, frozenset[int]] = {}
        # By structure:
        self._valued: dict[Hashable, frozenset[int]] = {}  # see Note [Values in the key]
        self._formulas: dict[Hashable, tuple[bool, ...]] = {}  # that data asked for last: see Note [Formulas for data]
        self._apart: dict[Hashable, frozenset[str]] = {}  # see Note [Functions cut off]

    def learn(self, needed: BaseException, structure: Hashable, region: Hashable) -> None:
        """A trace has raised ``needed``, one of ``NEEDS``."""
        match needed:
            case RetraceWithGradients():
                self.gradients = True
            case RetraceWithCallerGraph():
                self.backwards = True
            case RetraceWithValues():
                self._valued[structure] = self.valued(structure) | needed.indices
            case RetraceApart():
                self._apart[structure] = self.apart(structure) | needed.args[0]
            case RetraceWithCasts():
                self._casts[region] = {**needed.args[0], **self.casts(region)}

    def casts(self, region: Hashable) -> Mapping[int, torch.dtype]:
        """The arguments that autocast casts, and to what."""
        return self._casts.get(region, {})

    def asked_to_cast(self, region: Hashable) -> frozenset[int]:
        """Those of which it is known whether it does."""
        return frozenset(self._casts.get(region, ())) | self._not_cast.get(region, frozenset())

    def note_not_cast(self, region: Hashable, unused: frozenset[int]) -> None:
        """The casts of these were not used."""
        self._not_cast[region] = self._not_cast.get(region, frozenset()) | unused
        self._casts[region] = {k: to for k, to in self._casts[region].items() if k not in unused}

    def valued(self, structure: Hashable) -> frozenset[int]:
        """The arguments whose values are part of the key."""
        return self._valued.get(structure, frozenset())

    def formulas(self, structure: Hashable) -> tuple[bool, ...]:
        """Which formulas backwards inside are traced with, where that depends on data."""
        return self._formulas.get(structure, ())

    def note_formulas(self, structure: Hashable, asked: tuple[bool, ...]) -> None:
        """Data have asked for these."""
        self._formulas[structure] = asked

    def apart(self, structure: Hashable) -> frozenset[str]:
        """The names of custom Functions that are cut off."""
        return self._apart.get(structure, frozenset())
