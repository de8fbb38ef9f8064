"""BEHAVIOUR 7: autocast within the kernels of ops that it has no rule for."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, backward, check_session, differentiable, plain

HALVES = [torch.float16, torch.bfloat16]


def _matrix(dtype):
    return plain(4, 4, seed=2).div(8).to(dtype)


KERNELS = {
    "roll": lambda x: torch.roll(x, 1),
    "roll of a dimension": lambda x: torch.roll(x, (1, 2), (0, 1)),
    "fftshift": torch.fft.fftshift,
    "isin": lambda x: torch.isin(x, x.t().contiguous()),
    "_chunk_cat": lambda x: torch._chunk_cat([x], 0, 2),
    "matrix_exp": torch.matrix_exp,
    "pinv": torch.linalg.pinv,
    "bilinear": lambda x: torch.nn.functional.bilinear(x, x, x.unsqueeze(0)),
    "convolution": lambda x: torch.convolution(x.view(1, 4, 4), x.view(4, 4, 1), None, [1], [0], [1], False, [0], 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "sparse.mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "pinverse": torch.pinverse,
    "pinverse by method": lambda x: x.pinverse(1e-3),
}


@pytest.mark.parametrize("function", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("cast_to", HALVES, ids=str)
def test_kernels_that_autocast_looks_into(function, dtype, cast_to):
    def session(compile):
        f = compile(function)
        for enabled in (True, False):
            x = _matrix(dtype).requires_grad_(dtype.is_floating_point)
            with torch.autocast("cpu", cast_to, enabled=enabled):
                out = attempt(lambda x=x: f(x))
            yield out
            outputs = differentiable([out])
            yield attempt(lambda outputs=outputs: backward(outputs)) if outputs else None, x

    check_session(session)


def test_off_in_parts_within_a_kernel():
    def f(x):
        with torch.autocast("cpu", enabled=False):
            a = torch.linalg.pinv(x)
        return a, torch.linalg.pinv(x)

    def session(compile):
        with torch.autocast("cpu"):
            yield compile(f)(_matrix(torch.float32))

    check_session(session)
