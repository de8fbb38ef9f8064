"""A backend that is right but on programs of ``small.drawn`` that have a fate: some crash, hang or come out wrong."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any


def fate(numel: int, factor: int) -> str:
    """What becomes of ``torch.mul(x0, factor)`` with so many elements: an oracle's name, or nothing."""
    if numel == 7:
        return "crash" if factor in (3, 5) else "timeout" if factor in (-3, -5) else ""
    return "values" if numel in (3, 4) and factor == 4 else ""


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    def treacherous(x: Any) -> Any:
        result = fn(x)
        match fate(x.numel(), int(result.flatten()[0])):  # the first element of every input is 1
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "timeout":
                while True:
                    time.sleep(1)
            case "values":
                result.add_(1)
        return result

    return treacherous
