"""Steps of an epilogue as lines of Python."""

from __future__ import annotations

import functools

import torch

from aotcheck import _torch
from aotcheck.autograd.graphs.graph import SourceWriter
from aotcheck.autograd.record.steps import (
    Arg,
    Attach,
    BackwardOnward,
    BaseOf,
    Bridge,
    BumpVersion,
    CheckCallerGraph,
    Constant,
    CountWith,
    Detach,
    FillCache,
    GiveHistory,
    Hold,
    HoldAccumulator,
    Local,
    MakeInference,
    NoteNodes,
    NoteVersion,
    OrderNodes,
    PickHeld,
    PickView,
    PointAt,
    Poison,
    Ref,
    RegisterHook,
    RenewHistory,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Reshape,
    ResizeStorage,
    Restride,
    RestrideWrapper,
    Result,
    RetainGrad,
    SetAttribute,
    SetCreationMeta,
    SetGradient,
    SetGradMode,
    ShareCache,
    StandIn,
    Step,
    Swap,
    TakeHistory,
    TakeHistoryOfSet,
    TakeOffsets,
    Visibility,
    Way,
    WindowOn,
    Wrap,
    Write,
    WriteFlat,
)
from aotcheck.autograd.replicas.hooks import HookKind
from aotcheck.autograd.runtime import history, replays, written_before
from aotcheck.autograd.tensors import memory
from aotcheck.autograd.tensors.subclasses import share_cache


def named(ref: Ref) -> str:
    """What the source of a call calls the tensor."""
    match ref:
        case Arg(i):
            return f"a[{i}]"
        case BaseOf(i):
            return f"b{i}"
        case Result(i):
            return f"r{i}"
        case Local(i):
            return f"l{i}"


WRITERS = {Visibility.VERSION: memory.version_write, Visibility.HIDDEN: memory.hidden_write}


_REGISTER = {
    HookKind.GRADIENT: history.register_hook,
    HookKind.ACCUMULATED: torch.Tensor.register_post_accumulate_grad_hook,
}


_REPLAYS = {
    ReplayMode.GRAD: replays.replay_with_grad,
    ReplayMode.NO_GRAD: replays.replay_without_grad,
    ReplayMode.INFERENCE: replays.replay_under_inference_mode,
    ReplayMode.OUTSIDE_WITH_GRAD: replays.replay_outside_with_grad,
    ReplayMode.OUTSIDE_WITHOUT_GRAD: replays.replay_outside_without_grad,
}


def step_line(step: Step, w: SourceWriter) -> str:
    """One line of Python that carries out ``step``."""
    match step:
        case Hold(local, source):
            return f"{named(local)} = {named(source)}.detach()"
        case HoldAccumulator(local, source, recorded, anew):
            return f"{named(local)} = {w.refer(history.accumulator_of)}({named(source)}, {w.refer(recorded)}, {anew})"
        case ResizeStorage(source, nbytes):
            return f"{named(source)}.untyped_storage().resize_({nbytes})"
        case WriteFlat(source, dtype, result):
            return f"{w.refer(memory.flat_write)}({named(source)}, {w.refer(dtype)}, {named(result)})"
        case Write(target, result, visibility):
            return f"{w.refer(WRITERS[visibility])}({named(target)}, {named(result)})"
        case NoteVersion(local, target):
            return f"{named(local)} = {w.refer(_torch.version_of)}({named(target)})"
        case NoteNodes(local):
            return f"{named(local)} = {w.refer(_torch.autograd_sequence_number)}()"
        case OrderNodes(since, refs, behind):
            made = "".join(f"{named(x)}, " for x in refs)
            return f"{w.refer(history.order_nodes)}({named(since)}, ({made}), {behind})"
        case BumpVersion(target):
            return f"{w.refer(_torch.count_write)}({named(target)})"
        case StandIn(local, g, device):
            return f"{named(local)} = {w.refer(memory.stand_in)}({g.shape}, {w.refer(g.dtype)}, {w.refer(device)})"
        case Bridge(local, source, recorded):
            as_recorded = "" if recorded is None else f", {w.refer(recorded)}"
            return f"{named(local)} = {w.refer(history.early_bridge)}({named(source)}{as_recorded})"
        case Attach():
            raise AssertionError("written by write_call")
        case TakeHistory(target, source, counted):
            take = history.take_history if counted else history.take_history_uncounted
            return f"{w.refer(take)}({named(target)}, {named(source)})"
        case TakeHistoryOfSet(target, sources, counted, recorded):
            given = "".join(f"{named(x)}, " for x in sources)
            lay = f"{recorded.shape}, {w.refer(recorded.dtype)}"
            return f"{w.refer(history.take_history_of_set)}({named(target)}, ({given}), {counted}, {lay})"
        case RenewHistory(target):
            return f"{w.refer(_torch.grad_fn_of)}({named(target)})"
        case GiveHistory(target, source):
            return f"{named(target)} = {w.refer(history.give_history)}({named(target)}, {named(source)})"
        case Restride(target, g, counted):
            restride = memory.restride if counted else memory.restride_uncounted
            return f"{w.refer(restride)}({named(target)}, {g.shape}, {g.stride}, {g.offset})"
        case Reshape(target, change):
            return f"{w.refer(change, 'change')}({named(target)})"
        case PointAt(target, holder, g, relative, way, inference):
            move = {Way.DATA: memory.point_data_at, Way.SET: memory.point_at, Way.SET_UNTOLD: memory.point_at_untold}
            given = f"{named(target)}, {named(holder)}, {w.refer(g)}, {relative}, {inference}"
            return f"{w.refer(move[way])}({given})"
        case Detach(target, leaf):
            return f"{named(target)}.requires_grad_(False)" if leaf else f"{named(target)}.detach_()"
        case CheckCallerGraph(targets, written):
            to = "".join(f"{named(x)}, " for x in targets)
            times = "".join(f"({named(x)}, {count}), " for x, count in written)
            return f"{w.refer(written_before.check_caller_graph)}(({to}), ({times}))"
        case BackwardOnward(targets, gradients, retained, free, kinds, mode):
            to, given = ("".join(f"{named(x)}, " for x in refs) for refs in (targets, gradients))
            return f"{w.refer(history.go_on)}(({to}), ({given}), {retained}, {free}, {kinds}, {w.refer(mode)})"
        case ReplayView(local, base, view_func, mode, outdated, version, later, others):
            if outdated:
                view_func = functools.partial(replays.replay_outdated, view_func)
            replay = w.refer(view_func, "view")
            if version is not None:
                at = f"{named(version)} + {later}" if later else named(version)
                replay = f"{w.refer(functools.partial)}({w.refer(replays.replay_at)}, {replay}, {at})"
            if others:
                replay = f"(lambda t: {replay}(t, {', '.join(map(named, others))}))"
            if mode is ReplayMode.AMBIENT:
                return f"{named(local)} = {replay}({named(base)})"
            return f"{named(local)} = {w.refer(_REPLAYS[mode])}({replay}, {named(base)})"
        case PickView(local, several, index):
            return f"{named(local)} = {named(several)}[{index}]"
        case SetCreationMeta(target, creation_meta):
            return f"{w.refer(_torch.set_creation_meta)}({named(target)}, {w.refer(creation_meta)})"
        case MakeInference(target, wanted, alias):
            made = f"{w.refer(memory.as_inference)}({named(target)}, {wanted})"
            return f"{named(target)} = {made}{'.detach()' if alias else ''}"
        case CountWith(target, other):
            return f"{named(target)} = {w.refer(memory.counting_with)}({named(target)}, {named(other)})"
        case RetainGrad(target):
            return f"{w.refer(history.retain_gradient)}({named(target)})"
        case RegisterHook(target, hook, kind, given):
            register = history.register_on_argument if given and kind is HookKind.GRADIENT else _REGISTER[kind]
            return f"{w.refer(register)}({named(target)}, {w.refer(hook, 'hook')})"
        case SetGradient(target, source, fits):
            if source is not None and not fits:
                return f"{w.refer(history.set_gradient)}({named(target)}, {named(source)})"
            return f"{named(target)}.grad = {'None' if source is None else named(source)}"
        case WindowOn(local, holder, g, anchor, own_version, inference):
            given = f"{named(holder)}, {w.refer(g)}, {anchor}, {own_version}"
            if inference is not None:
                return f"{named(local)} = {w.refer(memory.window_of_kind)}({given}, {inference})"
            return f"{named(local)} = {w.refer(memory.window_on)}({given})"
        case RequireGrad(target, inference):
            if inference:
                return f"{w.refer(history.require_grad_of_inference)}({named(target)})"
            return f"{named(target)}.requires_grad_()"
        case RequireGradOfInteger(target):
            return f"{w.refer(history.require_grad_of_integer)}({named(target)})"
        case Poison(target):
            return f"{w.refer(history.poison)}({named(target)})"
        case Swap(target, other):
            return f"{w.refer(_torch.swap)}({named(target)}, {named(other)})"
        case Wrap(local, wrapping, inner):
            held = "".join(f"{named(x)}, " for x in inner)
            return f"{named(local)} = {w.refer(wrapping.build, 'wrap')}(({held}))"
        case RestrideWrapper(target, outer, counted):
            return f"{w.refer(memory.restride_wrapper)}({named(target)}, {w.refer(outer)}, {counted})"
        case SetAttribute(target, name, value):
            what = w.refer(value.value, "k") if isinstance(value, Constant) else named(value)
            return f"setattr({named(target)}, {name!r}, {what})"
        case PickHeld(local, source, name):
            return f"{named(local)} = getattr({named(source)}, {name!r})"
        case TakeOffsets(target, source):
            return f"{w.refer(_torch.take_offsets)}({named(target)}, {named(source)})"
        case FillCache(target, name, key, value):
            return f"getattr({named(target)}, {name!r}).setdefault({w.refer(key, 'k')}, {named(value)})"
        case ShareCache(target, name, other):
            return f"{w.refer(share_cache)}({named(target)}, {name!r}, {named(other)})"
        case SetGradMode(enabled):
            return f"{w.refer(_torch.set_grad_enabled_raw)}({enabled})"
