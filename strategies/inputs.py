"""A call's inputs in the making: storages, tensors that alias in every way, the arguments made of them.

Each *pattern* below adds one family of tensors that are related (or not) and says which may be passed.
"""

from collections.abc import Mapping
from math import prod

from aotcheck.program import (
    Block,
    Context,
    DictExpr,
    DType,
    Expr,
    ListExpr,
    Literal,
    OpCall,
    Ref,
    SliceExpr,
    Statement,
    Storage,
    Strided,
    TupleExpr,
)
from aotcheck.program.ops.subclasses import subclasses

from .chooser import Chooser
from .profile import Profile, Training
from .selection import selection_of

__all__ = ["ELEMENT_TYPES", "Drawing", "contiguous", "data"]

_DTYPES = (
    ("float32",) * 12
    + ("float64",) * 2
    + ("complex64", "complex64", "int64", "int64", "bool", "int32", "uint8", "complex128", "float16", "bfloat16")
)
_SIZES = (2, 2, 2, 2, 3, 3, 3, 1, 1, 4, 0)
_DIFFERENTIABLE = frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"})
ELEMENT_TYPES = {
    "float32": ("int32", "uint8"),
    "float64": ("int64", "complex64"),
    "complex64": ("float32", "float32", "int64"),
    "int64": ("float64", "int32"),
}

_BITS = {"Tensor.conj": ("layout:conj",), "Tensor.imag": ("layout:neg",)}
_NESTED: Mapping[type, str] = {ListExpr: "argument:list", TupleExpr: "argument:tuple", DictExpr: "argument:dict"}

Size = tuple[int, ...]


def _class_of(dtype: str) -> tuple[str, ...]:
    """The trait of a dtype."""
    if dtype in ("float32", "float64", "bool"):
        return (f"dtype:{dtype}",)
    kind = "complex" if dtype.startswith("complex") else "half" if "float" in dtype else "integer"
    return (f"dtype:{kind}",)


def contiguous(size: Size) -> Size:
    """Row-major strides."""
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def data(dtype: str, numel: int, seed: int) -> tuple[int, ...]:
    """Small integers for ``numel`` elements, a pattern for each seed; never random."""
    count = numel * 2 if dtype.startswith("complex") else numel
    if dtype == "bool":
        return tuple((i + seed) % 2 for i in range(count))
    low = 0 if dtype == "uint8" or seed == 0 else -2
    return tuple((i * (1 + seed % 3) + seed + 1) % 5 + low for i in range(count))


class Drawing:
    """Inputs in the making."""

    def __init__(self, choose: Chooser, profile: Profile) -> None:
        self.choose, self.training = choose, profile.training
        self.constants = 15 if profile.inside else 8  # in percent of programs; control flow reads them
        self.nests = selection_of(profile).allows("getitem")
        self.dtypes_drawn = tuple(dtype for dtype in _DTYPES if dtype in profile.dtypes)
        self.storages: list[Storage] = []
        self.tensors: list[Strided] = []
        self.derived: list[Statement] = []
        self.passed: list[str] = []
        self.sizes: list[Size] = []
        self.count = 0
        self.seed = choose.below(8)

    # -- building blocks

    def size(self, least: int = 0) -> Size:
        """Dimensions, often those of an earlier tensor, so that tensors fit each other."""
        known = [s for s in self.sizes if len(s) >= least]
        if known and self.choose.chance(50):
            return self.choose.one(known)
        ndim = self.choose.toward(
            [n for n in (2, 1, 2, 1, 3, 0, 4) if n >= least], lambda n: () if n else ("layout:scalar",)
        )
        size = tuple(self.choose.toward(_SIZES, lambda n: () if n else ("layout:empty",)) for _ in range(ndim))
        while prod(size) > 36:
            size = (*size[:-1], 1) if size[-1] > 1 else tuple(min(n, 2) for n in size)
        self.sizes.append(size)
        return size

    def dtype(self) -> str:
        """A dtype; a differentiable one where something is to be trained and nothing can be yet."""
        options = self.dtypes_drawn
        if self.training is Training.ONE_BACKWARD and not any(t.dtype in _DIFFERENTIABLE for t in self.tensors):
            options = tuple(dtype for dtype in options if dtype in _DIFFERENTIABLE) or options
        return self.choose.toward(options, _class_of)

    @property
    def trains(self) -> bool:
        """Whether anything may require grad."""
        return self.training is not Training.NOTHING

    def grad(self, dtype: str) -> bool:
        """Whether a leaf of this dtype requires grad."""
        return self.trains and dtype in _DIFFERENTIABLE and self.choose.chance(70)

    def storage(self, dtype: str, numel: int) -> str:
        """A new storage's name."""
        name = f"s{len(self.storages)}"
        self.storages.append(
            Storage(name, dtype, data(dtype, numel, (self.seed + len(self.storages)) % 8 if self.seed else 0))
        )
        return name

    def name(self) -> str:
        """A new tensor's name."""
        self.count += 1
        return f"a{self.count - 1}"

    def strided(self, storage: str, dtype: str, size: Size, stride: Size, offset: int, grad: bool) -> str:
        """A new leaf's name."""
        name = self.name()
        self.tensors.append(Strided(name, storage, dtype, size, stride, offset, grad))
        return name

    def derive(self, path: str, *args: Expr, under: Context | None = None) -> str:
        """The name of a tensor made by an op from earlier ones."""
        name = self.name()
        call = OpCall(name, path, args)
        self.derived.append(Block(under, (call,)) if under else call)
        return name

    def leaf(self, dtype: str, size: Size, grad: bool) -> str:
        """A contiguous leaf with a storage of its own."""
        return self.strided(self.storage(dtype, prod(size)), dtype, size, contiguous(size), 0, grad)

    def base(self, dtype: str, size: Size) -> str:
        """A leaf without grad, a leaf with grad, or a non-leaf."""
        if self.grad(dtype):
            leaf = self.leaf(dtype, size, True)
            if self.choose.chance(75):
                path, more = self.choose.one((("Tensor.clone", ()), ("torch.mul", (Literal(2),))))
                return self.derive(path, Ref(leaf), *more)
            return leaf
        return self.leaf(dtype, size, False)

    def silently(self) -> Context | None:
        """Now and then ``no_grad``, under which a view is made that is not trained: not where a backward must be."""
        silent = self.choose.chance(10) and self.training is Training.ANYTHING
        return Context.NO_GRAD if silent else None

    def view(self, name: str, size: Size) -> str:
        """A view of ``name``, made as a caller would."""
        options: list[tuple[str, tuple[Expr, ...]]] = [
            ("Tensor.view", (TupleExpr((Literal(prod(size)),)),)),
            ("Tensor.detach", ()),
            ("Tensor.as_strided", (TupleExpr((Literal(prod(size)),)), TupleExpr((Literal(1),)))),
        ]
        if size:
            options += [
                ("getitem", (SliceExpr(0, max(size[0] - 1, 1)),)),
                ("getitem", (SliceExpr(1, None),)),
                ("getitem", (SliceExpr(None, None, 2),)),
                ("Tensor.unsqueeze", (Literal(0),)),
            ]
        if len(size) >= 2:
            options += [
                ("Tensor.transpose", (Literal(0), Literal(1))),
                ("getitem", (TupleExpr((SliceExpr(), Literal(0))),)),
            ]
        path, args = self.choose.one(options)
        if 0 in size and path == "getitem":
            path, args = "Tensor.unsqueeze", (Literal(0),)
        return self.derive(path, Ref(name), *args, under=self.silently())

    def ragged_view(self, name: str, size: Size) -> str:
        """A view of a ragged tensor that was made of one of ``size``."""
        options: list[tuple[str, tuple[Expr, ...]]] = [
            ("Tensor.detach", ()),
            ("Tensor.unsqueeze", (Literal(-1),)),
            ("Tensor.values", ()),
        ]
        if len(size) >= 2:
            options.append(("Tensor.transpose", (Literal(1), Literal(2))))
        path, args = self.choose.one(options)
        return self.derive(path, Ref(name), *args)

    # -- patterns

    def plain(self) -> None:
        """A tensor of its own."""
        dtype = self.dtype()
        self.passed.append(self.leaf(dtype, self.size(), self.grad(dtype)))

    def non_leaf(self) -> None:
        """A tensor of its own, mostly a non-leaf, which may be written in place."""
        self.passed.append(self.base(self.dtype(), self.size()))

    def odd_strides(self) -> None:
        """Transposed, sliced, offset, or expanded."""
        dtype, size = self.dtype(), self.size(1)
        stride = list(contiguous(size))
        numel, offset = prod(size), 0
        match self.choose.below(4):
            case 0:
                stride = list(reversed(contiguous(tuple(reversed(size)))))
            case 1:
                stride, numel = [2 * n for n in stride], 2 * numel
            case 2:
                numel, offset = numel + 2, 2
            case _:
                stride[0] = 0
        self.passed.append(
            self.strided(self.storage(dtype, numel), dtype, size, tuple(stride), offset, self.grad(dtype))
        )

    def one_storage(self) -> None:
        """Tensors on one storage that are no views: identical, overlapping, disjoint, interleaved, transposed."""
        dtype = self.dtype()
        grad = self.grad(dtype) and self.choose.chance(40)
        storage = self.storage(dtype, 12)
        geometries: tuple[tuple[Size, Size, int], ...] = (
            ((4,), (1,), 2),
            ((4,), (1,), 0),
            ((4,), (1,), 4),
            ((4,), (2,), 1),
            ((2, 2), (2, 1), 0),
            ((2, 2), (1, 2), 0),
            ((2, 2), (1, 1), 0),
            ((2, 3), (3, 1), 6),
            ((12,), (1,), 0),
            ((), (), 3),
        )
        self.passed.append(self.strided(storage, dtype, (4,), (self.choose.one((1, 1, 2)),), 0, grad))
        for _ in range(self.choose.between(1, 2)):
            size, stride, offset = self.choose.one(geometries)
            self.passed.append(self.strided(storage, dtype, size, stride, offset, grad and self.choose.chance(50)))

    def views(self) -> None:
        """A base and views of it; the base passed or not."""
        size = self.size(1)
        base = self.base(self.dtype(), size)
        made = [self.view(base, size) for _ in range(self.choose.between(1, 2))]
        self.passed += [base, *made] if self.choose.chance(55) else made

    def view_that_requires_grad(self) -> None:
        """A leaf that is a view of a tensor that requires no grad, as what is made by reshaping; the base or not."""
        size, dtype = self.size(1), self.choose.one(("float32", "float32", "complex64"))
        base = self.leaf(dtype, size, False)
        view = self.view(base, size)
        self.derived.append(OpCall(None, "Tensor.requires_grad_", (Ref(view),)))
        self.passed += [base, view] if self.choose.chance(40) else [view]

    def twice(self) -> None:
        """The same object passed twice."""
        self.non_leaf()
        self.passed.append(self.passed[-1])

    def detached(self) -> None:
        """A tensor and a detached alias of it, which may require grad itself."""
        dtype = self.dtype()
        base = self.base(dtype, self.size())
        alias = self.derive("Tensor.detach", Ref(base))
        if self.grad(dtype) and self.choose.chance(30):
            self.derived.append(OpCall(None, "Tensor.requires_grad_", (Ref(alias),)))
        self.passed += [base, alias]

    def dtypes(self) -> None:
        """Two dtypes on one storage."""
        dtype = self.choose.one(tuple(ELEMENT_TYPES))
        other = self.choose.one(ELEMENT_TYPES[dtype])
        self.seed = 0  # nothing negative, which would be NaN when read as a float
        if self.choose.chance(60):
            storage = self.storage(dtype, 6)
            grads = [d in _DIFFERENTIABLE and self.choose.chance(30) and self.trains for d in (dtype, other)]
            self.passed.append(self.strided(storage, dtype, (2, 3), (3, 1), 0, grads[0]))
            self.passed.append(self.strided(storage, other, (3,), (1,), 0, grads[1]))
        else:
            base = self.leaf(dtype, (2, 4), False)
            self.passed += [base, self.derive("Tensor.view", Ref(base), DType(other))]

    def complex_pair(self) -> None:
        """A complex tensor and its conjugate, real part or real view; or the conjugate alone."""
        base = self.base("complex64", self.size())
        path = self.choose.toward(
            ("Tensor.conj", "Tensor.real", "torch.view_as_real", "Tensor.imag"), lambda path: _BITS.get(path, ())
        )
        other = self.derive(path, Ref(base))
        if path == "Tensor.imag" and self.choose.likely(50, "layout:neg"):
            conjugate = self.derive("Tensor.conj", Ref(base))
            other = self.derive("Tensor.imag", Ref(conjugate))  # has the neg bit
        self.passed += [base, other] if self.choose.chance(70) else [other]

    def expanded(self) -> None:
        """A tensor and an expanded view of it."""
        size = self.size()
        base = self.base(self.dtype(), size)
        wide = TupleExpr(tuple(Literal(n) for n in (2, *size)))
        view = self.derive("Tensor.expand", Ref(base), wide)
        self.passed += [base, view] if self.choose.chance(50) else [view]

    def leaf_and_view(self) -> None:
        """A leaf and a view of it, made with or without grad, in either order."""
        size = self.size(1)
        leaf = self.leaf("float32", size, self.trains)
        under = self.choose.one((None, Context.NO_GRAD, None))
        view = self.derive("getitem", Ref(leaf), SliceExpr(0, max(size[0] - 1, 1)), under=under)
        self.passed += self.choose.one(([leaf, view], [view, leaf]))

    def flat(self) -> None:
        """Parameters of one flat buffer, as optimizers and FSDP lay them out; the buffer passed or not."""
        flat: str | None = None
        if self.choose.chance(50):
            storage = self.storage("float32", 10)
            if self.choose.chance(60):
                flat = self.strided(storage, "float32", (10,), (1,), 0, self.choose.chance(25) and self.trains)
            parameters = [
                self.strided(storage, "float32", size, contiguous(size), offset, self.choose.chance(80) and self.trains)
                for size, offset in (((2, 2), 0), ((4,), 4), ((2,), 8))
            ]
        else:
            flat = self.leaf("float32", (10,), False)
            parameters = []
            for start, stop in ((0, 4), (4, 8), (8, 10)):
                part = self.derive("getitem", Ref(flat), SliceExpr(start, stop))
                if self.choose.chance(70) and self.trains:
                    part = self.derive("Tensor.detach", Ref(part))
                    self.derived.append(OpCall(None, "Tensor.requires_grad_", (Ref(part),)))
                parameters.append(part)
        kept = parameters[: self.choose.between(1, 3)]
        self.passed += (
            kept if flat is None or self.choose.chance(40) else self.choose.one(([flat, *kept], [*kept, flat]))
        )

    def freed(self) -> None:
        """A tensor whose memory the caller has freed, often with a view of it, and one to fill it from."""
        size = self.size()
        name = self.leaf("float32", size, self.choose.chance(30) and self.trains)
        made = [name]
        if self.choose.chance(40):
            made.append(self.derive(self.choose.one(("Tensor.detach", "torch.ops.aten.alias.default")), Ref(name)))
        path = "Tensor.untyped_storage().resize_"
        self.derived.append(OpCall(None, path, (Ref(name), Literal(0))))
        self.passed += made
        if self.choose.chance(70):
            self.passed.append(self.leaf("float32", size, False))

    def inference(self) -> None:
        """A tensor made in inference mode, or a view made there of one that was not."""
        base = self.leaf("float32", self.size(), False)
        path, args = self.choose.one((("Tensor.clone", ()), ("Tensor.unsqueeze", (Literal(0),)), ("Tensor.detach", ())))
        made = self.derive(path, Ref(base), *args, under=Context.INFERENCE)
        self.passed += [base, made] if self.choose.chance(50) else [made]
        if self.choose.chance(30):
            self.passed.append(self.derive("Tensor.unsqueeze", Ref(made), Literal(0)))

    def from_function(self) -> None:
        """What a custom Function gave: a view, its own input, or its input written."""
        base = self.derive("torch.mul", Ref(self.leaf("float32", self.size(), self.trains)), Literal(2))
        path = self.choose.one(("ReturnsView.apply", "MarksDirty.apply", "ReturnsInput.apply"))
        made = self.derive(path, Ref(base))
        self.passed += [base, made] if self.choose.chance(60) else [made]

    def wrapper(self) -> None:
        """A tensor of a wrapper subclass, a leaf or not, of tensors that may be passed too; with a view of it."""
        kind = self.choose.one(subclasses())
        dtype, size = self.choose.one(("float32", "float32", "float64", "int64")), self.size(int(kind.ragged))
        parts = [self.leaf(dtype, size, False) for _ in range(kind.tensors)]
        if len(parts) > 1 and self.choose.chance(15):
            parts[1] = parts[0]
        if self.choose.chance(15):
            parts = [self.derive("Tensor.unsqueeze", Ref(part), Literal(0)) for part in parts]
            size = (1, *size)
        made = self.derive(kind.path, *map(Ref, parts))
        if not kind.ragged and self.choose.chance(12):
            other = self.derive(kind.path, *map(Ref, reversed(parts)))
            pair = next((s for s in subclasses() if s.tensors == 2 and s.built_in), None)
            made = other if pair is None else self.derive(pair.path, Ref(made), Ref(other))
        if self.grad(dtype):
            self.derived.append(OpCall(None, "Tensor.requires_grad_", (Ref(made),)))
            if self.choose.chance(60):
                made = self.derive("torch.mul", Ref(made), Literal(2))
        self.passed.append(made)
        if self.choose.chance(30):
            view = self.ragged_view(made, size) if kind.ragged else self.view(made, size)
            self.passed = [*self.passed, view] if self.choose.chance(60) else [*self.passed[:-1], view]
        if self.choose.chance(25):
            self.passed.append(parts[0])

    # -- arguments

    def in_another_container(self, arg: Expr, last: Expr) -> Expr:
        """An argument in a container of its own, where one of another kind than the last argument's is wanted too."""
        kinds = [kind for kind, trait in _NESTED.items() if trait in self.choose.wanted and not isinstance(last, kind)]
        if len(self.choose.wanted.intersection(_NESTED.values())) < 2 or not kinds:
            return arg
        if kinds[0] is DictExpr:
            return DictExpr((("k0", arg),))
        return ListExpr((arg,)) if kinds[0] is ListExpr else TupleExpr((arg,))

    def arguments(self) -> tuple[Expr, ...]:
        """The positional arguments, now and then a constant or a nested pytree among them."""
        args: list[Expr] = [Ref(name) for name in self.passed[:5]]
        if len(args) > 1 and self.choose.chance(20):
            k = self.choose.below(len(args))  # views before their bases
            args = [*args[k:], *args[:k]]
        if self.nests and self.choose.likely(20 if len(args) > 1 else 6, *_NESTED.values()):
            k = self.choose.between(min(1, len(args) - 1), len(args) - 1)
            inner = tuple(args[k:])
            nested: tuple[Expr, ...] = (
                ListExpr(inner),
                TupleExpr(inner),
                DictExpr(tuple((f"k{i}", e) for i, e in enumerate(inner))),
                DictExpr((("k0", ListExpr(inner)),)),
            )
            args = [*args[:k], self.choose.toward(nested, lambda made: (_NESTED[type(made)],))]
            if k:
                args[-2] = self.in_another_container(args[-2], args[-1])
        elif self.nests and self.choose.chance(8):
            k = self.choose.below(len(args))
            fields = (("hidden", args[k]), ("scale", self.choose.one((Literal(2), Literal(0.5)))))
            args[k] = DictExpr(fields, self.choose.one(("State", "State", "Settings")))
        if self.choose.likely(self.constants, "argument:constant", "call:other-constant"):
            constants = (Literal(2), Literal(None), Literal(0.5), Literal(True))
            args.append(self.choose.toward(constants, lambda c: ("call:other-constant",) if c.value is True else ()))
        return tuple(args)
