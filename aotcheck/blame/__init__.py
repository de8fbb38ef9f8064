"""Which stage of our own AOT autograd, or which layer of another backend, makes a program differ from eager."""

from aotcheck.blame.describe import describe, describe_step
from aotcheck.blame.ladder import OURS, Blame, Judged, Rung, Standing, blame
from aotcheck.blame.layers import STACKS, Layer
from aotcheck.blame.timeline import Wrong

STAGED = frozenset({OURS, *(name for name, layers in STACKS.items() if len(layers) > 1)})
"""The backends of which more can be told than that they differ."""

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
]
