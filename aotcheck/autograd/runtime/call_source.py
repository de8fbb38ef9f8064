"""The Python of a call: prologue, the compiled forward, attaching, epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.graphs import caller_hooks, failing
from aotcheck.autograd.graphs.graph import SourceWriter
from aotcheck.autograd.ir.trace import Geometry, geometry_of, recorded_geometry
from aotcheck.autograd.record.record import Record
from aotcheck.autograd.record.steps import Attach, BaseOf, Constant, MakeInference, Result
from aotcheck.autograd.runtime import backward, history
from aotcheck.autograd.runtime.attachments import Attachment, Counter, HowSaved, Told, kept_source
from aotcheck.autograd.runtime.step_source import named, step_line
from aotcheck.autograd.tensors import memory
from aotcheck.autograd.tensors.subclasses import is_wrapper


def write_call(
    record: Record,
    attachments: Sequence[Attachment],
    wrong: dict[int, Geometry],
    fresh: Sequence[bool],
    shape_result: Callable[[list[str], Callable[[Any], str]], str],
    random: bool,
    how: HowSaved,
    merged: frozenset[int] = frozenset(),
    hooked: bool = False,
) -> SourceWriter:
    """The function ``call(a)``: flat arguments in, the caller's result out.

    ``wrong`` maps the outputs whose layout must be set right to that layout. ``fresh`` says of each thing the
    forward returns, saved values included, that it is known to be no view: a view made under the forward's own
    no_grad is hidden by ``detach``, its autograd identity being an accident. ``merged`` of what the forward returns
    has to be copied (see Note [First run]). ``hooked``: it calls hooks of the caller's. ``shape_result`` turns the
    expressions of the flat results into that of what the caller gets. The names ``fw``, ``apply0`` ... and
    ``backward0`` ... are to be set in the writer's globals.
    """
    w = SourceWriter()
    w.globals.update(base_of=_torch.base_of, grad_mode=_torch.set_grad_enabled_raw, layout=memory.with_layout)
    n = len(record.outputs)
    names = [f"r{k}" for k in range(n)] + [f"s{k}" for k in range(len(fresh) - n)]
    left = ", ".join(names) + ", = " if names else ""
    lines = ["def call(a):"]
    for i in record.swapped:
        lines += [f"    {w.refer(history.forget_notes)}(a[{i}])", f"    {w.refer(failing.check_swap)}(a[{i}])"]
    lines += [f"    {b}" for b in _bases(record)]
    roots = [named(r.source) for r in record.roots]
    targets = [*roots, *map(named, [r.source for r in record.wrappers])] if record.wrappers else [*roots]
    # See Note [Handles]. What is swapped becomes another object's, which the graph follows.
    exchanged = {f"a[{i}]" for i in record.swapped} if record.swapped else ()
    handles = []
    for r, root in zip(targets, (*record.roots, *record.wrappers), strict=True):
        handles.append(r if root.is_leaf and r not in exchanged else f"{w.refer(history.bridge)}({r})")
    leaves = list(map(named, [x.ref for x in record.leaves])) if record.leaves else []
    views = [f"e{len(roots) + k}" for k in range(len(record.views))] if record.views else []
    targets += leaves
    targets += views
    if record.cuts:
        targets += map(named, [x.ref for x in record.cuts])
    reached: set[int] = set()
    for part in attachments:
        reached.update(part.held_targets())
    for k, root in enumerate((*record.roots, *record.wrappers)):
        if root.moves and k in reached:
            name = f"e{k}" if k < len(roots) else f"ew{k}"
            lines.append(f"    {name} = {w.refer(history.early_bridge)}({targets[k]})")
            handles[k] = targets[k] = name
    for x, name in zip(record.views, views, strict=True):
        if targets.index(name) in reached:
            lines.append(f"    {name} = {w.refer(history.early_bridge)}({named(x.ref)})")
    handles += leaves
    handles += views
    for x in record.cuts:
        recorded = None if is_wrapper(x.tensor) else recorded_geometry(x.tensor)
        other = recorded is not None and recorded != geometry_of(x.tensor)
        handles.append(f"{w.refer(history.bridge)}({named(x.ref)}{f', {w.refer(recorded)}' if other else ''})")
    inputs = [f"{r}.data" if root.hidden else r for r, root in zip(roots, record.roots, strict=True)]
    for k, flat in enumerate(record.flats):
        lines.append(f"    f{k} = {w.refer(memory.flat_view)}({named(flat.source)}, {w.refer(flat.dtype)})")
        inputs.append(f"f{k}")
    generators = [f"a[{i}]" for i in record.generators] if record.generators else []
    inputs += generators
    if random:
        lines.append(f"    states = {w.refer(failing.generator_states)}({', '.join(generators)})")
    lines.append("    try:")
    if record.entry_grad:
        lines.append("        grad_mode(False)")
    forward = f"{w.refer(caller_hooks.with_hooks)}(a, fw, " if hooked else "fw("
    lines.append(f"        {left}{forward}{', '.join(inputs)})")
    lines.append(f"    except {w.refer(failing.StrideCorrection)}: raise")
    undo = f"{w.refer(failing.restore_generators)}(states); " if random else ""
    lines.append(f"    except Exception as e: {undo}raise {w.refer(failing.GraphFailed)} from e")
    if record.entry_grad:
        lines.append("    finally: grad_mode(True)")
    for k in sorted(merged):
        lines.append(f"    {names[k]} = {names[k]}.detach().clone()")
    for k, g in wrong.items():
        lines.append(f"    r{k} = layout(r{k}, {w.refer(g)})")
    for j, k in how.relaid.items():
        lines.append(f"    s{j} = r{k}")
    for k, name in enumerate(names):
        if not fresh[k] and k not in wrong:
            lines.append(f"    {name} = {name}.detach()")
    for k in sorted(how.moved):
        lines.append(f"    s{k} = s{k}.data")
    for k in sorted(how.by_views - how.moved):  # such a view keeps the argument, for `swap_tensors` to count
        lines.append(f"    s{k} = {w.refer(torch.ops.aten.alias.default)}(s{k})")
    # What eager saved is no inference tensor: it was made outside inference mode, or put on such a one's memory.
    inference = record.entry_inference or any(r.inference for r in record.roots)
    for s in record.before:
        inference = inference or (isinstance(s, MakeInference) and s.wanted)
    as_saved = w.refer(memory.as_saved) if inference else ""
    if as_saved and attachments:
        lines += [f"    {name} = {as_saved}({name})" for name in names[n:]]
    for s in record.before:
        lines.append(f"    {step_line(s, w)}")
    unwatched = {k for part in attachments for k in part.unwatched} if how.in_memory else ()
    for k, m in how.in_memory.items():
        if m.argument is not None and k not in unwatched:
            lines.append(f"    s{k} = {named(m.argument)}")
            continue
        on = f"{w.refer(memory.window_on)}({named(m.holder)}, {w.refer(m.geometry)}, {m.anchor}, True)"
        lines.append(f"    s{k} = {as_saved}({on})")

    def by_way(number: int, k: int) -> str:
        """A target of which a backward asks whether it comes there; of a leaf that is slow: see ``history.by_way``."""
        is_leaf = (
            k < len(roots) and record.roots[k].is_leaf and not (record.roots[k].inference or record.entry_inference)
        )
        if not is_leaf or targets[k] != handles[k]:
            return targets[k]
        return f"{w.refer(history.by_way)}({targets[k]}) if finder{number}.asks_leaves else {targets[k]}"

    def saved_as(part: Attachment, k: int) -> str:
        return f"s{k}.data" if k in part.unwatched else f"s{k}.detach()" if k in part.loose else f"s{k}"

    # Functions of which each may have to know what arrives at others' nodes: see Note [Zeros that arrive].
    common = len(attachments) > 1 and (bool(record.wrappers) or any(is_wrapper(x.tensor) for x in record.attached))

    def attach(number: int) -> list[str]:
        part, attached, returned_later = attachments[number], [], []
        results = "".join([f"{named(record.attached[k].ref)}, " for k in part.outputs])
        given = results + "".join([f"{saved_as(part, k)}, " for k in part.saved])
        given += "".join([f"{w.refer(memory.holder_of)}({named(x)}), " for x in part.holders]) if part.holders else ""
        if part.guards:
            attached.append(f"w{number} = []")
        watched = f"w{number}" if part.guards else "()"
        attached += [f"v{number} = []"] if part.views else []
        live: list[str] = []
        if part.windows or part.reshaped:
            on = w.refer(memory.window_on)
            live = [f"{on}({named(x.holder)}, {w.refer(x.geometry)}, {x.anchor}, False)" for x in part.windows]
            live += map(named, part.reshaped)
        held = list(map(named, part.held))
        seen = f"v{number}" if part.views else "()"
        kept = kept_source(
            f"finder{number}",
            "(z,)" if common else "()",
            [handles[k] for k in part.held_targets()],
            watched,
            held,
            live,
            seen,
        )
        # Results that lead nowhere require grad all the same: they hang on a leaf of nobody's.
        asked = {part.targets[n] for n in part.cover} if part.cover else ()
        ends = ", ".join([by_way(number, k) if k in asked else targets[k] for k in part.targets])
        ends = ends or w.refer(backward.DEAD_END)
        ends += f", {w.refer(backward.beyond())}" if part.selective else ""
        for k in part.outputs:
            x = record.attached[k]
            if x.recorded is not None and isinstance(x.ref, Result):
                attached.append(f"h{x.ref.index} = {w.refer(history.lend)}({named(x.ref)}, {w.refer(x.recorded)})")
                returned_later.append(f"{named(x.ref)}.data = h{x.ref.index}")
        attached.append(f"{results}= apply{number}(({given}{kept}), {ends})")
        attached += returned_later
        for place in part.own:
            attached.append(f"{w.refer(history.keep_place)}({named(record.attached[part.outputs[place]].ref)})")
        # The order in which a Function calls the hooks on its results: in eager those of the node made last come first.
        for _, k in sorted(_alone(record, part.outputs)) if len(part.outputs) > 1 else ():
            attached.append(f"{w.refer(history.hooks_of_its_own)}({named(record.attached[k].ref)})")
        if record.entry_grad:
            return [f"    {x}" for x in attached]
        return ["    grad_mode(True)", "    try:", *[f"        {x}" for x in attached], "    finally: grad_mode(False)"]

    if common:
        lines.append(f"    z = {w.refer(Told)}()")
    for s in record.steps:
        lines += attach(s.group) if isinstance(s, Attach) else [f"    {step_line(s, w)}"]
    for number, part in enumerate(attachments):
        for guard in part.guards:
            watch = w.refer(backward.watch)
            assert not isinstance(guard.watched, Counter)
            lines.append(f"    w{number}.append({watch}({named(guard.watched)}, {guard.place}, {guard.ragged}))")
        for ref in part.views:
            lines.append(f"    v{number}.append({w.refer(history.note)}({named(ref)}))")
    returned = [w.refer(r.value, "k") if isinstance(r, Constant) else named(r) for r in record.returns]
    lines.append(f"    return {shape_result(returned, w.refer)}")
    w.lines = lines
    return w


def _bases(record: Record) -> list[str]:
    wanted: set[int] = set()
    for r in record.roots:
        if isinstance(r.source, BaseOf):
            wanted.add(r.source.index)
    return [f"b{i} = base_of(a[{i}])" for i in sorted(wanted)]


def _alone(record: Record, outputs: Sequence[int]) -> list[tuple[int, int]]:
    """Those of ``outputs`` that have a node of their own in eager, each after the negative of the node's number."""
    nodes = [(_torch.grad_fn_of(record.attached[k].tensor), k) for k in outputs]
    return [
        (0 if node is None else -_torch.sequence_number(node), k)
        for node, k in nodes
        if node is None or _torch.outputs_of(node) == 1
    ]
