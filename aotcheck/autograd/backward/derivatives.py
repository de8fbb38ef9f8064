"""Backwards whose results have gradients themselves.

Note [Handles]
To attach the gradients, the tensors they lead to must be at hand in the backward. A leaf is held as it is; autograd
holds it anyhow. Of any other tensor only its place in the caller's graph is wanted, not its memory: a *bridge*, a
tensor without memory whose history is that of the target, stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.backward.holding import hold_again
from aotcheck.autograd.backward.stage import Stage, Target
from aotcheck.autograd.backward.stages import whole
from aotcheck.autograd.backward.tangents import Key, Trained, inputs_of, place_of, values_of
from aotcheck.autograd.backward.written_since import guard_derivative
from aotcheck.autograd.eager_graph.components import components, reached_leaves
from aotcheck.autograd.eager_graph.functions import edges_to
from aotcheck.autograd.eager_graph.regions import Cut, divide, find_cuts
from aotcheck.autograd.eager_graph.shared import shared_heads, sum_heads
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.graph import define
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Trace, Value, geometry_of
from aotcheck.autograd.partition.default import backward_values, read_by
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Result
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.replicas.windows import Replay, ReplayInTurn
from aotcheck.autograd.runtime import backward_source
from aotcheck.autograd.runtime.attachments import HELD, Application, Bringing, Counter, Keeper
from aotcheck.autograd.state.autocast import OFF
from aotcheck.autograd.state.global_state import without_autocast
from aotcheck.autograd.tensors.subclasses import Bundle, Wrapping, is_wrapper
from aotcheck.autograd.tracing.sandbox import BackwardTrace, at_versions

if TYPE_CHECKING:
    from aotcheck.autograd.backward.backwards import Backwards
    from aotcheck.autograd.effects.capture import Capture

aten = torch.ops.aten


def differentiable(backwards: Backwards, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
    """The backward whose results have gradients themselves."""
    traced = backwards.stages.trace_of(stage, key, trained)
    backwards.stages.live.refuse_in_derivative(traced)
    with at_versions(traced.versions):
        return _attaching(backwards, stage, key, trained, traced)


def _attaching(
    backwards: Backwards, stage: Stage, key: Key, trained: Trained, traced: BackwardTrace
) -> Callable[..., Any]:
    """The same as it was ``traced``, what it wrote being written."""
    capture, graphs, maker = backwards.capture, backwards.graphs, backwards.stages
    live = inputs_of([stage.tangent(part) for part in key])
    replicas, seeds = traced.gradients, traced.seeds
    # Eager may give a tangent itself for a gradient.
    places = [place_of(part) for part in key]
    same = {k: j for k, r in enumerate(replicas) for j, t in zip(places, seeds, strict=True) if r is t}
    earliest = {id(r): k for k, r in reversed([*enumerate(replicas)])}
    twins = {k: earliest[id(r)] for k, r in enumerate(replicas) if r is not None and k not in same}
    shown = _shown_under_no_grad(capture, replicas, dict(zip(places, seeds, strict=True)))
    given = same.keys() | shown.keys()
    replicas = [
        None if twins.get(k, k) != k else r if k in given else capture.backward.as_result(r)
        for k, r in enumerate(replicas)
    ]
    gradients = [None if r is None or k in given else maker.gradient(stage, key, r) for k, r in enumerate(replicas)]
    values = [None if isinstance(g, Bundle) else g for g in gradients]
    attached = [
        Attached(Result(k), r, r.device)
        for k, r in enumerate(replicas)
        if r is not None and r.requires_grad and k not in given
    ]
    distinct = {a.ref.index for a in attached if isinstance(a.ref, Result)}
    distinct |= {k for k, v in enumerate(values) if v is not None and v in live}
    wrapped: dict[int, tuple[Wrapping, list[str]]] = {}
    for k, g in enumerate(gradients):
        if isinstance(g, Bundle):
            first = len(values)
            wrapped[k] = g.wrapping, graphs.pick_leaves(stage, key, g, values)
            distinct |= set(range(first, len(values))) if k in distinct else set()
    views = [n for n, lasts in enumerate(trained[len(stage.attached) :]) if lasts] if trained else []
    targets = _next_targets(capture, stage, attached, seeds, views)
    cuts = _cuts(attached, targets)
    apart: list[Any] = []
    since = [*stage.since, *traced.versions]
    while True:
        heads, more = _stand_for_shared(capture, attached, targets, cuts, len(values), apart)
        groups, hung_on = _groups([*attached, *heads], targets, [*cuts, *more])
        stages = maker.stages_of(stage.level + 1, [*attached, *heads], groups, (stage, *stage.before), since)
        uneven = {n: None for s in stages for n in s.uneven if n not in apart}
        if not uneven or capture.together:
            break
        apart += uneven
    values += [None] * len(heads)
    if any(k < len(stage.targets) and k not in stage.led_to for s in stages for k in s.reached):
        raise UnsupportedError("second derivative", "by what the first derivative does not lead to")
    available = set(stage.saved) | set(live)
    at_hand = available | backward_values([*values, *traced.draws], available)
    for s in stages:
        read = read_by(s.wanted(), at_hand, capture.tracer.trace.values)
        # Not views of what is at hand: a later derivative may read that, or another view of it.
        read = [whole(v, at_hand) for v in [*read, *maker.kept_for_derivatives(s, at_hand)]]
        read += maker.beside(read, stage.saved)
        s.saved = list(dict.fromkeys(read))
        own = {k: r for k, r in enumerate(replicas) if r is not None and k not in given}
        guard_derivative(capture, s, dict(zip(places, seeds, strict=True)), own)
        hold_again(capture, stage, s)
    if traced.written:
        maker.live.refuse_reading([v for s in stages for v in s.saved], traced)
    results = _distinct(capture.tracer.trace, values, distinct, live)
    saved = list(dict.fromkeys(v for s in stages for v in s.saved))
    kept = [v for v in saved if v not in available]
    made = [*results, *kept]
    must = maker.live.saved_of(traced.written)
    changed: list[Value | None] = [w.after for w in traced.written]
    changed += values_of(maker.gradient(stage, key, b.gradient) for b in traced.brought)
    graph, used, windows = graphs.cut(stage, live, [*made, *changed], traced.draws, must)
    compiled = graphs.compile(stage, graph, used, len(live), windows)
    starts, flat = stage.starts(key), stage.is_flat(key)
    there = {stage.saved[k]: n for n, k in enumerate(used)}
    writes = maker.live.writes(traced, there, [starts[j] if flat else j for j in places], len(made))
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
            tuple(source[v] + ".detach()" * (n in s.arguments.loose) for n, v in enumerate(s.saved)),
            s.reached,
            any(x.shown or x.hidden for x in s.shared()) or s.meets_zeros or bool(s.gathers()),
            tuple(f"{HELD}[{stage.held.index(x)}]" for x in s.held),
            s.own,
            tuple(s.guards),
            _given_alone(s),
            s.entered,
            tuple(stage.arguments.places[x][0] for x in s.arguments.holders),
        )
        for s in stages
    ]
    w = backward_source.write_differentiable_backward(
        [*used, *unread], len(used), len(stage.saved), expected, stage.reached, applications,
        len(stage.targets), same, places, wrapped, flat, stage.own, views,
        {a.ref.index: (geometry_of(a.tensor), a.device) for a in heads if isinstance(a.ref, Result)}, hung_on, twins,
        stage.entered, stage.is_once, stage.lasting, shown, windows, writes,
        bringings(stage, traced, len(made) + len(changed)),
    )  # fmt: skip
    run = define(w, "run", "differentiable backward")
    # Its graph has the casts.
    w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
    return run


def _shown_under_no_grad(
    capture: Capture, replicas: Sequence[Tensor | None], seeds: Mapping[int, Tensor]
) -> dict[int, tuple[int, Callable[[Tensor], Any]]]:
    """Which gradients are views of a tangent that were made under no_grad: of which, by its place, and how.

    Such a view requires grad, but leads nowhere.
    """
    found: dict[int, tuple[int, Callable[[Tensor], Any]]] = {}
    for k, r in enumerate(replicas):
        if r is None or not r.requires_grad or _torch.leafness(r) is not True:
            continue
        base = _torch.base_of(r)
        place = next((j for j, t in seeds.items() if t is base and not is_wrapper(t)), None)
        turns: list[Replay] = []
        source: Tensor | None = r
        while place is not None and source is not base:
            made = capture.tracer.views.get(id(source))
            source = None if made is None else made.source
            if made is None:
                break
            turns.insert(0, made.replay)
        if place is not None and source is base:
            found[k] = place, ReplayInTurn(tuple(turns))
    return found


def _given_alone(stage: Stage) -> tuple[int, ...]:
    """Which results of a backward, of several that ``stage`` attaches, had a node of autograd's of their own."""
    if len(stage.attached) == 1:
        return ()
    nodes = [(_torch.grad_fn_of(a.tensor), a.ref) for a in stage.attached]
    return tuple([ref.index for node, ref in nodes if isinstance(ref, Result) and _torch.outputs_of(node) == 1])


def _next_targets(
    capture: Capture, stage: Stage, attached: Sequence[Attached], seeds: Sequence[Tensor], views: Sequence[int]
) -> list[Target]:
    """The targets of a backward of ``stage``, its tangents, its own results where gradients come by those, and those
    of its ``views`` that last.

    A cut that the stage does not hang on is its own result, which its gradients may be computed from: what lies
    behind that is the stage's too.
    """
    reached = reached_leaves([a.tensor for a in attached])
    known = [Target(t.tensor, ()) if t.is_cut and k not in stage.led_to else t for k, t in enumerate(stage.targets)]
    leaves = {id(t) for _, t in stage.views if _torch.leafness(t) is True}
    elsewhere = leaves | {id(t.tensor) for t in known if t.edges}  # held as a view is, or another target
    written = {id(v.replica) for v in capture.views if _torch.version_of(v.replica) != v.version}
    targets = []
    for t in [*known, *[Target(s, ()) for s in seeds]]:
        if id(t.tensor) in written and t.edges:  # it is for the history that it had, not for the one that it has
            targets.append(t)
            continue
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


def _cuts(attached: Sequence[Attached], targets: Sequence[Target]) -> list[Cut]:
    """Where some of ``attached`` hang on others of them."""
    tensors = [a.tensor for a in attached]
    if len(tensors) < 2 or any(is_wrapper(t) or is_sparse(t) for t in tensors):
        return []
    return find_cuts(tensors, tensors, _ends(targets))


def _stand_for_shared(
    capture: Capture,
    attached: Sequence[Attached],
    targets: Sequence[Target],
    cuts: Sequence[Cut],
    first: int,
    apart: Collection[Any],
) -> tuple[list[Attached], list[Cut]]:
    """What stands where gradients of several groups of ``attached`` are summed up, as results from the ``first`` on.

    And the cuts there. See Note [Where sums are made]; ``apart`` are nodes that are to be cut off as well.
    """
    tensors = [a.tensor for a in attached]
    if (len(tensors) < 2 and not apart) or any(is_wrapper(t) or is_sparse(t) for t in tensors):
        return [], []
    stop = _ends(targets) | {c.edge.node for c in cuts}
    made: list[Tensor] = []
    found: list[Cut] = []

    def cut_at(edges: Sequence[GradientEdge]) -> None:
        for edge in edges:
            there = [
                t for t in (*tensors, *made) if _torch.grad_fn_of(t) is edge.node and t.output_nr == edge.output_nr
            ]
            if not there:
                there.append(past(edge, attached[0].device, capture.maker.kernels))
                made.append(there[0])
            if not any(c.tensor is there[0] for c in found):
                found.append(Cut(there[0], edge))

    if apart:
        cut_at(edges_to(tensors, stop, apart))
        cut_at(shared_heads([*tensors, *made], stop | {c.edge.node for c in found}))
    cut_at(sum_heads([*tensors, *made], stop | {c.edge.node for c in found}))
    return [Attached(Result(first + n), t, t.device) for n, t in enumerate(made)], found


def _groups(
    attached: Sequence[Attached], targets: Sequence[Target], cuts: Sequence[Cut]
) -> tuple[list[tuple[Sequence[int], Sequence[Target]]], list[int]]:
    """The places of what is attached together, each with all targets as it sees them, and which results ``cuts`` are.

    What others hang on comes first, and is a target after all others.
    """
    tensors = [a.tensor for a in attached]
    if not cuts:
        return [(places, targets) for places in components(tensors, _ends(targets))], []
    divided, kept = divide(tensors, cuts, _ends(targets), ())
    place = {id(t): k for k, t in enumerate(tensors)}
    owner = {k: n for n, group in enumerate(divided) for k in group.attached}
    order: dict[int, None] = {}

    def visit(n: int) -> None:
        for k in divided[n].cuts:
            if owner[place[id(kept[k].tensor)]] != n:
                visit(owner[place[id(kept[k].tensor)]])
        order.setdefault(n)

    for n in range(len(divided)):
        visit(n)
    found: list[tuple[Sequence[int], Sequence[Target]]] = []
    for group in [divided[n] for n in order]:
        seen = [Target(c.tensor, (c.edge,) if k in group.cuts else (), is_cut=True) for k, c in enumerate(kept)]
        found.append((group.attached, [*targets, *seen]))
    return found, [a.ref.index for c in kept if isinstance((a := attached[place[id(c.tensor)]]).ref, Result)]


def _ends(targets: Sequence[Target]) -> set[Any]:
    return {e.node for t in targets for e in t.edges}


def _arriving(t: Target, found: Sequence[GradientEdge]) -> list[GradientEdge]:
    """Where gradients of ``t`` arrive, known from where they leave the graph or ``found`` there."""
    if not t.is_cut or not t.edges or _torch.base_of(t.tensor) is None:
        return list(found)
    # Autograd makes a view's history again where it is looked for while versions are moved (``_kept_by_opaque``).
    node = _torch.grad_fn_of(t.tensor)  # of an odd view that was written it says none
    return list(found) if node is None else [*found, GradientEdge(node, t.tensor.output_nr)]


def _distinct(
    trace: Trace, values: Sequence[Value | None], attached: set[int], tangents: Sequence[Value]
) -> list[Value | None]:
    """The results of a backward; those ``attached``, and what shows a tangent, are neither an input nor another result.

    What shows a tangent lies in the memory of that.
    """
    seen: set[Value] = set()
    results: list[Value | None] = []
    for k, v in enumerate(values):
        if v is not None and k in attached and (v in seen or v.op in (PLACEHOLDER, CONSTANT) or v.memory is not None):
            copy = trace.call(aten.alias.default if v in tangents else aten.clone.default, (v,))
            copy.geometry, copy.device = v.geometry, v.device
            v = copy
        if v is not None:
            seen.add(v)
        results.append(v)
    return results


def bringings(stage: Stage, traced: BackwardTrace, end: int) -> list[Bringing]:
    """What the runtime brings to leaves after a backward whose graph gives that as its last results before ``end``."""
    numbered = enumerate(traced.brought, end - len(traced.brought))
    return [Bringing(stage.handle_of(b.target), n, b.retained) for n, b in numbered]


def refuse_writes(traced: BackwardTrace) -> None:
    """Raise where the derivative of a backward writes or reshapes what was there before."""
    if traced.written or traced.reshaped:
        raise UnsupportedError("mutation in the backward", "by the derivative of a backward")
