"""What a minimized program shows, side by side: eager's tensors and the backend's, after the step that differs.

Programs run here, in a process of their own each: what a report shows of them is plain data.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import torch

from aotcheck.backends import Expectations, require_device, resolve
from aotcheck.minimize import Limits, Subject
from aotcheck.minimize.isolated import workers
from aotcheck.oracle import Severity, compare
from aotcheck.oracle.compare import Pair
from aotcheck.oracle.execute import Observation, identity, observe
from aotcheck.oracle.snapshot import Snapshot, TensorFacts
from aotcheck.program import parse

__all__ = ["Illustration", "Side", "Values", "Window", "illustrate", "illustrated"]

SECONDS = 60.0
MOST_ELEMENTS = 64
"""As many elements of a tensor, and of a storage, are shown."""


@dataclass(frozen=True)
class Window:
    """A tensor on a storage: the places that it covers, in bytes from the storage's start, one for each element."""

    name: str
    storage: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    itemsize: int
    nbytes: int
    places: tuple[int, ...]
    object_of: str


@dataclass(frozen=True)
class Side:
    """One run after the step: what it raised, if it did, and its tensors."""

    raised: str
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Values:
    """A tensor or gradient in both runs, flattened; ``differs`` marks the elements that are not the same."""

    name: str
    eager: tuple[str, ...]
    compiled: tuple[str, ...]
    differs: tuple[bool, ...]
    eager_is: str
    compiled_is: str


@dataclass(frozen=True)
class Illustration:
    """All that is shown of a program; ``texts`` are its differences, ``failed`` why there is nothing to show."""

    step: str = ""
    eager: Side | None = None
    compiled: Side | None = None
    values: tuple[Values, ...] = ()
    texts: tuple[str, ...] = ()
    failed: str = ""


def illustrated(sources: Iterable[str], backend: str, device: str, memory: int) -> Iterator[Illustration]:
    """Illustrations of scripts, each made in a process of its own: some of these programs kill theirs."""
    with workers(Subject(backend, device), Limits(1, SECONDS, memory), max_tasks=1) as pool:
        futures = [pool.schedule(illustrate, args=(source, backend, device), timeout=SECONDS) for source in sources]
        for future in futures:
            try:
                yield future.result()
            except Exception as error:  # it died, hung, or is no program: that is what there is to say
                yield Illustration(failed=f"nothing to show: {type(error).__name__}")


def illustrate(source: str, backend: str, device: str) -> Illustration:
    """Run a script's program in eager and on a backend up to the first step that differs, and describe both."""
    parsed, on = parse(source), require_device(device)
    program, compiled = parsed.program, resolve(backend, Expectations.of_header(parsed.header))
    compiled.reset()
    expected = list(observe(program, identity, on))
    for eager, other in zip(expected, observe(program, compiled.compile, on), strict=False):
        found = [d for d in compare(Pair(eager, other, backend=compiled)) if d.severity is Severity.HARD]
        if found:
            return Illustration(
                step=f"{eager.phase.value} of call {eager.call + 1}",
                eager=_side(eager),
                compiled=_side(other),
                values=tuple(_values(eager.snapshot, other.snapshot)),
                texts=tuple(d.text for d in found),
            )
    return Illustration(failed="does not differ here")


def _side(seen: Observation) -> Side:
    raised = "" if seen.raised is None else f"{seen.raised.type}: {seen.raised.message}"
    return Side(raised, tuple(_window(t) for t in seen.snapshot.tensors))


def _window(t: TensorFacts) -> Window:
    size = t.dtype.itemsize
    shape, stride = _numbers(t.shape), _numbers(t.stride)
    if len(shape) < len(t.shape):  # a ragged wrapper has no memory of its own
        shape, stride = (0,), (1,)
    steps = islice(product(*(range(n) for n in shape)), MOST_ELEMENTS)
    places = ((t.offset + sum(i * s for i, s in zip(at, stride, strict=True))) * size for at in steps)
    dtype = str(t.dtype).removeprefix("torch.")
    return Window(t.name, t.storage, dtype, shape, stride, t.offset, size, t.nbytes, tuple(places), t.identity)


def _numbers(sizes: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(n for n in sizes if isinstance(n, int))


def _values(eager: Snapshot, compiled: Snapshot) -> Iterator[Values]:
    """What has values in either: outputs, storages of inputs, gradients."""
    ours, theirs = dict(_with_values(eager)), dict(_with_values(compiled))
    for name in dict.fromkeys((*ours, *theirs)):
        x, y = ours.get(name), theirs.get(name)
        a, b = _elements(x), _elements(y)
        length = max(len(a), len(b))
        a, b = (*a, *[""] * (length - len(a))), (*b, *[""] * (length - len(b)))
        differs = tuple(one != other for one, other in zip(a, b, strict=True))
        yield Values(name, a, b, differs, _kind(x), _kind(y))


def _with_values(seen: Snapshot) -> Iterator[tuple[str, Any]]:
    yield from ((f"storage of {name}", contents) for name, contents in seen.storages)
    yield from ((t.name, t.value) for t in seen.tensors if t.value is not None)
    yield from ((g.name, g.value) for g in seen.gradients)


def _elements(t: torch.Tensor | None) -> tuple[str, ...]:
    if t is None:
        return ()
    flat = t.detach().flatten()[:MOST_ELEMENTS].tolist()
    return tuple(f"{v:g}" if isinstance(v, float) else str(v) for v in flat)


def _kind(t: torch.Tensor | None) -> str:
    return "None" if t is None else f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
