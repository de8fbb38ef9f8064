"""run.jsonl: every event of a run, one JSON object per line, written as it happens."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from aotcheck.campaign import Event

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
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def feed(self, event: Event) -> None:
        """Write ``event``."""
        facts = {"format": FORMAT, "at": round(time.time(), 3), "event": type(event).__name__}
        facts |= dataclasses.asdict(event)
        self._file.write(json.dumps(facts, default=_plain) + "\n")
        self._file.flush()


def read_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a run as mappings; a last line that a killed run left half-written is left out."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return
            yield json.loads(line)
