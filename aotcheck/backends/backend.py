"""A backend: its name, its promises, and where it may differ from eager."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Function = Callable[..., Any]


class Promise(Enum):
    """What a backend may or may not promise; the value is the name on the command line and in reports.

    Each member says what happens if a backend does not promise it. *Soft*: the difference is counted, but is no
    finding. *Left out steps*: these steps do not run. *Left out programs*: these programs are not judged. What is left
    out is counted by promise and shown.
    """

    GUARDS = "guards"
    """A second call whose key differs (shape, aliasing, grad mode ...) is compiled anew.

    Left out steps: calls from the first one on whose key differs from the first call's.
    """

    GRADIENTS = "gradients"
    """Results have the history of eager's results, and backwards give eager's gradients.

    Left out steps: every backward, every hook, every write to a gradient. Soft: ``requires_grad``, leafness,
    ``grad_fn``, whether there is a gradient, calls of hooks. Left out programs: those whose function differentiates or
    registers hooks itself, and those that eager refuses with grad mode enabled but not with grad mode disabled.
    """

    DOUBLE_BACKWARD = "double backward"
    """Gradients can be differentiated.

    Left out steps: backwards of gradients; ``create_graph=True`` becomes ``retain_graph=True``.
    """

    MUTATION = "input mutation"
    """The function's mutations of its arguments (values, metadata, storages) are there after the call.

    Left out programs: those whose function mutates arguments, even if it writes values that are there already.
    """

    ALIASING = "aliasing"
    """Results share memory with arguments and with each other as in eager, and are the same objects; a write to an
    argument is seen through other arguments on its storage.

    Soft: which tensors are one object or share a storage; for results also what a copy may change: storage offset,
    leafness, ``grad_fn``, conjugate and negative bits, the inference flag. Left out steps: the caller's writes after a
    call. Left out programs: those whose function writes an argument that shares memory with another.
    """

    STRIDES = "strides"
    """Results have eager's strides. Soft, for results: strides, storage offset, storage size, conjugate and negative
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
    """A result list is a list and a result tuple is a tuple. Soft: results that differ only in that."""

    PYTREES = "pytrees"
    """Arguments may be containers, and results may be dictionaries or nested.

    Left out programs: those with an argument that is a container, or with a result that is neither a tensor nor a flat
    tuple or list.
    """

    OBJECTS = "objects"
    """Arguments may be objects that are no registered pytrees; the function reads and assigns their attributes.
    Left out programs: those with an argument that is or holds such an object."""

    ERRORS = "errors"
    """Where eager raises, the backend raises the same type of exception. Left out programs: those in which a call
    raises in eager."""

    VALUE_ERRORS = "errors by values"
    """An op that does not take the values of its operands raises: an index out of bounds, a probability above one.

    Left out programs: those in which an op raises so. Eager itself promises it on the CPU alone: on a GPU the kernel
    fails an assertion, and from then on no op works in the process.
    """

    ORDER_IN_LISTS = "order in lists"
    """An op that writes a list of tensors (``_foreach_*_``) writes them one after the other, even if they share memory.

    Left out programs: those that give such an op tensors that share memory. Eager itself promises this only on the
    CPU: on a GPU one kernel writes all tensors at once.
    """

    EFFECTS = "effects"
    """Python side effects happen in every call, as often and in the same order as in eager; prints are compared.

    Soft: what is printed. A compiler that runs Python only while it traces prints only then.
    """

    MODULES = "modules"
    """A compiled function that closes over a module uses the parameters and buffers that the module has at each call.

    If a backend promises this, as front ends do, ``aotcheck.check`` compiles the module itself; if not, a function of
    its parameters and buffers.
    """


EVERY_PROMISE = frozenset(Promise) - {Promise.MODULES}
"""The promises that are expected of an unknown backend."""


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
        name: the name in findings; ``resolve`` takes the same name.
        compile: takes a function over tensors, returns the compiled one.
        promises: what the backend promises, by default everything.
        reset: called between programs, so that no program uses what another one left in a cache.
        refusals: how often the backend has handed a program, or a part of one, to another compiler so far, by reason. A
            program during which a count grows is counted as refused, never as agreeing.
        compilations: how often the backend has compiled something so far; None if unknown.
        ignored: kinds of differences that are always soft, spelled as by ``OracleKind`` (``"stride"``).
        rtol: floating values are equal if they differ by at most this share of the largest magnitude in their tensor.
        refuses: names of exception classes. If the backend raises one of them or of their subclasses, or an exception
            raised from one, and eager does not raise the same, that is a refusal, not a difference.
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
        """Compile ``fn``, so that a backend can be used in place of its ``compile``."""
        return self.compile(fn)
