"""Programs written as their scripts, and predicates to plant."""

import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import torch

from aotcheck.oracle.execute import Observation, observe
from aotcheck.program import DryRun, OpCall, Program, emit, flat_calls, parse
from aotcheck.program.running.memory import reads_nothing_missing
from aotcheck.program.source.emit import ENDING, IMPORT

Predicate = Callable[[Program], bool]

PLAIN = """
def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
"""
"""The simplest input that there is."""

ONCE = """
CALLS = [{"inputs": make_inputs_0}]
"""
"""The simplest plan."""


def program(body: str, inputs: str = PLAIN, calls: str = ONCE) -> Program:
    """The program that a script holds, of which ``body`` is the function."""
    header = "# /// aotcheck\n# format = 2\n# ///\n\nimport torch"
    parts = (header, *(textwrap.dedent(part).strip("\n") for part in (inputs, body, calls)))
    return parse("\n\n\n".join(parts)).program


def text(made: Program) -> str:
    """What a program's script says of it, for comparison."""
    return emit(made).removesuffix(ENDING).partition(IMPORT)[2].strip()


def paths(made: Program) -> list[str]:
    """The ops of the body in order."""
    return [call.path for call in flat_calls(made.body)]


def eagerly(made: Program) -> list[Observation]:
    """What eager does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(observe(made, lambda function: function, torch.device("cpu")))


FREED = "reads freed memory"


class _Whole(DryRun):
    """Raises where a program would read freed memory, which may kill this process; see Note [Freed memory]."""

    def before_statement(self, call: OpCall, env: dict[str, Any]) -> None:
        if not reads_nothing_missing(call, env) or self.saved.lost(call, env):
            raise ValueError(FREED)

    def on_error(self, error: Exception) -> None:
        raise error


def runs(made: Program) -> bool:
    """Whether eager runs a program without an exception; inputs that cannot be built count as one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Whole(made).run()
        return all(step.raised is None for step in eagerly(made))
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
        return False


def reads_freed_memory(made: Program) -> bool:
    """Whether eager must not run the program in this process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Whole(made).run()
    except Exception as error:
        return str(error) == FREED
    return False


def both(*predicates: Predicate) -> Predicate:
    """All of them, in order."""
    return lambda made: all(predicate(made) for predicate in predicates)


def has(*wanted: str) -> Predicate:
    """The body holds these ops, in this order, whatever is between them."""

    def holds(made: Program) -> bool:
        found = iter(paths(made))
        return all(path in found for path in wanted)

    return holds


def inputs_hold(property_of: Callable[[Any], bool]) -> Predicate:
    """Some tensor that a call is built of has a property."""
    return lambda made: any(property_of(t) for call in made.calls if call.inputs for t in call.inputs.tensors)
