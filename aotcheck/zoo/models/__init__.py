"""The models, in files by kind; importing this registers them all."""

from aotcheck.zoo.models import (
    calls,
    checkpoints,
    generation,
    generative,
    graphs,
    libraries,
    second_order,
    sequences,
    training,
    vision,
    wrappers,
)

__all__ = [
    "calls",
    "checkpoints",
    "generation",
    "generative",
    "graphs",
    "libraries",
    "second_order",
    "sequences",
    "training",
    "vision",
    "wrappers",
]
