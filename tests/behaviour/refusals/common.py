"""What several tests of refusals use."""

import torch

from tests.behaviour.inputs import plain


def holey(*shape, dtype=torch.float32):
    """Every other element is zero."""
    t = plain(*shape, dtype=dtype)
    t.view(-1)[::2] = 0
    return t


def holey_leaf(*shape):
    return holey(*shape).requires_grad_()


def integers(*numbers):
    return plain(1).new_tensor(numbers, dtype=torch.int64)


LAYOUTS = {
    "rows": lambda x: x.to_sparse_csr(),
    "columns": lambda x: x.to_sparse_csc(),
    "blocks by rows": lambda x: x.to_sparse_bsr((2, 1)),
    "blocks by columns": lambda x: x.to_sparse_bsc((2, 1)),
}
