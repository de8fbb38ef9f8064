"""Where hooks are registered on the caller's tensors: see Note [Hooks registered inside]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind, reached_leaves
from aotcheck.autograd.effects.views import has_history
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.record.steps import Arg, Ref, RegisterHook, Step
from aotcheck.autograd.replicas.hooks import NotedHook, hooks_in_force
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedWrapper

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture
    from aotcheck.autograd.effects.results import Results
    from aotcheck.autograd.effects.wrapped import WrappedResults


class HookSteps:
    """The steps that register hooks, found while the epilogue is built."""

    def __init__(self, capture: Capture, results: Results, wrapped: WrappedResults) -> None:
        self.capture = capture
        self.results = results
        self.wrapped = wrapped
        self.early: list[tuple[int, Step]] = []  # with their moments, where others lead to arguments
        self.late: list[NotedHook] = []  # registered at the end, on what is there by then
        # by id of a hook, what stands for its tensor as that was then, and what is given that history
        self._past: dict[int, tuple[Tensor, Ref]] = {}
        known: list[TracedArgument | TracedWrapper] = [*capture.arguments, *capture.wrappers]
        arguments = {id(a.replica): a for a in known}
        for h in hooks_in_force(capture.maker.kernels.hooks):
            argument = arguments.get(id(h.replica))
            if argument is None:
                h.traced = h.uses_the_trace or capture.together
                if not h.traced:
                    self.late.append(h)
                continue
            if h.uses_the_trace:
                raise UnsupportedError("hook", "one registered inside on an argument uses tensors of the function")
            if argument.requires_grad and h.node is argument.grad_fn:
                step = RegisterHook(Arg(argument.index), h.hook, h.kind, given=True)
                if capture.led_to(h.replica, h.node):
                    self.early.append((h.time, step))
                else:
                    results.before.append(step)
            else:
                self.late.append(h)

    @property
    def tensors(self) -> list[Tensor]:
        """What gradients must come by."""
        return [self._hooked(h) for h in self.late if has_history(self._hooked(h))]

    def _hooked(self, h: NotedHook) -> Tensor:
        """The tensor that ``h`` is on, or what stands for it."""
        return self._past[id(h)][0] if id(h) in self._past else h.replica

    def collect(self) -> None:
        """Note the views with hooks from which others that are needed are made again: then they are made too."""
        if self.late:
            hooked = {id(h.replica) for h in self.late}
            for t, base in [x for x in self.results.sources() if id(x[0]) in hooked]:
                self.results.tensors.setdefault(id(t), (t, base))
            self.wrapped.make_sources(hooked)
            parts = [h.replica for h in self.late if h.node is not None and _torch.outputs_of(h.node) > 1]
            self.wrapped.make_parts([t for t in parts if id(t) not in self.results.names])

    def find_stand_ins(self) -> None:
        """Let tensors without memory stand for what is neither argument nor result and yet has a hook."""
        if not self.late:
            return
        results = self.results
        attached = [a.tensor for a in results.attached]
        behind = nodes_behind([_torch.grad_fn_of(t) for t in attached], set())
        leaves = reached_leaves(attached)
        known = {*results.names, *results.tensors, *results.makers}
        views = {_torch.grad_fn_of(t): base for t, base in results.tensors.values() if base is not None}
        for h in list(self.late):
            t = h.replica
            if _torch.grad_fn_of(t) is not h.node:
                no_past = h.node is None or h.node in self.capture.ends or is_wrapper(t) or is_sparse(t)
                if no_past or h.node in self._replayed():
                    raise UnsupportedError("hook", "the tensor got another history after a hook was registered on it")
                if h.node in behind:
                    self._past[id(h)] = self._of_the_past(h)
                else:
                    self.late.remove(h)
                continue
            if h.node is None and _torch.leafness(t) is None:  # autograd was not told of this view: no gradient comes
                self.late.remove(h)
                continue
            if id(t) in known:
                continue
            if not has_history(t):
                if id(t) in leaves:
                    raise UnsupportedError("hook", "on a leaf made inside that is not returned")
                self.late.remove(h)
            elif h.node in views and _torch.outputs_of(h.node) > 1 and self._is_a_part(t):
                # What one op gave with views that are needed is made: its hooks are called when gradients reach these.
                results.tensors[id(t)] = t, views[h.node]
            elif h.node not in behind:
                self.late.remove(h)
            else:
                known.add(id(t))
                results.names[id(t)] = results.stand_in(t)

    def _replayed(self) -> set[Any]:
        """The nodes that views which are made again have by themselves, up to what is attached."""
        passed = [a.replica for a in self.capture.arguments if id(a.replica) not in self.capture.waiting]
        views = [*[(t, _torch.base_of(t)) for t in passed], *self.results.tensors.values()]
        views = [(t, base) for t, base in views if base is not None and has_history(t)]
        ends = {_torch.grad_fn_of(a.tensor) for a in self.results.attached}
        ends |= {_torch.grad_fn_of(base) for _, base in views if base is not None}
        return nodes_behind([_torch.grad_fn_of(t) for t, _ in views], ends) - ends

    def _of_the_past(self, h: NotedHook) -> tuple[Tensor, Ref]:
        """What is attached with the history that the tensor had when ``h`` was registered, or now stands for it."""
        known = [a for a in self.results.attached if _torch.grad_fn_of(a.tensor) is h.node]
        for a in known:
            if a.tensor.output_nr == h.place:
                return a.tensor, a.ref
        head = past(GradientEdge(h.node, h.place), h.replica.device, self.capture.maker.kernels)
        ref = self.results.names[id(head)] = self.results.stand_in(head)
        return head, ref

    def _is_a_part(self, t: Tensor) -> bool:
        """Whether ``t`` is a view, be it one that is none to autograd (``unsafe_split``)."""
        return _torch.base_of(t) is not None or id(t) in self.capture.tracer.unsafe_views

    def check_cuts(self) -> None:
        """Raise unless all gradients that go through a tensor with a hook come by it."""
        if not self.late:
            return
        attached = [_torch.grad_fn_of(a.tensor) for a in self.results.attached]
        behind = nodes_behind([n for start in attached if start is not None for n, _ in start.next_functions], set())
        cut = {c.edge.node for c in self.results.cuts} | self.capture.ends
        for h in self.late:
            if h.node in behind and h.node not in cut:
                raise UnsupportedError("hook", "on one of several results of an op, or in a circle of results")

    def register(self) -> None:
        """Add the steps for what is registered at the end."""
        for h in self.late:
            ref = self._past[id(h)][1] if id(h) in self._past else self.results.name(h.replica)
            self.results.steps.append(RegisterHook(ref, h.hook, h.kind))
