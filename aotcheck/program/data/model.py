"""A fuzzed program as data: inputs, statements, outputs, and the calls a caller makes.

Everything here is frozen and hashable, prints as Python (:mod:`aotcheck.program.source.emit`) and is read back without
running anything (:mod:`aotcheck.program.source.parse`).

Note [Names]
    ``s0, s1, ...`` are storages and ``a0, a1, ...`` tensors of the caller, ``x0, x1, ...`` the function's parameters,
    ``v0, v1, ...`` values made inside it. Names carry no meaning beyond that habit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "Around",
    "Backward",
    "Block",
    "Call",
    "Context",
    "Cotangent",
    "DType",
    "DeviceOf",
    "DictExpr",
    "Expr",
    "Fill",
    "GradMode",
    "Graph",
    "Hook",
    "HookKind",
    "Inputs",
    "ListExpr",
    "Literal",
    "Of",
    "OpCall",
    "Probe",
    "Program",
    "Ref",
    "Site",
    "SliceExpr",
    "Statement",
    "Step",
    "Storage",
    "Strided",
    "TupleExpr",
    "Way",
    "Write",
    "flat_calls",
    "references",
]


# -- expressions


@dataclass(frozen=True)
class Ref:
    """A name: a parameter or a value made earlier."""

    name: str


@dataclass(frozen=True, eq=False)
class Literal:
    """A Python constant: None, Ellipsis, bool, int, float, complex or str.

    Equal when written the same: ``Literal(1) != Literal(1.0)``, ``Literal(nan) == Literal(nan)``.
    """

    value: bool | int | float | complex | str | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True)
class DType:
    """``torch.<name>``, a dtype."""

    name: str


@dataclass(frozen=True)
class DeviceOf:
    """``<name>.device``, so that a factory lands where the inputs are."""

    name: str


@dataclass(frozen=True)
class SliceExpr:
    """``start:stop:step`` inside an index."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class TupleExpr:
    """A tuple of expressions; inside an index, a multi-dimensional index."""

    items: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class ListExpr:
    """A list of expressions."""

    items: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class DictExpr:
    """A dict with string keys; where ``of`` names a class of ``called/objects.py``, an object of that."""

    items: tuple[tuple[str, Expr], ...] = ()
    of: str = ""


Expr = Ref | Literal | DType | DeviceOf | SliceExpr | TupleExpr | ListExpr | DictExpr


# -- statements


@dataclass(frozen=True)
class OpCall:
    """``target = path(*args, **kwargs)``.

    ``path`` is how the op is written: ``torch.sin``, ``Tensor.add_`` (a method, ``args[0].add_(...)``), ``Tensor.T``
    (an attribute, when its table entry says so), ``getitem``, ``setitem``, ``Tensor.data=`` (an assignment,
    ``args[0].data = args[1]``) and ``SavesTensors.apply`` (a custom Function, see ``called/functions.py``).
    ``target`` is a name, a tuple of names (unpacked) or None (the result is dropped).
    """

    target: str | tuple[str, ...] | None
    path: str
    args: tuple[Expr, ...] = ()
    kwargs: tuple[tuple[str, Expr], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that this statement binds."""
        if self.target is None:
            return ()
        return (self.target,) if isinstance(self.target, str) else self.target


class Context(Enum):
    """A ``with`` block's context; the value is how it is written."""

    NO_GRAD = "torch.no_grad()"
    ENABLE_GRAD = "torch.enable_grad()"
    INFERENCE = "torch.inference_mode()"
    AUTOCAST = "torch.autocast('cpu', torch.bfloat16)"


@dataclass(frozen=True)
class Block:
    """``with context:`` around a non-empty body."""

    context: Context
    body: tuple[Statement, ...]


Statement = OpCall | Block


# -- inputs


@dataclass(frozen=True)
class Storage:
    """A storage holding small integers written as ``dtype``; a complex element takes two of ``data``."""

    name: str
    dtype: str
    data: tuple[int, ...]

    @property
    def numel(self) -> int:
        """How many elements of ``dtype`` it holds."""
        return len(self.data) // 2 if self.dtype.startswith("complex") else len(self.data)


@dataclass(frozen=True)
class Strided:
    """A leaf tensor that is nobody's view: a geometry on a storage; ``stride`` and ``offset`` in elements of
    ``dtype``."""

    name: str
    storage: str
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    requires_grad: bool = False


@dataclass(frozen=True)
class Inputs:
    """What the caller builds before a call.

    ``derived`` are statements over the ``tensors``: view chains from a base, ``detach``, a ``clone`` that makes a
    non-leaf, ...; ``args`` are the positional arguments, pytrees of names and constants. A tensor not named in ``args``
    is a base that is not passed; one named twice is the same object passed twice.
    """

    storages: tuple[Storage, ...]
    tensors: tuple[Strided, ...]
    derived: tuple[Statement, ...]
    args: tuple[Expr, ...]


# -- calls


class GradMode(Enum):
    """The grad mode around a call."""

    ENABLED = "enabled"
    NO_GRAD = "no_grad"
    INFERENCE = "inference"


class Around(Enum):
    """A further context of the caller's around a call or a backward.

    ``SAVED_TENSORS`` are saved-tensor hooks that keep a copy: which tensors are saved, and how many, is nobody's
    promise, and a copy makes it unobservable. ``VMAP``, ``JACREV`` and ``JVP`` are transforms of ``torch.func``: the
    caller calls the function under it, with respect to the first argument that it suits; around a backward they are
    nothing.
    """

    AUTOCAST = "autocast"
    ANOMALY = "anomaly"
    SAVED_TENSORS = "saved tensors"
    NO_GRAD = "no_grad"
    VMAP = "vmap"
    JACREV = "jacrev"
    JVP = "jvp"


class Site(Enum):
    """Which tensors a probe or a hook is for: a call's results, its arguments, or the gradients there are."""

    OUTPUT = "output"
    INPUT = "input"
    GRADIENT = "gradient"


class Fill(Enum):
    """What a cotangent is like; the value is how :func:`aotcheck.program.cotangent` knows it."""

    PATTERN = "pattern"
    ZEROS = "zeros"
    EXPANDED = "expanded"
    STRIDED = "strided"
    INFINITE = "infinite"
    TRAINED = "trained"
    IMPLICIT = "implicit"


@dataclass(frozen=True)
class Cotangent:
    """A cotangent in the making; ``seed`` 0 makes a pattern all ones."""

    fill: Fill = Fill.PATTERN
    seed: int = 0


class Of(Enum):
    """What is backpropagated: a call's outputs, what its last ``torch.autograd.grad`` returned, the ``.grad`` of its
    inputs, or one scalar, the sum of the outputs and of the squares of what ``grad`` returned (a gradient penalty)."""

    OUTPUTS = "outputs"
    RESULTS = "results"
    GRADIENTS = "gradients"
    PENALTY = "penalty"


class Way(Enum):
    """``torch.autograd.backward``, or ``torch.autograd.grad`` with and without ``allow_unused``."""

    ACCUMULATE = "backward"
    RETURN = "grad"
    RETURN_USED = "grad of used"


class Graph(Enum):
    """What becomes of the graph: freed, ``retain_graph=True``, ``create_graph=True``, or created and freed."""

    FREED = "freed"
    RETAINED = "retained"
    CREATED = "created"
    CREATED_FREED = "created, freed"


@dataclass(frozen=True)
class Backward:
    """A backward through a subset of the differentiable tensors that ``of`` names.

    Args:
        roots: indices into the list of those tensors that require grad, flattened, in order, without repeated objects;
            indices past its end are ignored, and nothing is done if none is left.
        cotangents: one per root, the last one for all further roots.
        of: which tensors.
        way: whether gradients accumulate or are returned.
        inputs: indices into the list of the call's named inputs that require grad now; None for all there are.
        graph: what becomes of the graph.
        around: contexts around it.
        calls_ago: which call's tensors: 0 for the call whose step it is, 1 for the one before.
    """

    roots: tuple[int, ...]
    cotangents: tuple[Cotangent, ...] = (Cotangent(),)
    of: Of = Of.OUTPUTS
    way: Way = Way.ACCUMULATE
    inputs: tuple[int, ...] | None = None
    graph: Graph = Graph.FREED
    around: tuple[Around, ...] = ()
    calls_ago: int = 0


class Write(Enum):
    """How a probe writes: small integers under no_grad, or a product that autograd records, with a number or a leaf."""

    NO_GRAD = "no_grad"
    GRAD = "grad"
    TRAINED = "trained"


@dataclass(frozen=True)
class Probe:
    """Write, in place, through a side's ``index``-th flattened tensor; past the end: ignored."""

    site: Site
    index: int
    seed: int = 1
    how: Write = Write.NO_GRAD


class HookKind(Enum):
    """What is hung on a tensor; each but ``RETAIN`` remembers the gradients that it is called with.

    Tensor hooks that only watch or that double the gradient, post-accumulate hooks that only watch or that drop the
    gradient, and ``retain_grad``.
    """

    WATCH = "watch"
    DOUBLE = "double"
    POST = "post"
    CLEAR = "clear"
    RETAIN = "retain"


@dataclass(frozen=True)
class Hook:
    """Hang a hook on a side's ``index``-th flattened tensor, if it may have one."""

    kind: HookKind
    site: Site
    index: int


Step = Backward | Probe | Hook


@dataclass(frozen=True)
class Call:
    """One call and what the caller does around it.

    Args:
        inputs: None for the very same argument objects again, as the previous call left them.
        grad_mode: the grad mode around the call.
        steps: what is done after the call, in order. If the call raises, only backwards of earlier calls are.
        before: what is done to the arguments before it: probes and hooks.
        around: further contexts around it.
    """

    inputs: Inputs | None
    grad_mode: GradMode = GradMode.ENABLED
    steps: tuple[Step, ...] = ()
    before: tuple[Step, ...] = ()
    around: tuple[Around, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function over tensors (``params``, ``body``, ``outputs``) and the calls made on it, the first with inputs of
    its own."""

    params: tuple[str, ...]
    body: tuple[Statement, ...]
    outputs: Expr
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        if not self.calls or self.calls[0].inputs is None:
            raise ValueError("a program needs at least one call, and its first call needs inputs")

    @property
    def statements(self) -> int:
        """How many op calls the body holds, blocks opened."""
        return sum(1 for _ in flat_calls(self.body))


def flat_calls(body: tuple[Statement, ...]) -> Iterator[OpCall]:
    """The op calls of a body in order, blocks opened."""
    for statement in body:
        if isinstance(statement, Block):
            yield from flat_calls(statement.body)
        else:
            yield statement


def references(expr: Expr) -> Iterator[str]:
    """The names an expression reads."""
    match expr:
        case Ref(name) | DeviceOf(name):
            yield name
        case TupleExpr(items) | ListExpr(items):
            for item in items:
                yield from references(item)
        case DictExpr(pairs):
            for _, item in pairs:
                yield from references(item)
        case _:
            return
