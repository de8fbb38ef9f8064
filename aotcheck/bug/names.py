"""Names that a person would choose: ``x`` and ``y`` for parameters and for the tensors that are passed as them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from aotcheck.minimize.edit import edited, renamed, renamed_call
from aotcheck.program import Inputs, OpCall, Program, Ref, Statement, flat_calls

__all__ = ["named_inputs", "named_program"]

_LETTERS = "xyzwuvabcdghpqrst"


def _letters(taken: Iterable[str] = ()) -> Iterator[str]:
    """Names that are not taken: single letters, then ``x1`` and so on."""
    used = set(taken)
    yield from (letter for letter in _LETTERS if letter not in used)
    yield from (f"x{k}" for k in count(1))


def _rebound(body: tuple[Statement, ...], names: Mapping[str, str]) -> tuple[Statement, ...]:
    def change(_: int, call: OpCall) -> OpCall:
        call = renamed_call(call, names)
        if isinstance(call.target, str):
            return replace(call, target=names[call.target])
        return replace(call, target=call.target and tuple(names[name] for name in call.target))

    return edited(body, change)


def named_program(program: Program) -> Program:
    """``program`` with other names in its function; its calls are as they were."""
    values = [name for call in flat_calls(program.body) for name in call.targets]
    names = dict(zip(dict.fromkeys([*program.params, *values]), _letters(), strict=False))
    return replace(
        program,
        params=tuple(names[name] for name in program.params),
        body=_rebound(program.body, names),
        outputs=renamed(program.outputs, names),
    )


def named_inputs(
    inputs: Inputs, params: tuple[str, ...], suffix: str = "", taken: Iterable[str] = ()
) -> tuple[Inputs, dict[str, str]]:
    """``inputs`` with other names, and the new names by the old ones.

    A tensor that is passed is called as its parameter is; one that is passed twice, as the first of them. ``suffix``
    is put behind each name; ``taken`` are names that mean something else to a reader.
    """
    names: dict[str, str] = {}
    for param, arg in zip(params, inputs.args, strict=False):
        if isinstance(arg, Ref):
            names.setdefault(arg.name, param)
    others = [t.name for t in inputs.tensors] + [n for call in flat_calls(inputs.derived) for n in call.targets]
    free = _letters([*params, *names.values(), *taken])
    for name in others:
        if name not in names:
            names[name] = next(free)
    names = {old: f"{new}{suffix}" for old, new in names.items()}
    changed = replace(
        inputs,
        tensors=tuple(replace(t, name=names[t.name]) for t in inputs.tensors),
        derived=_rebound(inputs.derived, names),
        args=tuple(renamed(arg, names) for arg in inputs.args),
    )
    return changed, names
