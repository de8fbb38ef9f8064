"""One op's arguments in the making: what fits each kind, among the tensors there are."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from aotcheck.program import DictExpr, DType, Expr, ListExpr, Literal, OpCall, Ref, SliceExpr, TupleExpr, evaluate
from aotcheck.program.called.objects import State as Stateful
from aotcheck.program.ops.registry import Form, Group, Kind, Op, find
from aotcheck.program.running.memory import extent_in_bytes, size_of

from .chooser import Chooser
from .exprs import broadcasts, compatible, dtype_expr, ints, literal, of_size, overlong, parameters, python_value
from .selection import mutates
from .state import Outcome, State, overlaps_itself

__all__ = ["Arguments", "Impossible", "ints", "literal"]

_VIEWS = ("int32", "float32", "uint8", "int64", "float64", "complex64")
_COMPLEX = (1j, 2j, 1 + 2j, complex(0, -1), 2 - 1j, 2 + 0j)
_COMPLEX_BESIDE = 50
_COMPLEX_ELSEWHERE = 4
"""Scalars that are complex numbers, in percent: beside a complex tensor, where there is none."""


class Impossible(Exception):
    """There is nothing to pass; draw another op."""


class Arguments:
    """One op's arguments in the making."""

    def __init__(self, choose: Chooser, state: State, op: Op) -> None:
        self.choose, self.state, self.op = choose, state, op
        self.drawn: list[Expr] = []
        self.named: list[tuple[str, Expr]] = []
        self.self_: torch.Tensor = torch.empty(0)
        self.dim = 0
        self.length = 1
        self.source_: torch.Tensor | None = None
        self.offset = 0
        self.before = 0

    # -- helpers

    def pick(self, fits: Callable[[torch.Tensor], bool], chained: bool = False) -> tuple[str, torch.Tensor]:
        """A named tensor that fits; where statements are ``chained``, mostly what was made last, or the first."""
        found = [(name, t) for name, t in self.state.tensors() if fits(t)]
        if not found:
            raise Impossible
        if chained and self.choose.chance(80):
            return found[0] if found[-1][0] in self.state.params else found[-1]
        return self.choose.one(found)

    def writable(self, t: torch.Tensor, keyword: bool = False) -> bool:
        """Whether the op may write ``t``: as its first tensor, if it writes that, or as the one of a ``keyword``."""
        selection = self.state.selection
        if selection.writes_all or (not keyword and (self.op.group is Group.OUT or not mutates(self.op))):
            return True
        data = self.op.group is not Group.METADATA or self.op.undefined
        return selection.is_local(t, data, self.state.given())

    def ref(self, fits: Callable[[torch.Tensor], bool]) -> Expr:
        """A reference to a tensor that fits."""
        return Ref(self.pick(fits)[0])

    def made(self, path: str, *args: Expr, **kwargs: Expr) -> Expr:
        """A tensor made by a statement of its own, put before the op."""
        name = self.state.fresh()
        call = OpCall(name, path, args, tuple(kwargs.items()))
        if self.state.attempt(call, find(path)[0], needed=True) is not Outcome.DONE:
            raise Impossible
        return Ref(name)

    def tensor_of(self, size: tuple[int, ...], dtype: torch.dtype | None = None) -> Expr:
        """A tensor of this very size (and the first's dtype): one there is, else one made of ones."""
        dtype = dtype or self.self_.dtype
        fitting = of_size(self.state.tensors(), size, dtype)
        found = [name for name, _ in (parameters(fitting) if self.state.selection.usual else fitting)]
        if found and not self.choose.chance(10):
            return Ref(self.choose.one(found))
        if prod(size) > 60:
            raise Impossible
        return self.made("torch.ones", ints(size), dtype=dtype_expr(dtype), device=self.state.device())

    def index(self, values: Any) -> Expr:
        """An int64 tensor of constants."""
        return self.made("torch.tensor", literal(values), device=self.state.device())

    def shape(self) -> tuple[int, ...]:
        """The first tensor's shape."""
        return size_of(self.self_)

    def extent(self) -> int:
        """The length of the chosen dimension."""
        return self.shape()[self.dim] if self.shape() else 1

    # -- kinds

    def numbers(self) -> Expr:
        lists = ([1, 2], [0, 1], [[1.0, -1.0], [2.0, 3.0]], [1.0, 2.0, 3.0], 2.0, [1j, 2 - 1j], 1 + 2j)
        return literal(self.choose.one(lists))

    def first(self) -> Expr:
        low, high = self.op.ndim
        if self.op.group is Group.STORAGE and (freed := self.state.freed()) and self.choose.chance(80):
            name, self.self_ = self.choose.one(freed)
            return Ref(name)

        def fits(t: torch.Tensor) -> bool:
            return low <= t.dim() <= high and self.op.dtypes.accepts(t.dtype)

        if not self.state.selection.writes_all and not any(
            self.writable(t) for _, t in self.state.tensors() if fits(t)
        ):
            self.made("Tensor.clone", self.ref(fits))  # something to write
        name, self.self_ = self.pick(lambda t: fits(t) and self.writable(t), chained=self.state.selection.usual)
        return Ref(name)

    def python_numbers(self) -> list[str]:
        """The names of Python numbers: arguments, and what objects of the caller's hold."""
        return [name for name, value in self.state.env.items() if type(value) in (int, float)]

    def scalar(self) -> Expr:
        if (found := self.python_numbers()) and self.choose.chance(60):
            return Ref(self.choose.one(found))
        return Literal(self.choose.one(_COMPLEX if self.wants_complex() else (2, 1, 0, -1, 3)))

    def wants_complex(self) -> bool:
        """Whether the next number is to be complex: a real tensor is promoted by it, or the op refused."""
        drawn = [self.state.env.get(expr.name) for expr in self.drawn if isinstance(expr, Ref)]
        beside = any(isinstance(t, torch.Tensor) and t.is_complex() for t in (self.self_, *drawn))
        return self.choose.chance(_COMPLEX_BESIDE if beside else _COMPLEX_ELSEWHERE)

    def constant(self, choices: Sequence[Any]) -> Expr:
        """One of the table's constants."""
        if not choices:
            return self.numbers()
        real = [c for c in choices if not isinstance(c, complex)]
        if not real or len(real) == len(choices):
            return literal(self.choose.one(choices))
        wanted = self.wants_complex()
        return literal(self.choose.one([c for c in choices if isinstance(c, complex) is wanted]))

    def other(self) -> Expr:
        return self.scalar() if self.choose.chance(30) else self.peer()

    def peer(self) -> Expr:
        return self.ref(lambda t: compatible(size_of(t), self.shape()))

    def fit(self) -> Expr:
        return self.scalar() if self.choose.chance(45) else self.fit_tensor()

    def fit_tensor(self) -> Expr:
        target = self.shape()
        if self.op.path == "setitem":
            indexed = self.self_[python_value(self.drawn[1])]
            target = tuple(indexed.shape)
        part = self.op.form is Form.ASSIGN  # the real or the imaginary one
        return self.ref(
            lambda t: (
                broadcasts(size_of(t), target)
                and not (self.op.writes and overlong(t, self.self_))
                and not (part and t.is_complex())
            )
        )

    def same(self) -> Expr:
        return self.ref(lambda t: t.shape == self.self_.shape and t.dtype == self.self_.dtype)

    def out(self) -> Expr:
        def fits(t: torch.Tensor) -> bool:
            return t.dtype == self.self_.dtype and not t.requires_grad and t.dim() <= self.self_.dim()

        return self.ref(lambda t: fits(t) and self.writable(t, keyword=True))

    def sized(self, *size: int | None) -> Expr:
        """A tensor of this size, with any length where it says None; real programs take one that they have."""
        if self.state.selection.usual and (known := of_size(self.state.tensors(), size, self.self_.dtype)):
            return Ref(self.choose.one(parameters(known))[0])
        return self.tensor_of(tuple(self.choose.between(1, 3) if n is None else n for n in size))

    def mat(self) -> Expr:
        return self.sized(self.shape()[-1], None)

    def mat_t(self) -> Expr:
        return self.sized(None, self.shape()[-1])

    def bmat(self) -> Expr:
        return self.sized(self.shape()[0], self.shape()[-1], None)

    def left(self) -> Expr:
        self.length = self.choose.between(1, 3)
        return self.tensor_of((self.shape()[0], self.length))

    def right(self) -> Expr:
        return self.tensor_of((self.length, self.shape()[1]))

    def source_tensor(self) -> Expr:
        name, self.source_ = self.pick(lambda t: t.dtype == self.self_.dtype)
        self.before = int(self.source_.storage_offset())  # set_ counts from where its source begins
        return Ref(name)

    def storage(self) -> Expr:
        source = self.source_tensor()
        self.before = 0
        return self.made("Tensor.untyped_storage", source)

    def nbytes(self) -> Expr:
        t, item = self.self_, self.self_.itemsize
        held, needed = t.untyped_storage().nbytes(), extent_in_bytes(t)
        if held < needed:
            return Literal(self.choose.one((needed, needed, needed + 2 * item)))
        return Literal(self.choose.one((0, held + 2 * item, 0, 2 * held, needed, max(held - item, 0), held)))

    def container(self) -> Expr:
        kinds = {"list": (list,), "dict": (dict,), "object": (Stateful,)}.get(
            self.op.path.partition(".")[0], (list, dict)
        )
        found = [name for name, value in self.state.env.items() if isinstance(value, kinds)]
        if not found:
            raise Impossible
        name = self.choose.one(found)
        self.held = self.state.env[name]
        if self.op.path == "list.pop" and not self.held:
            raise Impossible
        return Ref(name)

    def key(self) -> Expr:
        if isinstance(self.held, dict):
            return Literal(self.choose.one((*self.held, "n")))
        if not self.held:
            raise Impossible
        return Literal(self.choose.below(len(self.held)))

    def anything(self) -> Expr:
        return self.ref(lambda t: True)

    def items(self) -> Expr:
        return DictExpr(tuple((key, self.anything()) for key in self.choose.one((("k0",), ("n",), ("k0", "n")))))

    def data(self) -> Expr:
        anything = self.choose.chance(12)
        return self.ref(lambda t: anything or t.dtype == self.self_.dtype)

    def vec(self) -> Expr:
        return self.tensor_of((self.shape()[-1],))

    def _positions(self, n: int, once: bool) -> list[int]:
        if n == 0:
            raise Impossible
        count = self.choose.between(1, min(n, 3)) if once else self.choose.between(1, 3)
        start = self.choose.below(n)
        step = self.choose.between(0, 1) if not once else 1
        return [(start + i * step) % n for i in range(count)]

    def one_index(self, once: bool = False) -> Expr:
        n = self.extent() if self.drawn else 2
        positions = self._positions(n, once)
        self.length = len(positions)
        return self.index(positions)

    def full_index(self, once: bool = False) -> Expr:
        n = self.extent()
        if not self.self_.numel():
            raise Impossible
        shift = self.choose.below(n)
        along = torch.arange(n)
        along = (along + shift) % n if once else (along * self.choose.between(0, 1) + shift) % n
        view = [n if i == self.dim else 1 for i in range(self.self_.dim())]
        return self.index(along.view(view).expand(self.shape()).tolist())

    def indices(self) -> Expr:
        self.dim = 0
        return TupleExpr((self.one_index(),))

    def source(self) -> Expr:
        size = list(self.shape())
        size[self.dim] = self.length
        return self.tensor_of(tuple(size))

    def mask(self) -> Expr:
        if not self.drawn:  # torch.where: the mask comes first, the next tensor is the one that matters
            name, mask = self.pick(lambda t: t.dtype == torch.bool)
            self.self_ = mask
            return Ref(name)
        fitting = [
            name for name, t in self.state.tensors() if t.dtype == torch.bool and broadcasts(size_of(t), self.shape())
        ]
        if fitting and self.choose.chance(70):
            return Ref(self.choose.one(fitting))
        if self.self_.is_complex():
            raise Impossible
        return self.made("torch.ge", self.drawn[0], Literal(1))

    def tensors(self) -> Expr:
        low, high = self.op.ndim
        _, first = self.pick(lambda t: low <= t.dim() <= high)
        self.self_ = first
        found = [name for name, t in self.state.tensors() if t.shape == first.shape and t.dtype == first.dtype]
        return ListExpr(tuple(Ref(self.choose.one(found)) for _ in range(self.choose.between(1, 3))))

    def write_list(self) -> Expr:
        found = [(name, t) for name, t in self.state.tensors() if self.op.dtypes.accepts(t.dtype) and self.writable(t)]
        if not found:
            raise Impossible
        chosen = [self.choose.one(found) for _ in range(self.choose.between(1, 3))]
        one_operand = all(p.kind is not Kind.LIST_SAME for p in self.op.params)
        unique = chosen if one_operand else list({id(t): (name, t) for name, t in chosen}.values())
        self.listed = [t for _, t in unique]
        self.self_ = self.listed[0]
        return ListExpr(tuple(Ref(name) for name, _ in unique))

    def list_same(self) -> Expr:
        return ListExpr(tuple(map(self._like, self.listed)))

    def _like(self, u: torch.Tensor) -> Expr:
        return self.ref(lambda t: t.shape == u.shape and t.dtype == u.dtype)

    # -- numbers and sizes

    def draw_dim(self) -> Expr:
        n = self.self_.dim()
        self.dim = self.choose.below(n) if n else 0
        return Literal(self.dim - n if n and self.choose.chance(25) else self.dim)

    def other_dim(self) -> Expr:
        n = self.self_.dim()
        return Literal((self.dim + self.choose.between(1, max(n - 1, 1))) % n if n else 0)

    def new_dim(self) -> Expr:
        return Literal(self.choose.below(self.self_.dim() + 1))

    def dims(self) -> Expr:
        n = self.self_.dim()
        return ints([d for d in range(n) if d == 0 or self.choose.chance(50)])

    def perm(self) -> Expr:
        rest = list(range(self.self_.dim()))
        return ints([rest.pop(self.choose.below(len(rest))) for _ in range(len(rest))])

    def view_size(self) -> Expr:
        shape, numel = self.shape(), self.self_.numel()
        options: list[tuple[int, ...]] = [(-1,)] if numel else [(0,)]
        options += [(numel,), (1, numel), (*shape, 1)]
        options += [(n, numel // n) for n in (2, 3) if numel and numel % n == 0]
        return ints(self.choose.one(options))

    def factory_size(self) -> Expr:
        known = list(dict.fromkeys(size_of(t) for _, t in self.state.tensors() if t.numel() <= 36))
        return ints(self.choose.one([*known, (2,), (2, 3), ()]))

    def expand_size(self) -> Expr:
        shape = [self.choose.between(2, 3) if n == 1 else n for n in self.shape()]
        if prod(shape) <= 24 and (self.choose.chance(50) or shape == list(self.shape())):
            shape = [2, *shape]
        if prod(shape) > 60:
            raise Impossible
        return ints(shape)

    def window(self) -> Expr:
        self.length = self.choose.between(1, max(self.extent(), 1))
        return Literal(self.length)

    def strided_size(self) -> Expr:
        self.size = self.choose.one(((2,), (3,), (2, 2), (), (1,), (4,), (2, 3), tuple(self.shape())))
        return ints(self.size)

    def strided_stride(self) -> Expr:
        row = [1] * len(self.size)
        for i in range(len(self.size) - 2, -1, -1):
            row[i] = row[i + 1] * max(self.size[i + 1], 1)
        match self.choose.below(5):
            case 1:
                row.reverse()
            case 2:
                row = [2 * s for s in row]
            case 3 if row and not self.op.path.endswith(("_", "_scatter")):
                row[0] = self.choose.between(0, 1)
        self.row = row
        last = sum((n - 1) * s for n, s in zip(self.size, row, strict=True)) if 0 not in self.size else -1
        source = self.self_ if self.source_ is None else self.source_
        self.room = source.untyped_storage().nbytes() // source.itemsize - last - 1 - self.offset - self.before
        if self.room < 0:
            raise Impossible
        return ints(row)

    def strided_offset(self) -> Expr:
        if self.source_ is None:
            return Literal(self.choose.between(0, min(self.room, 6)))
        self.offset = self.choose.between(0, 2)
        return Literal(self.offset)

    def resize_size(self) -> Expr:
        numel = self.self_.numel()
        options = [(numel,), (1, numel), (max(numel - 1, 0),), (2, max(numel // 2, 0)), (numel // 2,)]
        return ints(self.choose.one(options))

    def split_sizes(self) -> Expr:
        first = self.choose.below(self.extent() + 1)
        return ListExpr((Literal(first), Literal(self.extent() - first)))

    def split_points(self) -> Expr:
        return ListExpr((Literal(self.choose.below(self.extent() + 1)),))

    def start(self) -> Expr:
        self.begin = self.choose.below(self.extent() + 1)
        return Literal(self.begin)

    def draw_length(self) -> Expr:
        return Literal(self.choose.between(0, self.extent() - self.begin))

    def position(self) -> Expr:
        if not self.extent():
            raise Impossible
        return Literal(self.choose.below(self.extent()))

    def subscript(self) -> Expr:
        parts: list[Expr] = []
        for n in self.shape()[: self.choose.between(1, max(self.self_.dim(), 1))]:
            options: list[Expr] = [SliceExpr(), SliceExpr(None, 1), SliceExpr(1, None), SliceExpr(None, None, 2)]
            if n:
                options += [Literal(0), Literal(-1), Literal(0)]
            parts.append(self.choose.one(options))
        if self.choose.chance(10):
            parts.insert(0, Literal(None))
        if self.choose.chance(8):
            parts.insert(0, Literal(...))  # type: ignore[arg-type]  # an index may hold an Ellipsis
        elif self.extent() and self.shape() and self.choose.chance(8):
            parts[0] = ListExpr(tuple(Literal(i) for i in self._positions(self.shape()[0], True)))
        return parts[0] if len(parts) == 1 else TupleExpr(tuple(parts))

    def pads(self) -> Expr:
        return ints(self.choose.one(((1, 0), (0, 1), (1, 1), (0, -1))))

    def repeats(self) -> Expr:
        if self.self_.numel() > 24:
            raise Impossible
        return ints([self.choose.between(1, 2), *([1] * max(self.self_.dim() - 1, 0))])

    def view_dtype(self) -> Expr:
        return self.dtype([d for d in _VIEWS if getattr(torch, d) != self.self_.dtype])

    def dtype(self, names: Sequence[str]) -> Expr:
        """One of some dtypes, of those that are selected."""
        selected = self.state.selection.dtypes(tuple(names))
        if not selected:
            raise Impossible
        return DType(self.choose.one(selected))

    def conv_weight(self) -> Expr:
        usual = self.state.selection.usual
        window = (1 if usual else min(n, self.choose.between(1, 2)) for n in self.shape()[2:])
        return self.sized(None if usual else self.choose.between(1, 2), self.shape()[1], *window)

    def bias(self) -> Expr:
        before = evaluate(self.drawn[-1], self.state.env)
        return self.tensor_of((before.shape[0],))

    def channels(self) -> Expr:
        return self.tensor_of((self.shape()[1],))

    def statistics(self) -> Expr:
        size = (self.shape()[1],)
        others = [evaluate(expr, self.state.env).untyped_storage() for expr in self.drawn]
        found = [
            name
            for name, t in self.state.tensors()
            if t.shape == size and t.dtype == self.self_.dtype and not t.requires_grad and not overlaps_itself(t)
            if all(t.untyped_storage() is not storage for storage in others)
        ]
        if found and self.choose.chance(80):
            return Ref(self.choose.one(found))
        return self.made("torch.ones", ints(size), dtype=dtype_expr(self.self_.dtype), device=self.state.device())

    def flag(self) -> Expr:
        found = [name for name, value in self.state.env.items() if isinstance(value, bool)]
        return Ref(self.choose.one(found)) if found and self.choose.chance(80) else Literal(self.choose.chance(50))

    def number(self) -> Expr:
        found = self.python_numbers()
        return Ref(self.choose.one(found)) if found and self.choose.chance(80) else literal(self.choose.one((2, 0.5)))

    def table(self) -> Expr:
        return self.ref(lambda t: t.dim() == 2 and t.shape[0] >= 2 and t.is_floating_point())
