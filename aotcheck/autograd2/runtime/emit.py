"""emit: a signature becomes the straight Python code that runs at each call.

Of a function that counts by ``n.add_(1)``, computes ``y = x @ w``, transposes ``x`` in place and returns ``y, y[0]``:

    (a0, a1, a2,) = inputs                                   # prologue: inputs, values of symbols
    r0, r1, *saved = forward(a0, a1, a2)                     # the graph, below autograd; after an error the original
    r1, = attach(runner, (r1, ), saved, (a1, ), sizes)       # epilogue: histories, component by component
    with no_grad(): a2.copy_(r0)                             # then the data of inputs, then their shapes and storages
    with no_grad(): a0.as_strided_((3, 3, ), (1, 3, ), 0)
    m0 = r1                                                  # then tensors that are made of these, then assignments
    m1 = select(m0, 0, 0)
    return (m0, m1, )

Where one builds on a later one, ``_Order`` emits that one before: where a backward reads ``a2`` as the call leaves it,
the write of ``a2`` and ``saved += (a2, )`` come before ``attach``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import GraphFailedError
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.signature import (
    After,
    Alias,
    End,
    Fresh,
    Given,
    GraphResult,
    How,
    Inner,
    Made,
    MadeLeaf,
    MetadataMutation,
    Mutation,
    Signature,
    Step,
    Written,
)
from aotcheck.autograd2.ir.size import text
from aotcheck.autograd2.ir.structure import Structure, build
from aotcheck.autograd2.ir.tables import GONE, set_item
from aotcheck.autograd2.joint.memory import InputAfter
from aotcheck.autograd2.joint.regions import Component
from aotcheck.autograd2.runtime import tensors
from aotcheck.autograd2.runtime.function import IDENTITY, Runner, attach, stand_in, watch
from aotcheck.autograd2.runtime.source import Modes, Source, Symbolic, argument, built, geometry_text, name_of, numbers

NOTHING: Mapping[int, int] = {}
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
    """

    runner: Runner
    component: Component
    watched: tuple[Given | Made, ...] = ()
    dirty: tuple[int, ...] = ()


def emit(
    signature: Signature,
    forward: Callable[..., Any],
    graph_inputs: Sequence[int | tuple[int, torch.dtype]],
    attachments: Sequence[Attachment],
    modes: Modes,
    symbolic: Symbolic,
    after: Sequence[InputAfter] = (),
    shared: Mapping[int, int] = NOTHING,
    order: Sequence[int | End] = (),
) -> tuple[Call, str]:
    """The function that runs at each call, and its source.

    Args:
        forward: computes results and saved tensors.
        graph_inputs: what it takes: inputs by position, or the whole storage of one in a dtype.
        attachments: results with a history.
        modes: in which the call is made, and the graph runs.
        symbolic: where the values of symbols come from.
        after: inputs whose memory is saved as the call leaves it, beside what the graph saves.
        shared: of what the graph saves, what is a result too, which may be given other strides; both by position.
        order: attachments, by position, and views, in the order in which gradients of what they share are summed.
    """
    s = Source()
    s.names |= vars(tensors) | {
        "forward": forward, "attach": attach, "no_grad": torch.no_grad, "build": build, "watch": watch,
        "enable_grad": torch.enable_grad, "set_grad": _torch.set_grad, "stand_in": stand_in,
        "empty": torch.empty, "inference": torch.inference_mode, "parameter": torch.nn.Parameter,
        "set_gradient": _torch.set_gradient, "GraphFailedError": GraphFailedError,
        "autocast_off": _torch.autocast_off, "increment_version": torch.autograd.graph.increment_version,
    }  # fmt: skip
    count, effects = len(signature.inputs), signature.effects
    s.add("def call(inputs, looked, tables, n):", 0)
    if count:
        s.add(f"({', '.join(f'a{k}' for k in range(count))},) = inputs")
    if count > 1 and effects.written:
        s.add("check_memory(inputs)")
    modes.begin(s)
    for name, read in symbolic.reads.items():
        s.add(f"{name} = {read}")
    if symbolic.derived:
        s.add("try:")
        for name, computed in symbolic.derived.items():
            s.add(f"{name} = {computed}", 2)
        s.add("except ArithmeticError as error:")
        s.add("raise GraphFailedError from error", 2)
    s.add(f"sizes = {{{', '.join(f'{name!r}: {name}' for name in (*symbolic.reads, *symbolic.derived))}}}")
    for m in effects.moved:
        if m.requires_grad:
            s.add(_in_place(f"a{m.input}.requires_grad_()", signature, m.input, modes))
    grad, inside = modes.grad, modes.inference and not attachments
    detached = ".detach()" if grad and (modes.records_grad or effects.moved) else ""  # saved views of what moves
    given = [*(f"a{i}{detached}" if isinstance(i, int) else f"f{i[0]}" for i in graph_inputs), *symbolic.taken]
    flats = dict(i for i in graph_inputs if isinstance(i, tuple))
    results = [f"r{k}" for k in range(len(signature.results))]
    drawn = [s.bind("generator", g) for g in modes.draws]
    if drawn:
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
    if results:
        count = len(results)  # a starred target takes no more than 255 names beside it
        s.add(f"{', '.join(results)}, = out" + (f"[:{count}]" if attachments else ""))
        if attachments:
            s.add(f"saved = [*out[{count}:]]" if shared else f"saved = out[{count}:]")
    for k, look in enumerate(signature.results):
        _look(s, k, look, inside)
    for j, k in shared.items() if attachments else ():
        s.add(f"saved[{j}] = r{k}")
    by_geometry = {k: how for k, how in enumerate(signature.made) if effects.moved and _lies_on_input(how)}
    _Order(s, signature, modes, attachments, by_geometry, after, flats.keys()).all(() if effects.moved else order)
    made = f"({''.join(f'm{k}, ' for k in range(len(signature.made)))})"
    if signature.shared:
        s.add("looked = [*looked]")
    for structure in signature.shared:
        s.add(f"looked.append({built(s, structure, made)})")
    for assign in effects.assigned:
        _assign(s, assign.table, assign.key, assign.value, made)
    for of, value in effects.gradients:
        s.add(f"set_gradient({name_of(of)}, {built(s, value, made)})")
    if effects.grad_mode is not None:
        s.add(f"set_grad({effects.grad_mode})")
    s.add(f"return {built(s, signature.output, made)}")
    source = s.text()
    exec(compile(source, "<aotcheck call>", "exec"), s.names)
    call: Call = s.names["call"]
    return call, source


def _lies_on_input(how: How) -> bool:
    """Whether a tensor is made by its geometry on the storage that an input has at entry."""
    return isinstance(how, Alias) and how.geometry is not None and isinstance(how.base, Given)


def _fits(how: How, sizes: Mapping[int, int]) -> bool:
    """Whether it can be made on its storage once that has its new size; if not, it must be made before."""
    assert isinstance(how, Alias) and how.geometry is not None and isinstance(how.base, Given)
    size = sizes.get(how.base.input)
    return size is None or not how.geometry.is_beyond(size)


def _mode(wanted: tuple[bool, bool], now: Modes) -> str:
    """The beginning of a line that runs in these modes; empty if they are those of the call."""
    grad = f"{'enable_grad' if wanted[0] else 'no_grad'}()"
    if wanted[1] is not now.inference:
        return f"with inference({wanted[1]}), {grad}: "
    return f"with {grad}: " if wanted[0] is not now.grad else ""


def _in_place(line: str, signature: Signature, k: int, modes: Modes) -> str:
    """A line that changes an input: inference tensors may only be changed in inference mode."""
    if modes.inference or not signature.inputs[k].meta.is_inference:
        return line
    return f"with inference(True), {line[5:]}" if line.startswith("with ") else f"with inference(True): {line}"


def _look(s: Source, k: int, look: GraphResult, inside: bool) -> None:
    """The graph's result becomes what the caller is to see; ``inside``: the graph ran in inference mode."""
    if look.view:
        s.add(f"if r{k}{_torch.ITS_BASE} is not None: r{k} = r{k}.detach()")
    if look.stride is not None:
        wanted = numbers(look.stride)
        s.add(f"if r{k}.stride() != {wanted}: r{k} = restrided(r{k}, {wanted})")
    inference = inside if look.inference is None else look.inference
    if inference is not inside:
        s.add(f"r{k} = as_inference(r{k}, {inference})")
    if look.parameter:
        s.add(f"with inference({inference}): r{k} = parameter(r{k}, {look.leaf})")
    elif look.leaf:
        s.add(f"with inference({inference}): r{k}.requires_grad_()")


@dataclass
class _Order:
    """Emits what follows the graph: histories, writes and aliases, each after what it builds on."""

    s: Source
    signature: Signature
    modes: Modes
    attachments: Sequence[Attachment]
    by_geometry: Mapping[int, How]
    after: Sequence[InputAfter]
    flats: Set[int]
    """Inputs whose whole storage the graph takes."""
    done: set[Any] = field(default_factory=set, init=False)
    attached: set[Component] = field(default_factory=set, init=False)
    entries: dict[int, str] = field(default_factory=dict, init=False)
    """What stands for inputs as they were before they were written."""

    def all(self, order: Sequence[int | End]) -> None:
        """Everything; what is in ``order`` first."""
        effects, modes = self.signature.effects, self.modes
        self.early()
        for m in effects.moved:  # versions are counted before tensors are saved with theirs
            if m.geometry is not None and not (m.by_data and m.base) and m.input not in effects.late:
                self.storages()
                self.write_all(m.input)
                if m not in self.done:
                    self.done.add(m)
                    _move(self.s, m, self.signature, modes)
        for x in order:
            if isinstance(x, int):
                self.attach(self.attachments[x])
            else:
                self.renew(x)
        for attachment in self.attachments:
            self.attach(attachment)
        self.storages()
        for w in effects.written:
            self.write(w)
        for m in effects.moved:
            if m not in self.done:
                _move(self.s, m, self.signature, modes)
        for k in range(len(self.signature.made)):
            self.make(k)
        for attachment in self.attachments:
            if attachment.watched:
                watched = "".join(f"{name_of(end)}, " for end in attachment.watched)
                self.s.add(f"node{attachment.component.results[0]}.watched = watch(({watched}))")

    def attach(self, attachment: Attachment) -> None:
        """Results get the history of a component."""
        component = attachment.component
        if component in self.done:
            return
        self.keep()
        self.done.add(component)
        for end in component.inputs:
            match end:
                case After() | Made():
                    self.renew(end)
                case Inner(k, _):
                    self.attach(self.attachments[k])
                case Fresh(k):
                    self.attach_result(k)
        results = [f"r{k}" for k in component.results]
        number, given = self.attachments.index(attachment), list(results)
        for place in range(len(results), len(component.tangents)):
            g, device = component.tangents[place]
            results.append(str(Inner(number, place)))
            given.append(self._stand_in(g, device))
        self.attached.add(component)
        ends = [self.entries.get(e.input, name_of(e)) if isinstance(e, Given) else name_of(e) for e in component.inputs]
        for w in self.signature.effects.written:
            if w.result in component.results and w.kind is Mutation.DIFFERENTIABLE:
                self.enter(w)
        inputs = "".join(f"{name}, " for name in ends) or "empty(0).requires_grad_(), "
        mode, runner = _mode((True, False), self.modes), self.s.bind("runner", attachment.runner)
        dirty = f", ({''.join(f'r{k}, ' for k in attachment.dirty)})" if attachment.dirty else ""
        saved = f"({', '.join(given)}, ), saved, ({inputs}), sizes{dirty}"
        self.s.add(f"{mode}{', '.join(results)}, = attach({runner}, {saved})")
        if freed := [x.input for x in self.after if x.freed]:
            self.s.add(f"{results[0]}.grad_fn.refilled = ({''.join(f'a{k}, ' for k in freed)})")
        if attachment.watched:
            self.s.add(f"node{component.results[0]} = r{component.results[0]}.grad_fn")

    def enter(self, w: Written) -> None:
        """What stands for inputs before a write: eager's backward comes by what wrote them first."""
        waiting = [a.component for a in self.attachments if a.component not in self.attached]
        for k in w.beside:
            if k not in self.entries and any(Given(k) in component.inputs for component in waiting):
                self.entries[k], meta = f"e{k}", self.signature.inputs[k].meta
                runner, given = self.s.bind("identity", IDENTITY), self._stand_in(meta.geometry, meta.device)
                mode = _mode((True, False), self.modes)
                self.s.add(f"{mode}e{k}, = attach({runner}, ({given}, ), (), (a{k}, ), sizes)")

    def attach_result(self, k: int) -> None:
        """A result of the graph gets its history, if it has one."""
        for attachment in self.attachments:
            if k in attachment.component.results:
                self.attach(attachment)

    def early(self) -> None:
        """Views that are made before their base is written."""
        for k in sorted({k for attachment in self.attachments for k in attachment.dirty}):
            self.s.add(f"r{k} = as_base(r{k})")
        inputs, made = self.signature.inputs, self.signature.made
        viewed = {how.base for how in made if isinstance(how, Alias) and how.early}
        for m in self.signature.effects.moved:  # memory that was freed grows back before views of it are made
            g = inputs[m.input].meta.geometry
            if Given(m.input) in viewed and m.nbytes is not None and not g.is_beyond(m.nbytes):
                self.s.add(f"a{m.input}.untyped_storage().resize_({text(m.nbytes)})")
        for k, how in enumerate(made):
            if isinstance(how, Alias) and how.early:
                self.done.add(("made", k))
                _make(self.s, how, k, self.modes)

    def renew(self, end: End) -> None:
        """A view gets its history, also one to which autograd gives it again after a write, once it is asked."""
        match end:
            case After(k):
                self.write_all(k)
            case Made(k):
                self.make(k)
                match self.signature.made[k]:
                    case Alias(base=Fresh(j), early=True):
                        self.attach_result(j)
                    case Alias(base=Given(j), early=True):
                        self.write_all(j)
                    case _:
                        return
        self.s.add(f"{name_of(end)}.grad_fn")

    def keep(self) -> None:
        """Memory is saved as the call leaves it, once that is written."""
        if not self.after or "kept" in self.done:
            return
        self.done.add("kept")
        self.storages()
        for x in self.after:
            self.write_all(x.input)
        kept = [
            f"a{x.input}" if x.flat is None else f"flat_of(a{x.input}, {self.s.bind('dtype', x.flat)})"
            for x in self.after
        ]
        self.s.add(f"saved += ({', '.join(kept)}, )")

    def _stand_in(self, g: Geometry, device: torch.device) -> str:
        kind = f"{self.s.bind('dtype', g.dtype)}, {self.s.bind('device', device)}"
        return f"stand_in({numbers(g.shape)}, {kind})"

    def storages(self) -> None:
        """Storages get other sizes; what lies beyond is made before, or moved, as their order says."""
        if "storages" in self.done:
            return
        self.done.add("storages")
        sizes = {m.input: m.nbytes for m in self.signature.effects.moved if m.nbytes is not None}
        late = {k for k, how in self.by_geometry.items() if _fits(how, sizes)}
        for k in self.by_geometry.keys() - late:
            _make(self.s, self.by_geometry[k], k, self.modes)
        count = len(sizes)
        for m in self.signature.effects.moved:
            if count and m not in self.done:
                self.done.add(m)
                _move(self.s, m, self.signature, self.modes)
            count -= m.nbytes is not None
        for k in late:
            _make(self.s, self.by_geometry[k], k, self.modes)

    def write_all(self, k: int) -> None:
        """What is written on the storage of an input."""
        for w in self.signature.effects.written:
            if k in w.beside:
                self.write(w)

    def write(self, w: Written) -> None:
        """The data of an input."""
        self.storages()
        if w in self.done:
            return
        self.done.add(w)
        self.attach_result(w.result)
        known = w.input in self.flats and all(m.nbytes is None for m in self.signature.effects.moved)
        if w.kind is Mutation.DIFFERENTIABLE and self.signature.inputs[w.input].meta.geometry.dtype.is_complex:
            self.s.add(f"with no_grad(): a{w.input}.copy_(r{w.result})")  # whose own backward adds zeros to infinities
            given = f"(a{w.input}, ), (), (r{w.result}, ), sizes, (a{w.input}, )"
            self.s.add(f"{_mode((True, False), self.modes)}attach({self.s.bind('identity', IDENTITY)}, {given})")
        else:
            self.s.add(_in_place(_write(w, known, self.modes), self.signature, w.input, self.modes))
        if w.versions:
            self.s.add(f"increment_version(({''.join(f'a{k}, ' for k in w.versions)}))")

    def make(self, k: int) -> None:
        """A tensor, after what it is a view of."""
        if k in self.by_geometry or ("made", k) in self.done:
            return
        self.done.add(("made", k))
        how = self.signature.made[k]
        alias = how.of if isinstance(how, MadeLeaf) else how
        match alias:
            case Alias(base=Made() as base):
                self.renew(base)
            case Fresh(index) | Alias(base=Fresh(index)):
                self.attach_result(index)
            case Alias(base=Given(index)):
                self.write_all(index)
        _make(self.s, how, k, self.modes)


def _write(w: Written, known: bool, modes: Modes) -> str:
    """The line that writes; ``known``: the whole storage has a name."""
    mode = _mode((w.kind is Mutation.DIFFERENTIABLE, modes.inference), modes)
    if w.flat:
        whole = f"f{w.input}" if known else f"flat_of(a{w.input}, r{w.result}.dtype)"
        return f"{mode}{whole}.copy_(r{w.result})"
    if w.kind is Mutation.HIDDEN:
        return f"a{w.input}.data.copy_(r{w.result})"
    return f"{mode}a{w.input}.copy_(r{w.result})"


def _move(s: Source, m: MetadataMutation, signature: Signature, modes: Modes) -> None:
    name = f"a{m.input}"
    if m.nbytes is not None:
        s.add(f"{name}.untyped_storage().resize_({text(m.nbytes)})")
    if m.geometry is not None:
        g = m.geometry
        if g == signature.inputs[m.input].meta.geometry and m.base is None:
            line = f"increment_version(({name}, ))"
        elif m.base is None and not m.by_data:
            line = f"with no_grad(): {name}.as_strided_({numbers(g.shape)}, {numbers(g.stride)}, {text(g.offset)})"
        else:
            base = name if m.base is None else name_of(m.base)
            line = f"set_storage({name}, {base}, {geometry_text(s, g)}, {text(m.shift)}, {m.by_data})"
        s.add(_in_place(line, signature, m.input, modes))
    if m.requires_grad is False:
        line = f"{name}.detach_()" if m.detached else f"{name}.requires_grad_(False)"
        s.add(_in_place(line, signature, m.input, modes))


def _make(s: Source, how: How, k: int, modes: Modes) -> None:
    """Let ``m<k>`` be the tensor."""
    if isinstance(how, MadeLeaf):
        _make(s, how.of, k, modes)
        if how.parameter:
            s.add(f"m{k} = parameter(m{k}, {how.requires_grad})")
        elif how.requires_grad:
            s.add(f"with inference(m{k}.is_inference()): m{k}.requires_grad_()")
    elif not isinstance(how, Alias):
        if (name := name_of(how)) != f"m{k}":
            s.add(f"m{k} = {name}")
    elif how.geometry is not None:
        mode = "" if how.inference is modes.inference else f"with inference({how.inference}): "
        s.add(f"{mode}m{k} = raw_alias({name_of(how.base)}, {geometry_text(s, how.geometry)}, {text(how.shift)})")
    else:
        name = name_of(how.base)
        for step in how.steps:
            _step(s, step, k, name, modes)
            name = f"m{k}"
        if not how.steps:
            s.add(f"m{k} = {name}")


def _step(s: Source, step: Step, k: int, source: str, modes: Modes) -> None:
    kwargs = f", **{s.bind('kwargs', dict(step.kwargs))}" if step.kwargs else ""
    rest = "".join(f", {argument(s, a)}" for a in step.args)
    item = "" if step.index is None else f"[{step.index}]"
    s.add(f"{_mode((step.grad, step.inference), modes)}m{k} = {s.bind('op', step.op)}({source}{rest}{kwargs}){item}")


def _assign(s: Source, table: int, key: Structure, value: Structure | None, made: str) -> None:
    s.names |= {"set_item": set_item, "GONE": GONE}
    given = "GONE" if value is None else built(s, value, made)
    s.add(f"set_item(tables[{table}], {built(s, key, made)}, {given})")
