"""In which order an in-place random op hands out its numbers.

The functional variant draws the same numbers, but may lay them out in another order where its operand does not lie in
rows: kernels differ. So eager is asked once, on a real tensor of the same geometry, which order the variant has to
follow; of symbolic sizes on tensors of some larger sizes too, and all must give one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.symbols import Symbols

_MOST_BYTES = 1 << 24
_NUMBERS = 1 << 14
_answers: dict[Any, set[tuple[int, ...] | None]] = {}


def in_memory_order(
    op: Any, variant: Any, g: Geometry, device: torch.device, given: tuple[Sequence[Any], Any], symbols: Symbols | None
) -> tuple[int, ...]:
    """The dimensions from outermost to innermost if the variant must draw for rows in the order of memory; else none.

    Raises:
        UnsupportedError: neither gives eager's numbers, or eager cannot be asked.
    """
    if g.is_contiguous:
        return ()
    said, (args, kwargs), g = f"{op} on a tensor that does not lie in rows", given, g._replace(offset=0)
    if any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        refuse(Event.LAYOUT, said)
    lies, args = [g], [_torch.hint_of(a) for a in args]
    if symbols is not None:
        try:
            lies = [_larger(g, symbols, by) for by in (0, 1, 4)]
        except KeyError:
            refuse(Event.LAYOUT, f"{said} and whose size data decide")
    if any(one.end * one.dtype.itemsize > _MOST_BYTES for one in lies):
        refuse(Event.LAYOUT, f"{said} and is too large to be tried")
    key = (op, tuple(lies), device, repr(args), repr(sorted(kwargs.items(), key=str)))
    if key not in _answers:
        _answers[key] = {_ask(op, variant, one, device, args, kwargs) for one in lies}
    (answer, *others) = _answers[key]
    if answer is None or others:
        refuse(Event.LAYOUT, said)
    return answer


def _larger(g: Geometry, symbols: Symbols, by: int) -> Geometry:
    """A geometry in numbers, where each symbol is larger by so much than in the traced call."""
    return g.mapped(lambda x: _torch.valued(symbols.env, x, lambda *_: by))


def _ask(
    op: Any, variant: Any, g: Geometry, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Of few elements the numbers may be the same in either order by chance: then others are drawn."""
    order = g.dense_order
    left: list[tuple[int, ...]] = [(), tuple(order)] if order is not None else [()]
    devices = [device] if device.type == "cuda" else []
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices):
        for seed in range(min(max(_NUMBERS // max(g.numel, 1), 4), 256)):

            def made(seed: int = seed) -> Tensor:
                torch.manual_seed(seed)
                return torch.zeros(g.end, dtype=g.dtype, device=device).as_strided(g.shape, g.stride)

            expected = op(made(), *args, **kwargs)
            drawn: dict[tuple[int, ...], Tensor] = {(): variant(made(), *args, **kwargs)}
            if order is not None:
                rows = variant(made().permute(order).contiguous(), *args, **kwargs)
                drawn[tuple(order)] = rows.permute([order.index(d) for d in range(len(order))])
            fits = {each: torch.equal(t.to(g.dtype), expected) for each, t in drawn.items()}
            left = [each for each in left if fits[each]]
            if not left or not all(fits.values()):
                break
    return left[0] if left else None
