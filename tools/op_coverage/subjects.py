"""What is run: the samples that torch's databases of ops and modules hold, a few of each, the odd ones among them."""

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

DTYPES = {"float32": torch.float32, "float64": torch.float64, "complex128": torch.complex128}

FIRST = 3
"""How many samples of each op are taken as they come."""

LOOKED_AT = 300
"""How many samples of each op are looked at for odd ones."""

DERIVATIVES = 3
"""How many derivatives are taken, one of another, of ops that have second ones."""

DIFFERENTIATED = 2
"""How many samples of each op are differentiated more than once: graphs of third derivatives are large."""

SMALL = 4000
"""How many elements such a sample holds at most."""


class Kind(enum.Enum):
    """Which database a subject is from, and how it is used."""

    OP = "op"
    IN_PLACE = "in-place"
    DERIVATIVES = "op, three derivatives"
    TRAINING = "module training"
    EVALUATION = "module evaluation"


@dataclasses.dataclass(frozen=True)
class Subject:
    """One op or module with one dtype."""

    kind: Kind
    name: str
    dtype: str

    @property
    def key(self) -> str:
        """How results and expectations name it."""
        return f"{self.kind.value}: {self.name} {self.dtype}"


@dataclasses.dataclass
class Sample:
    """A function or module to run, and arguments for two calls of it, of the same geometry but with other values.

    ``finish`` makes of the results, outside of what is compiled, what gradients are taken of, ``derivatives`` times.
    """

    function: Callable[..., Any]
    calls: tuple[list[Tensor], list[Tensor]]
    finish: Callable[[Any], Any]
    undefined: bool = False  # whether the results' values are those of unwritten memory
    derivatives: int = 1


@functools.cache
def _ops() -> dict[str, Any]:
    from torch.testing._internal import common_methods_invocations as database

    # Random ops would be seeded inside of what is compiled; how they draw is what we want to know.
    vars(database)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {op.formatted_name: op for op in database.op_db}


@functools.cache
def _modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.module_cls.__name__: info for info in module_db}


def load() -> None:
    """Import the databases, which takes seconds."""
    _ops(), _modules()


def subjects(dtypes: Sequence[str]) -> Iterator[Subject]:
    """Everything there is, op by op."""
    for name, op in _ops().items():
        for dtype in dtypes:
            if DTYPES[dtype] in op.supported_dtypes("cpu"):
                yield Subject(Kind.OP, name, dtype)
                if op.inplace_variant is not None:
                    yield Subject(Kind.IN_PLACE, name, dtype)
                if _is_differentiated_twice(op, dtype):
                    yield Subject(Kind.DERIVATIVES, name, dtype)
    for name, info in _modules().items():
        for dtype in dtypes:
            if DTYPES[dtype] in info.dtypes:
                yield Subject(Kind.TRAINING, name, dtype)
                yield Subject(Kind.EVALUATION, name, dtype)


def samples(subject: Subject, most: int) -> Iterator[Sample]:
    """At most ``most`` samples of ``subject``."""
    match subject.kind:
        case Kind.OP | Kind.IN_PLACE:
            yield from _op_samples(subject, most)
        case Kind.DERIVATIVES:
            small = (s for s in _op_samples(subject, most) if sum(t.numel() for t in s.calls[0]) <= SMALL)
            for sample in itertools.islice(small, DIFFERENTIATED):
                yield dataclasses.replace(sample, derivatives=DERIVATIVES)
        case Kind.TRAINING | Kind.EVALUATION:
            yield from _module_samples(subject, most)


# -- ops


def _is_differentiated_twice(op: Any, dtype: str) -> bool:
    """Where rounding does not show, and the database says that there is a second derivative."""
    if dtype == "float32" or not (op.supports_autograd and op.supports_gradgrad):
        return False
    return DTYPES[dtype] in op.supported_backward_dtypes("cpu")


def _op_samples(subject: Subject, most: int) -> Iterator[Sample]:
    op, dtype = _ops()[subject.name], DTYPES[subject.dtype]
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")

    def draw(seed: int) -> Iterator[Any]:
        torch.manual_seed(seed)
        return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), LOOKED_AT)

    in_place = subject.kind is Kind.IN_PLACE
    function = op.inplace_variant if in_place else op.op
    drawn = [s for s in draw(1) if not (in_place and s.broadcasts_input)]
    again = [s for s in draw(2) if not (in_place and s.broadcasts_input)]
    for k in _chosen(drawn, most):
        sample = drawn[k]
        leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        call = _Call(function, leaves, spec, in_place)
        others = tensors
        if k < len(again):
            other = again[k]
            other_leaves, other_spec = pytree.tree_flatten((other.input, tuple(other.args), dict(other.kwargs)))
            found = [x for x in other_leaves if isinstance(x, Tensor)]
            if other_spec == spec and _alike(leaves, other_leaves):
                others = found
        undefined = "empty" in subject.name
        yield Sample(call, (tensors, others), sample.output_process_fn_grad or (lambda out: out), undefined)


class _Call:
    """The op as a function of tensors alone."""

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any], spec: Any, in_place: bool) -> None:
        self.function = function
        self.leaves = leaves
        self.spec = spec
        self.in_place = in_place

    def __call__(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, Tensor) else x for x in self.leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        if self.in_place:  # a leaf that requires grad cannot be written
            first = pytree.tree_map_only(Tensor, lambda t: t.clone() if t.requires_grad else t, first)
        return self.function(first, *args, **kwargs)


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two samples differ in the values of their tensors alone."""
    for x, y in zip(a, b, strict=True):
        if isinstance(x, Tensor):
            if not isinstance(y, Tensor) or _geometry(x) != _geometry(y):
                return False
        elif not isinstance(x, type(y)) or (not callable(x) and str(x) != str(y)):
            return False
    return True


def _geometry(t: Tensor) -> Any:
    if t.layout is not torch.strided:
        return (t.layout, tuple(t.shape), t.dtype, "sparse")
    return (tuple(t.shape), t.stride(), t.dtype, t.storage_offset(), t.requires_grad, t.is_conj(), t.is_neg())


def _chosen(drawn: Sequence[Any], most: int) -> list[int]:
    """The first few, and then those that are like none before: in dimensions, empty, strided, by other arguments."""
    chosen: list[int] = []
    seen: set[Any] = set()
    for k, sample in enumerate(drawn):
        traits = _traits(sample)
        if (k < FIRST or traits - seen) and len(chosen) < most:
            chosen.append(k)
            seen |= traits
    return chosen


def _traits(sample: Any) -> set[Any]:
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    traits: set[Any] = {("structure", str(spec))}
    for k, x in enumerate(leaves):
        if isinstance(x, Tensor):
            traits.add((k, x.dim(), x.dtype))
            if x.layout is not torch.strided:
                traits.add((k, x.layout))
                continue
            traits.add(("empty", x.numel() == 0))
            traits.add(("contiguous", x.is_contiguous()))
        elif isinstance(x, (bool, str)) or x is None:
            traits.add((k, x))
        else:
            traits.add((k, type(x)))
    return traits


# -- modules


def _module_samples(subject: Subject, most: int) -> Iterator[Sample]:
    info, dtype = _modules()[subject.name], DTYPES[subject.dtype]
    training = subject.kind is Kind.TRAINING

    def draw(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(
            itertools.islice(
                info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training),
                LOOKED_AT,
            )
        )

    drawn, again = draw(1), draw(2)
    for k, (one, two) in enumerate(zip(drawn, again, strict=True)):
        if one.forward_input is None or k >= most:
            continue
        torch.manual_seed(k)
        build = one.constructor_input
        module = info.module_cls(*build.args, **build.kwargs).to(dtype).train(training)
        leaves, spec = pytree.tree_flatten((tuple(one.forward_input.args), dict(one.forward_input.kwargs)))
        others = pytree.tree_leaves((tuple(two.forward_input.args), dict(two.forward_input.kwargs)))
        if info.is_lazy:
            args, kwargs = pytree.tree_unflatten(leaves, spec)
            module(*args, **kwargs)
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        same = [x for x in others if isinstance(x, Tensor)] if _alike(leaves, others) else tensors
        yield Sample(ModuleCall(module, leaves, spec), (tensors, same), lambda out: out)


class ModuleCall:
    """A module, and how tensors become the arguments of its forward."""

    def __init__(self, module: torch.nn.Module, leaves: Sequence[Any], spec: Any) -> None:
        self.module = module
        self.leaves = leaves
        self.spec = spec

    def __call__(self, *tensors: Tensor) -> Any:
        """What the module gives for these tensors."""
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(x, Tensor) else x for x in self.leaves], self.spec
        )
        return self.module(*args, **kwargs)
