"""The Python of autograd Functions, and of the backwards that they find for the gradients that come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.graphs.graph import SourceWriter, define
from aotcheck.autograd.ir.trace import Geometry
from aotcheck.autograd.runtime import backward, history, replays
from aotcheck.autograd.runtime.attachments import (
    CONTEXTS,
    HANDLES,
    LIVE,
    VIEWS,
    WATCHED,
    Application,
    BackwardReshape,
    BackwardWrite,
    Bringing,
    Counter,
    Freed,
    Gathered,
    Guard,
    Keeper,
    Shared,
    kept_source,
)
from aotcheck.autograd.runtime.held import free_behind, hold_again
from aotcheck.autograd.runtime.step_source import WRITERS
from aotcheck.autograd.runtime.undefined import at_all, only_told, pass_on, told
from aotcheck.autograd.tensors import memory
from aotcheck.autograd.tensors.subclasses import Wrapping


@functools.lru_cache(maxsize=256)
def function_like(
    outputs: int,
    saved: int,
    targets: int,
    guarded: bool,
    checked: tuple[tuple[int, ...], ...],
    once: tuple[int, ...],
    frees: tuple[tuple[int, Freed], ...],
    shared: tuple[Shared, ...],
    own: tuple[int, ...] = (),
    raising: tuple[tuple[int, str, tuple[int, ...]], ...] = (),
    leads: tuple[tuple[int, ...], ...] = (),
    minds: tuple[int, ...] = (),
    mates: tuple[tuple[int, ...], ...] = (),
    views: bool = False,
    selective: bool = False,
    lenient: tuple[int, ...] = (),
    divisible: bool = False,
    reentrant: tuple[tuple[int, tuple[int, ...]], ...] = (),
    lasting: bool = False,
    holders: int = 0,
    holds: bool = False,
    gathers: tuple[Gathered, ...] = (),
) -> Callable[..., Any]:
    """``apply`` of a Function that attaches computed results to autograd.

    Its first argument is a tuple of the results, of what is to be saved, of so many ``holders`` that are saved as well
    (see Note [Arguments held]), and of what the context keeps: what finds
    backwards, the contexts of the stages before, the targets' handles, the versions that the backward checks (a list
    that is filled later), arguments that gradients hold, and windows on memory that the backward writes. Its other
    arguments are the targets, the tensors to differentiate by. ``guarded``: whether there are versions to check.
    ``checked`` are for each result the saved tensors that must not have been written, whether its backward reads them
    or not. ``once``: the results from which a second backward raises; torch does that when saved tensors are asked for
    again, even if there are none. ``frees``: see ``backward.frees``. ``shared``: see Note [Shared nodes]. ``own``: the
    results that are saved for their place in autograd's graph. ``raising``: those behind which something raises if a
    backward leaves nothing out, with what it raises and the targets behind that. ``leads``: see ``undefined.pass_on``.
    ``minds``: see Note [Undefined gradients]. ``mates``: for each result those that one op of eager's gave with it.
    ``views``: whether its context has noted views that derivatives come by. ``selective``: as for Function.
    ``lenient``: those of ``once`` behind which only writes through views keep anything, which given no gradient do not
    look for what they keep.
    ``divisible``: whether backwards may leave out some of what keeps anything, see Note [Gradients asked for].
    ``reentrant``: the results behind which there is a reentrant checkpoint, with the targets behind that.
    ``lasting``: what is saved is kept where no backward frees it, see Note [Kept in attributes].
    ``holds``: whether by what is saved arguments are held. ``gathers``: see Note [Functions for all gradients].
    """
    w = SourceWriter()
    w.globals.update(grad_enabled=torch.is_grad_enabled, node=torch.autograd.function.BackwardCFunction)
    lines = ["def forward(ctx, h, *targets):", "    ctx.kept = h[-1]"]
    if lasting:
        lines.append(f"    ctx.lasting = {w.refer(_not_results)}(h[{outputs}:-1], h[:{outputs}])")
    elif saved or own or holders:
        places = "".join(f", h[{k}]" for k in own)
        lines.append(f"    ctx.save_for_backward(*h[{outputs}:-1]{places})")
    if own:
        lines.append(f"    ctx.own = {{{', '.join(f'{k}: {saved + holders + n}' for n, k in enumerate(own))}}}")
    lines += ["    ctx.set_materialize_grads(False)", f"    return h[:{outputs}]"]
    # Of a plain tensor's type only what is sparse must be told from it.
    w.globals.update(strided=torch.strided)
    kinds = "".join(
        f"type(g[{k}]) if g[{k}] is None or g[{k}].layout is strided else {w.refer(backward.kind_of)}(g[{k}]), "
        for k in range(outputs)
    )
    trained = "".join(f"g[{k}] is not None and g[{k}].requires_grad, " for k in range(outputs))
    trained += f"*[x.lasts() for x in {VIEWS}]" if views else ""
    # The engine comes by with nothing defined where another tensor's gradients end: no reason to look at what is saved.
    undefined = " and ".join(f"g[{k}] is None" for k in range(outputs))
    nothing = f"(None,) * {1 + max(1, targets) + selective}"
    present = "".join(f"p[{k}] is not None, " for k in range(outputs))
    checks = [
        *_check_not_freed(w, outputs, saved, once, guarded),
        *_check_saved(w, outputs, checked),
        *([f"    {w.refer(backward.check_watched)}({WATCHED}, ({present}))"] if guarded else []),
        *_check_shared(w, outputs, shared),
        *([f"    {w.refer(free_behind)}(ctx, p)"] if holds else []),
    ]
    raises: list[str] = []
    for j, error, behind in raising:
        raises.append(f"    if p[{j}] is not None: {w.refer(backward.raise_if_all_runs)}({error!r})")
        if behind:
            raises.append(f"    if p[{j}] is True: {w.refer(backward.raise_if_asked)}({error!r}, ctx, {behind})")
    raises += [
        f"    if p[{j}] is not None: {w.refer(backward.refuse_some_gradients)}(ctx, {there})" for j, there in reentrant
    ]
    for x in gathers:
        whose = "ctx" if x.context is None else f"{CONTEXTS}[{x.context}]"
        needed = " or ".join(f"p[{j}] is not None" for j in x.places)
        raises.append(f"    if {needed}: {w.refer(backward.run_for_all)}({whose}, {x.nodes})")
    some = f"[None if k in {lenient} and g[k] is None else x for k, x in enumerate(p)]"
    lines += [
        "def backward(ctx, *g):",
        f"    {'c = ' if lenient else ''}p = g",
        f"    if {undefined}:",
        f"        p = {w.refer(told)}(ctx, {outputs})",
        f"        if p is None: return {nothing}",
        *([f"        c = {some}"] if lenient else []),
    ]
    if outputs > 1:
        lines += ["    elif hasattr(ctx, 'told'):", f"        p = {w.refer(at_all)}(ctx, g)"]
        lines += [f"        c = {some}"] if lenient else []
    if divisible:  # what compiled autograd has in the context's place leaves nothing out
        begins = "[x if p is g or any(y is not None for y in c) else None for x in c]" if lenient else "p"
        lines.append(f"    w = ctx.kept[0].partly(ctx, {begins}) if isinstance(ctx, node) else None")
        lines += ["    if w is not None: w.check()", "    else:", "        pass"]
        checks = ["    " + line for line in checks]
    if lenient:
        indent = "    " * divisible
        lines += [f"{indent}    if p is g or any(x is not None for x in c):", f"{indent}        pass"]
        lines += [f"    {line.replace('p[', 'c[')}" for line in checks]
    else:
        lines += checks
    lines += raises
    begins = f"() if p is g else {w.refer(only_told)}(g, p, {minds})"
    lines += [
        *([f"    t = {begins}"] if minds else []),
        f"    if p is not g{' and not t' if minds else ''}{f' and {undefined}' if outputs > 1 else ''}:",
        *(
            [f"        {'if w is None: ' if divisible else ''}ctx.saved_tensors"]
            if saved and once and outputs == 1 and not lenient
            else []
        ),
        *([f"        {w.refer(pass_on)}(ctx, (None,) * {targets}, {leads}, p)"] if leads else []),
        f"        return {nothing}",
        f"    trained = ({trained}) if grad_enabled() else None",
        *(["    find, c = (ctx.kept[0].find, ctx) if w is None else (w.find, w.ctx)"] if divisible else []),
        f"    d = {'*' if selective else ''}{'find' if divisible else 'ctx.kept[0].find'}(({kinds}), trained"
        f"{', t' if minds else ''})({'c' if divisible else 'ctx'}, g){', None' if selective else ''}",
        *(["    if w is not None: w.done()"] if divisible else []),
    ]
    passed = sorted({k for places in leads for k in places})
    if passed:
        missing = " or ".join(f"d[{1 + k}] is None" for k in passed)
        lines.append(f"    if {missing}: {w.refer(pass_on)}(ctx, d[1:], {leads}, p)")
    lines.append(f"    return d if isinstance(ctx, node) else (None, *{w.refer(history.defined)}(ctx, d[1:]))")
    w.lines = lines
    forward = define(w, "forward", "function")
    return _torch.bound_apply(_make_function(forward, w.globals["backward"], dict(frees), mates))


def _check_saved(w: SourceWriter, outputs: int, checked: Sequence[Sequence[int]]) -> list[str]:
    lines = []
    for which in dict.fromkeys(map(tuple, checked)):
        if which:
            check = f"{w.refer(_torch.unpack_some)}(ctx, {which})"
            places = [j for j in range(outputs) if tuple(checked[j]) == which]
            needed = " or ".join(f"p[{j}] is not None" for j in places)
            lines.append(f"    {check}" if len(places) == outputs else f"    if {needed}: {check}")
    return lines


def _check_shared(w: SourceWriter, outputs: int, shared: Sequence[Shared]) -> list[str]:
    lines = []
    for k, x in enumerate(shared):
        for places, act in ((x.shown, backward.use_context), (x.hidden, backward.use_hidden)):
            if places:
                use = f"{w.refer(act)}({CONTEXTS}[{k}], ctx.kept[0], {k})"
                always = len(places) == outputs
                needed = " or ".join(f"p[{j}] is not None" for j in places)
                lines.append(f"    {use}" if always else f"    if {needed}: {use}")
    return lines


def _check_not_freed(w: SourceWriter, outputs: int, saved: int, once: Sequence[int], guarded: bool) -> list[str]:
    if not once:
        return []
    begins = "[k for k, t in enumerate(p) if t is not None]" if outputs > 1 else "(0,)"
    checks = [f"if getattr(ctx, 'spent', False): {w.refer(backward.check_not_spent)}(ctx, {begins})"]
    # What is saved is asked for anyway if there is but one result, but only after what was written since.
    if not saved or outputs > 1 or guarded:
        checks.append(f"{w.refer(_torch.unpack_some)}(ctx, ())" if saved else "ctx.saved_tensors")
    if len(once) == outputs:
        return [f"    {check}" for check in checks]
    return [f"    if {' or '.join(f'p[{k}] is not None' for k in once)}:", *[f"        {check}" for check in checks]]


def _make_function(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    frees: dict[int, Freed],
    mates: tuple[tuple[int, ...], ...],
) -> type[torch.autograd.Function]:
    """An autograd Function; ``frees``: see ``backward.frees``, ``mates``: ``history.register_hook``."""
    return type(
        "CompiledFunction",
        (torch.autograd.Function,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(_torch.hide_from_dynamo(_torch.noting_freed(_torch.hide_from_dynamo(backward)))),
            "frees": frees,
            "mates": mates,
        },
    )


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
    unread: Sequence[int] = (),
    shown: Collection[int] = (),
    once: bool = False,
    lasting: bool = False,
    brought: Sequence[Bringing] = (),
) -> SourceWriter:
    """``run(ctx, g)``: pick what this backward uses of the saved tensors and incoming gradients.

    It gives a gradient per differentiated target, of the ``gradients`` that the graph returns. ``wrapped`` says which
    of the differentiated have wrappers for gradients, made of what, ``same`` which have a tangent itself, with the
    strides and the owners it has: autograd looks at both where it accumulates. ``windows`` are those on live memory
    that the graph reads; ``writes`` and ``reshaped`` come last. ``unread`` is unpacked besides, and not read. Those of
    ``same`` that are ``shown`` are a view of their tangent. ``once``: a second one raises,
    by asking for what is saved even if the graph reads none of it. ``lasting``: as for ``function_like``. What is
    ``brought`` to leaves is after all else.
    """
    w = SourceWriter()
    unpacking = _unpack(w, [*used, *unread], saved, once, lasting)
    lines = ["def run(ctx, g, whole=None):", *unpacking, *_take_tangents(w, tangents)]
    names = [f"s[{k}]" for k in range(len(used))] + [f"t{k}" for k, _ in tangents]
    names += [f"{LIVE}[{k}]" for k in windows]
    parts = [f"d[{k}]" for k in differentiated]
    for number, k in same.items():
        parts[number] = f"{w.refer(torch.ops.aten.alias.default)}(g[{k}])" if number in shown else f"g[{k}]"
    for number, (wrapping, leaves) in wrapped.items():
        parts[number] = f"{w.refer(wrapping.build, 'wrap')}(({''.join(x + ', ' for x in leaves)}))"
    picked = "".join(f"{x}, " for x in parts) or "None, "
    changes = [f"    {w.refer(WRITERS[x.visibility])}({x.target}, d[{x.result}])" for x in writes]
    for y in reshaped:
        change = w.refer(backward.reshape_in_backward)
        changes.append(f"    {change}({LIVE}[{y.place}], {w.refer(y.before)}, {w.refer(y.after)})")
    changes += _bring(w, brought)
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
    views: Sequence[int] = (),
    heads: Mapping[int, tuple[Geometry, torch.device]] = MappingProxyType({}),
    cuts: Sequence[int] = (),
    twins: Mapping[int, int] = MappingProxyType({}),
    entered: Sequence[int] = (),
    once: bool = False,
    lasting: bool = False,
    shown: Mapping[int, tuple[int, Callable[[Tensor], Any]]] = MappingProxyType({}),
    windows: Sequence[int] = (),
    writes: Sequence[BackwardWrite] = (),
    brought: Sequence[Bringing] = (),
) -> SourceWriter:
    """``run(ctx, g)`` as ``write_backward`` writes it, but what it gives is attached to autograd.

    Of the saved tensors ``unpacked`` the graph reads the first ``read``. ``applications`` attach; their targets are
    those of this backward, ``targets`` in number, then the tangents, those with these ``places``, and then results of
    the stage itself, its ``own``, and ``views`` among those that its context has noted. ``same`` says
    which gradients are which tangent itself, ``wrapped`` which are wrappers, made of what. ``flat``: ``g`` is what the
    tangents are made of. ``heads`` are results that only stand for what several applications share. The results
    ``cuts``, on which others hang, are attached before these, and are targets after all others. ``twins`` says of each
    gradient which of them it is, itself or an earlier one. ``entered`` are targets that this backward does not reach,
    and of which its context has handles after those ``reached``. ``once``, ``lasting``: as for
    ``write_backward``, as are ``windows`` and ``writes``. The gradients ``shown`` are views made under no_grad: of
    which tangent, and how. ``brought``: as for ``write_backward``.
    """
    w = SourceWriter()
    whole = "whole" if flat else "g"
    lines = [f"def run(ctx, g{', whole' if flat else ''}):", *_unpack(w, unpacked, saved, once, lasting)]
    body = _take_tangents(w, tangents)
    names = [f"s[{k}]" for k in range(read)] + [f"t{k}" for k, _ in tangents]
    names += [f"{LIVE}[{k}]" for k in windows]
    body.append(f"    d = bw({', '.join(names)})")
    body += [f"    {w.refer(WRITERS[x.visibility])}({x.target}, d[{x.result}])" for x in writes]
    body += _bring(w, brought)
    w.globals.update(grad_mode=_torch.set_grad_enabled_raw)
    lines += ["    grad_mode(False)", "    try:", *["    " + x for x in body], "    finally: grad_mode(True)"]
    lines += [f"    h, d = {HANDLES}, list(d)"]
    for k, (wrapping, leaves) in wrapped.items():
        lines.append(f"    d[{k}] = {w.refer(wrapping.build, 'wrap')}(({''.join(x + ', ' for x in leaves)}))")
    place = {k: n for n, k in enumerate((*reached, *entered))}

    for k, (lies, device) in heads.items():
        lines.append(f"    d[{k}] = {w.refer(memory.stand_in)}({lies.shape}, {w.refer(lies.dtype)}, {w.refer(device)})")
    noted = targets + len(places) + len(own) + len(views)

    def handle(k: int) -> str:
        if k >= noted:
            return f"d[{cuts[k - noted]}]"
        if k >= targets + len(places) + len(own):
            return f"{VIEWS}[{views[k - targets - len(places) - len(own)]}].place()"
        if k >= targets + len(places):
            return f"{w.refer(history.place_of)}(ctx, {own[k - targets - len(places)]})"
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
        return f"{w.refer(backward.watch)}({what}, {guard.place})"

    for number, a in enumerate(applications):
        handles = [handle(k) for k in a.targets]
        given = "".join(f"d[{k}], " for k in a.results) + "".join(f"{x}, " for x in a.saved)
        given += "".join(f"{w.refer(hold_again)}(ctx, {k}), " for k in a.holders)
        contexts = f"(ctx, *{CONTEXTS})" if a.contexts else "()"
        watched = f"w{number}" if a.guards else "()"
        kept = [*handles, *map(handle, a.entered)]
        given += kept_source(w.refer(a.function.finder, "finder"), contexts, kept, watched, a.held, ())
        ends = ", ".join(handles) or w.refer(backward.DEAD_END)
        ends += f", {w.refer(backward.beyond())}" if a.function.selective else ""
        lines += [f"    w{number} = []"] if a.guards else []
        # A Function forbids to write its results where they are views; of one another they are none to their writers.
        plain = [f"d[{k}]" for k in a.results if k not in heads and k not in wrapped]
        lines += [f"    if {x}._base is not None: {x} = {x}.detach()" for x in plain]
        lines.append(f"    {''.join(f'd[{k}], ' for k in a.results)}= {w.refer(a.function.apply)}(({given}), {ends})")
        lines += [f"    {w.refer(history.keep_place)}(d[{a.results[k]}])" for k in a.own]
        lines += [f"    {w.refer(history.hooks_of_its_own)}(d[{k}])" for k in a.alone]
        lines += [f"    w{number}.append({watch(guard)})" for guard in a.guards]
    attached = {k for a in applications for k in a.results}
    for k in reached:  # what shows a tangent and has no history is no view of that
        if twins.get(k, k) == k and not (k in attached or k in same or k in shown or k in wrapped):
            lines.append(f"    if d[{k}] is not None and d[{k}]._base is not None: d[{k}] = d[{k}].detach()")
    for k, (tangent, view) in shown.items():
        if twins.get(k, k) == k:
            replay = w.refer(replays.replay_without_grad)
            lines.append(f"    d[{k}] = {replay}({w.refer(view, 'view')}, {whole}[{tangent}])")
    parts = [f"{whole}[{same[k]}]" if k in same else f"d[{twins.get(k, k)}]" for k in reached]
    picked = "".join(f"{x}, " for x in parts) or "None, "
    lines.append(f"    return (None, {picked})")
    w.lines = lines
    return w


def _bring(w: SourceWriter, brought: Sequence[Bringing]) -> list[str]:
    return [f"    {w.refer(backward.bring)}({HANDLES}[{x.handle}], d[{x.result}], {x.retained})" for x in brought]


def _not_results(saved: Sequence[Tensor], results: Sequence[Tensor]) -> list[Tensor]:
    """``saved``, where it is one of the ``results`` an alias: those hold the context, which would hold them."""
    return [t.detach() if any(t is r for r in results) else t for t in saved]


def _unpack(w: SourceWriter, which: Sequence[int], saved: int, once: bool = False, lasting: bool = False) -> list[str]:
    if lasting:
        return [f"    s = [ctx.lasting[k] for k in {tuple(which)}]"] if which else []
    if saved and len(which) == saved:
        in_order = list(which) == list(range(saved))
        return ["    s = ctx.saved_tensors", *([] if in_order else [f"    s = {''.join(f's[{k}], ' for k in which)}"])]
    if saved and (which or once):
        w.globals["unpack_some"] = _torch.unpack_some
        return [f"    s = unpack_some(ctx, {tuple(which)})"]
    return []


def _take_tangents(w: SourceWriter, tangents: Sequence[tuple[int, Geometry | None]]) -> list[str]:
    w.globals["with_strides"] = backward.with_strides
    lines = []
    for k, g in tangents:
        lines.append(f"    t{k} = g[{k}]")
        if g is None:
            continue
        # An empty one lies as it does in eager, whose formulas may mind.
        elsewhere = [] if 0 in g.shape else [f"t{k}.stride() != {g.stride}"]
        strides = f"t{k}.stride()" if 0 in g.shape else g.stride
        taken = "with_strides"
        if g.conj or g.neg:  # only tangents that are as lazy come here
            taken = w.refer(backward.with_strides_lazily)
        else:
            elsewhere += [f"t{k}.is_neg()", *([f"t{k}.is_conj()"] if g.dtype.is_complex else [])]
        if elsewhere:
            lines.append(f"    if {' or '.join(elsewhere)}: t{k} = {taken}(t{k}, {strides})")
    return lines
