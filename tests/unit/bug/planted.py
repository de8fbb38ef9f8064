"""Faulty compiled paths whose faults a report is to show; scripts import them by name."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.meta.planted import after, on_copies, on_new_objects, on_result, on_tensors, raises
from tools.faulty.forms import printing

Function = Callable[..., Any]

copies = on_copies
doubled = on_tensors(lambda t: t * 2)
strided = on_tensors(lambda t: t.t().contiguous().t())
freed = on_tensors(torch.clone)
resized = after(lambda x, *rest: x.resize_(1))
forgets = on_new_objects
prints = printing(lambda text: text * 2)
fails = raises(ValueError("no 7 of 'x'"))
explains = raises(ValueError(f"no 7 of 'x'{' and more' * 99}\n\nand advice"))


def deaf(fn: Function) -> Function:
    """A path that does not raise what the function raises."""

    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception:
            return None

    return compiled


def dies(fn: Function) -> Function:
    """A path that ends the process."""
    return on_result(lambda result: os.abort())(fn)


def hangs(fn: Function) -> Function:
    """A path that does not end."""
    return on_result(lambda result: time.sleep(3600))(fn)


def picky(fn: Function) -> Function:
    """A path that is wrong where an argument has more memory than it shows."""

    def compiled(x: torch.Tensor) -> Any:
        result = fn(x)
        return result + 1 if x.untyped_storage().nbytes() > x.numel() * x.element_size() else result

    return compiled


def remembers(fn: Function) -> Function:
    """A path that gives what the first call gave, ever after."""
    kept: list[Any] = []

    def compiled(*args: Any) -> Any:
        if not kept:
            kept.append(fn(*args))
        return kept[0]

    return compiled
