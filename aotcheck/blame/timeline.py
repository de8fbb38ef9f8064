"""Which step of a record is wrong: what one fact of one tensor is after each step."""
from __future__ import annotations
import dataclasses
@dataclasses.dataclass(frozen=True)
class Wrong:
    """What is wrong with a record.

    ``line`` is the wrong one of the lines that describe it, None if one is missing.
    """

    text: str
    line: int | None = None

def wrong_step(run, difference, specimen):
    return None
