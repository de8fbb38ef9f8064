"""The eager state that a program is drawn against: names, values, what happened so far.

Note [Order of writes]
    A write whose outcome depends on the order in which elements are written is nobody's bug: programs with one are not
    drawn. A write is such when the written tensor overlaps itself or an operand overlaps it otherwise than element
    by element, and eager does
    not refuse it; ops marked ``ordered`` (they store one value everywhere) are excepted.

Note [Drawing looks, and looking leaves traces]
    Who asks a view whose base was written for its history makes it, as of that moment. So statements that ran while
    arguments were drawn in between may raise when they run one after the other, as they do whenever the state is made
    again. What they do then is what eager does: the body ends there, with a statement that eager refuses.
"""

import itertools
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from enum import Enum, auto
from typing import Any

import torch

from aotcheck.program import (
    Block,
    Call,
    Context,
    DeviceOf,
    Expr,
    GradMode,
    Inputs,
    Literal,
    OpCall,
    Program,
    Ref,
    Statement,
    build_call,
)
from aotcheck.program.ops.registry import INSIDE, Group, Op, find
from aotcheck.program.ops.subclasses import held
from aotcheck.program.running.interpret import context_of, evaluate
from aotcheck.program.running.memory import (
    Saved,
    address,
    execute_definite,
    fits,
    holds_wrapper,
    hook_may_be_misplaced,
    reads_nothing_missing,
)
from aotcheck.program.running.memory import tensors_of as _tensors

from .profile import Profile
from .selection import Selection, selection_of

__all__ = ["EXPECTED", "Ended", "Outcome", "State", "fragile", "hazardous", "overlaps_itself", "perilous", "tidy"]

_BOUND = 2**18
_HALF_BOUND = 2**8
_NOT_POINTWISE = ("Tensor.cum", "Tensor.addmm_", "Tensor.addmv_", "Tensor.addr_", "Tensor.addbmm_", "Tensor.baddbmm_")
"""In-place ops whose elements depend on other elements of their operands."""

_IMPURE = frozenset(
    {Group.METADATA, Group.SET, Group.STORAGE, Group.DETACH, Group.RNG, Group.FUNCTION, Group.CONTAINER, *INSIDE}
)
_OF_STORAGES = frozenset({Group.SET, Group.STORAGE})
EXPECTED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
_RAISED = (*EXPECTED, AssertionError, AttributeError)
"""What eager raises; the last two are torch's own mistakes."""


class Ended(Exception):
    """The body is over: eager refuses a statement of it when all run without a break.

    See Note [Drawing looks, and looking leaves traces].
    """


class Outcome(Enum):
    """What became of a statement that was tried."""

    DONE = auto()
    REFUSED = auto()  # eager raised
    UNWANTED = auto()  # it ran, and is not kept


def _offsets(t: torch.Tensor) -> list[int]:
    """Byte offsets of the elements, by enumeration: tensors are tiny."""
    steps = [[i * s for i in range(n)] for n, s in zip(t.shape, t.stride(), strict=True)]
    start, width = int(t.storage_offset()) * t.itemsize, t.itemsize
    return [int(start + sum(index) * width) for index in itertools.product(*steps)]


def overlaps_itself(t: torch.Tensor) -> bool:
    """Whether two elements of ``t`` lie in one place."""
    if inner := held(t):
        return any(overlaps_itself(x) for _, x in inner)
    expected = 1
    for n, step in sorted(zip(t.shape, t.stride(), strict=True), key=lambda pair: pair[1]):
        if n > 1:
            if step < expected:
                break
            expected = step * n
    else:
        return False
    if t.numel() > 512:
        return True
    offsets = _offsets(t)
    return len(set(offsets)) < len(offsets)


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.storage_offset(), a.shape, a.stride(), a.dtype) == (b.storage_offset(), b.shape, b.stride(), b.dtype)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    pointer = address(a)
    if pointer == 0 or pointer != address(b) or not a.numel() or not b.numel():
        return False
    if max(a.numel(), b.numel()) > 512:
        return True
    mine = {o + i for o in _offsets(a) for i in range(a.itemsize)}
    return any(o + i in mine for o in _offsets(b) for i in range(b.itemsize))


def hazardous(call: OpCall, env: dict[str, Any]) -> bool:
    """Whether a write that eager let through depends on the order of element writes, see Note [Order of writes]."""
    op = find(call.path)[0]
    written_by_keyword = [e for k, e in call.kwargs if k == "out"]
    if not (any(o.writes for o in find(call.path)) or written_by_keyword) or op.ordered:
        return False
    if call.path == "setitem" and not isinstance(evaluate(call.args[0], env), torch.Tensor):
        return False  # a list or a dict
    if op.group is Group.OUT or written_by_keyword:
        if not written_by_keyword:
            return False
        written = list(_tensors(evaluate(written_by_keyword[0], env)))
        operands = [t for a in call.args for t in _tensors(evaluate(a, env))]
    else:
        first, *rest = call.args
        written = list(_tensors(evaluate(first, env)))
        operands = [t for a in rest for t in _tensors(evaluate(a, env))]
    elementwise = op.group in (Group.INPLACE, Group.FILL) and not call.path.startswith(_NOT_POINTWISE)
    if call.path == "setitem":
        base, index = written[0], evaluate(call.args[1], env)
        try:
            written = list(_tensors(base[index]))
        except _RAISED:
            return True
        operands = list(_tensors(evaluate(call.args[2], env)))
        if written[0].untyped_storage() is not base.untyped_storage():  # index_put_, a scatter
            written, elementwise = [base], False
    if any(overlaps_itself(t) for t in written):
        return True
    if op.group is Group.FOREACH and not operands:
        return False  # the same is done to each element once per tensor that has it, whichever comes first
    for i, t in enumerate(written):
        if any(_overlap(t, u) for u in written[:i]):
            return True
        if any(_overlap(t, u) and not (elementwise and _same_place(t, u)) for u in operands):
            return True
    return False


def _held_by_another(changing: Iterable[Expr], env: dict[str, Any]) -> bool:
    """Whether a wrapper holds one of these tensors, which may change their geometry."""
    changed = {id(evaluate(expr, env)) for expr in changing}
    return any(
        id(t) in changed for value in env.values() if holds_wrapper(value) for t in _tensors(value) if t is not value
    )


def perilous(call: OpCall, env: dict[str, Any], saved: Saved) -> bool:
    """Whether running a call might crash torch, now or in a backward, or leaves memory undefined unseen.

    Such are reads of freed memory (Note [Freed memory] of ``running/memory.py``), ``out=`` that must grow
    while an operand (``torch.mm`` segfaults), ``out=`` that begins behind its storage, which leaves a gap as it
    grows, and writes to what :func:`hook_may_be_misplaced` tells of.
    """
    if not reads_nothing_missing(call, env) or saved.lost(call, env):
        return True
    if find(call.path)[0].writes or any(keyword == "out" for keyword, _ in call.kwargs):
        given = (*call.args, *(expr for _, expr in call.kwargs))
        if any(hook_may_be_misplaced(t) for expr in given for t in _tensors(evaluate(expr, env))):
            return True
    if find(call.path)[0].group in _OF_STORAGES or call.path == "Tensor.resize_":
        given = (*call.args, *(expr for _, expr in call.kwargs))
        if any(holds_wrapper(evaluate(expr, env)) for expr in given):
            return True  # a wrapper has no storage to speak of: torch crashes when that is read
    in_place = find(call.path)[0].group in (Group.METADATA, Group.SET, Group.STORAGE)
    changing = [*(call.args[:2] if in_place else ()), *(expr for keyword, expr in call.kwargs if keyword == "out")]
    if changing and _held_by_another(changing, env):
        return True  # a wrapper that holds what has another shape than its own is broken
    for keyword, expr in call.kwargs:
        if keyword == "out" and isinstance(expr, Ref):
            out = env[expr.name]
            if holds_wrapper(out):
                return True
            operands = [t for a in call.args for t in _tensors(evaluate(a, env))]
            elementwise = call.path in ("torch.add", "torch.mul", "torch.neg")
            elementwise = elementwise and all(t.shape == out.shape for t in operands)
            place = address(out)
            aliased = any(t is out or (place and address(t) == place) for t in operands)
            behind = out.storage_offset() * out.itemsize > out.untyped_storage().nbytes()
            return behind or (aliased and not elementwise)
    return False


def tidy(value: Any) -> bool:
    """Whether every float in ``value`` is small enough for arithmetic on it to stay exact (and no NaN)."""
    for t in _tensors(value):
        if not fits(t):
            continue
        if t.is_floating_point() or t.is_complex():
            bound = _HALF_BOUND if t.itemsize == 2 else _BOUND
            try:
                plain = torch.view_as_real(t.detach().resolve_conj()) if t.is_complex() else t.detach()
            except RuntimeError:  # got its data from inference mode; not even detach is possible
                return False
            if plain.numel() and not bool((plain.abs() <= bound).all()):
                return False
        if t.numel() > 128:
            return False
    return True


class State:
    """A body in the making and its eager environment."""

    def __init__(self, inputs: Inputs, mode: GradMode = GradMode.ENABLED, selection: Selection | None = None) -> None:
        self.inputs = inputs
        self.selection = selection or selection_of(Profile())
        self.mode = mode
        self.params = tuple(f"x{i}" for i in range(len(inputs.args)))
        self.body: list[Statement] = []
        self.blocks: list[tuple[Context, list[Statement]]] = []  # those that are open, the innermost last
        self.refused = False
        self.made = 0
        self.env: dict[str, Any] = {}
        self.rebuild()

    # -- replay

    def rebuild(self) -> None:
        """Make the environment again from the inputs and the statements kept.

        Raises:
            Ended: one of the statements raises now.
        """
        shell = Program(self.params, (), Literal(None), (Call(self.inputs),))
        built = build_call(shell, 0)
        self.named = built.named
        self.leaves = built.leaves
        self.env = dict(zip(self.params, built.args, strict=True))
        self.saved = Saved()
        torch.default_generator.manual_seed(0)  # of all devices: 50 times slower, and keeps a stack trace each time
        try:
            with self._around():
                self._replay(self.body)
                with ExitStack() as stack:
                    for context, block in self.blocks:
                        stack.enter_context(context_of(context))
                        self._replay(block)
        except _RAISED as error:
            self.refused = True
            self.close_all()
            raise Ended from error

    def _replay(self, body: list[Statement]) -> None:
        """Run what is kept; what raises is the last of it."""
        for i, statement in enumerate(body):
            try:
                if isinstance(statement, Block):
                    inner = list(statement.body)
                    with context_of(statement.context):
                        try:
                            self._replay(inner)
                        finally:
                            body[i] = Block(statement.context, tuple(inner))
                else:
                    execute_definite(statement, self.env)
                    self.saved.note(statement, self.env)
            except _RAISED:
                del body[i + 1 :]
                raise

    # -- blocks

    @property
    def context(self) -> Context | None:
        """That of the innermost open block."""
        return self.blocks[-1][0] if self.blocks else None

    @property
    def block(self) -> list[Statement]:
        """Where the next statement goes."""
        return self.blocks[-1][1] if self.blocks else self.body

    def open(self, context: Context) -> None:
        """Begin a ``with`` block, in the one that is open."""
        self.blocks.append((context, []))

    def close(self) -> None:
        """End the innermost block, if eager's refusal has not ended it; an empty one leaves no trace."""
        if not self.blocks:
            return
        context, block = self.blocks.pop()
        if block:
            self.block.append(Block(context, tuple(block)))

    def close_all(self) -> None:
        """End the blocks that are open."""
        while self.blocks:
            self.close()

    # -- names

    def fresh(self) -> str:
        """A new name."""
        self.made += 1
        return f"v{self.made - 1}"

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor with a name that may be read, oldest first."""
        return [(name, t) for name, t in self.every_tensor() if fits(t)]

    def freed(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor with a name that reaches past its storage."""
        return [(name, t) for name, t in self.every_tensor() if not fits(t)]

    def every_tensor(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor with a name, oldest first."""
        return [(name, t) for name, t in self.env.items() if isinstance(t, torch.Tensor)]

    def device(self) -> Expr:
        """The device of the first tensor, as written in the program."""
        return DeviceOf(self.every_tensor()[0][0])

    # -- trying statements

    def _around(self) -> AbstractContextManager[object]:
        match self.mode:
            case GradMode.ENABLED:
                return torch.enable_grad()
            case GradMode.NO_GRAD:
                return torch.no_grad()
            case GradMode.INFERENCE:
                return torch.inference_mode()

    def _keep(self, call: OpCall) -> None:
        self.block.append(call)

    def _run(self, call: OpCall) -> None:
        with self._around(), ExitStack() as stack:
            for context, _ in self.blocks:
                stack.enter_context(context_of(context))
            execute_definite(call, self.env)
            self.saved.note(call, self.env)

    def bind(self, call: OpCall) -> None:
        """Keep a statement that cannot fail and makes nothing new."""
        self._run(call)
        self._keep(call)

    def may_write(self, call: OpCall) -> bool:
        """Whether a call changes nothing that the selection keeps from it."""
        return self.selection.writes_all or self.selection.may_write(call, self.env, self.given())

    def given(self) -> list[torch.Tensor]:
        """Every tensor that the caller has, and those it passes."""
        return list(self.named.values())

    def attempt(self, call: OpCall, op: Op | None = None, keep_refused: bool = False, needed: bool = False) -> Outcome:
        """Run a statement; keep it if it ran and is wanted, or if eager refused it and that is asked for.

        Args:
            call: the statement.
            op: its entry in the op table.
            keep_refused: whether it is kept if eager refuses it.
            needed: whether an op that was selected needs what it makes.
        """
        if not self.selection.allows(call.path, needed) or not self.may_write(call):
            return Outcome.UNWANTED
        if perilous(call, self.env, self.saved):
            return Outcome.UNWANTED
        pure = op is not None and not op.writes and op.group not in _IMPURE
        try:
            self._run(call)
        except _RAISED as error:
            if keep_refused and not fragile(error):
                self._keep(call)
                self.refused = True
                self.close_all()
                return Outcome.REFUSED
            if not pure:
                self.rebuild()
            return Outcome.REFUSED
        touched = [self.env[name] for name in call.targets] + [
            self.env[a.name] for a in call.args[:1] if isinstance(a, Ref)
        ]
        wanted = tidy(touched) and self.selection.takes(touched)
        if (not pure and hazardous(call, self.env)) or not wanted:
            for name in call.targets:
                self.env.pop(name, None)
            if not pure:
                self.rebuild()
            return Outcome.UNWANTED
        self._keep(call)
        return Outcome.DONE

    def unpack(self, call: OpCall, whole: bool) -> bool:
        """Keep a call with several results, under one name or one name each; False if it has none or eager refuses."""
        if self.attempt(call) is not Outcome.DONE or not isinstance(call.target, str):
            return False
        values = self.env[call.target]
        if whole or not len(values) or len(values) > 6:
            return True
        names = (call.target, *(self.fresh() for _ in values[1:]))
        self.block[-1] = OpCall(names, call.path, call.args, call.kwargs)
        self.env.update(zip(names, values, strict=True))
        return True


def fragile(error: Exception) -> bool:
    """Errors that would kill a CUDA context (an index tensor out of bounds), or that are torch's own."""
    text = str(error)
    index = "index" in text and ("out of bounds" in text or "out of range" in text)
    return index or "INTERNAL ASSERT" in text or isinstance(error, AssertionError | AttributeError)
