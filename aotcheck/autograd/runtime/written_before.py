"""Backwards inside that go on in the caller's graph between two writes of the call: whether that graph objects."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import has_packed, kept_in_vain
from aotcheck.autograd.graphs.failing import GraphFailed


def check_caller_graph(targets: Sequence[Tensor], written: Sequence[tuple[Tensor, int]]) -> None:
    """Raise what makes the original run if what the graph behind ``targets`` keeps is among what is ``written``.

    That is done later, if it does not raise, and comes with how often each is by then. Then the data would not be what
    it is in eager where a backward raises between two writes.
    """
    versions = [(t, _torch.version_of(t), count) for t, count in written]
    try:
        for t, version, count in versions:
            _torch.set_version(t, version + count)
        for node in nodes_behind([_torch.grad_fn_of(t) for t in targets], set()):
            if not has_packed(node) and (error := kept_in_vain(node)) is not None:
                raise GraphFailed from error
    finally:
        for t, version, _ in versions:
            _torch.set_version(t, version)
