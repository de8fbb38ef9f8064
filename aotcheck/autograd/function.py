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
from aotcheck.autograd.calls.containers import containers_in, flattened, structure_of
from aotcheck.autograd.calls.left_in_place import left_in_place, stand_in
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.original import Outcome, UserError
from aotcheck.autograd.calls.specialize import PLAIN_LEAVES, call_key, callable_key, check_supported, foreign_overlaps
from aotcheck.autograd.calls.surroundings import Surroundings
from aotcheck.autograd.config import OnUnsupported, config
from aotcheck.autograd.counters import count_compiled, tell
from aotcheck.autograd.eager_graph.saved import Compiling
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import (
    BindingNeeded,
    InternalError,
    RetraceWithAttributes,
    RetraceWithCaptured,
    RetraceWithValues,
    RunsAsItIs,
    RunsThisOnce,
    UnsupportedError,
)
from aotcheck.autograd.graphs.compile_graph import Compilers
from aotcheck.autograd.graphs.failing import GraphFailed
from aotcheck.autograd.replicas.replicas import disarm
from aotcheck.autograd.specializing.captures import Captures, Split
from aotcheck.autograd.specializing.fallback import Fallback, other_formulas
from aotcheck.autograd.specializing.implicit import Implicit
from aotcheck.autograd.specializing.needs import NEEDS, Needs
from aotcheck.autograd.specializing.specialization import Assigning, Specialization, shape_of
from aotcheck.autograd.state.autocast import autocast_state
from aotcheck.autograd.state.global_state import AutocastOff
from aotcheck.autograd.tensors.subclasses import expand, tells_lengths
from aotcheck.autograd.tracing.cached_casts import casts_of, in_region
from aotcheck.autograd.tracing.caller_graph import caller_graph

pytree = _torch.pytree

_MAX_RETRACES = 64


def _views_among(arguments: Sequence[Any]) -> tuple[bool, ...]:
    """Which are views: a view of such a one holds its base, of another it holds that."""
    return tuple([isinstance(a, Tensor) and _torch.base_of(a) is not None for a in arguments])


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
        self,
        original: Callable[..., Any],
        compilers: Compilers,
        on_unsupported: OnUnsupported = OnUnsupported.RAISE,
        state: ModuleState | None = None,
    ) -> None:
        """``state`` is that of a module which ``original`` calls; a module has its own."""
        if not isinstance(original, torch.nn.Module):
            functools.update_wrapper(self, original, updated=())  # named and called as the original is
        self.original = original
        self.compilers = compilers
        self.on_unsupported = OnUnsupported(on_unsupported)
        self.state = ModuleState(original) if isinstance(original, torch.nn.Module) else state
        self._around: Surroundings | None = None  # known when it is first called
        self._undo: Callable[[], None] = _nothing  # what a trace has changed of what is around the function
        self._cache: OrderedDict[Any, Specialization] = OrderedDict()
        self._last: tuple[int, Callable[[Sequence[Any]], bool], Assembly | Assigning] | None = None
        self._lock = threading.RLock()
        self._made = 0
        self._needs = Needs()
        self._implicit = Implicit(original, self.state)
        self._captures = Captures(original, self.state, compilers.partition is not None, self._implicit, self._needs)
        self._fallback = Fallback(original, self.on_unsupported)
        self._bound: frozenset[int] = frozenset()  # the arguments, by id, that are among the function's surroundings
        self._for_callables: OrderedDict[Any, CompiledFunction] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original through the code for these arguments."""
        last = self._last
        if last is not None and not kwargs and len(args) == last[0]:
            flat: Sequence[Any] = args
            if self._implicit.are_there or self._needs.gradients:
                flat = self._implicit.after(args, self._needs.gradients)
            if last[1](flat):
                try:
                    return last[2].call(flat)
                except GraphFailed as failed:
                    instead = [functools.partial(self._fallback.reproduce, args, kwargs, failed)]
                return instead.pop()()  # as in ``_look_up``
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
            # What is to be done in place of the code, when what was met is no exception being handled any more. It may
            # lead to that, so no variable has it while it is done.
            instead: list[Callable[[], Any]] = []
            try:
                key, whole, found = self._find(flat, spec)
            except BindingNeeded as error:
                bound = [containers[k] for k in error.places]
                instead.append(functools.partial(self._with(bound)._look_up, args, kwargs))
            except UnsupportedError as error:
                instead.append(functools.partial(self._fallback.refuse, error, args, kwargs))
            except UserError as error:
                instead.append(functools.partial(self._fallback.reproduce, args, kwargs, error))
            except _RunsAsItIs:
                self._last = None
                instead.append(functools.partial(self.original, *args, **kwargs))
            if instead:
                return instead.pop()()
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
                asked = other_formulas(failed)
                if asked is None:
                    instead.append(functools.partial(self._fallback.reproduce, args, kwargs, failed))
                else:
                    with self._lock:
                        self._needs.note_formulas((spec, len(flat)), asked)
            if instead:
                return instead.pop()()
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
                state = None if self.state is None else ModuleState(self.state.module)
                known = CompiledFunction(function, self.compilers, self.on_unsupported, state)
                known._bound = self._bound.union(map(id, callables))  # which it keeps
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
        structure = spec, len(flat)
        for _ in range(_MAX_RETRACES):
            around = self._surroundings()
            if around.unsettled:
                raise _RunsAsItIs
            number = around.last_number if around.anything else None
            needs = self._needs
            passed = self._implicit.after(flat, needs.gradients)
            region = (structure, autocast_state()) if in_region() else None
            casts, which = ([], ()) if region is None else casts_of(passed, needs.casts(region))
            whole, wrappers = expand([*passed, *casts])
            caller = caller_graph(whole) if needs.backwards else None
            valued = [k for k in needs.valued(structure) if k < len(whole) and tells_lengths(whole[k])]
            formulas = needs.formulas(structure)
            split = Split(
                len(flat), len(passed), needs.gradients, wrappers, caller, which, tuple(sorted(valued)), formulas
            )
            check_supported(whole, self._bound)
            values = tuple([(k, *whole[k].tolist()) for k in split.valued])
            views = _views_among(whole) if needs.swaps else None
            key: Any = (spec, len(flat), number, call_key(whole), caller, values, views, formulas)
            found = self._cache.get(key)
            if found is not None and (together := found.together(whole)):
                key, split = (*key, together), dataclasses.replace(split, counts_apart=False)
                found = self._cache.get(key)
            if found is None:
                try:
                    key, found = self._trace(key, split, whole, spec, around)
                    if found.together(whole):
                        continue
                except RetraceWithCaptured as needed:
                    for tensor in needed.args:
                        self._implicit.add(tensor, around)
                    self._last = None
                    continue
                except RetraceWithAttributes:
                    assert self.state is not None
                    self.state.refresh()
                    self._last = None
                    continue
                except NEEDS as needed:
                    needs.learn(needed, structure, region)
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

    def _trace(
        self, key: Any, split: Split, whole: Sequence[Any], spec: Any, around: Surroundings
    ) -> tuple[Any, Specialization]:
        """Make a specialization, and give the key by which it is found: what the call leaves around it tells."""
        before = around.before_trace()
        if around.unsettled:
            raise _RunsAsItIs
        self._undo = functools.partial(around.undo, before)
        try:
            hooks = _torch.has_saved_tensor_hooks()
            with _torch.WithoutSavedTensorHooks(), _torch.WithoutCompiledAutograd():
                found = self._specialize(key, split, whole, spec, around, hooks)
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
                key = (*key[:2], changes.number if around.anything else None, *key[3:])
                self._store(key, found)
            if around.drawn:
                raise _RunsAsItIs
            return key, found
        except RunsThisOnce as met:
            around.count_kept()
            raise _RunsAsItIs from met
        except RunsAsItIs as met:
            around.settle_for_eager(met.detail)
            raise _RunsAsItIs from met

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
        if self._implicit.renew(around):
            self._last = None
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

    def _remember(
        self, found: Specialization, flat: Sequence[Any], whole: Sequence[Any], spec: Any, number: int | None
    ) -> None:
        """Let the next call try this specialization's fast guard first; ``number`` of what there was around it."""
        if not found.called:  # a guard is worth making for what is called again
            found.called, self._last = True, None
            return
        asks = self._needs.backwards or self._needs.swaps  # for more than a guard looks at
        if type(spec) is int and not asks:
            around = None if number is None or self._around is None else (self._around.number, number)
            found.make_guard(whole, around)
        runs = found.runs
        # Another guard may count on as many tensors as there were around the function then.
        self._last = None if found.guard is None or runs is None else (len(flat), found.guard, runs)

    # -- making one

    def _specialize(
        self, key: Any, split: Split, whole: Sequence[Any], spec: Any, around: Surroundings, hooks: bool
    ) -> Specialization:
        reassigned: list[tuple[int, Any]] = []
        try:
            with Compiling():
                with _torch.WithoutDynamo():
                    tracing = around, hooks, self._undo, reassigned
                    capture, outcome = self._captures.capture(whole, split, spec, *tracing)
                shape = shape_of(outcome, self.state)
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
            self._needs.swaps, self._last = True, None
        containers, left = outcome.containers, outcome.left
        made = Specialization(assembly, result=containers, left=left, counts_apart=split.counts_apart)
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

    def _store(self, key: Any, made: Specialization) -> None:
        self._cache[key] = made
        self._made += 1
        settings = config()
        if self._made == settings.recompile_warning:
            name = getattr(self.original, "__name__", type(self.original).__name__)
            tell(f"aotcheck has specialized {name} {self._made} times; do its arguments change on every call?")
        while len(self._cache) > settings.cache_size:
            self._cache.popitem(last=False)
