"""The graph's results, and how the tensors that a call gives are made of them.

A tensor is a result of the graph (``r0``), an input (``a0``), or what views make of one of these or of another tensor
(``m0``); what has no history is placed on a storage by its geometry. As ``explain`` prints it, without grad modes:

    y = x @ w                           m0 = r0
    return y, y[0], x.t()               m1 = m0 then aten.select.int(_, 0, 0)
                                        m2 = a0 then aten.t.default(_)

    y = x.view(-1)                      m0 = a0 then aten.view.default(_, [-1]), before a0 moves
    x.set_(torch.zeros(3))              m1 = r0, and a0 lies where m1 does
    return y

    y = torch.zeros(4)                  m0 = m2 then aten.view.default(_, [2, 2]), before m2 moves
    v = y.view(2, 2)                    m1 = m2 moved to m3
    y.data = torch.ones(3)              m2 = r0
    return v, y                         m3 = r1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, is_leaf
from aotcheck.autograd2.ir.signature import Alias, Fresh, Given, GraphResult, How, Made, MadeLeaf, Step
from aotcheck.autograd2.ir.size import same, term
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.info import info_of
from aotcheck.autograd2.trace.replica import Place, Replica, ViewStep, place_of, state_of
from aotcheck.autograd2.trace.run import Traced
from aotcheck.autograd2.trace.view import UNSAFE, UNSAFE_SPLITS, StorageState

_UNSEEN = GraphResult()
_DETACHES, _AS_STRIDED = (torch.ops.aten.detach.default, _torch.data_of), torch.ops.aten.as_strided.default


@dataclass(frozen=True, eq=False)
class Result:
    """One result of the forward graph.

    Args:
        node: what the graph computes.
        geometry: how eager's tensor lies.
        tensor: the replica whose history it gets; None if it gets none.
        look: how the caller sees it.
    """

    node: Node
    geometry: Geometry
    tensor: Tensor | None
    look: GraphResult


def requires_grad(t: Tensor) -> bool:
    """Whether ``t`` requires grad. Refused where eager cannot say, of a no_grad view of what was written since."""
    try:
        return bool(t.requires_grad and (t.grad_fn is not None or t.is_leaf))
    except (RuntimeError, IndexError):
        refuse(Event.NO_GRAD_VIEW)


@dataclass
class Results:
    """Collects graph results, and how tensors are made."""

    traced: Traced
    of_graph: list[Result] = field(default_factory=list)
    made: list[How] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    _position: dict[tuple[Tensor, bool], int] = field(default_factory=dict)
    _left: set[Tensor] = field(default_factory=set, init=False)
    _detached: frozenset[StorageState] = field(default=frozenset(), init=False)
    _roots: dict[StorageState, tuple[Tensor | None, int]] = field(default_factory=dict)

    def add(self, node: Node, geometry: Geometry, tensor: Tensor | None = None, look: GraphResult = _UNSEEN) -> int:
        """One more result of the graph."""
        if isinstance(node.op, _torch.OpOverload) and info_of(node.op).may_alias:
            look = replace(look, view=True)
        self.of_graph.append(Result(node, geometry, tensor, look))
        return len(self.of_graph) - 1

    def make_all(self, tensors: list[Tensor]) -> None:
        """Plan how these are made, and leaves of which they are views and that the function dropped.

        Tensors on one storage that is no input's are made of one result.
        """
        self._detached = self._only_detached([t for t in tensors if self.traced.input_of(t) is None])
        self._position = {(t, False): k for k, t in enumerate(tensors)}
        self.tensors = tensors
        for t in tensors:
            while type(t) is Replica and (step := _view_step(t)) is not None:
                if self._is_displaced(t) and not self._lies(step.source, step.source_place):
                    self._left.add(step.source)
                t = step.source
        self.finish()

    def finish(self) -> None:
        """Plan how those are made that were added meanwhile."""
        while (k := len(self.made)) < len(self.tensors):
            t = self.tensors[k]
            self.made.append(self._as_born(t) if self._position.get((t, True)) == k else self._how(t))

    def _made(self, t: Tensor, born: bool = False) -> Made:
        """A tensor, or, if that moves, the same before it moves."""
        if (t, born) not in self._position:
            self._position[t, born] = len(self.tensors)
            self.tensors.append(t)
        return Made(self._position[t, born])

    def at(self, t: Tensor) -> Made:
        """A tensor without history that lies where ``t`` does."""
        alias = t.data
        state_of(alias).step, state_of(alias).born = None, place_of(alias)  # it may not fill its storage
        return self._made(alias)

    def _how(self, t: Tensor) -> How:
        if (given := self.traced.input_of(t)) is not None:
            return Given(given)
        if type(t) is not Replica:
            refuse(Event.CAPTURED if type(t) in (Tensor, torch.nn.Parameter) else Event.WRAPPER, "a foreign result")
        lost = is_lost(t)
        new_leaf = not lost and _is_new_leaf(t)
        needs = new_leaf or lost or (requires_grad(t) and not t.is_leaf)
        state = self.traced.tracer.table.storage_state(t)
        chain, root = self._chain(t, stop_at_detach=state in self._detached)
        if t.is_inference() is not root.is_inference():
            refuse(Event.INFERENCE, "an inference tensor is detached outside of inference mode")
        if any(s.op in _DETACHES and is_lost(s.source) for s in chain[1:]):
            refuse(Event.HISTORY, "a tensor detached from one of several views, which was written since")
        if needs and state.version and any(s.op in UNSAFE for s in chain):
            refuse(Event.HISTORY, "a part of which autograd does not know, of what was written since")
        told_later = any(_torch.requires_grad(s.source) and is_leaf(s.source) for s in chain[1:])
        if told_later and needs and not lost and _requires_after(root, chain):
            refuse(Event.LEAF, "a view of a view that was made before its base required grad")
        if lost and (not _is_early(t, chain) or (_is_custom(t, chain) and not _is_custom(root, ()))):
            refuse(Event.NO_GRAD_VIEW)
        if new_leaf or state_of(t).is_parameter:
            plain = self._plain(t, False, chain, place_of(t))
            if new_leaf and isinstance(plain, Alias) and isinstance(plain.base, Given):
                of = self.traced.inputs[plain.base.input]
                if of.input.meta.requires_grad and not requires_grad(of.replica):
                    refuse(Event.LEAF, "a view of an argument that does not require grad any more")
                if plain.geometry is not None and _torch.base_of(t) is not None:
                    refuse(Event.LEAF, "a view of an argument that was reshaped in place or moved, and requires grad")
            return MadeLeaf(plain, new_leaf, state_of(t).is_parameter)
        detached = bool(chain) and chain[0].op in _DETACHES and (root, False) not in self._position
        of_leaf = chain and _is_new_leaf(root) and self.traced.input_of(root) is None
        if of_leaf and not (detached and state_of(root).born):
            moved = state_of(root).detached if needs else state_of(root).born
            if lost or moved or _requires_after(root, chain) != needs:
                refuse(Event.HISTORY, "a view of a leaf made inside that was detached or written since")
            return Alias(self._made(root), _steps(chain))
        if root in self._left or self._is_displaced(root):
            born = state_of(t).born
            if root is not t or born is None or self._lies(t, born):
                return self._as_born(t)
            return Alias(self._made(t, born=True), to=self.at(t))
        last = chain[-1:]
        if needs and len(chain) > 1 and not lost and not _is_early(t, chain) and _requires_after(last[0].source, last):
            return Alias(self._made(last[0].source), _steps(last))  # a view between may be used besides
        for k in range(len(chain) - 1, 0, -1) if needs and not _is_early(t, chain) else ():
            if _is_early(chain[k].source, chain[:k]):  # its history does not come by the root
                if _is_custom(t, chain):
                    refuse(Event.NO_GRAD_VIEW, "a custom Function gives a view from before its base was written")
                return Alias(self._made(chain[k].source), _steps(chain[k:]))
        made = self._plain(t, needs, chain, place_of(t))
        if isinstance(made, Alias) and made.geometry is not None and _torch.requires_grad(t):
            refuse(Event.HISTORY, "a view made under no_grad of what moved and requires grad")
        return made

    def _lies(self, t: Tensor, place: Place) -> bool:
        return _torch.address_of(t) == place[0] and geometry_of(t) == self.traced.tracer.table.spelled(place[1])

    def _is_displaced(self, t: Tensor) -> bool:
        """Whether a view moved since it was made, or its source did, and not by a mere reshape."""
        if (step := _view_step(t)) is None:
            return False
        away = _torch.address_of(step.source) != step.place[0] or state_of(step.source).data_assigned
        return not self._lies(t, step.place) or (away and not self._lies(step.source, step.source_place))

    def _as_born(self, t: Tensor) -> How:
        """How a tensor is made that moves, or whose source does: where it lay before it moved."""
        needs, place = requires_grad(t) and not t.is_leaf, state_of(t).born
        if (step := _view_step(t) if place else state_of(t).step) is None:
            assert place is not None
            if needs and _torch.recorded_gradient(t.grad_fn, t.output_nr)[:2] != (place[1].shape, place[1].dtype):
                refuse(Event.HISTORY, "a tensor that has views moves and gets a history of another shape")
            return self._plain(t, needs, [], place)
        source, state = step.source, self.traced.tracer.table.states[step.place[0]]
        given, stays = self.traced.input_of(source), self._lies(source, step.source_place)
        known = state_of(source).born == step.source_place and (given is not None or source in self._left)
        if not (stays or known) or step.place[1].is_beyond(state.nbytes) or (state.lost and given is not None):
            refuse(Event.BASE, "the base moved before a view was made, and again afterwards, or its storage was freed")
        written = needs and (step.version != _torch.version_of(t) or step.op in UNSAFE)
        entry = requires_grad(source) if stays or given is None else self.traced.inputs[given].input.meta.requires_grad
        if is_lost(t) or written or entry != requires_grad(source) or _requires_after(source, [step]) != needs:
            refuse(Event.HISTORY, "a view was detached or written, and it or its base moved")
        base = self._made(source, born=not stays) if given is None else Given(given)
        return Alias(base, (step.how,), unmoved=not stays)

    def _plain(self, t: Tensor, needs: bool, chain: list[ViewStep], place: Place) -> Fresh | Alias:
        """How a tensor is made that is no leaf of the function's own, where it lies or lay before it moved."""
        state, g, root = self.traced.tracer.table.states[place[0]], place[1], chain[0].source if chain else t
        given = self.traced.input_of(root)
        baked = self.traced.tracer.symbols and g.is_empty and type(g.offset) is int
        if baked and given is None and (g.offset or state.source is not None):
            refuse(Event.BASE, "a part without elements, which may begin elsewhere in another call")
        if given is not None and not is_lost(t) and _requires_after(root, chain) != needs:
            refuse(Event.HISTORY, "a view of an argument that was detached or written since")
        ends = [(s.place if s.how.index is None else s.source_place)[1] for s in chain if state.resized]
        beyond = any(x.is_beyond(state.nbytes) for x in (g, *ends))
        if given is not None and not beyond:
            early = _is_early(t, chain)
            again = needs and chain and state_of(root).born and chain[-1].version != _torch.version_of(t)
            if not state.version and (again or (early and any(s.how.index is not None for s in chain))):
                refuse(Event.HISTORY, "a view of what was reshaped since: its version counts that")
            stale = not early and any(s.how.index is not None and s.version < _torch.version_of(t) for s in chain)
            if stale or (early and not needs and self.traced.inputs[given].input.meta.requires_grad):
                refuse(Event.HISTORY, "a view of an argument that was detached and written since")
            return Alias(Given(given), _steps(chain), early=early)
        if state.source is None:
            return self._of_own_storage(t, needs, chain, place)
        if needs or (beyond and not state.resized) or (given is not None and _torch.base_of(t) is not None):
            refuse(Event.HISTORY, "a tensor on the storage of an argument, or a view beyond its end")
        return Alias(Given(state.source), geometry=g, inference=t.is_inference())

    def _of_own_storage(self, t: Tensor, needs: bool, chain: list[ViewStep], place: Place) -> Fresh | Alias:
        table, lies, root = self.traced.tracer.table, place[1], chain[0].source if chain else t
        state, g = table.states[place[0]], lies if root is t else geometry_of(root)
        if not same(term(state.storage.nbytes()), state.nbytes):
            table.flat(state)
        if lies.is_beyond(state.nbytes):
            refuse(Event.FREED)
        if (known := self._roots.get(state)) is None:
            stride = g.stride if state.version or g.dense_order is None or 1 in g.shape else None
            differentiable = requires_grad(root) and not root.is_leaf
            fills = g.dense_order is not None and same(g.end * g.dtype.itemsize, state.nbytes)
            step = None if requires_grad(root) else state_of(root).step
            written = state.version and g.shape and g.dense_order is not None  # as what a scatter of a part gave
            moved = state_of(root).born or state.resized or written
            moved = moved or (step is not None and (state_of(step.source).born or step.op in UNSAFE_SPLITS))
            lies_apart = not same(g.offset, 0) or (moved and not fills) or g.conj or g.neg
            if lies_apart and differentiable and root is t and g.dense_order is not None:
                look = GraphResult(g.stride, t.is_inference())
                index = self.add(table.read_view(table.view_at(state, g)), g, t, look)
                return Alias(Fresh(index), to=self.at(t))
            if lies_apart and differentiable:
                refuse(Event.HISTORY, "a tensor that is no view any more, and lies in the storage of one")
            if not lies_apart:
                node = table.read_view(table.view_at(state, g))
                look = GraphResult(stride, root.is_inference())
                known = (root, self.add(node, g, root if differentiable else None, look))
            else:  # what it was a view of lies elsewhere now
                whole = table.flat(state)
                known = (None, self.add(table.read_view(whole), whole.geometry))
            self._roots[state] = known
        first, index = known
        if not same(state.nbytes % self.of_graph[index].geometry.dtype.itemsize, 0):
            refuse(Event.ODD)
        if first is not root:
            if needs or requires_grad(root) or (t.is_inference() and not all(s.how.inference for s in chain)):
                refuse(Event.HISTORY, "two tensors on one storage, of which neither is a view of the other")
            return Alias(Fresh(index), geometry=lies, inference=t.is_inference())
        if not chain:
            return Fresh(index)
        if not is_lost(t) and _requires_after(root, chain) != needs:
            refuse(Event.HISTORY, "a view that was detached, or whose base was written since")
        if self.of_graph[index].tensor is not None and _is_early(t, chain):
            if any(s.how.index is not None for s in chain):  # it has an error for its grad_fn, which names one
                refuse(Event.HISTORY, "one of several views of what was written since")
            return Alias(Fresh(index), _steps(chain), early=True)
        return Alias(self._made(root) if (root, False) in self._position else Fresh(index), _steps(chain))

    def _chain(self, t: Tensor, stop_at_detach: bool = False) -> tuple[list[ViewStep], Tensor]:
        """The steps by which ``t`` was made, the first one first, and what it was made of."""
        steps: list[ViewStep] = []
        while (step := state_of(t).step) is not None:
            state, source = state_of(t), step.source
            if state.born or (steps and (state.is_input or _is_new_leaf(t))):
                break
            if not self._lies(t, step.place) or not self._lies(source, step.source_place):
                break
            own = _torch.requires_grad(t) and not _torch.requires_grad(source)  # which is a lazy operand, resolved
            if step.op in UNSAFE and (own or _torch.version_of(t) > 0):
                break  # autograd takes it for no view, and what was written since belongs to its own history
            counts = source.is_inference() and not step.how.inference  # versions: it may be written
            if step.op in _DETACHES and ((stop_at_detach and not counts) or (t.requires_grad and not t.is_leaf)):
                break  # what was detached, and has got a history of its own since, is made as a root is
            steps.insert(0, step)
            t = source
        return steps, t

    def _only_detached(self, tensors: Sequence[Tensor]) -> frozenset[StorageState]:
        """Own storages of which these tensors come after one ``detach``: autograd need not know the base."""
        detached: dict[StorageState, set[Tensor | None]] = {}
        for t in tensors:
            if type(t) is Replica and not (state := self.traced.tracer.table.storage_state(t)).is_input:
                (chain, first), (_, root) = self._chain(t), self._chain(t, stop_at_detach=True)
                apart = state_of(root).own_counter or self._is_displaced(first) or _AS_STRIDED in (s.op for s in chain)
                fills = same(geometry_of(root).end * root.dtype.itemsize, state.nbytes)
                alone = any(s.op in _DETACHES for s in chain) and fills and not apart
                detached.setdefault(state, set()).add(root if alone else None)
        return frozenset(state for state, roots in detached.items() if len(roots) == 1 and None not in roots)


def _view_step(t: Tensor) -> ViewStep | None:
    """How the function made a view, or another tensor that counts versions with its source."""
    state = state_of(t)
    return None if state.is_input or state.step is None or state.step.op is _torch.data_of else state.step


def _is_new_leaf(t: Tensor) -> bool:
    """Whether the function made ``t`` a leaf that requires grad."""
    state = state_of(t)
    own = state.step is None or state.told or state.step.op in _DETACHES  # factories detach what is to require grad
    return own and requires_grad(t) and t.is_leaf


def is_lost(t: Tensor) -> bool:
    """Whether autograd refuses to say the history of ``t``: of a no_grad view of what was written since."""
    try:
        return t.requires_grad and t.grad_fn is NotImplemented
    except (RuntimeError, IndexError):
        return True


def _is_early(t: Tensor, chain: Sequence[ViewStep]) -> bool:
    """Whether autograd knows that the base of ``t``, which lies where it did, was written since ``t`` was made."""
    if not chain or state_of(chain[0].source).born or any(s.op in (*_DETACHES, *UNSAFE_SPLITS) for s in chain):
        return False
    return chain[-1].version != _torch.version_of(t)


def _is_custom(t: Tensor, chain: Sequence[ViewStep]) -> bool:
    """Whether ``t`` is a view that a custom Function made, alone or among other results, or a view of such a one."""
    made = _torch.creation_meta(t) if _torch.base_of(t) is not None else None
    several = made == _torch.CreationMeta.MULTI_OUTPUT_NODE and all(s.how.index is None for s in chain)
    return several or bool(made == _torch.CreationMeta.IN_CUSTOM_FUNCTION)


def _steps(chain: Sequence[ViewStep]) -> tuple[Step, ...]:
    return tuple(s.how for s in chain)


def _requires_after(root: Tensor, chain: Sequence[ViewStep]) -> bool:
    """Whether the view that the chain makes of ``root`` requires grad."""
    passes = (s.how.grad and not s.how.inference and s.op not in _DETACHES for s in chain)
    return requires_grad(root) and all(passes)
