"""The console for reports: rich's, with this package's handling of an output that nobody reads any more."""

import errno
import os

import rich.console

__all__ = ["Console"]


class Console(rich.console.Console):
    """A console whose closed pipe is an error like any other; rich ends the process with 1, which means findings."""

    def on_broken_pipe(self) -> None:
        """Say so by an exception."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
