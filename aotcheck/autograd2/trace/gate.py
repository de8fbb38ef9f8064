"""What is refused: each event with its reason and one sentence that says what to do instead; and the user's line.

A refusal comes before anything of the caller's was touched. The list is docs/contract.md's.
"""

from __future__ import annotations

import enum
import sys
import threading
import traceback
from types import FrameType
from typing import NoReturn

from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.ir.graph import Where

_NOT_THE_USERS = ("torch.", "aotcheck.autograd2", "aotcheck._torch2")


def user_line(error: BaseException | None = None) -> Where | None:
    """The innermost frame that is neither torch's nor ours, now or where ``error`` was raised; None if none is."""
    raised = [] if error is None else [*traceback.walk_tb(error.__traceback__)][::-1]
    for frame, line in raised or traceback.walk_stack(sys._getframe(2)):
        if _is_users(frame):
            return Where(frame.f_code.co_filename, line, frame.f_code.co_name)
    return None


def raised_by_user(error: BaseException) -> bool:
    """Whether code that is neither torch's nor ours raised an error."""
    return any(_is_users(frame) for frame, _ in [*traceback.walk_tb(error.__traceback__)][-1:])


def _is_users(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module != "torch" and not module.startswith(_NOT_THE_USERS)


_last = threading.local()


class Event(enum.Enum):
    """What a trace may meet; the value is the reason to count by, and what to do instead."""

    DATA = ("data-dependent", "a Python value depends on data; compute with tensors, or leave this part uncompiled")
    SWAP = ("swap_tensors", "exchange tensors outside the function")
    SEED = ("seeding inside the function", "seed generators outside of it")
    CAPTURED = ("captured tensor", "pass the tensor as an argument, or as an attribute of a module that is called")
    ATTRIBUTE = ("attribute of a tensor", "put tensors and objects, and what the function sets, on a module instead")
    ESCAPED = ("kept tensor", "return the tensor in place of keeping it")
    WRAPPER = ("wrapper subclass", "wrapper subclasses come with a later part of this compiler")
    LAYOUT = ("layout", "only strided tensors can be traced")
    DEVICE = ("device", "tensors on this device cannot be traced")
    HISTORY = ("history not of a view", "let tensors that have a grad_fn keep their storage and shape")
    STORAGE = ("storage of a tensor with a history", "use set_, resize_ and .data = on tensors without grad_fn only")
    NO_GRAD_VIEW = ("view made under no_grad", "make the view where its base is written")
    HOOK = ("hook inside", "register hooks outside of the function")
    HIGHER_ORDER = ("higher-order op", "higher-order ops come with a later part of this compiler")
    UNKNOWN_WRITE = ("op without a functional form", "register a functional variant, or call the op outside")
    ODD = ("storage of no whole number of elements", "give the tensor a storage of its own")
    OVERLAP = ("overlapping operands", "clone one of the operands")
    ALIAS = ("unannotated alias", "return a copy from the op, or declare the alias in its schema")
    GLOBAL = ("global state set inside", "set defaults outside of the function, and autocast by its context manager")
    FOREIGN = ("another tracer", "call the compiled function outside of it")
    CALLERS = ("backward into the caller's graph", "run the backward outside, or detach the argument")
    SECOND = ("second derivative", "second derivatives come with a later part of this compiler")
    CHECKPOINT = ("reentrant checkpoint", "checkpoints come with a later part of this compiler")
    LATE = ("backward of some results", "run one backward for all results")
    OTHER_SIZES = ("backward that is guarded for other sizes", "compile the function with dynamic=False")
    STATE = ("state assigned inside", "assign tensors, numbers and strings only")
    FAKE = ("fake parameter", "build the module with real parameters")
    OBJECT = ("unregistered container", "register it with torch.utils._pytree, or take what it holds as arguments")
    SCRIPT = ("TorchScript", "compile the module or function that was scripted")
    BASE = ("view of a base that has changed", "make the view again after its base was given other data")
    FILL = ("uninitialized memory", "switch deterministic algorithms off where tensors grow")
    LEAF = ("requires_grad changed inside", "set it once, on a tensor that is no view and is not moved")
    STALE = ("leaf written after autocast cast it", "write leaves outside of autocast")
    CAST = ("autocast inside a kernel", "switch autocast off where the op is called")
    INFERENCE = ("inference mode inside", "enter and leave inference mode outside of the function")
    MEMORY = ("storages that share memory", "clone what another library lends")
    COUNTERS = ("saved memory with several version counters", "use detach in place of .data and set_")
    GRAPH = ("error in a graph alone", "nothing: the call ran eagerly")
    KERNEL = ("error in the trace alone", "nothing: the call ran eagerly")
    BACKWARD_WRITE = ("write in a backward", "let backwards write only tensors that they make")
    UNKNOWN_STORAGE = ("unknown storage", "make tensors by ops that can be traced")
    FREED = ("memory that was freed", "write tensors before their storage is made smaller")
    NO_FAKE = ("op without a fake kernel", "register one with torch.library.register_fake")
    BASES = ("views of one base with symbolic sizes", "write one argument alone, or pass the base")
    GUARDS = ("guards that do not hold", "nothing: sizes are fixed in place of symbols")
    REFUSES = ("backward that eager refuses", "call the function outside, which raises the same")
    PARTITION = ("partition_fn", "save values of the joint graph only")
    SPARSE = ("sparse tensor", "sparse tensors cannot be traced")


def refuse(event: Event, detail: str = "", error: BaseException | None = None) -> NoReturn:
    """Raise the refusal of an event, with the user's line; ``detail`` says what was met, ``error`` where."""
    reason, instead = event.value
    _last.said = reason, f"{detail}; {instead}" if detail else instead, user_line(error)
    raise UnsupportedError(*_last.said)


def met() -> UnsupportedError | None:
    """The last refusal of this thread since the last time: the function may have caught it and gone on."""
    said, _last.said = getattr(_last, "said", None), None
    return None if said is None else UnsupportedError(*said)
