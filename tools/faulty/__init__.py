"""Backends that are eager but for one fault each: what the suite must be able to find.

``python -m tools.faulty`` says after how many programs each is found. A fault is a function from a function to what
stands for its compiled form; apart from its fault it does what eager does.
"""

from tools.faulty import calls, forms, gradients, mutations, ops, outputs  # noqa: F401  # they enter their faults in the table
from tools.faulty.fault import FAULTS, Fault

__all__ = ["FAULTS", "Fault"]
