"""run.jsonl: every event of a run, one JSON object per line, written as it happens."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from aotcheck.campaign import Event, Past

FORMAT = 1


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} does not go into JSON")


class JsonLines:
    """Writes events to ``path``, each on disk's doorstep (flushed) before the next is handled."""

    def __init__(self, path: Path) -> None:
        torn = _torn(path)
        self._file = path.open("a", encoding="utf-8")
        if torn:  # by whoever killed the run: the next line begins a line of its own
            self._file.write("\n")

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a full disk: whoever fed the event knows
            self._file.close()

    def feed(self, event: Event, at: float | None = None) -> None:
        """Write ``event``, which happened ``at`` so many seconds after the epoch; now, if that is not said."""
        facts = {"format": FORMAT, "at": round(time.time(), 3) if at is None else at, "event": type(event).__name__}
        facts |= dataclasses.asdict(event)
        self._file.write(json.dumps(facts, default=_plain) + "\n")
        self._file.flush()


def _torn(path: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def read_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a run as mappings. What a killed run left half-written, or a bad disk garbled, is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and line.endswith(b"\n"):
                yield found


def load_events(path: Path) -> Iterator[Event]:
    """The events of a run as they were; what is none of them, or lacks something, is left out."""
    return (event for _, event in load_timed(path))


def load_past(path: Path) -> Past:
    """What a run has done, as its events have it."""
    timed = list(load_timed(path))
    return Past.of([event for _, event in timed], [at for at, _ in timed])


def load_timed(path: Path) -> Iterator[tuple[float, Event]]:
    """The events of a run, each after the time at which it happened, in seconds since the epoch."""
    for facts in read_events(path):
        kind = _KINDS.get(str(facts.get("event")))
        if kind is None:
            continue
        try:
            yield float(facts.get("at", 0.0)), _restored(kind, facts)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def _restored(kind: Any, facts: Any) -> Any:
    """A value of type ``kind`` from JSON; raises where it does not fit."""
    if dataclasses.is_dataclass(kind):
        types = get_type_hints(kind)
        made: Any = kind
        known = {f.name: _restored(types[f.name], facts[f.name]) for f in dataclasses.fields(kind) if f.name in facts}
        return made(**known)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(facts)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        kinds = inner[:1] * len(facts) if inner[1:] == (Ellipsis,) else inner
        return tuple(_restored(one, item) for one, item in zip(kinds, facts, strict=True))
    if get_origin(kind) is dict:
        return {str(key): _restored(get_args(kind)[1], value) for key, value in facts.items()}
    if isinstance(kind, UnionType):
        wanted = [one for one in get_args(kind) if one is not NoneType]
        return None if facts is None else _restored(wanted[0], facts)
    if kind is float and isinstance(facts, int):
        return float(facts)
    if not isinstance(facts, kind):
        raise TypeError(f"a {type(facts).__name__} for a {kind}")
    return facts
