"""Backwards whose results have gradients themselves.

Note [Handles]
To attach the gradients, the tensors they lead to must be at hand in the backward. A leaf is held as it is; autograd
holds it anyhow. Of any other tensor only its place in the caller's graph is wanted, not its memory: a *bridge*, a
tensor without memory whose history is that of the target, stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.backward.stage import Stage, Target
from aotcheck.autograd.backward.stages import whole
from aotcheck.autograd.backward.tangents import Key, Trained, inputs_of, place_of
from aotcheck.autograd.backward.written_since import guard_derivative
from aotcheck.autograd.eager_graph.components import components, reached_leaves
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.graph import define
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Trace, Value
from aotcheck.autograd.partition.default import backward_values, read_by
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Result
from aotcheck.autograd.runtime import backward_source
from aotcheck.autograd.runtime.attachments import HELD, Application, Counter, Keeper
from aotcheck.autograd.state.autocast import OFF
from aotcheck.autograd.state.global_state import without_autocast
from aotcheck.autograd.tensors.subclasses import Bundle, Wrapping
from aotcheck.autograd.tracing.sandbox import BackwardTrace

if TYPE_CHECKING:
    from aotcheck.autograd.backward.backwards import Backwards

aten = torch.ops.aten


def differentiable(backwards: Backwards, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
    """The backward whose results have gradients themselves."""
    capture, graphs, maker = backwards.capture, backwards.graphs, backwards.stages
    live = inputs_of([stage.tangent(part) for part in key])
    traced = maker.trace_of(stage, key, trained)
    refuse_writes(traced)
    replicas, seeds = traced.gradients, traced.seeds
    # Eager may give a tangent itself for a gradient.
    places = [place_of(part) for part in key]
    same = {k: j for k, r in enumerate(replicas) for j, t in zip(places, seeds, strict=True) if r is t}
    replicas = [r if k in same else capture.backward.as_result(r) for k, r in enumerate(replicas)]
    gradients = [None if r is None or k in same else maker.gradient(stage, key, r) for k, r in enumerate(replicas)]
    values = [None if isinstance(g, Bundle) else g for g in gradients]
    attached = [
        Attached(Result(k), r, r.device)
        for k, r in enumerate(replicas)
        if r is not None and r.requires_grad and k not in same
    ]
    distinct = {a.ref.index for a in attached if isinstance(a.ref, Result)}
    wrapped: dict[int, tuple[Wrapping, list[str]]] = {}
    for k, g in enumerate(gradients):
        if isinstance(g, Bundle):
            first = len(values)
            wrapped[k] = g.wrapping, graphs.pick_leaves(stage, key, g, values)
            distinct |= set(range(first, len(values))) if k in distinct else set()
    views = [n for n, lasts in enumerate(trained[len(stage.attached) :]) if lasts] if trained else []
    targets = _next_targets(stage, attached, seeds, views)
    groups = components([a.tensor for a in attached], [e.node for t in targets for e in t.edges])
    stages = maker.stages_of(stage.level + 1, attached, [(g, targets) for g in groups], (stage, *stage.before))
    if any(k < len(stage.targets) and k not in stage.reached for s in stages for k in s.reached):
        raise UnsupportedError("second derivative", "by what the first derivative does not lead to")
    available = set(stage.saved) | set(live)
    at_hand = available | backward_values([*values, *traced.draws], available)
    for s in stages:
        read = read_by(s.wanted(), at_hand, capture.tracer.trace.values)
        # Not views of what is at hand: a later derivative may read that, or another view of it.
        read = [whole(v, at_hand) for v in [*read, *maker.kept_for_derivatives(s, at_hand)]]
        read += maker.beside(read, stage.saved)
        s.saved = list(dict.fromkeys(read))
        given = {k: r for k, r in enumerate(replicas) if r is not None and k not in same}
        guard_derivative(capture, s, dict(zip(places, seeds, strict=True)), given)
    results = _distinct(capture.tracer.trace, values, distinct)
    saved = list(dict.fromkeys(v for s in stages for v in s.saved))
    kept = [v for v in saved if v not in available]
    graph, used, windows = graphs.cut(stage, live, [*results, *kept], traced.draws)
    if windows:
        raise UnsupportedError("mutation in the backward", "of a backward that is differentiated itself")
    compiled = graphs.compile(stage, graph, used, len(live))
    # What crosses to the next level is saved already, came as a tangent, or is one more result.
    source: dict[Value, str] = {v: f"s[{used.index(k)}]" for k, v in enumerate(stage.saved) if k in used}
    expected = stage.expected(key)
    source.update({t: f"t{n}" for (n, _), t in zip(expected, live, strict=True)})
    # What is a result as well is saved as an alias: nobody but its own node can unpack what was saved as that.
    alias = [".detach()" if v in results else "" for v in kept]
    source.update({v: f"d[{len(results) + n}]{alias[n]}" for n, v in enumerate(kept)})
    counters = [g.watched for s in stages for g in s.guards if isinstance(g.watched, Counter)]
    watched = {c.index for c in counters if c.keeper is Keeper.SAVED}
    watched.update(stage.checked_by_backward)
    unread = [k for k, v in enumerate(stage.saved) if (v in saved or k in watched) and k not in used]
    source.update({stage.saved[k]: f"s[{len(used) + n}]" for n, k in enumerate(unread)})
    applications = [
        Application(
            backwards.function(s),
            tuple(a.ref.index for a in s.attached if isinstance(a.ref, Result)),
            tuple(source[v] for v in s.saved),
            s.reached,
            any(x.shown or x.hidden for x in s.shared()),
            tuple(f"{HELD}[{stage.held.index(x)}]" for x in s.held),
            s.own,
            tuple(s.guards),
        )
        for s in stages
    ]
    w = backward_source.write_differentiable_backward(
        [*used, *unread], len(used), len(stage.saved), expected, stage.reached, applications,
        len(stage.targets), same, places, wrapped, stage.is_flat(key), stage.own, views,
    )  # fmt: skip
    run = define(w, "run", "differentiable backward")
    # Its graph has the casts.
    w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
    return run


def _next_targets(
    stage: Stage, attached: Sequence[Attached], seeds: Sequence[Tensor], views: Sequence[int]
) -> list[Target]:
    """The targets of a backward of ``stage``, its tangents, its own results where gradients come by those, and those
    of its ``views`` that last.

    A cut that the stage does not hang on is its own result, which its gradients may be computed from: what lies
    behind that is the stage's too.
    """
    reached = reached_leaves([a.tensor for a in attached])
    known = [Target(t.tensor, ()) if t.is_cut and k not in stage.reached else t for k, t in enumerate(stage.targets)]
    leaves = {id(t) for _, t in stage.views if _torch.leafness(t) is True}
    elsewhere = leaves | {id(t.tensor) for t in known if t.edges}  # held as a view is, or another target
    targets = []
    for t in [*known, *[Target(s, ()) for s in seeds]]:
        if id(t.tensor) in (elsewhere if not t.edges else leaves):
            targets.append(Target(t.tensor, ()))
            continue
        more = [e for e in _arriving(t, reached.get(id(t.tensor), ())) if e.node not in {x.node for x in t.edges}]
        targets.append(Target(t.tensor, (*t.edges, *more), t.is_cut))
    own = [stage.attached[j].tensor for j in stage.own] + [stage.views[n][1] for n in views]
    return targets + [
        Target(t, tuple(reached.get(id(t), ())))
        if id(t) in leaves
        else Target(t, (GradientEdge(_torch.grad_fn_of(t), t.output_nr),), is_cut=True)
        for t in own
    ]


def _arriving(t: Target, found: Sequence[GradientEdge]) -> list[GradientEdge]:
    """Where gradients of ``t`` arrive, known from where they leave the graph or ``found`` there."""
    if not t.is_cut or not t.edges or _torch.base_of(t.tensor) is None:
        return list(found)
    # Autograd makes a view's history again where it is looked for while versions are moved (``_kept_by_opaque``).
    node = _torch.grad_fn_of(t.tensor)  # of an odd view that was written it says none
    return list(found) if node is None else [*found, GradientEdge(node, t.tensor.output_nr)]


def _distinct(trace: Trace, values: Sequence[Value | None], attached: set[int]) -> list[Value | None]:
    """The results of a backward; what is attached is neither an input of it nor another result."""
    seen: set[Value] = set()
    results: list[Value | None] = []
    for k, v in enumerate(values):
        if v is not None and k in attached and (v in seen or v.op in (PLACEHOLDER, CONSTANT) or v.memory is not None):
            copy = trace.call(aten.clone.default, (v,))
            copy.geometry, copy.device = v.geometry, v.device
            v = copy
        if v is not None:
            seen.add(v)
        results.append(v)
    return results


def refuse_writes(traced: BackwardTrace) -> None:
    """Raise where a backward that is differentiated itself writes or reshapes what was there before."""
    if traced.written or traced.reshaped:
        raise UnsupportedError("mutation in the backward", "of a backward that is differentiated itself")
