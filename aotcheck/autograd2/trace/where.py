"""Which line of the user's program runs now."""

from __future__ import annotations

import sys
from types import FrameType

from aotcheck.autograd2.ir.graph import Where

_NOT_THE_USERS = ("torch.", "aotcheck.autograd2", "aotcheck._torch2")
_lines: dict[tuple[str, int], Where] = {}


def user_line() -> Where | None:
    """The innermost frame that is neither torch's nor ours; None if there is none."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if module != "torch" and not module.startswith(_NOT_THE_USERS):
            code = frame.f_code
            key = (code.co_filename, frame.f_lineno)
            found = _lines.get(key)
            if found is None:
                found = _lines[key] = Where(code.co_filename, frame.f_lineno, code.co_name)
            return found
        frame = frame.f_back
    return None


def raised_by_user(error: BaseException) -> bool:
    """Whether code that is neither torch's nor ours raised an error."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    module: str = "" if at is None else at.tb_frame.f_globals.get("__name__", "")
    return at is not None and module != "torch" and not module.startswith(_NOT_THE_USERS)
