"""Results on disk, one line each, and which of them still hold."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from tools.op_coverage.compare import Side
from tools.op_coverage.worker import Outcome

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def fingerprint(side: Side) -> str:
    """What a result depends on: torch, this tool, and for our side our sources."""
    here = Path(__file__).parent
    files = [here / "compare.py", here / "subjects.py"]
    parts = {Side.OURS: ("autograd", "_torch")}
    parts |= dict.fromkeys((Side.SECOND, Side.SECOND_DYNAMIC), ("autograd2", "_torch2"))
    if side in parts:
        files += [file for part in parts[side] for file in sorted((ROOT / "aotcheck" / part).rglob("*.py"))]
    digest = hashlib.sha256(torch.__version__.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Store:
    """Outcomes by side and subject, the last one each; a file to which lines are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[tuple[Side, str], Outcome] = {}
        self._fingerprints: dict[tuple[Side, str], str] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            entry: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            return  # cut off
        key = (Side(entry["side"]), entry["key"])
        failures = {int(k): str(v) for k, v in entry["failures"].items()}
        self.outcomes[key] = Outcome(entry["samples"], failures, entry["seconds"])
        self._fingerprints[key] = entry["of"]

    def holds(self, side: Side, key: str) -> bool:
        """Whether there is an outcome that is still true of the sources."""
        return self._fingerprints.get((side, key)) == fingerprint(side)

    def has(self, side: Side, key: str) -> bool:
        """Whether there is an outcome, be it of earlier sources."""
        return (side, key) in self.outcomes

    def put(self, side: Side, key: str, outcome: Outcome) -> None:
        """Keep an outcome, on disk at once."""
        self.outcomes[side, key] = outcome
        self._fingerprints[side, key] = fingerprint(side)
        entry = {"side": side.value, "key": key, "of": fingerprint(side), **dataclasses.asdict(outcome)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def failures(self, side: Side, keys: Iterable[str]) -> dict[str, str]:
        """Why each of ``keys`` that fails on ``side`` does."""
        found = {k: self.outcomes[side, k].reason for k in keys if (side, k) in self.outcomes}
        return {k: reason for k, reason in found.items() if reason is not None}
