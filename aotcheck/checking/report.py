"""What a check found: a result for each variation, and the report of all."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from aotcheck.checking.variations import Variation
from aotcheck.oracle import Difference

__all__ = ["AS_GIVEN", "DifferenceError", "Report", "Result", "Standing"]

AS_GIVEN = "as given"
"""The variation that changes nothing."""

RAISED_IN_NEARLY_ALL = 0.75
"""If eager raises in this share of variations, a check proves nothing."""


class Standing(Enum):
    """The outcome of a variation."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REFUSED = "refused"
    UNSTABLE = "eager differs from itself"
    EAGER_FAILS = "eager ends the process"
    NOT_PROMISED = "not promised"
    NOT_APPLICABLE = "not applicable"


_NOT_TRIED = (Standing.NOT_APPLICABLE, Standing.NOT_PROMISED)


class DifferenceError(AssertionError):
    """A backend does not do as eager does; the message is a line for each kind of difference."""


@dataclass(frozen=True)
class Result:
    """The result of a variation.

    Args:
        variation: the variation.
        standing: its outcome.
        differences: the hard differences of the first step that has any, causes before consequences.
        reason: the reason of a refusal, or how a process ended.
        raised: what eager raised; the backend must raise it too.
        refused_at_once: eager raised in the first call, so nothing else was compared.
    """

    variation: Variation
    standing: Standing
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    raised: str = ""
    refused_at_once: bool = False

    @property
    def text(self) -> str:
        """One line for people."""
        if self.differences:
            more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
            return f"{self.differences[0].text}{more}"
        if self.reason:
            return self.reason
        return f"both raise: {self.raised}" if self.raised and self.standing is Standing.AGREES else ""

    @property
    def kind(self) -> str:
        """A text that is equal for results that differ only in numbers."""
        return str(self.differences[0].key) if self.differences else self.text


@dataclass(frozen=True)
class Note:
    """A difference that several variations show.

    Args:
        text: the difference of the first one.
        results: the results of all of them.
    """

    text: str
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Report:
    """The result of :func:`check`; prints as a table.

    Args:
        name: the function's name.
        backend: the name of the backend that was compared with eager.
        results: the result of each variation, in the order in which they were tried.
        lies: a sentence for each custom op that did what its schema denies.
        untried: how many variations were not tried, since too many before them hung.
    """

    name: str
    backend: str
    results: tuple[Result, ...]
    lies: tuple[str, ...] = ()
    untried: int = 0

    def of(self, *standings: Standing) -> tuple[Result, ...]:
        """The results with one of these standings."""
        return tuple(result for result in self.results if result.standing in standings)

    @property
    def tried(self) -> tuple[Result, ...]:
        """The results of variations that apply to the arguments."""
        return tuple(result for result in self.results if result.standing is not Standing.NOT_APPLICABLE)

    @property
    def unchecked(self) -> str:
        """A sentence if eager fails as given and nearly always, so that too little was compared; else empty."""
        tried = [result for result in self.results if result.standing not in _NOT_TRIED]
        failed = [r for r in tried if r.refused_at_once or r.standing is Standing.EAGER_FAILS]
        plain = next((result for result in failed if result.variation.name == AS_GIVEN), None)
        if plain is None or len(failed) < RAISED_IN_NEARLY_ALL * len(tried):
            return ""
        said = plain.raised or plain.reason
        return f"eager fails in {len(failed)} of {len(tried)} variations, so nothing is proved: {said}"

    @property
    def agrees(self) -> bool:
        """True if no variation differs, no schema is wrong, and enough was compared.

        A refusal does not differ; ``of(Standing.REFUSED)`` has them.
        """
        return not self.of(Standing.DIFFERS) and not self.lies and not self.unchecked

    def raise_for_differences(self) -> None:
        """Raise :class:`DifferenceError` unless the report agrees."""
        if not self.agrees:
            raise DifferenceError(self.short)

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the function or of the whole check, not of one variation."""
        return (*self.lies, *([self.unchecked] if self.unchecked else []))

    def notes(self, results: Iterable[Result]) -> tuple[Note, ...]:
        """The differences, each with the results that show it."""
        found: dict[str, list[Result]] = {}
        for result in results:
            if result.text:
                found.setdefault(result.kind, []).append(result)
        return tuple(Note(same[0].text, tuple(same)) for same in found.values())

    @property
    def short(self) -> str:
        """A line for each kind of difference, with the variations that show it."""
        lines = [f"{self.name} on {self.backend}: {self.summary}", *(f"  {text}" for text in self.problems)]
        for note in self.notes(self.of(Standing.DIFFERS)):
            more = f" and {len(note.results) - 1} more" if len(note.results) > 1 else ""
            lines.append(f"  {note.results[0].variation.name}{more}: {note.text}")
        return "\n".join(lines)

    def __str__(self) -> str:
        notes = self.notes(self.tried)
        number = numbers(notes)
        width = max((len(result.variation.name) for result in self.tried), default=0)
        lines = [f"{self.name} on {self.backend}: {self.summary}", *(f"  {text}" for text in self.problems)]
        for result in self.tried:
            at = number.get(id(result))
            lines.append(f"  {result.variation.name:<{width}}  {result.standing.value}{f' ({at})' if at else ''}")
        return "\n".join([*lines, *(f"  ({i + 1}) {note.text}" for i, note in enumerate(notes))])

    @property
    def summary(self) -> str:
        """How many variations have each standing."""
        counts = [(standing, len(self.of(standing))) for standing in Standing]
        told = [f"{count} {standing.value}" for standing, count in counts if count]
        return ", ".join([*told, *([f"{self.untried} given up"] if self.untried else [])])


def numbers(notes: Iterable[Note]) -> dict[int, int]:
    """By the ``id`` of a result, the number of its note, from 1."""
    return {id(result): i + 1 for i, note in enumerate(notes) for result in note.results}
