"""Divides blocks among processes that share only a folder: no block runs twice, and all have one deadline."""

import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Claims"]


class Claims:
    """Gives a process the next block that no other process has taken, until the common deadline.

    The process that takes a block creates a file for it, and only one can. The first process writes the deadline.

    Args:
        folder: the folder that the processes share; created if need be.
        seconds: how long they run, from the start of the first process.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def deadline(self) -> float:
        """The deadline of all processes, in seconds since the epoch."""
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
        """The blocks of this process, one at a time; each is taken when it is asked for."""
        block = 0
        while time.time() < self.deadline:
            try:
                (self.folder / f"block-{block}").touch(exist_ok=False)
            except FileExistsError:
                block += 1
                continue
            yield block
            block += 1
