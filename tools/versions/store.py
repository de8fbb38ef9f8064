"""Results on disk, a line each, with the state of the sources that each is true of."""

import dataclasses
import json
from pathlib import Path

from tools.versions.checks import Piece, Result, state_of


class Store:
    """Results by piece; a file to which lines are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, tuple[str, Result]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut off
            wrong, others = tuple(entry["wrong"]), tuple(entry["others"])
            result = Result(entry["judged"], wrong, others, entry["broken"], entry["seconds"])
            self._lines[entry["key"]] = entry["state"], result

    def result(self, piece: Piece) -> Result | None:
        """The result of ``piece`` if it ran to its end with the sources as they are now."""
        state, result = self._lines.get(piece.key, ("", None))
        return result if result is not None and not result.broken and state == state_of(piece.check) else None

    def add(self, piece: Piece, result: Result) -> None:
        """Remember a result, on disk at once."""
        self._lines[piece.key] = state_of(piece.check), result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"key": piece.key, "state": state_of(piece.check), **dataclasses.asdict(result)}
        cut_off = self.path.exists() and not self.path.read_bytes().endswith(b"\n")  # a run was killed as it wrote
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * cut_off + json.dumps(entry) + "\n")
