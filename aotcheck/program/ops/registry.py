"""The op registry: what an op is, and lookups by path.

Every op is ONE entry of a table (in the other files of this folder). To add an op, add an entry::

    entry("Tensor.add_", "self other:fit alpha={1|2|-1}?", Group.INPLACE, dtypes=NUMERIC)

Note [Parameters]
    A signature is a list of parameters, separated by spaces. Each is ``kind``, ``name:kind`` (positional) or
    ``name=kind`` (keyword); a ``?`` behind it means optional. A kind is one of :class:`Kind`, or ``{a|b|c}``: one of
    these constants. Only strategies follow the kinds; a parsed program may have any expressions as arguments.
"""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

import torch

__all__ = [
    "INSIDE",
    "DTypes",
    "Form",
    "Group",
    "Kind",
    "Op",
    "Param",
    "UnknownOpError",
    "Work",
    "entries",
    "entry",
    "find",
    "implementation",
    "method_path",
    "ops",
    "register_op",
]


class UnknownOpError(LookupError):
    """A program names an op that is not registered, or that this torch does not have."""


class Form(Enum):
    """How an op is written."""

    FUNCTION = auto()
    METHOD = auto()
    ATTRIBUTE = auto()
    GETITEM = auto()
    SETITEM = auto()
    ASSIGN = auto()  # an attribute


class Group(StrEnum):
    """The group of an op; swarm testing switches whole groups on and off."""

    VIEW = auto()
    STRIDED_VIEW = auto()
    DTYPE_VIEW = auto()
    MULTI_VIEW = auto()
    INDEX = auto()
    INPLACE = auto()
    FILL = auto()
    SCATTER = auto()
    FOREACH = auto()
    OUT = auto()
    METADATA = auto()
    SET = auto()
    STORAGE = auto()
    FUNCTION = auto()
    CONTAINER = auto()
    DETACH = auto()
    POINTWISE = auto()
    COMPARE = auto()
    REDUCE = auto()
    MATMUL = auto()
    NN = auto()
    GATHER = auto()
    SORT = auto()
    JOIN = auto()
    CAST = auto()
    FACTORY = auto()
    RNG = auto()
    SUBCLASS = auto()
    AUTOGRAD = auto()
    MODULE = auto()
    TRANSFORM = auto()
    CONTROL = auto()
    OPTIMIZER = auto()


INSIDE = (Group.AUTOGRAD, Group.MODULE, Group.TRANSFORM, Group.CONTROL, Group.OPTIMIZER)
"""The groups of structured forms, which are more than an op; only some programs have any of them."""


class Work(Enum):
    """Whether an op's result on small integers is exact, so that it may be compared bitwise."""

    EXACT = auto()
    INEXACT = auto()


class DTypes(Enum):
    """Which dtypes an op takes as its first tensor."""

    ANY = auto()
    NUMERIC = auto()  # no bool
    REAL = auto()  # no bool, no complex
    REAL_OR_BOOL = auto()  # no complex
    FLOATING = auto()
    DIFFERENTIABLE = auto()  # floating or complex
    COMPLEX = auto()
    INTEGRAL = auto()  # bool included
    BOOL = auto()

    def accepts(self, dtype: torch.dtype) -> bool:
        """Whether a tensor of ``dtype`` fits."""
        is_bool = dtype == torch.bool
        differentiable = dtype.is_floating_point or dtype.is_complex
        match self:
            case DTypes.ANY:
                return True
            case DTypes.NUMERIC:
                return not is_bool
            case DTypes.REAL:
                return not is_bool and not dtype.is_complex
            case DTypes.REAL_OR_BOOL:
                return not dtype.is_complex
            case DTypes.FLOATING:
                return dtype.is_floating_point
            case DTypes.DIFFERENTIABLE:
                return differentiable
            case DTypes.COMPLEX:
                return dtype.is_complex
            case DTypes.INTEGRAL:
                return not differentiable
            case DTypes.BOOL:
                return is_bool


class Kind(StrEnum):
    """What kind of argument a parameter takes; the strategies can draw each kind."""

    SELF = auto()  # the first tensor
    OTHER = auto()  # a tensor that broadcasts with the first, or a scalar
    PEER = auto()  # a tensor that broadcasts with the first
    FIT = auto()  # a tensor that broadcasts to the first's shape, or a scalar
    FIT_TENSOR = auto()  # the same, never a scalar
    SAME = auto()  # a tensor of the first's shape and dtype
    OUT = auto()  # a tensor to write into
    MAT = auto()  # a matrix whose rows are the first's columns
    MAT_T = auto()  # a matrix whose columns are the first's columns
    BMAT = auto()  # the batched MAT
    LEFT = auto()  # a matrix as tall as the first
    RIGHT = auto()  # a matrix as wide as the first, as tall as LEFT is wide
    STORAGE = auto()  # the storage of a tensor of the first's dtype
    NBYTES = auto()  # a size for the first's storage, in bytes
    CONTAINER = auto()  # a list, a dict or an object, by the owner in the path
    KEY = auto()  # an index or a key of the container
    ANYTHING = auto()  # any tensor
    ITEMS = auto()  # a dict of tensors
    DATA = auto()  # a tensor, mostly of the first's dtype
    SOURCE_TENSOR = auto()  # a tensor of the first's dtype
    VEC = auto()  # a vector as long as the first's last dimension
    INDEX = auto()  # int64 [m], in range of dimension `dim`
    INDEX_ONCE = auto()  # the same without duplicates
    INDEX_FULL = auto()  # int64 of the first's shape, in range of dimension `dim`
    INDEX_FULL_ONCE = auto()  # the same, a permutation along `dim`
    INDICES = auto()  # a tuple of one int64 tensor, in range of dimension 0
    SOURCE = auto()  # the first's shape, with dimension `dim` as long as the index
    ROWS = auto()  # the first's shape, with dimension 0 as long as the index, or something that broadcasts to it
    MASK = auto()  # a bool tensor that broadcasts to the first
    TENSORS = auto()  # a list of tensors of one shape and dtype
    LIST = auto()  # a list of tensors to write into
    LIST_SAME = auto()  # as many tensors, of the same shapes
    SCALAR = auto()
    INT = auto()
    BOOLEAN = auto()
    DIM = auto()
    DIM2 = auto()
    NEW_DIM = auto()  # a dimension of the result with one dimension more
    DIMS = auto()
    PERM = auto()
    VIEW_SIZE = auto()
    SIZE = auto()
    FACTORY_SIZE = auto()
    EXPAND_SIZE = auto()
    STRIDED_SIZE = auto()
    STRIDED_STRIDE = auto()
    STRIDED_OFFSET = auto()
    RESIZE_SIZE = auto()
    SPLIT_SIZE = auto()
    SPLIT_SIZES = auto()
    SPLIT_POINTS = auto()
    START = auto()
    LENGTH = auto()
    POSITION = auto()
    WINDOW = auto()
    STEP = auto()
    DIAGONAL = auto()
    SUBSCRIPT = auto()
    SHIFT = auto()
    PADS = auto()
    REPEATS = auto()
    TOP = auto()
    DTYPE = auto()
    FLOAT_DTYPE = auto()
    VIEW_DTYPE = auto()
    DEVICE = auto()
    NORMALIZED = auto()  # the last dimensions' sizes
    CONV_WEIGHT = auto()
    BIAS = auto()  # a vector as long as what comes before it
    CHANNELS = auto()  # a vector as long as dimension 1 of the first
    STATISTICS = auto()  # the same, without grad and on memory of its own: it is written
    FLAG = auto()  # a bool among the arguments of the program, or a constant
    NUMBER = auto()  # the same for an int or a float
    TABLE = auto()  # a matrix to look rows up in
    POSITIVE = auto()  # the first tensor: a positive definite matrix, made of a matrix that there is
    IMAGE = auto()  # the first tensor, with dimensions of size 1 in front until it has four
    COLUMNS = auto()  # the first tensor: an IMAGE unfolded
    SEQUENCE = auto()  # the first tensor, whose last dimension but one has several positions
    UNFOLDED = auto()  # the size of that image
    SPECTRUM = auto()  # the first tensor: the short-time Fourier transform of a tensor
    CHAIN = auto()  # matrices that can be multiplied in their order
    TARGET = auto()  # int64 of the first's shape without dimension 1, in range of it: classes
    TOKENS = auto()  # int64 [2, 2], rows of a TABLE
    SORTED = auto()  # a sorted vector of the first's dtype
    CAUSAL = auto()  # a lower triangular bool matrix as tall as the first
    PART = auto()  # what a scatter puts in place of the view that its keywords tell of
    PLACES = auto()  # a subscript of index tensors
    CONV_TRANSPOSE_WEIGHT = auto()
    CONSTANT = auto()


@dataclass(frozen=True)
class Param:
    """A parameter; ``keyword`` is its name if passed by keyword, ``choices`` its values if its kind is CONSTANT."""

    kind: Kind
    keyword: str | None = None
    optional: bool = False
    choices: tuple[bool | int | float | complex | str | None, ...] = ()


@dataclass(frozen=True)
class Op:
    """One entry of the op table.

    Attributes:
        path: how programs write the op: ``torch.sin``, ``Tensor.add_``, ``torch.nn.functional.softmax``, ``getitem``,
            ``Tensor.data=``, ``Tensor.untyped_storage().resize_``, ``SavesTensors.apply``.
        params: its parameters, in order, keywords last.
        group: for swarm testing.
        form: function, method, attribute, index, assignment.
        work: whether the result is exact on small integers.
        dtypes: dtypes that the first tensor may have.
        ndim: least and greatest number of dimensions of the first tensor.
        results: how many names the result binds: 0, 1, or None for a tuple of tensors.
        writes: whether it writes data of its first argument (or of ``out``).
        ordered: its result does not depend on the order of element writes, whatever elements overlap.
        undefined: it may expose uninitialized memory.
        prints: it prints, while it runs or in a later backward.
        weight: how often it is drawn, relative to its group's other ops; 0: only to make arguments of another op.
    """

    path: str
    params: tuple[Param, ...]
    group: Group
    form: Form
    work: Work = Work.EXACT
    dtypes: DTypes = DTypes.ANY
    ndim: tuple[int, int] = (0, 6)
    results: int | None = 1
    writes: bool = False
    ordered: bool = False
    undefined: bool = False
    prints: bool = False
    weight: int = 2

    @property
    def key(self) -> str:
        """Unique in the table: the path and its parameter kinds."""
        shown = (f"{p.keyword}={p.kind}" if p.keyword else str(p.kind) for p in self.params)
        return f"{self.path}({', '.join(shown)})"


_OWNERS = ("Tensor.", "list.", "dict.", "object.")

_TABLE: dict[str, list[Op]] = {}
_IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {}


def _param(text: str) -> Param:
    optional = text.endswith("?")
    text = text.removesuffix("?")
    keyword: str | None = None
    if "=" in text:
        keyword, text = text.split("=", 1)
    elif ":" in text:
        text = text.split(":", 1)[1]
    if text.startswith("{"):
        choices = tuple(ast.literal_eval(choice) for choice in text[1:-1].split("|"))
        return Param(Kind.CONSTANT, keyword, optional, choices)
    return Param(Kind(text), keyword, optional)


def _form(path: str) -> Form:
    if path == "getitem":
        return Form.GETITEM
    if path == "setitem":
        return Form.SETITEM
    if path.endswith("="):
        return Form.ASSIGN
    return Form.METHOD if path.startswith(_OWNERS) else Form.FUNCTION


def entry(
    path: str,
    signature: str,
    group: Group,
    *,
    attribute: bool = False,
    function: Callable[..., Any] | None = None,
    **fields: Any,
) -> Op:
    """Make one table entry and register it. See Note [Parameters] for the signature; ``fields`` are those of
    :class:`Op`, ``function`` is what runs where the path does not lead to it."""
    form = Form.ATTRIBUTE if attribute else _form(path)
    op = Op(path, tuple(map(_param, signature.split())), group, form, **fields)
    register_op(op, function)
    return op


def entries(space: str, names: str, signature: str, group: Group, **fields: Any) -> None:
    """Make one :func:`entry` for each of several ``names`` in ``space`` (``torch.``, ``Tensor.``)."""
    for name in names.split():
        entry(f"{space}{name}", signature, group, **fields)


def register_op(op: Op, function: Callable[..., Any] | None = None) -> None:
    """Add an op, so that programs and corpus files may call it; several entries of one path are overloads.

    Args:
        op: the entry. A path outside ``torch`` and ``Tensor`` is ``module.function``; scripts that use it import the
            module.
        function: the callable to run, for a path outside torch.
    """
    overloads = _TABLE.setdefault(op.path, [])
    if op.key in {o.key for o in overloads}:
        raise ValueError(f"{op.key} is registered already; an op is one entry")
    if any(o.form is not op.form for o in overloads):
        raise ValueError(f"{op.path} is registered as {overloads[0].form.name}")
    overloads.append(op)
    if function is not None:
        _IMPLEMENTATIONS[op.path] = function


def method_path(method: str) -> str:
    """The path of a method written ``name.method``: a tensor's, unless only other owners have a registered one."""
    return next((owner + method for owner in _OWNERS if owner + method in _TABLE), f"Tensor.{method}")


def ops() -> Iterable[Op]:
    """Every registered op, in the order of registration."""
    for overloads in _TABLE.values():
        yield from overloads


def find(path: str) -> tuple[Op, ...]:
    """The overloads registered for ``path``.

    Raises:
        UnknownOpError: it is not registered.
    """
    try:
        return tuple(_TABLE[path])
    except KeyError:
        space, _, key = path.partition(".")
        if space == "wrapped":
            raise UnknownOpError(
                f"no tensor subclass is registered as {key!r}; register it with aotcheck.register_subclass"
            ) from None
        raise UnknownOpError(
            f"op {path!r} is not in the op table; register it with aotcheck.program.register_op"
        ) from None


def implementation(path: str) -> Callable[..., Any]:
    """The callable behind a function or method path (attributes, indexing and assignments have none).

    Raises:
        UnknownOpError: it is not registered, or this torch lacks it.
    """
    if path in _IMPLEMENTATIONS:
        return _IMPLEMENTATIONS[path]
    find(path)
    value: Any = {"Tensor": torch.Tensor, "list": list, "dict": dict}.get(path.split(".")[0], torch)
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
        if value is None:
            raise UnknownOpError(f"op {path!r} does not exist in torch {torch.__version__}; use a torch that has it")
    _IMPLEMENTATIONS[path] = value
    return value  # type: ignore[no-any-return]  # looked up by name
