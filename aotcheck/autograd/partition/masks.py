"""Random masks are saved as the bools that they are.

Note [Masks]
Dropout draws zeros and ones in the dtype of its input and scales them; its backward reads the result. Saved is instead
the mask as bool, a quarter of it or less, from which the backward computes it anew: the forward reads the mask by way
of the same bools, so that both are the same operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotcheck.autograd.ir.trace import Trace, Value

aten = torch.ops.aten
_DRAWS = frozenset({aten.bernoulli.p})
_SCALINGS = frozenset({aten.div.Scalar, aten.div.Tensor, aten.mul.Scalar, aten.mul.Tensor})


def mask_behind(v: Value) -> Value | None:
    """The draw of zeros and ones that ``v`` is, perhaps scaled by numbers; None if it is something else."""
    while v.op in _SCALINGS and len(list(v.inputs())) == 1 and isinstance(v.args[0], Value):
        v = v.args[0]
    g = v.geometry
    return v if v.op in _DRAWS and g is not None and g.dtype.itemsize > 1 else None


def pack_masks(trace: Trace, forward: set[Value], saved: Sequence[Sequence[Value]], outputs: set[Value]) -> None:
    """Let what is computed from a mask that is ``saved``, and is no output, be computed from its bools."""
    masks = dict.fromkeys(m for values in saved for v in values if v not in outputs and (m := mask_behind(v)))
    for mask in masks:
        assert mask.geometry is not None
        place = trace.values.index(mask) + 1
        bools = Value(aten._to_copy.default, (mask,), {"dtype": torch.bool})
        again = Value(aten._to_copy.default, (bools,), {"dtype": mask.geometry.dtype})
        for v in trace.values[place:]:
            if mask in v.inputs():
                v.replace(mask, again)
        bools.geometry, again.geometry = mask.geometry._replace(dtype=torch.bool), mask.geometry
        bools.device = again.device = mask.device
        trace.values[place:place] = [bools, again]
        forward.update((bools, again))


def packed(v: Value, outputs: set[Value]) -> Value:
    """What to save for ``v``: the bools that it is computed from, or itself."""
    u = v
    while u.op in _SCALINGS and len(list(u.inputs())) == 1 and isinstance(u.args[0], Value):
        u = u.args[0]
    if u.op is aten._to_copy.default and v not in outputs:
        (source,) = u.inputs()
        if source.op is aten._to_copy.default and source.kwargs == {"dtype": torch.bool}:
            (mask,) = source.inputs()
            if mask.op in _DRAWS:
                return source
    return v
