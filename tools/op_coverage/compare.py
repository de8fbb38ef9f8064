"""One sample, eager and compiled: what a caller sees of both, and the first difference in a few words."""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import aotcheck
from tools.op_coverage.subjects import ModuleCall, Sample

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-7, torch.complex128: 1e-7, torch.complex64: 2e-4}
FALLBACK = "error only when compiled"
ROUGH = 1e-2  # of what is computed in half precision


class Side(enum.Enum):
    """Whose AOT autograd it is, and whether sizes are symbols."""

    OURS = "ours"
    TORCHS = "torch's"
    SECOND = "second"
    SECOND_DYNAMIC = "second, symbolic"
    TORCHS_DYNAMIC = "torch's, symbolic"

    @property
    def dynamic(self) -> bool:
        """Whether sizes are symbols."""
        return self in (Side.SECOND_DYNAMIC, Side.TORCHS_DYNAMIC)


def compile_with(side: Side | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by ``side``, each graph run as it is; None for eager."""
    if side is None:
        return function
    entries, nop = _entries(side)
    options = {"dynamic": True} if side.dynamic else {}
    if isinstance(function, ModuleCall):
        return ModuleCall(entries.aot_module(function.module, nop, **options), function.leaves, function.spec)
    compiled: Callable[..., Any] = entries.aot_function(function, nop, **options)
    return compiled


def _entries(side: Side) -> tuple[Any, Any]:
    """The module with the entry points, and the compiler that runs graphs as they are."""
    match side:
        case Side.OURS:
            return aotcheck, None
        case Side.SECOND | Side.SECOND_DYNAMIC:
            return importlib.import_module("aotcheck.autograd2"), None
    torchs: Any = importlib.import_module("functorch.compile")
    return torchs, torchs.nop


@dataclasses.dataclass(frozen=True)
class Seen:
    """A tensor as it was when it was looked at, and what can be observed of it besides."""

    value: Tensor
    facts: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, t: Tensor) -> Seen:
        """``t`` now."""
        facts = {"type": type(t).__name__, "dtype": t.dtype, "layout": t.layout, "shape": tuple(t.shape)}
        facts["requires_grad"] = t.requires_grad
        with torch.no_grad():
            if t.layout is not torch.strided:
                return cls(
                    t.detach().to_dense().clone() if not t.is_nested else t.detach().clone(), tuple(facts.items())
                )
            facts["strides"] = tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1) if t.numel() else ()
            facts["lazy bits"] = (t.is_conj(), t.is_neg())
            return cls(t.detach().resolve_conj().resolve_neg().clone(), tuple(facts.items()))


@dataclasses.dataclass(frozen=True)
class Observed:
    """What one call and its backward gave, by name; tensors as ``Seen``."""

    things: tuple[tuple[str, Any], ...]

    def difference(self, other: Observed, unsure: frozenset[str] = frozenset()) -> str | None:
        """The first difference in words, None if there is none; no value of ``unsure`` is compared."""
        mine, theirs = dict(self.things), dict(other.things)
        if "error" in theirs and "error" not in mine:
            return f"raises {theirs['error']}"
        for name, a in mine.items():
            if name not in theirs:
                return f"{name} is missing"
            said = _difference(a, theirs[name], name in unsure)
            if said is not None:
                return f"{name}: {said}"
        surplus = [name for name in theirs if name not in mine]
        return f"{surplus[0]} is too much" if surplus else None

    def unlike(self, other: Observed) -> frozenset[str]:
        """The names of what is not to the bit the same."""
        theirs = dict(other.things)
        return frozenset(
            name
            for name, a in self.things
            if isinstance(a, Seen)
            and isinstance(b := theirs.get(name), Seen)
            and a.value.shape == b.value.shape
            and not _same(a.value, b.value)
        )


def _difference(a: Any, b: Any, unsure: bool) -> str | None:
    if not isinstance(a, Seen) or not isinstance(b, Seen):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return None if torch.equal(a, b) else "differs"
        return None if type(a) is type(b) and (a == b or a != a) else f"{_short(a)} is {_short(b)}"
    for (what, x), (_, y) in zip(a.facts, b.facts, strict=False):
        if x != y:
            return f"{what}: {x} is {y}"
    return None if unsure or _close(a.value, b.value) else "values differ"


def _short(a: Any) -> str:
    return "a tensor" if isinstance(a, (Tensor, Seen)) else str(a)[:60]


def _same(a: Tensor, b: Tensor) -> bool:
    if a.is_nested:
        return all(_same(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True))
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _close(a: Tensor, b: Tensor) -> bool:
    if _same(a, b):
        return True
    if a.is_nested:
        return all(_close(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True))
    if not (a.is_floating_point() or a.is_complex()):
        return False
    tolerance = TOLERANCE.get(a.dtype, ROUGH)
    finite = a[a.isfinite()].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * min(scale, 1e3), equal_nan=True)


# -- running


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors on new storages, which they share as before; all leaves."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, Tensor] = {}
    for t in tensors:
        if id(t) in made:
            continue
        with torch.no_grad():
            if t.layout is not torch.strided or t.is_nested or t.is_quantized:
                copy_ = t.detach().clone()
            else:
                storage = t.untyped_storage()
                copied = storages.setdefault(storage.data_ptr() or id(storage), storage.clone())
                copy_ = torch.empty(0, dtype=t.dtype).set_(copied, t.storage_offset(), t.shape, t.stride())
                copy_ = copy_.conj().detach() if t.is_conj() else copy_
                copy_ = torch._neg_view(copy_).detach() if t.is_neg() else copy_
        made[id(t)] = copy_.requires_grad_(t.requires_grad)
    return [made[id(t)] for t in tensors]


def observe(sample: Sample, side: Side | None) -> list[Observed]:
    """Both calls of ``sample``, compiled by ``side``, each with a backward."""
    function = sample.function
    if isinstance(function, ModuleCall):
        function = ModuleCall(copy.deepcopy(function.module), function.leaves, function.spec)
    compiled = compile_with(side, function)
    return [_call(sample, function, compiled, copies(tensors), k) for k, tensors in enumerate(sample.calls)]


def _call(
    sample: Sample, original: Callable[..., Any], compiled: Callable[..., Any], tensors: list[Tensor], seed: int
) -> Observed:
    things: list[tuple[str, Any]] = []
    state: dict[str, Tensor] = {}
    if isinstance(original, ModuleCall):
        state = {**dict(original.module.named_parameters()), **dict(original.module.named_buffers())}
    torch.manual_seed(seed)
    try:
        out = compiled(*tensors)
        things += [(f"output {k}", _seen(x)) for k, x in enumerate(pytree.tree_leaves(out))]
        things.append(("generator's state", torch.get_rng_state()))
        if sample.derivatives > 1:
            _differentiate(sample.finish(out), tensors, sample.derivatives, things)
        else:
            _backward(sample.finish(out), seed)
    except Exception as error:
        things.append(("error", _told(error)))
    things.append(("generator's state after the backward", torch.get_rng_state()))
    for k, t in enumerate(tensors):
        things.append((f"input {k}", _seen(t)))
        things.append((f"gradient {k}", _seen(t.grad)))
    for name, t in state.items():
        things.append((name, _seen(t)))
        things.append((f"gradient of {name}", _seen(t.grad)))
        t.grad = None
    return Observed(tuple(things))


def _seen(x: Any) -> Any:
    return (
        Seen.of(x) if isinstance(x, Tensor) else x if isinstance(x, (int, float, str, type(None))) else type(x).__name__
    )


def _backward(out: Any, seed: int) -> None:
    """A backward from all that has a gradient, with tangents that depend on ``seed`` alone."""
    results = [x for x in pytree.tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
    if not results:
        return
    generator = torch.Generator().manual_seed(seed)
    tangents = []
    for x in results:
        if x.layout is not torch.strided or x.is_nested:
            tangents.append(torch.ones_like(x))
        else:
            tangents.append(torch.randn(x.shape, dtype=x.dtype, generator=generator))
    torch.autograd.backward(results, tangents)


def _differentiate(out: Any, tensors: Sequence[Tensor], times: int, things: list[tuple[str, Any]]) -> None:
    """Append to ``things`` the gradients of all of ``out``, the gradients of those, and so on, ``times`` times."""
    leaves = [t for t in tensors if t.requires_grad]
    level = [x for x in pytree.tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
    for time in range(1, times + 1):
        if not (level and leaves):
            return
        given = torch.autograd.grad(_scalar(level), leaves, create_graph=True, allow_unused=True)
        things += [(f"derivative {time} by {k}", _without_strides(_seen(g))) for k, g in enumerate(given)]
        level = [g for g in given if g is not None and g.requires_grad]


def _without_strides(seen: Any) -> Any:
    """A gradient as it is compared: how it lies may depend on how the gradient lay of which it was computed."""
    if not isinstance(seen, Seen):
        return seen
    return dataclasses.replace(seen, facts=tuple(fact for fact in seen.facts if fact[0] != "strides"))


def _scalar(tensors: Sequence[Tensor]) -> Tensor:
    """A number that depends on all elements of ``tensors``, and by later derivatives, too, which do not grow by it."""
    total = torch.zeros((), dtype=torch.float64)
    for k, t in enumerate(tensors):
        dense = t if t.layout is torch.strided and not t.is_nested else t.to_dense()
        real = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
        weights = torch.cos(torch.arange(real.numel(), dtype=torch.float64) + k).reshape(real.shape)
        total = total + (real.double().sin() * weights).sum()
    return total


def _told(error: Exception) -> str:
    said = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, aotcheck.UnsupportedError):
        return f"UnsupportedError: {said[:110]}"
    return f"{type(error).__name__}: {said[:110]}"


def check(sample: Sample, side: Side) -> str | None:
    """How ``side`` differs from eager on ``sample``, in a few words; None if it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, once_more = observe(sample, None), observe(sample, None)
        before = _reproduced()
        theirs = observe(sample, side)
        if _reproduced() > before:  # running the original in place of a graph is no answer, however right
            return FALLBACK
    for k, (a, again, b) in enumerate(zip(eager, once_more, theirs, strict=True)):
        if any(name == "error" for name, _ in a.things) and not isinstance(_error(b), type(None)):
            mine, other = str(_error(a)), str(_error(b))
            if mine.split(":")[0] == other.split(":")[0]:
                continue  # what is left of a call that raised is not compared
        unsure = a.unlike(again)
        if sample.undefined:
            unsure |= frozenset(name for name, _ in a.things)
        said = a.difference(b, unsure)
        if said is not None:
            return f"second call: {said}" if k else said
    return None


def _reproduced() -> int:
    return aotcheck.counters().refused.get(FALLBACK, 0)


def _error(a: Observed) -> Any:
    return dict(a.things).get("error")
