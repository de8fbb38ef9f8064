"""``programs()``: whole programs, drawn one statement at a time while eager runs them."""

import warnings
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import torch
from hypothesis import assume
from hypothesis import strategies as st

from aotcheck.program import (
    Call,
    Context,
    DictExpr,
    Expr,
    GradMode,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    TupleExpr,
    evaluate,
    references,
)
from aotcheck.program.called.objects import Settings
from aotcheck.program.called.objects import State as Stateful
from aotcheck.program.ops.registry import INSIDE, Group, Kind, Op, find
from aotcheck.program.running.memory import address, fits

from .arguments import Impossible, draw_arguments
from .calls import Unsafe, arity, draw_further_calls, draw_other_sizes, draw_plan, train, untrained
from .chooser import Chooser
from .families import draw_inputs
from .idioms import Idiom, draw_idiom
from .plans import Sides
from .practice import Practice, needed
from .profile import Profile, Training
from .refusals import draw_refusal
from .selection import Selection, selection_of
from .state import EXPECTED, Ended, Outcome, State
from .transforms import draw_transform
from .undrawn import undrawn

__all__ = ["programs"]

_WEIGHTS: dict[Group, int] = {
    Group.INPLACE: 12,
    Group.VIEW: 14,
    Group.POINTWISE: 7,
    Group.FILL: 6,
    Group.MULTI_VIEW: 4,
    Group.STRIDED_VIEW: 3,
    Group.DTYPE_VIEW: 4,
    Group.DETACH: 3,
    Group.METADATA: 4,
    Group.SET: 3,
    Group.STORAGE: 2,
    Group.FUNCTION: 3,
    Group.CONTAINER: 16,
    Group.SCATTER: 4,
    Group.FOREACH: 2,
    Group.OUT: 2,
    Group.REDUCE: 4,
    Group.MATMUL: 3,
    Group.JOIN: 3,
    Group.GATHER: 3,
    Group.SORT: 1,
    Group.COMPARE: 2,
    Group.CAST: 3,
    Group.FACTORY: 3,
    Group.NN: 2,
    Group.RNG: 4,
    Group.SUBCLASS: 3,
    Group.AUTOGRAD: 2,
    Group.MODULE: 3,
    Group.TRANSFORM: 2,
    Group.CONTROL: 1,
    Group.OPTIMIZER: 1,
}
_GROUPS = tuple(group for group in _WEIGHTS if group not in INSIDE)
_UNTRAINED = 6
"""Programs whose first call has no leaf that requires grad, beside those that have nothing to train."""
_STEERED = 60
"""Of programs while pairs are wanted: how many aim at one."""
_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
_ATTENDS = 12
"""Of programs that may round and hold ops of networks: how many end with attention under a mask."""
_LOSSES = tuple(f"torch.nn.functional.{name}" for name in ("cross_entropy", "nll_loss", "l1_loss", "huber_loss"))
_HAS_LOSS = 12
"""Of the same programs: how many end with a loss."""
_REORDERS = 4
_MOVES = 4
"""Of programs: how many end with the rows of a tensor in reverse order, with one row of a tensor copied to another."""
_READS_NUMBER = 60
"""Of programs with an argument that is a Python number: how many end with an op that reads the number."""
_NESTED = 10
"""Statements in a ``with`` block before which another one is opened in it."""
_NEED_INSIDE = (*(f"op:{group.value}" for group in INSIDE), "context:block-autocast")
_NEED_WRAPPERS = ("op:subclass", "input:subclass")
_OF_MODE = {GradMode.NO_GRAD: "context:call-no-grad", GradMode.INFERENCE: "context:call-inference"}
_OF_CONTEXT = {
    Context.NO_GRAD: "context:block-no-grad",
    Context.ENABLE_GRAD: "context:block-enable-grad",
    Context.INFERENCE: "context:block-inference",
    Context.AUTOCAST: "context:block-autocast",
}
_CONTEXTS = (Context.NO_GRAD, Context.ENABLE_GRAD, Context.NO_GRAD, Context.INFERENCE)

_OF_PATH = {"Tensor.data=": ("op:data",), "torch.utils.swap_tensors": ("op:swap",)}


def _of_group_traits(group: Group) -> tuple[str, ...]:
    return (f"op:{group.value}", *(("op:data", "op:swap") if group is Group.SET else ()))


def _draw_groups(
    choose: Chooser, selection: Selection, *, inexact: bool, random: bool, inside: bool, wrappers: bool
) -> tuple[Group, ...]:
    """Swarm testing: some groups are off, so that the others meet more often; all are on in the simplest program."""
    groups = (*_GROUPS, *INSIDE) if inside else _GROUPS
    groups = groups if wrappers else tuple(group for group in groups if group is not Group.SUBCLASS)
    if selection.restricted:
        groups = tuple(group for group in groups if selection.of_group(group, inexact))
    off = choose.mask(len(groups)) & choose.mask(len(groups)) if choose.chance(80) else 0

    def on(i: int, g: Group) -> bool:
        return f"op:{g.value}" in choose.wanted or (not off >> i & 1 and (random or g is not Group.RNG))

    fallback = groups if selection.restricted else (Group.INPLACE, Group.VIEW)
    kept = [g for i, g in enumerate(groups) if on(i, g)] or fallback
    return tuple(g for g in kept if selection.of_group(g, inexact) for _ in range(_WEIGHTS[g] * selection.times(g)))


class _Drawer:
    """One program in the making."""

    def __init__(
        self, choose: Chooser, profile: Profile, inputs: Inputs, wrappers: bool, practice: Practice | None = None
    ) -> None:
        self.choose, self.profile, self.wrappers, self.practice = choose, profile, wrappers, practice
        self.refuse = choose.likely(profile.refused, "end:refused")
        selection = selection_of(profile)
        self.inexact = choose.likely(profile.inexact, "context:block-autocast") or selection.only_rounds
        self.random = choose.chance(profile.random)
        self.inside = profile.inside > 0 and choose.likely(profile.inside, *_NEED_INSIDE)
        other = choose.likely(profile.other_modes, *_OF_MODE.values())
        mode = choose.toward(tuple(_OF_MODE), lambda mode: (_OF_MODE[mode],)) if other else GradMode.ENABLED
        self.state = State(inputs, mode, selection)

    def body(self) -> None:
        """Draw the statements."""
        with suppress(Ended):
            if self.practice:
                self.usual(self.practice)
            else:
                self.statements()

    def usual(self, practice: Practice) -> None:
        """Draw statements as often as they are used, what people do in between."""
        self.unnest()
        idioms = practice.idioms()
        wanted = self.choose.between(2, self.profile.statements)
        tries, kept = 0, 0
        while (kept < wanted and tries < 3 * wanted) or idioms:
            tries += 1
            if idioms and (kept >= wanted or tries >= 3 * wanted or self.choose.chance(30)):
                with suppress(Impossible, *EXPECTED):
                    idioms.pop(0)(Idiom(self.choose, self.state))
            else:
                kept += self.statement(self.state.selection.by_usage(self.choose, practice.rank), late=False)

    def statements(self) -> None:
        """Draw one after the other, until there are enough or eager refuses one."""
        self.unnest()
        groups = _draw_groups(
            self.choose,
            self.state.selection,
            inexact=self.inexact,
            random=self.random,
            inside=self.inside,
            wrappers=self.wrappers,
        )
        if not any(isinstance(value, list | dict | Stateful) for value in self.state.env.values()):
            groups = tuple(g for g in groups if g is not Group.CONTAINER)
            groups = groups or (() if self.state.selection.restricted else (Group.INPLACE,))
        if not groups:
            return
        if Group.CONTROL in groups and any(isinstance(value, int | float) for value in self.state.env.values()):
            groups = (*groups, *[Group.CONTROL] * _WEIGHTS[Group.CONTAINER])
        wanted = self.choose.between(1, self.profile.statements)
        tries, kept = 0, 0
        ends: list[int] = []  # of the open blocks, by the number of tries
        while kept < wanted and tries < 2 * wanted + 4 and not self.state.refused:
            if self.another_block():
                contexts = (*_CONTEXTS, Context.AUTOCAST) if self.inside and self.inexact else _CONTEXTS
                self.state.open(self.choose.toward(contexts, lambda context: (_OF_CONTEXT[context],)))
                ends.append(tries + self.choose.between(1, 3))
            tries += 1
            if self.choose.likely(self.profile.idioms, "op:out", "op:swap", "op:data"):
                kept += draw_idiom(self.choose, self.state, self.inside)
            elif self.statement(self.op_of(self.choose.toward(groups, _of_group_traits)), kept >= wanted // 2):
                kept += 1
            while self.state.blocks and ends[len(self.state.blocks) - 1] <= tries:
                self.state.close()
            del ends[len(self.state.blocks) :]
        if any(isinstance(value, Stateful) for value in self.state.env.values()) and not self.state.refused:
            for path in ("object.hidden=", "object.scale="):
                if self.choose.chance(40):
                    self.statement(find(path)[0], late=True)
        if not self.state.refused:
            self.close_with(groups)
        if not self.state.refused and self.refuse:
            draw_refusal(self.choose, self.state)
        self.state.close_all()

    def close_with(self, groups: Collection[Group]) -> None:
        """Draw last, since the last result is always returned, what seldom shows in a result otherwise."""
        networks, allows = self.inexact and Group.NN in groups, self.state.selection.allows
        if networks and allows(_ATTENTION) and self.choose.chance(_ATTENDS):
            masked = [op for op in find(_ATTENTION) if op.params[0].kind is Kind.SEQUENCE]
            self.statement(self.choose.one(masked), late=False)
        losses = [path for path in _LOSSES if allows(path)]
        if networks and losses and self.choose.chance(_HAS_LOSS):
            self.statement(find(self.choose.one(losses))[0], late=False)
        if Group.GATHER in groups and allows("getitem") and self.choose.chance(_REORDERS):
            self.reorder_rows()
        if Group.INPLACE in groups and allows("Tensor.copy_") and self.choose.chance(_MOVES):
            self.move_row()
        if self.profile.inside > 0 and self.choose.chance(_READS_NUMBER):
            self.read_number()

    def reorder_rows(self) -> None:
        """Take the rows of a tensor by an index tensor that is not sorted."""
        state = self.state
        tall = [(name, len(t)) for name, t in state.tensors() if t.dim() and t.numel() and len(t) > 1]
        if not tall:
            return
        name, rows = self.choose.one(tall)
        order = ListExpr(tuple(Literal(i) for i in reversed(range(min(rows, 3)))))
        made = OpCall(state.fresh(), "torch.tensor", (order,), (("device", state.device()),))
        if state.attempt(made, find(made.path)[0], needed=True) is Outcome.DONE:
            index = Ref(made.targets[0])
            state.attempt(OpCall(state.fresh(), "getitem", (Ref(name), index)), find("getitem")[0])

    def move_row(self) -> None:
        """Copy a row of a tensor to another row of it: both are views of one storage."""
        state = self.state
        tall = [name for name, t in state.tensors() if t.dim() and t.numel() and len(t) > 1]
        if not tall:
            return
        name, views = self.choose.one(tall), []
        for row in (-1, 0):
            view = OpCall(state.fresh(), "getitem", (Ref(name), Literal(row)))
            if state.attempt(view, find("getitem")[0]) is not Outcome.DONE:
                return
            views.append(Ref(view.targets[0]))
        source, written = views
        state.attempt(OpCall(None, "Tensor.copy_", (written, source)), find("Tensor.copy_")[0])

    def read_number(self) -> None:
        """Compute with an argument that is a Python number, which may be another one in a later call."""
        state = self.state
        numbers = [name for name in state.params if type(state.env[name]) in (int, float)]
        tensors = [name for name, _ in state.tensors()]
        if numbers and tensors:
            path = self.choose.one(("torch.mul", "torch.add"))
            state.attempt(OpCall(state.fresh(), path, (Ref(tensors[-1]), Ref(numbers[0]))), find(path)[0])

    def another_block(self) -> bool:
        """Whether to open a block here: at most one in another."""
        if not self.state.blocks:
            return self.choose.likely(self.profile.blocks, *_OF_CONTEXT.values())
        return len(self.state.blocks) == 1 and self.choose.chance(_NESTED)

    def unnest(self) -> None:
        """Bind the tensors inside nested arguments."""
        for param, value in list(self.state.env.items()):
            match value:
                case Stateful() | Settings():
                    for field in ("hidden", "scale"):
                        self.state.bind(OpCall(self.state.fresh(), f"object.{field}", (Ref(param),)))
                case list() | tuple():
                    for i in range(len(value)):
                        self.state.bind(OpCall(self.state.fresh(), "getitem", (Ref(param), Literal(i))))
                case dict():
                    for key, inner in value.items():
                        name = self.state.fresh()
                        self.state.bind(OpCall(name, "getitem", (Ref(param), Literal(key))))
                        if isinstance(inner, list):
                            for i in range(len(inner)):
                                self.state.bind(OpCall(self.state.fresh(), "getitem", (Ref(name), Literal(i))))

    def op_of(self, group: Group) -> Op:
        """Draw an op of a group."""
        return self.choose.toward(
            self.state.selection.of_group(group, self.inexact), lambda op: _OF_PATH.get(op.path, ())
        )

    def statement(self, op: Op, late: bool) -> bool:
        """Draw one statement of an op; whether it was kept."""
        try:
            args, kwargs = draw_arguments(self.choose, self.state, op)
        except (Impossible, *EXPECTED):
            return False
        in_place = op.writes or op.group in (Group.METADATA, Group.SET)
        if op.results == 0 or (in_place and not self.choose.chance(35)):
            target = None
        else:
            target = self.state.fresh()
        call = OpCall(target, op.path, args, kwargs)
        if op.results is None:
            return self.state.unpack(call, whole=self.choose.chance(20)) and self.index(call)
        outcome = self.state.attempt(call, op, keep_refused=self.refuse and late)
        if outcome is Outcome.DONE and op.undefined:
            self.define(Ref(target) if target else args[0])
        return outcome is Outcome.DONE or self.state.refused

    def define(self, ref: Expr) -> None:
        """Write to memory that nobody has written, mostly at once."""
        t = evaluate(ref, self.state.env)
        if not isinstance(t, torch.Tensor) or not fits(t) or self.choose.chance(10):
            return
        leaf = t.requires_grad and not self.state.blocks
        if leaf:
            self.state.open(Context.NO_GRAD)
        elsewhere = ((name, u) for name, u in self.state.tensors() if address(u) != address(t))
        alike = [name for name, u in elsewhere if u.shape == t.shape and u.dtype == t.dtype]
        if alike and self.choose.chance(40):
            call = OpCall(None, "Tensor.copy_", (ref, Ref(self.choose.one(alike))))
        else:
            call = OpCall(None, "Tensor.fill_", (ref, Literal(1)))
        self.state.attempt(call, find(call.path)[0], needed=True)
        if leaf:
            self.state.close()

    def index(self, call: OpCall) -> bool:
        """Take one element of a result kept whole."""
        if isinstance(call.target, str):
            value = self.state.env.get(call.target)
            if isinstance(value, tuple | list) and value:
                item = Literal(self.choose.below(len(value)))
                self.state.attempt(OpCall(self.state.fresh(), "getitem", (Ref(call.target), item)))
        return True

    def outputs(self) -> Expr:
        """Draw the output pytree: late values, aliases, inputs, now and then the same twice or a constant."""
        names = [name for name, _ in reversed(self.state.tensors())]
        if not names:
            return Literal(None)
        if self.profile.aliases < 100 and not self.choose.chance(self.profile.aliases):
            names = self.apart(names)
        chosen: list[Expr] = [Ref(names[0])]
        differentiable = [name for name in names if self.state.env[name].requires_grad]
        if differentiable and (self.profile.training is Training.ONE_BACKWARD or self.choose.chance(80)):
            chosen.append(Ref(self.choose.one(differentiable)))
        if self.choose.chance(7):
            chosen += self.infinite()
        for _ in range(self.choose.one((1, 0, 2, 1, 3))):
            chosen.append(Ref(self.choose.one(names)))
        containers = [name for name, value in self.state.env.items() if isinstance(value, list | dict | tuple)]
        if Group.CONTAINER not in self.profile.groups:
            containers = []
        if containers and self.choose.likely(30, "output:container-of-caller"):
            chosen.append(Ref(self.choose.one(containers)))
        if (freed := self.state.freed()) and self.choose.likely(30, "output:freed"):
            chosen.append(Ref(self.choose.one(freed)[0]))
        if self.choose.likely(10, "output:constant"):
            chosen.append(Literal(self.choose.one((None, 1, "text", 2.5))))
        if len(chosen) == 1 and not self.choose.chance(20):
            return chosen[0]
        if len(chosen) > 1 and self.choose.likely(15, "output:nested"):
            rest = tuple(chosen[1:])
            nested: tuple[Expr, ...] = (ListExpr(rest), DictExpr((("k", chosen[1]),)), TupleExpr(rest))
            return TupleExpr((chosen[0], self.choose.one(nested)))
        return TupleExpr(tuple(chosen))

    def apart(self, names: list[str]) -> list[str]:
        """Those names of tensors that share no memory with an argument; all of them if there is no such."""
        state = self.state
        given = {address(t) for t in state.given()}
        return [name for name in names if address(state.env[name]) not in given] or names

    def infinite(self) -> list[Expr]:
        """A product with infinity: whoever takes an undefined cotangent for zeros gets NaN from it."""
        state = self.state
        names = [name for name, t in state.tensors() if t.requires_grad and t.is_floating_point()]
        if not names or state.refused or not state.selection.allows("torch.mul"):
            return []
        call = OpCall(state.fresh(), "torch.mul", (Ref(self.choose.one(names)), Literal(float("inf"))))
        try:
            state.bind(call)
        except EXPECTED:  # a view whose history autograd refuses
            return []
        return [Ref(name) for name in call.targets]

    def program(self) -> Program:
        """Draw everything else."""
        self.body()
        outputs, state = self.practice.outputs(self.state) if self.practice else self.outputs(), self.state
        program = Program(state.params, tuple(state.body), outputs, (Call(state.inputs, state.mode),))
        if self.practice:
            program = replace(program, body=needed(program.body, set(references(outputs))))
            return self.practice.loop(program)
        tensors, roots = arity(outputs, state.env)
        trained = sum(t.requires_grad for t in state.named.values())
        sides = Sides(tensors, roots, len(state.params), trained)
        return draw_plan(self.choose, self.profile, program, sides)[0]


@st.composite
def _programs(draw: st.DrawFn, profile: Profile, wanted: tuple[tuple[str, str], ...], sizes: int) -> Program:
    choose = Chooser(draw(st.randoms(use_true_random=False)))
    if wanted and choose.chance(_STEERED):
        choose.wanted = frozenset(choose.one(wanted)) - undrawn(profile)
    mode = torch.is_grad_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if profile.usage:
                practice = Practice(choose, profile.usage)
                program = _Drawer(choose, profile, practice.inputs, wrappers=False, practice=practice).program()
                return draw_other_sizes(choose, program, sizes)
            wrappers = profile.wrappers > 0 and choose.likely(profile.wrappers, *_NEED_WRAPPERS)
            inputs = draw_inputs(choose, wrappers, profile)
            match profile.training:
                case Training.ANYTHING:
                    inputs = train(choose, inputs) if choose.chance(94) else inputs
                case Training.ONE_BACKWARD:
                    inputs = train(choose, inputs)
                case Training.NOTHING:
                    pass
            if profile.trained_later and choose.chance(_UNTRAINED):
                inputs = untrained(inputs)
            program = _Drawer(choose, profile, inputs, wrappers).program()
        except Unsafe:
            assume(False)
        finally:
            torch.set_grad_enabled(mode)
        program = draw_further_calls(choose, program, profile)
        if sizes:
            return draw_other_sizes(choose, program, sizes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            under = profile.inside > 0 and choose.chance(profile.transforms)
            return draw_transform(choose, program) if under else program


def programs(
    profile: Profile | None = None, wanted: tuple[tuple[str, str], ...] = (), sizes: int = 0
) -> st.SearchStrategy[Program]:
    """Programs that eager gives a well-defined outcome to (an exception is one).

    Args:
        profile: sizes and shares; the default meets the difficulty floor.
        wanted: pairs of traits that are missing: more than half of the programs aim at one of them.
        sizes: how many calls at other sizes are appended to each program that can take them.

    The idea of drawing by running is that of stateful testing; that of switching features off per program, swarm
    testing
    (Groce et al., ISSTA 2012).
    """
    return _programs(profile or Profile(), wanted, sizes)
