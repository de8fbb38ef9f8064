"""Numbers of a call that may be symbols, and where each is read."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass


class Of(enum.Enum):
    """What a number is; the value is the source that reads it."""

    SIZE = "{t}.size({dim})"
    STRIDE = "{t}.stride({dim})"
    OFFSET = "{t}.storage_offset()"
    NBYTES = "{t}.untyped_storage().nbytes()"
    PLAIN = "n[{k}]"


@dataclass(frozen=True)
class Read:
    """Where a number is read in a call.

    Args:
        of: what it is.
        position: of a tensor among those that ``bind`` found; of a Python number among its numbers.
        dim: of a size or a stride, which dimension's.
    """

    of: Of
    position: int
    dim: int = 0

    def source(self, letter: str = "t") -> str:
        """Python that reads it, where tensors have that letter and ``n`` are the Python numbers."""
        return self.of.value.format(t=f"{letter}{self.position}", k=self.position, dim=self.dim)


Dynamic = frozenset[Read]
"""The numbers that are symbols."""


def lines_of(derived: Mapping[str, str], source: str) -> list[str]:
    """Assignments of those numbers that the source names, and of those that these name, in order."""
    wanted = set(re.findall(r"\w+", source))
    lines: list[str] = []
    for name, expression in reversed(list(derived.items())):
        if name in wanted:
            lines.insert(0, f"{name} = {expression}")
            wanted |= set(re.findall(r"\w+", expression))
    return lines
