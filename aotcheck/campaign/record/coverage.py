"""Which pairs of traits a campaign has exercised and observed, and which it should aim at next.

Note [Steering]
    ``EPOCH`` blocks are an epoch. The blocks of an epoch aim at the pairs that are rarest in all earlier epochs except
    the last one: so workers need not wait for each other at the end of an epoch, and any number of workers draws the
    same programs. The first two epochs aim at nothing. No block aims at a trait that the strategy says it never draws:
    pairs with such a trait, always the rarest, would crowd out possible ones.
"""

import heapq
from collections.abc import Collection, Sequence

import numpy as np

from aotcheck.campaign.record.events import BlockFailed, BlockGenerated, Event, PairsCounted, ProgramChecked
from aotcheck.oracle import Outcome
from aotcheck.program.vocabulary.traits import TRAITS, excluded, pairs, traits_in

__all__ = ["EPOCH", "Coverage", "WantedPairs"]

EPOCH = 40
"""Blocks in an epoch."""

MOST_WANTED = 300
RARE = 5
"""Pairs met in so many programs need no more of them, unless none is met less often."""

WantedPairs = tuple[tuple[str, str], ...]
_OBSERVED = frozenset({Outcome.AGREES.value, Outcome.DIFFERS.value})
_PAIRS = tuple(pairs())
_UNDRAWN = "the strategy draws none"


class Coverage:
    """Counts of pairs, fed one event at a time.

    Args:
        undrawn: traits that the strategy never draws.
    """

    def __init__(self, undrawn: frozenset[str] = frozenset()) -> None:
        n = len(TRAITS)
        self._undrawn = undrawn
        self._pairs = [(i, j) for i, j in _PAIRS if undrawn.isdisjoint((TRAITS[i], TRAITS[j]))]
        self._blocks: dict[int, Sequence[str]] = {}
        self._exercised = np.zeros((n, n), dtype=np.int64)
        self._observed = np.zeros((n, n), dtype=np.int64)
        self._triples = np.zeros((n, n, n), dtype=np.bool_)
        self._triples_observed = np.zeros((n, n, n), dtype=np.bool_)
        self._steering = np.zeros((n, n), dtype=np.int64)
        self._steered_to = 0
        self.programs = 0

    def feed(self, event: Event) -> None:
        """Count ``event``."""
        match event:
            case BlockGenerated(block=block, traits=traits) if block not in self._blocks:
                self._blocks[block] = traits
                for each in traits:
                    places = traits_in(int(each, 16))
                    self._exercised[np.ix_(places, places)] += 1
                    self._triples[np.ix_(places, places, places)] = True
                    self.programs += 1
            case ProgramChecked(block=block, index=index, outcome=outcome) if outcome in _OBSERVED:
                known = self._blocks.get(block, ())
                if index < len(known):
                    places = traits_in(int(known[index], 16))
                    self._observed[np.ix_(places, places)] += 1
                    self._triples_observed[np.ix_(places, places, places)] = True
            case BlockFailed(block=block):
                self._blocks.setdefault(block, ())
            case _:
                pass

    # -- steering

    def ready(self, block: int, under_way: Collection[int]) -> bool:
        """Whether all is known that decides what ``block`` aims at, given the blocks that workers have in hand."""
        return not any(b < _known_until(block) and b not in self._blocks for b in under_way)

    def wanted(self, block: int) -> WantedPairs:
        """The pairs that ``block`` is to aim at, see Note [Steering]."""
        until = _known_until(block)
        before = [b for b in self._blocks if self._steered_to <= b < until]
        for each in (each for b in before for each in self._blocks[b]):
            places = traits_in(int(each, 16))
            self._steering[np.ix_(places, places)] += 1
        self._steered_to = max(self._steered_to, until)
        if not self._steering.any():
            return ()
        counts = [(int(self._steering[i, j]), i, j) for i, j in self._pairs]
        rare = [each for each in counts if each[0] < RARE]
        chosen = heapq.nsmallest(MOST_WANTED, rare or counts)
        return tuple((TRAITS[i], TRAITS[j]) for _, i, j in chosen)

    # -- figures

    @property
    def exercised(self) -> int:
        """How many pairs some program has exercised."""
        return sum(bool(self._exercised[i, j]) for i, j in self._pairs)

    @property
    def observed(self) -> int:
        """How many pairs some program has exercised that was judged to the end."""
        return sum(bool(self._observed[i, j]) for i, j in self._pairs)

    @property
    def possible(self) -> int:
        """How many pairs there are."""
        return len(self._pairs)

    @property
    def triples(self) -> int:
        """How many sets of three traits some program has exercised."""
        return _sets_of_three(self._triples)

    @property
    def triples_observed(self) -> int:
        """How many sets of three traits some program has exercised that was judged to the end."""
        return _sets_of_three(self._triples_observed)

    def missing(self) -> list[tuple[str, str]]:
        """The pairs that no program has exercised."""
        return [(TRAITS[i], TRAITS[j]) for i, j in self._pairs if not self._exercised[i, j]]

    def counted(self) -> PairsCounted:
        """All of it as an event."""
        n = len(TRAITS)
        left_out = [(i, j, self._left_out(TRAITS[i], TRAITS[j])) for i in range(n) for j in range(i)]
        return PairsCounted(
            traits=TRAITS,
            exercised=_rows(self._exercised),
            observed=_rows(self._observed),
            excluded=tuple(each for each in left_out if each[2]),
            pairs_exercised=self.exercised,
            pairs_observed=self.observed,
            pairs_possible=self.possible,
            triples_exercised=self.triples,
            programs=self.programs,
            triples_observed=self.triples_observed,
        )

    def _left_out(self, first: str, second: str) -> str:
        return excluded(first, second) or (_UNDRAWN if {first, second} & self._undrawn else "")


def _known_until(block: int) -> int:
    """The block before which everything may steer ``block``."""
    return (block // EPOCH - 1) * EPOCH


def _sets_of_three(met: np.ndarray) -> int:
    n = len(met)
    i, j, k = np.ogrid[:n, :n, :n]
    return int((met & (i < j) & (j < k)).sum())


def _rows(counts: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The lower triangle, row by row."""
    return tuple(tuple(int(c) for c in counts[i, :i]) for i in range(len(counts)))
