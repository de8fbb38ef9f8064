"""Divides blocks among processes that share only a folder: no block runs twice, and all have one deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Claims"]


class Claims:
    """The next block that nobody else has taken, until the time of all of them together is up.

    A file for each block, made by whoever takes it and by nobody else; the deadline is a file too, made by the first.

    Args:
        folder: what the processes share; made if need be.
        seconds: how long they go on, from when the first of them begins.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def deadline(self) -> float:
        """When it ends, in seconds since 1970; the same for all."""
        path = self.folder / "deadline"
        if not path.exists():
            draft = self.folder / f".deadline-{time.time_ns()}"
            draft.write_text(str(time.time() + self.seconds))
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                pass  # another one was first
            finally:
                draft.unlink()
        return float(path.read_text())

    def blocks(self) -> Iterator[int]:
        """The blocks that are ours, one at a time: a block is taken when it is asked for."""
        block = 0
        while time.time() < self.deadline:
            try:
                (self.folder / f"block-{block}").touch(exist_ok=False)
            except FileExistsError:
                block += 1
                continue
            yield block
            block += 1
