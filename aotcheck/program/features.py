"""What a program exercises: static features, and those that show in an eager dry run."""

from __future__ import annotations

import warnings
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any

import torch

from aotcheck._torch import pytree
from aotcheck.program.build import BuiltCall, build_call, cotangent
from aotcheck.program.interpret import context_of, evaluate
from aotcheck.program.memory import Saved, execute_definite
from aotcheck.program.model import Block, Call, GradMode, OpCall, Program, Statement, flat_calls
from aotcheck.program.ops import Group, Op, Work, find

__all__ = ["Feature", "difficulty", "exact", "groups"]


class Feature(StrEnum):
    """Something that makes a program worth running."""

    MUTATES_INPUT = auto()
    METADATA_MUTATION = auto()
    INPUTS_SHARE_STORAGE = auto()
    RETURNS_ALIAS = auto()
    RETURNS_INPUT = auto()
    SECOND_CALL = auto()
    SECOND_CALL_OTHER_KEY = auto()
    EAGER_REFUSES = auto()
    BACKWARD = auto()
    BACKWARD_REFUSED = auto()
    SET_OR_RESIZE = auto()
    USES_RNG = auto()
    INEXACT = auto()
    MAY_BE_UNDEFINED = auto()
    GRAD_MODE_BLOCK = auto()


def _overloads(program: Program) -> list[Op]:
    made = [c.path for c in flat_calls(program.body)]
    for call in program.calls:
        made += [c.path for c in flat_calls(call.inputs.derived)] if call.inputs else []
    return [op for path in dict.fromkeys(made) for op in find(path)]


def groups(program: Program) -> frozenset[Group]:
    """The groups of the body's ops."""
    return frozenset(find(c.path)[0].group for c in flat_calls(program.body))


def exact(program: Program) -> bool:
    """Whether every op is exact on small integers, so that outcomes are compared bitwise."""
    return all(op.work is Work.EXACT for op in _overloads(program))


def _static(program: Program) -> set[Feature]:
    found = set[Feature]()
    overloads = _overloads(program)
    if any(op.group is Group.SET or "resize_" in op.path for op in overloads):
        found.add(Feature.SET_OR_RESIZE)
    if any(op.group is Group.RNG for op in overloads):
        found.add(Feature.USES_RNG)
    if any(op.undefined for op in overloads):
        found.add(Feature.MAY_BE_UNDEFINED)
    if not exact(program):
        found.add(Feature.INEXACT)
    if any(isinstance(s, Block) for s in program.body):
        found.add(Feature.GRAD_MODE_BLOCK)
    return found


def tensors_in(tree: object) -> list[torch.Tensor]:
    """The tensors of a pytree, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _geometry(t: torch.Tensor) -> tuple[object, ...]:
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad


def _is_leaf(t: torch.Tensor) -> bool | None:
    try:
        return t.is_leaf
    except RuntimeError:  # a view made in no_grad mode whose base was written with grad enabled refuses to say
        return None


def _bytes(t: torch.Tensor) -> tuple[int, bytes]:
    s = t.untyped_storage()
    return s.data_ptr(), bytes(s) if s.nbytes() else b""


def _shares(t: torch.Tensor, others: list[torch.Tensor]) -> bool:
    pointer = t.untyped_storage().data_ptr()
    return pointer != 0 and any(o.untyped_storage().data_ptr() == pointer for o in others)


def key_of(built: BuiltCall, call: Call) -> tuple[object, ...]:
    """What of a call a specialization depends on: geometry, flags, identity, aliasing, grad mode."""
    tensors = tensors_in(built.args)
    first = {id(t): i for i, t in reversed(list(enumerate(tensors)))}
    storage = {t.untyped_storage().data_ptr(): i for i, t in reversed(list(enumerate(tensors)))}
    rows = tuple(
        (*_geometry(t), _is_leaf(t), t.is_conj(), first[id(t)], storage[t.untyped_storage().data_ptr()])
        for t in tensors
    )
    return call.grad_mode, rows


class DryRun:
    """A program's calls made one by one in eager, features noted on the way.

    Hooks are called around each op call, those inside blocks included; they may raise to give up.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found = _static(program)
        self.index = 0
        self.previous: BuiltCall | None = None
        self.keys: list[tuple[object, ...]] = []
        self.saved = Saved()

    def before_statement(self, call: OpCall, env: dict[str, Any]) -> None:
        """Hook for subclasses."""

    def on_statement(self, call: OpCall, env: dict[str, Any]) -> None:
        """Hook for subclasses."""

    def on_error(self, error: Exception) -> None:
        """Hook for subclasses: the body or a backward raised."""

    def run(self) -> frozenset[Feature]:
        """Make every call."""
        for index, call in enumerate(self.program.calls):
            self.call(index, call)
        return frozenset(self.found)

    def call(self, index: int, call: Call) -> None:
        """Make one call."""
        self.index = index
        built = self.previous = build_call(self.program, index, previous=self.previous)
        key = key_of(built, call)
        if index:
            self.found.add(Feature.SECOND_CALL)
            if key not in self.keys:
                self.found.add(Feature.SECOND_CALL_OTHER_KEY)
        self.keys.append(key)
        inputs = tensors_in(built.args)
        if any(_shares(t, inputs[:i]) for i, t in enumerate(inputs)):
            self.found.add(Feature.INPUTS_SHARE_STORAGE)
        before = {name: (_geometry(t), _bytes(t)) for name, t in built.named.items()}
        env: dict[str, Any] = dict(zip(self.program.params, built.args, strict=True))
        torch.manual_seed(0)
        outputs: list[torch.Tensor] = []
        try:
            with torch.set_grad_enabled(call.grad_mode is GradMode.ENABLED):
                self.statements(self.program.body, env)
                outputs = tensors_in(evaluate(self.program.outputs, env))
        except _expected() as e:
            self.found.add(Feature.EAGER_REFUSES)
            self.on_error(e)
        for name, t in built.named.items():
            geometry, data = before[name]
            if geometry != _geometry(t):
                self.found |= {Feature.METADATA_MUTATION, Feature.MUTATES_INPUT}
            if data[1] != _bytes(t)[1]:
                self.found.add(Feature.MUTATES_INPUT)
        if any(_shares(t, [*inputs, *outputs[:i]]) for i, t in enumerate(outputs)):
            self.found.add(Feature.RETURNS_ALIAS)
        if any(t is u for t in outputs for u in inputs):
            self.found.add(Feature.RETURNS_INPUT)
        self.backward(call, built, outputs)

    def statements(self, body: tuple[Statement, ...], env: dict[str, Any]) -> None:
        """Run a body, blocks opened."""
        for statement in body:
            if isinstance(statement, Block):
                with context_of(statement.context):
                    self.statements(statement.body, env)
            else:
                self.before_statement(statement, env)
                execute_definite(statement, env)
                self.saved.note(statement, env)
                self.on_statement(statement, env)

    def backward(self, call: Call, built: BuiltCall, outputs: list[torch.Tensor]) -> None:
        """Make a call's backward."""
        roots = list({id(t): t for t in outputs if t.requires_grad}.values())
        chosen = [roots[i] for i in call.backward.outputs if i < len(roots)] if call.backward else []
        if call.backward is None or not chosen or not built.leaves:
            return
        self.found.add(Feature.BACKWARD)
        seeds = [cotangent(t, call.backward.cotangent) for t in chosen]
        try:
            torch.autograd.grad(chosen, list(built.leaves.values()), seeds, allow_unused=True)
        except _expected() as e:
            self.found.add(Feature.BACKWARD_REFUSED)
            self.on_error(e)


def _expected() -> tuple[type[Exception], ...]:
    """What eager raises for a program it refuses; anything else is our own mistake."""
    return (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@lru_cache(maxsize=2048)
def difficulty(program: Program) -> frozenset[Feature]:
    """The program's features, by an eager dry run on CPU (a few milliseconds; cached).

    Raises what eager raises while the inputs are built; what the body raises is a feature.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DryRun(program).run()
