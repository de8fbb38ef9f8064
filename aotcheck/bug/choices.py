"""The ways in which a script may be written, from the one that a person would choose to the exact one."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

__all__ = ["Choices"]

T = TypeVar("T")


class Choices:
    """Answers which way to write each part of a script, and remembers what was asked.

    Args:
        made: by the name of a part, the index of the way to take; parts that are not named take the first way, or the
            last one where ``exact`` is set.
        exact: write what is not named exactly as the program has it.
    """

    def __init__(self, made: Mapping[str, int] | None = None, *, exact: bool = False) -> None:
        self.made, self.exact = dict(made or {}), exact
        self.asked: dict[str, int] = {}

    def among(self, part: str, ways: Sequence[T]) -> T:
        """The way to take of those there are; ``ways`` go from what reads best to what is exact."""
        self.asked[part] = len(ways)
        chosen = self.made.get(part, len(ways) - 1 if self.exact else 0)
        return ways[min(chosen, len(ways) - 1)]
