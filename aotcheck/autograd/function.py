"""A compiled function as its caller holds it: finds or makes the specialization of each call, falls back honestly."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from aotcheck import _torch
from aotcheck.autograd.assemble import Assembly, StrideCorrection
from aotcheck.autograd.calls.bound import bindable
from aotcheck.autograd.calls.closure_modules import ClosureModules
from aotcheck.autograd.calls.containers import (
    ContainerResult,
    ResultShape,
    Structure,
    containers_in,
    flattened,
    has_tensor_keys,
    structure_of,
)
from aotcheck.autograd.calls.kept import Kept
from aotcheck.autograd.calls.left_in_place import left_in_place, stand_in
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.original import Outcome, UserError, run_original
from aotcheck.autograd.calls.places import Reached
from aotcheck.autograd.calls.specialize import (
    PLAIN_LEAVES,
    call_key,
    callable_key,
    check_supported,
    fast_guard,
    foreign_overlaps,
)
from aotcheck.autograd.calls.surroundings import Surroundings
from aotcheck.autograd.config import OnUnsupported, config
from aotcheck.autograd.counters import count_compiled, count_refused, count_user_error, tell
from aotcheck.autograd.eager_graph.saved import Compiling
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import (
    EXPECTATION,
    OTHER_FORMULA,
    BindingNeeded,
    EagerRaises,
    InternalError,
    Retrace,
    RetraceApart,
    RetraceWithAttributes,
    RetraceWithCallerGraph,
    RetraceWithCaptured,
    RetraceWithCasts,
    RetraceWithGradients,
    RetraceWithValues,
    RunsAsItIs,
    RunsThisOnce,
    SchemaError,
    TraceMode,
    UnsupportedError,
)
from aotcheck.autograd.graphs.compile_graph import Compilers
from aotcheck.autograd.graphs.failing import GraphFailed
from aotcheck.autograd.graphs.first_run import learn_of_failed
from aotcheck.autograd.record.steps import BaseOf, PointAt, TakeHistory
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.replicas.replicas import LOOKS_UP, disarm
from aotcheck.autograd.state.autocast import autocast_state
from aotcheck.autograd.state.global_state import AutocastOff
from aotcheck.autograd.state.gradients import gradients_of
from aotcheck.autograd.tensors.captured import Path, locate, read
from aotcheck.autograd.tensors.subclasses import WrapperArgument, expand, held_by, is_wrapper, tells_lengths
from aotcheck.autograd.tracing.cached_casts import CachedCast, casts_of, in_region
from aotcheck.autograd.tracing.caller_graph import CallerGraph, caller_graph

pytree = _torch.pytree

_MAX_RETRACES = 64


@dataclasses.dataclass
class Specialization:
    """The code for one key, or why there is none."""

    assembly: Assembly | None
    refusal: UnsupportedError | None = None
    guard: Callable[[Sequence[Any]], bool] | None = None
    called: bool = False
    result: ContainerResult | None = None
    assignments: tuple[Callable[[], None], ...] = ()
    left: tuple[Kept, ...] = ()  # by the trace, until that is over


@dataclasses.dataclass(frozen=True)
class Split:
    """What the arguments of a trace are: ``explicit`` ones, those the function reaches by itself, perhaps the gradients
    of both, all in all ``passed``, what autocast's cache holds of some (``casts``), and then those that wrappers among
    them stand for. ``caller`` is what lies behind them where the function is known to call a backward. What the
    arguments ``valued`` hold is part of the key, and so are the ``formulas`` of backwards inside.
    """

    explicit: int
    passed: int
    with_gradients: bool
    wrappers: tuple[WrapperArgument, ...]
    caller: CallerGraph | None
    casts: tuple[CachedCast, ...] = ()
    valued: tuple[int, ...] = ()
    formulas: tuple[bool, ...] = ()

    @property
    def own(self) -> int:
        """How many come before gradients and what wrappers stand for."""
        return self.passed // 2 if self.with_gradients else self.passed


def _other_formulas(failed: GraphFailed) -> tuple[bool, ...] | None:
    """The formulas that data ask for where a graph found that it was made with others."""
    _, found, rest = str(failed.__cause__).partition(OTHER_FORMULA)
    asked = rest.partition(".")[0].rstrip("1")  # what is not said is division
    return tuple([c == "1" for c in asked]) if found else None


def _views_among(arguments: Sequence[Any]) -> tuple[bool, ...]:
    """Which are views: a view of such a one holds its base, of another it holds that."""
    return tuple([isinstance(a, Tensor) and _torch.base_of(a) is not None for a in arguments])


@dataclasses.dataclass(frozen=True)
class _Assigning:
    """What a call runs and assigns afterwards."""

    assembly: Assembly
    assignments: tuple[Callable[[], None], ...]

    def call(self, flat: Sequence[Any]) -> Any:
        result = self.assembly.call(flat)
        for assign in self.assignments:
            assign()
        return result


def _nothing() -> None:
    pass


def _call(original: Callable[..., Any], _: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
    return original(*args, **kwargs)


@contextlib.contextmanager
def _undoing(around: weakref.ref[Surroundings], lock: threading.RLock) -> Iterator[None]:
    """What is done inside ``around`` a function is undone, unless another thread traces the function."""
    there = around()
    if there is None or not lock.acquire(blocking=False):
        yield
        return
    try:
        with there.undoing():
            yield
    finally:
        lock.release()


class _Each:
    """Gives the first ``count`` results to one function and the others to another."""

    def __init__(
        self, count: int, first: Callable[[Sequence[Any]], None], second: Callable[[Sequence[Any]], None]
    ) -> None:
        self._count, self._first, self._second = count, first, second

    def __call__(self, flat: Sequence[Any]) -> None:
        self._first(flat[: self._count])
        self._second(flat[self._count :])


class _RunsAsItIs(Exception):
    """What there is around the function cannot be part of a key."""


def _is_observed() -> bool:
    """Whether something around the call, of this thread, is to see each op of the function."""
    modes = _torch.dispatch_mode_depth() or _torch.function_modes_active()
    return bool(modes or _torch.functorch_active() or _torch.dual_level() >= 0 or _torch.jit_tracing())


class CompiledFunction:
    """Calls ``original`` through compiled code; one specialization per key, the least recently used evicted.

    Thread-safe. ``on_unsupported`` is what this entry point does by default where the configuration does not say.
    """

    def __init__(
        self, original: Callable[..., Any], compilers: Compilers, on_unsupported: OnUnsupported = OnUnsupported.RAISE
    ) -> None:
        if not isinstance(original, torch.nn.Module):
            functools.update_wrapper(self, original, updated=())  # named and called as the original is
        self.original = original
        self.compilers = compilers
        self.on_unsupported = OnUnsupported(on_unsupported)
        self.state = ModuleState(original) if isinstance(original, torch.nn.Module) else None
        self._around: Surroundings | None = None  # known when it is first called
        self._undo: Callable[[], None] = _nothing  # what a trace has changed of what is around the function
        self._modules: ClosureModules | None = None
        self._paths: list[Path] = []
        self._cache: OrderedDict[Any, Specialization] = OrderedDict()
        self._last: tuple[int, Callable[[Sequence[Any]], bool], Assembly | _Assigning] | None = None
        self._lock = threading.RLock()
        self._made = 0
        self._gradients = False  # whether the gradients of arguments are arguments too
        # By structure of the call and autocast: the arguments that it casts, and to what; those that others cast alike.
        self._casts: dict[Any, dict[int, torch.dtype]] = {}
        self._not_cast: dict[Any, frozenset[int]] = {}
        self._valued: dict[Any, frozenset[int]] = {}  # see Note [Values in the key]
        self._formulas: dict[Any, tuple[bool, ...]] = {}  # that data asked for last: see Note [Formulas for data]
        self._apart: dict[Any, frozenset[str]] = {}  # see Note [Functions cut off]
        self._backwards = False  # whether the function is known to call backwards
        self._swaps = False  # whether it is known to swap arguments, which asks whether views of them are held
        self._bound: frozenset[int] = frozenset()  # the arguments, by id, that are among the function's surroundings
        self._for_callables: OrderedDict[Any, CompiledFunction] = OrderedDict()
        self._hooks = False  # whether saved-tensor hooks are in force around the call being traced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original through the code for these arguments."""
        last = self._last
        if last is not None and not kwargs and len(args) == last[0]:
            flat: Sequence[Any] = args
            if self.state is not None or self._paths or self._gradients:
                flat = self._passed(args)
            if last[1](flat):
                try:
                    return last[2].call(flat)
                except GraphFailed as failed:
                    instead = functools.partial(self._reproduce, args, kwargs, failed)
                try:
                    return instead()
                finally:
                    del instead
        return self._look_up(args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """A copy compiles for itself: the code is for what the original holds."""
        return CompiledFunction(copy.deepcopy(self.original, memo), self.compilers, self.on_unsupported)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledFunction, (self.original, self.compilers, self.on_unsupported)

    # -- slow path

    def prepare(self, args: tuple[Any, ...]) -> None:
        """Compile for calls like this one, without running. What cannot be compiled shows at the call."""
        flat, spec, _ = self._flatten(args, {})
        with contextlib.suppress(UnsupportedError, UserError, _RunsAsItIs):
            self._find(flat, spec)

    def _look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _is_observed() or (_torch.parametrizations_are_cached() and self._has_parametrizations()):
            return self.original(*args, **kwargs)
        if self.state is not None and self.state.is_lazy:
            result = self.original(*args, **kwargs)
            self.state.refresh()
            return result
        flat, spec, containers = self._flatten(args, kwargs)
        if type(spec) is not int and (bound := self._to_bind(flat, containers, kwargs, spec.classes)):
            return self._with(bound)._look_up(args, kwargs)
        for _ in range(_MAX_RETRACES):
            # The original is run when what was met is no exception being handled any more, nor held by this frame.
            instead: Callable[[], Any] | None = None
            try:
                key, whole, found = self._find(flat, spec)
            except BindingNeeded as error:
                bound = [containers[k] for k in error.places]
                instead = functools.partial(self._with(bound)._look_up, args, kwargs)
            except UnsupportedError as error:
                instead = functools.partial(self._refuse, error, args, kwargs)
            except UserError as error:
                instead = functools.partial(self._reproduce, args, kwargs, error)
            except _RunsAsItIs:
                self._last = None
                instead = functools.partial(self.original, *args, **kwargs)
            if instead is not None:
                try:
                    return instead()
                finally:
                    del instead
            assert found.assembly is not None
            self._remember(found, flat, whole, spec, key[2])
            try:
                before = None if found.result is None else found.result.before(containers)
                result = found.assembly.call(whole)
                for assign in found.assignments:
                    assign()
                return result if found.result is None or before is None else found.result.finish(before, result)
            except StrideCorrection:
                with self._lock:
                    self._cache.pop(key, None)
                    self._last = None
            except GraphFailed as failed:
                asked = _other_formulas(failed)
                if asked is None:
                    instead = functools.partial(self._reproduce, args, kwargs, failed)
                else:
                    with self._lock:
                        self._formulas[spec, len(flat)] = asked
            if instead is not None:
                try:
                    return instead()
                finally:
                    del instead
        raise InternalError("the strides of the function's results could not be settled")

    def _to_bind(
        self, flat: Sequence[Any], containers: Sequence[Any], kwargs: dict[str, Any], classes: frozenset[type]
    ) -> list[Any]:
        """The arguments of a call that are to be bound, see Note [Bound arguments], and are not yet.

        What methods of ``classes`` find around them is looked at from now on.
        """
        found = bindable(flat, self._bound)
        if classes or len(containers) > 1 or (containers and containers[0] is not kwargs):
            with self._lock:
                around = self._surroundings()
                around.include(classes)
                found += [c for c in containers if around.reaches(c)]
        return found

    def _with(self, callables: list[Any]) -> CompiledFunction:
        """Compiles this function for calls with such arguments: see Note [Bound arguments]."""
        key = tuple(map(callable_key, callables))
        with self._lock:
            known = self._for_callables.get(key)
            if known is None:
                function = functools.partial(_call, self.original, tuple(callables))
                known = CompiledFunction(function, self.compilers, self.on_unsupported)
                known._bound = self._bound.union(map(id, callables))  # which it keeps
                if self.state is not None:
                    known.state = ModuleState(self.state.module)
                self._for_callables[key] = known
                while len(self._for_callables) > config().cache_size:
                    self._for_callables.popitem(last=False)
            else:
                self._for_callables.move_to_end(key)
            return known

    def _find(self, flat: list[Any], spec: Any) -> tuple[Any, list[Any], Specialization]:
        """The key of these arguments, all arguments, implicit ones last, and their specialization, made if need be."""
        with self._lock:  # while another thread traces, modules hold replicas
            try:
                return self._find_alone(flat, spec)
            finally:
                self._undo = _nothing  # and let go of what there was before a trace

    def _find_alone(self, flat: list[Any], spec: Any) -> tuple[Any, list[Any], Specialization]:
        if self.state is not None:
            self.state.refresh()
        for _ in range(_MAX_RETRACES):
            around = self._surroundings()
            if around.unsettled:
                raise _RunsAsItIs
            number = around.last_number if around.anything else None
            passed = self._passed(flat)
            structure = spec, len(flat)
            region = (structure, autocast_state()) if in_region() else None
            casts, which = ([], ()) if region is None else casts_of(passed, self._casts.get(region, {}))
            whole, wrappers = expand([*passed, *casts])
            caller = caller_graph(whole) if self._backwards else None
            valued = [k for k in self._valued.get(structure, ()) if k < len(whole) and tells_lengths(whole[k])]
            formulas = self._formulas.get(structure, ())
            split = Split(
                len(flat), len(passed), self._gradients, wrappers, caller, which, tuple(sorted(valued)), formulas
            )
            check_supported(whole, self._bound)
            values = tuple([(k, *whole[k].tolist()) for k in split.valued])
            views = _views_among(whole) if self._swaps else None
            key = (spec, len(flat), number, call_key(whole), caller, values, views, formulas)
            found = self._cache.get(key)
            if found is None:
                before = around.before_trace()
                if around.unsettled:
                    raise _RunsAsItIs
                self._undo = functools.partial(around.undo, before)
                try:
                    self._hooks = _torch.has_saved_tensor_hooks()
                    with _torch.WithoutSavedTensorHooks(), _torch.WithoutCompiledAutograd():
                        found = self._specialize(key, split, whole, spec)
                    changes = around.after_trace(before, (key[0], key[3]), found.left, whole)
                    found.left = ()
                    if around.kept:
                        self._cache.pop(key, None)
                        raise _RunsAsItIs
                    found.assignments = changes.assignments
                    if found.assembly is not None:
                        undoing = functools.partial(_undoing, weakref.ref(around), self._lock)
                        found.assembly.capture.backward.undoing = undoing
                    if changes.number is not None:
                        key = (spec, len(flat), changes.number if around.anything else None, *key[3:])
                        self._store(key, found)
                    if around.drawn:
                        raise _RunsAsItIs
                except RunsThisOnce as met:
                    around.count_kept()
                    raise _RunsAsItIs from met
                except RunsAsItIs as met:
                    around.settle_for_eager(met.detail)
                    raise _RunsAsItIs from met
                except RetraceWithCaptured as needed:
                    for tensor in needed.args:
                        self._capture_more(tensor)
                    continue
                except RetraceWithGradients:
                    self._gradients, self._last = True, None
                    continue
                except RetraceWithValues as needed:
                    self._valued[structure] = self._valued.get(structure, frozenset()) | needed.indices
                    continue
                except RetraceApart as needed:
                    self._apart[structure] = self._apart.get(structure, frozenset()) | needed.args[0]
                    continue
                except RetraceWithCasts as needed:
                    self._casts[region] = {**needed.args[0], **self._casts.get(region, {})}
                    continue
                except RetraceWithCallerGraph:
                    self._backwards, self._last = True, None
                    continue
                except RetraceWithAttributes:
                    assert self.state is not None
                    self.state.refresh()
                    self._last = None
                    continue
            else:
                self._cache.move_to_end(key)
            if found.refusal is not None:
                if isinstance(found.refusal, BindingNeeded):
                    raise BindingNeeded(found.refusal.places)
                raise UnsupportedError(found.refusal.reason, found.refusal.detail)
            return key, whole, found
        raise UnsupportedError(
            "captured tensor", f"the function reaches more than {_MAX_RETRACES} tensors outside its arguments"
        )

    def _has_parametrizations(self) -> bool:
        """Whether the function calls modules that compute parameters."""
        with self._lock:
            return any(map(is_parametrized, self._surroundings().all_modules))

    def _surroundings(self) -> Surroundings:
        """What tells what there is around the function."""
        around = self._around
        if around is None:
            around = self._around = Surroundings(self.original)
        else:
            around.number()
        if self.state is None and (self._modules is None or around.modules != self._modules.numbers):
            # Nor are the tensors there that were found in others.
            self._modules = ClosureModules(self.original, around.modules, around.all_modules)
            self._paths, self._last = [], None
            self._cache.clear()
        return around

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, list[Any]]:
        """The leaves of the arguments, their structure, a number where there is none, and their containers."""
        if not kwargs and all(type(a) in PLAIN_LEAVES for a in args):
            return list(args), len(args), []
        bound = self._bound
        flat, spec = flattened((args, kwargs), (lambda x: id(x) in bound) if bound else None)
        classes: set[type] = set()
        containers = containers_in((args, kwargs), bound, classes)
        return flat, structure_of(spec, containers, bound, frozenset(classes)), containers

    def _passed(self, flat: Sequence[Any]) -> list[Any]:
        """All arguments of a call: its own, those of the module or the closure, and perhaps the gradients of both."""
        state = self.state.tensors() if self.state is not None else ()
        whole = [*flat, *state, *[read(p) for p in self._paths]]
        return [*whole, *gradients_of(whole)] if self._gradients else whole

    def _remember(
        self, found: Specialization, flat: Sequence[Any], whole: Sequence[Any], spec: Any, number: int | None
    ) -> None:
        """Let the next call try this specialization's fast guard first; ``number`` of what there was around it."""
        if not found.called:  # a guard is worth making for what is called again
            found.called, self._last = True, None
            return
        asks = self._backwards or self._swaps  # for more than a guard looks at
        if found.guard is None and type(spec) is int and found.assembly is not None and not asks and not found.result:
            record = found.assembly.record
            # What holds a tensor that is swapped depends on whether it is a view, too.
            writes = bool(record.swapped) or any(isinstance(s, (TakeHistory, PointAt)) for s in record.steps)
            around = None if number is None or self._around is None else (self._around.number, number)
            based = any(isinstance(r.source, BaseOf) for r in record.roots)
            if not (found.assembly.capture.mode.with_bases or based):
                capture = found.assembly.capture
                sizes = bool(record.flats) or capture.maker.kernels.sizes_matter
                shares = bool(record.written_placeholders)
                found.guard = fast_guard(whole, writes, sizes, shares, around)
        self._last = None  # another guard may count on as many tensors as there were around the function then
        if found.guard is not None and found.assembly is not None:
            runs = _Assigning(found.assembly, found.assignments) if found.assignments else found.assembly
            self._last = (len(flat), found.guard, runs)

    # -- making one

    def _specialize(self, key: Any, split: Split, whole: Sequence[Any], spec: Any) -> Specialization:
        reassigned: list[tuple[int, Any]] = []
        try:
            with Compiling():
                with _torch.WithoutDynamo():
                    capture, outcome = self._capture(whole, split, spec, reassigned)
                shape = self._shape_of(outcome)
                try:
                    leaves = bool(outcome.left or reassigned)
                    as_left = self._as_left(capture, outcome, reassigned) if leaves else contextlib.nullcontext()
                    with AutocastOff(), as_left:
                        assembly = Assembly(capture, self.compilers, shape.expression)
                finally:
                    disarm(capture.maker.kernels)
            if assembly.record.written_placeholders and (shared := foreign_overlaps(whole)):
                raise UnsupportedError("storages that share memory", f"arguments {shared} lie in memory of others")
        except (RetraceWithValues, RunsAsItIs):
            self._undo()
            raise
        except UnsupportedError as error:
            made = Specialization(None, refusal=error)
            self._store(key, made)
            return made
        except BaseException:
            self._undo()
            raise
        count_compiled()
        if assembly.record.swapped:
            self._swaps, self._last = True, None
        made = Specialization(assembly, result=outcome.containers, left=outcome.left)
        self._store(key, made)
        return made

    @contextlib.contextmanager
    def _as_left(self, capture: Capture, outcome: Outcome, reassigned: Sequence[tuple[int, Any]]) -> Iterator[None]:
        """Backwards find what the call leaves around it: see Note [What backwards find around them]."""
        backward, before = capture.backward, capture.backward.swapping
        slots = {k: stand_in() for k, value in reassigned if isinstance(value, Tensor)}
        made = {id(t): t for t in slots.values()}
        if self.state is not None and slots:
            backward.swapping = self.state.swapping_too(before, slots)
        backward.not_used = made
        try:
            with left_in_place(outcome.left, made):
                yield
        finally:
            backward.swapping, backward.not_used = before, {}

    def _shape_of(self, outcome: Outcome) -> ResultShape:
        spec = None if outcome.containers else outcome.spec
        assign: list[Callable[[Sequence[Any]], None]] = []
        tail = len(outcome.slots)
        if outcome.slots and self.state is not None:
            assign.append(functools.partial(self.state.assign, outcome.slots))
        if outcome.kept is not None and (outcome.containers is None or outcome.containers.keep is None):
            assign.append(outcome.kept)
            tail += outcome.kept.count
        return ResultShape(spec, tail, _Each(len(outcome.slots), *assign) if len(assign) > 1 else (*assign, None)[0])

    def _capture(
        self, whole: Sequence[Any], split: Split, spec: Any, reassigned: list[tuple[int, Any]]
    ) -> tuple[Capture, Outcome]:
        mode = TraceMode()
        first = split.explicit + (len(self.state.slots) if self.state is not None else 0)
        captured = [(whole[i], i) for i in range(first, len(whole))]
        asking = self._around.asking_types if self._around is not None else ()
        reached = self._around.reached if self._around is not None else Reached()
        keyed = self._around is not None and self._around.keyed
        keyed |= isinstance(spec, Structure) and has_tensor_keys(spec.spec)
        retraces = False
        while True:
            if retraces:
                self._undo()
                reassigned.clear()
            retraces = True
            together = self.compilers.partition is not None
            gradients = split.own if split.with_gradients else None
            region = (spec, split.explicit), autocast_state()
            asked = frozenset(self._casts.get(region, ())) | self._not_cast.get(region, frozenset())
            asked |= frozenset(range(split.own, len(whole)))
            values = {k: whole[k].detach().clone() for k in split.valued}
            capture = Capture(
                whole,
                mode,
                together,
                self._hooks,
                gradients,
                split.wrappers,
                split.caller,
                split.casts,
                asked,
                values,
                split.formulas,
                self._apart.get((spec, split.explicit), ()),
            )

            kernels = capture.maker.kernels
            kernels.tensors_are_keys = keyed  # see Note [Tensors as keys]

            def program(replicas: Sequence[Any], kernels: KernelState = kernels) -> tuple[list[Any], int, Outcome]:
                try:
                    ran = run_original(
                        self.original, self.state, asking, replicas[:first], split.explicit, spec, reassigned, reached
                    )
                    if kernels.looked_up:
                        raise RunsAsItIs("kept tensor", LOOKS_UP)
                    return ran
                except BaseException as error:
                    self._undo()
                    if kernels.looked_up and not isinstance(error, RunsAsItIs):
                        raise RunsAsItIs("kept tensor", LOOKS_UP) from error
                    raise
                finally:
                    kernels.tensors_are_keys = False

            if self.state is not None:
                capture.backward.swapping = self.state.swapping(capture.inputs.flat[split.explicit : first])
            try:
                outcome = capture.run(program, captured, split.own)
                looked_at, kernels.looked_at = kernels.looked_at, {}
                if within_reach := [t for t in looked_at.values() if self._way_to(t) is not None]:
                    raise RetraceWithCaptured(*within_reach)  # their geometry is to be part of the key
                if capture.casts is not None and (unused := capture.casts.unused):
                    self._not_cast[region] = self._not_cast.get(region, frozenset()) | unused
                    self._casts[region] = {k: to for k, to in self._casts[region].items() if k not in unused}
                return capture, outcome
            except Retrace as needed:
                if needed.mode == mode:
                    raise InternalError(f"a trace asked for its own mode {mode}") from None
                disarm(capture.maker.kernels)
                mode = needed.mode
            except UnsupportedError:
                disarm(capture.maker.kernels)
                if not mode.tries_custom_views:
                    raise
                mode = TraceMode(custom_views_tried=True)
            except UserError:
                disarm(capture.maker.kernels)
                if learn_of_failed(capture.tracer.trace, capture.tracer.keys):
                    continue
                if mode.with_bases or not capture.has_views:
                    raise
                mode = dataclasses.replace(mode, with_bases=True)  # of a view eager may not have raised
            except EagerRaises as raises:
                disarm(capture.maker.kernels)
                raise UserError from raises
            except Exception:
                disarm(capture.maker.kernels)
                raise

    def _capture_more(self, tensor: Tensor) -> None:
        if self.state is not None and self.state.adopt(tensor):
            self._last = None
            return
        paths = self._way_to(tensor)
        if paths is None and is_wrapper(tensor):
            for _, held in held_by(tensor)[0]:
                self._capture_more(held)
            return
        if paths is None:
            raise UnsupportedError(
                "captured tensor",
                "the function uses a tensor that is no argument and cannot be reached from its closure",
            )
        self._paths += paths
        self._last = None

    def _way_to(self, tensor: Tensor) -> list[Path] | None:
        """How to read the tensor, and with it all that a model has that it is of; None if it is nowhere."""
        if paths := self._modules.state_with(tensor) if self._modules is not None else []:
            return paths
        path = self._around.path_to(tensor) if self._around is not None else None
        if path is None:
            path = locate(self.original, tensor) if self.state is None else self.state.locate(tensor)
        return None if path is None else [path]

    def _store(self, key: Any, made: Specialization) -> None:
        self._cache[key] = made
        self._made += 1
        settings = config()
        if self._made == settings.recompile_warning:
            name = getattr(self.original, "__name__", type(self.original).__name__)
            tell(f"aotcheck has specialized {name} {self._made} times; do its arguments change on every call?")
        while len(self._cache) > settings.cache_size:
            self._cache.popitem(last=False)

    # -- falling back

    def _refuse(self, error: UnsupportedError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        policy = config().on_unsupported or self.on_unsupported
        count_refused(error.reason, error.detail, warn=policy is OnUnsupported.EAGER)
        if policy is OnUnsupported.RAISE:
            raise error
        return self.original(*args, **kwargs)

    def _reproduce(self, args: tuple[Any, ...], kwargs: dict[str, Any], failed: GraphFailed | UserError) -> Any:
        """The program raised when traced, or its graph when run: the original raises the same on the real inputs."""
        cause = failed.__cause__
        if isinstance(cause, SchemaError):
            raise cause
        if isinstance(cause, UnsupportedError):
            return self._refuse(cause, args, kwargs)
        try:
            result = self.original(*args, **kwargs)
        except Exception:
            count_user_error()
            raise
        if EXPECTATION in str(cause):
            count_refused("data-dependent", str(cause), warn=True)
        else:
            line = next(iter(str(cause).splitlines()), "")
            said = f"{type(cause).__name__}: {line}" if line else type(cause).__name__
            count_refused("error only when compiled", said, warn=True, each_detail=True)
        return result
