"""Finds the traits of a program: in its source, and in a dry run of its calls in eager."""

import ctypes
import warnings
from collections import OrderedDict
from contextlib import redirect_stdout, suppress
from typing import Any

import torch

from aotcheck._torch import pytree
from aotcheck.program.called.objects import attributes
from aotcheck.program.data.model import (
    Around,
    Backward,
    Block,
    Call,
    Context,
    GradMode,
    Graph,
    Hook,
    Of,
    OpCall,
    Program,
    Site,
    Statement,
    Step,
    flat_calls,
)
from aotcheck.program.ops.registry import Group, Op, Work, find
from aotcheck.program.ops.subclasses import leaves
from aotcheck.program.running.build import BuiltCall, Scene, around, build_call, forget, perform, scene_of
from aotcheck.program.running.interpret import context_of, evaluate
from aotcheck.program.running.memory import Saved, address, execute_definite
from aotcheck.program.vocabulary import noticed, traits
from aotcheck.program.vocabulary.features import Feature, features_in

__all__ = ["DryRun", "difficulty", "exact", "groups", "prints", "remember", "traits_of"]


def _overloads(program: Program) -> list[Op]:
    made = [c.path for c in flat_calls(program.body)]
    for call in program.calls:
        made += [c.path for c in flat_calls(call.inputs.derived)] if call.inputs else []
    return [op for path in dict.fromkeys(made) for op in find(path)]


def groups(program: Program) -> frozenset[Group]:
    """The groups of the body's ops."""
    return frozenset(find(c.path)[0].group for c in flat_calls(program.body))


def prints(program: Program) -> bool:
    """True if an op of the body prints."""
    return any(op.prints for op in _overloads(program))


def exact(program: Program) -> bool:
    """True if every op is exact on small integers and nothing casts, so that outcomes can be compared bitwise."""
    return not casts(program) and all(op.work is Work.EXACT for op in _overloads(program))


def casts(program: Program) -> bool:
    """Whether autocast is on anywhere."""
    return any(map(_casts, program.calls)) or Context.AUTOCAST in noticed.contexts(program)


def _casts(call: Call) -> bool:
    """Whether autocast is on around a call or a backward."""
    backwards = (step for step in call.steps if isinstance(step, Backward))
    return any(Around.AUTOCAST in around for around in (call.around, *(step.around for step in backwards)))


def _static(program: Program) -> set[str]:
    found = set[str]()
    overloads = _overloads(program)
    if any(op.group is Group.SET or "resize_" in op.path for op in overloads):
        found.add("source:set-or-resize")
    if any(op.group is Group.RNG for op in overloads):
        found.add("source:uses-rng")
    if any(op.undefined for op in overloads):
        found.add("source:may-be-undefined")
    if not exact(program):
        found.add("source:inexact")
    if any(isinstance(s, Block) for s in program.body):
        found.add("source:grad-mode-block")
    found.update(noticed.in_source(program))
    return found


def tensors_in(tree: object) -> list[torch.Tensor]:
    """The tensors of a pytree, in order."""
    leaves = (inner for leaf in pytree.tree_leaves(tree) for inner in pytree.tree_leaves(attributes(leaf)))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _geometry(t: torch.Tensor) -> tuple[object, ...]:
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad


def _history(t: torch.Tensor) -> object:
    try:
        return t.grad_fn
    except Exception:
        return None


def _bytes(t: torch.Tensor) -> tuple[int, bytes]:
    stores = [x.untyped_storage() for x in leaves(t)]
    return address(t), b"".join(ctypes.string_at(s.data_ptr(), s.nbytes()) if s.nbytes() else b"" for s in stores)


def _shares(t: torch.Tensor, others: list[torch.Tensor]) -> bool:
    pointer = address(t)
    return pointer != 0 and any(address(o) == pointer for o in others)


def _specialization(built: BuiltCall, call: Call) -> tuple[object, ...]:
    """The facts of a call that a specialization depends on: geometry, flags, identity, aliasing, grad mode."""
    tensors = tensors_in(built.args)
    first = {id(t): i for i, t in reversed(list(enumerate(tensors)))}
    storage = {address(t): i for i, t in reversed(list(enumerate(tensors)))}
    rows = tuple((*_geometry(t), noticed.is_leaf(t), t.is_conj(), first[id(t)], storage[address(t)]) for t in tensors)
    return call.grad_mode, call.around, rows


class DryRun:
    """Makes a program's calls one by one in eager, and records traits.

    Subclasses override the hooks, which run around each op call, also inside blocks; a hook may raise to stop the run.

    Attributes:
        unwritten: for each backward, by call and step, which of its possible inputs still have the history with which
            the caller passed them.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.traits = _static(program)
        self.first_key: traits.Key = ()
        self.index = 0
        self.previous: BuiltCall | None = None
        self.keys: list[tuple[object, ...]] = []
        self.saved = Saved()
        self.scenes: list[Scene] = []
        self.histories: dict[int, object] = {}
        self.unwritten: dict[tuple[int, int], tuple[int, ...]] = {}
        self.at = 0
        self.hooks: list[list[torch.Tensor | None]] = []
        self.writes: set[int] = set()
        self.backwards = self.doubles = 0
        self.broken = False

    def before_statement(self, call: OpCall, env: dict[str, Any]) -> None:
        """Hook for subclasses."""

    def on_statement(self, call: OpCall, env: dict[str, Any]) -> None:
        """Hook for subclasses."""

    def on_error(self, error: Exception) -> None:
        """Hook for subclasses: the body or a backward raised."""

    def on_gradients(self, gradients: list[torch.Tensor]) -> None:
        """Hook for subclasses: a backward gave these gradients."""

    def run(self) -> frozenset[Feature]:
        """Make every call."""
        try:
            for index, call in enumerate(self.program.calls):
                self.call(index, call)
        finally:
            forget(self.scenes)  # a gradient with a history and the leaf whose it is hold each other
        return features_in(self.traits)

    def call(self, index: int, call: Call) -> None:
        """Make one call and run its steps."""
        self.index = index
        built = self.previous = build_call(self.program, index, previous=self.previous)
        scene = scene_of(built)
        self.scenes.append(scene)
        self.histories.update((id(t), _history(t)) for t in scene.inputs.values())
        torch.default_generator.manual_seed(0)  # of all devices: 50 times slower, and keeps a stack trace each time
        for step in call.before:
            self.step(step, scene)
        raised = self.forward(call, built, scene)
        for self.at, step in enumerate(call.steps):
            ago = step.calls_ago if isinstance(step, Backward) else 0
            if ago < len(self.scenes) and (ago or not raised):
                self.step(step, self.scenes[-1 - ago], ago)

    def forward(self, call: Call, built: BuiltCall, scene: Scene) -> bool:
        """Make the call itself; True if it raised."""
        key = _specialization(built, call)
        if self.index and key not in self.keys:
            self.traits.add("event:second-call-other-key")
        if call.around or call.grad_mode is GradMode.INFERENCE:
            self.traits.add("event:context-around-call")
        self.keys.append(key)
        self.note_call(built, call)
        inputs = tensors_in(built.args)
        if any(_shares(t, inputs[:i]) for i, t in enumerate(inputs)):
            self.traits.add("event:inputs-share-storage")
        before = {name: (_geometry(t), _bytes(t)) for name, t in built.named.items()}
        env: dict[str, Any] = dict(zip(self.program.params, built.args, strict=True))
        outputs: list[torch.Tensor] = []
        raised = False
        try:
            with around(call, _CPU):
                self.statements(self.program.body, env)
                result = evaluate(self.program.outputs, env)
            scene.returned(result)
            outputs = tensors_in(result)
            self.traits.update(traits.of_result(result, built.args))
        except _expected() as e:
            raised = True
            self.traits.add("end:refused")
            self.on_error(e)
        for name, t in built.named.items():
            geometry, data = before[name]
            if geometry != _geometry(t):
                self.traits.add("end:metadata-changed")
            if data[1] != _bytes(t)[1]:
                self.traits.add("end:mutated")
        if any(_shares(t, [*inputs, *outputs[:i]]) for i, t in enumerate(outputs)):
            self.traits.add("event:returns-alias")
        if any(t is u for t in outputs for u in inputs):
            self.traits.add("event:returns-input")
        return raised

    def note_call(self, built: BuiltCall, call: Call) -> None:
        """Record the traits of a call that is about to run."""
        self.traits.update(traits.of_inputs(built.args, built.named))
        self.traits.update(traits.of_call(self.program, self.index))
        key = traits.key_of(built.args)
        if not self.index:
            self.first_key = key
        elif call.inputs is not None:
            self.traits.update(traits.of_further_call(self.first_key, key))

    def statements(self, body: tuple[Statement, ...], env: dict[str, Any]) -> None:
        """Run a body, with the statements in its blocks."""
        for statement in body:
            if isinstance(statement, Block):
                with context_of(statement.context):
                    self.statements(statement.body, env)
                self.traits.add(traits.of_block(statement.context))
            else:
                self.before_statement(statement, env)
                sizes = noticed.out_sizes(statement, env)
                self.traits.update(noticed.before(statement, env))
                execute_definite(statement, env)
                self.traits.add(traits.of_statement(statement))
                self.saved.note(statement, env)
                self.traits.update(noticed.after(statement, env, sizes))
                self.on_statement(statement, env)

    def step(self, step: Step, scene: Scene, ago: int = 0) -> None:
        """Run one step."""
        if isinstance(step, Backward):
            if not self.broken and step.roots and differentiable(scene):
                self.backward(step, scene, ago)
            return
        if scene.side(step.site.value)[step.index :]:
            self.traits.update(traits.of_step(step))
        if isinstance(step, Hook):
            self.traits.add("event:hook")
        elif step.site is not Site.GRADIENT:
            self.writes.add(id(scene))
        with suppress(*_expected()), redirect_stdout(None):
            perform(step, scene, self.hooks, _CPU)

    def backward(self, step: Backward, scene: Scene, ago: int) -> None:
        """Run a backward, and record its traits if it has something to do."""
        asked = [t for t in scene.wanted() if t.requires_grad]
        self.unwritten[self.index, self.at] = tuple(
            k for k, t in enumerate(asked) if _history(t) is self.histories.get(id(t))
        )
        with suppress(*_expected()):  # a view whose history autograd refuses
            if scene.roots(step.of.value):
                self.note(step, scene, ago)
        try:
            with redirect_stdout(None):
                perform(step, scene, self.hooks, _CPU)
        except _expected() as e:
            self.traits.add("end:backward-refused")
            self.on_error(e)
            forget(self.scenes)
            self.broken = self.broken or step.graph in (Graph.FREED, Graph.CREATED_FREED)
        self.on_gradients([g for g in (*scene.results, *scene.side("gradient")) if g is not None])

    def note(self, step: Backward, scene: Scene, ago: int) -> None:
        """Record the traits of a backward that is about to run."""
        self.backwards += 1
        returned = Feature.RETURNED_GRADIENT in features_in(self.traits)
        self.traits.update(traits.of_backward(step, self.backwards > 1, id(scene) in self.writes))
        if step.of is not Of.OUTPUTS:
            self.doubles += 1
            if self.doubles > 1 and returned:
                self.traits.add("event:third-derivative")
        if step.around:
            self.traits.add("event:context-around-backward")


_CPU = torch.device("cpu")


def differentiable(scene: Scene) -> bool:
    """True if some input of a call requires grad."""
    return any(t.requires_grad for t in scene.inputs.values())


def _expected() -> tuple[type[Exception], ...]:
    """The errors that eager raises for a program that it refuses; any other error is a bug of ours."""
    return (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError, AttributeError)


_known: OrderedDict[Program, frozenset[str]] = OrderedDict()


def remember(run: DryRun) -> None:
    """Cache a finished dry run, so that :func:`difficulty` and :func:`traits_of` need no other one."""
    _known[run.program] = frozenset(run.traits)
    while len(_known) > 2048:
        _known.popitem(last=False)


def traits_of(program: Program) -> frozenset[str]:
    """The program's traits (:mod:`aotcheck.program.vocabulary.traits`), from the dry run of :func:`difficulty`."""
    if program not in _known:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = DryRun(program)
            run.run()
            remember(run)
    return _known[program]


def difficulty(program: Program) -> frozenset[Feature]:
    """The program's features, from an eager dry run on the CPU (a few milliseconds; cached).

    Raises what eager raises while the inputs are built. An error of the body is a trait.
    """
    return features_in(traits_of(program))
