"""In which order an in-place random op hands out its numbers.

The functional twin of a random op draws the same numbers but may lay them out in another order when its operand is not
contiguous: kernels differ. So for that rare case eager is asked, on a small real tensor of the same geometry, whose
order the twin has to follow.
"""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import Geometry, geometry_of

_PROBE_LIMIT = 1 << 24  # bytes
_NUMBERS_TO_TRY = 1 << 14


class Order(enum.Enum):
    """Where the twin puts the numbers."""

    AS_TWIN = "as the twin does"
    MEMORY = "in the order of memory"


_answers: dict[Any, Order | None] = {}


def order_of(op: Any, twin: Any, target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Order:
    """How ``twin`` must be used so that ``target`` gets what ``op`` writes.

    Raises UnsupportedError where neither order is right.
    """
    g = geometry_of(target)
    if g.is_contiguous:
        return Order.AS_TWIN
    if any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        raise UnsupportedError("random op on a strided tensor", f"{op} with tensor parameters")
    if g.elements_reached * g.dtype.itemsize > _PROBE_LIMIT:
        raise UnsupportedError("random op on a strided tensor", f"{op}: too large to try out")
    named = tuple((k, str(v)) for k, v in kwargs.items())
    key = (op, g._replace(offset=0), target.device, tuple(map(str, args)), named)
    if key not in _answers:
        if len(_answers) > 1000:
            _answers.clear()
        _answers[key] = _ask(op, twin, g._replace(offset=0), target.device, args, kwargs)
    answer = _answers[key]
    if answer is None:
        raise UnsupportedError("random op on a strided tensor", str(op))
    return answer


def _ask(
    op: Any, twin: Any, g: Geometry, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Order | None:
    """Numbers may be the same in either order by chance, as of few elements that are nearly all ones: then others."""
    devices = [device] if device.type == "cuda" else []
    order = g.dense_order
    left = list(Order) if order is not None else [Order.AS_TWIN]
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices):
        for seed in range(min(max(_NUMBERS_TO_TRY // max(g.numel, 1), 4), 256)):

            def fresh(seed: int = seed) -> Tensor:
                torch.manual_seed(seed)
                return torch.zeros(g.elements_reached, dtype=g.dtype, device=device).as_strided(g.shape, g.stride)

            expected = op(fresh(), *args, **kwargs)
            drawn = {Order.AS_TWIN: twin(fresh(), *args, **kwargs)}
            if order is not None:
                drawn[Order.MEMORY] = twin(fresh().permute(order).contiguous(), *args, **kwargs).permute(inverse(order))
            fits = {each: torch.equal(t.to(g.dtype), expected) for each, t in drawn.items()}
            left = [each for each in left if fits[each]]
            if not left or not all(fits.values()):
                break
    return left[0] if left else None


def inverse(order: list[int]) -> list[int]:
    """The permutation that undoes ``order``."""
    return [order.index(d) for d in range(len(order))]
