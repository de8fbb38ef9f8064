"""BEHAVIOUR 4: results of ops on tensors without elements lie as eager's kernels leave them, whatever is foretold."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.harness import attempt, check_session

OPS = {
    "sort": lambda x: torch.sort(x, dim=3, stable=True),
    "argsort": lambda x: torch.argsort(x, dim=1),
    "topk": lambda x: torch.topk(x, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(1),
    "softmax": lambda x: x.softmax(-1),
    "flip": lambda x: x.flip(0),
    "tril": lambda x: x.tril(),
    "kthvalue": lambda x: x.kthvalue(1, dim=1),
    "index_select": lambda x: x.index_select(1, torch.tensor([1, 0])),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 1, return_indices=True),
}


@pytest.mark.parametrize("stride", [(1, 1, 2, 4), (8, 4, 2, 1), (4, 4, 2, 1), (1, 2, 4, 8)], ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_results_of_nothing_seen_as_another_dtype(op, stride):
    def f(x):
        found = op(x)
        return [t.view(torch.uint8) for t in (found if isinstance(found, tuple) else (found,))]

    def session(compile):
        x = torch.empty_strided((0, 2, 2, 2), stride)
        yield attempt(lambda: compile(f)(x))

    check_session(session)
