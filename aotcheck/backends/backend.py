"""What a backend is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Function = Callable[..., Any]


class Promise(Enum):
    """What a backend may or may not promise. What it does not, the oracle leaves out and counts as left out."""

    GUARDS = "guards"
    """A second call whose key differs (shape, aliasing, grad mode ...) is compiled anew.

    Where it is not promised, calls from the first one on whose key differs from the first call's are not made.
    """

    CONTAINERS = "container types"
    """A list comes back as a list and a tuple as a tuple. Where it is not promised, the difference is soft."""

    DOUBLE_BACKWARD = "double backward"
    """Gradients have gradients.

    Where it is not promised, ``create_graph=True`` is made ``retain_graph=True`` and backwards of gradients are left
    out.
    """

    MODULES = "modules"
    """A module that a function closes over is compiled with the parameters and buffers that it has in each call.

    Where it is promised, as by front ends, ``aotcheck.check`` hands a module over as it is; else as a function of its
    parameters and buffers.
    """


EVERY_PROMISE = frozenset(Promise) - {Promise.MODULES}
"""What is expected of a backend that nothing is known of."""


def _nothing() -> None:
    """Nothing to reset."""


def _no_refusals() -> Mapping[str, int]:
    """A backend that does not count its refusals."""
    return {}


@dataclass(frozen=True)
class Backend:
    """A compiled path.

    Args:
        name: as ``resolve`` took it, and as findings name it.
        compile: takes a function over tensors, returns the compiled one.
        promises: what holds; everything but what the backend is known not to promise.
        reset: called between programs, so that no program sees what another one left in a cache.
        refusals: how often the backend has handed a program to eager so far, by reason; a program during which this
            grows is counted as refused, never as agreeing.
    """

    name: str
    compile: Callable[[Function], Function]
    promises: frozenset[Promise] = EVERY_PROMISE
    reset: Callable[[], None] = _nothing
    refusals: Callable[[], Mapping[str, int]] = _no_refusals
