"""Hypothesis strategies for tensor programs; builds on :mod:`aotcheck.program` alone."""

from strategies.profile import Profile
from strategies.programs import programs

__all__ = ["Profile", "programs"]
