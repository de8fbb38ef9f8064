"""The words that fuzz, replay and nightly share, on the console and in reports."""

from enum import Enum

__all__ = ["COMMANDS", "Status", "counted"]

COMMANDS = ("aotcheck replay FILE", "aotcheck minimize FILE", "aotcheck bug FILE")
"""What to do with a finding next."""


class Status(Enum):
    """What became of a program file, a finding or a signature on a backend, beside what was known of it before.

    NEW: differs, and no corpus file says so. KNOWN: differs as a corpus file says. FIXED: no longer differs, though a
    corpus file says so. FLAKY: differs one time and not the other. REJECTED: is no program.
    """

    AGREES = "agrees"
    KNOWN = "known"
    NEW = "new"
    FIXED = "fixed"
    FLAKY = "flaky"
    REFUSED = "refused"
    REJECTED = "rejected"

    @property
    def fails(self) -> bool:
        """Whether somebody must act: look at a new difference, or bring an entry up to date."""
        return self in (Status.NEW, Status.FIXED)


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 finding``, ``2 findings``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
