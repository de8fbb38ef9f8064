"""The signature of a finding: the coarse key, the skeleton of the minimized program, and the stage to blame.

Note [Skeletons]
    A minimized program shows what a bug needs: which ops, in which order, on tensors that share memory in which way.
    The skeleton leaves out what is still chance: the numbers, sizes and dtypes that were drawn, the spelling of an op
    (``argsort`` is ``sort``), unused results, the order of independent statements, and which of equal inputs comes
    first (``canonical.py``). Two findings of one bug should have one skeleton, findings of two bugs should have two.
    ``python -m benchmarks.signatures`` counts how often that is so.

Note [Causes]
    One bug may show in the values of a result, in a gradient and in the metadata of a result: several signatures with
    one cause. So a signature also has a cause (:func:`cause`): the statements, the memory that the inputs share, and
    how the function is called, without what is returned, what is backpropagated and what requires grad. Reports show
    signatures of one cause and one stage as one entry (``results/rank.py``). Some ops replace any other op in
    minimizing, so programs of only those ops say nothing by their ops: the cause of such a program is all of it.
"""

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
"""Ops that torch implements by another op."""

__all__ = ["KnownBug", "Signature", "cause", "embeds", "is_known", "skeleton"]


@dataclass(frozen=True)
class Signature:
    """The identity of a bug, as far as it shows from outside.

    Args:
        key: the coarse key of the minimized program.
        skeleton: the minimized program without chance, see Note [Skeletons].
        stage: the stage of our own AOT autograd, or the layer of torch's compilers, that is to blame; empty for a
            backend without stages.
    """

    key: CoarseKey
    skeleton: str
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.key} {self.skeleton}{f' [{self.stage}]' if self.stage else ''}"


@dataclass(frozen=True)
class KnownBug:
    """A known bug: a signature, the program that shows it, and the corpus file that has it, if there is one.

    ``key`` is the coarse key of its findings as text, as in headers; ``signed`` is the signature's key, if that is
    another one (Note [Roots] of :mod:`aotcheck.minimize.root`). ``own`` are the simple ops of the program that have the
    bug themselves (Note [Own bugs] of :mod:`aotcheck.minimize.own`). ``path`` is the file of the program.
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
    """One line: the unusual arguments, the statements, what is returned, what the caller does.

    Programs with one canonical form have one skeleton.
    """
    program = canonical(program, _op)
    used = _read(program) | set(references(program.outputs))
    parts = [*_arguments(program), *_statements(program.body, used), f"return {_expr(program.outputs)}"]
    plan = [_call(call) for call in program.calls]
    if plan != [""]:
        parts.append("calls " + " | ".join(said or "plain" for said in plan))
    return "; ".join(parts)


def cause(program: Program) -> str:
    """One line: the part of a minimized program that may cause all that the program shows, see Note [Causes]."""
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
    """True if ``program`` has the op calls of ``minimized`` in the same order, perhaps with others between them. Then
    both probably have one bug. A simple op, which replaces others in minimizing, stands for any op of its kind, unless
    it is in ``own``: then it has the bug itself."""
    calls = flat_calls(program.body)
    return all(any(_may_be(wanted, call, own) for call in calls) for wanted in flat_calls(minimized.body))


def is_known(key: CoarseKey, minimized: Program, bug: KnownBug, own: Collection[str] = ()) -> bool:
    """True if a minimized program shows a known bug: it has the same calls and the same key. If the key has an error's
    message, which few bugs share, some of the calls are enough, since a corpus file may be larger than a minimized
    finding. ``own`` is as in :func:`embeds`."""
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
