"""What the compiler raises on purpose."""

from __future__ import annotations

from aotcheck.autograd2.ir.graph import Where


class UnsupportedError(RuntimeError):
    """The function cannot be compiled, and that is known; inputs and global state are untouched.

    ``reason`` is a short stable category to count by. The message adds what was met, where, and what to do instead.
    """

    def __init__(self, reason: str, detail: str = "", where: Where | None = None) -> None:
        said = f"{reason}: {detail}" if detail else reason
        super().__init__(f"{said}\n  {where}" if where is not None else said)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


class GraphFailedError(Exception):
    """A compiled graph raised before it wrote anything: the original then shows the user's error."""


class NotFunctionalError(RuntimeError):
    """A graph writes what it was given, or holds what is no ATen op: a bug of aotcheck, or of a pass on its graphs."""


class SchemaError(RuntimeError):
    """A user's op writes an argument, or returns its memory, and its schema does not say so. Debug mode looks."""
