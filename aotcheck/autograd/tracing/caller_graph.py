"""What a backward inside the function meets where it comes to an argument: hooks, and the caller's graph behind it.

Note [Backwards inside]
A backward that the function calls may come to an argument that is no leaf, and goes on in the caller's graph: from
there to another argument, say, whose gradient was asked for. It calls the hooks it comes by. No trace knows that
graph. What only goes on in it does so in each call, before anything is written or after all is: what arrived at such
arguments is then the gradient that a backward from them is called with. Between two writes it goes on before them, with
the versions that eager's graph would see. What the trace itself needs of that graph an op gives, see Note [The caller's
hooks], if no derivative of it is wanted. To tell, the key of a call says which arguments have hooks and from which of
them the caller's graph leads to which others; this costs a walk through that graph, so it is done for functions that
are known to call a backward. The first trace that meets one begins anew. Where a backward ends at an argument, the
graph calls the hooks there: see Note [The caller's hooks].
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.errors import EagerRaises, RetraceWithCallerGraph, UnsupportedError
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.subclasses import is_wrapper

ENGINE = frozenset({torch.autograd.grad, torch.autograd.backward, Tensor.backward})

_TO_ANOTHER = "through an argument that is no leaf to another argument"
_KEPT_AND_USED = "the function uses the gradient that an argument keeps of a backward inside"


@dataclasses.dataclass(frozen=True)
class CallerGraph:
    """The places of arguments that are ``hooked``; those of them whose hooks may be ``changing`` the gradient, or are
    for after its accumulation, and those that are ``keeping`` it without being leaves. And pairs of places: the graph
    behind the one ``leads`` to the other. ``made`` says by which ops those that are views were made.
    """

    hooked: tuple[int, ...]
    changing: frozenset[int]
    accumulating: frozenset[int]
    keeping: frozenset[int]
    leads: frozenset[tuple[int, int]]
    made: tuple[tuple[int, str], ...]


def caller_graph(flat: Sequence[Any]) -> CallerGraph:
    """What a backward inside may meet behind the arguments ``flat``."""
    tensors = {k: a for k, a in enumerate(flat) if isinstance(a, Tensor) and a.requires_grad}
    hooked = [k for k, a in tensors.items() if _torch.has_hooks_of_any_kind(a)]
    changing = frozenset([k for k in hooked if _torch.has_tensor_hooks(tensors[k])])
    accumulating = frozenset([k for k in hooked if _torch.has_accumulation_hooks(tensors[k])])
    keeping = frozenset([k for k in hooked if tensors[k].retains_grad])
    views = {k: a for k, a in tensors.items() if _torch.base_of(a) is not None and not is_wrapper(a)}
    made = [(k, repr(_torch.ops_of_view(a))) for k, a in views.items()]
    return CallerGraph(tuple(hooked), changing, accumulating, keeping, _leads(tensors), tuple(made))


def _leads(tensors: Mapping[int, Tensor]) -> frozenset[tuple[int, int]]:
    """From which of ``tensors`` autograd's graph leads to which others."""
    found = set()
    starts = {k: node for k, t in tensors.items() if (node := _torch.grad_fn_of(t)) is not None}
    for k, start in starts.items() if len(tensors) > 1 else ():
        behind = nodes_behind([n for n, _ in start.next_functions], set())
        leaves = {id(v) for n in behind if (v := getattr(n, "variable", None)) is not None}
        found |= {(k, j) for j, t in tensors.items() if starts.get(j) in behind or id(t) in leaves}
    return frozenset(found)


class BackwardsInside:
    """Watches the backwards that one traced function calls.

    ``known`` is None where nothing was found out about the caller's graph yet.
    """

    def __init__(self, arguments: Sequence[Any], replicas: Sequence[Any], known: CallerGraph | None) -> None:
        self.known = known
        self.replicas = replicas
        self.retained = False  # whether the backward that was called last retains the graph
        self._accumulates = False  # whether it accumulates gradients
        self.went_on = False  # whether one did, which each call does after all else
        self.goes_on = False  # and whether it goes on where it comes to an argument that is no leaf
        self.led_to = frozenset([j for k, j in known.leads if j != k]) if known is not None else frozenset()
        self._keeping: list[tuple[int, Any]] = []  # arguments that keep their gradients, with their nodes
        self._written: set[int] = set()  # those of them that were written, and have another history by now
        self._kept: set[int] = set()  # those whose gradient a backward inside brings
        self._used: set[int] = set()  # and those whose ``.grad`` the function reads or writes
        tensors = {k: r for k, r in enumerate(replicas) if isinstance(r, Tensor) and arguments[k].requires_grad}
        self._hidden = known.leads - _leads(tensors) if known is not None and known.leads else frozenset()
        self._entry = {k: _edge(tensors[k]) for pair in self._hidden for k in pair}  # where gradients arrived at first
        self._going_through: frozenset[int] = frozenset()  # from where the backward that runs comes to other arguments

    def meet_hooks(self, running: Callable[[], bool], call: Callable[[int, Tensor, bool], Tensor]) -> None:
        """Let a backward inside (while ``running``) ``call`` the hooks that the caller registered on an argument, of a
        gradient, where it comes to that; or fail where it cannot.
        """
        known = self.known
        if known is None:
            return

        def meet(k: int, no_leaf: bool, g: Tensor) -> Tensor | None:
            if not running() or (no_leaf and (self.goes_on or k in self._going_through)):
                return None
            after = self._accumulates and k in known.accumulating
            if not after and k not in known.changing and k not in known.keeping:
                return None
            shown = type(g) is not Replica or g.requires_grad
            if after or shown or self.went_on:
                raise UnsupportedError("hook", "a backward inside reaches an argument on which hooks are registered")
            through = call(k, g, k in known.keeping and self._keeps(k))
            return through if k in known.changing else None

        for k, t in {id(self.replicas[k]): (k, self.replicas[k]) for k in known.hooked}.values():
            if t.requires_grad and _torch.leafness(t) is not None:
                no_leaf = not _torch.leafness(t) and _torch.base_of(t) is None
                Tensor.register_hook(t, functools.partial(meet, k, no_leaf))
                if not _torch.leafness(t) and k in known.keeping:
                    self._keeping.append((k, _torch.grad_fn_of(t)))

    def _keeps(self, k: int) -> bool:
        """Whether the argument at ``k`` keeps a gradient that arrives at what it came with, as each call does."""
        if k in self._written:
            return False
        if k in self._used:
            raise UnsupportedError("hook", _KEPT_AND_USED)
        self._kept.add(k)
        return True

    def keeps_gradient(self, t: Tensor) -> bool:
        """Whether the caller wants ``t`` to keep its gradient, and it has the history that it came with."""
        return any(self.replicas[k] is t and _torch.grad_fn_of(t) is node for k, node in self._keeping)

    def on_gradient(self, t: Tensor) -> None:
        """The function reads or writes ``t.grad``."""
        used = {k for k, _ in self._keeping if self.replicas[k] is t and k not in self._written}
        self._used |= used
        if used & self._kept:
            raise UnsupportedError("hook", _KEPT_AND_USED)

    def _keep_of_written(self) -> None:
        """What keeps its gradient keeps that of what it is by now, once it was written; not if it was only reshaped."""

        def refuse(_: Tensor) -> None:
            raise UnsupportedError("hook", "an argument keeps gradients of what it was and, since it was written, is")

        for k, node in self._keeping:
            t = self.replicas[k]
            now = _torch.grad_fn_of(t)
            if now is None or now is node or k in self._written or _torch.has_tensor_hooks(t):
                continue
            self._written.add(k)
            if k in self._kept or k in self._used:
                Tensor.register_hook(t, refuse)
            else:
                Tensor.retain_grad(t)

    def leaves_behind(self, places: Sequence[int]) -> list[int]:
        """The arguments that are leaves to which the caller's graph leads from those at ``places``."""
        leads = self.known.leads if self.known is not None else ()
        return sorted({end for start, end in leads if start in places and _torch.leafness(self.replicas[end])})

    def refuse_views(self, running: Callable[[], bool], places: Sequence[int]) -> None:
        """Let a backward inside fail where it comes by those at ``places``: views, traced as such, that custom
        Functions of the caller's made, whose backwards no trace knows.
        """

        def refuse(_: Tensor) -> None:
            if running():
                raise UnsupportedError(
                    "backward inside", "through a view that a custom Function made, its base written"
                )

        for k in places:
            t = self.replicas[k]
            if t.requires_grad and _torch.leafness(t) is False:
                Tensor.register_hook(t, refuse)

    def note(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], with_bases: Callable[[], None]
    ) -> frozenset[tuple[int, int]]:
        """The function calls ``func``, one of ``ENGINE``.

        Gives pairs of arguments such that a gradient may come to the first, and in the caller's graph to the second,
        of which it is asked for. ``with_bases`` is called for what the trace would know if views were traced as such.
        """
        if self.known is None:
            raise RetraceWithCallerGraph
        self._keep_of_written()
        self.goes_on = False
        self._accumulates = func is torch.autograd.backward
        if self._accumulates:
            positional = dict(zip(("tensors", "grad_tensors", "retain_graph", "create_graph"), args, strict=False))
            given = {**positional, **kwargs}
            retained, create_graph = given.get("retain_graph"), bool(given.get("create_graph"))
            self.retained = create_graph if retained is None else bool(retained)
            self.goes_on = not create_graph and kwargs.get("inputs") is None
        wanted = kwargs.get("inputs", args[1] if func is torch.autograd.grad and len(args) > 1 else None)
        if func is torch.autograd.backward and wanted is not None:
            for x in _several(wanted):  # of these it retains the gradients
                if isinstance(x, Replica) and not _torch.leafness(x) and not x.retains_grad:
                    x.kernels.retained[id(x)] = _torch.grad_fn_of(x)
        self._going_through = frozenset()
        if not self._hidden or wanted is None:  # gradients that leave by an argument for the caller's leaves show
            return frozenset()
        starts = [_edge(x)[0] for x in roots_of(args, kwargs)]
        behind = nodes_behind([n for n in starts if type(n) is not int], set())  # behind a leaf is nothing
        asked = {_edge(x) for x in _several(wanted)}
        found = [(k, j) for k, j in self._hidden if self._entry[k][0] in behind and self._entry[j] in asked]
        if found:
            with_bases()
        return frozenset(found)

    def go_through(
        self,
        pairs: Collection[tuple[int, int]],
        anchors: Mapping[int, Tensor],
        run: Callable[[Mapping[int, Tensor], Mapping[int, Tensor]], Sequence[Tensor]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Tensor | None, ...]:
        """``torch.autograd.grad`` called so, where the caller's graph leads from the first to the second of ``pairs``.

        What arrives at the ``anchors`` of the first is gone on with by ``run``: see Note [The caller's hooks].

        Raises:
            UnsupportedError: what comes to the second in the caller's graph cannot be had by that.
        """
        given = dict(zip(_PARAMETERS, args, strict=False)) | dict(kwargs)
        inputs = list(_several(given["inputs"]))
        create_graph = bool(given.get("create_graph"))
        retained = given.get("retain_graph")
        starts, ends = (dict.fromkeys(sorted(x)) for x in zip(*pairs, strict=True))
        hooks = [h.replica for k in (*starts, *ends) for h in self.replicas[k].kernels.hooks]
        met = [self.replicas[k] for k in (*starts, *ends)]
        if (
            self.known is None
            or self.went_on
            or not (create_graph if retained is None else retained)
            or given.get("is_grads_batched")
            or given.get("materialize_grads")
            or any(k not in anchors for k in starts)
            or any(k in self.known.hooked or type(self.replicas[k]) is not Replica for k in ends)
            or any(k in self.known.changing and self._entry[k] in map(_edge, inputs) for k in starts)
            or any(t is h for t in met for h in hooks)
            or any(t.retains_grad for t in met)
        ):
            raise UnsupportedError("backward inside", _TO_ANOTHER)
        self._going_through = frozenset(starts)
        given["inputs"] = [*inputs, *[anchors[k] for k in starts]]
        unused = given.get("allow_unused")
        found = list(_torch.past_function_modes(torch.autograd.grad, (), {**given, "allow_unused": True}))
        self._going_through = frozenset()
        found, arrived = found[: len(inputs)], dict(zip(starts, found[len(inputs) :], strict=True))
        brought = {k: g for k, g in arrived.items() if g is not None}
        if any(type(g) is not Replica or g.requires_grad for g in brought.values()):
            raise UnsupportedError("backward inside", _TO_ANOTHER)
        reached = {j: self.replicas[j] for j in ends if any((k, j) in pairs for k in brought)}
        with torch.set_grad_enabled(create_graph):
            through = dict(zip(reached, run(brought, reached) if reached else (), strict=True))
            for j, g in through.items():
                places = [n for n, x in enumerate(inputs) if self._entry[j] == _edge(x)]
                own = found[places[0]]
                summed = g if own is None else own + g
                for n in places:
                    found[n] = summed
        if not unused and any(g is None for g in found):
            raise EagerRaises("a gradient of what is not used is asked for")
        return tuple(found)


_PARAMETERS = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused",
    "is_grads_batched", "materialize_grads",
)  # fmt: skip


def roots_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """Where a backward that is called so begins."""
    return _several(kwargs.get("outputs", kwargs.get("tensors", args[0] if args else ())))


def _several(x: Any) -> Sequence[Any]:
    if isinstance(x, dict):
        return list(x.values())
    return x if isinstance(x, (list, tuple)) and not isinstance(x, GradientEdge) else (x,)


def _edge(x: Any) -> tuple[Any, int]:
    """Where gradients of a tensor arrive, or ``x`` itself if it says that; for an accumulator the id of its leaf."""
    if isinstance(x, GradientEdge):
        variable = getattr(x.node, "variable", None)
        return x.node if variable is None else id(variable), x.output_nr
    node = _torch.grad_fn_of(x)
    return (id(x), 0) if node is None else (node, x.output_nr)
