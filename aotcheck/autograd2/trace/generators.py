"""Random generators while a function is traced: where each draw stands in a sequence, and going back in it.

Note [Draws]
Tracing draws nothing, so a function that saves a generator's state and sets it later (``fork_rng``) would go unnoticed.
So for the time of a trace each generator is seeded with a number of ours, and with another one after each draw that is
recorded: the seed that it has later says after which draw its state was saved. A draw that is made again from there, by
an op with the same operands, is the value that it gave then; before any other draw the graph sets the state. A seed
that is none of ours was set inside: that is refused, as it may be another in the next call.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import CONSTANT, Graph, Node
from aotcheck.autograd2.ir.meta import row_major
from aotcheck.autograd2.trace.gate import Event, refuse

_library = torch.library.Library("aotcheck2", "FRAGMENT")
_library.define("generator_state(Generator generator) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("set_generator_state(Tensor state, Generator generator) -> ()")
for _key in ("CompositeExplicitAutograd", "BackendSelect"):
    _library.impl("generator_state", lambda generator: generator.get_state(), _key)


def _set_state(state: Tensor, generator: torch.Generator) -> None:
    generator.set_state(state)


_library.impl("set_generator_state", _set_state, "CompositeExplicitAutograd")
torch.library.register_fake(
    "aotcheck2::generator_state", lambda g: torch.empty(g.get_state().shape, dtype=torch.uint8), lib=_library
)
torch.library.register_fake("aotcheck2::set_generator_state", lambda state, g: None, lib=_library)

_seeds = itertools.count(0x5EED_0000_0000)


@dataclass(eq=False)
class _Position:
    """A moment in the sequence of a generator.

    Attributes:
        seed: what stands for the state then.
        after: the node after which it is.
        stretch: the number of the piece of tracing in which it is.
        draws: what was drawn from here: op and operands, the node, and the position afterwards.
        saved: the node that reads the state.
    """

    seed: int
    after: Node | None
    stretch: int
    draws: list[tuple[tuple[Any, ...], Node, _Position]] = field(default_factory=list)
    saved: Node | None = None


class _Sequence:
    """The draws from one generator; ``reached`` is where it is when the graph has run so far."""

    def __init__(self, generator: torch.Generator, graph: Graph) -> None:
        self.generator = generator
        self.graph = graph
        self.known: dict[int, _Position] = {}

    def begin(self, stretch: int) -> Tensor:
        """Seed the generator; the state that it had."""
        before = self.generator.get_state()
        self.stretch = stretch
        self.reached = self._note(self.graph.nodes[-1] if self.graph.nodes else None)
        return before

    def _note(self, after: Node | None) -> _Position:
        seed = next(_seeds)
        self.generator.manual_seed(seed)
        position = self.known[seed] = _Position(seed, after, self.stretch)
        return position

    def here(self) -> _Position:
        """Where the function has the generator now."""
        if (found := self.known.get(self.generator.initial_seed())) is None:
            refuse(Event.SEED)
        return found

    def again(self, asked: tuple[Any, ...]) -> Node | None:
        """What was drawn from here by this op with these operands, if it was."""
        for known, node, after in self.here().draws:
            if known == asked:
                self.generator.manual_seed(after.seed)
                return node
        return None

    def drew(self, asked: tuple[Any, ...], node: Node) -> None:
        """A draw was recorded."""
        here = self.here()
        self.reached = self._note(node)
        here.draws.append((asked, node, self.reached))

    def settle(self) -> None:
        """The graph goes to where the function has the generator."""
        here = self.here()
        if here is self.reached:
            return
        if here.saved is None:
            if here.stretch != self.stretch:
                refuse(Event.SEED, "a backward goes back to a state that a generator had before it")
            nodes = self.graph.nodes
            here.saved = Node(torch.ops.aotcheck2.generator_state.default, (self.constant,))
            here.saved.geometry = row_major((self.generator.get_state().numel(),), torch.uint8)
            here.saved.device = torch.device("cpu")
            nodes.insert(nodes.index(here.after or self.constant) + 1, here.saved)
        args = here.saved, self.constant
        self.graph.effects.append(self.graph.call(torch.ops.aotcheck2.set_generator_state.default, args))
        self.reached = here

    @functools.cached_property
    def constant(self) -> Node:
        """The graph's name for the generator, before all that is computed."""
        node = Node(CONSTANT)
        node.constant = self.generator
        self.graph.nodes.insert(0, node)
        return node


class Draws:
    """The generators that a trace knows: the default ones, and those that the call brings."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sequences: dict[int, _Sequence] = {}  # by the address of what is behind the Python object
        self._stretches = 0

    def count(self) -> int:
        """How often something was drawn."""
        return sum(len(p.draws) for s in self.sequences.values() for p in s.known.values())

    def drawn_from(self) -> tuple[torch.Generator, ...]:
        """Generators from which something was drawn."""
        return tuple(s.generator for s in self.sequences.values() if any(p.draws for p in s.known.values()))

    @contextlib.contextmanager
    def stretch(self, brought: Iterable[torch.Generator] = ()) -> Iterator[None]:
        """A piece of tracing, before which the caller may have drawn. Afterwards generators are as they were."""
        self._stretches += 1
        of_cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
        for g in (torch.default_generator, *of_cuda, *brought):
            self.sequences.setdefault(_torch.generator_address(g), _Sequence(g, self.graph))
        before = [(s.generator, s.begin(self._stretches)) for s in self.sequences.values()]
        try:
            yield
            for s in self.sequences.values():
                s.settle()
        finally:
            for g, state in before:
                g.set_state(state)

    def of(self, generator: torch.Generator | None, device: torch.device) -> _Sequence:
        """The sequence from which an op draws that is given this generator."""
        if generator is None:
            on_cuda = device.type == "cuda"
            generator = torch.cuda.default_generators[device.index or 0] if on_cuda else torch.default_generator
        if (found := self.sequences.get(_torch.generator_address(generator))) is None:
            refuse(Event.SEED, "a generator is given that is neither an argument nor captured")
        return found
