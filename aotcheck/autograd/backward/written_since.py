"""What must not be written between a call and its backward.

Note [Written since]
Eager's backward raises when what a node on its way saved was written since. Where that memory is saved here too
autograd sees to it when it is unpacked; the backward of each tensor unpacks what is saved of the memory that its own
nodes saved in eager, be it read or not (``checked``), and where there are several tensors no more than that. Other
memory is watched by counters (``guards``).

What a backward saves for its own derivative is known by the counters of the call that it has (``counters``), and those
of its tangents and results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.backward.kept import itself, kept_by, looked_at_behind
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.ops.twins import counts_apart, viewed
from aotcheck.autograd.record.record import Role
from aotcheck.autograd.record.steps import CountWith, Result
from aotcheck.autograd.runtime.attachments import Counter, Guard, Keeper
from aotcheck.autograd.tensors.subclasses import is_jagged


def guard(capture: Capture, stage: Stage) -> None:
    """Find what the caller can write of the memory that eager saves: see Note [Written since]."""
    stage.guards, stage.checked = [], []
    stage.counters.clear()
    visible = [(ref, t) for ref, t in capture.visible if _torch.version_of(t) >= 0]
    counters = [t for _, t in visible]
    copied = capture.recounted | capture.record.written_placeholders
    saved_here: dict[int, Tensor] = {}  # by place among what is saved: what counts versions with it
    shown_here: dict[int, Tensor] = {}  # the same of views of results, unless a compiler copies them
    by_placeholder = {r.placeholder: r.replica for r in capture.roots if r.placeholder not in copied}
    # What an argument is overwritten with is another tensor than the argument; so is what counts versions with one.
    others: set[int] = set()
    for x in capture.record.before:
        if isinstance(x, CountWith) and isinstance(x.target, Result):
            others.add(x.target.index)
    outputs = {
        o.value: o.tensor
        for k, o in enumerate(capture.record.outputs)
        if o.tensor is not None and o.role is not Role.MUTATED_INPUT and k not in others
    }
    for n, v in enumerate(stage.saved):
        known = outputs.get(v) if v.memory is None else by_placeholder.get(v.memory, outputs.get(v))
        if known is not None and (v.memory is None or not counts_apart(v)):
            saved_here[n] = known
        elif v.memory is None and (known := outputs.get(viewed(v, outputs, hidden=False))) is not None:
            shown_here[n] = known
    behind = looked_at_behind(capture, stage)
    asked = [*saved_here.values(), *[t for kept in behind for t in kept or ()]]
    counted = _torch.counted_by(asked, counters)
    of_kept = iter(counted[len(saved_here) :])
    counted = counted[: len(saved_here)]
    seen_to = {k: n for n, k in zip(saved_here, counted, strict=True) if k is not None}
    several = len(stage.attached) > 1
    if several and capture.hooks:
        seen_to = {}  # to unpack what hooks packed is to call them
    met: set[int] = set()
    for place, kept in enumerate(behind):
        if kept is None:  # written inside already: the backward raises at once
            stage.checked.append(())
            continue
        counters_of = list(itertools.islice(of_kept, len(kept)))
        found = _distinct(counters_of)
        met.update(found)
        ragged: set[int | None] = set()
        if not capture.only_computes:
            ragged = {k for k, t in zip(counters_of, kept, strict=True) if is_jagged(itself(capture, t))}
        # What autograd says of a plain tensor that is saved in a ragged one's place is not what eager says of that.
        stage.guards += [Guard(visible[k][0], place, k in ragged) for k in found if k not in seen_to or k in ragged]
        stage.checked.append(tuple(sorted(seen_to[k] for k in found if k in seen_to)))
    if None not in behind:
        # Eager saved an alias of it that counts versions by itself, as `.data` gives one.
        counted += _torch.counted_by(list(shown_here.values()), counters)
        numbers = [*saved_here, *shown_here]
        stage.unwatched = {
            stage.saved[n] for n, k in zip(numbers, counted, strict=True) if k is not None and k not in met
        }
    watched = {g.watched: n for n, g in enumerate(stage.guards)}
    for k in sorted(met):
        ref, t = visible[k]
        saved = Counter(Keeper.SAVED, seen_to[k]) if k in seen_to else None
        stage.counters.append((t, saved or Counter(Keeper.WATCHED, watched[ref])))


def written_and_kept(capture: Capture, stages: Sequence[Stage]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The arguments that the call writes, and others that something on the way of a backward from ``stages`` keeps.

    Nothing where there are not both: see Note [Counting together].
    """
    written = tuple([a.index for a in capture.arguments if 0 <= a.version < _torch.version_of(a.replica)])
    if not written:
        return (), ()
    kept = [t for stage in stages for t, _ in stage.counters]
    by = _torch.counted_by([a.replica for a in capture.arguments], kept)
    others = tuple([a.index for a, k in zip(capture.arguments, by, strict=True) if k is not None])
    if not set(others).difference(written) and (not others or len(written) == 1):
        return (), ()
    return written, tuple([k for k in others if k not in written])


def guards_of(capture: Capture, stage: Stage, node: Any, near: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where among what ``stage`` saves, and what it watches, is what its ``node`` keeps, behind ``near``."""
    try:
        kept = kept_by(capture, node, near)
    except RuntimeError:  # written since
        return (), ()
    found = _distinct(_torch.counted_by(kept, [t for t, _ in stage.counters]))
    counters = [stage.counters[k][1] for k in found]
    saved, watched = [tuple(c.index for c in counters if c.keeper is x) for x in (Keeper.SAVED, Keeper.WATCHED)]
    return saved, watched


def guard_derivative(
    capture: Capture, stage: Stage, seeds: Mapping[int, Tensor], results: Mapping[int, Tensor]
) -> None:
    """The same for a ``stage`` that attaches results of a backward, which has ``seeds`` for tangents."""
    (before, *_) = stage.before
    known = [(r, Counter(Keeper.RESULT, k)) for k, r in results.items()]
    known += [(t, Counter(Keeper.TANGENT, j)) for j, t in seeds.items()]
    known += before.counters
    known = [(t, counter) for t, counter in known if _torch.version_of(t) >= 0]
    saved_here = {v: n for n, v in enumerate(stage.saved)}
    unpacked: set[int] = set()
    for place, kept in enumerate(looked_at_behind(capture, stage)):
        for k in _distinct(_torch.counted_by(kept or (), [t for t, _ in known])):
            t, counter = known[k]
            n = saved_here.get(before.saved[counter.index]) if counter.keeper is Keeper.SAVED else None
            if n is not None and len(stage.attached) == 1:
                unpacked.add(n)
                stage.counters.append((t, Counter(Keeper.SAVED, n)))
            else:
                stage.counters.append((t, Counter(Keeper.WATCHED, len(stage.guards))))
                stage.guards.append(Guard(counter, place))
    stage.checked = [tuple(sorted(unpacked))] if unpacked else []


def _distinct(places: Iterable[int | None]) -> list[int]:
    return sorted({k for k in places if k is not None})
