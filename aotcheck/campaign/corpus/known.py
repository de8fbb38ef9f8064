"""The bugs of a corpus, in the form that campaigns and replays need."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from aotcheck.campaign.corpus.files import Expected, entries
from aotcheck.campaign.findings.signature import KnownBug, embeds, is_known, skeleton
from aotcheck.oracle import CoarseKey, same_key
from aotcheck.program import Program

__all__ = ["known_as", "known_bugs"]


def known_bugs(corpus: Path | None, backend: str) -> Iterator[KnownBug]:
    """The bugs that the corpus expects of ``backend`` under the torch that is installed."""
    for entry in entries(corpus) if corpus is not None else ():
        if entry.expected(backend, torch.__version__) is Expected.DIFFERS and backend in entry.keys:
            key, path = entry.keys[backend], entry.path
            yield KnownBug(key, skeleton(entry.program), entry.program, name=path.stem, path=str(path))


def known_as(key: CoarseKey, program: Program, bugs: Iterable[KnownBug]) -> str:
    """The corpus file whose bug a program that shows ``key`` is; empty if none.

    A minimized program is that bug, see :func:`is_known`; a longer one that makes all the calls of a file's program
    under its key probably is, as a campaign counts it.
    """
    candidates = [bug for bug in bugs if same_key(bug.key, str(key))]
    held = [bug for bug in candidates if is_known(key, program, bug) or embeds(bug.program, program)]
    return max(held, key=lambda bug: bug.program.statements).name if held else ""
