"""The content of ``nightly.toml``: which backends run, for how long, and with which options."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotcheck.backends import EVERYTHING, Expectations, ExpectationsError, promises_named
from aotcheck.campaign.setup.settings import SettingsError

__all__ = ["Config", "Job", "load_config"]


@dataclass(frozen=True)
class Job:
    """A backend and what it may take; ``seed`` None is the date, so that every night draws other programs."""

    backend: str
    seconds: float | None = None
    examples: int | None = None
    seed: int | None = None
    minimize_seconds: float = 300.0
    device: str = "cpu"
    strategy: str = ""
    timeout: float = 60.0
    baselines: tuple[str, ...] = ()
    expectations: Expectations = EVERYTHING


@dataclass(frozen=True)
class Config:
    """What ``nightly.toml`` says.

    Args:
        jobs: what to run.
        corpus: the corpus; None for none.
        reports: where the folder of each run is made.
        workers: worker processes.
        memory: bytes that one may take.
        replay_runs: how often each corpus file is judged at least.
        bugs: for how many new signatures of a run, the first by rank, a report that can be posted is written.
    """

    jobs: tuple[Job, ...]
    corpus: Path | None = None
    reports: Path = Path("reports/nightly")
    workers: int = 1
    memory: int = 6 * 2**30
    replay_runs: int = 2
    bugs: int = 20


def load_config(path: Path, seconds: Callable[[str], float]) -> Config:
    """Read ``nightly.toml``; ``seconds`` reads durations as the command line does.

    Raises:
        SettingsError: there is no such file, or it says something that cannot be.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        jobs = tuple(_job(entry, seconds) for entry in _tables(found.pop("backend", [])))
        corpus = _text(found, "corpus", "")
        config = Config(
            jobs=jobs,
            corpus=path.parent / corpus if corpus else None,
            reports=path.parent / _text(found, "reports", "reports/nightly"),
            workers=_number(found.pop("workers", 1)),
            memory=_memory(found.pop("memory_gib", 6.0)),
            replay_runs=_number(found.pop("replay_runs", 2)),
            bugs=_number(found.pop("bugs", 20), 0),
        )
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from error
    if found:
        raise SettingsError(f"{path}: unknown: {', '.join(found)}")
    if config.corpus is not None and not config.corpus.is_dir():
        raise SettingsError(f"{path}: no folder {config.corpus}")
    if not config.jobs and config.corpus is None:
        raise SettingsError(f"{path}: neither corpus nor [[backend]]: nothing to run")
    return config


def _number(value: object, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is not a whole number of at least {least}")
    return value


def _memory(gib: object) -> int:
    """So many GiB in bytes; a process that has imported torch takes some of them already."""
    if not isinstance(gib, (int, float)) or isinstance(gib, bool) or not 0.5 <= gib < 2**20:
        raise ValueError(f"memory_gib = {gib!r} is not a number of GiB, at least 0.5")
    return int(gib * 2**30)


def _text(entries: dict[str, Any], name: str, default: str) -> str:
    value = entries.pop(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} = {value!r} is not a text")
    return value


def _texts(entries: dict[str, Any], name: str) -> tuple[str, ...]:
    value = entries.pop(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f'{name} = {value!r} is not a list of texts; write {name} = ["aot_eager"]')
    return tuple(dict.fromkeys(value))


def _tables(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("backends are tables, each headed [[backend]]")
    return value


def _duration(entries: dict[str, Any], name: str, seconds: Callable[[str], float]) -> float | None:
    value = entries.pop(name, None)
    try:
        return None if value is None else seconds(str(value))
    except ValueError as error:
        raise ValueError(f"{name} = {value!r} is not a duration; write 90, 90s, 10m or 2h") from error


def _job(entry: Mapping[str, Any], seconds: Callable[[str], float]) -> Job:
    left = dict(entry)
    name = left.pop("name", None)
    if not isinstance(name, str):
        raise ValueError("a [[backend]] has no name")
    job = Job(
        backend=name,
        seconds=_duration(left, "time", seconds),
        examples=_number(left.pop("examples")) if "examples" in left else None,
        seed=_number(left.pop("seed"), 0) if "seed" in left else None,
        minimize_seconds=_duration(left, "minimize_time", seconds) or 300.0,
        device=_text(left, "device", "cpu"),
        strategy=_text(left, "strategy", ""),
        timeout=_duration(left, "timeout", seconds) or 60.0,
        baselines=_texts(left, "baseline"),
        expectations=_expectations(left),
    )
    if left:
        raise ValueError(f"[[backend]] {name}: unknown: {', '.join(left)}")
    if job.seconds is None and job.examples is None:
        raise ValueError(f"[[backend]] {name}: give it time or examples")
    return job


def _expectations(entries: dict[str, Any]) -> Expectations:
    """What is not expected of a backend, as the options of ``aotcheck fuzz`` say it."""
    rtol = entries.pop("rtol", 0.0)
    if not isinstance(rtol, (int, float)) or isinstance(rtol, bool) or not 0 <= rtol <= 1:
        raise ValueError(f"rtol = {rtol!r} is not a number between 0 and 1")
    try:
        without = promises_named(_texts(entries, "without"))
    except ExpectationsError as error:
        raise ValueError(str(error)) from error
    return Expectations(without, _texts(entries, "ignore"), float(rtol), _texts(entries, "refuses"))
