"""Where in the stream of random numbers a traced program stands, so that numbers drawn again are the same.

Note [Positions]
Code that saves a generator's state and sets it again later, as checkpointing does around what it recomputes, wants the
same numbers again. No dispatch shows it, but the generator does: while a trace goes on, each recorded draw moves the
default generator of its device (which is put back when the trace pauses), so that every position between draws is a
state of its own. A draw at a state that an earlier draw began at is that draw again: its value is used again, which a
backward saves where eager would recompute it. Any other state was set from outside, by a seed say, and is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Value

# Of these ops' first argument only the geometry matters to what is drawn.
_LOOK_AT_GEOMETRY = frozenset(
    {
        *("uniform", "normal_functional", "exponential", "geometric", "cauchy", "log_normal", "random"),
        *("rand_like", "randn_like", "randint_like"),
    }
)


@dataclasses.dataclass(frozen=True)
class _Draw:
    value: Value
    after: bytes


class _Stream:
    """The draws of one default generator."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.known: dict[bytes, _Draw] = {}  # by the state at which they began
        self.outside = self.now()  # what the trace must leave behind
        self.front = b""  # where nothing was drawn yet

    def now(self) -> bytes:
        return bytes(self.generator.get_state().numpy().data)

    def begin(self) -> None:
        """Go where the trace stood; at first to a state that is not the caller's, which a seed might give as well."""
        self.outside = self.now()
        if self.front:
            self.go_to(self.front)
        else:
            self.advance()

    def advance(self) -> None:
        """Go to a new state, where nothing was drawn yet."""
        with _torch.without_torch_function(), _torch.without_modes():
            torch.rand((), generator=self.generator, device=self.generator.device)
        self.front = self.now()

    def go_to(self, state: bytes) -> None:
        self.generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


class Positions:
    """The random draws of one trace."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, _Stream] = {}

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """The trace goes on inside; random state is afterwards what it was.

        Raises:
            UnsupportedError: the program left a generator in a state that drawing does not lead to.
        """
        for stream in self._streams.values():
            stream.begin()
        self._stream(torch.device("cpu"))
        try:
            yield
            if any(stream.now() != stream.front for stream in self._streams.values()):
                raise UnsupportedError("seeding inside the function", "a generator's state is set inside")
        finally:
            for stream in self._streams.values():
                if stream.now() != stream.outside:
                    stream.go_to(stream.outside)

    def draw(self, device: torch.device, func: Any, value: Value, record: Callable[[], None]) -> Value:
        """``value``, of the random op ``func``, or the value of the same draw made earlier.

        ``record`` is called for a new one.
        """
        stream = self._stream(device)
        now = stream.now()
        if now == stream.front:
            record()
            stream.advance()
            stream.known[now] = _Draw(value, stream.front)
            return value
        known = stream.known.get(now)
        if known is None or not _same(known.value, value):
            raise UnsupportedError("seeding inside the function", f"{func} draws after a generator's state was set")
        stream.go_to(known.after)
        return known.value

    def _stream(self, device: torch.device) -> _Stream:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = _Stream(_default_generator(device))
            stream.begin()
        return stream


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    torch.cuda.init()
    generator: torch.Generator = torch.cuda.default_generators[device.index or 0]
    return generator


def _looks_at_geometry(v: Value) -> bool:
    """Whether only the geometry of the op's first argument matters to what it draws."""
    return v.op is torch.ops.aten.bernoulli.p or _torch.op_name(v.op) in _LOOK_AT_GEOMETRY


def _same(a: Value, b: Value) -> bool:
    """Whether two values are computed alike, from the same."""
    agreed: set[tuple[int, int]] = set()
    todo: list[tuple[Any, Any]] = [(a, b)]
    while todo:
        x, y = todo.pop()
        if x is y or (id(x), id(y)) in agreed:
            continue
        if isinstance(x, Value) and isinstance(y, Value):
            agreed.add((id(x), id(y)))
            if x.op != y.op or x.op is PLACEHOLDER:
                return False
            if x.op is CONSTANT and not torch.equal(x.constant, y.constant):
                return False
            if _looks_at_geometry(x):
                u, v = x.args[0], y.args[0]
                if u.geometry is None or u.geometry != v.geometry:
                    return False
                agreed.add((id(u), id(v)))
            if len(x.args) != len(y.args) or x.kwargs.keys() != y.kwargs.keys():
                return False
            todo += zip(x.args, y.args, strict=True)
            todo += [(x.kwargs[k], y.kwargs[k]) for k in x.kwargs]
        elif isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)) and len(x) == len(y):
            todo += zip(x, y, strict=True)
        elif type(x) is not type(y) or x != y:
            return False
    return True
