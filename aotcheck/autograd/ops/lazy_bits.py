"""What kernels see of tensors that are conjugated or negated lazily.

Below the class of a wrapper nothing makes these what they stand for before a kernel runs. Most kernels see what lies
in memory, some look whether it is to be conjugated, some do the one with this operand and the other with that
(``addmv``), and for some it depends on how their operands lie (``cat``). So eager is asked, on other numbers.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.stand_ins import StandIns, tensors_in
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of
from aotcheck.autograd.ops.twins import OpInfo
from aotcheck.autograd.replicas.replicas import Replica

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_SMALL = 1 << 20  # bytes of storage worth allocating to ask eager
_FEW = 4  # lazy operands of which each may be seen otherwise
_KNOW_LAZY_BITS = frozenset(  # kernels that look whether what they are given is conjugated or negated lazily
    {
        aten.clone.default,
        aten._to_copy.default,
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.mv.default,
        aten.addmv.default,
        aten.dot.default,
        aten.vdot.default,
    }
)


def operand_values(
    tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], lies: Mapping[int, Geometry]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an op that writes nothing, as values of what its kernel sees of them.

    ``lies`` has the geometries of replicas among them, as far as these are known, by id.
    """
    lazy = [t for t in tensors_in(args, kwargs) if _is_lazy(t)] if tracer.depth else []
    if not lazy:
        value_of, read_at, values = tracer.value_of, tracer.table.read_at, []
        for a in args:
            geometry = lies.get(id(a)) if type(a) is Replica else None
            values.append(value_of(a, lies) if geometry is None else read_at(a, geometry))
        return tuple(values), {k: value_of(a, lies) for k, a in kwargs.items()} if kwargs else {}
    in_memory = None if info.random else _asked(func, args, kwargs, len(lazy))
    if in_memory is None:
        in_memory = (reads_memory(tracer, func, args),) * len(lazy)
    places = iter(in_memory)

    def seen(a: Any) -> Any:
        return memory_of(tracer, a) if _is_lazy(a) and next(places) else tracer.value_of(a)

    return _mapped(seen, args, kwargs)


def _is_lazy(a: Any) -> bool:
    return isinstance(a, Tensor) and (a.is_conj() or a.is_neg())


def _mapped(act: Callable[[Any], Any], args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an op with ``act`` done to each, and to each that is in a list; always in the same order."""

    def each(a: Any) -> Any:
        return [act(x) for x in a] if type(a) in (list, tuple) else act(a)

    return tuple([each(a) for a in args]), {k: each(a) for k, a in kwargs.items()}


# -- asking eager


def _asked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> Sequence[bool] | None:
    """Of each of the ``count`` lazy operands in turn, whether the kernel of ``func`` sees what lies in memory.

    None where eager does not tell.
    """
    if sum(_torch.storage_of(t).nbytes() for t in tensors_in(args, kwargs) if type(t) is Replica) > _SMALL:
        return None
    with _torch.without_modes(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = _Numbers()
        given = _mapped(numbers.of, args, kwargs)
        try:
            expected = func(*given[0], **given[1])
            for in_memory in _choices(count):
                places = iter(in_memory)
                plain = _mapped(lambda a: numbers.plain(a, next(places)) if _is_lazy(a) else a, *given)  # noqa: B023
                if _alike(expected, func(*plain[0], **plain[1])):
                    return in_memory
        except Exception:  # these numbers do not suit it
            return None
    return None


def _choices(count: int) -> Iterator[Sequence[bool]]:
    """What a kernel may see of so many lazy operands, the likeliest first."""
    yield (True,) * count
    yield (False,) * count
    if 1 < count <= _FEW:
        yield from itertools.product((True, False), repeat=count)


class _Numbers(StandIns):
    """Stand-ins whose elements differ: small integers, and zeros where an op may take them for places."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(0)

    def filled(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        if not (dtype.is_floating_point or dtype.is_complex):
            return torch.zeros(count, dtype=dtype, device=device)
        parts = torch.randint(1, 10, (2, count), generator=self._generator).double()
        numbers = torch.complex(parts[0], parts[1]) if dtype.is_complex else parts[0]
        return numbers.to(device=device, dtype=dtype)

    def plain(self, made: Tensor, in_memory: bool) -> Tensor:
        """The lazy stand-in ``made``, not lazy: what lies in memory, or else what that is to be taken for."""
        held, g = _torch.storage_of(made), geometry_of(made)
        if not in_memory:
            whole = torch.empty(0, dtype=g.dtype, device=made.device)
            _torch.set_geometry(whole, held, 0, (held.nbytes() // g.dtype.itemsize,), (1,))
            whole = aten.neg.default(whole) if g.neg else whole
            held = _torch.storage_of(aten.conj_physical.default(whole) if g.conj else whole)
        plain = torch.empty(0, dtype=g.dtype, device=made.device)
        _torch.set_geometry(plain, held, g.offset, g.shape, g.stride)
        return plain


def _alike(a: Any, b: Any) -> bool:
    """Whether two results hold the same, however lazily."""
    ours, others = tensors_in((a,), {}), tensors_in((b,), {})
    pairs = list(zip(ours, others, strict=True))
    if any(x.shape != y.shape or x.layout is not torch.strided for x, y in pairs):
        return False
    return all(torch.allclose(x.clone(), y.clone(), equal_nan=True) for x, y in pairs)


# -- as a rule


def reads_memory(tracer: Tracer, func: Any, args: tuple[Any, ...]) -> bool:
    """Whether ``func`` sees what the memory of its tensors holds, though these are conjugated or negated lazily."""
    return bool(tracer.depth) and func not in _KNOW_LAZY_BITS and not _promotes(args)


def shown(tracer: Tracer, t: Replica, value: Value) -> Value:
    """What ``t`` is when its memory holds ``value``."""
    for op, lazy in ((aten.neg.default, t.is_neg()), (aten.conj_physical.default, t.is_conj())):
        if lazy:
            value = tracer.trace.call(op, (value,))
    return value


def memory_of(tracer: Tracer, a: Any) -> Any:
    """As ``Tracer.value_of``, but of what is conjugated or negated lazily what its memory holds.

    That is all that kernels see below the class of a wrapper.
    """
    if type(a) in (list, tuple):
        return [memory_of(tracer, x) for x in a]
    value = tracer.value_of(a)
    if type(a) is Replica and (a.is_conj() or a.is_neg()):
        g = geometry_of(a)
        for op, wrong in ((aten._neg_view.default, g.neg), (aten._conj.default, g.conj)):
            if wrong:
                value = tracer.table.emit.viewop(op, value)
        value.geometry = g._replace(conj=False, neg=False)
    return value


def _promotes(args: tuple[Any, ...]) -> bool:
    """Whether what is conjugated or negated lazily among ``args`` is copied to another dtype before it is computed
    with: a copy heeds that it is.
    """
    tensors = [a for a in args if type(a) is Replica]
    lazy = [t for t in tensors if t.is_conj() or t.is_neg()]
    common = _common_dtype(tensors) if lazy else None
    if any(t.dtype is not common for t in lazy):
        return True
    return any(type(a) is complex for a in args) and not all(t.dtype.is_complex for t in tensors)


def _common_dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    """The dtype to which they are promoted: those without dimensions count only if they are of another kind."""
    with_dims = [t.dtype for t in tensors if t.dim()]
    found = functools.reduce(torch.promote_types, with_dims or [t.dtype for t in tensors])
    for t in tensors:
        if not t.dim() and _kind(t.dtype) > _kind(found):
            found = torch.promote_types(found, t.dtype)
    return found


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype is not torch.bool else 0
