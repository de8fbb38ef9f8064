"""The bugs that a corpus holds, as a campaign wants to know them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from aotcheck.campaign.corpus import Expected, entries
from aotcheck.campaign.signature import KnownBug, skeleton


def known_bugs(corpus: Path | None, backend: str) -> Iterator[KnownBug]:
    """The bugs that the corpus expects of ``backend`` under the torch that is installed."""
    for entry in entries(corpus) if corpus is not None else ():
        if entry.expected(backend, torch.__version__) is Expected.DIFFERS and backend in entry.keys:
            yield KnownBug(entry.keys[backend], skeleton(entry.program), entry.program, name=entry.path.stem)
