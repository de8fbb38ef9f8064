"""Where tensors lay in the course of a program: what they left, when, and in which way.

Note [Stops]
By the end an argument may have come by several places: `x.set_(y); v = x.t(); x.data = z`. What a view shows of it, and
which history that has, depends on where it lay then. So where a view is wanted that was made at such a stop, the real
argument is taken there as well, at the moment when the program did (see Note [In the program's order]), by the way it
went. Places of which no view is wanted are left out.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Sequence

from aotcheck.autograd.ir.trace import Geometry


class Move(enum.Enum):
    """How a tensor comes to lie elsewhere."""

    RESHAPED = "its geometry is changed in place"
    SET = "set_"
    SET_UNTOLD = "set_ in inference mode"
    DATA = ".data ="


@dataclasses.dataclass(frozen=True)
class Left:
    """A place that a tensor left at the moment ``time``; ``storage`` is the address of the storage.

    ``inference``: whether it was an inference tensor there; ``node``: the number of the next node of autograd then.
    """

    time: int
    geometry: Geometry
    storage: int
    inference: bool
    move: Move
    node: int


@dataclasses.dataclass(frozen=True)
class Stop:
    """A place where a tensor lay from the moment ``begin`` to ``end``."""

    begin: int
    end: int
    geometry: Geometry
    storage: int


def stops_of(left: Sequence[Left]) -> list[Stop]:
    """The places between the first and the last, of a tensor that ``left`` these."""
    return [Stop(before.time, after.time, after.geometry, after.storage) for before, after in itertools.pairwise(left)]


def way_to(left: Sequence[Left], moment: int) -> Move:
    """How a tensor came to the storage where it lay just after ``moment``."""
    moves = [x.move for x in left if x.time <= moment and x.move is not Move.RESHAPED]
    return moves[-1] if moves else Move.RESHAPED
