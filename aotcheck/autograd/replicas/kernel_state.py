"""What one trace knows of its replicas and no dispatch shows: what was detached, moved, written under grad, hooked."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.places import Left, Move
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import geometry_of

if TYPE_CHECKING:
    from aotcheck.autograd.replicas.hooks import NotedHook
    from aotcheck.autograd.replicas.replicas import Replica


@dataclasses.dataclass(frozen=True)
class WriteUnderGrad:
    """An op that wrote a tensor while autograd recorded, and the tensors it was given, what it wrote first.

    ``kind`` is equal for ops whose nodes in autograd's graph keep the same operands; ``time`` is the moment.
    """

    kind: Any
    operands: tuple[Tensor, ...]
    time: int

    @property
    def writes(self) -> int:
        """How many of the operands, the first ones, it wrote."""
        first = self.kind[1][0]
        return len(first) if type(first) is tuple else 1

    def after_swap(self, a: Tensor, b: Tensor) -> WriteUnderGrad:
        """The same once the objects ``a`` and ``b`` have exchanged the tensors that they are."""
        operands = tuple([b if t is a else a if t is b else t for t in self.operands])
        return dataclasses.replace(self, operands=operands)


def exchange(known: dict[int, Any], a: int, b: int) -> None:
    """Exchange two keys of a dictionary."""
    values = {key: known.pop(other) for key, other in ((a, b), (b, a)) if other in known}
    known.update(values)


def _kind_of_operands(args: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            a.requires_grad if isinstance(a, Tensor) else _kind_of_operands(a) if type(a) in (list, tuple) else type(a)
            for a in args
        ]
    )


class Watcher:
    """Is told what happens to replicas that no dispatch shows, and asked what they do not know; here by nobody's."""

    def on_swap(self, a: Tensor, b: Tensor) -> None:
        """Two replicas exchanged the tensors that they are."""

    def use_count(self, t: Tensor) -> int:
        """How many hold ``t``, as eager's ``swap_tensors`` would count."""
        return _torch.use_count(t)

    def counts_ahead(self, t: Tensor) -> int:
        """How many more versions ``t`` counted than the tensor that it stands for when the function began."""
        return 0

    def on_poison(self, t: Tensor) -> None:
        """``swap_tensors`` has poisoned the accumulator of gradients of ``t``."""

    def on_squeeze(self, t: Tensor, op: Any, dims: tuple[Any, ...]) -> None:
        """``t``, which is conjugated or negated lazily, is about to be squeezed in place by ``op``."""

    def on_gradient(self, t: Tensor) -> None:
        """``t.grad`` is read or written."""

    def on_view_asked(self, t: Tensor) -> None:
        """The function asks whether ``t`` is a view, or of what."""

    def on_version_asked(self, t: Tensor) -> None:
        """The function asks for the version of ``t``."""

    def on_custom_write(self, t: Tensor) -> None:
        """A custom Function marked ``t`` as written, which gives it a history and takes its gradient."""

    def keeps_gradient(self, t: Tensor) -> bool:
        """Whether the caller wants ``t`` to keep its gradient, as far as is known, and nobody wrote it."""
        return False

    def on_backward(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """A backward is about to be called; what is to be called in place of it, if anything."""
        return None

    def on_stop(self, node: Any, grads: Sequence[Tensor | None]) -> None:
        """The traced backward, or one inside it, comes to ``node``, where it ends, with ``grads``."""

    def after_backward(self) -> None:
        """A backward that accumulates is over."""

    def goes_on_at(self, t: Tensor, node: Any) -> bool:
        """Whether the backward that runs goes on in the caller's graph at ``t``, which has the history ``node``.

        And comes there by other ways too.
        """
        return False


NOBODY = Watcher()


class KernelState:
    """Whether this trace is inside a meta kernel right now, and what no dispatch shows.

    One per trace, shared by its replicas.
    """

    __slots__ = (
        "_asked",
        "_clock",
        "_ran",
        "alive",
        "arrived",
        "arrived_free",
        "beyond",
        "detached",
        "function_runs",
        "hooks",
        "inner",
        "inside",
        "left",
        "looked_at",
        "looked_up",
        "module_hooks",
        "moved",
        "moved_before",
        "packed",
        "required",
        "required_besides",
        "reshaped_leaves",
        "retained",
        "retained_at",
        "sizes_matter",
        "stand_for_views",
        "stopped",
        "swapped",
        "tensors_are_keys",
        "watcher",
        "wrappers",
        "writes",
        "writes_of_several",
    )

    def __init__(self) -> None:
        self.inside = False
        self.alive: list[Replica] = []  # every replica of the trace; weak references would keep them from being swapped
        self.wrappers: list[Tensor] = []  # those among the arguments and, by the end, the results
        # by id of what stands for the caller's graph behind a root: what a backward inside last brought there
        self.arrived: dict[int, Tensor | None] = {}
        self.arrived_free: dict[int, bool] = {}  # and whether nobody in the program held that
        self._asked: set[weakref.ref[Any]] = set()  # custom Functions, as nodes, that asked for what they saved
        self._ran: set[weakref.ref[Any]] = set()  # and those whose backwards ran
        self.looked_at: dict[int, Tensor] = {}  # what is no argument and was asked for its geometry, by id
        self.swapped: list[Tensor] = []  # replicas that were swapped, in pairs
        self.watcher = NOBODY
        self.stand_for_views: dict[int, Any] = {}  # by id of a replica of a view that is none itself: how that was made
        self.detached: dict[int, int] = {}  # id of a replica -> when detach_ was last called on it
        self.required: dict[int, int] = {}  # and requires_grad_
        # and that of a view which required grad already, so that it shows only once the view has lost its history
        self.required_besides: dict[int, int] = {}
        self.moved: dict[int, int] = {}  # and when it last came to lie elsewhere
        self.left: dict[int, list[Left]] = {}  # and which places it left
        self.moved_before: dict[int, int] = {}  # and before which node of autograd, by its number, that was
        # by the number that autograd had then for the next node; of a custom Function its own node
        self.writes: dict[int, Any] = {}
        self.writes_of_several: set[int] = set()  # the numbers of those that may write several tensors
        # by the number of a node of autograd: what the hooks that the caller has around the call packed for it
        self.packed: dict[int, list[Tensor]] = {}
        self.retained: dict[int, Any] = {}  # id of a replica -> the history for which retain_grad was last called on it
        self.retained_at: dict[int, int] = {}  # and when that was
        self.reshaped_leaves: list[Tensor] = []  # that just got another shape: see Note [Accumulators that end]
        self.sizes_matter = False  # whether what the program does may depend on the sizes of storages
        self.tensors_are_keys = False  # whether there are dictionaries or sets that have the caller's tensors in them
        self.looked_up = False  # and whether a replica may have been looked up in one
        self.inner = Watcher()  # is told of what a backward that is traced does
        self.function_runs = False  # whether what runs is the user's function, not a backward of it
        self.stopped: Mapping[Any, None] = {}  # nodes at which the backward that is being traced ends
        self.beyond: set[Any] = set()  # and those beyond: see Note [Hooks beyond an end]
        self.hooks: list[NotedHook] = []  # what the function registered, in order
        # by node that a module with hooks for its backward has, what is common to the nodes of that
        self.module_hooks: MutableMapping[Any, Any] = {}  # which are not kept
        self._clock = 0

    def now(self) -> int:
        """A moment later than every moment before."""
        self._clock += 1
        return self._clock

    def note_write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``func`` is about to write its first argument, a tensor or a list, autograd having made the nodes."""
        packed = _torch.has_saved_tensor_hooks()  # of what hooks packed a node does not look whether it was written
        kind = func, _kind_of_operands(args), tuple(kwargs), _kind_of_operands(kwargs.values()), packed
        write = WriteUnderGrad(kind, tuple(tensors_in(args, kwargs)), self.now())
        self._note(write, isinstance(args[0], (list, tuple)))

    def note_custom_write(self, node: Any) -> None:
        """The custom Function whose node this is has said what it wrote."""
        self._note(node, len(node.dirty_tensors) > 1, _torch.sequence_number(node) + 1)
        for t in node.dirty_tensors if node.next_functions else ():  # else it is no history
            self.watcher.on_custom_write(t)

    def note_module_hook(self, hook: Any, node: Any) -> None:
        """A module that is called has a ``node`` at which hooks run: see Note [Hooks of modules]."""
        if not self.module_hooks:
            self.module_hooks = weakref.WeakKeyDictionary()
        self.module_hooks[node] = hook

    def note_asked(self, node: Any) -> None:
        """The custom Function whose node this is has asked for what it saved."""
        self._asked.add(weakref.ref(node))

    def note_ran(self, node: Any) -> None:
        """Its backward has run."""
        self._ran.add(weakref.ref(node))

    def has_asked(self, node: Any) -> bool:
        """Whether it has asked."""
        return bool(self._asked) and weakref.ref(node) in self._asked

    def has_run(self, node: Any) -> bool:
        """Whether it has run."""
        return bool(self._ran) and weakref.ref(node) in self._ran

    def _note(self, write: Any, several: bool, number: int | None = None) -> None:
        number = _torch.autograd_sequence_number() if number is None else number
        self.writes[number] = write
        if several:
            self.writes_of_several.add(number)

    def write_of(self, node: Any) -> Any:
        """Which of ``writes`` it was of which ``node`` is the history that the base of a view has; None if none.

        Between the histories that one op gives to several bases come those of their views.
        """
        number = _torch.sequence_number(node)
        first = max((n for n in self.writes_of_several if n <= number), default=number)
        between = number not in self.writes and not any(first < n <= number for n in self.writes)
        return self.writes.get(first if between else number)

    def swap(self, a: Tensor, b: Tensor) -> None:
        """Two objects exchanged the tensors that they are: what is known by object is now known of the other one."""
        required = self.required, self.required_besides
        by_id: list[dict[int, Any]] = [self.detached, *required, self.moved, self.moved_before, self.left]
        for known in (*by_id, self.stand_for_views, self.retained, self.retained_at):
            exchange(known, id(a), id(b))
        for number, write in self.writes.items():
            if isinstance(write, WriteUnderGrad):
                self.writes[number] = write.after_swap(a, b)

    def creation_meta(self, t: Tensor) -> Any:
        """How the real tensor for the view ``t`` was made: as the view that its base stands for, if not otherwise."""
        how, base = _torch.creation_meta(t), _torch.base_of(t)
        return self.stand_for_views.get(id(base), how) if how == _torch.CreationMeta.DEFAULT else how

    def went_by_data(self, t: Tensor) -> bool:
        """Whether it was by ``.data =`` that ``t`` last came to lie elsewhere."""
        left = self.left.get(id(t), [])
        return bool(left) and left[-1].move is Move.DATA

    def lie_alike(self, t: Tensor, other: Tensor) -> bool:
        """Whether ``t`` has the very data of ``other``, so that nothing changes where it is given that."""
        there = [_torch.storage_address(_torch.storage_of(x)) for x in (t, other)]
        return (
            there[0] == there[1] and geometry_of(t) == geometry_of(other) and t.is_inference() == other.is_inference()
        )

    def note_move(self, t: Tensor, move: Move | None) -> None:
        """``t`` comes to lie elsewhere now; it stays where it is if there is no ``move``."""
        moment = self.moved[id(t)] = self.now()
        node = self.moved_before[id(t)] = _torch.autograd_sequence_number()
        if move is not None and getattr(t, "kernels", None) is self:  # a replica of this trace
            address = _torch.storage_address(_torch.storage_of(t))
            left = Left(moment, geometry_of(t), address, t.is_inference(), move, node)
            self.left.setdefault(id(t), []).append(left)

    def forget_moves_since(self, t: Tensor, moment: int) -> None:
        """What was noted of ``t`` after ``moment`` is how a kernel did what was noted then."""
        left = [x for x in self.left[id(t)] if x.time <= moment]
        self.left[id(t)], self.moved[id(t)], self.moved_before[id(t)] = left, left[-1].time, left[-1].node
