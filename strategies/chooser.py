"""Draws, as cheap as Hypothesis allows and independent of what else is imported.

Note [Same programs everywhere]
    Hypothesis mixes constants that it finds in the source of local modules into integer draws, so a draw from
    ``0..n`` depends on
    which modules the process happens to have loaded. Choices are therefore drawn from a range far from any constant
    somebody writes down, and brought back by subtraction. They still shrink to the first alternative.

Note [No mutations]
    Hypothesis copies parts of an example over other parts drawn from the same strategy. Over single choices that
    yields the same
    program again and again (two in five, measured). ``st.randoms()`` draws choices without marking them as such parts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Chooser"]

T = TypeVar("T")
_FAR = 7 * 10**9 + 31 * 10**3


class Chooser:
    """Choices by one of Hypothesis's random generators; each shrinks to its first alternative."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def below(self, n: int) -> int:
        """An integer in ``range(n)``; nothing is drawn when there is no choice."""
        return self._generator.randint(_FAR, _FAR + n - 1) - _FAR if n > 1 else 0

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included; shrinks to ``low``."""
        return low + self.below(high - low + 1)

    def one(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of 100 draws; shrinks to False."""
        return self.below(100) >= 100 - percent

    def mask(self, bits: int) -> int:
        """``bits`` random bits; shrinks to 0."""
        made = 0
        for low in range(0, bits, 6):
            made |= self.below(2 ** min(6, bits - low)) << low
        return made
