"""Which ops a profile selects, and which tensors their statements may write."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import torch

from aotcheck.program import OpCall, evaluate
from aotcheck.program.ops.registry import Group, Kind, Op, Work, find, ops
from aotcheck.program.running.memory import address, tensors_of

from .chooser import Chooser
from .names import paths_named
from .profile import DTYPES, Profile, Training, Writes

__all__ = ["Selection", "mutates", "selection_of"]

_FAVOURED = 3
_CHANGING = frozenset({Group.METADATA, Group.SET, Group.STORAGE, Group.CONTAINER})
_TRAINING = frozenset({"Tensor.requires_grad_", "Tensor.requires_grad=", "Tensor.retain_grad", "Tensor.detach_"})


def mutates(op: Op) -> bool:
    """Whether an op changes one of its operands: data, metadata, storage, what a container holds or autograd knows."""
    statistics = any(param.kind is Kind.STATISTICS for param in op.params)
    changing = op.group in _CHANGING or op.path in _TRAINING or op.results == 0
    return op.writes or changing or statistics


class Selection:
    """The ops of a profile, by group, and what statements of them may write.

    Args:
        profile: the profile.
    """

    def __init__(self, profile: Profile) -> None:
        self._writes = profile.writes
        self._dtypes = profile.dtypes
        self._favoured = profile.favoured
        self.blocks = profile.blocks > 0
        left_out = frozenset(path for name in profile.without_ops for path in paths_named(name))
        named = None if profile.ops is None else frozenset(path for name in profile.ops for path in paths_named(name))
        self._left_out = left_out

        def selected(op: Op) -> bool:
            if op.path in left_out or (named is not None and op.path not in named) or op.group not in profile.groups:
                return False
            if profile.training is not Training.ANYTHING and op.path in _TRAINING:
                return False
            return profile.writes is not Writes.NOTHING or not (mutates(op) or op.undefined)

        every = tuple(ops())
        self.ops = tuple(op for op in every if selected(op))
        self._paths = None if len(self.ops) == len(every) else frozenset(op.path for op in self.ops)
        self.usual = profile.usage is not None
        self._usage = profile.usage
        self._by_usage: dict[int, tuple[tuple[Op, int], ...]] = {}
        self._of_group: dict[tuple[Group, bool], tuple[Op, ...]] = {}

    def of_group(self, group: Group, inexact: bool) -> tuple[Op, ...]:
        """The ops of a group, each as often as it is to be drawn; those that round only if ``inexact``."""
        key = (group, inexact)
        if key not in self._of_group:
            fitting = [op for op in self.ops if op.group is group and (inexact or op.work is Work.EXACT)]
            weighted = (op for op in fitting for _ in range(op.weight * (2 if op.work is Work.INEXACT else 1)))
            self._of_group[key] = tuple(weighted)
        return self._of_group[key]

    def _overloads(self, path: str, share: int) -> list[tuple[Op, int]]:
        """The overloads of a path that can be drawn, which divide its share."""
        fitting = [op for op in self.ops if op.path == path and op.group is not Group.OUT and op.weight]
        total = sum(op.weight for op in fitting)
        return [(op, max(1, share * op.weight // total)) for op in fitting]

    def by_usage(self, choose: Chooser, rank: int) -> Op:
        """An op, as often as it is used: what takes images alone so much more often where the batch has that rank."""
        if rank not in self._by_usage:
            shares = self._usage.ops if self._usage else ()
            pairs = (pair for path, share in shares for pair in self._overloads(path, share))
            self._by_usage[rank] = tuple((op, share * self._rarity(op.ndim[0], rank) // 100) for op, share in pairs)
        return choose.weighted(self._by_usage[rank])

    def _rarity(self, least: int, rank: int) -> int:
        """In percent, how many programs there are for each whose batch has at least as many dimensions."""
        if not self._usage or not 2 < least <= rank:
            return 100
        known = {int(name): share for name, share in self._usage.ranks if name in ("2", "3", "4")}
        return 100 * sum(known.values()) // sum(share for n, share in known.items() if n >= least)

    def times(self, group: Group) -> int:
        """How many times as often as it would be a group is drawn."""
        return _FAVOURED if group in self._favoured else 1

    @property
    def restricted(self) -> bool:
        """Whether some op is left out."""
        return self._paths is not None

    @property
    def only_rounds(self) -> bool:
        """Whether no op is exact."""
        return self.restricted and all(op.work is Work.INEXACT for op in self.ops)

    def allows(self, path: str, needed: bool = False) -> bool:
        """Whether a statement may call ``path``; one that another op needs may, unless the user named it."""
        return self._paths is None or path in self._paths or (needed and path not in self._left_out)

    # -- dtypes

    def dtypes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of some dtypes that are selected."""
        return names if self._dtypes == DTYPES else tuple(name for name in names if name in self._dtypes)

    def takes(self, value: Any) -> bool:
        """Whether all tensors in ``value`` have dtypes that are selected."""
        if self._dtypes == DTYPES:
            return True
        return all(str(t.dtype).removeprefix("torch.") in self._dtypes for t in tensors_of(value))

    # -- writes

    @property
    def writes_all(self) -> bool:
        """Whether any tensor may be written."""
        return self._writes is Writes.ANYTHING

    def may_write(self, call: OpCall, env: dict[str, Any], given: Collection[torch.Tensor]) -> bool:
        """Whether a call changes nothing that it may not change.

        Args:
            call: the call.
            env: what names stand for.
            given: every tensor that the caller has.
        """
        if self.writes_all:
            return True
        written = list(_written(call, env))
        if self._writes is Writes.NOTHING:
            return not written
        return all(isinstance(value, torch.Tensor) and self.is_local(value, data, given) for value, data in written)

    def is_local(self, t: torch.Tensor, data: bool, given: Collection[torch.Tensor]) -> bool:
        """Whether ``t`` was made inside, and, where its ``data`` is meant, its memory was too."""
        if any(t is own for own in given):
            return False
        places = {address(inner) for own in given for inner in tensors_of(own)}
        return not data or all(address(inner) and address(inner) not in places for inner in tensors_of(t))


def _written(call: OpCall, env: dict[str, Any]) -> list[tuple[Any, bool]]:
    """What a call changes: tensors or containers, and whether their data or only their metadata changes."""
    keywords = dict(call.kwargs)
    if "out" in keywords:
        return [(evaluate(keywords["out"], env), True)]
    overloads = [op for op in find(call.path) if op.group is not Group.OUT and mutates(op)]
    in_place = [op for op in overloads if not any(p.keyword == "inplace" for p in op.params) or "inplace" in keywords]
    if not in_place:
        return []
    if call.path == "setitem" and isinstance(evaluate(call.args[0], env), torch.Tensor):
        in_place = [op for op in in_place if op.group is not Group.CONTAINER]
    data = not all(op.group is Group.METADATA and not op.undefined for op in in_place)
    if call.path == "torch.utils.swap_tensors":
        return [(evaluate(arg, env), False) for arg in call.args]
    first = evaluate(call.args[0], env)
    changed = list(first) if in_place[0].group is Group.FOREACH else [first]
    statistics = {i for op in in_place for i, p in enumerate(op.params) if p.kind is Kind.STATISTICS}
    if statistics:
        changed = [evaluate(call.args[i], env) for i in sorted(statistics)]
    return [(value, data) for value in changed]


def selection_of(profile: Profile) -> Selection:
    """The selection of a profile; one object for equal profiles while no op is registered."""
    return _selection(profile, sum(1 for _ in ops()))


@lru_cache(maxsize=64)
def _selection(profile: Profile, registered: int) -> Selection:
    return Selection(profile)
