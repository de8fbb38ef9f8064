"""What no result needs, and raises in eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aotcheck.autograd2.api import aot_function


def test_what_no_result_needs_raises_as_in_eager_and_draws_nothing_twice() -> None:
    for dynamic in (False, True):
        compiled = aot_function(
            lambda x: (F.binary_cross_entropy(x, x.double()), x.new_zeros(x.shape), x + 1)[2], dynamic=dynamic
        )
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Found dtype Double"):
                compiled(torch.full((3,), 0.5))
    dropped = aot_function(lambda x: (F.dropout(x).sin(), x + 1)[1])
    torch.manual_seed(0)
    for _ in range(2):
        F.dropout(torch.ones(3))
    expected = torch.rand(1)
    torch.manual_seed(0)
    for _ in range(2):
        dropped(torch.ones(3))
    assert torch.equal(torch.rand(1), expected)


def test_what_a_result_does_not_need_raises_also_where_the_graph_takes_no_size():
    def f(x):
        return torch.stft(x, 2, hop_length=1, return_complex=True) is None

    x = torch.ones(4, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="FFT"):
        aot_function(f, dynamic=True)(x)
