"""The recorded program: a list of functional operations, lighter than an FX graph and turned into one on demand."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from aotcheck import _torch

if TYPE_CHECKING:
    from aotcheck.autograd.ir.sparse_geometry import SparseGeometry

getitem = operator.getitem


class Geometry(NamedTuple):
    """Where a tensor lies in its storage.

    ``offset`` and ``stride`` count elements of ``dtype``; ``conj`` and ``neg`` are the lazy bits.
    """

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    conj: bool
    neg: bool

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        n = 1
        for size in self.shape:
            n *= size
        return n

    @property
    def is_contiguous(self) -> bool:
        """Whether the tensor is row-major without gaps."""
        return contiguous(self.shape, self.stride)

    @property
    def may_self_overlap(self) -> bool:
        """Whether two elements may lie at one address; conservative for exotic strides."""
        if 0 in self.shape:
            return False
        reach = 0
        for stride, size in sorted((s, n) for n, s in zip(self.shape, self.stride, strict=True) if n > 1):
            if stride <= reach:
                return True
            reach += stride * (size - 1)
        return False

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements lie at one address; looks at each element where strides alone do not tell."""
        if not self.may_self_overlap:
            return False
        if any(s == 0 and n > 1 for n, s in zip(self.shape, self.stride, strict=True)) or self.numel > 1 << 20:
            return True
        return len(self.places) < self.numel

    @property
    def places(self) -> set[int]:
        """Where in the storage, counted in elements, the tensor's elements lie."""
        places = {self.offset}
        for n, s in zip(self.shape, self.stride, strict=True):
            places = {p + k * s for p in places for k in range(n)}
        return places

    @property
    def dense_order(self) -> list[int] | None:
        """The dimensions from outermost to innermost if the tensor fills its memory without gaps, else None."""
        order = sorted(range(len(self.shape)), key=lambda i: (-self.stride[i], -self.shape[i]))
        expected = 1
        for i in reversed(order):
            if self.shape[i] != 1:
                if self.stride[i] != expected:
                    return None
                expected *= self.shape[i]
        return order

    @property
    def elements_reached(self) -> int:
        """Elements of storage needed to hold the tensor, its offset included."""
        if 0 in self.shape:
            return self.offset
        reached = self.offset + 1
        for n, s in zip(self.shape, self.stride, strict=True):
            reached += (n - 1) * s
        return reached

    @property
    def reach(self) -> int:
        """How many bytes of its storage the tensor may touch, from the beginning."""
        return 0 if 0 in self.shape else self.elements_reached * self.dtype.itemsize

    def holds(self, g: Geometry) -> bool:
        """Whether the window ``g`` lies within what a fresh tensor like this one allocates, and can be found there.

        Distances from what does not lie at the beginning are counted in elements.
        """
        countable = not self.offset or self.dtype.itemsize == g.dtype.itemsize
        return countable and g.offset >= self.offset and g.reach <= self.reach


_new = tuple.__new__  # what a named tuple's constructor calls
# Replicas say what happens where an attribute is missing, so each that is looked up at one takes longer. (Sparse ones
# have strides of their own.)
_offset, _is_neg = Tensor.storage_offset, Tensor.is_neg


def contiguous(shape: Iterable[int], stride: Iterable[int]) -> bool:
    """Whether ``stride`` is row-major for ``shape``; strides of size-1 dimensions do not matter."""
    shape, stride = tuple(shape), tuple(stride)
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride), strict=True):
        if n == 0:
            return True
        if n != 1 and s != expected:
            return False
        expected *= n
    return True


def geometry_of(t: Tensor) -> Geometry:
    """The geometry of a strided tensor, real or replica."""
    dtype = t.dtype
    conj = dtype.is_complex and t.is_conj()
    return _new(Geometry, (int(_offset(t)), tuple(t.shape), t.stride(), dtype, conj, _is_neg(t)))


_kept: dict[Geometry, Geometry] = {}
_MOST_KEPT = 20_000


def kept_geometry_of(t: Tensor) -> Geometry:
    """The geometry of ``t`` for who keeps it: equal ones are one object, which is one less for the collector to see."""
    g = geometry_of(t)
    known = _kept.get(g)
    if known is None:
        if len(_kept) > _MOST_KEPT:
            _kept.clear()
        known = _kept[g] = g
    return known


def recorded_geometry(t: Tensor) -> Geometry:
    """The geometry of the gradient that the history of ``t`` takes: see Note [What a history records].

    Note [What a history records]
    A node of autograd records shape and dtype of its results when it is made, and holds gradients against that. Data
    that a tensor is given later, by ``.data =`` or under no_grad, may have others: they change nothing of its history,
    and a gradient that fits the tensor is refused. So what stands for a tensor's history has the geometry recorded.
    """
    g, node = geometry_of(t), _torch.grad_fn_of(t)
    if node is None:
        return g
    shape, dtype = _torch.recorded_gradient(node, t.output_nr)
    if (shape, dtype) == (g.shape, g.dtype):
        return g
    return row_major(shape, dtype)


def row_major(shape: tuple[int, ...], dtype: torch.dtype) -> Geometry:
    """A tensor of this shape at the beginning of its storage, row by row."""
    stride = [1]
    for n in reversed(shape[1:]):
        stride.append(stride[-1] * max(n, 1))
    return Geometry(0, shape, tuple(reversed(stride)) if shape else (), dtype, False, False)


def disjoint(a: Geometry, b: Geometry) -> bool:
    """Whether two windows on one storage are known to have no address in common."""
    if 0 in a.shape or 0 in b.shape:
        return True
    if a.elements_reached * a.dtype.itemsize <= b.offset * b.dtype.itemsize:
        return True
    if b.elements_reached * b.dtype.itemsize <= a.offset * a.dtype.itemsize:
        return True
    if a.dtype.itemsize != b.dtype.itemsize:
        return False
    # As in the columns of a matrix: each address as digits, one per stride; some digit of theirs never agrees.
    strides = sorted({s for g in (a, b) for n, s in zip(g.shape, g.stride, strict=True) if n > 1}, reverse=True)
    if not strides or 0 in strides or any(s % t for s, t in itertools.pairwise(strides)):
        return False
    spans = [_digits(g, strides) for g in (a, b)]
    if spans[0] is None or spans[1] is None:
        return False
    return any(x.stop <= y.start or y.stop <= x.start for x, y in zip(*spans, strict=True))


def _digits(g: Geometry, strides: Sequence[int]) -> list[range] | None:
    """For each stride the range of its digit in the addresses of ``g``; None where one runs over into the next."""
    sizes = dict.fromkeys(strides, 1)
    for n, s in zip(g.shape, g.stride, strict=True):
        if n > 1:
            if sizes[s] > 1:
                return None
            sizes[s] = n
    left, spans = g.offset, []
    for k, s in enumerate(strides):
        first, left = divmod(left, s)
        if k and first + sizes[s] > strides[k - 1] // s:
            return None
        spans.append(range(first, first + sizes[s]))
    spans.append(range(left, left + 1))
    return spans


def flat_geometry(nbytes: int, dtype: torch.dtype) -> Geometry:
    """A whole storage of ``nbytes`` bytes as one dimension."""
    return Geometry(0, (nbytes // dtype.itemsize,), (1,), dtype, False, False)


PLACEHOLDER = "placeholder"
CONSTANT = "constant"


class Value:
    """One value of the functional program: an input, a constant, or what ``op`` gives for ``args`` and ``kwargs``.

    ``geometry`` is what the value measures at run time where known (None for a tuple of results), ``parts`` what each
    of a tuple of results does, or the result itself where it is no tensor; ``sparse`` is what is known of a sparse
    one, which has no geometry. ``memory`` is the placeholder whose
    memory the value shares at run time, if any. ``where`` is the user's source line.
    """

    __slots__ = (
        "_inputs",
        "args",
        "constant",
        "device",
        "geometry",
        "kwargs",
        "memory",
        "name",
        "op",
        "parts",
        "sequence",
        "sparse",
        "where",
    )

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self._inputs: Sequence[Value] | None = None
        self.geometry: Geometry | None = None
        self.sparse: SparseGeometry | None = None
        self.parts: tuple[Any, ...] | None = None
        self.device: torch.device | None = None
        self.memory: Value | None = None
        self.name = ""
        self.constant: Any = None
        self.where: tuple[str, int, str] | None = None
        self.sequence = -1

    def inputs(self) -> Sequence[Value]:
        """The values this one is computed from."""
        found = self._inputs
        if found is None:
            if not self.kwargs and _ONLY_VALUES.issuperset(map(type, self.args)):
                found = self.args
            else:
                found = tuple(_nested((*self.args, *self.kwargs.values())))
            self._inputs = found
        return found

    def replace(self, old: Value, new: Value) -> None:
        """Compute this from ``new`` where it is computed from ``old``."""

        def swap(a: Any) -> Any:
            if type(a) in (list, tuple):
                return type(a)([swap(x) for x in a])
            return new if a is old else a

        self.args = swap(self.args)
        self.kwargs = {k: swap(a) for k, a in self.kwargs.items()}
        self._inputs = None

    def __repr__(self) -> str:
        return f"%{self.name or _torch.op_name(self.op)}"


_ONLY_VALUES = frozenset((Value,))

NO_KWARGS: dict[str, Any] = {}
"""What ops that are given none share, in place of an empty dictionary each; nobody changes it."""


def _nested(items: Any) -> Iterator[Value]:
    for a in items:
        if type(a) is Value:
            yield a
        elif type(a) in (list, tuple):
            yield from _nested(a)


class Trace:
    """The values in the order they were recorded, and which of them must run whoever needs them."""

    def __init__(self) -> None:
        self.placeholders: list[Value] = []
        self.values: list[Value] = []
        self.effects: list[Value] = []
        self.drawn: set[Value] = set()  # random ones
        self.askable: dict[Value, int] = {}  # placeholders whose values the key may hold; of which argument
        self.known: dict[Value, Tensor] = {}  # and of those whose values it holds, these
        self.states: list[Value] = []  # states of generators that a later moment goes back to

    def placeholder(self, geometry: Geometry, device: torch.device) -> Value:
        """A new input."""
        v = Value(PLACEHOLDER, (), NO_KWARGS)
        v.geometry, v.device, v.memory = geometry, device, v
        self.placeholders.append(v)
        return v

    def constant(self, tensor: Tensor) -> Value:
        """A tensor that is the same on every call."""
        v = Value(CONSTANT, (), {})
        v.constant, v.geometry, v.device, v.memory = tensor, geometry_of(tensor), tensor.device, v
        self.values.append(v)
        return v

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Value:
        """Record one more operation."""
        v = Value(op, args, kwargs or NO_KWARGS)
        self.values.append(v)
        return v


def ancestors(roots: Iterable[Value | None]) -> set[Value]:
    """Every value that one of ``roots`` is computed from, roots included."""
    seen: set[Value] = set()
    todo = [r for r in roots if r is not None]
    while todo:
        v = todo.pop()
        if v not in seen:
            seen.add(v)
            todo.extend(v.inputs())
    return seen


def real(a: Any, known: Mapping[Value, Any]) -> Any:
    """An argument of an op with what is ``known`` in the place of values."""
    if type(a) is Value:
        return known[a]
    return type(a)(real(x, known) for x in a) if type(a) in (list, tuple) else a


_NOT_THE_USERS = ("torch.", "aotcheck.autograd", "aotcheck._torch")
_RUN_THE_USERS = ("aotcheck.autograd.effects.capture", "aotcheck.autograd.tracing.backward_tracer")
_users: dict[str, bool | None] = {}  # by name, whether a module is the user's; None of what runs the user's code
_passed: dict[int, dict[str, Any]] = {}  # by id, the variables of modules that are not


_NO_MODULE = ModuleType("")
Where = tuple[str, int, str]


def calling_module() -> str:
    """The innermost module whose code runs that is not ours nor of what Python code of torch's stands before ops."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if not module.startswith(("aotcheck.", "contextlib")) and module not in _torch.BEFORE_OPS:
            return module
        frame = frame.f_back
    return ""


def is_users(frame: FrameType) -> bool:
    """Whether the frame runs code that is neither torch's nor ours."""
    module: str = frame.f_globals.get("__name__", "")
    return module != "torch" and not module.startswith(_NOT_THE_USERS)


def user_frame(outside: Where | None = None) -> Where | None:
    """File, line and function of the innermost frame that is neither torch's nor ours; None if there is none.

    ``outside`` is the answer where that frame is outside what runs the user's code.
    """
    frame: FrameType | None = sys._getframe(4)  # what records an op is nearer, and ours
    while frame is not None:
        variables = frame.f_globals
        if id(variables) in _passed:
            frame = frame.f_back
            continue
        module = variables.get("__name__", "")
        users = _users.get(module, ...)
        if users is ...:
            users = module != "torch" and not module.startswith(_NOT_THE_USERS)
            users = _users[module] = None if module in _RUN_THE_USERS else users
        if users:
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        if users is None and outside is not None:
            return outside
        if users is False and variables is vars(sys.modules.get(module, _NO_MODULE)):
            _passed[id(variables)] = variables
        frame = frame.f_back
    return None
