"""What happens in an epilogue in the order in which it happened in the program.

Note [In the program's order]
What a view shows of its base depends on when it was made: before or after the base took another history, was cut from
its own, went to another storage, or began to require grad. Autograd settles all that by itself if the same things
happen to the real tensors in the same order. So whatever has a moment in the program is put on a timeline: what befalls
arguments, and the making of those views that would turn out otherwise if they were made later. Views of what does not
change afterwards are made when they are needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Timeline:
    """Actions by the moment they belong to; at the same moment they come in the order in which they were put here."""

    def __init__(self) -> None:
        self._actions: list[tuple[float, int, Callable[[], Any]]] = []
        self._count = 0

    def at(self, moment: float, action: Callable[[], Any]) -> None:
        """Let ``action`` be carried out at ``moment``; at once, as it were, if that is over."""
        heapq.heappush(self._actions, (moment, self._count, action))
        self._count += 1

    def run(self) -> None:
        """Carry out everything, also what is put here meanwhile."""
        while self._actions:
            heapq.heappop(self._actions)[2]()
