"""What a specialization takes, does and gives: descriptors of inputs, effects on them, and how results are made."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotcheck.autograd2.ir.meta import Geometry, TensorMeta
from aotcheck.autograd2.ir.size import Size
from aotcheck.autograd2.ir.structure import Const, Structure


@dataclass(frozen=True)
class Named:
    """A tensor that the user has a name for.

    Args:
        name: of an argument its path, as ``args[0]['x']``; of a tensor in a closure, a default or a global its own; of
            a module's its qualified name.
        kind: ``parameter``, or ``buffer`` of another attribute of a module; empty of what is no module's.
    """

    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".lstrip()


@dataclass(frozen=True)
class GradOf:
    """The ``.grad`` of a leaf."""

    of: Descriptor

    def __str__(self) -> str:
        return f"the .grad of {self.of}"


@dataclass(frozen=True)
class BaseOf:
    """The tensor of which another input is a view, and which is no argument itself."""

    of: Descriptor

    def __str__(self) -> str:
        return f"the base of {self.of}"


Descriptor = Named | GradOf | BaseOf


@dataclass(frozen=True)
class Input:
    """A graph input: what it is, and how it looks."""

    descriptor: Descriptor
    meta: TensorMeta

    def __str__(self) -> str:
        return f"{self.descriptor}, {self.meta}"


@dataclass(frozen=True)
class Step:
    """One op of an alias chain: ``op(previous, *args, **kwargs)``, of several results the ``index``-th.

    Args:
        grad: whether grad mode is on.
        inference: whether inference mode is.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None
    grad: bool
    inference: bool = False

    def __str__(self) -> str:
        given = ["_", *map(str, self.args), *(f"{k}={v}" for k, v in self.kwargs.items())]
        item = "" if self.index is None else f"[{self.index}]"
        mode = "inference mode" if self.inference else f"{'enable' if self.grad else 'no'}_grad"
        return f"{self.op}({', '.join(given)}){item} under {mode}"


@dataclass(frozen=True)
class Given:
    """A tensor that is an input itself."""

    input: int

    def __str__(self) -> str:
        return f"a{self.input}"


@dataclass(frozen=True)
class Fresh:
    """The graph's result at ``index``."""

    index: int

    def __str__(self) -> str:
        return f"r{self.index}"


@dataclass(frozen=True)
class Alias:
    """What a chain of views makes of another tensor.

    Args:
        base: what it is made of: an input, a result of the graph, or a tensor of ``Signature.made``.
        steps: the ops, the first one first.
        geometry: in place of steps, where it lies on the base's storage; such an alias has no history.
        inference: whether what has a ``geometry`` is an inference tensor.
        early: whether it is made before its base is written, as in eager: autograd then takes it for a part of that.
        unmoved: whether it is made before its base moves.
        to: a tensor that lies where it does: it is its base, moved there.
    """

    base: Given | Fresh | Made
    steps: tuple[Step, ...] = ()
    geometry: Geometry | None = None
    inference: bool = False
    early: bool = False
    unmoved: bool = False
    to: Made | None = None

    def __str__(self) -> str:
        if self.geometry is not None:
            return f"{self.geometry} on the storage of {self.base}, without history"
        said = " then ".join([f"{self.base}", *map(str, self.steps)])
        said += f", before {self.base} moves" if self.unmoved else f" moved to {self.to}" if self.to else ""
        return f"{said}, before {self.base} is written" if self.early else said


@dataclass(frozen=True)
class MadeLeaf:
    """What the function made a leaf.

    Args:
        of: how it is made but for that.
        requires_grad: whether it requires grad.
        parameter: whether it is a ``Parameter``.
    """

    of: Fresh | Alias
    requires_grad: bool
    parameter: bool

    def __str__(self) -> str:
        kind = "a Parameter" if self.parameter else "a leaf"
        return f"{self.of}, {kind} that {'requires' if self.requires_grad else 'does not require'} grad"


@dataclass(frozen=True)
class Made:
    """The tensor at that position among ``Signature.made``."""

    index: int

    def __str__(self) -> str:
        return f"m{self.index}"


@dataclass(frozen=True)
class Mutated:
    """An input, with the history that it has once the call wrote it."""

    input: int

    def __str__(self) -> str:
        return f"a{self.input}"


@dataclass(frozen=True)
class Inner:
    """A tensor without memory that stands for a value between two components.

    Args:
        component: the one that has it among its tangents.
        place: where there.
    """

    component: int
    place: int

    def __str__(self) -> str:
        return f"i{self.component}_{self.place}"


End = Given | Fresh | Made | Mutated | Inner
"""What a component sends gradients to."""

How = Given | Fresh | Alias | MadeLeaf
"""How a tensor that a call gives is made."""


class Mutation(enum.Enum):
    """Who sees that an input's data was written."""

    DIFFERENTIABLE = "autograd records it"
    UNRECORDED = "autograd does not record it"
    HIDDEN = "neither autograd nor the version of the tensor tells"


@dataclass(frozen=True)
class Written:
    """The data of an input after the call.

    Args:
        input: which one.
        result: the graph's result that it holds.
        kind: who sees it.
        flat: whether the result is the whole storage in one dimension.
        versions: inputs whose version the write counts up besides; of a flat write, all that it does.
        on_storage: all inputs on that storage.
        by_view: whether eager wrote a view of it: the node of such a write runs once.
    """

    input: int
    result: int
    kind: Mutation
    flat: bool = False
    versions: tuple[int, ...] = ()
    on_storage: tuple[int, ...] = ()
    by_view: bool = False

    def __str__(self) -> str:
        whole = "the storage of " if self.flat else ""
        return f"written: {whole}a{self.input} = r{self.result}, {self.kind.value}"


@dataclass(frozen=True, eq=False)
class MetadataMutation:
    """What else changed of an input.

    Args:
        input: which one.
        to: a tensor that lies where it does now, or None if it did not move.
        counts: whether its version is counted up.
        late: whether it moves after what is computed of it gets its history.
        resets: whether autograd forgets where its gradients arrive, as it does after ``set_``.
        requires_grad: what it is now, or None if as before.
        nbytes: the new size of its storage, or None.
        reshapes: the ops that reshaped it in place, if it has a history of them; then nothing else changed.
    """

    input: int
    to: Made | None = None
    counts: bool = False
    late: bool = False
    resets: bool = False
    requires_grad: bool | None = None
    nbytes: int | None = None
    reshapes: tuple[Step, ...] = ()

    def __str__(self) -> str:
        said = [f"moved: a{self.input}"]
        said += [] if self.nbytes is None else [f"its storage has {self.nbytes} bytes"]
        said += [] if self.to is None else [f"lies where {self.to} does"]
        said += map(str, self.reshapes)
        said += [] if self.requires_grad is None else [f"requires_grad is {self.requires_grad}"]
        return ", ".join(said)


@dataclass(frozen=True, eq=False)
class Assign:
    """A place of the caller's Python state that every call sets.

    Args:
        table: which of the dicts, lists and cells that ``bind`` looks at, by position.
        key: the key in it, which may be a tensor; of a list, the whole list is set, and a cell has no key.
        value: what it is set to; None to take the key out.
    """

    table: int
    key: Structure
    value: Structure | None

    def said(self, table: str) -> str:
        """The assignment in words, of a table of that name."""
        where = table if isinstance(self.key, Const) and self.key.value is None else f"{table}[{self.key}]"
        return f"deleted: {where}" if self.value is None else f"assigned: {where} = {self.value}"


@dataclass(frozen=True)
class Effects:
    """What a call changes: its inputs, and the state of Python and autograd around it.

    Args:
        written: inputs whose data changes.
        moved: inputs whose geometry, storage or autograd state changes.
        assigned: places that every call sets.
        gradients: inputs, and leaves made inside, whose ``.grad`` is set, and to what.
        grad_mode: grad mode afterwards, if it is another.
    """

    written: tuple[Written, ...] = ()
    moved: tuple[MetadataMutation, ...] = ()
    assigned: tuple[Assign, ...] = ()
    gradients: tuple[tuple[Given | Made, Structure], ...] = ()
    grad_mode: bool | None = None


@dataclass(frozen=True)
class GraphResult:
    """How a result of the graph looks to the caller.

    Args:
        stride: its strides, where the graph may give it others.
        inference: whether it is an inference tensor; None where nobody sees that.
        view: whether the graph may give a view of one of its values.
    """

    stride: tuple[Size, ...] | None = None
    inference: bool | None = None
    view: bool = False


@dataclass(frozen=True)
class Signature:
    """All that a call does beside computing its graph's results.

    Args:
        inputs: the graph's inputs in order.
        made: tensors that results and assignments are made of, each once, in order.
        output: how the result is built.
        effects: what it changes.
        results: what the graph gives before saved tensors.
        shared: containers that the function made and put in several places; ``output`` and assignments look them up
            behind those of the caller's, and each is built after those that it holds.
    """

    inputs: tuple[Input, ...]
    made: tuple[How, ...]
    output: Structure
    effects: Effects
    results: tuple[GraphResult, ...]
    shared: tuple[Structure, ...]
