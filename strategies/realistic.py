"""``realistic()``: programs as people write them, drawn by a table of frequencies in real models.

``python -m tools.idiom_table`` makes the table (strategies/realistic.json).
"""

import json
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from aotcheck.program import Program
from aotcheck.program.ops.registry import Group, ops

from .practice import PATHS
from .profile import Profile, Usage
from .programs import programs

__all__ = ["TABLE", "path_of", "profile", "realistic"]

TABLE = Path(__file__).parent / "realistic.json"
_SPACES = ("Tensor.", "torch.", "torch.nn.functional.", "torch.linalg.", "torch.special.")


@cache
def _paths(registered: int) -> frozenset[str]:
    return frozenset(op.path for op in ops() if op.group is not Group.OUT)


def path_of(name: str) -> str | None:
    """The path by which the grammar has what torch calls ``name``; None if it lacks that."""
    paths = _paths(sum(1 for _ in ops()))
    if name in paths:
        return name
    last = name.rpartition(".")[2]
    return next((space + last for space in _SPACES if space + last in paths), None)


def profile() -> Profile:
    """Programs as the table has them; an op that the grammar lacks is left out."""
    table = json.loads(TABLE.read_text())
    shares: dict[str, int] = {}
    for name, share in table["ops"].items():
        if path := path_of(name):
            shares[path] = shares.get(path, 0) + share
    sections = {name: tuple(table[name].items()) for name in ("dtypes", "layouts", "ranks", "idioms")}
    return Profile(
        ops=frozenset(shares) | PATHS,
        statements=18,
        inexact=100,
        random=100,
        refused=0,
        idioms=0,
        wrappers=1,
        other_modes=0,
        usage=Usage(tuple(shares.items()), **sections),
    )


def realistic(sizes: int = 0) -> st.SearchStrategy[Program]:
    """Programs as people write them; ``sizes`` as of ``programs``."""
    return programs(profile(), sizes=sizes)
