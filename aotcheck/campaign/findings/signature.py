"""What tells two findings apart: the coarse key, the skeleton of the minimized program, and the stage to blame.

Note [Skeletons]
    A minimized program says what a bug needs: these ops, in this order, on tensors that hang together so. What is left
    of chance in it, the numbers, sizes and dtypes that were drawn, is what the skeleton leaves out; so is which
    spelling of an op was drawn (``argsort`` is ``sort``), results that nobody uses, in which order independent
    statements stand, and which of equal inputs comes first (``canonical.py``). Two findings of one
    bug should come to one skeleton, two bugs to two. ``python -m benchmarks.signatures`` counts how often they do.

Note [Causes]
    One bug may be seen in the values of a result, in a gradient, and in what it is told of a result: as many
    signatures, one cause. So a signature also says what it is caused by (:func:`cause`): the statements alone, the
    memory that the inputs share, and how the function is called, without what is returned, what is backpropagated and
    what requires grad. Signatures of one cause and one stage are told as one entry (``results/rank.py``).
    Minimizing puts some ops in place of any other, so programs of these alone differ in everything but them: such a
    program is its own cause, whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import lru_cache

from aotcheck.campaign.findings.canonical import canonical
from aotcheck.minimize.edit import inputs_of, read_by
from aotcheck.minimize.passes.ops import writes
from aotcheck.minimize.size import rank_of
from aotcheck.oracle import CoarseKey, same_key
from aotcheck.program import (
    Block,
    Call,
    DeviceOf,
    DictExpr,
    Expr,
    GradMode,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    Statement,
    Step,
    TupleExpr,
    flat_calls,
    references,
)

SPELLINGS = {
    "Tensor.narrow": "getitem",
    "Tensor.select": "getitem",
    "Tensor.tensor_split": "getitem",
    "Tensor.take_along_dim": "gather",
    "torch.argsort": "sort",
    "torch.msort": "sort",
    "torch.hsplit": "getitem",
    "torch.narrow": "getitem",
    "torch.select": "getitem",
    "torch.tensor_split": "getitem",
    "torch.vsplit": "getitem",
    "torch.take_along_dim": "gather",
    "Tensor.argsort": "sort",
    "Tensor.msort": "sort",
}
"""Ops that are another one under the hood."""

__all__ = ["KnownBug", "Signature", "cause", "embeds", "is_known", "skeleton"]


@dataclass(frozen=True)
class Signature:
    """One bug, as far as can be told from outside.

    Args:
        key: the coarse key of the minimized program.
        skeleton: what the minimized program is made of, see Note [Skeletons].
        stage: which stage of our own AOT autograd, or layer of torch's compilers, is to blame; empty where the backend
            is one piece.
    """

    key: CoarseKey
    skeleton: str
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.key} {self.skeleton}{f' [{self.stage}]' if self.stage else ''}"


@dataclass(frozen=True)
class KnownBug:
    """A bug that need not be found again: a signature, the program that shows it, and the corpus file if it is in one.

    ``key`` is the coarse key in words, as headers have it, by which findings of it come; ``signed`` is the one of the
    signature, where that is another (Note [Roots] of :mod:`aotcheck.minimize.root`). ``own`` are the ops of the program
    that have a bug of their own, though minimizing puts them in place of others (Note [Own bugs] of
    :mod:`aotcheck.minimize.own`). ``path`` is the file of the program.
    """

    key: str
    skeleton: str
    program: Program
    stage: str = ""
    name: str = ""
    signed: CoarseKey | None = None
    own: frozenset[str] = frozenset()
    path: str = ""


def skeleton(program: Program) -> str:
    """One line: the arguments that are out of the ordinary, the statements, what is returned, what the caller does.

    It is the same for all programs that have one canonical form.
    """
    program = canonical(program, _op)
    used = _read(program) | set(references(program.outputs))
    parts = [*_arguments(program), *_statements(program.body, used), f"return {_expr(program.outputs)}"]
    plan = [_call(call) for call in program.calls]
    if plan != [""]:
        parts.append("calls " + " | ".join(said or "plain" for said in plan))
    return "; ".join(parts)


def cause(program: Program) -> str:
    """One line: what of a minimal program may be the cause of all that it shows, see Note [Causes]."""
    if all(rank_of(call.path) == 0 for call in flat_calls(program.body)):
        return skeleton(program)
    calls = tuple(
        replace(call, inputs=None if call.inputs is None else _plain(call.inputs), steps=(), before=())
        for call in program.calls
    )
    repeated = replace(calls[0], inputs=None)
    calls = (calls[0], *(call for call in calls[1:] if call != repeated))
    program = canonical(replace(program, outputs=Literal(None), calls=calls), _op)
    parts = [*_arguments(program), *_statements(program.body, _read(program))]
    plan = [_call(call) for call in program.calls]
    return "; ".join([*parts, *([f"calls {' | '.join(plan)}"] if any(plan) else [])])


def _plain(inputs: Inputs) -> Inputs:
    return replace(inputs, tensors=tuple(replace(t, requires_grad=False) for t in inputs.tensors))


def _read(program: Program) -> set[str]:
    """The names that statements read."""
    return {name for call in flat_calls(program.body) for name in read_by(call)}


@lru_cache(maxsize=4096)
def _paths(program: Program) -> tuple[str, ...]:
    """The ops that a program calls, in canonical order."""
    return tuple(call.path for call in flat_calls(canonical(program, _op).body))


def embeds(minimized: Program, program: Program, own: Collection[str] = ()) -> bool:
    """Whether ``program`` makes the calls of ``minimized`` in its order, others between them: the bug of the one is
    then probably the bug of the other. An op that minimizing puts in place of any other stands for any of its kind,
    but for those that have a bug of their ``own``."""
    calls = flat_calls(program.body)
    return all(any(_may_be(wanted, call, own) for call in calls) for wanted in flat_calls(minimized.body))


def is_known(key: CoarseKey, minimized: Program, bug: KnownBug, own: Collection[str] = ()) -> bool:
    """Whether a minimized program shows a known bug: the same calls under the same key; where the key has an error's
    message, which few bugs share, some of its calls will do, since a corpus file need not be as small as minimizing
    makes a finding. ``own``: as :func:`embeds` takes it."""
    if not same_key(bug.key, str(key)):
        return False
    return _paths(minimized) == _paths(bug.program) or (bool(key.error) and embeds(minimized, bug.program, own))


def _may_be(minimal: OpCall, call: OpCall, own: Collection[str]) -> bool:
    if minimal.path == call.path:
        return True
    return minimal.path not in own and rank_of(minimal.path) == 0 and writes(minimal) == writes(call)


def _arguments(program: Program) -> Iterator[str]:
    for at, inputs in inputs_of(program):
        said = list(_inputs(inputs))
        if said:
            yield f"{'given' if at == 0 else 'then given'} {', '.join(said)}"


def _inputs(inputs: Inputs) -> Iterator[str]:
    first: dict[str, str] = {}
    for t in inputs.tensors:
        base = first.setdefault(t.storage, t.name)
        words = ["trained"] if t.requires_grad else []
        words += [f"on {base}"] if base != t.name else []
        if words:
            yield f"{t.name} {' '.join(words)}"
    yield from _statements(inputs.derived)


def _statements(body: tuple[Statement, ...], used: Collection[str] | None = None) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Block):
            yield f"{statement.context.name.lower()} {{{'; '.join(_statements(statement.body, used))}}}"
        else:
            yield _op(statement, used)


def _op(call: OpCall, used: Collection[str] | None = None) -> str:
    """A statement. A tensor that is an operand twice is said once: whether a second operand is the first one again or a
    number is mostly chance."""
    shown = [_expr(expr) for expr in call.args] + [f"{k}={_expr(expr)}" for k, expr in call.kwargs]
    operands = [one for one in dict.fromkeys(shown) if one.rpartition("=")[2] != "_"]
    name = SPELLINGS.get(call.path, call.path.removeprefix("Tensor.").removeprefix("torch."))
    bound = [target for target in call.targets if used is None or target in used]
    targets = f"{', '.join(bound)} = " if bound else ""
    return f"{targets}{name}({', '.join(operands)})"


def _expr(expr: Expr) -> str:
    """Names and how they are held; ``_`` for what holds no name."""
    match expr:
        case Ref(name):
            return name
        case DeviceOf():
            return "_"
        case Literal(complex()):  # a kind of op more than a number
            return "complex"
        case TupleExpr(items) | ListExpr(items):
            shown = [part for item in items if (part := _expr(item)) != "_"]
            left, right = "()" if isinstance(expr, TupleExpr) else "[]"
            return f"{left}{', '.join(shown)}{right}" if shown else "_"
        case DictExpr(pairs, of):
            shown = [part for _, item in pairs if (part := _expr(item)) != "_"]
            return f"{of}{{{', '.join(shown)}}}" if shown else "_"
        case _:
            return "_"


def _call(call: Call) -> str:
    """What is out of the ordinary in a call; empty for a plain one."""
    words = [] if call.inputs is not None else ["again"]
    words += [call.grad_mode.value] if call.grad_mode is not GradMode.ENABLED else []
    words += [one.value for one in call.around]
    words += [f"before {_step(step)}" for step in call.before]
    words += [_step(step) for step in call.steps]
    return ", ".join(words)


def _step(step: Step) -> str:
    """The kind of a step and the choices in it that are not the default ones."""
    words = [type(step).__name__.lower()]
    for field in fields(step):
        value = getattr(step, field.name)
        if isinstance(value, Enum) and value != field.default:
            words.append(value.value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Enum):
            words.extend(one.value for one in value)
    return " ".join(words)
