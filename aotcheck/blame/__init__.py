"""Which stage of our own AOT autograd, or which layer of another backend, makes a program differ from eager."""

from aotcheck.blame.describe import describe, describe_step
from aotcheck.blame.ladder import OURS, Blame, Judged, Rung, Standing, blame
from aotcheck.blame.layers import STACKS, Layer
from aotcheck.blame.timeline import Wrong

STAGED = frozenset({OURS, *(name for name, layers in STACKS.items() if len(layers) > 1)})
"""The backends of which more can be told than that they differ."""


def may_be_staged(backend: str) -> bool:
    """Whether more may be told of a backend than that it differs: also of one that nobody here knows."""
    return backend in STAGED or not (backend in STACKS or backend == "eager")


__all__ = [
    "OURS",
    "STAGED",
    "Blame",
    "Judged",
    "Layer",
    "Rung",
    "Standing",
    "Wrong",
    "blame",
    "describe",
    "describe_step",
    "may_be_staged",
]
