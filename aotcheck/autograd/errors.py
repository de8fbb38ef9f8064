"""What the compiler raises on purpose."""

from __future__ import annotations


class UnsupportedError(RuntimeError):
    """The function cannot be compiled and that is known; inputs and global state are untouched.

    ``reason`` is a short stable category to count by; the message adds what exactly was met and what to do instead.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


class NotFunctionalError(AssertionError):
    """A graph that must be functional holds a node that mutates; the message names it."""


class InternalError(RuntimeError):
    """A compiled graph failed where the original function does not: a bug of aotcheck."""


class RetraceWithBases(Exception):
    """The trace met a write that autograd sees through several views: their bases have to be the roots."""


class RetraceWithCaptured(Exception):
    """The trace met tensors that are not arguments: they become implicit inputs of the next trace."""
