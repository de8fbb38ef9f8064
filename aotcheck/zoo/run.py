"""Runs a model step by step, and observes everything after each step.

The observations are the oracle's own (:mod:`aotcheck.oracle`): state and batch are a call's inputs, what the step
returns are its outputs. So values, gradients, dtypes, strides, aliasing, generators and global state are compared as
they are for random programs.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from aotcheck._torch import pytree
from aotcheck.backends import Backend, Promise
from aotcheck.oracle.execute import Attempt, Observation
from aotcheck.oracle.kinds import Phase
from aotcheck.oracle.raised import raised
from aotcheck.oracle.snapshot import Snapshot, snapshot
from aotcheck.oracle.state import generator_states, seed_generators
from aotcheck.program.running import harness
from aotcheck.zoo.model import Compiled, Model, Place, Program

__all__ = ["NOT_PROMISED", "Compile", "Seen", "compiler_of", "not_promised", "steps_of", "uncompiled"]

Compile = Callable[[Callable[..., Any]], Compiled]
"""Takes the target of a program."""

NOT_PROMISED = "closes over modules or tensors, which the backend does not promise"
"""Why a target is not given to a backend."""


@dataclass(frozen=True)
class Seen:
    """A step as it was made.

    Args:
        observation: all that could be seen afterwards.
        seconds: how long it took, compilation included.
    """

    observation: Observation
    seconds: float


def uncompiled(target: Callable[..., Any]) -> Compiled:
    """Eager: the specification."""
    return target


def compiler_of(backend: Backend) -> Compile:
    """What compiles targets: a backend that promises modules gets a module as it is, another one a function of the
    module's parameters and buffers."""
    if Promise.MODULES in backend.promises:
        return backend.compile

    def compile_target(target: Callable[..., Any]) -> Compiled:
        if not isinstance(target, nn.Module):
            return backend.compile(target)
        module: nn.Module = target

        def function(parameters: Any, buffers: Any, args: Any, kwargs: Any) -> Any:
            return torch.func.functional_call(module, {**parameters, **buffers}, args, kwargs)

        compiled = backend.compile(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            return compiled(dict(module.named_parameters()), dict(module.named_buffers()), args, kwargs)

        return call

    return compile_target


def not_promised(model: Model, program: Program, backend: Backend) -> str:
    """Why the target cannot be given to the backend; empty if it can."""
    if missing := [promise.value for promise in Promise if promise in model.needs - backend.promises]:
        return f"needs {', '.join(missing)}, which the backend does not promise"
    target = program.target
    if Promise.MODULES in backend.promises or isinstance(target, nn.Module) or not inspect.isfunction(target):
        return ""
    held = inspect.getclosurevars(target).nonlocals.values()
    state = (nn.Module, torch.Tensor, torch.optim.Optimizer)
    return NOT_PROMISED if any(isinstance(leaf, state) for leaf in pytree.tree_leaves(list(held))) else ""


def steps_of(model: Model, place: Place, compile_target: Compile) -> Iterator[Seen]:
    """Build a model from a fixed seed and make its steps; nothing comes after a step that raises."""
    seed_generators(place.device)
    program = model.program(place)
    seed_generators(place.device)
    compiled: list[Compiled] = []

    for index, batch in enumerate(program.batches):

        def make(batch: Any = batch) -> Any:
            if not compiled:
                compiled.append(compile_target(program.target))
            with _DefaultDtype(place):
                return program.step(compiled[0], batch)

        attempt = Attempt()
        start = time.perf_counter()
        result = attempt.run(make)
        seconds = time.perf_counter() - start
        yield Seen(_look(index, attempt, program, batch, result, place, compile_target), seconds)
        if attempt.error is not None:
            return


class _DefaultDtype:
    """What a step makes without naming a dtype is as wide as the rest."""

    def __init__(self, place: Place) -> None:
        self.wanted, self.before = place.dtype(torch.get_default_dtype()), torch.get_default_dtype()

    def __enter__(self) -> None:
        torch.set_default_dtype(self.wanted)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self.before)


def _look(
    index: int, attempt: Attempt, program: Program, batch: Any, result: Any, place: Place, compile_target: Compile
) -> Observation:
    """What there is to see after a step."""
    words, outputs, constants = harness.leaves(result)
    inputs: dict[str, torch.Tensor] = {}
    shown = Snapshot((), (), ())
    if attempt.error is None:
        for name, holder in {**program.state, "batch": batch}.items():
            tensors, plain = _held(name, holder)
            inputs |= tensors
            constants |= plain
        try:
            shown = snapshot(inputs.items(), outputs.items())
        except Exception as error:
            if compile_target is uncompiled:
                raise  # the oracle is at a loss
            seen = raised(error)
            attempt.error = replace(seen, message=f"what it gives cannot be looked at: {seen.message}", cause="")
    states = generator_states(place.device)
    return Observation(
        index, Phase.FORWARD, attempt.error, words, tuple(constants.items()), shown, states, attempt.changes
    )


def _held(name: str, holder: Any) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of an entry of a program's state, and its plain values, by name."""
    match holder:
        case nn.Module():
            named = [
                *holder.named_parameters(name, remove_duplicate=False),
                *holder.named_buffers(name, remove_duplicate=False),
            ]
            return dict(named), {}
        case torch.optim.Optimizer():
            return _of_optimizer(name, holder)
        case torch.optim.lr_scheduler.LRScheduler():
            return {}, {f"{name}.{key}": repr(value) for key, value in holder.state_dict().items()}
        case _:
            return _leaves(name, holder)


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors: dict[str, torch.Tensor] = {}
    plain: dict[str, str] = {}
    for g, group in enumerate(optimizer.param_groups):
        options: Mapping[str, Any] = {key: value for key, value in group.items() if key != "params"}
        entries = [(f"{name}.group[{g}]", options)]
        entries += [
            (f"{name}.state[{g}][{i}]", dict(optimizer.state.get(p, {}))) for i, p in enumerate(group["params"])
        ]
        for place, values in entries:
            found, constants = _leaves(place, values)
            tensors |= found
            plain |= constants
    return tensors, plain


def _leaves(name: str, value: Any) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    _, tensors, constants = harness.leaves(value, name)
    # The repr of an object of a class of its own may hold an address.
    return tensors, {key: said for key, said in constants.items() if " object at 0x" not in said}
