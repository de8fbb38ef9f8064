"""Draws values, as cheaply as Hypothesis allows and independent of what else is imported.

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

import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import TypeVar

__all__ = ["Chooser"]

T = TypeVar("T")
_FAR = 7 * 10**9 + 31 * 10**3


class Chooser:
    """Choices by one of Hypothesis's random generators; each shrinks to its first alternative.

    Args:
        generator: what draws.
        wanted: traits (:mod:`aotcheck.program.vocabulary.traits`) that the program is to have, if it can: what leads
            to them is drawn more often.
    """

    def __init__(self, generator: random.Random, wanted: frozenset[str] = frozenset()) -> None:
        self._generator = generator
        self.wanted = wanted

    def below(self, n: int) -> int:
        """An integer in ``range(n)``; nothing is drawn when there is no choice."""
        return self._generator.randint(_FAR, _FAR + n - 1) - _FAR if n > 1 else 0

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included; shrinks to ``low``."""
        return low + self.below(high - low + 1)

    def one(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[T, int]]) -> T:
        """One of ``options``, as often as its weight says; shrinks to the first."""
        ends = list(accumulate(weight for _, weight in options))
        return options[bisect_right(ends, self.below(ends[-1]))][0]

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of 100 draws; shrinks to False."""
        return self.below(100) >= 100 - percent

    def toward(self, options: Sequence[T], traits: Callable[[T], Collection[str]]) -> T:
        """One of ``options``, mostly one whose traits are wanted."""
        fitting = [option for option in options if not self.wanted.isdisjoint(traits(option))] if self.wanted else []
        return self.one(fitting) if fitting and self.chance(75) else self.one(options)

    def likely(self, percent: int, *traits: str) -> bool:
        """:meth:`chance`, of four in five where one of ``traits`` is wanted."""
        return self.chance(percent if self.wanted.isdisjoint(traits) else 80)

    def mask(self, bits: int) -> int:
        """``bits`` random bits; shrinks to 0."""
        made = 0
        for low in range(0, bits, 6):
            made |= self.below(2 ** min(6, bits - low)) << low
        return made
