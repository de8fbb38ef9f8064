"""What the compiler raises on purpose."""

from __future__ import annotations

import dataclasses


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


class SchemaError(RuntimeError):
    """A custom op does not do what its schema says; raised in debug mode, and names the op."""


class InternalError(RuntimeError):
    """A compiled graph failed where the original function does not: a bug of aotcheck."""


@dataclasses.dataclass(frozen=True)
class TraceMode:
    """How a trace is made; the plainest form is tried first.

    with_bases: views among the arguments are replayed on their bases, which become the roots.
    with_custom_views: those that custom Functions made are, too; eager refuses to write them.
    custom_views_tried: such a trace has been made and nothing was refused, so that they need not be.
    with_outdated: what autograd has yet to look for of views written before, it has of their replicas, too.
    """

    with_bases: bool = False
    with_custom_views: bool = False
    custom_views_tried: bool = False
    with_outdated: bool = False

    @property
    def tries_custom_views(self) -> bool:
        """Whether the trace is only made to see whether eager refuses something."""
        return self.with_custom_views and not self.custom_views_tried


class Retrace(Exception):
    """The trace met what this mode cannot record; ``mode`` can."""

    def __init__(self, mode: TraceMode) -> None:
        super().__init__(mode)
        self.mode = mode


class RetraceWithGradients(Exception):
    """The trace met a use of an argument's ``.grad``: gradients become implicit inputs of the next trace."""


class RetraceWithCasts(Exception):
    """Autocast cast arguments in the trace: what it caches of these becomes implicit inputs of the next trace."""


class RetraceWithValues(UnsupportedError):
    """The trace needs values of the arguments ``indices``, which may become part of the call's key.

    Where it is too late for that, it is a refusal.
    """

    def __init__(self, detail: str, indices: frozenset[int] = frozenset()) -> None:
        super().__init__("data-dependent", detail)
        self.indices = indices

    def __reduce__(self) -> tuple[type[RetraceWithValues], tuple[str, frozenset[int]]]:  # type: ignore[override]
        return type(self), (self.detail, self.indices)


class RetraceWithCallerGraph(Exception):
    """The trace met a backward: the next one is told what lies behind the arguments."""


class RetraceWithCaptured(Exception):
    """The trace met tensors that are not arguments: they become implicit inputs of the next trace."""


class RetraceWithAttributes(Exception):
    """The trace assigned tensors to attributes of the module: they become part of its state."""


class RetraceApart(Exception):
    """The trace met custom Functions, of these names, that are to be cut off: see Note [Functions cut off]."""


class RunsAsItIs(UnsupportedError):
    """The trace met what only eager does right, as attributes of a tensor, or tensors as keys, are no part of a call's
    key: the function runs eagerly from now on.

    Where it is too late for that, it is a refusal.
    """


class RunsThisOnce(RunsAsItIs):
    """The trace met a backward that uses or changes what its call keeps around it: the call runs eagerly.

    A later one may keep nothing; see Note [What backwards find around them].
    """


class BindingNeeded(UnsupportedError):
    """The trace wrote containers among the arguments that are to be bound: see Note [Bound arguments].

    ``places`` says which of all that are among the arguments.
    """

    def __init__(self, places: tuple[int, ...]) -> None:
        super().__init__("write to an input container", "of a class of its own, or passed more than once")
        self.places = places


RETRACES = (Retrace, RetraceWithGradients, RetraceWithCallerGraph, RetraceWithCaptured, RetraceWithAttributes)


class EagerRaises(Exception):
    """The trace met what eager refuses and replicas do not show: the original raises in its place."""


EXPECTATION = "aotcheck: a value is not what the trace took it for"
"""What a graph raises with in whose place the original must run."""

OTHER_FORMULA = "aotcheck: other formulas: "
"""What a graph raises with where data ask for other formulas than it was made with; which, stands behind."""

_LACK_OF_DATA = (
    "its data is not allocated yet",
    "Not available for 'meta' device type",
    "Cannot copy out of meta tensor",
    "should be a 1D CPU int64 tensor, but got 1D meta",  # lengths of what is packed
)


def is_lack_of_data(error: Exception) -> bool:
    """Whether torch's own code raised ``error`` because a replica has no data to read."""
    return isinstance(error, (RuntimeError, NotImplementedError)) and any(x in str(error) for x in _LACK_OF_DATA)


def higher_order_op(name: str) -> UnsupportedError:
    """The refusal of the higher-order op ``name``, whose bodies no trace can follow."""
    instead = "write it in plain Python (torch.where, a loop of fixed length) or call it outside what is compiled"
    return UnsupportedError("higher-order op", f"torch.ops.higher_order.{name}; {instead}")
