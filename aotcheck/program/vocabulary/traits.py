"""The traits of programs: one vocabulary, for coverage in pairs and for the features that programs must have.

A *trait* belongs to a facet: which ops ran, how the inputs are related, what was returned, what the caller did. Most
bugs of compilers need two things together (a view and a second call, an expanded cotangent and a write). So a campaign
counts its coverage in pairs of traits, as combinatorial testing does (Kuhn, Wallace and Gallo, *Software fault
interactions*, 2004). An eager dry run shows the traits, so an op that is never reached is no trait.

Two facets are not counted in pairs: what the source shows, and events that the other facets have in parts. Only the
features use these two (``features.py``, named sets of traits).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch

from aotcheck._torch import is_view
from aotcheck.program.called.objects import attributes
from aotcheck.program.data.model import (
    Around,
    Backward,
    Call,
    Context,
    Fill,
    GradMode,
    Graph,
    Hook,
    HookKind,
    Literal,
    Of,
    OpCall,
    Probe,
    Program,
    Step,
    Way,
    Write,
)
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.memory import extent_in_bytes, fits, holds_wrapper, tensors_of
from aotcheck.program.vocabulary import noticed

__all__ = ["EXCLUDED", "NAMES", "TRAITS", "Facet", "bits_of", "facet_of", "pairs", "traits_in"]


class Facet(StrEnum):
    """The aspect of a program that a trait describes."""

    OP = "op"
    INPUT = "input"
    ARGUMENT = "argument"
    DTYPE = "dtype"
    LAYOUT = "layout"
    OUTPUT = "output"
    CONTEXT = "context"
    STEP = "step"
    COTANGENT = "cotangent"
    CALL = "call"
    END = "end"
    SOURCE = "source"  # read off the program; like those of the next, not counted in pairs
    EVENT = "event"


NAMES: Mapping[Facet, tuple[str, ...]] = {
    Facet.OP: (*(group.value for group in Group if group is not Group.INDEX), "data", "swap"),
    Facet.INPUT: (
        "one",
        "apart",
        "same-object",
        "view",
        "no-view",
        "overlapping",
        "disjoint",
        "detached",
        "otherwise-read",
        "one-buffer",
        "freed",
        "inference",
        "leaf",
        "non-leaf",
        "untrained",
        "subclass",
    ),
    Facet.ARGUMENT: ("list", "tuple", "dict", "constant"),
    Facet.DTYPE: ("float32", "float64", "half", "complex", "integer", "bool"),
    Facet.LAYOUT: ("contiguous", "strided", "expanded", "offset", "empty", "scalar", "conj", "neg"),
    Facet.OUTPUT: (
        "fresh",
        "view-of-input",
        "input",
        "alias-of-output",
        "twice",
        "container-of-caller",
        "nested",
        "constant",
        "inference",
        "freed",
        "trained",
        "strided",
    ),
    Facet.CONTEXT: (
        "block-no-grad",
        "block-enable-grad",
        "block-inference",
        "block-autocast",
        "call-no-grad",
        "call-inference",
        "call-autocast",
        "call-anomaly",
        "call-saved-tensors",
        "backward-no-grad",
        "backward-anomaly",
        "backward-autocast",
    ),
    Facet.STEP: (
        "backward",
        "grad",
        "grad-of-used",
        "of-results",
        "of-penalty",
        "of-gradients",
        "several",
        "retained",
        "created",
        "created-freed",
        "chosen-inputs",
        "interleaved",
        *(f"hook-{kind.value}" for kind in HookKind),
        "hook-before",
        "probe-output",
        "probe-input",
        "probe-gradient",
        "probe-grad",
        "probe-trained",
        "write-before-backward",
    ),
    Facet.COTANGENT: tuple(fill.value for fill in Fill),
    Facet.CALL: (
        "same-arguments",
        "other-values",
        "other-grad",
        "other-aliasing",
        "other-strides",
        "other-shape",
        "other-mode",
        "other-constant",
        "third",
    ),
    Facet.END: ("mutated", "metadata-changed", "refused", "backward-refused"),
    Facet.SOURCE: (
        "set-or-resize",
        "uses-rng",
        "inexact",
        "may-be-undefined",
        "grad-mode-block",
        "data-assigned",
        "swapped",
        "storage-resized",
        "custom-function",
        "autograd-inside",
        "module-called",
        "inference-block",
        "inference-call",
        "subclass",
        "complex-number",
    ),
    Facet.EVENT: (
        "inputs-share-storage",
        "returns-alias",
        "returns-input",  # "output:input" also sees those that a wrapper or an object holds
        "second-call-other-key",
        "third-derivative",
        "hook",
        "context-around-call",
        "context-around-backward",
        "container-written",
        "out-resized",
        "expanded-input",
        "foreach-twice",
        "foreach-alias",
        "expanded-write",
        "duplicate-indices",
        "beyond-the-view",
    ),
}
"""Every trait, by facet."""

COUNTED = tuple(facet for facet in Facet if facet not in (Facet.SOURCE, Facet.EVENT))

TRAITS: tuple[str, ...] = tuple(f"{facet.value}:{name}" for facet in COUNTED for name in NAMES[facet])
"""Every trait that is counted in pairs, as ``facet:name``; the position of each is its bit."""

_PLACE = {trait: i for i, trait in enumerate(TRAITS)}


def facet_of(trait: str) -> Facet:
    """The facet that a trait belongs to."""
    return Facet(trait.split(":")[0])


def bits_of(traits: Iterable[str]) -> int:
    """Those of the traits that are counted in pairs, as bits of a number."""
    found = 0
    for trait in traits:
        if facet_of(trait) in COUNTED:
            found |= 1 << _PLACE[trait]
    return found


def traits_in(bits: int) -> tuple[int, ...]:
    """The bit positions of the traits in such a number."""
    return tuple(i for i in range(len(TRAITS)) if bits >> i & 1)


# -- pairs that cannot be


def _of(facet: Facet, *names: str) -> frozenset[str]:
    return frozenset(f"{facet.value}:{name}" for name in names)


def pairs() -> Iterator[tuple[int, int]]:
    """The bit positions of every two traits that one program can have."""
    for i, j in itertools.combinations(range(len(TRAITS)), 2):
        if not excluded(TRAITS[i], TRAITS[j]):
            yield i, j


def excluded(first: str, second: str) -> str:
    """Why no program can have both traits; empty if one can."""
    return next((why for one, other, why in EXCLUDED if _meet(first, second, one, other)), "")


def _meet(first: str, second: str, one: frozenset[str], other: frozenset[str]) -> bool:
    return (first in one and second in other) or (first in other and second in one)


EXCLUDED: Sequence[tuple[frozenset[str], frozenset[str], str]] = ()
"""Pairs of traits that no program can have, and why. None at present."""


# -- what is seen where


_OF_PATH = {"Tensor.data=": "op:data", "torch.utils.swap_tensors": "op:swap"}
_OF_CONTEXT = {
    Context.NO_GRAD: "context:block-no-grad",
    Context.ENABLE_GRAD: "context:block-enable-grad",
    Context.INFERENCE: "context:block-inference",
    Context.AUTOCAST: "context:block-autocast",
}


def of_statement(call: OpCall) -> str:
    """The trait of an op call that has run."""
    if any(keyword == "out" for keyword, _ in call.kwargs):
        return "op:out"
    return _OF_PATH.get(call.path) or f"op:{find(call.path)[0].group.value}"


def of_block(context: Context) -> str:
    """The trait of a block whose body has run."""
    return _OF_CONTEXT[context]


_CLASSES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "half", torch.bfloat16: "half"}


def _dtype(t: torch.Tensor) -> str:
    if t.dtype.is_complex:
        return "complex"
    return _CLASSES.get(t.dtype) or ("bool" if t.dtype is torch.bool else "integer")


def _layout(t: torch.Tensor) -> Iterator[str]:
    if t.is_conj():
        yield "conj"
    if t.is_neg():
        yield "neg"
    if t.storage_offset():
        yield "offset"
    if not t.numel():
        yield "empty"
    elif not t.dim():
        yield "scalar"
    elif noticed.is_expanded(t):
        yield "expanded"
    else:
        yield "contiguous" if t.is_contiguous() else "strided"


def _relations(given: Sequence[torch.Tensor]) -> Iterator[str]:
    distinct = list({id(t): t for t in given}.values())
    if len(distinct) < len(given):
        yield "same-object"
    related = [(t, u) for t, u in itertools.combinations(distinct, 2) if t.untyped_storage() is u.untyped_storage()]
    if not related:
        yield "apart" if len(distinct) > 1 else "one"
    for t, u in related:
        yield "view" if is_view(t) or is_view(u) else "no-view"
        (first, last), (low, high) = ((int(v.storage_offset()) * v.itemsize, extent_in_bytes(v)) for v in (t, u))
        yield "overlapping" if max(first, low) < min(last, high) else "disjoint"
        if t.requires_grad != u.requires_grad:
            yield "detached"


def of_inputs(args: tuple[Any, ...], named: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """The traits of a call's arguments."""
    given = list(tensors_of(args))
    yield from noticed.around(named)
    yield from (f"input:{relation}" for relation in _relations(given))
    if any(map(holds_wrapper, args)):
        yield "input:subclass"
    for t in given:
        yield "input:untrained" if not t.requires_grad else f"input:{'leaf' if noticed.is_leaf(t) else 'non-leaf'}"
        yield f"dtype:{_dtype(t)}"
        yield from (f"layout:{layout}" for layout in _layout(t))
    for arg in args:
        if isinstance(arg, list | tuple | dict):
            yield f"argument:{type(arg).__name__}"
        elif not isinstance(arg, torch.Tensor) and attributes(arg) is arg:
            yield "argument:constant"


def of_result(result: Any, args: tuple[Any, ...]) -> Iterator[str]:
    """The traits of what a call returned."""
    given, found = list(tensors_of(args)), list(tensors_of(result))
    yield from noticed.when_returned(result, args)
    for i, t in enumerate(found):
        storage = t.untyped_storage()
        if any(t is u for u in given):
            yield "output:input"
        elif any(u.untyped_storage() is storage for u in given):
            yield "output:view-of-input"
        elif any(u.untyped_storage() is storage and u is not t for u in found[:i]):
            yield "output:alias-of-output"
        else:
            yield "output:fresh"
            if fits(t) and not t.is_contiguous():
                yield "output:strided"
        if t.requires_grad:
            yield "output:trained"
    for item in result if isinstance(result, tuple) else (result,):
        if isinstance(item, list | tuple | dict):
            yield "output:nested"
        elif not isinstance(item, torch.Tensor):
            yield "output:constant"


_MODES = {GradMode.NO_GRAD: "context:call-no-grad", GradMode.INFERENCE: "context:call-inference"}
_AROUND_CALL = {
    Around.AUTOCAST: "context:call-autocast",
    Around.ANOMALY: "context:call-anomaly",
    Around.SAVED_TENSORS: "context:call-saved-tensors",
}
_AROUND_BACKWARD = {
    Around.NO_GRAD: "context:backward-no-grad",
    Around.ANOMALY: "context:backward-anomaly",
    Around.AUTOCAST: "context:backward-autocast",
}


def of_call(program: Program, index: int) -> Iterator[str]:
    """The traits of the modes around a call, and of how many there are."""
    call = program.calls[index]
    if call.grad_mode in _MODES:
        yield _MODES[call.grad_mode]
    yield from (_AROUND_CALL[one] for one in call.around if one in _AROUND_CALL)
    if call.before:
        yield "step:hook-before"
    if index > 1:
        yield "call:third"
    if index and _around(call) != _around(program.calls[0]):
        yield "call:other-mode"
    if index and call.inputs is None:
        yield "call:same-arguments"
    elif index and _constants(call) != _constants(program.calls[0]):
        yield "call:other-constant"


def _constants(call: Call) -> object:
    return () if call.inputs is None else [arg for arg in call.inputs.args if isinstance(arg, Literal)]


def _around(call: Call) -> object:
    return call.grad_mode, call.around


Key = tuple[object, ...]


def key_of(args: tuple[Any, ...]) -> Key:
    """The facts of a call's arguments by which a further call's traits are found."""
    given = list(tensors_of(args))
    storages = [t.untyped_storage() for t in given]
    return (
        tuple(t.shape for t in given),
        tuple(t.stride() for t in given),
        tuple(t.requires_grad for t in given),
        tuple(next(i for i, s in enumerate(storages) if s is mine) for mine in storages),
        tuple(next(i for i, u in enumerate(given) if u is t) for t in given),
    )


def of_further_call(first: Key, key: Key) -> Iterator[str]:
    """The traits of a further call with arguments of its own, compared with the first call."""
    shape, stride, grad, sharing, identity = (a != b for a, b in zip(first, key, strict=True))
    if shape:
        yield "call:other-shape"
    elif stride:
        yield "call:other-strides"
    if grad:
        yield "call:other-grad"
    if sharing or identity:
        yield "call:other-aliasing"
    if not (shape or stride or grad or sharing or identity):
        yield "call:other-values"


_OF_STEP = {Of.RESULTS: "of-results", Of.PENALTY: "of-penalty", Of.GRADIENTS: "of-gradients"}
_WAYS = {Way.ACCUMULATE: "backward", Way.RETURN: "grad", Way.RETURN_USED: "grad-of-used"}
_GRAPHS = {Graph.RETAINED: "retained", Graph.CREATED: "created", Graph.CREATED_FREED: "created-freed"}


def of_backward(step: Backward, several: bool, written: bool) -> Iterator[str]:
    """The traits of a backward that had something to do."""
    yield f"step:{_WAYS[step.way]}"
    if step.of in _OF_STEP:
        yield f"step:{_OF_STEP[step.of]}"
    if step.graph in _GRAPHS:
        yield f"step:{_GRAPHS[step.graph]}"
    if several:
        yield "step:several"
    if step.inputs is not None:
        yield "step:chosen-inputs"
    if step.calls_ago:
        yield "step:interleaved"
    if written:
        yield "step:write-before-backward"
    yield from (f"cotangent:{c.fill.value}" for c in step.cotangents)
    yield from (_AROUND_BACKWARD[one] for one in step.around if one in _AROUND_BACKWARD)


def of_step(step: Step) -> Iterator[str]:
    """The traits of a probe or a hook."""
    match step:
        case Hook(kind=kind):
            yield f"step:hook-{kind.value}"
        case Probe(site=site, how=how):
            yield f"step:probe-{site.value}"
            if how is not Write.NO_GRAD:
                yield f"step:probe-{how.value}"
        case _:
            return
