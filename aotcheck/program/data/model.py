"""A fuzzed program as data: inputs, statements, outputs, and the calls a caller makes.

Everything here is frozen and hashable. :mod:`aotcheck.program.source.emit` writes it as Python, and
:mod:`aotcheck.program.source.parse` reads that back without running anything.

Note [Names]
    ``s0, s1, ...`` are storages and ``a0, a1, ...`` tensors of the caller, ``x0, x1, ...`` parameters of the function,
    ``v0, v1, ...`` values made inside the function. This is a habit: the code does not rely on it.
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

    Literals are equal if they are written alike: ``Literal(1) != Literal(1.0)``, ``Literal(nan) == Literal(nan)``.
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
    """``<name>.device``, so that a factory op makes its tensor on the device of the inputs."""

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
    """A dict with string keys, or an object: ``of`` names its class in ``called/objects.py``."""

    items: tuple[tuple[str, Expr], ...] = ()
    of: str = ""


Expr = Ref | Literal | DType | DeviceOf | SliceExpr | TupleExpr | ListExpr | DictExpr


# -- statements


@dataclass(frozen=True)
class OpCall:
    """The statement ``target = path(*args, **kwargs)``.

    ``path`` is how the op is written: ``torch.sin``, ``Tensor.add_`` (a method, ``args[0].add_(...)``), ``Tensor.T``
    (an attribute, if its table entry says so), ``getitem``, ``setitem``, ``Tensor.data=`` (an assignment,
    ``args[0].data = args[1]``) or ``SavesTensors.apply`` (a custom Function, see ``called/functions.py``).
    ``target`` is a name, a tuple of names (the result is unpacked) or None (the result is dropped).
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
    """The context of a ``with`` block; the value is its source text."""

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
    """A storage filled with ``data``, small integers, as elements of ``dtype``; a complex element takes two of them."""

    name: str
    dtype: str
    data: tuple[int, ...]

    @property
    def numel(self) -> int:
        """The storage's size, in elements of ``dtype``."""
        return len(self.data) // 2 if self.dtype.startswith("complex") else len(self.data)


@dataclass(frozen=True)
class Strided:
    """A leaf tensor, a view of no tensor, on the storage that ``storage`` names; ``stride`` and ``offset`` in elements
    of ``dtype``."""

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
    non-leaf, ... ``args`` are the positional arguments, pytrees of names and constants. A tensor that ``args`` does not
    name is not passed, it may be a base of one that is. A tensor named twice is one object passed twice.
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
    """A context of the caller's around a call or a backward, besides the grad mode.

    ``SAVED_TENSORS`` are saved-tensor hooks that copy: no backend promises which tensors it saves, and with copies
    a program cannot observe that. ``VMAP``, ``JACREV`` and ``JVP`` are transforms of ``torch.func``: the caller calls
    the transformed function, with respect to the first argument that fits. Around a backward they have no effect.
    """

    AUTOCAST = "autocast"
    ANOMALY = "anomaly"
    SAVED_TENSORS = "saved tensors"
    NO_GRAD = "no_grad"
    VMAP = "vmap"
    JACREV = "jacrev"
    JVP = "jvp"


class Site(Enum):
    """Which tensors a probe or a hook is for: a call's results, its arguments, or the ``.grad`` of its inputs."""

    OUTPUT = "output"
    INPUT = "input"
    GRADIENT = "gradient"


class Fill(Enum):
    """Contents and layout of a cotangent; the value is an argument of :func:`aotcheck.program.cotangent`."""

    PATTERN = "pattern"
    ZEROS = "zeros"
    EXPANDED = "expanded"
    STRIDED = "strided"
    INFINITE = "infinite"
    TRAINED = "trained"
    IMPLICIT = "implicit"


@dataclass(frozen=True)
class Cotangent:
    """How to make a cotangent; with ``seed`` 0 a pattern is all ones."""

    fill: Fill = Fill.PATTERN
    seed: int = 0


class Of(Enum):
    """Where a backward starts: a call's outputs, the result of its last ``torch.autograd.grad``, its inputs' ``.grad``,
    or a scalar with a gradient penalty: the sum of the outputs and of the squares of that result."""

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
    """What a backward does with the graph: frees it, ``retain_graph=True``, ``create_graph=True``, or both."""

    FREED = "freed"
    RETAINED = "retained"
    CREATED = "created"
    CREATED_FREED = "created, freed"


@dataclass(frozen=True)
class Backward:
    """A backward from some of the tensors that ``of`` names.

    Args:
        roots: indices into the flat list of those tensors that require grad, each object once. Indices past the end
            are ignored; if none is left, the backward does not run.
        cotangents: one per root; further roots use the last one.
        of: the tensors that ``roots`` chooses from.
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
    """How a probe writes: small integers under no_grad, or a product with a number or a leaf that autograd records."""

    NO_GRAD = "no_grad"
    GRAD = "grad"
    TRAINED = "trained"


@dataclass(frozen=True)
class Probe:
    """Write in place to the ``index``-th tensor of ``site``, flattened; without effect if there are fewer tensors."""

    site: Site
    index: int
    seed: int = 1
    how: Write = Write.NO_GRAD


class HookKind(Enum):
    """A hook to register on a tensor; all but ``RETAIN`` record the gradients that they get.

    ``WATCH`` and ``DOUBLE`` are tensor hooks; ``DOUBLE`` doubles the gradient. ``POST`` and ``CLEAR`` are
    post-accumulate hooks; ``CLEAR`` sets ``.grad`` to None. ``RETAIN`` is ``retain_grad``.
    """

    WATCH = "watch"
    DOUBLE = "double"
    POST = "post"
    CLEAR = "clear"
    RETAIN = "retain"


@dataclass(frozen=True)
class Hook:
    """Register a hook on the ``index``-th tensor of ``site``, flattened, if that tensor may have one."""

    kind: HookKind
    site: Site
    index: int


Step = Backward | Probe | Hook


@dataclass(frozen=True)
class Call:
    """One call and what the caller does around it.

    Args:
        inputs: how to build the arguments; None for the argument objects of the previous call, as that call left them.
        grad_mode: the grad mode around the call.
        steps: what the caller does after the call, in order. If the call raises, only backwards of earlier calls run.
        before: what the caller does to the arguments before the call: probes and hooks.
        around: further contexts around it.
    """

    inputs: Inputs | None
    grad_mode: GradMode = GradMode.ENABLED
    steps: tuple[Step, ...] = ()
    before: tuple[Step, ...] = ()
    around: tuple[Around, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function over tensors (``params``, ``body``, ``outputs``) and its calls; the first one has its own inputs."""

    params: tuple[str, ...]
    body: tuple[Statement, ...]
    outputs: Expr
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        if not self.calls or self.calls[0].inputs is None:
            raise ValueError("a program needs at least one call, and its first call needs inputs")

    @property
    def statements(self) -> int:
        """The number of op calls in the body, those in blocks included."""
        return sum(1 for _ in flat_calls(self.body))


def flat_calls(body: tuple[Statement, ...]) -> Iterator[OpCall]:
    """The op calls of a body in order, those in blocks included."""
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
