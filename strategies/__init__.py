"""Hypothesis strategies for tensor programs; builds on :mod:`aotcheck.program` alone."""

from hypothesis import strategies as st

from aotcheck.program import Program
from strategies.profile import Profile
from strategies.programs import programs

__all__ = ["Profile", "programs", "settled"]


def settled() -> st.SearchStrategy[Program]:
    """The programs of a fixed stream that every test run repeats: without autograd, modules and wrappers inside.

    A test run must be silent; what campaigns draw beyond this still shows differences of our own (docs/limits.md).
    """
    return programs(Profile(inside=0, wrappers=0, trained_later=0, alike=0))
