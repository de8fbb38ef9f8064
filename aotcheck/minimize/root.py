"""Finds the statement at which a minimized program first goes wrong, by shorter beginnings that return their results.

Note [Roots]
    A wrong value may be found where it is made, or in a use of it: it is written to an input, saved for a backward, or
    too short for a view. Minimizing keeps the key of the finding, so one bug gives several minimized programs. So each
    beginning of a minimized program is run with its last result returned, in a plain call. If the values or the
    aliasing of that are wrong already, all that follows is a consequence, and this shorter program identifies the bug.
    Other kinds of differences do not count: a wrong flag of a result that is otherwise right need not be the cause.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from aotcheck.minimize.edit import edited, inputs_of
from aotcheck.minimize.passes.ops import calls_with_places, writes
from aotcheck.oracle import CoarseKey, Deviation, OracleKind
from aotcheck.program import Call, GradMode, OpCall, Program, Ref, TupleExpr, flat_calls

__all__ = ["is_root", "may_cause", "roots"]

_UNNAMED = "v_made"
"""The name of a result that has no name in the program."""

_CAUSES = frozenset({OracleKind.VALUES.value, OracleKind.ALIASING.value})


def roots(program: Program) -> Iterator[Program]:
    """The beginnings of ``program`` that return what their last statement makes, the shortest first, each under the
    grad modes of the program and under the default one."""
    modes = dict.fromkeys((program.calls[0].grad_mode, GradMode.ENABLED))
    given = dict.fromkeys(inputs for _, inputs in inputs_of(program))
    calls = tuple(flat_calls(program.body))
    for at, last in enumerate(calls):
        made = last if last.targets or writes(last) else replace(last, target=_UNNAMED)
        if not made.targets:
            continue
        whole = TupleExpr(tuple(map(Ref, made.targets)))
        outputs = whole if len(made.targets) > 1 else whole.items[0]
        begun = (*calls[:at], made)
        kept = edited(program.body, _only(begun))
        for body in dict.fromkeys((kept, begun)):  # blocks as they are, and without
            for inputs in given:
                for mode in modes:
                    root = replace(program, body=body, outputs=outputs, calls=(Call(inputs, mode),))
                    if root != program:
                        yield root


def _only(begun: Sequence[OpCall]) -> Callable[[int, OpCall], OpCall | None]:
    return lambda index, _: begun[index] if index < len(begun) else None


def is_root(key: CoarseKey, target: CoarseKey, program: Program) -> bool:
    """Whether a difference under ``key`` explains what is done with the result that it is seen in, where ``program``
    shows ``target``."""
    if key.oracle not in _CAUSES or key.error or "output" not in key.place or "later" in key.place:
        return False
    return may_cause(key, target, program)


def may_cause(key: CoarseKey, target: CoarseKey, program: Program) -> bool:
    """Whether a difference under ``key`` may be why ``program``, which has it inside, shows ``target``.

    A backend that rounds otherwise does so nearly everywhere, so rounding explains rounding only. A copy in place of a
    view explains wrong values only where something is written, or where a view reads beyond the one it is of.
    """
    if key.deviation == Deviation.ROUNDING.value != target.deviation:
        return False
    if (key.oracle, target.oracle) != (OracleKind.ALIASING.value, OracleKind.VALUES.value):
        return True
    return any(writes(call) or "as_strided" in call.path for _, _, call in calls_with_places(program))
