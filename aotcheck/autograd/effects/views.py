"""What is known of how the views of a call came to be, and whether the ops that made them would make them so again.

Note [Views made again]
A view whose memory was not written since has the history that its op gave it, and gets it once more where that op runs
on what it ran on. For that the source must lie where it lay: it still does, or the view is made at its moment, before
the source goes elsewhere (see Note [In the program's order]). Of a view that is odd, one made under no_grad or in
inference mode, by a custom Function or with others by one op, autograd never looks for a history anew: it refuses to
say it once the base was written since. So such a view is made by its op in any case, when its base counts as many
writes as then. Any other view has the history of a window on its base as that is by the end.

A view may go to memory that nothing of the call's is on (`v.set_()`). Of such a one only what was made of it before is
wanted, so it is made by its op, at its moment, and stays there.

A view that `.data =` took elsewhere, or whose base it did, is a view of that base still: a write to it reaches the
base's history. It is made of the base as that lay when autograd last looked for the view's history, on memory of which
nothing is shown, and then taken to where it lies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.ir.places import Move, Stop, stops_of
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.record.steps import Arg, Ref
from aotcheck.autograd.replicas.windows import Derivation, Reshaping, lasting, within_bounds
from aotcheck.autograd.runtime.replays import replay_lying
from aotcheck.autograd.tensors.subclasses import is_wrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


def differentiable_dtype(t: Tensor) -> bool:
    """Whether an output of a Function may require grad if it has the dtype of ``t``."""
    return t.dtype.is_floating_point or t.dtype.is_complex


def has_history(t: Tensor) -> bool:
    """Whether ``t`` requires grad and is no leaf; also where autograd refuses to say more."""
    return t.requires_grad and _torch.leafness(t) is not True


def is_new_leaf(t: Tensor) -> bool:
    """Whether ``t``, made inside, is a leaf that requires grad by itself."""
    return _torch.leafness(t) is True and _torch.requires_grad_by_itself(t)


def is_odd(t: Tensor) -> bool:
    """Whether ``t`` is a view whose history autograd will not look for anew once its base was written."""
    return _torch.base_of(t) is not None and _torch.creation_meta(t) != _torch.CreationMeta.DEFAULT


def never_counts(t: Tensor) -> bool:
    """Whether ``t``, made in inference mode and so without a version counter, got data of a tensor that was not."""
    return _torch.version_of(t) < 0 and not t.is_inference()


def counts_as_inference(t: Tensor) -> bool:
    """Whether ``t`` is an inference tensor that has a version counter: it was none, or is an alias made outside."""
    return t.is_inference() and _torch.version_of(t) >= 0


def is_of_function(t: Tensor) -> bool:
    """Whether a custom Function gave the view ``t`` the history it has, even if it wrote what it is a view of."""
    of_function = isinstance(_torch.grad_fn_of(t), torch.autograd.function.BackwardCFunction)
    return of_function and _torch.base_of(t) is not None and _torch.creation_meta(t) != _torch.CreationMeta.DEFAULT


def has_earlier_history(t: Tensor, base: Tensor) -> bool:
    """Whether the view ``t`` has the history of a write through a view to ``base``, and ``base`` a later one.

    An op that writes one tensor twice counts both writes, then gives both histories; a view looks for its own once.
    """
    node, last = _torch.grad_fn_of(t), _torch.grad_fn_of(base)
    if node is None or last is None or not differentiable_dtype(t):
        return False
    while len(behind := [n for n, _ in node.next_functions if n is not None]) == 1:  # what the view is made of
        (node,) = behind
        if node is last or _torch.is_write_through_view(node):
            return node is not last
    return any(n is not last and _torch.is_write_through_view(n) for n in behind)


def has_other_history(t: Tensor, base: Tensor) -> bool:
    """Whether the view ``t`` has a history that does not lead by views to the one that ``base`` has."""
    node, last = _torch.grad_fn_of(t), _torch.grad_fn_of(base)
    if node is None or last is None or not differentiable_dtype(t):
        return False
    while node is not last and len(node.next_functions) == 1 and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node is not last


def leads_to(t: Tensor, source: Tensor) -> bool:
    """Whether gradients of ``t`` go from the node that made it straight to ``source``."""
    return node_leads_to(_torch.grad_fn_of(t), source)


def leads_by_views_to(node: Any, leaf: Tensor) -> bool:
    """Whether gradients go from ``node`` to ``leaf``, a leaf, and nowhere else, as those of a view of it do."""
    while node is not None and getattr(node, "variable", None) is not leaf:
        node = node.next_functions[0][0] if len(node.next_functions) == 1 else None
    return node is not None


def node_leads_to(node: Any, source: Tensor) -> bool:
    """The same of a node."""
    if node is None or not source.requires_grad:
        return False
    there = _torch.grad_fn_of(source)
    nexts = [n for n, _ in node.next_functions]
    if there is not None:
        return any(n is there for n in nexts)
    if _torch.base_of(source) is not None and all(n is None for n in nexts):
        return True  # a view that autograd was not told of has no node
    return any(getattr(n, "variable", None) is source for n in nexts)


def _made_anew(node: Any, there: Any) -> bool:
    """Whether ``there`` is ``node`` once more: a view's history on a base whose own is the same."""
    return node is not None and (node.name(), node.next_functions) == (there.name(), there.next_functions)


class Views:
    """The views of one call, as they were made and as they now are; nothing is made here."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.tracer = capture.tracer
        self.kernels = capture.maker.kernels
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.names: dict[int, Ref] = {}  # id of a replica -> where the real tensor is found
        # id of an argument's replica -> where it lay when the call began, while the real one lies there still
        self.entered = {id(a.replica): a.geometry for a in self.arguments}
        self._arguments = {id(a.replica) for a in self.arguments}
        self.ahead = False  # whether what is made now is made before arguments go anywhere
        self.hasty: set[int] = set()  # ids of those arguments' replicas that go to the last of their places at once
        self._moving: set[int] = set()  # ids of views that go elsewhere at a moment to come
        self.anchors: dict[int, tuple[Ref, int]] = {}  # id of a fresh storage's state -> a tensor on it, its offset
        self._anchored: set[int] = set()  # ids of the states of fresh storages on which something of the call's is
        self._early: dict[int, int] = {}  # by id of a view that is made at its moment, which that is

    def stop_of(self, made: Derivation) -> Stop | None:
        """The stop of an argument at which a view was made of it: see Note [Stops]."""
        if id(made.source) not in self._arguments or id(made.source) in self.hasty or self.ahead:
            return None
        stops = stops_of(self.kernels.left.get(id(made.source), ()))
        return next((s for s in stops if s.begin < made.time < s.end), None)

    def _went(self, t: Tensor) -> bool:
        """Whether the view ``t`` got data elsewhere by ``.data =``, which leaves its history as it was."""
        made = self.tracer.views.get(id(t))
        if made is None or id(t) in self.tracer.reshapings or id(t) not in self.kernels.left:
            return False  # what `detach_` moved stays where it is
        if not (made.current and id(t) not in self.tracer.regeometried) and _torch.leafness(t) is not None:
            return False
        if not made.source_stays:
            return False
        first, state = self.kernels.left[id(t)][0], self.table.state(t)
        return first.storage != _torch.storage_address(state.storage) or self.table.state(made.source) is not state

    def _is_left_behind(self, t: Tensor, base: Tensor) -> bool:
        """Whether ``base``, made inside, went elsewhere by ``.data =`` after the view ``t`` was made of it."""
        if not self._went_by_data(base) or not self._is_fresh(base) or _torch.base_of(base) is not None:
            return False
        if is_odd(t) or _torch.leafness(t) is None or self._counts_alone(t, base):
            return False
        if id(base) in self.tracer.reshapings and id(t) in self.tracer.reshapings:
            return False
        chain = [x for x in self.chain(t) if x is not base]
        made = self.tracer.views.get(id(chain[-1]))
        if made is None or made.source is not base or not all(self._stays_or_went_by_data(x) for x in chain):
            return False
        return self._gone_since(made)

    def _gone_since(self, made: Derivation) -> bool:
        """Whether what a view was ``made`` of went elsewhere since."""
        return any(x.time > made.time for x in self.kernels.left.get(id(made.source), ()))

    def left_behind_as_made(self, t: Tensor, base: Tensor) -> Derivation | None:
        """How the view ``t`` was made, if it has the history of that and what it was made of went elsewhere."""
        made = self.tracer.views.get(id(t))
        if made is None or not made.current or id(t) in self.tracer.regeometried or not self._gone_since(made):
            return None
        return made if self._is_left_behind(t, base) or self._is_left_by_view(t, made) else None

    def _is_left_by_view(self, t: Tensor, made: Derivation) -> bool:
        """Whether what ``t`` was ``made`` of, a view made inside, went elsewhere by ``.data =`` before and since."""
        source = made.source
        if id(source) not in self.tracer.views or id(source) in self._arguments or not leads_to(t, source):
            return False
        moves = [x.move for x in self.kernels.left.get(id(source), ())]
        return len(moves) > 1 and set(moves) == {Move.DATA} and self.kernels.left[id(source)][0].time < made.time

    def _is_fresh(self, base: Tensor) -> bool:
        """Whether ``base`` was made inside; by the epilogue it is, having counted nothing."""
        return id(base) not in self._arguments and not any(r.replica is base for r in self.roots)

    def _lay_otherwise(self, base: Tensor, number: int) -> Geometry | None:
        """How ``base`` lay when autograd made the node with this ``number``, if it was given other data since."""
        left = self.kernels.left.get(id(base), ())
        if not left or any(x.move is not Move.DATA for x in left):
            return None
        then = next((x.geometry for x in left if number < x.node), None)
        return None if then == geometry_of(base) else then

    def _gone_since_renewed(self, t: Tensor, base: Tensor) -> int | None:
        """When ``t`` or its ``base`` was given other data first after autograd had looked for the history of ``t``."""
        made, known = self.tracer.views.get(id(t)), self.kernels.left
        left = [*known.get(id(t), ()), *(known.get(id(base), ()) if id(base) in self._arguments else ())]
        if not left or made is None or made.current or not has_history(t) or is_odd(t):
            return None
        node = self.node_before_changes(t)
        if node is None:
            return None
        number = _torch.sequence_number(node)
        return min([x.time for x in left if number < x.node and x.move is Move.DATA], default=None)

    def _lay_as(self, t: Tensor, number: int) -> Geometry:
        """How ``t`` lay when autograd made the node with this ``number``."""
        left = self.kernels.left.get(id(t), ())
        return next((x.geometry for x in left if number < x.node), geometry_of(t))

    def _went_by_data(self, t: Tensor) -> bool:
        """Whether ``t`` went elsewhere by ``.data =`` and in no other way, changes in place left aside."""
        moves = {x.move for x in self.kernels.left.get(id(t), ())}
        return Move.DATA in moves and moves <= {Move.DATA, Move.RESHAPED}

    def _stays_or_went_by_data(self, t: Tensor) -> bool:
        """Whether ``t`` lies on its first storage, or went elsewhere by ``.data =`` alone."""
        return {x.move for x in self.kernels.left.get(id(t), ())} <= {Move.DATA, Move.RESHAPED}

    def _renewed_since(self, t: Tensor, base: Tensor) -> bool:
        """Whether autograd looked for the history of the written view ``t`` when its base lay where it does now."""
        node, moved = _torch.grad_fn_of(t), self.kernels.moved_before.get(id(base))
        if node is None or moved is None or self._current(t) is not None or id(t) in self.tracer.regeometried:
            return False
        if self._is_odd_view(base):
            return False
        return _torch.sequence_number(node) >= moved

    def _lay_when_renewed(self, t: Tensor) -> Geometry | None:
        """Where the written view ``t`` lay when autograd last looked for its history, if it was given other data since.

        None if that is on another storage.
        """
        if not has_history(t) or not self.kernels.went_by_data(t) or (node := _torch.grad_fn_of(t)) is None:
            return None
        number, there = _torch.sequence_number(node), _torch.storage_address(_torch.storage_of(t))
        left = next((x for x in self.kernels.left[id(t)] if number < x.node), None)
        return left.geometry if left is not None and left.storage == there else None

    def _counts_alone(self, t: Tensor, base: Tensor) -> bool:
        return t.is_inference() == base.is_inference() and _torch.version_groups([base, t])[1] != 0

    def _is_odd_view(self, t: Tensor) -> bool:
        """Whether ``t`` is an argument, and a view whose history autograd will not look for anew."""
        index = next((a.index for a in self.arguments if a.replica is t), None)
        if index is None:
            return False
        inputs = self.capture.inputs
        return inputs.is_custom_view[index] or inputs.is_row[index] or is_odd(t)

    def chain(self, t: Tensor) -> list[Tensor]:
        """``t``, what it was made of, what that was made of, and so on, to the tensor that it is a view of."""
        chain = [t]
        while (made := self.tracer.views.get(id(chain[-1]))) is not None and id(chain[-1]) not in self._arguments:
            chain.append(made.source)
        base = _torch.base_of(t)
        return chain if base is None or any(base is x for x in chain) else [*chain, base]

    def _made_before_writes(self, t: Tensor, made: Derivation) -> bool:
        """Whether ``t``, which was first ``made`` of an argument that lay as it came, can be made before any write."""
        state, source = self.table.state(t), made.source
        befell = self.kernels.required, self.kernels.detached
        if any(known.get(id(x), math.inf) < made.time for known in befell for x in (source, _torch.base_of(source))):
            return False
        first = self.tracer.views[id(t)]
        counted_since = _torch.version_of(first.source) != first.source_version  # set_ counts too, and writes nothing
        # A write that is not counted may follow one that is, after which the view was made.
        return (first.time < state.written or counted_since) and any(
            a.replica is source
            and a.state is state
            and a.geometry == made.source_geometry
            and (counted_since or made.source_version == a.version)
            for a in self.arguments
        )

    def _moved_since(self, made: Derivation) -> bool:
        """Whether what a view was made of lies elsewhere than it did then."""
        source = made.source
        left = next((x for x in self.kernels.left.get(id(source), ()) if x.time > made.time), None)
        if left is None:
            return False
        return (left.geometry, left.storage) != (geometry_of(source), _torch.storage_address(_torch.storage_of(source)))

    def _changed(self, made: Derivation, view: Tensor) -> int:
        """When last something befell what ``view`` was made of that shows in views made later."""
        source = made.source
        moments = [0]
        if not made.source_stays or self.table.state(source) is not self.table.state(view) or self._moved_since(made):
            moments.append(self.kernels.moved.get(id(source), 0))
        if has_history(view):
            moments.append(self.kernels.detached.get(id(source), 0))
        if self._is_odd_view(source):
            moments.append(self.table.state(source).written)
        return max(moments)

    def _outlives_its_source(self, t: Tensor) -> bool:
        """Whether the view ``t`` has the history that its op gave it, but what it was made of went elsewhere."""
        made = self.tracer.views.get(id(t))
        there = made is not None and made.current and id(t) not in self.tracer.regeometried
        again = is_odd(t) and made is not None and id(made.source) in self.tracer.views  # when it was made
        again = again and made is not None and not is_of_function(made.source)
        return there and not again and self._current(t) is None

    def lasting(self, t: Tensor) -> Sequence[Reshaping]:
        """The changes in place of ``t``, a view or an argument, that make up its history; none where they do not."""
        if not has_history(t):
            return ()
        if _torch.base_of(t) is None:
            return self._changes_of_root(t)
        return lasting(self.tracer.reshapings.get(id(t), ()), _torch.version_of(t))

    def _made_before(self, t: Tensor, changes: Sequence[Reshaping]) -> Derivation | None:
        """How the view ``t`` was made if ``changes`` are all that has come to the history that it then got."""
        made = self.tracer.views.get(id(t))
        if made is None or not changes or not made.grad or is_odd(t):
            return None
        stays = self._lies_as_then(made) or self._stays_inside(t, made) or self._moved_before(made)
        if len(changes) < len(self.tracer.reshapings[id(t)]) or not stays:
            return None
        node = _behind(_edge_of(t), len(changes)).node
        same = made.version == changes[0].version
        same = same and (made.geometry == changes[0].geometry or self._went_before(t, changes[0]))
        return made if same and self._led_to(node, made.source) else None

    def _made_by_way(self, t: Tensor, base: Tensor, changes: Sequence[Reshaping]) -> list[Derivation]:
        """How the view ``t`` was made of ``base`` by way of others, if all of its history is that and ``changes``.

        Nothing otherwise, or where it was made of ``base`` itself.
        """
        if not changes or len(changes) < len(self.tracer.reshapings[id(t)]):
            return []
        way: list[Derivation] = []
        node, x = self.node_before_changes(t), t
        while x is not base:
            made = self.tracer.views.get(id(x))
            befell = x is not t and (id(x) in self.kernels.moved or id(x) in self._arguments)
            if made is None or befell or is_odd(x) or _torch.base_of(x) is not base or node is None:
                return []
            if not made.grad or made.version != changes[0].version or made.inference:
                return []
            if way:
                (node, _), *others = node.next_functions
                if others:
                    return []
            way.insert(0, made)
            x = made.source
        if len(way) < 2 or way[-1].geometry != changes[0].geometry or not node_leads_to(node, base):
            return []
        return way if self._lies_as_then(way[0]) or self._moved_before(way[0]) else []

    def _moved_before(self, made: Derivation) -> bool:
        """Whether what a view was made of lies where it then lay, whatever befell it before."""
        moved = self.kernels.moved.get(id(made.source), 0)
        return moved < made.time and made.source_stays and self._on_that_storage(made)

    def _went_before(self, t: Tensor, change: Reshaping) -> bool:
        """Whether ``t`` was given other data before the ``change`` in place, and was not reshaped before."""
        left = [x for x in self.kernels.left.get(id(t), ()) if x.time < change.time]
        return bool(left) and all(x.move is Move.DATA for x in left)

    def _led_to(self, node: Any, source: Tensor) -> bool:
        """Whether gradients go from ``node`` straight to ``source``, or did to the argument or the view that it was.

        Autograd makes the history of a view again, and the same, after each change in place that shares its versions.
        """
        if node_leads_to(node, source) or self.leads_to_entered(node, source):
            return True
        there = _torch.grad_fn_of(source) if _torch.base_of(source) is not None else None
        return there is not None and any(_made_anew(n, there) for n, _ in getattr(node, "next_functions", ()))

    def leads_to_entered(self, node: Any, source: Tensor) -> bool:
        """Whether gradients go from ``node`` straight to the argument ``source`` with the history it came with."""
        entered = [a.grad_fn for a in self.arguments if a.replica is source and a.grad_fn is not None]
        return any(n in entered for n, _ in getattr(node, "next_functions", ()))

    def _changes_of_root(self, t: Tensor) -> Sequence[Reshaping]:
        """All changes in place of the argument ``t`` if nothing else has come to the history with which it came, or to
        that of a write before them.
        """
        noted = self.tracer.reshapings.get(id(t))
        if not noted:
            return ()
        places = [*[c.geometry for c in noted[1:]], geometry_of(t)]
        changes = [c for c, after in zip(noted, places, strict=True) if c.grad or c.geometry != after]
        if not changes or not all(c.grad for c in changes):
            return ()
        roots = [(r.grad_fn, r.geometry) for r in self.roots if r.replica is t and isinstance(r.source, Arg)]
        roots += [(w.grad_fn, changes[0].geometry) for w in self.capture.wrappers if w.replica is t]
        if not roots or roots[0][0] is None or changes[0].geometry != roots[0][1]:
            return ()
        if _behind(_edge_of(t), len(changes)).node is roots[0][0]:
            return changes
        return changes if self._written_before(t, changes) else ()

    def _written_before(self, t: Tensor, changes: Sequence[Reshaping]) -> bool:
        """Whether the plain argument ``t`` was written before its ``changes``, and nothing since shows in its history.

        A write under no_grad, or by an op without a derivative, does not.
        """
        if is_wrapper(t) or id(t) in self.kernels.detached or id(t) in self.tracer.set_calls:
            return False
        if any(_torch.is_write_through_view(_behind(_edge_of(t), k).node) for k in range(len(changes))):
            return False  # set_ of a view
        left = [x for x in self.kernels.left.get(id(t), ()) if x.time >= changes[0].time]
        places = [*[self.table.states.get(x.storage) for x in left], self.table.state(t)]  # since then
        written = [math.inf if state is None else state.written for state in places]
        if not written[0]:
            return False
        if max(written) < changes[0].time:
            return True
        node, first = _behind(_edge_of(t), len(changes)).node, left[0].node - 1  # that of the first change
        return node is not None and _torch.sequence_number(node) < first

    def node_before_changes(self, t: Tensor) -> Any:
        """The node of the history that ``t`` had before the changes in place that have come to it."""
        return self.edge_before_changes(t).node

    def edge_before_changes(self, t: Tensor) -> GradientEdge:
        """The place in the graph where ``t`` was before the changes in place that have come to it."""
        return _behind(_edge_of(t), len(self.lasting(t)))

    def history_before_changes(self, t: Tensor) -> GradientEdge | None:
        """The history of a write that the argument ``t`` had before the changes in place that have come to it."""
        changes = () if _torch.base_of(t) is not None else self.lasting(t)
        edge = _behind(_edge_of(t), len(changes)) if changes else None
        own = [r.grad_fn for r in self.roots if r.replica is t] + [w.grad_fn for w in self.capture.wrappers]
        return None if edge is None or edge.node in own else edge

    def _current(self, t: Tensor) -> Derivation | None:
        """How the view ``t`` was made if making it so again gives it the history it has: neither the memory nor the
        geometry changed since, or it is made at its moment.
        """
        made = self.tracer.views.get(id(t))
        if made is None:
            return None
        changed = id(t) in self.tracer.reshapings or id(t) in self.tracer.regeometried
        if changed and not (self._went(t) or self._goes_nowhere(t)):
            return None
        if not (made.current or id(t) in self._early or is_odd(t)):
            return None
        return made if self._can_be_made_of_source(made) else None

    def _can_be_made_of_source(self, made: Derivation) -> bool:
        """Whether the real tensor for what a view was made of lies where it lay then when the view is made."""
        if self._lies_as_then(made):
            return True
        moved_since = self.kernels.moved.get(id(made.source), 0) > made.time
        t = made.tensor
        if moved_since and id(t) not in self.kernels.moved and id(made.source) not in self.tracer.reshapings:
            moved_since = self.table.state(made.source) is not self.table.state(t)
        if not made.source_stays or (id(made.source) not in self._arguments and moved_since):
            return False
        return self._on_that_storage(made)

    def _stays_inside(self, t: Tensor, made: Derivation) -> bool:
        """Whether ``t`` is a view of what it was made of, and that, made inside too, lies where it lay."""
        source = made.source
        there = self.table.state(source) is self.table.state(t) and made.source_stays
        return _torch.base_of(t) is source and there and id(source) not in self._arguments

    def _on_that_storage(self, made: Derivation) -> bool:
        """Whether the argument of which a view was made, if it is one, is on the storage where it was then."""
        if id(made.source) not in self._arguments:
            return True
        then = next((x for x in self.kernels.left.get(id(made.source), ()) if x.time > made.time), None)
        return then is None or then.storage == _torch.storage_address(_torch.storage_of(made.source))

    def _lies_as_then(self, made: Derivation) -> bool:
        """Whether the real tensor for what a view was made of lies where it lay then, and will move only later."""
        if self.stop_of(made) is not None:
            return True
        left = self.kernels.left.get(id(made.source)) if id(made.source) in self._arguments else None
        if left and left[0].time < made.time:
            return False
        lies = self.entered.get(id(made.source))
        if id(made.source) in self._moving or self._stays_where_made(made):
            lies = self.tracer.views[id(made.source)].geometry
            left = self.kernels.left[id(made.source)]
            went = any(x.time < made.time and x.move is Move.DATA for x in left)
            then = next((x for x in left if x.time > made.time), None)
            elsewhere = then is not None and then.storage != left[0].storage
            if went and (elsewhere or not is_odd(made.tensor)):
                return False  # the real one goes to the last of its places at once
        return lies == made.source_geometry

    def _moves(self, view: Tensor) -> bool:
        """Whether ``view`` goes elsewhere after it was made, to where something of the call's is."""
        state = self.table.state(view)
        return id(view) in self.kernels.moved and (state.is_input or id(state) in self._anchored)

    def _goes_nowhere(self, view: Tensor) -> bool:
        """Whether ``view``, made inside, went to memory that nothing of the call's is on, and nothing was made of it
        there: nobody sees it but where it was made.
        """
        left = self.kernels.left.get(id(view))
        if not left or id(view) in self._arguments or id(view) not in self.tracer.views or self._moves(view):
            return False
        return not any(m.source is view and m.time > left[0].time for m in self.tracer.views.values())

    def _stays_where_made(self, made: Derivation) -> bool:
        """Whether what a view was made of, made inside, went elsewhere later, and the real one for it does not."""
        source = made.source
        if id(source) in self._arguments or id(source) not in self.tracer.views or id(source) not in self.kernels.moved:
            return False
        later = all(x.time > made.time for x in self.kernels.left.get(id(source), ()))
        return later and not self._moves(source)

    def _replayable(self, t: Tensor, base: Tensor) -> bool:
        """Whether the history of the view ``t`` is what the op that made it gives on what it was made from."""
        made = self._current(t)
        if made is None or _torch.base_of(t) is None:
            return True
        if not made.grad or _torch.creation_meta(t) == _torch.CreationMeta.IN_CUSTOM_FUNCTION or is_of_function(t):
            return False
        return leads_to(t, made.source) and (made.source is base or self._derives(made.source, base))

    def _derives(self, source: Tensor, base: Tensor) -> bool:
        """Whether what a view was made of can itself be made again, with its history."""
        if id(source) in self.names or not has_history(source):
            return True
        if _torch.base_of(source) is not base or self._outlives_its_source(source):
            return False
        if self._current(source) is None:
            return not is_of_function(source)
        return self._replayable(source, base)

    def _place_of_base(self, t: Tensor, base: Tensor) -> tuple[Geometry, int]:
        """Where ``base`` lies, and on which storage, when the real tensor for its view ``t`` is made."""
        if id(t) in self._early and not self._is_fresh(base):
            left = next((x for x in self.kernels.left.get(id(base), ()) if x.time > self._early[id(t)]), None)
            if left is not None:
                return left.geometry, left.storage
        return geometry_of(base), _torch.storage_address(_torch.storage_of(base))

    def _replays_elsewhere(self, t: Tensor, base: Tensor, lies: Geometry) -> bool:
        """Whether what autograd makes of ``base`` for the history of its view ``t`` does not lie as that ``lies``.

        It makes a window as the view now is, or by the ops that made the view, where one of them was no window.
        """
        geometry, _ = self._place_of_base(t, base)
        alike = geometry[3:] == lies[3:]
        by_ops = lies == geometry_of(t) and self._differs_between(t, base)
        if alike and not by_ops and (id(t) not in self.tracer.regeometried or lies != geometry_of(t)):
            return False  # it is reshaped in place after it was made again
        if geometry != geometry_of(base) or self.table.state(base) is not self.table.state(t):
            return not alike
        if not within_bounds(t):  # its storage shrank since: no op gives it any more
            return False
        if self._refuses_replay(t, base):
            return True
        with torch.no_grad():
            made = geometry_of(_torch.view_func_of(t)(base))
        return made != lies and not (alike and made == geometry_of(t))

    def _refuses_replay(self, t: Tensor, base: Tensor) -> bool:
        """Whether ``base`` lies where the ops do not go that made its view ``t``: on half of a complex number, say."""
        with torch.no_grad():
            try:
                _torch.view_func_of(t)(base)
            except RuntimeError:
                return True
        return False

    def _lay_when_viewed(self, t: Tensor, base: Tensor) -> Geometry | None:
        """How ``base`` lay when its view ``t`` was made, or what that is a view of."""
        while (made := self.tracer.views.get(id(t))) is not None:
            if made.source is base:
                return made.source_geometry
            t = made.source
        return None

    def _differs_between(self, t: Tensor, base: Tensor) -> bool:
        """Whether a view by way of which ``t`` was made of its base is no window: the conjugate of a conjugate, say."""
        kind = geometry_of(base)[3:]
        while t is not base and (made := self.tracer.views.get(id(t))) is not None:
            if made.source_geometry[3:] != kind:
                return True
            t = made.source
        return False

    def _window_of_base(
        self, t: Tensor, base: Tensor, lies: Geometry, base_lay: Geometry | None = None
    ) -> Callable[[Tensor], Tensor]:
        """How autograd makes the view ``t`` of its base to look for its history, or did when that ``base_lay`` so."""
        place = self._place_of_base(t, base)[0] if base_lay is None else base_lay
        if place[3:] != lies[3:] or (base_lay is None and self._replays_elsewhere(t, base, lies)):
            replay = _torch.view_func_of(t)
            before = None if base_lay is not None else self._lay_when_viewed(t, base)
            if before is None or before == place or not self._refuses_replay(t, base):
                return replay
            return functools.partial(replay_lying, replay, before)
        if self._differs_between(t, base) and lies == geometry_of(t):
            return _torch.view_func_of(t)
        return functools.partial(_window, shape=lies.shape, stride=lies.stride, offset=lies.offset)


def _edge_of(t: Tensor) -> GradientEdge:
    return GradientEdge(_torch.grad_fn_of(t), t.output_nr)


def _behind(edge: GradientEdge, steps: int) -> GradientEdge:
    """The place so many ``steps`` behind ``edge``, by the first way; its node is None if there is none."""
    for _ in range(steps):
        nexts: Any = () if edge.node is None else edge.node.next_functions
        edge = GradientEdge(*nexts[0]) if nexts else GradientEdge(cast("Any", None), 0)
    return edge


def as_if_required(replay: Callable[[Tensor], Tensor], base: Tensor) -> Tensor:
    """The view of ``base``, which requires no grad, that ``replay`` makes, as a view with a history."""
    if base.requires_grad:
        return replay(base)
    base.requires_grad_()
    try:
        return replay(base)
    finally:
        base.requires_grad_(False)


def _window(base: Tensor, shape: Any, stride: Any, offset: int) -> Tensor:
    return base.as_strided(shape, stride, offset)
