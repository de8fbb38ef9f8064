"""Zeros without memory among replicas.

Note [Zeros without memory]
For a gradient that is zero whatever the data are (that of ``sgn``, so second derivatives of ``abs``) autograd makes a
tensor that has no memory (``_efficientzerotensor``). Some ops give such a tensor for one, others turn it into an
ordinary tensor first. A graph calls the real ops, so of plain tensors all of this comes by itself, and to the trace
such zeros are ordinary replicas. But what eager does where they meet a wrapper is not up to the wrapper's class alone:
torch's own kernel runs before that, and asks the class for a copy without data, at which most classes fail. So the
trace knows which replicas are such zeros, by their storage, and such an op is done once on real stand-ins, to see what
it gives or raises. Ops that have no kernel for such zeros are given ordinary ones in eager, and so they are here:
a wrapper that holds zeros without memory ruins the process, as its class calls kernels that take them for ordinary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.stand_ins import StandIns, tensors_in
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.subclasses import is_wrapper, leaves_of, wrapping_of

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
ZEROS = aten._efficientzerotensor.default
_IF_ANY = frozenset({aten.mul.Tensor, aten.mul.Scalar, aten.linalg_cross.default, aten.dot.default, aten.vdot.default})
"""Ops that give zeros without memory if an operand is such."""
_IF_FIRST = frozenset({aten.div.Tensor})
"""And those that give them if just the first one is."""
_IF_BOTH = frozenset({aten.add.Tensor, aten.sub.Tensor})
"""And if all of them are."""
_MEETS = frozenset({aten.mul.Tensor, aten.div.Tensor, aten.linalg_cross.default, *_IF_BOTH})
"""Ops whose kernels for zeros without memory ask the class of a wrapper for a copy without data."""


def remains(func: Any, zeros: Sequence[bool]) -> bool:
    """Whether ``func``, which gives no view, gives zeros without memory if those of its tensors are such."""
    if func in _IF_ANY:
        return any(zeros)
    if func in _IF_FIRST:
        return zeros[0] and not any(zeros[1:])
    return func in _IF_BOTH and len(zeros) > 1 and all(zeros)


def is_zeros(tracer: Tracer, t: Any) -> bool:
    """Whether ``t`` stands for zeros without memory."""
    return type(t) is Replica and _torch.storage_address(_torch.storage_of(t)) in tracer.zeros


def among(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether there are any such among the arguments of an op."""
    return any(is_zeros(tracer, t) for t in tensors_in(args, kwargs))


def note(tracer: Tracer, t: Tensor) -> None:
    """``t``, and what is or will be a view of it, stands for zeros without memory."""
    tracer.zeros.add(_torch.storage_address(_torch.storage_of(t)))


def propagate(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Note that the result of an op that gives no view is such, if it is."""
    if not isinstance(out, Tensor):
        return
    found = [is_zeros(tracer, t) for t in tensors_in(args, kwargs)]
    if any(found) and remains(func, found):
        note(tracer, out)


def materialized(tracer: Tracer, a: Any) -> Any:
    """The arguments ``a`` with ordinary zeros in place of those without memory, as torch makes such."""
    if isinstance(a, dict):
        return {k: materialized(tracer, x) for k, x in a.items()}
    if type(a) in (list, tuple):
        return type(a)([materialized(tracer, x) for x in a])
    if not is_zeros(tracer, a):
        return a
    with tracer:
        return aten.zeros.default([], dtype=a.dtype, device=a.device).expand(a.shape)


def refuse_write(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what ``func``, which writes its first argument, does if that is zeros without memory."""
    if is_zeros(tracer, args[0]):
        _on_real(tracer, func, args, kwargs)


def meets_class(func: Any) -> bool:
    """Whether ``func``, given zeros without memory and a wrapper, asks the wrapper's class for a copy without data."""
    return func in _MEETS


def with_wrapper(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``func``, which meets the class of a wrapper, gives of it and of zeros without memory; raises what it does.

    See Note [Zeros without memory].
    """
    given = _on_real(tracer, func, args, kwargs)
    if is_wrapper(given):
        tracer.depth += 1  # what a kernel does is nothing to autograd
        try:
            with tracer:
                return _other_operand(func, args, kwargs, given)
        finally:
            tracer.depth -= 1
    like = {"dtype": given.dtype, "device": given.device}
    if _torch.is_without_memory(given):
        with tracer:
            return ZEROS(list(given.shape), **like)
    value = given.flatten()[0].item() if given.numel() else 0  # infinity, or NaN: it depends on no data
    with tracer:
        return aten.full.default(list(given.shape), value, **like)


def _other_operand(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor) -> Any:
    """The sum or difference of zeros and a wrapper, which is that wrapper; ``given`` says of what shape and dtype."""
    first = is_wrapper(args[0])
    other = args[0] if first else args[1]
    factor = 1 if first else kwargs.get("alpha", 1) * (-1 if func is aten.sub.Tensor else 1)
    other = aten.expand.default(other, list(given.shape))
    other = aten._to_copy.default(other, dtype=given.dtype, layout=torch.strided, device=given.device)
    return other if factor == 1 else aten.mul.Scalar(other, factor)


def _on_real(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stands = _RealZeros(tracer)
    with _torch.as_if_called(), torch.no_grad():  # zeros have no kernels below autograd
        return func(*[stands.of(a) for a in args], **{k: stands.of(a) for k, a in kwargs.items()})


class _RealZeros(StandIns):
    """Stand-ins, wrappers and zeros without memory among them."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(fill=1)
        self._tracer = tracer

    def _make(self, t: Tensor) -> Tensor:
        if is_zeros(self._tracer, t):
            self.made[id(t)] = _torch.zeros_without_memory(t.shape, t.dtype, t.device)
            return self.made[id(t)]
        wrapping = wrapping_of(t)
        if wrapping is None:
            return super()._make(t)
        self.made[id(t)] = wrapping.build([self.of(x) for x in leaves_of(t)])
        return self.made[id(t)]
