"""A record in words: what the graph takes and gives, then one line per step."""

from aotcheck.autograd.ir.trace import Geometry
from aotcheck.autograd.record.record import Record
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
    WindowOn,
    Wrap,
    Write,
    WriteFlat,
)
from aotcheck.autograd.replicas.hooks import HookKind


def describe(record: Record) -> tuple[str, ...]:
    """One line for what goes into the graph, one for what comes out, one per step, and one for what is returned.

    Steps are numbered from 1, those before results are attached to autograd and the others in one sequence.
    """
    inputs = [name(root.source) for root in record.roots]
    inputs += [f"the storage of {name(flat.source)}" for flat in record.flats]
    results = [
        f"r{k} {'sparse' if o.geometry is None else geometry(o.geometry)}, {o.role.name.lower()}"
        for k, o in enumerate(record.outputs)
    ]
    lines = [f"graph: {_list(inputs)} -> {_list(results)}"]
    lines += [f"{number}. {describe_step(step, record)}" for number, step in enumerate(record.all_steps, 1)]
    returned = [repr(r.value) if isinstance(r, Constant) else name(r) for r in record.returns]
    return (*lines, f"return {_list(returned)}")


def name(ref: Ref) -> str:
    """A tensor of the call in a few characters: ``argument 0``, ``base of argument 0``, ``r0`` (a result of the
    graph) or ``t0`` (made by an earlier step)."""
    match ref:
        case Arg(index):
            return f"argument {index}"
        case BaseOf(index):
            return f"the base of argument {index}"
        case Result(index):
            return f"r{index}"
        case Local(index):
            return f"t{index}"


def geometry(g: Geometry) -> str:
    """A geometry in a few characters; what is as usual is left out."""
    shown = f"{str(g.dtype).removeprefix('torch.')}{list(g.shape)}"
    if not g.is_contiguous:
        shown += f" stride {list(g.stride)}"
    if g.offset:
        shown += f" at {g.offset}"
    return shown + (" conj" if g.conj else "") + (" neg" if g.neg else "")


_MODES = {
    ReplayMode.AMBIENT: "",
    ReplayMode.GRAD: ", under enable_grad",
    ReplayMode.NO_GRAD: ", under no_grad",
    ReplayMode.INFERENCE: ", under inference_mode",
}


def describe_step(step: Step, record: Record) -> str:
    """One step of ``record`` in words."""
    match step:
        case Hold(local, source):
            return f"{name(local)}: hold the storage of {name(source)}"
        case HoldAccumulator(local, source, recorded, anew):
            made = f"{'made anew ' if anew else ''}for {geometry(recorded)}"
            return f"{name(local)}: hold what gradients of {name(source)} arrive at, {made}"
        case ResizeStorage(source, nbytes):
            return f"resize the storage of {name(source)} to {nbytes} bytes"
        case WriteFlat(source, dtype, result):
            return f"write {name(result)} over the whole storage of {name(source)} as {str(dtype)[6:]}"
        case Write(target, result, visibility):
            seen = "" if visibility is Visibility.VERSION else ", unseen by autograd"
            return f"write {name(result)} to {name(target)}{seen}"
        case NoteVersion(local, target):
            return f"{name(local)}: where the version counter of {name(target)} stands"
        case NoteNodes(local):
            return f"{name(local)}: how many nodes autograd has made"
        case OrderNodes(_, made):
            return f"the nodes that made {_list([name(x) for x in made])} are numbered in this order"
        case BumpVersion(target):
            return f"count a write to {name(target)}"
        case StandIn(local, g, _):
            return f"{name(local)}: a stand-in {geometry(g)} that takes a history"
        case Bridge(local, source, _):
            return f"{name(local)}: stands for {name(source)} in autograd's graph"
        case Attach(group):
            return f"attach to autograd {_list([name(record.attached[k].ref) for k in record.groups[group].attached])}"
        case MakeInference(target, wanted, _):
            return f"{name(target)} becomes {'an' if wanted else 'no'} inference tensor"
        case Poison(target):
            return f"no gradient may be accumulated into {name(target)} any more"
        case Swap(target, other):
            return f"{name(target)} and {name(other)} are swapped"
        case TakeHistory(target, source):
            return f"{name(target)} takes the history of {name(source)}"
        case TakeHistoryOfSet(target, sources):
            to = "".join(f" to {name(x)}" for x in sources)
            return f"{name(target)} takes the history of set_{to}, which has no derivative"
        case RenewHistory(target):
            return f"autograd looks for the history of {name(target)}"
        case GiveHistory(target, source):
            return f"{name(target)} gets the history of {name(source)}"
        case Restride(target, g):
            return f"{name(target)} becomes {geometry(g)} in place, unseen by autograd"
        case Reshape(target, change):
            return f"{name(target)} changes its geometry in place by {_called(change)}"
        case PointAt(target, holder, g, relative, way):
            where = f"{geometry(g)} on the storage of {name(holder)}{', counted from there' if relative else ''}"
            return f"{name(target)} moves to {where}, by {way.value}"
        case Detach(target, leaf):
            return f"{name(target)} {'stops requiring grad' if leaf else 'is cut from its history'}"
        case CheckCallerGraph(targets, written):
            behind, done = (_list([name(x) for x in refs]) for refs in (targets, [x for x, _ in written]))
            return f"the graph behind {behind} is asked whether it objects to writes of {done}"
        case BackwardOnward(targets, gradients, retained):
            kept = ", whose graph is retained" if retained else ""
            brought = _list([f"{name(g)} to {name(t)}" for t, g in zip(targets, gradients, strict=True)])
            return f"a backward goes on{kept}: {brought}"
        case ReplayView(local, base, view_func, mode, _):
            return f"{name(local)}: a view of {name(base)} by {_called(view_func)}{_MODES[mode]}"
        case PickView(local, several, index):
            return f"{name(local)}: number {index} of {name(several)}"
        case WindowOn(local, holder, g, _, own_version):
            apart = ", with a version counter of its own" if own_version else ""
            return f"{name(local)}: {geometry(g)} on the storage of {name(holder)}, no view of it{apart}"
        case SetCreationMeta(target, creation_meta):
            return f"writes to {name(target)} are treated as those to a view made as {str(creation_meta)[13:]}"
        case RequireGrad(target):
            return f"{name(target)} starts to require grad"
        case RequireGradOfInteger(target):
            return f"{name(target)}, of integers, gets a history"
        case CountWith(target, other):
            return f"{name(target)} counts its versions with {name(other)}"
        case RetainGrad(target):
            return f"{name(target)} retains its gradient"
        case Wrap(local, wrapping, inner):
            return f"{name(local)}: a {wrapping.kind.__name__} of {_list([name(x) for x in inner])}"
        case RestrideWrapper(target, outer):
            return f"{name(target)} claims to have sizes {list(outer[0])} and strides {list(outer[1])}"
        case SetAttribute(target, attribute, value):
            what = repr(value.value) if isinstance(value, Constant) else name(value)
            return f"{name(target)}.{attribute} becomes {what}"
        case PickHeld(local, source, attribute):
            return f"{name(local)}: {name(source)}.{attribute}"
        case TakeOffsets(target, source):
            return f"{name(target)} is ragged by what {name(source)} is ragged by"
        case FillCache(target, attribute, key, value):
            return f"{name(target)}.{attribute}[{key!r}] becomes {name(value)}, if there is none"
        case ShareCache(target, attribute, other):
            return f"{name(target)}.{attribute} becomes that of {name(other)}"
        case RegisterHook(target, hook, kind):
            when = " for after accumulation" if kind is HookKind.ACCUMULATED else ""
            return f"{name(target)} gets the hook {_called(hook)}{when}"
        case SetGradient(target, source):
            return f"the gradient of {name(target)} is {'gone' if source is None else name(source)}"
        case SetGradMode(enabled):
            return f"grad mode is switched {'on' if enabled else 'off'}"


def _called(function: object) -> str:
    """What a replayed op is called, with the arguments that are bound to it."""
    keywords = getattr(function, "keywords", None)
    inner = getattr(function, "func", function)
    bound = ", ".join(f"{k}={v}" for k, v in (keywords or {}).items())
    owner = getattr(inner, "__self__", inner)  # a change of geometry is repeated by a method
    op, args = getattr(owner, "op", None), getattr(owner, "args", None)
    if op is not None:
        return f"{op}{tuple(args) if args is not None else ''}"
    title = getattr(inner, "__name__", type(inner).__name__).lstrip("_")
    return f"{title}({bound})" if bound else title


def _list(items: list[str]) -> str:
    return ", ".join(items) or "nothing"
