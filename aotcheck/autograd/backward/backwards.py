"""Backwards, made when they are first needed: one for each kind of tangents that a stage's Function is called with."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction

from aotcheck import _torch
from aotcheck.autograd.backward.asked import Finder
from aotcheck.autograd.backward.backward_graphs import BackwardGraphs
from aotcheck.autograd.backward.derivatives import differentiable
from aotcheck.autograd.backward.kept import kept_behind, objection_to_write
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.backward.stages import Stages
from aotcheck.autograd.backward.tangents import Key, Trained, described
from aotcheck.autograd.backward.written_since import guards_of
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import holds_saved, objection
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import RetraceWithCaptured, UnsupportedError
from aotcheck.autograd.graphs.compile_graph import Compilers
from aotcheck.autograd.graphs.graph import FakeValues
from aotcheck.autograd.ir.trace import Value
from aotcheck.autograd.record.steps import TakeHistory
from aotcheck.autograd.replicas.replicas import disarm, rearm
from aotcheck.autograd.runtime import backward, backward_source
from aotcheck.autograd.runtime.attachments import Freed, Function
from aotcheck.autograd.state.autocast import autocast_as, autocast_state
from aotcheck.autograd.state.global_state import AutocastOff, autocast_is_on
from aotcheck.autograd.tensors.subclasses import is_wrapper_type, leaves_of
from aotcheck.autograd.tracing import arriving_zeros


class _Alone:
    """See :meth:`Backwards.alone`."""

    __slots__ = ("_inside",)

    def __init__(self, lock: contextlib.AbstractContextManager[Any]) -> None:
        self._inside = lock, _torch.WithoutSavedTensorHooks(), _torch.WithoutCompiledAutograd(), AutocastOff()

    def __enter__(self) -> None:
        for one in self._inside:
            one.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for one in reversed(self._inside):
            one.__exit__(*exception)


class Backwards:
    """The stages of one specialization, the Functions that attach their tensors, and what those run."""

    def __init__(self, capture: Capture, compilers: Compilers, fakes: FakeValues, inputs: Sequence[Value]) -> None:
        self.capture = capture
        self.stages = Stages(capture, inputs)
        self.graphs = BackwardGraphs(self.stages, compilers, fakes)
        self._lock = threading.RLock()

    def alone(self) -> _Alone:
        """One thread at a time is inside, and nothing that the caller has in force."""
        return _Alone(self._lock)

    @contextlib.contextmanager
    def rearmed(self) -> Iterator[None]:
        """The trace goes on inside."""
        kernels = self.capture.maker.kernels
        with self.alone(), _torch.WithoutDynamo():
            rearm(kernels)
            try:
                yield
            except RetraceWithCaptured:
                raise UnsupportedError(
                    "captured tensor", "a backward uses a tensor that its call did not meet"
                ) from None
            finally:
                disarm(kernels)

    # -- Functions

    def function(self, stage: Stage) -> Function:
        """What attaches the stage's tensors."""
        behind = stage.behind()
        holding = stage.holding()
        once = tuple([j for j, nodes in enumerate(holding) if nodes])
        lenient = tuple([j for j in once if all(map(_torch.is_write_through_view, holding[j]))])
        stage.sealed, stage.once = True, once
        stage.lasting = not once and not stage.own and not stage.arguments.holders and bool(stage.saved)
        freeing = list(self._freeing(stage, once, holding))
        raising = tuple(self._raising(stage, behind))
        selective = stage.selective or bool(raising)
        apply = backward_source.function_like(
            len(stage.attached),
            len(stage.saved),
            len(stage.reached),
            bool(stage.guards),
            tuple(stage.checked) if len(stage.attached) > 1 else (),
            once,
            tuple(freeing),
            tuple(stage.shared()),
            stage.own,
            raising,
            stage.leads(),
            stage.minds(),
            stage.mates(),
            bool(stage.views),
            selective,
            lenient,
            bool(stage.cover),
            tuple(self._reentrant(stage, behind)) if stage.custom else (),
            stage.lasting,
            len(stage.arguments.holders),
            bool(stage.arguments.places),
            stage.gathers(),
        )
        return Function(apply, Finder(self, stage), selective)

    def _freeing(
        self, stage: Stage, once: Iterable[int], holding: Sequence[Sequence[Any]]
    ) -> Iterator[tuple[int, Freed]]:
        """The tensors whose own node frees what it keeps, or raises, when a backward ends there."""
        record = self.capture.record
        taken = not stage.before and any(isinstance(s, TakeHistory) for s in (*record.before, *record.steps))
        for j, a in enumerate(stage.attached):
            node = _torch.grad_fn_of(a.tensor)
            said = _torch.error_of(node)
            if said is not None:
                yield j, Freed(said)
            elif j in once and holds_saved(node, a.tensor):
                objection = self._objection(node, a.tensor)
                own = guards_of(self.capture, stage, node, a.tensor) if taken and objection is None else ((), ())
                behind = tuple([k for k in once if node in holding[k]])
                yield j, Freed(objection, *own, behind=None if len(behind) == len(stage.attached) else behind)

    def _objection(self, node: Any, near: Tensor) -> str | None:
        """What ``node``, behind ``near``, raises in its backward because what it keeps was written since."""
        return objection_to_write(self.capture, node) if _torch.is_write_through_view(node) else objection(node, near)

    def _raising(self, stage: Stage, behind: Sequence[Sequence[Any]]) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """The tensors ``behind`` which a node raises that a backward of the stage does not come by, and what.

        With the targets to which it leads, by their places among those reached.

        It is there for nothing else, or leads to nobody and keeps what was written since: see
        ``backward.raise_if_all_runs``.
        """
        arrivals = {e.node for t in stage.targets for e in t.edges}
        for j, (nodes, kept) in enumerate(zip(behind, kept_behind(self.capture, stage), strict=True)):
            for node in nodes:
                error = _torch.error_of(node)
                if error is None and kept is None and not arrivals & nodes_behind([node], set()):
                    error = self._objection(node, stage.attached[j].tensor)
                if error is not None:
                    yield j, error, _reached_from(stage, [node])
                    break

    def _reentrant(self, stage: Stage, behind: Sequence[Sequence[Any]]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The tensors ``behind`` which there are reentrant checkpoints, and the targets that those lead to."""
        for j, nodes in enumerate(behind):
            found = [n for n in nodes if getattr(n, "_forward_cls", None) is CheckpointFunction]
            if found and (targets := _reached_from(stage, found)):
                yield j, targets

    def backward_for(
        self,
        stage: Stage,
        kinds: tuple[type, ...],
        trained: Trained,
        told: tuple[int, ...] = (),
        asked: frozenset[int] | None = None,
    ) -> Callable[..., Any]:
        """The backward of ``stage`` for tangents of these types, in the state of autocast that is in force.

        type(None) is the type where there is none, its layout that of a sparse tensor. For ``told`` see Note [Undefined
        gradients]; ``asked`` are the targets, by place among those reached, whose gradients alone it gives.
        """
        if asked is not None and self.graphs.division is None and not stage.of_other_kinds:
            stage = stage.partly(frozenset(stage.reached[k] for k in asked))
        if told:
            stage = stage.also_from(frozenset(told))
        if stage.asks and self.graphs.division is None:
            return functools.partial(self._run_for_data, stage, kinds, trained)
        if autocast_is_on():
            stage = stage.under(autocast_state())
        found = stage.backwards.get((kinds, trained))
        if found is None:
            others = any(isinstance(k, torch.layout) or is_wrapper_type(k) for k in kinds)
            if others or stage.of_other_kinds or stage.meets_zeros:
                found = functools.partial(self._run_for_kinds, stage, trained)
            else:
                key = tuple(j for j, k in enumerate(kinds) if k is not _NONE)
                try:
                    found = self._backward(stage, key, trained)
                except (UnsupportedError, RetraceWithCaptured):
                    raise
                except Exception as error:
                    return functools.partial(self._run_for_asked, stage, key, trained, error)
                if stage.selective:
                    found = functools.partial(self._run_for_asked, stage, key, trained, found)
                elif stage.minds_strides and self.graphs.division is None:
                    found = functools.partial(self._run_as_given, stage, trained, found)
                if stage.leads_to_wrappers:
                    found = functools.partial(self._run_as_told, stage, trained, found)
            stage.backwards[kinds, trained] = found
        return found

    def _run_as_told(
        self, stage: Stage, trained: Trained, usual: Callable[..., Any], ctx: Any, g: Sequence[Any]
    ) -> Any:
        """Run the backward for plain tangents, another one where there are zeros without memory on the way."""
        if arriving_zeros.told(ctx, len(stage.before)) or any(t is not None and _torch.is_without_memory(t) for t in g):
            return self._run_for_kinds(stage, trained, ctx, g)
        return usual(ctx, g)

    def _run_for_data(self, stage: Stage, kinds: tuple[type, ...], trained: Trained, ctx: Any, g: Sequence[Any]) -> Any:
        """Run the backward that is right for the data: see Note [Formulas for data]."""
        if stage.ask is None:
            with self.rearmed():
                stage.ask = self.graphs.question(stage)
        return self.backward_for(stage.answered(stage.ask(ctx)), kinds, trained)(ctx, g)

    def _run_for_asked(
        self,
        stage: Stage,
        key: Key,
        trained: Trained,
        whole: Callable[..., Any] | Exception,
        ctx: Any,
        g: Sequence[Any],
        flat: Sequence[Tensor] | None = None,
    ) -> Any:
        """Run a backward that raises, or does more than give gradients, only for the targets asked for now.

        The engine comes to a Function wherever one of its inputs is asked for; what leads to the others it leaves out,
        and so what would raise there. ``whole`` is the backward for all targets, or what it raised when it was traced.
        ``flat`` is what the tangents are made of, if backwards are called with that. See Note [Leaves aside].
        """
        given = (ctx, g) if flat is None else (ctx, flat, g)
        run = _runs_whole(whole)
        del whole  # an error is not to be held by the frame that it comes by
        everything = stage.selective and _torch.will_run(backward.beyond().grad_fn)
        if everything or stage.asked is not None or self.graphs.division is not None:
            return run.pop()(*given)
        with self.rearmed():
            begins = [t is not None or j in stage.told for j, t in enumerate(g)]
            starts = [_torch.grad_fn_of(a.tensor) for a, now in zip(stage.attached, begins, strict=True) if now]
            behind = nodes_behind(starts, set(stage.ends))
        asked = {
            k: node is not None and _torch.will_run(node)
            for k, (node, _) in zip(stage.reached, ctx.next_functions, strict=False)
            if any(e.node in behind for e in stage.targets[k].edges)
        }
        if all(asked.values()) and not (stage.selective and stage.aside):
            return run.pop()(*given)
        if not any(asked.values()):  # a backward begins here, which runs the first node for nothing
            if (said := next(filter(None, map(_torch.error_of, starts)), None)) is not None:
                raise RuntimeError(said)
            return (None,) * (1 + max(1, len(stage.reached)))
        return self._backward(stage.only(frozenset(k for k, now in asked.items() if now)), key, trained)(*given)

    def _run_as_given(
        self, stage: Stage, trained: Trained, plain: Callable[..., Any], ctx: Any, g: Sequence[Any]
    ) -> Any:
        """Run the backward for tangents that lie as these, which shows where there are no elements.

        Strides of gradients that have some it may choose; ``plain`` is for tangents that lie as their results.
        """
        key = tuple([stage.lying(j, t) for j, t in enumerate(g) if t is not None])
        if all(type(part) is int for part in key):
            return plain(ctx, g)
        try:
            run = self._backward(stage, key, trained)
        except (UnsupportedError, RetraceWithCaptured):
            raise
        except Exception as error:  # a formula's, that refuses an empty tangent with such strides
            return self._run_for_asked(stage, key, trained, error, ctx, g)
        return run(ctx, g)

    def _run_for_kinds(self, stage: Stage, trained: Trained, ctx: Any, g: Sequence[Any]) -> Any:
        """Find the backward for tangents some of which are wrappers or sparse, or should be.

        It is run on what the wrappers hold.
        """
        if zeros := arriving_zeros.told(ctx, len(stage.before)):
            stage = stage.also_with(zeros)
        parts: list[Any] = []
        flat: list[Tensor] = []
        whole = list(g)
        for j, t in enumerate(g):
            if t is not None:
                part, whole[j] = stage.part(j, t)
                parts.append(part)
                flat += leaves_of(whole[j])
        key = tuple(parts)
        run: Callable[..., Any] | Exception
        try:
            run = self._backward_telling(stage, key, trained, ctx)
        except RetraceWithCaptured:
            raise
        except UnsupportedError as error:
            if any(type(p) is not int for p in parts):
                met = ", ".join(described(t) for t in g if t is not None)
                wanted = ", ".join(described(a.tensor) for a in stage.attached)
                raise UnsupportedError("tangent of another type", f"{met} for results {wanted}: {error}") from error
            raise
        except Exception as error:
            run = error
        own = flat if stage.is_flat(key) else None
        if isinstance(run, Exception) or stage.selective:
            return self._run_for_asked(stage, key, trained, run, ctx, whole, own)
        return run(ctx, whole) if own is None else run(ctx, own, whole)

    def _backward_telling(self, stage: Stage, key: Key, trained: Trained, ctx: Any) -> Callable[..., Any]:
        """The same as ``_backward``, for now: see Note [Zeros that arrive]."""
        try:
            found = self._backward(stage, key, trained)
            leaving = _leaving_zeros(stage, key, ctx)
            if leaving is None:
                return found
        except (UnsupportedError, RetraceWithCaptured):
            raise
        except Exception:
            leaving = _leaving_zeros(stage, key, ctx)
            if leaving is None:
                raise
        finally:
            for other, arrivals in _told_of_zeros(stage, key, ctx):
                arriving_zeros.tell(other, _torch.backward_number(), arrivals)
        return self._backward_telling(leaving, key, trained, ctx)

    def _backward(self, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
        found = stage.backwards.get((key, trained))
        if found is None:
            # What was traced already and only computes is cut from the trace, without a look at replicas.
            traced = stage.traces.get(key) if trained is None and not stage.of_other_kinds else None
            is_cut = traced is not None and not (traced.written or traced.reshaped)
            with self.alone() if is_cut else self.rearmed(), autocast_as(stage.autocast):
                found = stage.backwards.get((key, trained))
                if found is None:
                    if trained is None:
                        found = self.graphs.backward(stage, key)
                    else:
                        found = self._differentiable(stage, key, trained)
                    stage.backwards[key, trained] = found
        return found

    def _differentiable(self, stage: Stage, key: Key, trained: tuple[bool, ...]) -> Callable[..., Any]:
        capture = self.capture
        attached = [a.tensor for a in capture.record.attached]
        capture.ended.lose_histories([*attached, *[c.tensor for c in capture.cuts], *[t for _, t in capture.visible]])
        run = differentiable(self, stage, key, trained)
        return run if stage.is_flat(key) else functools.partial(self._run_each, stage, key, trained, run)

    def _run_each(
        self, stage: Stage, key: Key, trained: tuple[bool, ...], run: Callable[..., Any], ctx: Any, g: Sequence[Any]
    ) -> Any:
        """Run a differentiable backward one by one for what stands for several gradients at once.

        An autograd Function cannot attach such.
        """
        several = [k for k, t in enumerate(g) if t is not None and _torch.is_batched(t)]
        if not several:
            return run(ctx, g)
        parts = [_torch.unbatched(t) if k in several else t for k, t in enumerate(g)]
        known = tuple([t is not None and t.requires_grad for t in parts])
        run = self._backward(stage, key, (*known, *trained[len(g) :]))
        with torch.enable_grad():
            found = [
                run(ctx, [t[n] if t is not None and k in several else t for k, t in enumerate(parts)])
                for n in range(len(parts[several[0]]))
            ]
            together = [None if each[0] is None else torch.stack(each) for each in zip(*found, strict=True)]
        return tuple([None if t is None else _torch.batched(t) for t in together])


def _runs_whole(whole: Callable[..., Any] | Exception) -> list[Callable[..., Any]]:
    """What runs the ``whole`` backward, or raises that, for who takes it out of the list."""
    return [functools.partial(_raise_once, [whole]) if isinstance(whole, Exception) else whole]


def _raise_once(error: list[Exception], *_: Any) -> Any:
    raise error.pop()


def _told_of_zeros(stage: Stage, key: Key, ctx: Any) -> list[tuple[Any, Sequence[arriving_zeros.Arrival]]]:
    """The contexts of the stages before that of ``ctx``, and what is common to the call, with the zeros that arrive."""
    return [*zip(ctx.kept[1], stage.arriving.get(key, ()), strict=False)]


def _leaving_zeros(stage: Stage, key: Key, ctx: Any) -> Stage | None:
    """The variant of ``stage`` that leaves the zeros that arrive to the others of the call; None if not all run."""
    others = _told_of_zeros(stage, key, ctx)[: len(stage.before)]
    without = stage.without_arriving(key)
    if without is stage or not all(_torch.will_run(other) for other, arrivals in others if arrivals):
        return None
    return without


_NONE = type(None)


def _reached_from(stage: Stage, nodes: Sequence[Any]) -> tuple[int, ...]:
    """The targets of ``stage`` to which ``nodes`` lead, by their places among those reached."""
    there = nodes_behind(nodes, set(stage.ends))
    reached = [{e.node for e in stage.targets[k].edges} for k in stage.reached]
    return tuple([n for n, arrivals in enumerate(reached) if arrivals & there])
