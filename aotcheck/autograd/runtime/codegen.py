"""Generated straight-line Python: prologue, the autograd Function, epilogue."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.graph import SourceWriter, define
from aotcheck.autograd.hooks import HookKind
from aotcheck.autograd.record import (
    Arg,
    Attach,
    BackwardOnward,
    BaseOf,
    BumpVersion,
    Constant,
    Detach,
    GiveHistory,
    Hold,
    HoldAccumulator,
    Local,
    MakeInference,
    NoteVersion,
    PickView,
    PointAt,
    Poison,
    Record,
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
    StandIn,
    Step,
    Swap,
    TakeHistory,
    Visibility,
    Way,
    WindowOn,
    Wrap,
    Write,
    WriteFlat,
)
from aotcheck.autograd.runtime import support
from aotcheck.autograd.subclasses import Wrapping, is_wrapper
from aotcheck.autograd.trace import Geometry, geometry_of, recorded_geometry


def _ref(ref: Ref) -> str:
    match ref:
        case Arg(i):
            return f"a[{i}]"
        case BaseOf(i):
            return f"b{i}"
        case Result(i):
            return f"r{i}"
        case Local(i):
            return f"l{i}"


_WRITERS = {
    Visibility.VERSION: support.version_write,
    Visibility.HIDDEN: support.hidden_write,
}


_REGISTER = {
    HookKind.GRADIENT: support.register_hook,
    HookKind.ACCUMULATED: torch.Tensor.register_post_accumulate_grad_hook,
}


_REPLAYS = {
    ReplayMode.GRAD: support.replay_with_grad,
    ReplayMode.NO_GRAD: support.replay_without_grad,
    ReplayMode.INFERENCE: support.replay_under_inference_mode,
    ReplayMode.OUTSIDE_WITH_GRAD: support.replay_outside_with_grad,
    ReplayMode.OUTSIDE_WITHOUT_GRAD: support.replay_outside_without_grad,
}


def step_line(step: Step, w: SourceWriter) -> str:
    """One line of Python that carries out ``step``."""
    match step:
        case Hold(local, source):
            return f"{_ref(local)} = {_ref(source)}.detach()"
        case HoldAccumulator(local, source, recorded, anew):
            return f"{_ref(local)} = {w.refer(support.accumulator_of)}({_ref(source)}, {w.refer(recorded)}, {anew})"
        case ResizeStorage(source, nbytes):
            return f"{_ref(source)}.untyped_storage().resize_({nbytes})"
        case WriteFlat(source, dtype, result):
            return f"{w.refer(support.flat_write)}({_ref(source)}, {w.refer(dtype)}, {_ref(result)})"
        case Write(target, result, visibility):
            return f"{w.refer(_WRITERS[visibility])}({_ref(target)}, {_ref(result)})"
        case NoteVersion(local, target):
            return f"{_ref(local)} = {w.refer(_torch.version_of)}({_ref(target)})"
        case BumpVersion(target):
            return f"{w.refer(_torch.count_write)}({_ref(target)})"
        case StandIn(local, g, device):
            return f"{_ref(local)} = {w.refer(support.stand_in)}({g.shape}, {w.refer(g.dtype)}, {w.refer(device)})"
        case Attach():
            raise AssertionError("written by write_call")
        case TakeHistory(target, source, counted):
            take = support.take_history if counted else support.take_history_uncounted
            return f"{w.refer(take)}({_ref(target)}, {_ref(source)})"
        case RenewHistory(target):
            return f"{w.refer(_torch.grad_fn_of)}({_ref(target)})"
        case GiveHistory(target, source):
            return f"{_ref(target)} = {w.refer(support.give_history)}({_ref(target)}, {_ref(source)})"
        case Restride(target, g):
            return f"{w.refer(support.restride)}({_ref(target)}, {g.shape}, {g.stride}, {g.offset})"
        case Reshape(target, change):
            return f"{w.refer(change, 'change')}({_ref(target)})"
        case PointAt(target, holder, g, relative, way, inference):
            given = f"{_ref(target)}, {_ref(holder)}, {w.refer(g)}, {relative}"
            if way is Way.DATA:
                return f"{w.refer(support.point_data_at)}({given}, {inference})"
            return f"{w.refer(support.point_at if way is Way.SET else support.point_at_untold)}({given})"
        case Detach(target, leaf):
            return f"{_ref(target)}.requires_grad_(False)" if leaf else f"{_ref(target)}.detach_()"
        case BackwardOnward(targets, gradients, retained):
            to, given = ("".join(f"{_ref(x)}, " for x in refs) for refs in (targets, gradients))
            return f"{w.refer(torch.autograd.backward)}(({to}), ({given}), {retained})"
        case ReplayView(local, base, view_func, mode, outdated, version):
            if outdated:
                view_func = functools.partial(support.replay_outdated, view_func)
            replay = w.refer(view_func, "view")
            if version is not None:
                replay = f"{w.refer(functools.partial)}({w.refer(support.replay_at)}, {replay}, {_ref(version)})"
            if mode is ReplayMode.AMBIENT:
                return f"{_ref(local)} = {replay}({_ref(base)})"
            return f"{_ref(local)} = {w.refer(_REPLAYS[mode])}({replay}, {_ref(base)})"
        case PickView(local, several, index):
            return f"{_ref(local)} = {_ref(several)}[{index}]"
        case SetCreationMeta(target, creation_meta):
            return f"{w.refer(_torch.set_creation_meta)}({_ref(target)}, {w.refer(creation_meta)})"
        case MakeInference(target, wanted, alias):
            made = f"{w.refer(support.as_inference)}({_ref(target)}, {wanted})"
            return f"{_ref(target)} = {made}{'.detach()' if alias else ''}"
        case RetainGrad(target):
            return f"{_ref(target)}.retain_grad()"
        case RegisterHook(target, hook, kind):
            return f"{w.refer(_REGISTER[kind])}({_ref(target)}, {w.refer(hook, 'hook')})"
        case SetGradient(target, source, fits):
            if source is not None and not fits:
                return f"{w.refer(support.set_gradient)}({_ref(target)}, {_ref(source)})"
            return f"{_ref(target)}.grad = {'None' if source is None else _ref(source)}"
        case WindowOn(local, holder, g, anchor, own_version, inference):
            given = f"{_ref(holder)}, {w.refer(g)}, {anchor}, {own_version}"
            if inference is not None:
                return f"{_ref(local)} = {w.refer(support.window_of_kind)}({given}, {inference})"
            return f"{_ref(local)} = {w.refer(support.window_on)}({given})"
        case RequireGrad(target, inference):
            if inference:
                return f"{w.refer(support.require_grad_of_inference)}({_ref(target)})"
            return f"{_ref(target)}.requires_grad_()"
        case RequireGradOfInteger(target):
            return f"{w.refer(support.require_grad_of_integer)}({_ref(target)})"
        case Poison(target):
            return f"{w.refer(support.poison)}({_ref(target)})"
        case Swap(target, other):
            return f"{w.refer(_torch.swap)}({_ref(target)}, {_ref(other)})"
        case Wrap(local, wrapping, inner):
            held = "".join(f"{_ref(x)}, " for x in inner)
            return f"{_ref(local)} = {w.refer(wrapping.build, 'wrap')}(({held}))"
        case RestrideWrapper(target, outer):
            return f"{w.refer(support.restride_wrapper)}({_ref(target)}, {w.refer(outer)})"
        case SetAttribute(target, name, value):
            what = w.refer(value.value, "k") if isinstance(value, Constant) else _ref(value)
            return f"setattr({_ref(target)}, {name!r}, {what})"
        case SetGradMode(enabled):
            return f"{w.refer(_torch.set_grad_enabled_raw)}({enabled})"


def _bases(record: Record) -> list[str]:
    wanted: set[int] = set()
    for r in record.roots:
        if isinstance(r.source, BaseOf):
            wanted.add(r.source.index)
    return [f"b{i} = base_of(a[{i}])" for i in sorted(wanted)]


class Keeper(enum.Enum):
    """Where a backward finds something that counts versions."""

    SAVED = "among what is saved"
    WATCHED = "among what it checks itself"
    TANGENT = "among its tangents"
    RESULT = "among its results"


@dataclasses.dataclass(frozen=True)
class Counter:
    """What a backward has at ``index`` there."""

    keeper: Keeper
    index: int


@dataclasses.dataclass(frozen=True)
class Guard:
    """``watched`` must not be written before a backward from output ``place`` of the component.

    Eager has saved its memory. A call finds it by a ``Ref``, a backward whose results are attached by a ``Counter``.
    """

    watched: Ref | Counter
    place: int


# Where the context of a Function keeps what it was called with besides results and what is saved.
CONTEXTS, HANDLES, WATCHED, HELD, LIVE = (f"ctx.kept[{k}]" for k in range(1, 6))


@dataclasses.dataclass(frozen=True)
class Function:
    """What attaches a stage's tensors: ``apply`` of an autograd Function, and what finds backwards for it.

    ``raising``: after its targets it takes ``support.beyond``.
    """

    apply: Callable[..., Any]
    backward_for: Callable[..., Callable[..., Any]]
    raising: bool = False


def _kept(
    backward_for: str, contexts: str, handles: Sequence[str], watched: str, held: Sequence[str], live: Sequence[str]
) -> str:
    """The source of the tuple that contexts keep."""
    parts = ["".join(f"{x}, " for x in items) for items in (handles, held, live)]
    return f"({backward_for}, {contexts}, ({parts[0]}), {watched}, ({parts[1]}), ({parts[2]}))"


@dataclasses.dataclass(frozen=True)
class Window:
    """Memory that a backward reads as it is then, and writes: ``geometry`` on the storage of ``holder``.

    ``anchor`` is as for WindowOn.
    """

    holder: Ref
    geometry: Geometry
    anchor: int | None


@dataclasses.dataclass(frozen=True)
class BackwardWrite:
    """Overwrite ``target``, an expression in the backward, with its graph's result ``result``."""

    target: str
    result: int
    visibility: Visibility


@dataclasses.dataclass(frozen=True)
class BackwardReshape:
    """Change the geometry of the argument that the context holds at ``place``; it must be ``before``."""

    place: int
    before: Geometry
    after: Geometry


@dataclasses.dataclass(frozen=True)
class Attachment:
    """A Function that attaches results to autograd.

    It says which of the attached tensors those are, which saved values it keeps, and to which roots and leaves
    gradients go. ``held`` are arguments that gradients of wrappers hold too, ``own`` the outputs (counted among its
    own) that it keeps a place of: see Note [Results of their own gradients]. ``raising`` as for Function.
    """

    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    targets: tuple[int, ...]
    guards: tuple[Guard, ...] = ()
    held: tuple[Arg, ...] = ()
    windows: tuple[Window, ...] = ()
    reshaped: tuple[Ref, ...] = ()
    own: tuple[int, ...] = ()
    raising: bool = False


@dataclasses.dataclass(frozen=True)
class Application:
    """A Function that attaches results of a backward.

    Which results, what it saves (as source), its targets, whether it needs the contexts of the backwards it is for (see
    Note [Shared nodes]), the arguments that gradients of wrappers hold (as source), and ``own`` and ``guards`` as for
    Attachment.
    """

    function: Function
    results: tuple[int, ...]
    saved: tuple[str, ...]
    targets: tuple[int, ...]
    contexts: bool
    held: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()


def write_call(
    record: Record,
    attachments: Sequence[Attachment],
    wrong: dict[int, Geometry],
    fresh: Sequence[bool],
    shape_result: Callable[[list[str], Callable[[Any], str]], str],
    random: bool,
    moved: frozenset[int] = frozenset(),
    memory: Mapping[int, Window] = MappingProxyType({}),
) -> SourceWriter:
    """The function ``call(a)``: flat arguments in, the caller's result out.

    ``wrong`` maps the outputs whose layout must be set right to that layout. ``fresh`` says of each thing the forward
    returns, saved values included, that it is known to be no view: a view made under the forward's own no_grad is
    hidden by ``detach``, its autograd identity being an accident. ``moved`` are saved values (counted from the first)
    whose version counter the epilogue moves, ``memory`` such as lie in an argument's memory once that is written: they
    are saved as windows on it (see Note [Saved memory]). ``shape_result`` turns the expressions of the flat results
    into that of what the caller gets. The names ``fw``, ``apply0`` ... and ``backward0`` ... are to be set in the
    writer's globals.
    """
    w = SourceWriter()
    w.globals.update(base_of=_torch.base_of, grad_mode=_torch.set_grad_enabled_raw, layout=support.with_layout)
    n = len(record.outputs)
    names = [f"r{k}" for k in range(n)] + [f"s{k}" for k in range(len(fresh) - n)]
    left = ", ".join(names) + ", = " if names else ""
    lines = ["def call(a):"]
    lines += [f"    {w.refer(support.check_swap)}(a[{i}])" for i in record.swapped]
    lines += [f"    {b}" for b in _bases(record)]
    roots = [_ref(r.source) for r in record.roots]
    wrappers = [_ref(r.source) for r in record.wrappers]
    # See Note [Handles].
    handles = [
        r if root.is_leaf else f"{w.refer(support.bridge)}({r})"
        for r, root in zip([*roots, *wrappers], [*record.roots, *record.wrappers], strict=True)
    ]
    views = [f"e{len(roots) + k}" for k in range(len(record.views))]
    targets = [*roots, *wrappers, *[_ref(x.ref) for x in record.leaves], *views, *[_ref(x.ref) for x in record.cuts]]
    reached = {k for part in attachments for k in part.targets}
    for k, root in enumerate(record.roots):
        if root.moves and k in reached:
            lines.append(f"    e{k} = {w.refer(support.early_bridge)}({roots[k]})")
            handles[k] = targets[k] = f"e{k}"
    for x, name in zip(record.views, views, strict=True):
        if targets.index(name) in reached:
            lines.append(f"    {name} = {w.refer(support.early_bridge)}({_ref(x.ref)})")
    handles += [*[_ref(x.ref) for x in record.leaves], *views]
    for x in record.cuts:
        recorded = None if is_wrapper(x.tensor) else recorded_geometry(x.tensor)
        other = recorded is not None and recorded != geometry_of(x.tensor)
        handles.append(f"{w.refer(support.bridge)}({_ref(x.ref)}{f', {w.refer(recorded)}' if other else ''})")
    inputs = [f"{r}.data" if root.hidden else r for r, root in zip(roots, record.roots, strict=True)]
    for k, flat in enumerate(record.flats):
        lines.append(f"    f{k} = {w.refer(support.flat_view)}({_ref(flat.source)}, {w.refer(flat.dtype)})")
        inputs.append(f"f{k}")
    generators = [f"a[{i}]" for i in record.generators]
    inputs += generators
    if random:
        lines.append(f"    states = {w.refer(support.generator_states)}({', '.join(generators)})")
    lines.append("    try:")
    if record.entry_grad:
        lines.append("        grad_mode(False)")
    lines.append(f"        {left}fw({', '.join(inputs)})")
    lines.append(f"    except {w.refer(support.StrideCorrection)}: raise")
    undo = f"{w.refer(support.restore_generators)}(states); " if random else ""
    lines.append(f"    except Exception as e: {undo}raise {w.refer(support.GraphFailed)} from e")
    if record.entry_grad:
        lines.append("    finally: grad_mode(True)")
    lines += [f"    r{k} = layout(r{k}, {w.refer(g)})" for k, g in wrong.items()]
    lines += [f"    {name} = {name}.detach()" for k, name in enumerate(names) if not fresh[k] and k not in wrong]
    lines += [f"    s{k} = s{k}.data" for k in sorted(moved)]
    lines += [f"    {step_line(s, w)}" for s in record.before]
    for k, m in memory.items():
        on = f"{w.refer(support.window_on)}({_ref(m.holder)}, {w.refer(m.geometry)}, {m.anchor}, True)"
        lines.append(f"    s{k} = {on}")

    def attach(number: int) -> list[str]:
        part, attached, returned_later = attachments[number], [], []
        results = "".join(f"{_ref(record.attached[k].ref)}, " for k in part.outputs)
        given = results + "".join(f"s{k}, " for k in part.saved)
        if part.guards:
            attached.append(f"w{number} = []")
        watched = f"w{number}" if part.guards else "()"
        live: list[str] = []
        if part.windows or part.reshaped:
            on = w.refer(support.window_on)
            live = [f"{on}({_ref(x.holder)}, {w.refer(x.geometry)}, {x.anchor}, False)" for x in part.windows]
            live += map(_ref, part.reshaped)
        held = [_ref(x) for x in part.held]
        kept = _kept(f"backward{number}", "()", [handles[k] for k in part.targets], watched, held, live)
        # Results that lead nowhere require grad all the same: they hang on a leaf of nobody's.
        ends = ", ".join(targets[k] for k in part.targets) or w.refer(support.DEAD_END)
        ends += f", {w.refer(support.beyond())}" if part.raising else ""
        for x in [record.attached[k] for k in part.outputs]:
            if x.recorded is not None and isinstance(x.ref, Result):
                attached.append(f"h{x.ref.index} = {w.refer(support.lend)}({_ref(x.ref)}, {w.refer(x.recorded)})")
                returned_later.append(f"{_ref(x.ref)}.data = h{x.ref.index}")
        attached.append(f"{results}= apply{number}(({given}{kept}), {ends})")
        attached += returned_later
        for place in part.own:
            attached.append(f"{w.refer(support.keep_place)}({_ref(record.attached[part.outputs[place]].ref)})")
        for k in part.outputs if len(part.outputs) > 1 else ():
            made_by = _torch.grad_fn_of(record.attached[k].tensor)
            if made_by is None or _torch.outputs_of(made_by) == 1:
                attached.append(f"{w.refer(support.hooks_of_its_own)}({_ref(record.attached[k].ref)})")
        if record.entry_grad:
            return [f"    {x}" for x in attached]
        return [
            "    grad_mode(True)",
            "    try:",
            *[f"        {x}" for x in attached],
            "    finally: grad_mode(False)",
        ]

    for s in record.steps:
        lines += attach(s.group) if isinstance(s, Attach) else [f"    {step_line(s, w)}"]
    for number, part in enumerate(attachments):
        for guard in part.guards:
            watch = w.refer(support.watch)
            assert not isinstance(guard.watched, Counter)
            lines.append(f"    w{number}.append({watch}({_ref(guard.watched)}, {guard.place}))")
    returned = [w.refer(r.value, "k") if isinstance(r, Constant) else _ref(r) for r in record.returns]
    lines.append(f"    return {shape_result(returned, w.refer)}")
    w.lines = lines
    return w


@functools.lru_cache(maxsize=256)
def function_like(
    outputs: int,
    saved: int,
    targets: int,
    guarded: bool,
    checked: tuple[tuple[int, ...], ...],
    once: tuple[int, ...],
    frees: tuple[tuple[int, str | None], ...],
    shared: tuple[tuple[int, ...], ...],
    own: tuple[int, ...] = (),
    raising: tuple[tuple[int, str], ...] = (),
) -> Callable[..., Any]:
    """``apply`` of a Function that attaches computed results to autograd.

    Its first argument is a tuple of the results, of what is to be saved, and of what the context keeps: what finds
    backwards, the contexts of the stages before, the targets' handles, the versions that the backward checks (a list
    that is filled later), arguments that gradients hold, and windows on memory that the backward writes. Its other
    arguments are the targets, the tensors to differentiate by. ``guarded``: whether there are versions to check.
    ``checked`` are for each result the saved tensors that must not have been written, whether its backward reads them
    or not. ``once``: the results from which a second backward raises; torch does that when saved tensors are asked for
    again, even if there are none. ``frees``: see ``support.frees``. ``shared``: see Note [Shared nodes]. ``own``: the
    results that are saved for their place in autograd's graph. ``raising``: those behind which something raises if a
    backward leaves nothing out, with what it raises.
    """
    w = SourceWriter()
    w.globals.update(grad_enabled=torch.is_grad_enabled)
    lines = ["def forward(ctx, h, *targets):", "    ctx.kept = h[-1]"]
    if saved or own:
        places = "".join(f", h[{k}]" for k in own)
        lines.append(f"    ctx.save_for_backward(*h[{outputs}:-1]{places})")
    if own:
        lines.append(f"    ctx.own = {{{', '.join(f'{k}: {saved + n}' for n, k in enumerate(own))}}}")
    lines += ["    ctx.set_materialize_grads(False)", f"    return h[:{outputs}]"]
    defined = "".join(f"g[{k}] is not None, " for k in range(outputs))
    # Of a plain tensor's type only what is sparse must be told from it.
    w.globals.update(strided=torch.strided)
    kinds = "".join(
        f"type(g[{k}]) if g[{k}] is None or g[{k}].layout is strided else {w.refer(support.kind_of)}(g[{k}]), "
        for k in range(outputs)
    )
    trained = "".join(f"g[{k}] is not None and g[{k}].requires_grad, " for k in range(outputs))
    # The engine comes by with nothing defined where another tensor's gradients end: no reason to look at what is saved.
    undefined = " and ".join(f"g[{k}] is None" for k in range(outputs))
    lines += [
        "def backward(ctx, *g):",
        f"    if {undefined}: return (None,) * {1 + max(1, targets) + bool(raising)}",
        *_check_not_freed(w, outputs, saved, once),
        *_check_saved(w, outputs, checked),
        *([f"    {w.refer(support.check_watched)}({WATCHED}, ({defined}))"] if guarded else []),
        *_check_shared(w, outputs, shared),
        f"    trained = ({trained}) if grad_enabled() else None",
        *[f"    if g[{j}] is not None: {w.refer(support.raise_if_all_runs)}({error!r})" for j, error in raising],
        f"    return {'*' if raising else ''}ctx.kept[0](({kinds}), trained)(ctx, g){', None' if raising else ''}",
    ]
    w.lines = lines
    define(w, "forward", "function")
    return _torch.bound_apply(_make_function(w.globals["forward"], w.globals["backward"], dict(frees)))


def _check_saved(w: SourceWriter, outputs: int, checked: Sequence[Sequence[int]]) -> list[str]:
    lines = []
    for which in dict.fromkeys(map(tuple, checked)):
        if which:
            check = f"{w.refer(_torch.unpack_some)}(ctx, {which})"
            places = [j for j in range(outputs) if tuple(checked[j]) == which]
            needed = " or ".join(f"g[{j}] is not None" for j in places)
            lines.append(f"    {check}" if len(places) == outputs else f"    if {needed}: {check}")
    return lines


def _check_shared(w: SourceWriter, outputs: int, shared: Sequence[Sequence[int]]) -> list[str]:
    lines = []
    for k, places in enumerate(shared):
        if places:
            use = f"{w.refer(support.use_context)}({CONTEXTS}[{k}])"
            always = len(places) == outputs
            needed = " or ".join(f"g[{j}] is not None" for j in places)
            lines.append(f"    {use}" if always else f"    if {needed}: {use}")
    return lines


def _check_not_freed(w: SourceWriter, outputs: int, saved: int, once: Sequence[int]) -> list[str]:
    if not once:
        return []
    checks = [f"if getattr(ctx, 'spent', False): {w.refer(support.check_not_spent)}(ctx)"]
    if not saved or outputs > 1:  # what is saved is asked for anyway if there is but one result
        checks.append(f"{w.refer(_torch.unpack_some)}(ctx, ())" if saved else "ctx.saved_tensors")
    if len(once) == outputs:
        return [f"    {check}" for check in checks]
    return [f"    if {' or '.join(f'g[{k}] is not None' for k in once)}:", *[f"        {check}" for check in checks]]


def _unpack(w: SourceWriter, which: Sequence[int], saved: int) -> list[str]:
    if saved and len(which) == saved and list(which) == list(range(saved)):
        return ["    s = ctx.saved_tensors"]
    if saved and which:
        w.globals["unpack_some"] = _torch.unpack_some
        return [f"    s = unpack_some(ctx, {tuple(which)})"]
    return []


def _take_tangents(w: SourceWriter, tangents: Sequence[tuple[int, Geometry | None]]) -> list[str]:
    w.globals["with_strides"] = support.with_strides
    lines = []
    for k, g in tangents:
        lines.append(f"    t{k} = g[{k}]")
        if g is None or 0 in g.shape:  # an empty one lies as it does in eager, whose formulas may mind
            continue
        if g.conj or g.neg:  # only tangents that are as lazy come here
            lines.append(
                f"    if t{k}.stride() != {g.stride}: t{k} = {w.refer(support.with_strides_lazily)}(t{k}, {g.stride})"
            )
            continue
        lazy = f" or t{k}.is_neg()" + (f" or t{k}.is_conj()" if g.dtype.is_complex else "")
        lines.append(f"    if t{k}.stride() != {g.stride}{lazy}: t{k} = with_strides(t{k}, {g.stride})")
    return lines


def write_backward(
    used: Sequence[int],
    saved: int,
    tangents: Sequence[tuple[int, Geometry | None]],
    differentiated: Sequence[int],
    gradients: int,
    wrapped: Mapping[int, tuple[Wrapping, Sequence[str]]],
    same: Mapping[int, int],
    windows: Sequence[int] = (),
    writes: Sequence[BackwardWrite] = (),
    reshaped: Sequence[BackwardReshape] = (),
) -> SourceWriter:
    """``run(ctx, g)``: pick what this backward uses of the saved tensors and incoming gradients.

    It gives a gradient per differentiated target, of the ``gradients`` that the graph returns. ``wrapped`` says which
    of the differentiated have wrappers for gradients, made of what, ``same`` which have a tangent itself, with the
    strides and the owners it has: autograd looks at both where it accumulates. ``windows`` are those on live memory
    that the graph reads; ``writes`` and ``reshaped`` come last.
    """
    w = SourceWriter()
    lines = ["def run(ctx, g, whole=None):", *_unpack(w, used, saved), *_take_tangents(w, tangents)]
    names = [f"s[{k}]" for k in range(len(used))] + [f"t{k}" for k, _ in tangents]
    names += [f"{LIVE}[{k}]" for k in windows]
    parts = [f"d[{k}]" for k in differentiated]
    for number, k in same.items():
        parts[number] = f"g[{k}]"
    for number, (wrapping, leaves) in wrapped.items():
        parts[number] = f"{w.refer(wrapping.build, 'wrap')}(({''.join(x + ', ' for x in leaves)}))"
    picked = "".join(f"{x}, " for x in parts) or "None, "
    changes = [f"    {w.refer(_WRITERS[x.visibility])}({x.target}, d[{x.result}])" for x in writes]
    for y in reshaped:
        change = w.refer(support.reshape_in_backward)
        changes.append(f"    {change}({LIVE}[{y.place}], {w.refer(y.before)}, {w.refer(y.after)})")
    if not wrapped and not same and not changes and list(differentiated) == list(range(gradients)):
        lines.append(f"    return (None, *bw({', '.join(names)}))")
    else:
        lines += [f"    d = bw({', '.join(names)})", *changes, f"    return (None, {picked})"]
    w.lines = lines
    return w


def write_differentiable_backward(
    unpacked: Sequence[int],
    read: int,
    saved: int,
    tangents: Sequence[tuple[int, Geometry | None]],
    reached: Sequence[int],
    applications: Sequence[Application],
    targets: int,
    same: Mapping[int, int],
    places: Sequence[int],
    wrapped: Mapping[int, tuple[Wrapping, Sequence[str]]],
    flat: bool,
    own: Sequence[int] = (),
) -> SourceWriter:
    """``run(ctx, g)`` as ``write_backward`` writes it, but what it gives is attached to autograd.

    Of the saved tensors ``unpacked`` the graph reads the first ``read``. ``applications`` attach; their targets are
    those of this backward, ``targets`` in number, then the tangents, those with these ``places``, and then results of
    the stage itself, its ``own``. ``same`` says
    which gradients are which tangent itself, ``wrapped`` which are wrappers, made of what. ``flat``: ``g`` is what the
    tangents are made of.
    """
    w = SourceWriter()
    whole = "whole" if flat else "g"
    lines = [f"def run(ctx, g{', whole' if flat else ''}):", *_unpack(w, unpacked, saved)]
    body = _take_tangents(w, tangents)
    names = [f"s[{k}]" for k in range(read)] + [f"t{k}" for k, _ in tangents]
    body.append(f"    d = bw({', '.join(names)})")
    w.globals.update(grad_mode=_torch.set_grad_enabled_raw)
    lines += ["    grad_mode(False)", "    try:", *["    " + x for x in body], "    finally: grad_mode(True)"]
    lines += [f"    h, d = {HANDLES}, list(d)"]
    for k, (wrapping, leaves) in wrapped.items():
        lines.append(f"    d[{k}] = {w.refer(wrapping.build, 'wrap')}(({''.join(x + ', ' for x in leaves)}))")
    place = {k: n for n, k in enumerate(reached)}

    def handle(k: int) -> str:
        if k >= targets + len(places):
            return f"{w.refer(support.place_of)}(ctx, {own[k - targets - len(places)]})"
        return f"h[{place[k]}]" if k < targets else f"{whole}[{places[k - targets]}]"

    def watch(guard: Guard) -> str:
        match guard.watched:
            case Counter(Keeper.WATCHED, index):
                return f"(*{WATCHED}[{index}][:3], {guard.place})"
            case Counter(Keeper.SAVED, index):
                what = f"s[{unpacked.index(index)}]"
            case Counter(Keeper.TANGENT, index):
                what = f"{whole}[{index}]"
            case Counter(Keeper.RESULT, index):
                what = f"d[{index}]"
            case _:
                raise AssertionError("a guard of a call")
        return f"{w.refer(support.watch)}({what}, {guard.place})"

    for number, a in enumerate(applications):
        handles = [handle(k) for k in a.targets]
        given = "".join(f"d[{k}], " for k in a.results) + "".join(f"{x}, " for x in a.saved)
        contexts = f"(ctx, *{CONTEXTS})" if a.contexts else "()"
        watched = f"w{number}" if a.guards else "()"
        given += _kept(w.refer(a.function.backward_for, "backward"), contexts, handles, watched, a.held, ())
        ends = ", ".join(handles) or w.refer(support.DEAD_END)
        ends += f", {w.refer(support.beyond())}" if a.function.raising else ""
        lines += [f"    w{number} = []"] if a.guards else []
        lines.append(f"    {''.join(f'd[{k}], ' for k in a.results)}= {w.refer(a.function.apply)}(({given}), {ends})")
        lines += [f"    {w.refer(support.keep_place)}(d[{a.results[k]}])" for k in a.own]
        lines += [f"    w{number}.append({watch(guard)})" for guard in a.guards]
    picked = "".join(f"{whole}[{same[k]}], " if k in same else f"d[{k}], " for k in reached) or "None, "
    lines.append(f"    return (None, {picked})")
    w.lines = lines
    return w


def _make_function(
    forward: Callable[..., Any], backward: Callable[..., Any], frees: dict[int, str | None]
) -> type[torch.autograd.Function]:
    """An autograd Function; ``frees``: see ``support.frees``."""
    return type(
        "CompiledFunction",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward), "frees": frees},
    )
