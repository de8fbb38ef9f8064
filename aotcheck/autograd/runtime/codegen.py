"""Generated straight-line Python: prologue, the autograd Function, epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.graph import SourceWriter, define
from aotcheck.autograd.record import (
    Arg,
    BaseOf,
    BumpVersion,
    Constant,
    Detach,
    Hold,
    Local,
    PointAt,
    Record,
    Ref,
    ReplayView,
    ResizeStorage,
    Restride,
    Result,
    SetGradMode,
    Step,
    Visibility,
    WindowOn,
    Write,
    WriteFlat,
)
from aotcheck.autograd.runtime import support
from aotcheck.autograd.trace import Geometry, Value


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
    Visibility.DIFFERENTIABLE: support.differentiable_write,
    Visibility.VERSION: support.version_write,
    Visibility.HIDDEN: support.hidden_write,
}


def step_line(step: Step, w: SourceWriter) -> str:
    """One line of Python that carries out ``step``."""
    match step:
        case Hold(local, source):
            return f"{_ref(local)} = {_ref(source)}.detach()"
        case ResizeStorage(source, nbytes):
            return f"{_ref(source)}.untyped_storage().resize_({nbytes})"
        case WriteFlat(source, dtype, result):
            return f"{w.refer(support.flat_write)}({_ref(source)}, {w.refer(dtype)}, {_ref(result)})"
        case Write(target, result, visibility):
            return f"{w.refer(_WRITERS[visibility])}({_ref(target)}, {_ref(result)})"
        case BumpVersion(target):
            return f"{w.refer(torch.autograd.graph.increment_version)}({_ref(target)})"
        case Restride(target, g, under_grad):
            return f"{w.refer(support.restride)}({_ref(target)}, {g.shape}, {g.stride}, {g.offset}, {under_grad})"
        case PointAt(target, holder, g, relative, through_data):
            return f"{w.refer(support.point_at)}({_ref(target)}, {_ref(holder)}, {w.refer(g)}, {relative}, {through_data})"
        case Detach(target, leaf):
            return f"{_ref(target)}.requires_grad_(False)" if leaf else f"{_ref(target)}.detach_()"
        case ReplayView(local, base, view_func, no_grad, creation_meta):
            func = w.refer(view_func, "view")
            call = f"{w.refer(support.replay_without_grad)}({func}, {_ref(base)})" if no_grad else f"{func}({_ref(base)})"
            line = f"{_ref(local)} = {call}"
            if creation_meta is not None:
                line += f"; {w.refer(_torch.set_creation_meta)}({_ref(local)}, {w.refer(creation_meta)})"
            return line
        case WindowOn(local, holder, g, anchor):
            return f"{_ref(local)} = {w.refer(support.window_on)}({_ref(holder)}, {w.refer(g)}, {anchor})"
        case SetGradMode(enabled):
            return f"{w.refer(_torch.set_grad_enabled_raw)}({enabled})"


def _bases(record: Record) -> list[str]:
    wanted: set[int] = set()
    for r in record.roots:
        if isinstance(r.source, BaseOf):
            wanted.add(r.source.index)
    return [f"b{i} = base_of(a[{i}])" for i in sorted(wanted)]


def write_call(
    record: Record,
    written: dict[int, Geometry],
    shape_result: Callable[[list[str], Callable[[Any], str]], str],
    random: bool,
) -> SourceWriter:
    """The function ``call(a)``: flat arguments in, the caller's result out.

    ``written`` maps the outputs whose layout must be set right to that layout. ``shape_result`` turns the expressions of the flat results into
    that of what the caller gets. The names ``fw`` (inference) or ``apply`` (training) are to be set in the writer's globals.
    """
    w = SourceWriter()
    w.globals.update(base_of=_torch.base_of, grad_mode=_torch.set_grad_enabled_raw, layout=support.with_layout)
    results = [f"r{k}" for k in range(len(record.outputs))]
    left = ", ".join(results) + ", = " if results else ""
    lines = ["def call(a):"]
    lines += [f"    {b}" for b in _bases(record)]
    inputs = [_ref(r.source) for r in record.roots]
    for k, flat in enumerate(record.flats):
        lines.append(f"    f{k} = {w.refer(support.flat_view)}({_ref(flat.source)}, {w.refer(flat.dtype)})")
        inputs.append(f"f{k}")
    arguments = ", ".join(inputs)
    wanted = record.differentiable
    run = f"{left}{'apply' if wanted else 'fw'}({arguments})"
    if random:
        lines.append(f"    states = {w.refer(support.generator_states)}()")
    lines.append("    try:")
    if wanted != record.entry_grad:
        lines.append(f"        grad_mode({wanted})")
    lines.append(f"        {run}")
    lines.append(f"    except {w.refer(support.StrideCorrection)}: raise")
    undo = f"{w.refer(support.restore_generators)}(states); " if random else ""
    lines.append(f"    except Exception as e: {undo}raise {w.refer(support.GraphFailed)} from e")
    if wanted != record.entry_grad:
        lines.append(f"    finally: grad_mode({record.entry_grad})")
    if not record.differentiable:
        lines += _layout_lines(written, w)
    lines += [f"    {step_line(s, w)}" for s in record.steps]
    returned = [w.refer(r.value, "k") if isinstance(r, Constant) else _ref(r) for r in record.returns]
    lines.append(f"    return {shape_result(returned, w.refer)}")
    w.lines = lines
    return w


def _layout_lines(written: dict[int, Geometry], w: SourceWriter) -> list[str]:
    return [f"    r{k} = layout(r{k}, {w.refer(g)})" for k, g in written.items()]


def write_function(record: Record, saved: Sequence[Value], wrong: dict[int, Geometry], fresh: Sequence[bool]) -> SourceWriter:
    """``forward`` and ``backward`` of the autograd Function.

    ``fresh`` says of each forward output, saved ones included, that it is known to be no view. A view made under the Function's own no_grad
    must be hidden by ``detach``: its autograd identity is an accident of the implementation.
    """
    w = SourceWriter()
    w.globals.update(grad_enabled=torch.is_grad_enabled, refuse=support.refuse_double_backward, layout=support.with_layout)
    n = len(record.outputs)
    results = [f"r{k}" for k in range(n)]
    kept = [f"s{k}" for k in range(len(saved))]

    def plain(name: str, is_fresh: bool) -> str:
        return name if is_fresh else f"{name}.detach()"

    lines = ["def forward(ctx, *a):", f"    {', '.join([*results, *kept])}, = fw(*a)"]
    lines += _layout_lines(wrong, w)
    if kept:
        lines.append(f"    ctx.save_for_backward({', '.join(plain(s, fresh[n + k]) for k, s in enumerate(kept))})")
    constant = [r for r, o in zip(results, record.outputs, strict=True) if not o.differentiable]
    if constant:
        lines += [f"    {r} = {plain(r, fresh[k])}" for k, r in enumerate(results) if r in constant and not fresh[k]]
        lines.append(f"    ctx.mark_non_differentiable({', '.join(constant)})")
    lines.append("    ctx.set_materialize_grads(False)")
    lines.append(f"    return {', '.join(r if r in constant else plain(r, fresh[k]) for k, r in enumerate(results))},")
    tangents = [k for k, o in enumerate(record.outputs) if o.differentiable]
    defined = "".join(f"g[{k}] is not None, " for k in tangents)
    lines += [
        "def backward(ctx, *g):",
        "    if grad_enabled(): refuse()",
        f"    return backward_for(({defined}))(ctx.saved_tensors, g)",
    ]
    w.lines = lines
    return w


def write_backward(
    inputs: int, used: Sequence[int], tangents: Sequence[tuple[int, tuple[int, ...]]], gradients: int, extra: int
) -> SourceWriter:
    """``run(s, g)``: pick what this backward uses of the saved tensors and incoming gradients, and give one gradient per forward input."""
    w = SourceWriter()
    w.globals["with_strides"] = support.with_strides
    lines = ["def run(s, g):"]
    names = [f"s[{k}]" for k in used]
    for k, stride in tangents:
        lines.append(f"    t{k} = g[{k}]")
        lines.append(f"    if t{k}.stride() != {stride}: t{k} = with_strides(t{k}, {stride})")
        names.append(f"t{k}")
    lines.append(f"    return (*bw({', '.join(names)}), {'None, ' * extra})")
    w.lines = lines
    return w


def make_function(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[torch.autograd.Function]:
    """An autograd Function of its own for one specialization."""
    return type("CompiledFunction", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


__all__ = ["define", "make_function", "step_line", "write_backward", "write_call", "write_function"]
