"""The canonical form of a program, equal for programs that differ only in names and in the order of independent parts.

Note [Canonical programs]
    Two statements are independent if neither reads results of the other nor touches memory that the other writes. Their
    order is chance, as is the order of parameters and tensors. So each statement and each name gets a digest of what it
    depends on and of what depends on it, without names, numbers and sizes (like Weisfeiler and Lehman's colours of
    graphs). Of the statements that may come next, the one with the least op name comes first, then the one with the
    least digest. Parameters and tensors are numbered in the order of their use. Statements with equal digests have
    equal text in a skeleton, so their order does not matter.

    The check of independence is cautious: two names count as sharing memory if an op, a storage or a statement that
    builds inputs may make them share it. Statements that run a backward stay where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from aotcheck.minimize.edit import edited, inputs_of, read_by, renamed, renamed_call, with_inputs
from aotcheck.minimize.passes.ops import writes
from aotcheck.program import Block, Expr, Inputs, OpCall, Program, Statement, flat_calls, references
from aotcheck.program.ops.registry import Group, UnknownOpError, find

__all__ = ["canonical"]

MOST_ROUNDS = 8
"""How many statements away a use of a name may be and still distinguish the name from another."""

Said = Callable[[OpCall], str]
"""A statement as text with its names, without numbers, sizes and dtypes."""

_COMPUTES = frozenset(
    {
        Group.POINTWISE,
        Group.COMPARE,
        Group.REDUCE,
        Group.MATMUL,
        Group.NN,
        Group.GATHER,
        Group.SORT,
        Group.JOIN,
        Group.FACTORY,
        Group.RNG,
    }
)
"""Groups of ops whose results have memory of their own."""

_READS = frozenset({*_COMPUTES, Group.VIEW, Group.STRIDED_VIEW, Group.DTYPE_VIEW, Group.MULTI_VIEW, Group.CAST})
"""Groups of ops that do not change their operands, except ops whose names say so."""

_STAYS = frozenset({Group.AUTOGRAD, Group.OPTIMIZER})


@lru_cache(maxsize=4096)
def canonical(program: Program, said: Said) -> Program:
    """``program`` with its independent statements and its names in canonical order, see Note [Canonical programs].

    Args:
        program: any program.
        said: gives a statement's text; called with statements that bind nothing and have digests for names.
    """
    shared = _Shared(program.params)
    given = {at: _Given(inputs, said) for at, inputs in inputs_of(program)}
    labels = dict.fromkeys(program.params, "")
    for one in given.values():
        _share_arguments(shared, one.inputs, program.params)
        for param, arg in zip(program.params, one.inputs.args, strict=False):
            labels[param] += repr(renamed(arg, one.colours.of))
    colours = _Colours(program.body, labels, [program.outputs], said)
    body = _ordered(program.body, colours, shared)
    params = _by_use(body, program.outputs, program.params, colours)
    made = _targets(body, program.outputs)
    names = dict(zip(params, _numbered("x"), strict=False)) | dict(zip(made, _numbered("v"), strict=False))
    changed = {at: one.ordered(program.params, params) for at, one in given.items()}
    program = with_inputs(program, changed)
    outputs = renamed(program.outputs, names)
    return replace(program, params=tuple(names[p] for p in params), body=_renamed(body, names), outputs=outputs)


class _Given:
    """The inputs of a call, and the digests of their names."""

    def __init__(self, inputs: Inputs, said: Said) -> None:
        self.inputs = inputs
        self._peers = {t.name: [o.name for o in inputs.tensors if o.storage == t.storage] for t in inputs.tensors}
        labels = {t.name: f"{t.requires_grad} of {len(self._peers[t.name])}" for t in inputs.tensors}
        self.colours = _Colours(inputs.derived, labels, inputs.args, said, self._peers)

    def ordered(self, params: Sequence[str], order: Sequence[str]) -> Inputs:
        """The inputs with their arguments in ``order``, and tensors and storages numbered as the arguments use them."""
        args = self.inputs.args
        if len(args) == len(params):
            args = tuple(dict(zip(params, args, strict=True))[name] for name in order)
        shared = _Shared(self._peers)
        for named in self._peers.values():
            shared.unite(named)
        derived = _ordered(self.inputs.derived, self.colours, shared)
        used = _reached(derived, args)
        by_name = {t.name: t for t in self.inputs.tensors}
        tensors = sorted(by_name, key=lambda n: (used.index(n) if n in used else len(used), self.colours.of[n]))
        names = dict(zip((*tensors, *_targets(derived, *args)), _numbered("a"), strict=False))
        stored = dict.fromkeys((*(by_name[n].storage for n in tensors), *(s.name for s in self.inputs.storages)))
        places = dict(zip(stored, _numbered("s"), strict=False))
        storages = {s.name: replace(s, name=places[s.name]) for s in self.inputs.storages}
        return Inputs(
            tuple(storages[name] for name in stored),
            tuple(replace(by_name[n], name=names[n], storage=places[by_name[n].storage]) for n in tensors),
            _renamed(derived, names),
            tuple(renamed(arg, names) for arg in args),
        )


# -- names


def _numbered(letter: str) -> Iterator[str]:
    count = 0
    while True:
        yield f"{letter}{count}"
        count += 1


def _renamed(body: tuple[Statement, ...], names: Mapping[str, str]) -> tuple[Statement, ...]:
    def change(_: int, call: OpCall) -> OpCall:
        target = call.target
        if isinstance(target, str):
            target = names.get(target, target)
        elif target is not None:
            target = tuple(names.get(name, name) for name in target)
        return replace(renamed_call(call, names), target=target)

    return edited(body, change)


def _reads(call: OpCall) -> Iterator[str]:
    for expr in (*call.args, *(value for _, value in call.kwargs)):
        yield from references(expr)


def _by_use(body: tuple[Statement, ...], outputs: Expr, names: Sequence[str], colours: _Colours) -> list[str]:
    """``names`` in the order in which they are read; those that nothing reads last."""
    read = [name for call in flat_calls(body) for name in _reads(call)]
    used = [name for name in dict.fromkeys((*read, *references(outputs))) if name in names]
    return used + sorted(set(names) - set(used), key=lambda n: (colours.of[n], names.index(n)))


def _targets(body: tuple[Statement, ...], *ends: Expr) -> list[str]:
    """What statements bind, in their order, those that something reads first."""
    calls = list(flat_calls(body))
    read = {name for call in calls for name in _reads(call)} | {name for end in ends for name in references(end)}
    made = [name for call in calls for name in call.targets]
    return sorted(made, key=lambda name: name not in read)  # stable


def _reached(derived: tuple[Statement, ...], args: Iterable[Expr]) -> list[str]:
    """The tensors that arguments are, or are made from, in the order of the arguments."""
    makers = {name: call for call in flat_calls(derived) for name in call.targets}
    found: dict[str, None] = {}

    def reach(name: str) -> None:
        if name in found:
            return
        found[name] = None
        for read in _reads(makers[name]) if name in makers else ():
            reach(read)

    for arg in args:
        for name in references(arg):
            reach(name)
    for call in flat_calls(derived):
        for name in _reads(call):
            reach(name)
    return list(found)


# -- digests


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


class _Colours:
    """Digests of the names of a body and of its statements, see Note [Canonical programs].

    Args:
        body: the statements.
        labels: what is known of each name that the body does not make.
        ends: what reads names after the body.
        said: how a statement is told.
        peers: names that belong together without an order.
    """

    def __init__(
        self,
        body: tuple[Statement, ...],
        labels: Mapping[str, str],
        ends: Sequence[Expr],
        said: Said,
        peers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._calls = [(call, within) for call, within in _within(body)]
        self._said, self._ends, self._peers = said, ends, peers or {}
        self.of: dict[str, str] = {name: _digest(label) for name, label in labels.items()}
        self.of |= {name: "" for call, _ in self._calls for name in call.targets}
        self.of_call: dict[int, str] = {}
        self._labels = dict(self.of)
        for _ in range(min(len(self._calls) + 2, MOST_ROUNDS)):
            self._round()

    def _round(self) -> None:
        before = dict(self.of)
        readers: dict[str, list[str]] = {name: [] for name in before}
        made: dict[str, str] = {}
        for call, within in self._calls:
            self.of_call[id(call)] = _digest(self._told(call, before), within)
            results = [before[name] for name in call.targets]
            made |= {name: f"{at} of {self.of_call[id(call)]}" for at, name in enumerate(call.targets)}
            for name in set(_reads(call)):
                told = self._told(call, {**before, name: "@"})
                readers[name].append(_digest(told, within, results))
        for expr in self._ends:
            for name in set(references(expr)):
                readers[name].append(repr(renamed(expr, {**before, name: "@"})))
        for name in before:
            peers = sorted(before[peer] for peer in self._peers.get(name, ()) if peer != name)
            self.of[name] = _digest(self._labels[name], made.get(name), peers, sorted(readers[name]))
        for call, _ in self._calls:
            self.of_call[id(call)] = _digest(self.of_call[id(call)], [self.of[name] for name in call.targets])

    def _told(self, call: OpCall, names: Mapping[str, str]) -> str:
        return self._said(replace(renamed_call(call, names), target=None))

    def of_statement(self, statement: Statement) -> tuple[str, str]:
        """What statements are ordered by: in words without names, then a digest."""
        if isinstance(statement, Block):
            inner = sorted(self.of_call[id(call)] for call in flat_calls(statement.body))
            return statement.context.name, _digest(inner)
        nameless = self._told(statement, dict.fromkeys(self.of, ""))
        return nameless, self.of_call[id(statement)]


def _within(body: tuple[Statement, ...], contexts: tuple[str, ...] = ()) -> Iterator[tuple[OpCall, tuple[str, ...]]]:
    for statement in body:
        if isinstance(statement, Block):
            yield from _within(statement.body, (*contexts, statement.context.name))
        else:
            yield statement, contexts


# -- order


class _Shared:
    """Which names may have memory in common: sets of them that are united."""

    def __init__(self, names: Iterable[str]) -> None:
        self._above: dict[str, str] = {name: name for name in names}

    def of(self, name: str) -> str:
        """The one that stands for all that ``name`` may have memory in common with."""
        above = self._above.setdefault(name, name)
        return above if above == name else self.of(above)

    def unite(self, names: Iterable[str]) -> None:
        """These may have memory in common."""
        first, *rest = [*dict.fromkeys(map(self.of, names)), ""]
        for other in filter(None, rest):
            self._above[other] = first


def _share_arguments(shared: _Shared, inputs: Inputs, params: Sequence[str]) -> None:
    """Unite the parameters that some call gives one memory."""
    inner = _Shared(t.name for t in inputs.tensors)
    for t in inputs.tensors:
        inner.unite((f"storage {t.storage}", t.name))
    for call in flat_calls(inputs.derived):
        inner.unite((*call.targets, *_reads(call)))
    given: dict[str, list[str]] = {}
    for param, arg in zip(params, inputs.args, strict=False):
        for name in references(arg):
            given.setdefault(inner.of(name), []).append(param)
    for together in given.values():
        shared.unite(together)


@dataclass(frozen=True)
class _Effects:
    """What a statement needs and does; ``touched`` and ``written`` are sets of :class:`_Shared`."""

    reads: frozenset[str]
    makes: frozenset[str]
    touched: frozenset[str]
    written: frozenset[str]
    draws: bool
    stays: bool

    def before(self, later: _Effects) -> bool:
        """Whether ``later`` must stay behind this."""
        if self.stays or later.stays or (self.draws and later.draws) or later.reads & self.makes:
            return True
        return bool(self.written & later.touched or later.written & self.touched)


def _groups(call: OpCall) -> frozenset[Group]:
    try:
        return frozenset(op.group for op in find(call.path))
    except UnknownOpError:
        return _STAYS


def _changes(call: OpCall) -> bool:
    """Whether a statement may change anything about its operands."""
    if not _groups(call) <= {*_READS, Group.INDEX, Group.DETACH}:
        return True
    return writes(call) or _has_out(call) or call.path.endswith(("_", "="))


def _has_out(call: OpCall) -> bool:
    return any(keyword == "out" for keyword, _ in call.kwargs)


def _effects(statement: Statement, shared: _Shared) -> _Effects:
    calls = list(flat_calls((statement,)))
    makes = frozenset(name for call in calls for name in call.targets)
    touched, written = set[str](), set[str]()
    for call in calls:
        names = {shared.of(name) for name in (*_reads(call), *call.targets)}
        touched |= names
        if _changes(call):
            written |= names
    groups = frozenset[Group]().union(*map(_groups, calls))
    reads = frozenset(name for call in calls for name in read_by(call)) - makes
    draws = Group.RNG in groups or Group.MODULE in groups
    return _Effects(reads, makes, frozenset(touched), frozenset(written), draws, bool(groups & _STAYS))


def _ordered(body: tuple[Statement, ...], colours: _Colours, shared: _Shared) -> tuple[Statement, ...]:
    for call in flat_calls(body):
        if not _groups(call) <= _COMPUTES or _has_out(call):
            shared.unite((*_reads(call), *call.targets))
    return tuple(_sorted(body, colours, shared))


def _sorted(body: Collection[Statement], colours: _Colours, shared: _Shared) -> Iterator[Statement]:
    left = [(statement, _effects(statement, shared)) for statement in body]
    keys = {id(statement): colours.of_statement(statement) for statement in body}
    while left:
        ready = [at for at, (_, effects) in enumerate(left) if not any(other.before(effects) for _, other in left[:at])]
        chosen, _ = left.pop(min(ready, key=lambda at: (keys[id(left[at][0])], at)))
        if isinstance(chosen, Block):
            chosen = replace(chosen, body=tuple(_sorted(chosen.body, colours, shared)))
        yield chosen
