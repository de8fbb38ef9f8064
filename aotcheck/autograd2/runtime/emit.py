"""emit: a signature becomes the straight Python code that runs at each call.

Of a function that counts by ``n.add_(1)``, computes ``y = x @ w``, transposes ``x`` in place and returns ``y, y[0]``:

    (a0, a1, a2,) = inputs                                   # prologue: inputs, values of symbols
    r0, r1, *saved = forward(a0, a1, a2)                     # the graph, below autograd; after an error the original
    r1, = attach(runner, (r1, ), saved, (a1, ), sizes)       # epilogue: histories, component by component
    with no_grad(): Tensor.copy_(a2, r0)                     # then the data of inputs, then their shapes and storages
    set_data(a0, m2)                                         # where m2 lies, which is made by its geometry
    m0 = r1                                                  # then tensors that are made of these, then assignments
    m1 = select(m0, 0, 0)
    return (m0, m1, )

Where one builds on a later one, ``_Order`` emits that one before: where a backward reads ``a2`` as the call leaves it,
the write of ``a2`` and ``saved += (a2, )`` come before ``attach``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import GraphFailedError
from aotcheck.autograd2.ir import signature as sig
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import text
from aotcheck.autograd2.ir.structure import GONE, build, set_item
from aotcheck.autograd2.joint.joint import SavedLate
from aotcheck.autograd2.joint.regions import Component, Order
from aotcheck.autograd2.runtime import source as helpers
from aotcheck.autograd2.runtime.function import IDENTITY, Runner, alone, attach, stand_in, watch
from aotcheck.autograd2.runtime.source import Modes, Source, Symbolic, built, line_of, make, numbers, under
from aotcheck.autograd2.trace.gate import Event, refuse

Call = Callable[[Sequence[Tensor], Sequence[Any], Sequence[Any], Sequence[Any]], Any]
"""Takes the inputs in order, the containers of the call, its tables and its numbers; returns the call's result."""


@dataclass(frozen=True, eq=False)
class Attachment:
    """Results that get the history of a component.

    Args:
        runner: runs its backwards.
        component: which results, and to what its gradients flow.
        watched: what the caller must not write before the backward.
        dirty: of the results, those of which views are made before they get their history.
        raises: whether a backward raises.
    """

    runner: Runner
    component: Component
    watched: tuple[sig.Given | sig.Made, ...] = ()
    dirty: tuple[int, ...] = ()
    raises: bool = False


def emit(
    signature: sig.Signature,
    forward: Callable[..., Any],
    graph_inputs: Sequence[int | tuple[int, torch.dtype]],
    attachments: Sequence[Attachment],
    modes: Modes,
    symbolic: Symbolic,
    saved_late: Sequence[SavedLate],
    shared: Mapping[int, int],
    order: Order,
) -> tuple[Call, str]:
    """The function that runs at each call, and its source.

    Args:
        forward: computes results and saved tensors.
        graph_inputs: what it takes: inputs by position, or the whole storage of one in a dtype.
        attachments: results with a history.
        modes: in which the call is made, and the graph runs.
        symbolic: where the values of symbols come from.
        saved_late: inputs whose memory is saved as the call leaves it, beside what the graph saves.
        shared: of what the graph saves, what is a result too, which may be given other strides; both by position.
        order: writes that come first; attachments, by position, and views, as gradients of what they share are summed.
    """
    s = Source()
    s.names |= vars(helpers) | {**symbolic.functions} | {
        "forward": forward, "attach": attach, "alone": alone, "no_grad": torch.no_grad, "build": build,
        "watch": watch, "math": math, "set_item": set_item, "GONE": GONE,
        "enable_grad": torch.enable_grad, "set_grad": _torch.set_grad, "stand_in": stand_in,
        "empty": torch.empty, "inference": torch.inference_mode, "parameter": torch.nn.Parameter,
        "set_data": _torch.set_data, "set_gradient": _torch.set_gradient, "GraphFailedError": GraphFailedError,
        "autocast_off": _torch.autocast_off, "increment_version": torch.autograd.graph.increment_version,
    }  # fmt: skip
    count, effects = len(signature.inputs), signature.effects
    s.add("def call(inputs, looked, tables, n):", 0)
    if count:
        s.add(f"({', '.join(f'a{k}' for k in range(count))},) = inputs")
    if count > 1 and effects.written:
        s.add("check_memory(inputs)")
    for check, inputs in (("check_casts", modes.cast), ("check_hooks", modes.passed)):
        if inputs:
            s.add(f"{check}(({''.join(f'a{k}, ' for k in inputs)}))")
    for name, read in symbolic.reads.items():
        s.add(f"{name} = {read}")
    if symbolic.derived:
        s.add("try:")
        for name, computed in symbolic.derived.items():
            s.add(f"{name} = {computed}", 2)
        s.add("except (ArithmeticError, ValueError) as error:")
        s.add("raise GraphFailedError from error", 2)
    s.add(f"sizes = {{{', '.join(f'{name!r}: {name}' for name in (*symbolic.reads, *symbolic.derived))}}}")
    grad, inside = modes.grad, modes.inference and not attachments
    detached = ".detach()" if grad and (modes.records_grad or effects.moved) else ""  # saved views of what moves
    lent = [f"a{k}{'.data' if k in modes.uncounted else detached}" for k in range(count)]
    given = [*(lent[i] if isinstance(i, int) else f"f{i[0]}" for i in graph_inputs), *symbolic.taken]
    flats = dict(i for i in graph_inputs if isinstance(i, tuple))
    results = [f"r{k}" for k in range(len(signature.results))]
    if drawn := [s.bind("generator", g) for g in modes.draws]:
        s.add(f"states = {', '.join(f'{g}.get_state()' for g in drawn)},")
    within = ["inference(False)", "no_grad()"] if modes.inference and not inside else []
    within += ["autocast_off()"] if modes.autocast else []
    opened = f"with {', '.join(within)}: " if within else ""
    for k, dtype in flats.items():
        s.add(f"{opened}f{k} = flat_of(a{k}, {s.bind('dtype', dtype)})")
    if grad and not modes.records_grad:
        s.add("set_grad(False)")
    s.add("try:")
    s.add(f"{opened}out = forward({', '.join(given)})", 2)
    if symbolic.asserted:
        s.add(f"{', '.join(symbolic.defined)}, = out[{-len(symbolic.defined)}:]", 2)
        s.add(f"if not ({' and '.join(symbolic.asserted)}): raise ValueError('sizes that data decide do not fit')", 2)
    s.add("except Exception as error:")
    for k, g in enumerate(drawn):
        s.add(f"{g}.set_state(states[{k}])", 2)
    s.add("raise GraphFailedError from error", 2)
    if grad and not modes.records_grad:
        s.add("finally:")
        s.add("set_grad(True)", 2)
    if symbolic.defined:
        s.add(f"{', '.join(symbolic.defined)}, = out[{-len(symbolic.defined)}:]")
        s.add(f"sizes.update({', '.join(f'{name}={name}' for name in symbolic.defined)})")
        s.add(f"out = out[:{-len(symbolic.defined)}]")
    for m in effects.moved:
        if m.requires_grad:
            s.add(_in_place(f"a{m.input}.requires_grad_()", signature, m.input, modes))
    if results:
        count = len(results)  # a starred target takes no more than 255 names beside it
        s.add(f"{', '.join(results)}, = out" + (f"[:{count}]" if attachments else ""))
        if attachments:
            kept = "t.detach() for t in " if any(a.dirty for a in attachments) else "*" if shared else ""
            s.add(f"saved = [{kept}out[{count}:]]" if kept else f"saved = out[{count}:]")  # no views of dirty ones
    for k, look in enumerate(signature.results):
        _look(s, k, look, inside)
    for j, k in shared.items() if attachments else ():
        counts = any(k in a.dirty for a in attachments)  # its version, once it is saved
        s.add(f"saved[{j}] = r{k}" if counts else f"saved[{j}] = r{k}.detach()")  # own results are only read with all
    for a in filter(None, map(alias_of, signature.made)):
        if a.to and isinstance(a.base, sig.Made) and isinstance(first := signature.made[a.base.index], sig.Fresh):
            s.add(f"r{first.index} = r{first.index}.detach()")  # what moves is not what is saved
    _Order(s, signature, modes, attachments, saved_late, flats.keys(), shared).all(() if effects.moved else order)
    made = f"({''.join(f'm{k}, ' for k in range(len(signature.made)))})"
    if signature.shared:
        s.add("looked = [*looked]")
    for structure in signature.shared:
        s.add(f"looked.append({built(s, structure, made)})")
    for assign in effects.assigned:
        value = "GONE" if assign.value is None else built(s, assign.value, made)
        s.add(f"set_item(tables[{assign.table}], {built(s, assign.key, made)}, {value})")
    for of, gradient in effects.gradients:
        s.add(f"set_gradient({of}, {built(s, gradient, made)})")
    if effects.grad_mode is not None:
        s.add(f"set_grad({effects.grad_mode})")
    s.add(f"return {built(s, signature.output, made)}")
    source = s.text()
    exec(compile(source, "<aotcheck call>", "exec"), s.names)
    return s.names["call"], source


def alias_of(how: sig.How) -> sig.Alias | None:
    """The alias that a tensor is, or is made of."""
    alias = how.of if isinstance(how, sig.MadeLeaf) else how
    return alias if isinstance(alias, sig.Alias) else None


def _as_base(k: int) -> str:
    """The line that makes a result a view of nothing."""
    return f"if r{k}{_torch.ITS_BASE} is not None: r{k} = r{k}.detach()"


def _in_place(line: str, signature: sig.Signature, k: int, modes: Modes) -> str:
    """A line that changes an input: inference tensors may only be changed in inference mode."""
    if modes.inference or not signature.inputs[k].meta.is_inference:
        return line
    return f"with inference(True), {line[5:]}" if line.startswith("with ") else f"with inference(True): {line}"


def _look(s: Source, k: int, look: sig.GraphResult, inside: bool) -> None:
    """The graph's result becomes what the caller is to see; ``inside``: the graph ran in inference mode."""
    if look.view:
        s.add(_as_base(k))
    if look.stride is not None:
        wanted = numbers(look.stride)
        s.add(f"if r{k}.stride() != {wanted}: r{k} = restrided(r{k}, {wanted})")
    if look.inference not in (None, inside):
        s.add(f"r{k} = as_inference(r{k}, {look.inference})")


@dataclass
class _Order:
    """Emits what follows the graph: histories, writes and aliases, each after what it builds on."""

    s: Source
    signature: sig.Signature
    modes: Modes
    attachments: Sequence[Attachment]
    saved_late: Sequence[SavedLate]
    flats: Set[int]
    """Inputs whose whole storage the graph takes."""
    shared: Mapping[int, int]
    """Saved tensors that are results, by position."""
    done: set[Any] = field(default_factory=set, init=False)
    attached: set[Component] = field(default_factory=set, init=False)
    pending: set[int] = field(default_factory=set, init=False)
    """Tensors whose bases are being emitted."""
    entries: dict[int, str] = field(default_factory=dict, init=False)
    """What stands for inputs as they were before they were written."""

    def all(self, order: Order) -> None:
        """Everything; what is in ``order`` first."""
        effects = self.signature.effects
        self.early()
        for m in effects.moved:  # versions are counted before tensors are saved with theirs
            if (m.to or m.counts or m.reshapes) and not m.late:
                self.storages()
                self.write_all(m.input)
                if m not in self.done:
                    self.move(m)
        for x in order:
            if isinstance(x, int):
                self.attach(self.attachments[x])
            elif isinstance(x, sig.Written):
                self.write(x)
            else:
                self.renew(x)
        for attachment in self.attachments:
            self.attach(attachment)
        self.storages()
        for w in effects.written:
            self.write(w)
        for m in effects.moved:
            if m not in self.done:
                self.move(m)
        for k in range(len(self.signature.made)):
            self.make(k)
        for k, attachment in enumerate(self.attachments):
            if attachment.watched:
                self.s.add(f"node{k}.watched = watch(({''.join(f'{end}, ' for end in attachment.watched)}))")

    def attach(self, attachment: Attachment) -> None:
        """Results get the history of a component."""
        component = attachment.component
        if component in self.attached:
            return
        if component in self.done:
            refuse(Event.HISTORY, "a view of an argument needs a write that needs the view's history")
        self.keep()
        self.done.add(component)
        for end in component.inputs:
            match end:
                case sig.Mutated() | sig.Made():
                    self.renew(end)
                case sig.Inner(k, _):
                    self.attach(self.attachments[k])
                case sig.Fresh(k):
                    self.attach_result(k)
        results = [f"r{k}" for k in component.results]
        before = [k for a in self.attachments if a.component in self.attached for k in a.runner.saved]
        if {self.shared.get(k) for k in before} & {*attachment.dirty}:
            refuse(Event.HISTORY, "a result that was saved gets its history by a write since, as views of it tell")
        number, inner = self.attachments.index(attachment), [*enumerate(component.tangents)][len(results) :]
        given = [*results, *(self._stand_in(*tangent) for _, tangent in inner)]
        results += [str(sig.Inner(number, place)) for place, _ in inner]
        self.attached.add(component)
        ends = [self.entries.get(e.input, f"{e}") if isinstance(e, sig.Given) else f"{e}" for e in component.inputs]
        for w in self.signature.effects.written:
            if w.result in component.results and w.kind is sig.Mutation.DIFFERENTIABLE:
                self.enter(w.on_storage)
        inputs = "".join(f"{name}, " for name in ends) or "empty(0).requires_grad_(), "
        mode, runner = under((True, False), self.modes), self.s.bind("runner", attachment.runner)
        dirty = f", ({''.join(f'r{k}, ' for k in attachment.dirty)})" if attachment.dirty else ""
        saved = f"({', '.join(given)}, ), saved, ({inputs}), sizes{dirty}"
        self.s.add(f"{mode}{', '.join(results)}, = attach({runner}, {saved})")
        if freed := [x.input for x in self.saved_late if x.freed]:
            self.s.add(f"{results[0]}.grad_fn.refilled = ({''.join(f'a{k}, ' for k in freed)})")
        if attachment.watched:
            self.s.add(f"node{number} = {results[0]}.grad_fn")

    def enter(self, inputs: Sequence[int]) -> None:
        """What stands for inputs before a write or a reshape: eager's backward comes by what wrote them first."""
        waiting = [a.component for a in self.attachments if a.component not in self.attached]
        for k in inputs:
            meta = self.signature.inputs[k].meta
            if k not in self.entries and any(sig.Given(k) in component.inputs for component in waiting):
                self.entries[k] = f"e{k}"
                runner, given = self.s.bind("identity", IDENTITY), self._stand_in(meta.geometry, meta.device)
                mode = under((True, False), self.modes)
                self.s.add(f"{mode}e{k}, = attach({runner}, ({given}, ), (), (a{k}, ), sizes)")

    def attach_result(self, k: int) -> None:
        """A result of the graph gets its history, if it has one."""
        for attachment in self.attachments:
            if k in attachment.component.results:
                self.attach(attachment)

    def early(self) -> None:
        """Views that are made before their base is written."""
        for k in sorted({k for attachment in self.attachments for k in attachment.dirty}):
            self.s.add(_as_base(k))
        inputs, made, effects = self.signature.inputs, self.signature.made, self.signature.effects
        viewed = {how.base for how in made if isinstance(how, sig.Alias) and how.early}
        for m in effects.moved:  # memory that was freed grows back before views of arguments on it are made
            g = inputs[m.input].meta.geometry
            there = [m.input, *(k for w in effects.written if m.input in w.on_storage for k in w.on_storage)]
            if any(sig.Given(k) in viewed for k in there) and m.nbytes is not None and not g.is_beyond(m.nbytes):
                self.s.add(f"a{m.input}.untyped_storage().resize_({text(m.nbytes)})")
        for k, how in enumerate(made):
            if isinstance(how, sig.Alias) and how.early:
                self.done.add(("made", k))
                make(self.s, how, k, self.modes)

    def renew(self, end: sig.End) -> None:
        """An end is made ready: an input is written, a view gets its history, anew after a write."""
        match end:
            case sig.Mutated(k):
                self.write_all(k)
            case sig.Made(k):
                if k in self.pending:
                    refuse(Event.HISTORY, "a view of an argument that is written by way of this view")
                self.make(k)
                how = self.signature.made[k]
                if not (isinstance(how, sig.Alias) and how.early):
                    return
                base = how.base
                self.write_all(base.input) if isinstance(base, sig.Given) else self.attach_result(base.index)
                if not all(step.grad for step in how.steps):  # autograd refuses to make it again
                    return
        self.s.add(f"{end}.grad_fn")

    def keep(self) -> None:
        """Memory is saved as the call leaves it, once that is written."""
        if not self.saved_late or "kept" in self.done:
            return
        self.done.add("kept")
        self.storages()
        for x in self.saved_late:
            self.write_all(x.input)
        given = [(f"a{x.input}", x.flat) for x in self.saved_late]
        kept = [name if d is None else f"flat_of({name}, {self.s.bind('dtype', d)})" for name, d in given]
        self.s.add(f"saved += ({', '.join(kept)}, )")

    def _stand_in(self, g: Geometry, device: torch.device) -> str:
        return f"stand_in({numbers(g.shape)}, {self.s.bind('dtype', g.dtype)}, {self.s.bind('device', device)})"

    def storages(self) -> None:
        """Storages get other sizes; what lies beyond is made before, or moved, as their order says."""
        if "storages" in self.done:
            return
        self.done.add("storages")
        sizes = {m.input: m.nbytes for m in self.signature.effects.moved if m.nbytes is not None}
        aliases = [(k, alias) for k, how in enumerate(self.signature.made) if (alias := alias_of(how))]
        raw = [(k, a.base.input, a.geometry) for k, a in aliases if a.geometry and isinstance(a.base, sig.Given)]
        for k in [k for k, j, g in raw if j in sizes and g.is_beyond(sizes[j])]:
            self.make(k)
        count = len(sizes)
        for m in self.signature.effects.moved:
            if count and m not in self.done:
                self.move(m)
            count -= m.nbytes is not None
        for k, *_ in raw:
            self.make(k)

    def write_all(self, k: int) -> None:
        """What is written on the storage of an input."""
        for w in self.signature.effects.written:
            if k in w.on_storage:
                self.write(w)

    def write(self, w: sig.Written) -> None:
        """The data of an input."""
        self.storages()
        if w in self.done:
            return
        self.done.add(w)
        self.attach_result(w.result)
        if w.kind is not sig.Mutation.DIFFERENTIABLE:  # views have another grad_fn then
            self.enter([k for k in w.on_storage if k != w.input and not self.signature.inputs[k].meta.is_leaf])
        known = w.input in self.flats and all(m.nbytes is None for m in self.signature.effects.moved)
        g = self.signature.inputs[w.input].meta.geometry
        self.s.add(_in_place(_write(w, known, g.conj or g.neg, self.modes), self.signature, w.input, self.modes))
        if w.kind is sig.Mutation.DIFFERENTIABLE and g.dtype.is_complex:
            self.s.add(f"a{w.input}.grad_fn.register_hook(lambda g, _: (None, g[1]))")  # adds no zeros to infinities
        if any(a.raises and w.result in a.component.results for a in self.attachments):
            self.s.add(f"a{w.input}.grad_fn.register_prehook(alone(r{w.result}))")
        if w.versions:
            self.s.add(f"increment_version(({''.join(f'a{k}, ' for k in w.versions)}))")

    def move(self, m: sig.MetadataMutation) -> None:
        """What else changes of an input, after what is made of it as it was."""
        self.done.add(m)
        name = f"a{m.input}"
        lines = [] if m.nbytes is None else [f"{name}.untyped_storage().resize_({text(m.nbytes)})"]
        if m.to is not None:
            self.make(m.to.index)
            self.leave(sig.Given(m.input))
            lines.append(f"set_data({name}, {m.to})")
            lines += [f"with no_grad(): {name}.set_({name})"] if m.resets else []  # forgets, whatever the dtypes
        if m.reshapes:
            self.enter((m.input,))
            self.leave(sig.Given(m.input))
            lines += [line_of(self.s, step, name, self.modes) for step in m.reshapes]
        lines += [f"increment_version(({name}, ))"] if m.counts and not m.resets else []
        if m.requires_grad is False:
            leaf = self.signature.inputs[m.input].meta.is_leaf
            lines.append(f"{name}.requires_grad_(False)" if leaf else f"{name}.detach_()")
        for line in lines:
            self.s.add(_in_place(line, self.signature, m.input, self.modes))

    def leave(self, base: sig.Given | sig.Fresh | sig.Made) -> None:
        """What is made on the memory of a tensor before that moves."""
        if isinstance(base, sig.Made) and isinstance(first := self.signature.made[base.index], sig.Fresh):
            self.leave(first)
        for j, how in enumerate(self.signature.made):
            if (alias := alias_of(how)) and alias.base == base and (alias.unmoved or alias.geometry):
                self.make(j)

    def make(self, k: int) -> None:
        """A tensor, after what it is a view of."""
        if ("made", k) in self.done:
            return
        self.done.add(("made", k))
        self.pending.add(k)
        how = self.signature.made[k]
        match alias := alias_of(how) or how:
            case sig.Alias(base=sig.Made() as base):
                self.renew(base)
            case sig.Fresh(index) | sig.Alias(base=sig.Fresh(index), geometry=None):
                self.attach_result(index)
            case sig.Alias(base=sig.Given(index), geometry=None):
                self.write_all(index)
        if isinstance(alias, sig.Alias) and alias.to:
            self.make(alias.to.index)
            self.leave(alias.base)
        self.pending.remove(k)
        make(self.s, how, k, self.modes)


def _write(w: sig.Written, known: bool, lazy: bool, modes: Modes) -> str:
    """The line that writes; ``known``: the whole storage has a name; ``lazy``: it may be in no list that is written."""
    mode = under((w.kind is sig.Mutation.DIFFERENTIABLE, modes.inference), modes)
    if w.flat:
        whole = f"f{w.input}" if known else f"flat_of(a{w.input}, r{w.result}.dtype)"
        return f"{mode}{whole}.copy_(r{w.result})"
    if w.kind is sig.Mutation.HIDDEN:
        return f"a{w.input}.data.copy_(r{w.result})"
    into = f"a{w.input}.view_as(a{w.input})" if w.by_view else f"a{w.input}"
    alone = lazy or w.kind is sig.Mutation.DIFFERENTIABLE
    call = f"{into}.copy_(" if alone else f"Tensor.copy_({into}, "
    return f"{mode}{call}r{w.result})"
