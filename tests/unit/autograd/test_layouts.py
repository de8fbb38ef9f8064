"""Ops whose meta kernels lay results out otherwise than real ones do are known: a survey over what convolutional
networks are made of."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from aotcheck.autograd.ops.layouts import UNSURE

aten = torch.ops.aten
TWO, FOUR, SIX = [1, 1], [1] * 4, [1] * 6
CHANNELS = lambda x, value=1.0: torch.full((x.shape[1],), value)  # noqa: E731
SQUARE = {
    aten._adaptive_avg_pool2d.default: lambda x: (x, [2, 2]),
    aten._native_batch_norm_legit.no_stats: lambda x: (x, CHANNELS(x), CHANNELS(x), True, 0.1, 1e-5),
    aten._native_batch_norm_legit.default: lambda x: (x, *[CHANNELS(x)] * 4, False, 0.1, 1e-5),
    aten._softmax.default: lambda x: (x, 1, False),
    aten._upsample_bilinear2d_aa.default: lambda x: (x, [12, 12], False),
    aten._upsample_nearest_exact2d.default: lambda x: (x, [12, 12]),
    aten.adaptive_max_pool2d.default: lambda x: (x, [2, 2]),
    aten.add.Tensor: lambda x: (x, x),
    aten.avg_pool2d.default: lambda x: (x, [2, 2]),
    aten.cat.default: lambda x: ([x, x], 1),
    aten.channel_shuffle.default: lambda x: (x, 2),
    aten.clone.default: lambda x: (x,),
    aten.constant_pad_nd.default: lambda x: (x, FOUR),
    aten.cumsum.default: lambda x: (x, 1),
    aten.empty_like.default: lambda x: (x,),
    aten.flip.default: lambda x: (x, [2]),
    aten.gelu.default: lambda x: (x,),
    aten.glu.default: lambda x: (x, 1),
    aten.grid_sampler_2d.default: lambda x: (x, torch.zeros(x.shape[0], 3, 3, 2), 0, 0, False),
    aten.index_select.default: lambda x: (x, 1, torch.tensor([0])),
    aten.max_pool2d_with_indices.default: lambda x: (x, [2, 2]),
    aten.mean.dim: lambda x: (x, [1], True),
    aten.native_batch_norm.default: lambda x: (x, *[CHANNELS(x)] * 4, True, 0.1, 1e-5),
    aten.native_channel_shuffle.default: lambda x: (x, 2),
    aten.native_group_norm.default: lambda x: (x, None, None, x.shape[0], x.shape[1], 36, 1, 1e-5),
    aten.native_layer_norm.default: lambda x: (x, [x.shape[-1]], None, None, 1e-5),
    aten.pixel_shuffle.default: lambda x: (x, 2),
    aten.pixel_unshuffle.default: lambda x: (x, 2),
    aten.reflection_pad2d.default: lambda x: (x, FOUR),
    aten.relu.default: lambda x: (x,),
    aten.replication_pad2d.default: lambda x: (x, FOUR),
    aten.roll.default: lambda x: (x, [1], [2]),
    aten.slow_conv_transpose2d.default: lambda x: (x, torch.ones(x.shape[1], 4, 3, 3), [3, 3]),
    aten.upsample_bicubic2d.default: lambda x: (x, [12, 12], False),
    aten.upsample_bilinear2d.default: lambda x: (x, [12, 12], False),
    aten.upsample_nearest2d.default: lambda x: (x, [12, 12]),
    aten.convolution.default: lambda x: convolution(x, 2, False),
    aten.convolution_backward.default: lambda x: convolution_backward(x, 2),
}
CUBIC = {
    aten._adaptive_avg_pool3d.default: lambda x: (x, [2, 2, 2]),
    aten.avg_pool3d.default: lambda x: (x, [2, 2, 2]),
    aten.convolution.default: lambda x: convolution(x, 3, True),
    aten.max_pool3d_with_indices.default: lambda x: (x, [2, 2, 2]),
    aten.reflection_pad3d.default: lambda x: (x, SIX),
    aten.replication_pad3d.default: lambda x: (x, SIX),
    aten.upsample_nearest3d.default: lambda x: (x, [12, 12, 12]),
    aten.upsample_trilinear3d.default: lambda x: (x, [12, 12, 12], False),
}


def convolution(x: Tensor, dims: int, transposed: bool) -> tuple[Any, ...]:
    w = torch.ones(x.shape[1], x.shape[1], *[3] * dims)
    return x, w, None, [1] * dims, [0] * dims, [1] * dims, transposed, [0] * dims, 1


def convolution_backward(x: Tensor, dims: int) -> tuple[Any, ...]:
    x, w, *rest = convolution(x, dims, False)
    grad = aten.convolution.default(x, w, *rest)
    return grad, x, w, None, *rest[1:], [True, True, False]


def laid_out(x: Tensor) -> Iterator[Tensor]:
    """``x`` in channels-last, and transposed."""
    yield x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    yield x.mT.contiguous().mT


def on_meta(a: Any) -> Any:
    if isinstance(a, Tensor):
        return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
    return [on_meta(x) for x in a] if isinstance(a, list) else a


def strides(results: Any) -> list[list[int]]:
    """Those that say where elements lie, of each tensor that has any."""
    tensors = [t for t in (results if isinstance(results, (list, tuple)) else [results]) if isinstance(t, Tensor)]
    return [[step for n, step in zip(t.shape, t.stride(), strict=True) if n > 1] for t in tensors if t.numel()]


def foretold_otherwise(op: Any, make: Any, like: list[Tensor]) -> bool:
    """Whether the meta kernel of ``op`` gives other strides than its real one for some layout, where that takes it."""
    for x in [laid for each in like for laid in laid_out(each)]:
        args = make(x)
        try:
            expected = strides(op(*args))
        except RuntimeError:
            continue
        if expected != strides(op(*map(on_meta, args))):
            return True
    return False


CASES = [(op, make, 4) for op, make in SQUARE.items()] + [(op, make, 5) for op, make in CUBIC.items()]


@pytest.mark.parametrize(("op", "make", "dims"), CASES, ids=lambda a: str(a) if isinstance(a, (int, str)) else None)
def test_ops_that_are_foretold_otherwise_are_known(op, make, dims):
    sizes = [6] * (dims - 2)
    like = [torch.ones(batch, channels, *sizes) for batch in (1, 2) for channels in (4, 16)]
    if op not in UNSURE:
        assert not foretold_otherwise(op, make, like), f"{op} belongs among UNSURE"
    elif op in (aten.convolution.default, aten.pixel_shuffle.default):
        assert foretold_otherwise(op, make, like), "torch foretells it right by now"
