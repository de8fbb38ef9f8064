"""Random generators while a program is traced: where each draw stands in the sequence, and going back in it.

Note [Draws]
Tracing draws nothing, so a program that saves a generator's state and later sets it (``fork_rng``, a checkpoint that
recomputes) would go unnoticed. So for the time of a trace each generator is seeded with a number of ours, and every
draw that is recorded moves it on: a state met later says after which draw it was saved. A draw that is repeated from
the state it was first made from, by an op with the same arguments, is the value it gave then. Any other draw after
going back sets the generator's state in the graph. A state that no draw led to was seeded inside: refused, since where
the seed came from nobody knows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Geometry, Trace, Value

_library = torch.library.Library("aotcheck", "FRAGMENT")
_library.define("generator_state(Generator? generator=None) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("set_generator_state(Tensor state, Generator? generator=None) -> ()")

_marks = itertools.count(0x5EED_0000_0000)


def default_generators() -> list[torch.Generator]:
    """The generators that ops draw from which are given none."""
    found = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found += list(torch.cuda.default_generators)
    return found


def _generator_state(generator: torch.Generator | None = None) -> Tensor:
    return torch.cat([g.get_state() for g in ([generator] if generator is not None else default_generators())])


def _set_generator_state(state: Tensor, generator: torch.Generator | None = None) -> None:
    for g in [generator] if generator is not None else default_generators():
        size = g.get_state().numel()
        g.set_state(state[:size].clone())
        state = state[size:]


for _key in ("CompositeExplicitAutograd", "BackendSelect"):
    _library.impl("generator_state", _generator_state, _key)
_library.impl("set_generator_state", _set_generator_state, "CompositeExplicitAutograd")
torch.library.register_fake(
    "aotcheck::generator_state",
    lambda generator=None: torch.empty(_generator_state(generator).shape, dtype=torch.uint8),
    lib=_library,
)
torch.library.register_fake("aotcheck::set_generator_state", lambda state, generator=None: None, lib=_library)

_read = torch.ops.aotcheck.generator_state.default
_set = torch.ops.aotcheck.set_generator_state.default


# What these draw depends on their first argument's geometry alone.
_FILLS = frozenset(
    {
        *("uniform", "normal_functional", "exponential", "geometric", "cauchy", "log_normal", "random"),
        *("rand_like", "randn_like", "randint_like"),
    }
)


def _looks_at_geometry(op: Any) -> bool:
    return op is torch.ops.aten.bernoulli.p or _torch.op_name(op) in _FILLS


@dataclasses.dataclass(eq=False)
class _Position:
    """A moment in the sequence of draws: the one ``after`` a value was computed, and what was drawn from there on.

    ``later`` is one in a backward, before which the caller may have drawn.
    """

    states: list[Tensor]
    after: Value | None
    later: bool
    draws: list[tuple[Value, _Position]] = dataclasses.field(default_factory=list)
    saved: Value | None = None


class Draws:
    """The draws from one generator, or from the default ones: see Note [Draws].

    ``handle`` is the graph's name for the generator; None for the default ones.
    """

    def __init__(self, trace: Trace, generators: Sequence[torch.Generator], handle: Value | None) -> None:
        self.trace = trace
        self.generators = generators
        self.handle = handle
        self._known: dict[bytes, _Position] = {}
        self._reached: _Position  # where the generator is when the graph has run so far
        self._unnoted: list[int] = []  # the seeds with which tracing began, until that state is noted
        self._began_after: Value | None = None
        self._later = False
        self._numbers: dict[Value, int] = {}
        self._numbered: dict[Any, int] = {}

    # -- a stretch of tracing

    def begin(self, later: bool) -> list[Tensor]:
        """Tracing begins, or goes on ``later`` in a backward, at a moment of which nothing is known. Returns the
        generators' states."""
        self._later = later
        before = [g.get_state() for g in self.generators]
        self._unnoted = [next(_marks) for _ in self.generators]
        for g, mark in zip(self.generators, self._unnoted, strict=True):
            g.manual_seed(mark)
        self._began_after = self.trace.values[-1] if self.trace.values else None
        return before

    def _note_beginning(self) -> None:
        """Tracing has come to where it matters which state it began with."""
        if self._unnoted:
            now = [g.get_state() for g in self.generators]
            for g, mark in zip(self.generators, self._unnoted, strict=True):
                g.manual_seed(mark)
            self._unnoted = []
            self._reached = self._note(self._began_after)
            for g, state in zip(self.generators, now, strict=True):
                g.set_state(state)

    def settle(self) -> None:
        """The traced code is done: leave the generator where that did."""
        if self._unnoted and self._are_untouched():
            return  # no draw, and no other state set: of this mark there is but the one that it began with
        here = self._here()
        if here is not self._reached:
            self._go_to(here)

    def _are_untouched(self) -> bool:
        for g, mark in zip(self.generators, self._unnoted, strict=True):
            if g.device.type != "cpu" or g.initial_seed() != mark:
                return False
        return True

    def restore(self, before: list[Tensor]) -> None:
        """Undo ``begin``."""
        for g, state in zip(self.generators, before, strict=True):
            g.set_state(state)

    # -- a draw

    def repeated(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value | None:
        """The value that this very draw gave before; None, with the graph's generator in place, if it is new."""
        here = self._here()
        for value, following in here.draws:
            if value.op is not op or value not in self.trace.effects:  # then it is in another backward's graph alone
                continue
            if self._looked_at(op, args, kwargs) == self._looked_at(op, value.args, value.kwargs):
                self._put(following)
                return value
        if here is not self._reached:
            self._go_to(here)
        return None

    def drawn(self, value: Value) -> None:
        """``value`` was drawn."""
        self.trace.drawn.add(value)
        with _torch.without_modes():
            for g in self.generators:
                if self._reached.draws:  # something else was drawn here before: it led to another state
                    g.manual_seed(next(_marks))
                else:
                    torch.empty(1, device=g.device).uniform_(generator=g)
        following = self._note(value)
        self._reached.draws.append((value, following))
        self._reached = following

    # -- positions

    def _now(self) -> tuple[list[Tensor], bytes]:
        """The generators' states, and what two equal lists of them have in common; dispatches nothing."""
        states = [g.get_state() for g in self.generators]
        return states, b"".join([_torch.content_of(s) for s in states])

    def _note(self, after: Value | None) -> _Position:
        states, name = self._now()
        position = self._known[name] = _Position(states, after, self._later)
        return position

    def _here(self) -> _Position:
        self._note_beginning()
        found = self._known.get(self._now()[1])
        if found is None:
            raise UnsupportedError("seeding inside the function", "a generator is given a state that no draw led to")
        return found

    def _put(self, position: _Position) -> None:
        for g, state in zip(self.generators, position.states, strict=True):
            g.set_state(state)

    def _go_to(self, position: _Position) -> None:
        """Let the graph set its generator to what it was at ``position``."""
        handle = () if self.handle is None else (self.handle,)
        if position.saved is None:
            saved = position.saved = Value(_read, handle, {})
            count = sum(state.numel() for state in position.states)
            saved.geometry = Geometry(0, (count,), (1,), torch.uint8, False, False)
            saved.device = torch.device("cpu")
            values = self.trace.values
            values.insert(0 if position.after is None else values.index(position.after) + 1, saved)
            if not position.later:
                self.trace.states.append(saved)
        self.trace.effects.append(self.trace.call(_set, (position.saved, *handle)))
        self._reached = position

    # -- whether two draws are of the same

    def _looked_at(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a draw by ``op`` depends on: of some arguments just the geometry."""
        if args and type(args[0]) is Value and args[0].geometry is not None and _looks_at_geometry(op):
            return args[0].geometry, self._literal((args[1:], kwargs))
        return self._literal((args, kwargs))

    def _literal(self, a: Any) -> Any:
        """An argument as something that is equal for equal arguments; values that are computed alike are equal."""
        if type(a) is Value:
            return ("value", self._number(a))
        if isinstance(a, (list, tuple)):
            return tuple([self._literal(x) for x in a])
        if isinstance(a, dict):
            return tuple([(k, self._literal(x)) for k, x in a.items()])
        return (type(a), repr(a) if isinstance(a, (float, complex)) else a)

    def _number(self, value: Value) -> int:
        todo = [value]
        while todo:
            v = todo[-1]
            missing = [] if v in self._numbers else [x for x in v.inputs() if x not in self._numbers]
            if missing:
                todo += missing
                continue
            todo.pop()
            if v not in self._numbers:
                self._numbers[v] = self._new_number(v)
        return self._numbers[value]

    def _new_number(self, v: Value) -> int:
        by_itself = v.op in (PLACEHOLDER, CONSTANT, _read) or v in self.trace.drawn
        key = v if by_itself else (v.op, self._literal(v.args), self._literal(v.kwargs))
        try:
            return self._numbered.setdefault(key, len(self._numbered))
        except TypeError:  # an argument without a hash
            return self._numbered.setdefault(v, len(self._numbered))
