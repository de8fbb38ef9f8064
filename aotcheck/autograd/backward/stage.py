"""What one autograd Function attaches, as a value.

Note [Stages]
A stage is what one autograd Function attaches: tensors, what is saved for them, and the targets that their gradients go
to. The first stages attach the results of a call. A backward under ``create_graph`` gives gradients that are themselves
results: they are traced with their own graph, divided and attached by stages of the next level, whose targets are those
of the stage before and, after them, its tangents. So a second derivative is the first derivative of a backward, a third
that of a second, and what each costs in memory is held by the graph of those who asked for it.

Note [Shared nodes]
The second derivative comes by nodes of the first graph too: the derivative of ``tanh`` is computed from its result, and
that leads to the node of the forward. Eager's backward of a gradient so needs what that node saved, and frees it. The
Function of such a stage holds the contexts of those before, to raise if they are freed and to free them.

Note [Results of their own gradients]
What is saved may be the result itself: the derivative of ``tanh`` is computed from it. Then a second derivative comes
to that result, hooks and all, and goes on from there. So it is a target of the stages of the next level. To hold it
would be a circle that nobody frees, but torch knows how to save a Function's own result, and hooks on what is saved
keep its memory out of it. Where another tensor took over the result's history, its node is where hooks are.

What an op that writes a view keeps is the view, with the history that it has then, as long as that lasts. If the view
survives the call, second derivatives come to it and go on from there to its base. That history is autograd's, not of a
Function, so the view is noted weakly. Once it has ended, or was written again, backwards are traced without it.

A leaf is kept as the object that it is. Told to require grad only after that, it is no target of a first derivative,
but of the second. So it is noted like such a view, and held, as eager holds it.

Note [Histories from before a call]
What an op that writes a view keeps may have the history that an argument, a view, had when the call began. The history
of the write leads to the base, so no first derivative comes by the view's own node in the caller's graph, but second
derivatives do, and meet the hooks there. Such views are no targets of first derivatives, but are held like them.

Note [Leaves aside]
A leaf made inside that nobody has (a weight made for the moment, a view made under no_grad) is no target. But in eager
gradients go there: backwards of custom Functions and hooks on the way run, and may write, draw or raise. So where there
are any on the way, backwards are traced to such leaves too; what arrives there is dropped.

Note [Kept in attributes]
A custom Function may keep tensors in attributes of its context. No backward frees those, so if nothing else is kept
behind the tensors of a stage, eager's backward may come any number of times. Then what the stage saves is kept in an
attribute too, where writes are not looked for and hooks on saved tensors do not come, as in eager.

A backward that is asked for certain gradients (``inputs=``) leaves out what does not lead to those, and with it what
that does besides. A stage is *selective* if that makes a difference: backwards then look what they are asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.backward.tangents import (
    Gradient,
    Key,
    Tangent,
    Trained,
    bundle,
    described,
    fits,
    inputs_of,
    laziness,
    place_of,
    placeholder,
    values_of,
    wrapping_without_grad,
)
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import holds_saved, kept_results, nodes_behind_output
from aotcheck.autograd.eager_graph.ways import arrivals, covering
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse, sparse_geometry_of
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Arg, Ref
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.runtime.attachments import Counter, Gathered, Guard, Shared
from aotcheck.autograd.state.autocast import OFF, Autocast
from aotcheck.autograd.tensors.subclasses import Bundle, coerced, is_jagged, is_wrapper, leaves_of
from aotcheck.autograd.tracing.arriving_zeros import Arrival, WithoutMemory
from aotcheck.autograd.tracing.sandbox import BackwardTrace


@dataclasses.dataclass(frozen=True)
class Target:
    """What gradients go to: a replica, and where in autograd's graph they arrive."""

    tensor: Tensor
    edges: tuple[GradientEdge, ...]
    is_cut: bool = False  # gradients go no further from here, as they would in the trace: see Note [Cuts]


@dataclasses.dataclass
class HeldArguments:
    """The arguments that a stage's graph holds: see Note [Arguments held].

    ``places`` says by which of what is saved the Function does so, and for which nodes of eager's. For ``holders``
    something is saved besides; ``loose`` are places of what is saved of arguments that it is not to hold. Of such nodes
    there are ``own`` ones of each tensor, those ``behind`` it, and ``others``, of each stage before.
    """

    places: Mapping[Arg, tuple[int, frozenset[Any]]] = dataclasses.field(default_factory=dict)
    holders: tuple[Arg, ...] = ()
    loose: frozenset[int] = frozenset()
    own: tuple[frozenset[Any], ...] = ()
    behind: tuple[frozenset[Any], ...] = ()
    others: tuple[frozenset[Any], ...] = ()


@dataclasses.dataclass
class Stage:
    """Tensors that are backpropagated together: see Note [Stages] and Note [Components].

    ``places`` are those of its tensors among everything attached with them. ``targets`` are all there are,
    ``reached`` those that autograd's graph leads to from the tensors: a backward must not reach the others' graphs, let
    alone free them. ``before`` are the stages of lower levels of whose backwards these tensors are results, the nearest
    first. ``own`` are those of its tensors that gradients of their own gradients come by, ``views`` other tensors that
    they come by. ``entered`` are views of arguments among the targets that only derivatives of its backwards may lead
    to, see Note [Histories from before a call], and targets of Note [Backwards that a backward calls]. ``beyond`` is
    what only derivatives of its backwards need. ``asks`` are nodes whose formulas depend on data, ``answers`` which of
    those it is: see Note [Formulas for data]. ``aside`` and ``selective``: see Note [Leaves aside].
    """

    level: int
    places: tuple[int, ...]
    attached: tuple[Attached, ...]
    tangents: tuple[Tangent, ...]
    targets: tuple[Target, ...]
    saved: list[Value]
    reached: tuple[int, ...]
    before: tuple[Stage, ...] = ()
    guards: list[Guard] = dataclasses.field(default_factory=list)
    counters: list[tuple[Tensor, Counter]] = dataclasses.field(default_factory=list)  # of what it keeps
    checked: list[tuple[int, ...]] = dataclasses.field(
        default_factory=list
    )  # for each tensor: see Note [Written since]
    unwatched: set[Value] = dataclasses.field(default_factory=set)  # what is saved of memory that eager does not watch
    kept: list[list[Tensor] | None] | None = None  # what eager's graph keeps: see ``kept_behind``
    gradients: dict[Key, list[Gradient]] = dataclasses.field(default_factory=dict)
    traces: dict[Key, BackwardTrace] = dataclasses.field(default_factory=dict)
    backwards: dict[tuple[Key, Trained], Callable[..., Any]] = dataclasses.field(default_factory=dict)
    odd: dict[Any, Tangent] = dataclasses.field(default_factory=dict)  # tangents unlike their results
    held: list[Arg] = dataclasses.field(default_factory=list)  # arguments that gradients hold
    sealed: bool = False  # whether ``held`` may still grow
    once: tuple[int, ...] = ()  # those of its tensors from which a second backward raises, once it is sealed
    lasting: bool = False  # whether what is saved outlives backwards, once it is sealed: see Note [Kept in attributes]
    own: tuple[int, ...] = ()
    idle: frozenset[int] = frozenset()  # those of its tensors that no first derivative comes by
    views: tuple[tuple[Ref, Tensor], ...] = ()
    entered: tuple[int, ...] = ()
    beyond: Sequence[Value] = ()
    asks: tuple[Any, ...] = ()
    answers: Mapping[Any, bool] = dataclasses.field(default_factory=dict)
    ask: Callable[[Any], tuple[bool, ...]] | None = None  # of a context, for each of ``asks``
    autocast: Autocast = OFF  # what its backwards are traced for
    aside: tuple[GradientEdge, ...] = ()
    selective: bool = False
    cover: tuple[int, ...] | None = None  # see ``cover_of``, where it was looked for
    asked: frozenset[int] | None = None  # of ``reached``, those that its backwards are traced for; None: all
    custom: bool = True  # whether there may be custom Functions behind them
    told: frozenset[int] = frozenset()  # those of its tensors that they come by without a gradient
    arguments: HeldArguments = dataclasses.field(default_factory=HeldArguments)  # its variants' too
    uneven: Sequence[Any] = ()  # nodes that are to be cut off: see Note [Functions cut off]
    since: tuple[tuple[Tensor, int], ...] = ()  # versions: see Note [Derivatives of backwards that write]
    zeros: tuple[Arrival, ...] = ()  # that arrive at nodes behind them too
    meets_zeros: bool = False  # whether such may arrive at nodes of earlier stages
    meets_empty: bool = True  # whether there may be tensors without elements among its targets or tangents
    left: frozenset[GradientEdge] = frozenset()  # where zeros go no further
    # For each key what arrives at nodes of each stage of ``before``, and of any: see Note [Zeros that arrive]
    arriving: dict[Key, tuple[tuple[Arrival, ...], ...]] = dataclasses.field(default_factory=dict)
    variants: dict[Any, Stage] = dataclasses.field(default_factory=dict)
    _behind: tuple[Any, list[list[Any]]] | None = None  # what is found of autograd's graph, and what it was found for
    _holding: list[list[Any]] | None = None

    def under(self, autocast: Autocast) -> Stage:
        """The stage itself, or where autocast is on a variant with backwards of its own."""
        if autocast == OFF:
            return self
        found = self.variants.get(autocast)
        return found or self.variants.setdefault(autocast, self._variant(autocast=autocast))

    def only(self, asked: frozenset[int]) -> Stage:
        """A variant whose backwards give no gradients but those of the targets ``asked``, and lead nowhere else."""
        found = self.variants.get(asked)
        found = found or self.variants.setdefault(asked, self._variant(asked=asked, aside=(), selective=False))
        found.saved, found.sealed, found.lasting = self.saved, self.sealed, self.lasting  # known after backwards
        return found

    def partly(self, asked: frozenset[int]) -> Stage:
        """The same where it was looked at before what eager keeps on the way: see Note [Gradients asked for]."""
        found = self.variants.get(("partly", asked))
        if found is None:
            changes = {"asked": asked, "aside": (), "selective": False, "checked": []}
            found = self.variants[("partly", asked)] = self._variant(**changes)
        return found

    def also_from(self, told: frozenset[int]) -> Stage:
        """A variant whose backwards begin at the tensors ``told`` too, without a gradient."""
        found = self.variants.get(("told", told))
        return found or self.variants.setdefault(("told", told), self._variant(told=told))

    def also_with(self, zeros: tuple[Arrival, ...]) -> Stage:
        """A variant of whose nodes some are given ``zeros`` too: see Note [Zeros that arrive]."""
        found = self.variants.get(zeros)
        return found or self.variants.setdefault(zeros, self._variant(zeros=zeros))

    def without_arriving(self, key: Key) -> Stage:
        """A variant whose backwards leave the zeros that arrive where they do; itself if it does not find any more."""
        left = self.left.union(a.edge for arrivals in self.arriving.get(key, ())[:-1] for a in arrivals)
        if left == self.left:
            return self
        found = self.variants.get(left)
        found = found or self.variants.setdefault(left, self._variant(left=left))
        found.saved, found.sealed, found.lasting = self.saved, self.sealed, self.lasting
        return found

    def answered(self, answers: tuple[bool, ...]) -> Stage:
        """The variant for data of which this is so."""
        found = self.variants.get(answers)
        if found is None:
            known = dict(zip(self.asks, answers, strict=True))
            found = self.variants[answers] = self._variant(asks=(), answers=known)
        return found

    def _variant(self, **changes: Any) -> Stage:
        return dataclasses.replace(self, gradients={}, traces={}, backwards={}, arriving={}, variants={}, **changes)

    def handle_of(self, target: int) -> int:
        """Which of the handles that contexts have is that of ``target``.

        Raises:
            UnsupportedError: none is.
        """
        held = (*self.reached, *self.entered)
        if target not in held:
            raise UnsupportedError("backward inside", "one that only some of a call's backwards call")
        return held.index(target)

    def note_brought(self) -> None:
        """Let contexts have handles of what backwards inside backwards brought gradients to."""
        stages = [self]
        for s in stages:
            stages += s.variants.values()
        found = sorted({b.target for s in stages for traced in s.traces.values() for b in traced.brought})
        more = tuple([k for k in found if k not in self.led_to])
        for s in stages if more else ():
            s.entered += more

    @property
    def traced_for(self) -> tuple[int, ...]:
        """The targets whose gradients backwards give."""
        return tuple(k for k in self.reached if self.asked is None or k in self.asked)

    @property
    def led_to(self) -> frozenset[int]:
        """The targets that derivatives of its backwards may lead to."""
        return frozenset((*self.reached, *self.entered))

    @property
    def checked_by_backward(self) -> tuple[int, ...]:
        """What the backward of a single tensor is to unpack even if it does not read it."""
        return self.checked[0] if len(self.attached) == 1 and self.checked else ()

    @property
    def ends(self) -> list[Any]:
        """The nodes of autograd at which the stage's own graph ends."""
        return [e.node for k in self.reached for e in self.targets[k].edges]

    def tangent(self, part: Any) -> Tangent:
        """The tangent that a part of a key stands for."""
        return self.tangents[part] if type(part) is int else self.odd[part]

    @property
    def of_wrappers(self) -> bool:
        """Whether a result is a wrapper."""
        return any(isinstance(t, Bundle) for t in self.tangents)

    @property
    def of_other_kinds(self) -> bool:
        """Whether a result is a wrapper or sparse."""
        return any(type(t) is not Value or t.sparse is not None for t in self.tangents)

    @property
    def leads_to_wrappers(self) -> bool:
        """Whether a target is a wrapper."""
        return any(is_wrapper(self.targets[k].tensor) for k in self.reached)

    def gathers(self) -> tuple[Gathered, ...]:
        """What is to run once for all gradients behind each tensor: see Note [Functions for all gradients]."""
        behind: list[list[Any]] | None = None
        found: dict[tuple[int | None, tuple[int, ...]], list[int]] = {}
        met: set[Any] = set()
        # The earliest has what gradients come by that later ones do too.
        for number, x in [*reversed([*enumerate(self.before)]), (None, self)]:
            nodes = {n: k for k, n in enumerate(x.uneven) if n not in met}
            met.update(nodes)
            behind = self.behind() if nodes and behind is None else behind
            for place, there in enumerate(behind or () if nodes else ()):
                if passed := tuple(sorted(nodes[n] for n in there if n in nodes)):
                    found.setdefault((number, passed), []).append(place)
        return tuple(Gathered(number, passed, tuple(places)) for (number, passed), places in found.items())

    def leads(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the targets, by their places among ``reached``, to which it leads in other groups; () if none
        does: see Note [Undefined gradients].
        """
        if not any(self.targets[k].is_cut for k in self.reached):
            return ()
        cuts = [
            (n, {e.node for e in self.targets[k].edges}) for n, k in enumerate(self.reached) if self.targets[k].is_cut
        ]
        starts = [_torch.grad_fn_of(a.tensor) for a in self.attached]
        behind = [nodes_behind([n for n, _ in s.next_functions], set(self.ends)) if s else set() for s in starts]
        found = tuple(tuple(n for n, there in cuts if there & nodes) for nodes in behind)
        return found if any(found) else ()

    def minds(self) -> tuple[int, ...]:
        """The tensors behind which a custom Function may give gradients though it is given none."""
        if not self.custom:
            return ()
        behind = self.behind()
        custom = torch.autograd.function.BackwardCFunction
        return tuple(j for j, nodes in enumerate(behind) if any(isinstance(n, custom) for n in nodes))

    def mates(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor those that the same op gave; () if no op gave several."""
        if len(self.attached) == 1:
            return ()
        nodes = [_torch.grad_fn_of(a.tensor) for a in self.attached]
        if len(set(nodes)) == len(nodes):
            return ()
        return tuple(tuple(k for k, n in enumerate(nodes) if n is node) for node in nodes)

    def behind(self) -> list[list[Any]]:
        """For each tensor the nodes between it and the stage's ends, its own first."""
        asked = (self.reached, [_torch.grad_fn_of(a.tensor) for a in self.attached])
        if self._behind is None or self._behind[0] != asked:
            ends = self.ends
            self._behind = asked, [nodes_behind_output(a.tensor, ends) for a in self.attached]
            self._holding = None
        return self._behind[1]

    def holding(self) -> list[list[Any]]:
        """Those of them that keep what their first backward frees."""
        behind = self.behind()
        if self._holding is None:
            attached = zip(behind, self.attached, strict=True)
            self._holding = [[n for n in nodes if holds_saved(n, a.tensor)] for nodes, a in attached]
        return self._holding

    def look_again(self) -> None:
        """It is known by now which custom Functions ask for what they saved."""
        self._holding = None

    @property
    def is_once(self) -> bool:
        """Whether it attaches a single tensor, of which a second backward raises by asking for what is saved."""
        return len(self.attached) == 1 and bool(self.once) and self.asked is None

    def freeing_nodes(self) -> set[Any]:
        """All of these."""
        return {n for nodes in self.holding() for n in nodes}

    def arrivals(self) -> Mapping[Any, int]:
        """At which of the targets reached, by place, gradients arrive from which of the stage's nodes."""
        starts = [_torch.grad_fn_of(a.tensor) for a in self.attached]
        return arrivals(starts, [self.targets[k].edges for k in self.reached])

    def cover_of(self) -> tuple[int, ...]:
        """Few of the targets reached, by place, by one of which everything goes that keeps something.

        () if all of that leads to all of them: then a backward leaves none of it out.
        """
        if self.cover is None:
            holding = self.holding() if len(self.reached) > 1 else ()
            found = self.arrivals() if any(holding) else {}
            self.cover = covering([found[n] for nodes in holding for n in nodes], len(self.reached)) if found else ()
        return self.cover

    def hidden_nodes(self, met: set[Any]) -> set[Any]:
        """Those of the nodes ``met`` that the histories of writes through views hide: see Note [Views that end]."""
        shown = {n for nodes in self.behind() for n in nodes}
        writes = [_torch.sequence_number(n) for n in shown if _torch.is_write_through_view(n)]
        earlier = {n for n in met - shown if writes and _torch.sequence_number(n) < max(writes)}
        return {n for n in earlier if _torch.is_opaque(n) or kept_results(n, self.attached[0].tensor)}

    def shared(self) -> list[Shared]:
        """For each stage of ``before`` the own tensors whose backward comes by nodes of that stage, and frees them.

        See Note [Shared nodes].
        """
        if not self.before:
            return []
        behind = list(map(set, self.behind()))
        found = []
        for other in self.before:
            theirs = other.freeing_nodes()
            hidden = other.hidden_nodes(set().union(*behind))
            shown = [j for j, nodes in enumerate(behind) if nodes & theirs]
            found.append(Shared(tuple(shown), tuple([j for j, nodes in enumerate(behind) if nodes & hidden])))
        return found

    def watched(self, first: Sequence[Stage]) -> list[Any]:
        """The nodes of stages ``before``, and of the ``first`` ones, at which it is to be noted what zeros arrive.

        See Note [Zeros that arrive].
        """
        if not self.before or not any(x.of_other_kinds or x.leads_to_wrappers for x in (*self.before, *first)):
            return []
        theirs = {n for other in (*self.before, *first) for nodes in other.behind() for n in nodes}
        ends = set(self.ends)
        return list({n: None for nodes in self.behind() for n in nodes if n in theirs and n not in ends})

    def note_arriving(self, key: Key, zeros: Sequence[Arrival]) -> None:
        """Note of ``zeros`` those that arrive at nodes of each stage of ``before``, and then all."""
        theirs = [{n for nodes in other.behind() for n in nodes} for other in self.before]
        found = [tuple([a for a in zeros if a.edge.node in nodes]) for nodes in theirs]
        self.arriving[key] = (*found, tuple(zeros))

    def zeros_from(self, key: Key) -> tuple[Arrival, ...]:
        """Those of ``zeros`` that arrive where gradients come by from tangents ``key``."""
        if not self.zeros:
            return ()
        met = {n for part in key for n in self.behind()[place_of(part)]}
        return tuple([a for a in self.zeros if a.edge.node in met])

    def wanted(self) -> list[Value | None]:
        """Everything that the backwards traced so far compute, and what their derivatives need besides."""
        found = values_of(g for gradients in self.gradients.values() for g in gradients)
        found += self.beyond
        for traced in self.traces.values():
            found += [*traced.draws, *[w.after for w in traced.written], *values_of(b.read for b in traced.brought)]
        for variant in self.variants.values():
            found += variant.wanted() if variant.asked is not None or variant.left else []
        return found

    @property
    def cut_nodes(self) -> list[Any]:
        """The nodes of the cuts that the stage hangs on."""
        return [e.node for k in self.reached if self.targets[k].is_cut for e in self.targets[k].edges]

    # -- what a backward is called with

    def part(self, j: int, t: Tensor) -> tuple[Any, Tensor]:
        """The part of a backward's key that the tangent ``t`` of result ``j`` is, and the tangent as it is to be."""
        if _torch.is_without_memory(t):
            zeros = WithoutMemory.like(t)
            self.odd.setdefault((j, zeros), zeros)
            return (j, zeros), t
        expected = self.tangents[j]
        wanted = expected.wrapping if isinstance(expected, Bundle) else None
        found = wrapping_without_grad(t)
        if fits(found, wanted) and self._lies_as_expected(j, t):
            return j, t
        changed = coerced(t, wanted)
        if changed is not None and fits(wrapping_without_grad(changed), wanted) and self._lies_as_expected(j, changed):
            return j, changed
        leaves, sparse = leaves_of(t), sparse_geometry_of(t) if is_sparse(t) else None
        geometries = tuple([(sparse or geometry_of(x), x.device) for x in leaves])
        part = (j, None if found is None else found.key, geometries)
        if part not in self.odd:
            if found is None:
                self.odd[part] = placeholder(sparse or geometry_of(t), t.device)
            else:
                if is_jagged(t):
                    raise UnsupportedError("tangent of another type", described(t))
                self.odd[part] = bundle(found, leaves, jagged=False)
            for number, value in enumerate(inputs_of([self.odd[part]])):
                value.name = f"odd_tangents_{len(self.odd)}_{number + 1}"
        return part, t

    @property
    def minds_strides(self) -> bool:
        """Whether how a tangent lies may show: a gradient or a tangent has no elements.

        Its strides are what the first shows, and what eager's formulas for the second may refuse, even those that a
        graph leaves out because no gradient is computed from what they give.
        """
        if not self.meets_empty:
            return False
        if any(type(t) is Value and t.geometry is not None and 0 in t.geometry.shape for t in self.tangents):
            return True
        plain = [t for t in map(self.targets.__getitem__, self.traced_for) if issubclass(type(t.tensor), Replica)]
        return any(0 in _torch.gradient_shape(e.node, e.output_nr) for t in plain for e in t.edges)

    def lying(self, j: int, t: Tensor) -> Any:
        """The part of a backward's key that the plain tangent ``t`` of result ``j`` is, taken as it lies."""
        g, expected = geometry_of(t), self.tangents[j]
        assert isinstance(expected, Value) and expected.geometry is not None
        strides = zip(g.shape, g.stride, expected.geometry.stride, strict=True)
        if _torch.is_batched(t) or all(n == 1 or a == b for n, a, b in strides):
            return j
        once = tuple([n if step else 1 for n, step in zip(g.shape, g.stride, strict=True)])
        if (g.conj or g.neg) and 0 not in once and g._replace(shape=once).may_self_overlap:
            return j  # it cannot be copied to such strides
        part = (j, None, ((g._replace(offset=0, conj=False, neg=False), t.device),))
        if part not in self.odd:
            value = self.odd[part] = placeholder(g, t.device)
            value.geometry = part[2][0][0]
            value.name = f"odd_tangents_{len(self.odd)}_1"
        return part

    def _lies_as_expected(self, j: int, t: Tensor) -> bool:
        """Whether ``t`` is sparse as the tangent of result ``j`` is, or what it holds as a wrapper is lazy as there."""
        expected = self.tangents[j]
        if type(expected) is Value:
            return expected.sparse == (sparse_geometry_of(t) if is_sparse(t) else None)
        assert isinstance(expected, Bundle)
        # What says how ragged a wrapper is stands for itself, and is no input of the backward.
        wanted = zip(leaves_of(t), expected.leaves, strict=True)
        return all(type(w) is not Value or laziness(x) == laziness(w) for x, w in wanted)

    def starts(self, key: Key) -> dict[int, int]:
        """Where among the leaves of all tangents those of each begin."""
        starts, total = {}, 0
        for part in key:
            starts[place_of(part)] = total
            t = self.tangent(part)
            total += len(t.leaves) if isinstance(t, Bundle) else 1
        return starts

    def is_flat(self, key: Key) -> bool:
        """Whether the backward is called with what its tangents are made of."""
        return self.of_wrappers or any(isinstance(self.tangent(part), Bundle) for part in key)

    def expected(self, key: Key) -> list[tuple[int, Geometry | None]]:
        """Of each defined tangent which it is, and how the graph expects it to lie; None where it is sparse."""
        expected: list[tuple[int, Geometry | None]] = []
        flat = self.is_flat(key)
        starts = self.starts(key)
        for part in key:
            t = self.tangent(part)
            first = starts[place_of(part)] if flat else place_of(part)
            for n, x in enumerate(t.leaves if isinstance(t, Bundle) else (t,)):
                if type(x) is Value:
                    assert x.geometry is not None or x.sparse is not None
                    expected.append((first + n, x.geometry))
        return expected


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the gradients of the first stages stand in a backward's results: one per input of the forward, as compilers
    expect, and after those the leaves'.
    """

    roots: int
    inputs: int

    def spread(self, level: int, gradients: Sequence[Value | None]) -> list[Value | None]:
        """The results of a backward whose targets have these gradients."""
        if level > 1:
            return list(gradients)
        return [*gradients[: self.roots], *[None] * (self.inputs - self.roots), *gradients[self.roots :]]

    def place(self, level: int, target: int) -> int:
        """Where the gradient of a target stands among them."""
        return target if level > 1 or target < self.roots else target + self.inputs - self.roots
