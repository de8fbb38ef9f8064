"""One call of a program, compiled again and taken apart. Only this module knows the inside of the AOT autograd.

Note [Specimens]
A specimen is made when the call is about to run. It copies the caller's storages, so that trace, joint graph and
partitioned graphs can run afterwards on the arguments of the call, each by itself and without the runtime. The trace's
facts of tensors are read off the replicas: these have the geometries, histories and aliasing from which the record is
made, but nothing of the record. For wrappers the inner tensors are compared, under the names that the oracles give
them; gradients of wrappers are not compared here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.api import aot_function
from aotcheck.autograd.assemble import Assembly
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.backward.tangents import inputs_of, values_of
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.graph import SourceWriter, define
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Geometry, Value, flat_geometry, geometry_of, getitem
from aotcheck.autograd.record.steps import Arg, Attach, BaseOf, Constant, Ref, Step, Wrap
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.runtime.step_source import step_line
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.raised import Raised, raised
from aotcheck.oracle.snapshot import Snapshot, TensorFacts
from aotcheck.oracle.state import generator_states
from aotcheck.oracle.undefined import PLAIN, undefined_memory
from aotcheck.program import Scene
from aotcheck.program.ops.subclasses import held
from aotcheck.program.running.harness import addressing, opened

Key = tuple[int, ...]


def _has_wrappers(assembly: Assembly) -> bool:
    record = assembly.record
    return bool(record.wrappers) or any(isinstance(step, Wrap) for step in record.all_steps)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name, and in place of wrappers those that they hold."""
    return {name: t for name, t in opened(dict(tensors)).items() if not held(t)}


def _named(tensors: Mapping[str, Tensor], replicas: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """The replicas of tensors by their names, where there are any."""
    return {name: r for name, t in tensors.items() if (r := replicas.get(id(t))) is not None}


class Specimen:
    """A call about to be made on ``scene``, its function compiled for it alone.

    ``compiled`` is what the caller gets. ``assembly`` is None where the function could not be compiled: it raised
    ``raised``, or is refused for the reason ``refusal``. ``replicas`` are the replicas' own scene. ``inputs_at_entry``
    are the caller's plain tensors, those that wrappers hold among them, and ``inputs_traced`` their replicas;
    ``wrapped`` says whether there are wrappers.
    """

    def __init__(self, function: Callable[..., Any], scene: Scene, device: torch.device) -> None:
        self.scene, self.device = scene, device
        self.inputs_at_entry = _plain(scene.inputs)
        self.inputs_traced: dict[str, Tensor] = {}
        self.wrapped = False
        self.assembly: Assembly | None = None
        self.raised: Raised | None = None
        self.refusal = ""
        self.replicas: Scene | None = None
        self._result: Any = None
        self._watched = _Watched(function)
        self.compiled = aot_function(self._watched)
        self._compile()
        self.rng = generator_states(device)
        self.storages: dict[int, torch.UntypedStorage] = {}  # copies, by the key of the original
        self.keys: dict[str, int] = {}  # which of them each named input had
        self.entry = {"grad mode": torch.is_grad_enabled(), **_entry(scene)}  # what a specialization is for
        self._windows: dict[Value, tuple[int, Geometry]] = {}
        self._holders: dict[Arg | BaseOf, int] = {}
        self._sources: dict[Arg | BaseOf, Tensor] = {}
        self._generators: dict[Value, torch.Generator] = {}
        for name, t in self.inputs_at_entry.items():
            self.keys[name] = self._keep(t)
        self._note_inputs()

    def _compile(self) -> None:
        """Make the code for the call, as the call itself would."""
        flat, spec, _ = self.compiled._flatten(self.scene.args, {})
        self.flat: Sequence[Any] = flat
        try:
            _, whole, found = self.compiled._find(flat, spec)
        except UnsupportedError as error:
            self.refusal = error.reason
        except Exception as error:  # the program's own, or the compiler's
            self.raised = raised(self._watched.last.error or error)
        else:
            self.flat, self.assembly = whole, found.assembly
            self.wrapped = found.assembly is not None and _has_wrappers(found.assembly)
            args, self._result = self._watched.last.args, self._watched.last.result
            wrappers = {id(whole[w.index]): w.replica for w in self.capture.wrappers}
            found_replicas = wrappers | self.capture.inputs.replicas
            self.replicas = Scene(args, _named(self.scene.inputs, found_replicas))
            self.replicas.returned(self._result)
            self.inputs_traced = _named(self.inputs_at_entry, found_replicas)

    @property
    def hooked(self) -> bool:
        """Whether the graphs call hooks of the caller's, or go on in his graph: only a call can run them then."""
        return self.assembly is not None and self.capture.hooks_called > 0

    @property
    def opened(self) -> Assembly:
        """The assembly, known to be there."""
        assert self.assembly is not None
        return self.assembly

    @property
    def capture(self) -> Capture:
        """The capture, known to be there."""
        return self.opened.capture

    # -- what the call was given

    def real(self, source: Arg | BaseOf) -> Tensor:
        """The caller's tensor."""
        t: Tensor = self.flat[source.index]
        base = _torch.base_of(t) if isinstance(source, BaseOf) else t
        assert base is not None
        return base

    def real_at_entry(self, source: Arg | BaseOf) -> Tensor:
        """The caller's tensor that ``source`` was when the call began."""
        return self._sources[source]

    def _keep(self, t: Tensor) -> int:
        key = _torch.storage_key(t)
        if key not in self.storages:
            self.storages[key] = t.untyped_storage().clone()
        return key

    def _note_inputs(self) -> None:
        if self.assembly is None:
            return
        for root in self.capture.roots:
            t = self.real(root.source)
            self._windows[root.placeholder] = self._keep(t), geometry_of(t)
            self._holders[root.source], self._sources[root.source] = self._keep(t), t
        for a in self.capture.views:
            self._sources[Arg(a.index)] = self.real(Arg(a.index))
        for address, value in self.capture.tracer.generators.items():
            stand_ins = {_torch.generator_address(stand_in): i for i, stand_in in self.capture.inputs.generators}
            self._generators[value] = self.flat[stand_ins[address]]

    def inputs(self) -> tuple[dict[Value, Any], dict[int, torch.UntypedStorage]]:
        """What the graph takes, as it was when the call began, and the storages it lies on, by the original's key."""
        storages = {key: storage.clone() for key, storage in self.storages.items()}
        found: dict[Value, Any] = {}
        for value, (key, g) in self._windows.items():
            found[value] = window(storages[key], g)
        for value, source, dtype in self.capture.tracer.table.flat_inputs:
            found[value] = _flat(storages[self._holders[source]], dtype)
        for value, generator in self._generators.items():
            found[value] = torch.Generator(generator.device)
            found[value].set_state(generator.get_state())
        return found, storages

    # -- the trace, interpreted

    def interpret(self, tangents: Mapping[Value, Tensor] | None = None) -> Interpretation:
        """Run the trace op by op on what the call was given, and on ``tangents``."""
        given, storages = self.inputs()
        with rolled_back(self.device, self.rng), torch.no_grad(), undefined_memory(PLAIN):
            return Interpretation(
                self.capture.tracer.trace.values,
                self.opened.traced_forward,
                {**given, **(tangents or {})},
                storages,
                self.device,
            )

    # -- what the trace says of tensors

    def traced(self, names: Sequence[str]) -> tuple[Snapshot, Scene, Interpretation]:
        """The replicas as a snapshot, their values from the trace: the inputs ``names`` and all that is returned."""
        scene = self.replicas
        assert scene is not None
        inputs = {name: self.inputs_traced[name] for name in names}
        outputs = _plain(scene.outputs)
        with self.opened.backwards.rearmed():
            read = self.capture.tracer.table.read
            known = {id(t): read(t) for t in (*inputs.values(), *outputs.values()) if _readable(t)}
            whole = {name: self._whole(t) for name, t in inputs.items()}
            done = self.interpret()
            facts: list[TensorFacts] = []
            storages: list[tuple[str, Tensor]] = []
            first_storage: dict[int, str] = {}
            first_object: dict[int, str] = {}
            for role, group in ((Role.INPUT, inputs), (Role.OUTPUT, outputs)):
                for name, t in group.items():
                    key = _torch.storage_key(t)
                    if role is Role.INPUT and key not in first_storage:
                        storages.append((name, self._contents(t, whole[name], done)))
                    first_storage.setdefault(key, name)
                    first_object.setdefault(id(t), name)
                    value = done.dense(known.get(id(t))) if role is Role.OUTPUT else None
                    fact = _facts(name, role, t, first_storage[key], first_object[id(t)], value)
                    if self._refuses_by_itself(t):
                        fact = dataclasses.replace(fact, is_leaf="refused", grad_fn="refused")
                    facts.append(fact)
        return Snapshot(tuple(facts), tuple(storages), ()), scene, done

    def _refuses_by_itself(self, t: Tensor) -> bool:
        """Whether ``t`` stands for a view that a custom Function gave, traced as none, and was written quietly.

        The real one says no more what its history is, without anybody telling it.
        """
        given = self.capture.inputs.is_custom_view
        quiet = [a for a in self.capture.arguments if given[a.index] and _torch.grad_fn_of(a.replica) is a.grad_fn]
        return any(a.replica is t and _torch.version_of(t) != a.version for a in quiet)

    def _whole(self, t: Tensor) -> list[tuple[Geometry, Value]]:
        """What was written to the storage of a replica, window by window; nothing if nothing was."""
        state = self.capture.tracer.table.state(t)
        if state.version == 0 and state.is_input:
            return []
        table = self.capture.tracer.table
        resized = state.storage.nbytes() != state.nbytes
        with self.capture.tracer.recording():
            views = [table.flat(state)] if resized or state.flat is not None else state.roots
            return [(v.geometry, table.read_view(v)) for v in views]

    def _contents(self, t: Tensor, written: Sequence[tuple[Geometry, Value]], done: Interpretation) -> Tensor:
        state: StorageState = self.capture.tracer.table.state(t)
        nbytes = t.untyped_storage().nbytes()
        storage = torch.empty(nbytes, dtype=torch.uint8, device=self.device).zero_().untyped_storage()
        if state.source is not None:
            before = done.storages[self._holders[state.source]]
            kept = min(nbytes, before.nbytes())
            _flat(storage, torch.uint8)[:kept].copy_(_flat(before, torch.uint8)[:kept])
        for g, value in written:
            found = done.values.get(value)
            if found is not None and g.numel:
                window(storage, g).copy_(found)
        return _flat(storage, t.dtype)

    # -- gradients

    def gradients(self, stage: Stage, key: Key) -> Sequence[Value | None]:
        """Of each target, the gradient that the trace has if just the tensors ``key`` of the stage have tangents.

        Raises what tracing it raises.
        """
        backwards = self.opened.backwards
        with backwards.rearmed():
            return values_of(backwards.stages.gradients(stage, key))

    # -- the partitioned graphs

    def forward(self) -> tuple[list[Any], dict[int, torch.UntypedStorage]]:
        """What the compiled forward returns, saved values included, and the storages that it read."""
        given, storages = self.inputs()
        assembly = self.opened
        with rolled_back(self.device, self.rng), torch.no_grad(), undefined_memory(PLAIN):
            return list(assembly._compiled(*[given[v] for v in assembly.inputs])), storages

    def backward(self, stage: Stage, key: Key, results: Sequence[Any], tangents: Sequence[Tensor]) -> list[Any]:
        """What the graph of the backward gives, one result per target, from what ``forward`` saved."""
        assembly = self.opened
        backwards = assembly.backwards
        live = inputs_of(stage.tangents[j] for j in key)
        saved = dict(zip(assembly.saved, results[len(assembly.outputs) :], strict=True))
        with backwards.rearmed():
            gradients = values_of(backwards.stages.gradients(stage, key))
            graph, used, windows = backwards.graphs.cut(stage, live, gradients, stage.traces[key].draws)
            if windows:
                raise UnsupportedError("mutation in the backward", "it cannot be run by itself")
            run = backwards.graphs.compile(stage, graph, used, len(live))
        with torch.no_grad(), undefined_memory(PLAIN):
            return list(run(*[saved[stage.saved[k]] for k in used], *tangents))

    # -- the record

    def returned(self, name: str) -> Ref | Constant | None:
        """What the record returns as the output called ``name``."""
        scene = self.replicas
        assert scene is not None
        flat, _ = _torch.pytree.tree_flatten(self._result)
        place = next((k for k, t in enumerate(flat) if t is scene.outputs.get(name)), None)
        returns = self.opened.record.returns
        return returns[place] if place is not None and place < len(returns) else None

    def argument(self, name: str) -> Arg | BaseOf | None:
        """Where the call finds the input called ``name``."""
        t = self.inputs_at_entry[name]
        for i, a in enumerate(self.flat):
            if a is t:
                return Arg(i)
        for root in self.capture.roots:
            if isinstance(root.source, BaseOf) and self.real(root.source) is t:
                return BaseOf(root.source.index)
        return None

    def has_another_history(self, name: str) -> bool:
        """Whether the trace gives the input ``name`` another history than it came with."""
        replicas = self.replicas
        assert replicas is not None
        for a in self.capture.arguments:
            if a.replica is replicas.inputs.get(name):
                return _torch.grad_fn_of(a.replica) is not a.grad_fn
        return False

    def watch(self, look: Callable[[Moment, Mapping[str, Any]], None]) -> None:
        """From now on, calls show ``look`` their local variables at each :class:`Moment`."""
        assembly = self.opened
        code, steps = assembly.code, assembly.record.all_steps
        writer = SourceWriter()
        writer.globals = code.globals
        done, graph_shown = 0, False

        def show(moment: Moment) -> None:
            writer.lines.append(f"    {writer.refer(look, 'look')}({writer.refer(moment, 'moment')}, locals())")

        for k, line in enumerate(code.lines):
            begins, ends = _written(steps[done], code, k) if done < len(steps) else (False, False)
            last = k == len(code.lines) - 1
            if not graph_shown and (begins or last):
                show(Moment.GRAPH)
                graph_shown = True
            writer.lines.append(line)
            if k == 0:
                show(Moment.ENTRY)
            if ends:
                show(Moment.step(done))
                done += 1
        assembly.call = define(writer, "call", "watched call")


@dataclasses.dataclass(frozen=True)
class Moment:
    """A place in the generated code of a call: after the step ``number`` of its record, or one that has a name."""

    name: str
    number: int | None = None

    ENTRY: ClassVar[Moment]
    GRAPH: ClassVar[Moment]

    @classmethod
    def step(cls, number: int) -> Moment:
        """After a step of the record, counted from 0."""
        return cls("step", number)


Moment.ENTRY, Moment.GRAPH = Moment("entry"), Moment("graph")


def _written(step: Step, code: SourceWriter, place: int) -> tuple[bool, bool]:
    """Whether the lines of code that carry out ``step`` begin at this place, and whether they end there."""
    line = code.lines[place]
    if not isinstance(step, Attach):
        found = line == f"    {step_line(step, code)}"
        return found, found
    call = f"= apply{step.group}(("
    if line.startswith("    grad_mode(True)"):  # a call under no_grad attaches in a block of its own
        return any(call in other for other in code.lines[place : place + 4]), False
    if line == "    finally: grad_mode(False)":
        return False, any(call in other for other in code.lines[max(place - 8, 0) : place])
    if line == f"    w{step.group} = []":
        return True, False
    found = line.startswith("    ") and not line.startswith("     ") and call in line
    return found, found


class Interpretation:
    """All values of a trace that follow from ``given``, or those before the op that ``raised``.

    Only the first ``program`` values are the program's own: what was recorded since, to read what a tensor holds or to
    differentiate, is left out where it raises, as memory that cannot be read does.
    """

    def __init__(
        self,
        order: Sequence[Value],
        program: int,
        given: Mapping[Value, Any],
        storages: dict[int, torch.UntypedStorage],
        device: torch.device,
    ) -> None:
        self.values: dict[Value, Any] = dict(given)
        self.storages = storages
        self.raised: Raised | None = None
        for k, v in enumerate(order):
            if v.op is PLACEHOLDER or v in self.values or any(a not in self.values for a in v.inputs()):
                continue
            try:
                self.values[v] = self._run(v)
            except Exception as error:  # eager's own, or the sign of a wrong trace
                if k < program:
                    self.raised = raised(error)
                    break
        self.generators = generator_states(device)

    def _run(self, v: Value) -> Any:
        if v.op is CONSTANT:
            return v.constant
        if v.op is getitem:
            return self.values[v.args[0]][v.args[1]]
        return v.op(*[self._real(a) for a in v.args], **{k: self._real(a) for k, a in v.kwargs.items()})

    def _real(self, a: Any) -> Any:
        if type(a) is Value:
            return self.values[a]
        return type(a)(self._real(x) for x in a) if type(a) in (list, tuple) else a

    def dense(self, v: Value | None) -> Tensor | None:
        """A dense copy of a value; None if it was not computed."""
        t = self.values.get(v) if v is not None else None
        return dense(t) if isinstance(t, Tensor) else None


def _entry(scene: Scene) -> dict[str, object]:
    """What of a call's tensors decides which code is right for it, by name."""
    found: dict[str, object] = {}
    storages: dict[int, str] = {}
    for name, t in scene.inputs.items():
        g = geometry_of(t)
        found[f"the shape of {name}"] = g.shape
        found[f"the stride of {name}"] = g.stride
        found[f"the offset of {name}"] = g.offset
        found[f"the dtype of {name}"] = g.dtype
        found[f"conj and neg of {name}"] = g.conj, g.neg
        found[f"requires_grad of {name}"] = t.requires_grad
        found[f"leafness of {name}"] = _torch.leafness(t)
        found[f"the storage of {name}"] = storages.setdefault(_torch.storage_key(t), name)
        found[f"the storage size of {name}"] = t.untyped_storage().nbytes()
    return found


@dataclasses.dataclass(slots=True)
class _Call:
    """Arguments and result of a call, or what it raised.

    Without a dictionary: what a function keeps there of a trace is refused, or put back after the trace.
    """

    args: tuple[Any, ...] = ()
    result: Any = None
    error: Exception | None = None


class _Watched:
    """The program's function, with the last arguments and result of it kept: those of the trace."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.last = _Call()

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        try:
            result = self.function(*args)
        except Exception as error:
            self.last.error = error
            raise
        if any(isinstance(t, Replica) for t in _plain(dict(_numbered((args, result)))).values()):
            self.last.args, self.last.result = args, result
        return result


def _numbered(tree: object) -> Iterator[tuple[str, Tensor]]:
    leaves = _torch.pytree.tree_leaves(tree)
    yield from ((str(k), t) for k, t in enumerate(leaves) if isinstance(t, Tensor))


def dense(t: Tensor) -> Tensor:
    """A dense copy without lazy bits."""
    with torch.no_grad():
        return t.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


@contextlib.contextmanager
def rolled_back(device: torch.device, states: tuple[Tensor, ...]) -> Iterator[None]:
    """The random generators are in ``states`` inside, and afterwards as they were."""
    before = generator_states(device)
    _set_generators(device, states)
    try:
        yield
    finally:
        _set_generators(device, before)


def _set_generators(device: torch.device, states: tuple[Tensor, ...]) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


def window(storage: torch.UntypedStorage, g: Geometry) -> Tensor:
    """The window ``g`` of a storage, which does not grow where it is too small."""
    nbytes = storage.nbytes()
    plain = torch.empty(0, dtype=g.dtype, device=storage.device)
    made = _torch.set_geometry(plain, storage, g.offset, g.shape, g.stride)
    if storage.nbytes() != nbytes:
        storage.resize_(nbytes)
    made = _torch.conj_view(made) if g.conj else made
    return _torch.neg_view(made) if g.neg else made


def _flat(storage: torch.UntypedStorage, dtype: torch.dtype) -> Tensor:
    return window(storage, flat_geometry(storage.nbytes(), dtype))


def _readable(t: Tensor) -> bool:
    g = geometry_of(t)
    return 0 in g.shape or g.elements_reached * g.dtype.itemsize <= t.untyped_storage().nbytes()


def _facts(name: str, role: Role, t: Tensor, storage: str, identity: str, value: Tensor | None) -> TensorFacts:
    leaf = _torch.leafness(t)
    assert isinstance(t, Replica)
    return TensorFacts(
        name=name,
        role=role,
        type="Parameter" if t.is_parameter else "Tensor",
        dtype=t.dtype,
        device=str(t.real_device),
        shape=tuple(t.shape),
        stride=t.stride(),
        addressing=addressing(t),
        offset=int(t.storage_offset()),
        nbytes=t.untyped_storage().nbytes(),
        requires_grad=t.requires_grad,
        is_leaf="refused" if leaf is None else leaf,
        grad_fn="refused" if leaf is None else _torch.grad_fn_of(t) is not None,
        conj=t.is_conj(),
        neg=t.is_neg(),
        inference=t.is_inference(),
        version=_torch.version_of(t),
        is_view=_torch.is_view(t),
        storage=storage,
        identity=identity,
        readable=_readable(t),
        value=value,
    )
