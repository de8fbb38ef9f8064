"""Tracing a call until the trace comes to its end, in one mode or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from aotcheck.autograd.calls.containers import Structure, has_tensor_keys
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.original import Outcome, UserError, run_original
from aotcheck.autograd.calls.surroundings import Surroundings
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import (
    EagerRaises,
    InternalError,
    Retrace,
    RetraceWithCaptured,
    RunsAsItIs,
    TraceMode,
    UnsupportedError,
)
from aotcheck.autograd.graphs.first_run import learn_of_failed
from aotcheck.autograd.ops import layouts
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.replicas.replicas import LOOKS_UP, disarm
from aotcheck.autograd.specializing.implicit import Implicit
from aotcheck.autograd.specializing.needs import Needs
from aotcheck.autograd.state.autocast import autocast_state
from aotcheck.autograd.tensors.subclasses import WrapperArgument
from aotcheck.autograd.tracing.cached_casts import CachedCast
from aotcheck.autograd.tracing.caller_graph import CallerGraph


@dataclasses.dataclass(frozen=True)
class Split:
    """What the arguments of a trace are: ``explicit`` ones, those the function reaches by itself, perhaps the gradients
    of both, all in all ``passed``, what autocast's cache holds of some (``casts``), and then those that wrappers among
    them stand for. ``caller`` is what lies behind them where the function is known to call a backward. What the
    arguments ``valued`` hold is part of the key, and so are the ``formulas`` of backwards inside. ``counts_apart``:
    see Note [Counting together].
    """

    explicit: int
    passed: int
    with_gradients: bool
    wrappers: tuple[WrapperArgument, ...]
    caller: CallerGraph | None
    casts: tuple[CachedCast, ...] = ()
    valued: tuple[int, ...] = ()
    formulas: tuple[bool, ...] = ()
    counts_apart: bool = True

    @property
    def own(self) -> int:
        """How many come before gradients and what wrappers stand for."""
        return self.passed // 2 if self.with_gradients else self.passed


@dataclasses.dataclass(frozen=True)
class Captures:
    """Traces calls of ``original``, a module with a ``state`` or none; ``together`` as in :class:`Capture`."""

    original: Callable[..., Any]
    state: ModuleState | None
    together: bool
    implicit: Implicit
    needs: Needs

    def capture(
        self,
        whole: Sequence[Any],
        split: Split,
        spec: Any,
        around: Surroundings,
        hooks: bool,
        undo: Callable[[], None],
        reassigned: list[tuple[int, Any]],
    ) -> tuple[Capture, Outcome]:
        """The trace of a call with the arguments ``whole``, laid out as ``spec`` says, and how its result is made.

        ``hooks``: saved-tensor hooks are in force. ``undo`` takes back what a trace has changed ``around`` the
        function; ``reassigned`` is to hold which slots of the state it assigned, and what.

        Raises what a trace raises that cannot come to its end.
        """
        mode = TraceMode()
        first = split.explicit + (len(self.state.slots) if self.state is not None else 0)
        captured = [(whole[i], i) for i in range(first, len(whole))]
        keyed = around.keyed or (isinstance(spec, Structure) and has_tensor_keys(spec.spec))
        reached, asking_types = around.reached, around.asking_types
        structure = spec, split.explicit
        gradients = split.own if split.with_gradients else None
        retraces = asks_layouts = False
        while True:
            if retraces:
                undo()
                reassigned.clear()
            retraces = True
            region = structure, autocast_state()
            asked = self.needs.asked_to_cast(region).union(range(split.own, len(whole)))
            capture = Capture(
                whole,
                mode,
                self.together,
                hooks,
                gradients,
                split.wrappers,
                split.caller,
                split.casts,
                asked,
                {k: whole[k].detach().clone() for k in split.valued},
                split.formulas,
                self.needs.apart(structure),
                split.counts_apart,
            )
            capture.tracer.asks_layouts = asks_layouts
            kernels = capture.maker.kernels
            kernels.tensors_are_keys = keyed  # see Note [Tensors as keys]

            def program(replicas: Sequence[Any], kernels: KernelState = kernels) -> tuple[list[Any], int, Outcome]:
                try:
                    ran = run_original(
                        self.original,
                        self.state,
                        asking_types,
                        replicas[:first],
                        split.explicit,
                        spec,
                        reassigned,
                        reached,
                    )
                    if kernels.looked_up:
                        raise RunsAsItIs("kept tensor", LOOKS_UP)
                    return ran
                except BaseException as error:
                    undo()
                    if kernels.looked_up and not isinstance(error, RunsAsItIs):
                        raise RunsAsItIs("kept tensor", LOOKS_UP) from error
                    raise
                finally:
                    kernels.tensors_are_keys = False

            if self.state is not None:
                capture.backward.swapping = self.state.swapping(capture.inputs.flat[split.explicit : first])
            try:
                outcome = capture.run(program, captured, split.own)
                if not asks_layouts and layouts.matter(capture.tracer):
                    asks_layouts = True
                    disarm(kernels)
                    continue
                looked_at, kernels.looked_at = kernels.looked_at, {}
                if within_reach := [t for t in looked_at.values() if self.implicit.way_to(t, around) is not None]:
                    raise RetraceWithCaptured(*within_reach)  # their geometry is to be part of the key
                if capture.casts is not None and (unused := capture.casts.unused):
                    self.needs.note_not_cast(region, unused)
                return capture, outcome
            except Retrace as needed:
                if needed.mode == mode:
                    raise InternalError(f"a trace asked for its own mode {mode}") from None
                disarm(kernels)
                mode = needed.mode
            except UnsupportedError:
                disarm(kernels)
                if not mode.tries_custom_views:
                    raise
                mode = TraceMode(custom_views_tried=True)
            except UserError:
                disarm(kernels)
                if learn_of_failed(capture.tracer.trace, capture.tracer.keys):
                    continue
                if mode.with_bases or not capture.has_views:
                    raise
                mode = dataclasses.replace(mode, with_bases=True)  # of a view eager may not have raised
            except EagerRaises as raises:
                disarm(kernels)
                raise UserError from raises
            except Exception:
                disarm(kernels)
                raise
