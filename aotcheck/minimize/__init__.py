"""Reduces a failing program to a smallest program that still fails the same way.

:func:`minimize` calls a predicate in this process. :class:`Reduction` runs candidates on a backend in worker processes,
so a crash or a hang is an outcome like any other.
"""

from aotcheck.minimize.isolated import Limits
from aotcheck.minimize.judging import InspectionError, Judgement, Subject, load_inspection
from aotcheck.minimize.reduce import Judge, Step, minimize, steps
from aotcheck.minimize.reduction import DoesNotFailError, Reduced, Reduction, inputs_passed
from aotcheck.minimize.size import Size, size

__all__ = [
    "DoesNotFailError",
    "InspectionError",
    "Judge",
    "Judgement",
    "Limits",
    "Reduced",
    "Reduction",
    "Size",
    "Step",
    "Subject",
    "inputs_passed",
    "load_inspection",
    "minimize",
    "size",
    "steps",
]
