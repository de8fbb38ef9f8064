"""The suite's variations of inputs and calls, applied to one function of the user's own.

The fuzzer draws functions; here the user gives one: a function over tensors, a module, a custom op. The variations
change the rest: how arguments alias and are laid out, what requires grad, which context is around the call, what the
caller does after it, and the second call.
"""

from aotcheck.checking.changes import CHANGES, Change
from aotcheck.checking.check import check
from aotcheck.checking.report import DifferenceError, Report, Result, Standing
from aotcheck.checking.variations import VARIATIONS, Variation, VariedCall

__all__ = [
    "CHANGES",
    "VARIATIONS",
    "Change",
    "DifferenceError",
    "Report",
    "Result",
    "Standing",
    "Variation",
    "VariedCall",
    "check",
]
