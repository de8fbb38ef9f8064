"""Hypothesis strategies for tensor programs; builds on :mod:`aotcheck.program` alone."""

from hypothesis import strategies as st

from aotcheck.program import Program
from strategies.profile import Profile
from strategies.programs import programs

__all__ = ["UNDRAWN", "Profile", "backwards", "mixed", "programs", "settled", "storages"]


_STORAGES = Profile(inside=0, wrappers=0)
_BACKWARDS = Profile(inside=80, wrappers=0, calls=100, trained_writes=30)
_MIXED = Profile(wrappers=100, inside=80, random=80, inexact=60, trained_writes=30)
_SETTLED = Profile(inside=0, wrappers=0, trained_later=0, alike=0)

UNDRAWN = {
    "programs": Profile().undrawn,
    "storages": _STORAGES.undrawn,
    "backwards": _BACKWARDS.undrawn,
    "mixed": _MIXED.undrawn,
    "settled": _SETTLED.undrawn,
}
"""By strategy, the traits that it never draws: no campaign aims at them or counts them as missing."""


def storages() -> st.SearchStrategy[Program]:
    """Every storage, every alias, every call: plain tensors, nothing of autograd or modules inside."""
    return programs(_STORAGES)


def backwards() -> st.SearchStrategy[Program]:
    """The whole backward, of plain tensors: mostly with autograd and modules inside, always with a plan around."""
    return programs(_BACKWARDS)


def mixed() -> st.SearchStrategy[Program]:
    """Wrapper subclasses in every program, mostly with random numbers, autocast and custom Functions."""
    return programs(_MIXED)


def settled() -> st.SearchStrategy[Program]:
    """The programs of a fixed stream that every test run repeats: without autograd, modules and wrappers inside.

    A test run must be silent; what campaigns draw beyond this still shows differences of our own (docs/limits.md).
    """
    return programs(_SETTLED)
