"""A backend: its name, its promises, and where it may differ from eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Function = Callable[..., Any]


class Promise(Enum):
    """What a backend may or may not promise; the value is how the command line and reports name it.

    What a backend does not promise is treated in one of three ways, which each member names. *Soft*: the difference is
    counted as a soft one and is no finding. *Left out step*: the step of the plan is not made. *Left out program*: the
    program is not judged. Both kinds of leaving out are counted by promise and shown.
    """

    GUARDS = "guards"
    """A second call whose key differs (shape, aliasing, grad mode ...) is compiled anew.

    Left out steps: calls from the first one on whose key differs from the first call's.
    """

    GRADIENTS = "gradients"
    """Results have the history that eager's have, and backwards give eager's gradients.

    Left out steps: every backward, every hook, every write into a gradient. Soft: ``requires_grad``, leafness,
    ``grad_fn``, whether there is a gradient, calls of hooks. Left out programs: those whose function differentiates or
    registers hooks itself, and those that eager refuses with grad mode enabled and treats otherwise without it.
    """

    DOUBLE_BACKWARD = "double backward"
    """Gradients have gradients.

    Left out steps: backwards of gradients; ``create_graph=True`` is made ``retain_graph=True``.
    """

    MUTATION = "input mutation"
    """What the function writes into its arguments (values, metadata, storages) is there after the call.

    Left out programs: those whose function does so, even if it writes what is there already.
    """

    ALIASING = "aliasing"
    """Results share memory with arguments and with each other as eager's do, and are the same objects; a write through
    an argument shows in the others that share its memory.

    Soft: which tensors are one object or share a storage; of results also the storage offset, leafness, ``grad_fn``,
    conjugate and negative bits, and the inference flag, which a copy may have otherwise. Left out steps: the caller's
    writes after a call. Left out programs: those whose function writes an argument that shares memory with another.
    """

    STRIDES = "strides"
    """Results have eager's strides. Soft, of results: strides, storage offset, storage size, conjugate and negative
    bits."""

    HALF = "half"
    """float16 and bfloat16. Left out programs: those with a tensor of such a dtype among the arguments, or made by an
    op inside."""

    FLOAT64 = "float64"
    """The same for float64."""

    COMPLEX = "complex"
    """The same for complex dtypes."""

    RANDOM = "random numbers"
    """Random ops draw what eager draws. Left out programs: those whose function draws."""

    EMPTY = "empty tensors"
    """Tensors without elements. Left out programs: those with one among the arguments, or made by an op inside."""

    SUBCLASSES = "subclasses"
    """Wrapper subclasses. Left out programs: those with one among the arguments or results, or made inside."""

    CONSTANTS = "constants"
    """Results may hold values that are no tensors: numbers, strings, None. Left out programs: those that return one."""

    CONTAINERS = "container types"
    """A list comes back as a list and a tuple as a tuple. Soft: differences in that alone."""

    PYTREES = "pytrees"
    """Arguments may be containers, and results may be dictionaries or nested.

    Left out programs: those with an argument that is a container, or with a result that is neither a tensor nor a flat
    tuple or list.
    """

    OBJECTS = "objects"
    """Arguments may be objects of classes that nobody registered as pytrees, whose attributes the function reads and
    assigns. Left out programs: those with an argument that is or holds one."""

    ERRORS = "errors"
    """What eager refuses, the backend refuses by the same type of exception. Left out programs: those that eager
    refuses in a call."""

    ORDER_IN_LISTS = "order in lists"
    """An op that writes a list of tensors (``_foreach_*_``) writes one after the other, also those that share memory.

    Left out programs: those that give such an op tensors that share memory. Eager itself promises it on the CPU alone:
    on a GPU one kernel writes all of them at once.
    """

    EFFECTS = "effects"
    """What Python does while the function runs it does in every call, as often and in the same order: what is printed.

    Soft: what is printed. A compiler that runs Python only while it traces prints then and never again.
    """

    MODULES = "modules"
    """A module that a function closes over is compiled with the parameters and buffers that it has in each call.

    Where it is promised, as by front ends, ``aotcheck.check`` hands a module over as it is; else as a function of its
    parameters and buffers.
    """


EVERY_PROMISE = frozenset(Promise) - {Promise.MODULES}
"""What is expected of a backend that nothing is known of."""


def _nothing() -> None:
    """Nothing to reset."""


def _uncounted() -> None:
    """A backend that does not count its compilations."""


def _no_refusals() -> Mapping[str, int]:
    """A backend that does not count its refusals."""
    return {}


@dataclass(frozen=True)
class Backend:
    """A compiled path. Calling a backend calls its ``compile``.

    Args:
        name: as ``resolve`` took it, and as findings name it.
        compile: takes a function over tensors, returns the compiled one.
        promises: what holds; everything but what the backend is known not to promise.
        reset: called between programs, so that no program sees what another one left in a cache.
        refusals: how often the backend has handed a program, or a part of one, to somebody else so far, by reason; a
            program during which this grows is counted as refused, never as agreeing.
        compilations: how often the backend has compiled something so far; None where it cannot tell.
        ignored: kinds of differences that are soft whatever is promised, as ``OracleKind`` spells them (``"stride"``).
        rtol: floating values are equal if they differ by at most this much of the largest magnitude in their tensor.
        refuses: names of exception classes; one of them or of their subclasses, raised by the backend where eager does
            not raise the same, is a refusal, not a difference. So is an exception that was raised from one.
    """

    name: str
    compile: Callable[[Function], Function]
    promises: frozenset[Promise] = EVERY_PROMISE
    reset: Callable[[], None] = _nothing
    refusals: Callable[[], Mapping[str, int]] = _no_refusals
    compilations: Callable[[], int | None] = _uncounted
    ignored: frozenset[str] = frozenset()
    rtol: float = 0.0
    refuses: tuple[str, ...] = ()

    def __call__(self, fn: Function) -> Function:
        """Compile ``fn``: a backend stands wherever a function that compiles does, in a finding's script for one."""
        return self.compile(fn)
