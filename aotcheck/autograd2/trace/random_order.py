"""In which order an in-place random op hands out its numbers.

The functional variant draws the same numbers, but may lay them out in another order where its operand does not lie in
rows: kernels differ. So eager is asked once, on a real tensor of the same geometry, which order the variant has to
follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.trace.gate import Event, refuse

_MOST_BYTES = 1 << 24
_NUMBERS = 1 << 14
_answers: dict[Any, bool | None] = {}


def in_memory_order(
    op: Any, variant: Any, g: Geometry, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether the variant must draw for a tensor that lies in rows in the order of memory, rather than for its operand.

    Raises:
        UnsupportedError: neither gives eager's numbers, or eager cannot be asked.
    """
    if g.is_contiguous:
        return False
    if any(isinstance(a, Tensor) for a in (*args, *kwargs.values())) or type(g.end) is not int:
        refuse(Event.LAYOUT, f"{op} on a tensor that does not lie in rows")
    if g.end * g.dtype.itemsize > _MOST_BYTES:
        refuse(Event.LAYOUT, f"{op} on a tensor that does not lie in rows and is too large to be tried")
    key = (op, g._replace(offset=0), device, repr(args), repr(sorted(kwargs.items(), key=str)))
    if key not in _answers:
        _answers[key] = _ask(op, variant, g._replace(offset=0), device, args, kwargs)
    answer = _answers[key]
    if answer is None:
        refuse(Event.LAYOUT, f"{op} on a tensor that does not lie in rows")
    return answer


def _ask(
    op: Any, variant: Any, g: Geometry, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool | None:
    """Of few elements the numbers may be the same in either order by chance: then others are drawn."""
    order = g.dense_order
    left = [False, True] if order is not None else [False]
    devices = [device] if device.type == "cuda" else []
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices):
        for seed in range(min(max(_NUMBERS // max(g.numel, 1), 4), 256)):

            def made(seed: int = seed) -> Tensor:
                torch.manual_seed(seed)
                return torch.zeros(g.end, dtype=g.dtype, device=device).as_strided(g.shape, g.stride)

            expected = op(made(), *args, **kwargs)
            drawn = {False: variant(made(), *args, **kwargs)}
            if order is not None:
                rows = variant(made().permute(order).contiguous(), *args, **kwargs)
                drawn[True] = rows.permute([order.index(d) for d in range(len(order))])
            fits = {each: torch.equal(t.to(g.dtype), expected) for each, t in drawn.items()}
            left = [each for each in left if fits[each]]
            if not left or not all(fits.values()):
                break
    return left[0] if left else None
