"""Splits a program into the ops that it is made of, each as a program of its own.

Note [Primitives]
    If a backend gets one op wrong, every caller of the op fails: an assignment to a subscript, a linear layer, a module
    with checkpoints. A dispatch mode sees the op that they share, with its operands. Each op that has a table entry
    becomes a program: one statement on inputs with the geometry of those operands. If such a program is wrong by
    itself, it identifies the bug. On unusual operands the difference may be chance (a transposition that is lost shows
    in the strides of a square, and as a missing error on three dimensions), so :func:`plainer` has the same op on plain
    operands. Lazy conjugates and negatives are left out, and ``out=`` if the op is wrong without it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from aotcheck._torch import TorchDispatchMode, is_composite, op_name, overload_name, run_composite_in, storage_key
from aotcheck.minimize.edit import inputs_of, with_inputs
from aotcheck.minimize.passes.ops import writes
from aotcheck.minimize.size import contiguous
from aotcheck.oracle import CoarseKey, OracleKind
from aotcheck.oracle.execute import observe
from aotcheck.program import (
    Call,
    DType,
    Expr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    Storage,
    Strided,
    TupleExpr,
)
from aotcheck.program.ops.registry import Form, ops
from aotcheck.program.ops.subclasses import held

__all__ = ["is_primitive_root", "may_have_primitive_root", "plainer", "primitives"]

MOST_OPS = 32
"""The most different ops that are tried, ..."""

MOST_ELEMENTS = 64
"""... and the most elements that the storage of an operand may have."""

_WRONG = frozenset(
    kind.value
    for kind in (
        OracleKind.VALUES,
        OracleKind.ALIASING,
        OracleKind.DTYPE,
        OracleKind.SHAPE,
        OracleKind.STRIDE,
        OracleKind.STORAGE_OFFSET,
        OracleKind.STORAGE_SIZE,
    )
)
"""Differences that one op can cause; autograd's flags depend on more than one op."""

_PLAIN, _AROUND = (2, 3), (2, 4)


def may_have_primitive_root(key: CoarseKey) -> bool:
    """True if one op may cause a difference under ``key``."""
    return key.oracle in _WRONG or (key.oracle == OracleKind.EXCEPTION.value and key.place.startswith("forward"))


def is_primitive_root(key: CoarseKey, target: CoarseKey) -> bool:
    """True if one op that shows ``key`` explains a program that shows ``target``."""
    if "later" in key.place:
        return False
    return key.oracle in _WRONG if not key.error else (key.oracle, key.error) == (target.oracle, target.error)


def primitives(program: Program, device: torch.device) -> list[Program]:
    """One program for each op that eager runs in the forwards of ``program``, in order; none where one cannot be
    written down."""
    mode = _Recording()

    def recorded(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with mode:
                return fn(*args)

        return call

    with contextlib.suppress(Exception):  # what it raises is no concern of this
        for _ in observe(program, recorded, device):
            pass
    return list(mode.found)[:MOST_OPS]


def plainer(program: Program) -> Iterator[Program]:
    """The same op on plain operands: contiguous, two-dimensional, each on its own storage; then on views of such."""
    (at, inputs), *_ = inputs_of(program)
    dtypes = tuple(t.dtype for t in inputs.tensors)
    for whole, offset in ((_PLAIN, 0), (_AROUND, 1)):
        yield with_inputs(program, {at: plain_inputs(dtypes, whole=whole, offset=offset)})


def plain_inputs(
    dtypes: Sequence[str], trained: bool = False, *, whole: tuple[int, ...] = _PLAIN, offset: int = 0
) -> Inputs:
    """An argument of two dimensions for each dtype, a window of memory of its own that has the size ``whole``; all that
    may be are ``trained``."""
    storages, tensors = [], []
    for index, dtype in enumerate(dtypes):
        numbers = prod(whole) * (2 if dtype.startswith("complex") else 1)
        counted = range(index + 1, index + 1 + numbers)  # no two operands alike
        storages.append(Storage(f"s{index}", dtype, tuple(n % 2 if dtype == "bool" else n for n in counted)))
        may_be = getattr(torch, dtype).is_floating_point or dtype.startswith("complex")
        strided = Strided(f"a{index}", f"s{index}", dtype, _PLAIN, contiguous(whole), offset, trained and may_be)
        tensors.append(strided)
    return Inputs(tuple(storages), tuple(tensors), (), tuple(Ref(t.name) for t in tensors))


class _NotWritableError(Exception):
    """A program cannot say this."""


class _Recording(TorchDispatchMode):
    """Makes a program of each op that it meets, before the op runs; ``found`` holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Program, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_inference_mode_enabled() and is_composite(func):
            return run_composite_in(self, func, types, args, kwargs or {})
        with contextlib.suppress(_NotWritableError), torch.no_grad():
            self.found.update(dict.fromkeys(_Alone(args, kwargs or {}).programs(func)))
        return func(*args, **(kwargs or {}))


class _Alone:
    """The operands of one op as the inputs of a program."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.storages: dict[object, Storage] = {}
        self.tensors: dict[int, Strided] = {}
        self.args = tuple(map(self._expr, args))
        self.kwargs = {name: self._expr(value) for name, value in kwargs.items() if name == "out"}

    def programs(self, func: Any) -> Iterator[Program]:
        """Under each name that the table knows the op by."""
        tensors = tuple(self.tensors.values())
        inputs = Inputs(tuple(self.storages.values()), tensors, (), tuple(Ref(t.name) for t in tensors))
        params = tuple(f"x{index}" for index in range(len(tensors)))
        if not params:
            return
        spelled = [
            OpCall(None, path, self.args, kwargs)
            for kwargs in dict.fromkeys(((), tuple(self.kwargs.items())))
            for path in _paths(op_name(func), overload_name(func))
        ]
        for call in spelled:
            made = not writes(call)
            body = (replace(call, target="v0") if made else call,)
            yield Program(params, body, Ref("v0") if made else Literal(None), (Call(inputs),))

    def _expr(self, value: Any) -> Expr:
        if isinstance(value, torch.Tensor):
            return Ref("x" + self._tensor(value).name[1:])
        if isinstance(value, torch.dtype):
            return DType(str(value).removeprefix("torch."))
        if isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
            return ListExpr(tuple(map(self._expr, value)))
        if isinstance(value, (list, tuple)):
            return TupleExpr(tuple(map(self._expr, value)))
        if value is None or type(value) in (bool, int, float, complex):
            return Literal(value)
        raise _NotWritableError

    def _tensor(self, t: torch.Tensor) -> Strided:
        if held(t) or t.layout is not torch.strided:
            raise _NotWritableError
        if id(t) not in self.tensors:
            name, dtype = f"a{len(self.tensors)}", str(t.dtype).removeprefix("torch.")
            storage = self._storage(t, dtype)
            self.tensors[id(t)] = Strided(
                name, storage.name, dtype, tuple(t.shape), tuple(t.stride()), int(t.storage_offset())
            )
        return self.tensors[id(t)]

    def _storage(self, t: torch.Tensor, dtype: str) -> Storage:
        key = storage_key(t)
        if key not in self.storages:
            whole = torch.empty(0, dtype=t.dtype, device=t.device)
            count = t.untyped_storage().nbytes() // t.itemsize
            if count > MOST_ELEMENTS:
                raise _NotWritableError
            whole.set_(t.untyped_storage(), 0, (count,), (1,))
            self.storages[key] = Storage(f"s{len(self.storages)}", dtype, _small_integers(whole.cpu()))
        return self.storages[key]


def _small_integers(t: torch.Tensor) -> tuple[int, ...]:
    """What is nearest to the contents of ``t`` that a program may hold."""
    if t.dtype is torch.bool:
        return tuple(map(int, t.tolist()))
    flat = torch.view_as_real(t).flatten() if t.is_complex() else t
    low = 0 if t.dtype is torch.uint8 else -8
    return tuple(int(n) for n in flat.to(torch.float64).nan_to_num(3.0).clamp(low, 8).round().tolist())


def _paths(name: str, overload: str) -> Iterator[str]:
    """How programs may spell an ATen op."""
    exact = f"torch.ops.aten.{name}.{overload}"
    spelled = {f"Tensor.{name}", f"torch.{name}", exact}
    yield from dict.fromkeys(op.path for op in ops() if op.path in spelled and op.form is not Form.ATTRIBUTE)
