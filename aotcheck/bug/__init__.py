"""One difference as a report that can be posted: what differs, and a script of plain torch that shows it."""

from aotcheck.bug.document import document
from aotcheck.bug.make import Bug, make

__all__ = ["Bug", "document", "make"]
