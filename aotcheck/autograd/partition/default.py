"""The default partition: what the outputs need runs in the forward, the rest in the backward; what crosses is saved."""

from __future__ import annotations

from collections.abc import Sequence

from aotcheck.autograd.ir.trace import CONSTANT, Value, ancestors, getitem


def forward_values(order: Sequence[Value], outputs: Sequence[Value], effects: Sequence[Value]) -> set[Value]:
    """Everything that the forward computes.

    All results of an op with several belong with it, or the backward would have to run it again for the others.
    """
    needed = ancestors([*outputs, *effects])
    for v in order:
        if v.op is getitem and v.args[0] in needed:
            needed.add(v)
    return needed


def saved_values(
    forward: set[Value], given: set[Value], gradients: Sequence[Value | None], order: Sequence[Value]
) -> list[Value]:
    """What the backward reads that the forward computes or is given, each once, in the order first read.

    A result of an op with several that only the backward asks for is added to the forward, which has the op.
    """
    backward = ancestors(gradients)
    saved: dict[Value, None] = {}
    for v in order:
        if v in backward and v not in forward and v not in given:
            if v.op is getitem and v.args[0] in forward:
                forward.add(v)
                continue
            for a in v.inputs():
                if (a in forward or a in given) and a.op is not CONSTANT:
                    saved[a] = None
    for g in gradients:
        if g is not None and (g in forward or g in given) and g.op is not CONSTANT:
            saved[g] = None
    return list(saved)


def backward_values(gradients: Sequence[Value | None], available: set[Value]) -> set[Value]:
    """Everything that the backward computes when ``available`` is at hand."""
    seen: set[Value] = set()
    todo = [g for g in gradients if g is not None]
    while todo:
        v = todo.pop()
        if v not in seen and v not in available:
            seen.add(v)
            todo.extend(v.inputs())
    return seen


def scheduled(order: Sequence[Value], keep: set[Value], forward: set[Value]) -> list[Value]:
    """``keep`` in ``order``; but what of ``forward`` a backward computes again comes right before its first use."""
    again = [v for v in order if v in keep and v in forward]
    if not again:
        return [v for v in order if v in keep]
    done: set[Value] = set()
    result: list[Value] = []

    def emit(v: Value) -> None:
        for a in v.inputs():
            if a in keep and a in forward and a not in done:
                emit(a)
        done.add(v)
        result.append(v)

    for v in order:
        if v in keep and v not in forward:
            emit(v)
    for v in again:
        if v not in done:
            emit(v)
    return result


def read_by(gradients: Sequence[Value | None], available: set[Value], order: Sequence[Value]) -> list[Value]:
    """What of ``available`` is read to compute ``gradients``, each once, in the order first read."""
    available = available | {v for v in order if v.op is getitem and v.args[0] in available}
    needed = backward_values(gradients, available)
    read: dict[Value, None] = {}
    for v in order:
        if v in needed:
            read.update({a: None for a in v.inputs() if a in available and a.op is not CONSTANT})
    read.update({g: None for g in gradients if g is not None and g in available and g.op is not CONSTANT})
    return list(read)
