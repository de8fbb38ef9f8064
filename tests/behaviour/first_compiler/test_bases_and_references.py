"""Of what a tensor is a view, and how often a graph refers to one: soft, another compiler need not do as eager."""

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.storage.test_swap_tensors_references import KEPT


@pytest.mark.parametrize("kind", ["plain", "leaf", "view"])
@pytest.mark.parametrize(
    "change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0), lambda v: v.as_strided_((5,), (1,), 0), lambda v: v]
)
@pytest.mark.parametrize("nbytes", [0, 4])
@session
def test_a_view_reshaped_in_place_whose_storage_is_then_shrunk(compile, kind, change, nbytes):
    def f(x):
        x.untyped_storage().resize_(24)
        with torch.no_grad():
            v = x.as_strided((3, 2), (2, 1))
            change(v)
        x.untyped_storage().resize_(nbytes)
        return v

    x = to_device(torch.empty(0)).set_(plain(2).untyped_storage(), 0, (2,), (1,))
    x = x[:] if kind == "view" else x.requires_grad_(kind == "leaf")
    y = compile(f)(x)
    yield y.shape, y.stride(), y._base is x, y._base is x._base, y.untyped_storage().nbytes()


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("after_backward", [True, False], ids=["after a backward", "before one"])
@session
def test_the_caller_swaps_a_leaf_that_a_graph_may_save(compile, kept, after_backward):
    compiled = compile(KEPT[kept])
    for _ in range(2):
        x, other = leaf(3), plain(3)
        result = compiled(x)
        if after_backward:
            result.sum().backward()
        found = attempt_later(lambda x=x, other=other: torch.utils.swap_tensors(x, other))
        yield isinstance(found, Raised)  # the message has a count
        yield x.detach(), other.detach(), result
