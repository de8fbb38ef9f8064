"""Findings of a run that no corpus file shows.

Note [Covered]
    A corpus covers a coarse key of a backend if a file has the key in its ``keys`` for that backend. One key may have
    several causes. A finding under a covered key that makes all the calls of one of the key's files is probably that
    bug again, as in Note [Known bugs are not repeated] of :mod:`aotcheck.campaign.results.triage`. Somebody must look
    at the others.

Note [What dies alone]
    A finding whose script, run by itself, kills its process is a crash, whatever difference the run saw: the program
    reads or writes memory that is not its own, so the difference is chance.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotcheck.campaign.corpus.files import Entry
from aotcheck.campaign.record.events import (
    Event,
    FindingFlaky,
    FindingRechecked,
    FindingSigned,
    FindingWritten,
    Reproduced,
    ScriptRun,
)
from aotcheck.campaign.findings.signature import embeds
from aotcheck.minimize.size import Size, size
from aotcheck.oracle import CoarseKey, OracleKind, same_key
from aotcheck.program import Program, ProgramSyntaxError, UnknownOpError, parse_file
from aotcheck.workers import how_it_ended

__all__ = ["Group", "Missing", "missing"]


@dataclass(frozen=True)
class Group:
    """Findings of one coarse key that no corpus file shows, or probably shows.

    Args:
        key: the coarse key.
        findings: their scripts, the smallest first.
        minimized: the minimized script of one of them; None if none is minimized.
    """

    key: CoarseKey
    findings: tuple[Path, ...]
    minimized: Path | None = None


@dataclass(frozen=True)
class Missing:
    """What a corpus lacks of a run.

    Args:
        findings: how many findings the run has, without flaky ones.
        keys: how many coarse keys they have.
        uncovered: the groups of keys that no file has.
        unexplained: for the other keys, the findings that do not make all the calls of a file with that key.
    """

    findings: int
    keys: int
    uncovered: tuple[Group, ...]
    unexplained: tuple[Group, ...]


def missing(run: Path, backend: str, events: Iterable[Event], corpus: Sequence[Entry], causes: bool = False) -> Missing:
    """What ``corpus`` lacks of the run in the folder ``run``; nothing is executed.

    Args:
        run: the run's folder, where it is now.
        backend: the run's backend.
        events: the run's events.
        corpus: the corpus files.
        causes: whether to compare the findings of covered keys too, for which all of them are read.
    """
    found: dict[Path, CoarseKey] = {}
    minimized: dict[Path, Path] = {}
    for event in events:
        match event:
            case FindingWritten():
                found[_there(run, event.path)] = event.key
            case FindingFlaky() | FindingRechecked(reproduced=Reproduced.GONE):
                found.pop(_there(run, event.path), None)
            case ScriptRun(exit_code=int(status)) if status < 0 and _there(run, event.path) in found:
                found[_there(run, event.path)] = CoarseKey(OracleKind.CRASH.value, "process", how_it_ended(status))
            case FindingSigned(minimized=script) if script:
                minimized[_there(run, event.path)] = _there(run, script)
            case _:
                pass
    groups: defaultdict[CoarseKey, list[Path]] = defaultdict(list)
    for path, key in found.items():
        groups[key].append(path)
    covering: defaultdict[str, list[Program]] = defaultdict(list)
    for entry in corpus:
        if backend in entry.keys:
            covering[entry.keys[backend]].append(entry.program)
    shown_by = {key: [p for said in covering if same_key(said, str(key)) for p in covering[said]] for key in groups}
    uncovered = [_group(key, paths, (), minimized) for key, paths in groups.items() if not shown_by[key]]
    others = [_group(key, paths, shown_by[key], minimized) for key, paths in groups.items() if shown_by[key]]
    unexplained = [group for group in others if group.findings] if causes else []
    return Missing(len(found), len(groups), tuple(_most_first(uncovered)), tuple(_most_first(unexplained)))


def _group(key: CoarseKey, paths: Iterable[Path], covering: Sequence[Program], minimized: dict[Path, Path]) -> Group:
    kept: list[tuple[Size, Path]] = []
    for path in paths:
        program = _program(path)
        if program is not None and not any(embeds(shown, program) for shown in covering):
            kept.append((size(program), path))
    findings = tuple(path for _, path in sorted(kept))
    return Group(key, findings, next(_minimized(findings, minimized), None))


def _minimized(findings: Iterable[Path], signed: dict[Path, Path]) -> Iterator[Path]:
    """What the run made of them, or ``aotcheck minimize`` did."""
    for path in findings:
        made = (signed.get(path), path.with_suffix(".min.py"))
        yield from (script for script in made if script is not None and script.is_file())


def _most_first(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: (-len(group.findings), str(group.key)))


def _there(run: Path, told: str) -> Path:
    """A script of a run, whose folder may have been moved or be seen from elsewhere."""
    path = Path(told)
    return run / path.parent.name / path.name


def _program(path: Path) -> Program | None:
    try:
        return parse_file(path).program
    except (OSError, ProgramSyntaxError, UnknownOpError):
        return None
