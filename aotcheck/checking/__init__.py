"""The suite's variations of inputs and calls, applied to one function of the user's own.

Where the fuzzer draws the function, here it is given: a function over tensors, a module, a custom op. What is varied is
everything else that a caller may do: how arguments alias and are laid out, what requires grad, which context is around
the call, what comes after it, and the second call.
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
