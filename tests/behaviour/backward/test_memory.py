"""Nothing is kept longer than by eager; cycles."""

import gc
import os
import weakref
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from benchmarks.memory import SUBJECTS, measure, ours, torchs
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Recorder, backward, one_of
from tests.behaviour.inputs import leaf, plain


def test_saved_tensors_are_freed_with_the_result():
    """A caller that drops the output drops what was saved for it, without waiting for the garbage collector."""
    f = Recorder().compile(lambda x, w: (x * w).sum())
    x, w = leaf(3), plain(3) * 2
    y = f(x, w)
    gone = weakref.ref(w)
    gc.disable()
    try:
        del w, y
        assert gone() is None
    finally:
        gc.enable()


def test_no_saved_tensor_is_alive_after_the_backward():
    """At the end of the backward nothing that was saved is alive, the output still being held."""
    saved = []

    class Keep(Recorder):
        def forward(self, graph, examples):
            run = super().forward(graph, examples)

            def call(*args):
                out = run(*args)
                flat = out if isinstance(out, (tuple, list)) else (out,)
                saved.extend(weakref.ref(t) for t in flat[1:] if isinstance(t, torch.Tensor))
                return out

            return call

    f = Keep().compile(lambda x: (x.exp() * x).sum())
    x = leaf(4)
    y = f(x)
    y.backward()
    alive = [r() for r in saved if r() is not None and r() is not x]
    assert not alive
    assert y.requires_grad


@pytest.mark.parametrize("kind", ["training", "aliases", "mutation", "double", "no backward"])
def test_a_thousand_calls_leak_no_tensors(kind: str):
    def g(x, b):
        if kind == "mutation":
            b.add_(1)
        y = x * x
        return y, y.view(-1), x.view(-1) if kind == "aliases" else b * 2

    f = Recorder().compile(g)
    x, b = leaf(3), plain(3)

    def once() -> None:
        out = f(x, b)
        if kind == "double":
            (first,) = torch.autograd.grad(out[0].sum(), x, create_graph=True)
            torch.autograd.grad(first.sum(), x)
        elif kind != "no backward":
            backward([out[0]])

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    once()
    before = tensors()
    for _ in range(1000):
        once()
    assert tensors() <= before + 2


SIZE = 1 << 14
"""Elements of each tensor: a thousand that are kept make 64 MiB."""


class Counting(torch.autograd.Function):
    """Counts its backwards in a buffer."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.count.add_(1)
        return g * 2, None


def hooked(x, b):
    y = x * x
    y.register_hook(lambda g: g * 2)
    return y.exp()


def stepping(x, b):
    loss = (x * b).sum()
    loss.backward()
    return x.grad * 2


def passed_on(x, b):
    b.add_(1)
    y = x * b.clone()
    return y.view(-1), y


FUNCTIONS = {
    "plain": lambda x, b: (x * b).exp() * x,
    "aliases and a written buffer": passed_on,
    "a view of the argument": lambda x, b: (x * x, x.view(-1)),
    "a hook inside": hooked,
    "a backward inside": stepping,
    "a write in the backward": lambda x, b: Counting.apply(x * x, b),
    "a checkpoint": lambda x, b: checkpoint(lambda x: F.dropout(x * x, 0.5).exp(), x, use_reentrant=False),
    "a reentrant checkpoint": lambda x, b: checkpoint(lambda x: (x * x).exp(), x, use_reentrant=True),
}
function = one_of(FUNCTIONS)


def first(out):
    return out[0] if isinstance(out, tuple) else out


def objects() -> int:
    gc.collect()
    return sum(issubclass(type(o), (torch.Tensor, torch.UntypedStorage)) for o in gc.get_objects())


def resident() -> int:
    """Bytes of the process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.on_the_cpu("it measures memory of the process, where tensors of a GPU do not lie")
def test_a_thousand_steps_leak_no_tensors_and_no_memory(function):
    """No objects, and no memory of the process: with what one step saves, a thousand would make 64 MiB and more."""
    compiled = Recorder().compile(function)
    x, b = torch.rand(SIZE, requires_grad=True), torch.rand(SIZE)

    def step() -> None:
        x.grad = None
        out = first(compiled(x, b))
        if out.requires_grad:
            out.sum().backward()

    for _ in range(50):
        step()
    tensors, memory = objects(), resident()
    for _ in range(1000):
        step()
    assert objects() <= tensors + 2
    assert resident() - memory < 24 << 20


def test_a_training_step_makes_no_reference_cycles(function):
    compiled = Recorder().compile(function)
    x, b = leaf(4), plain(4)
    for _ in range(2):
        out = first(compiled(x, b))
        if out.requires_grad:
            out.sum().backward()
    del out
    while gc.collect():  # what tensors in cycles held goes with the next collection
        pass
    gc.disable()
    try:
        out = first(compiled(x, b))
        seen = weakref.ref(out)
        if out.requires_grad:
            out.sum().backward()
        del out
        assert seen() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "make, f",
    [
        (lambda: plain(2, 0), lambda x: x.t().add_(1)),
        (lambda: [plain(3), plain(2)], lambda x: x[0] * 2),
        (lambda: {"weights": [plain(3)]}, lambda x: x["weights"][0] * 2),
    ],
    ids=["without elements", "in a list", "in a dictionary"],
)
def test_an_argument_is_freed_with_the_callers_last_reference(make, f):
    """The first call of what has no elements is run op by op, to learn how that lies."""
    compiled = aotcheck.aot_function(f, aotcheck.nop)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            argument = make()
            kept = [weakref.ref(t) for t in tree_leaves(argument)]
            compiled(argument)
            del argument
            assert [r() for r in kept] == [None] * len(kept)
    finally:
        gc.enable()


@pytest.mark.on_the_cpu("it measures memory of the process, where tensors of a GPU do not lie")
def test_dropping_a_result_without_backward_frees_what_was_saved(function):
    """No backward needed: the memory that eager frees with the output is freed with ours."""
    compiled = Recorder().compile(function)
    x, b = torch.rand(1 << 20, requires_grad=True), torch.rand(1 << 20)
    for _ in range(2):
        compiled(x, b)
    x.grad = None
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        compiled(x, b)
    changes = [e.nbytes() for e in profile.kineto_results.events() if e.name() == "[memory]"]
    kept = 0 if x.grad is None else x.grad.nbytes
    assert abs(sum(changes) - kept) < 1 << 16


@pytest.mark.parametrize("subject", SUBJECTS, ids=[s.name for s in SUBJECTS])
def test_a_training_step_takes_no_more_memory_than_torchs(subject):
    mine, theirs = measure(subject, ours), measure(subject, torchs)
    assert mine.saved <= theirs.saved
    assert mine.peak <= theirs.peak


def test_a_specialization_does_not_grow_with_calls():
    compiled = aotcheck.aot_function(lambda x, b: Counting.apply(x * x, b))
    x, b = leaf(4), plain(4)
    compiled(x, b).sum().backward()
    before = objects()
    held = [compiled(x, b) for _ in range(10)]
    for out in held:
        out.sum().backward()
    del held, out
    assert objects() <= before + 2
