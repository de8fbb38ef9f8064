"""Which arguments the graph of a call's results holds.

Note [Arguments held]
``swap_tensors`` counts who holds a tensor: its object, its accumulator of gradients, its views, and whatever saved it
itself. A function that swaps an argument may so be refused by what an earlier call left behind, the graph of a result
that still lives. So the graph of such a function's results holds the arguments that eager's holds, itself or by a view
of them, and no others: as long as the nodes do that hold them there. What is saved for backwards may be the argument
itself, which holds it, or other tensors on its memory, which do not. Where it must hold an argument that it does not,
a *holder* is saved besides, a tensor without memory whose gradient the argument is; where it would hold one that
eager's does not, a detached alias is saved.

An argument that holds itself so, by its own history, would never end. If it does in eager it does here; if it would
only here, since one Function stands for several of eager's nodes, nothing holds it.

Functions that swap nothing save what is cheapest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.backward.kept import kept_by, objection_to_write
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import expected_version, has_packed, kept_though_written
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.ir.trace import PLACEHOLDER, Value
from aotcheck.autograd.record.steps import Arg
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.runtime.attachments import HowSaved


def hold_arguments(
    capture: Capture, stages: Sequence[Stage], saved: Sequence[Value], index: Mapping[Value, int], how: HowSaved
) -> None:
    """Let the Functions of ``stages`` hold what they are to hold: see Note [Arguments held].

    ``saved`` is what the forward gives for them, ``index`` which of that a value to be saved is, ``how`` how.
    """
    if capture.hooks:  # of the caller's, which pack whatever is saved
        return
    held = [held_by(capture, stage) for stage in stages]
    _leave_out_circles(capture, stages, held)
    for stage, wanted in zip(stages, held, strict=True):
        tied: dict[int, Arg] = {}
        for n, v in enumerate(stage.saved):
            x = _tied_by(capture, saved[index[v]], index[v], how)
            if x is not None and v not in stage.unwatched:
                tied[n] = x
        _settle(stage, wanted, tied)


def _leave_out_circles(capture: Capture, stages: Sequence[Stage], held: Sequence[dict[Arg, frozenset[Any]]]) -> None:
    """Take out of what is to be ``held`` by each of ``stages`` what would hold itself there and does not in eager."""
    histories = [(a, _torch.grad_fn_of(a.replica)) for a in capture.arguments]
    renewed = {Arg(a.index): node for a, node in histories if node not in (None, a.grad_fn)}
    made = {_torch.grad_fn_of(a.tensor): k for k, stage in enumerate(stages) for a in stage.attached}
    behind = {x: nodes_behind([node], set()) for x, node in renewed.items()}
    led_to = {x: [made[n] for n in nodes if n in made] for x, nodes in behind.items()}
    for x, first in led_to.items():
        met, todo = set[int](), [*first]
        while todo:
            k = todo.pop()
            if k not in met:
                met.add(k)
                todo += [made[n] for n in stages[k].ends if n in made]
                todo += [other for y in held[k].keys() & led_to.keys() for other in led_to[y]]
        for k in met:
            if x in held[k] and not behind[x] & held[k][x]:
                del held[k][x]


def hold_again(capture: Capture, stage: Stage, derived: Stage) -> None:
    """The same for the Function of a stage ``derived`` that attaches results of a backward of ``stage``.

    What nodes hold that the Functions of stages before stand for is held by those.
    """
    if not capture.record.swapped or capture.hooks:
        return
    before = {n for other in derived.before for nodes in other.behind() for n in nodes}
    known = {stage.saved[n]: x for x, (n, _) in stage.arguments.places.items() if n < len(stage.saved)}
    held = {x: nodes - before for x, nodes in held_by(capture, derived).items() if x in stage.arguments.places}
    tied = {n: x for n, v in enumerate(derived.saved) if (x := known.get(v)) is not None}
    _settle(derived, {x: nodes for x, nodes in held.items() if nodes}, tied)


def _settle(stage: Stage, held: Mapping[Arg, frozenset[Any]], tied: Mapping[int, Arg]) -> None:
    """Let the Function of ``stage`` hold the arguments ``held``; what it saves would hold those that are ``tied``."""
    found = stage.arguments
    places = {x: n for n, x in reversed([*tied.items()]) if x in held}
    found.holders = tuple([x for x in held if x not in places])
    found.loose = frozenset([n for n, x in tied.items() if x not in held])
    places.update({x: len(stage.saved) + n for n, x in enumerate(found.holders)})
    found.places = {x: (n, held[x]) for x, n in places.items()}
    own = [_torch.grad_fn_of(a.tensor) for a in stage.attached]
    found.own = tuple([frozenset([n]) & _holding(stage) for n in own])
    behind = list(map(frozenset, stage.behind()))
    found.behind = tuple([nodes & _holding(stage) for nodes in behind])
    met = frozenset[Any]().union(*behind)
    found.others = tuple([met & _holding(other) for other in stage.before])


def _holding(stage: Stage) -> frozenset[Any]:
    return frozenset[Any]().union(*[nodes for _, nodes in stage.arguments.places.values()])


def _tied_by(capture: Capture, v: Value, k: int, how: HowSaved) -> Arg | None:
    """The argument that is held by what is saved at place ``k``, of which the forward gives ``v``; None if none is."""
    if k in how.in_memory:
        return how.in_memory[k].argument
    if v.op is not PLACEHOLDER or k in how.moved or k in how.relaid:
        return None
    root = next((r for r in capture.roots if r.placeholder is v), None)
    if root is None or not isinstance(root.source, Arg) or root.inference:
        return None
    if k in how.by_views and _is_view(capture, root.replica):
        return Arg(-1)  # its base, that is
    return root.source


def _is_view(capture: Capture, t: Tensor) -> bool:
    return _torch.base_of(t) is not None or id(t) in capture.maker.kernels.stand_for_views


def held_by(capture: Capture, stage: Stage) -> dict[Arg, frozenset[Any]]:
    """The arguments that nodes of eager's between the tensors of ``stage`` and its ends hold, and which nodes."""
    plain = {id(a.replica): a for a in capture.arguments if type(a.replica) is Replica}
    candidates = [a.replica for a in plain.values()]
    bases = {k: a for k, a in plain.items() if k not in capture.maker.kernels.stand_for_views}
    found: dict[Arg, set[Any]] = {}
    nodes = {n: a.tensor for a, nodes in zip(stage.attached, stage.behind(), strict=True) for n in nodes}
    for node, near in nodes.items():
        for t in _kept_itself(capture, node, near, candidates):
            a = plain.get(id(t)) or bases.get(id(_torch.base_of(t)))
            if a is not None:
                found.setdefault(Arg(a.index), set()).add(node)
    return {x: frozenset(found[x]) for x in sorted(found, key=lambda x: x.index)}


def _kept_itself(capture: Capture, node: Any, near: Tensor, candidates: Sequence[Tensor]) -> Collection[Tensor]:
    kernels = capture.maker.kernels
    write = kernels.write_of(node) if _torch.is_write_through_view(node) else None
    if isinstance(write, WriteUnderGrad):
        return _kept_by_write(capture, node, write)
    try:
        return kept_by(capture, node, near)
    except RuntimeError:  # some of it was written since
        cut = [t for t in candidates if id(t) in kernels.detached]
        return () if has_packed(node) else kept_though_written(node, candidates, cut)


def _kept_by_write(capture: Capture, node: Any, write: WriteUnderGrad) -> Collection[Tensor]:
    """What the history of a write through a view keeps, but for what it wrote, which is a result to it."""
    others = write.operands[write.writes :]
    version = expected_version(objection_to_write(capture, node))
    if version is None:
        kept = kept_by(capture, node, write.operands[0])
        return [t for t in others if any(t is x for x in kept)]
    found = []
    for t in others:
        with _torch.as_if_written(t, version - _torch.version_of(t)):
            if expected_version(objection_to_write(capture, node)) != version:
                found.append(t)
    return found
