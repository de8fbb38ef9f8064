"""A worker's journal: it records on disk what the worker is about to do, so a death can be blamed on a program.

There is one file per block and attempt, with one JSON object per line. The supervisor gets results only by reading the
file while it grows, so a worker that dies loses no finished result.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from aotcheck.program import ParsedFile, ProgramSyntaxError, UnknownOpError, parse_file


class Journal:
    """The worker's end.

    Args:
        path: the journal's file; the script of the program in flight is beside it, see :func:`in_flight`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def note(self, kind: str, **facts: object) -> None:
        """Append a line. It survives the process, though not a power failure."""
        self._file.write(json.dumps({"kind": kind, **facts}) + "\n")
        self._file.flush()

    def start(self, index: int, source: str) -> None:
        """Write the script of program ``index``, then record that the program is about to run."""
        in_flight(self._path).write_text(source, encoding="utf-8")
        self.note("started", index=index)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def in_flight(path: Path) -> Path:
    """The path of the script of the program that is running."""
    return path.with_suffix(".py")


class JournalReader:
    """The supervisor's end: complete lines, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self) -> Iterator[Mapping[str, Any]]:
        """The lines that are new since the last call, without one that is still being written."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            try:
                parsed = json.loads(line)
            except ValueError:
                continue  # a worker killed while writing, followed by nothing: the culprit is known without it
            if isinstance(parsed, dict):
                yield parsed

    def source_in_flight(self) -> str:
        """The script of the program that was running; empty if none was."""
        try:
            return in_flight(self.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def discard(self) -> None:
        """Remove the files of a block that is done."""
        for path in (self.path, in_flight(self.path)):
            path.unlink(missing_ok=True)


def write_durably(path: Path, text: str) -> None:
    """Write ``text`` atomically: a file at ``path`` is always complete."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@lru_cache(maxsize=4096)
def readable(path: str) -> ParsedFile | None:
    """A finding's file, read; None where it is gone or cannot be read. Files of a campaign do not change."""
    try:
        return parse_file(Path(path))
    except (OSError, ProgramSyntaxError, UnknownOpError):
        return None
