"""Runs a program eagerly and on a backend, takes a snapshot of everything observable after each step, and compares."""

from aotcheck.oracle.compare import ORACLES, Pair, compare
from aotcheck.oracle.kinds import CoarseKey, Deviation, Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.oracle.leniency import IGNORABLE, soft_kinds
from aotcheck.oracle.plan import as_promised
from aotcheck.oracle.raised import same_key
from aotcheck.oracle.verdict import Outcome, Verdict, check

__all__ = [
    "IGNORABLE",
    "ORACLES",
    "CoarseKey",
    "Deviation",
    "Difference",
    "OracleKind",
    "Outcome",
    "Pair",
    "Phase",
    "Place",
    "Role",
    "Severity",
    "Verdict",
    "as_promised",
    "check",
    "compare",
    "same_key",
    "soft_kinds",
]
