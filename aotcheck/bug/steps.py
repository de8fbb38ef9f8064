"""The steps of a caller's plan in plain torch: backwards, hooks, writes."""

from collections.abc import Mapping, Sequence

import torch

from aotcheck.bug.choices import Choices
from aotcheck.bug.statements import CannotBeWrittenError
from aotcheck.program import Probe
from aotcheck.program.data.model import Cotangent, Fill, HookKind, Write
from aotcheck.program.ops.subclasses import held
from aotcheck.program.running import harness

__all__ = ["cotangents_of", "differentiation", "hook_lines", "probe_lines"]


def _tensor(t: torch.Tensor) -> str:
    """A plain tensor as a literal."""
    numbers = repr(t.detach().cpu().tolist()).replace("inf", 'float("inf")').replace("nan", 'float("nan")')
    known = t.dtype in (torch.float32, torch.int64, torch.bool, torch.complex64) and t.numel()
    return f"torch.tensor({numbers}{'' if known else f', dtype={t.dtype}'})"


def cotangents_of(
    roots: Sequence[torch.Tensor],
    shown: Sequence[str],
    fills: Sequence[Cotangent],
    bound: Mapping[int, str],
    part: str,
    choices: Choices,
) -> tuple[list[str], list[str]]:
    """The lines that have to stand before a backward, and its cotangents.

    Args:
        roots: what is differentiated.
        shown: how the script calls that.
        fills: what each cotangent is like.
        bound: the names of those that have gradients of their own, by place.
        part: what choices are called by.
        choices: how to write what can be written in several ways.
    """
    lines, seeds = [], []
    for k, (t, name, one) in enumerate(zip(roots, shown, fills, strict=True)):
        seed = _cotangent(t, name, one, f"{part} cotangent {k}", choices)
        if k in bound:
            lines.append(f"{bound[k]} = {seed}.requires_grad_()")
            seed = bound[k]
        seeds.append(seed)
    return lines, seeds


def _cotangent(t: torch.Tensor, name: str, one: Cotangent, part: str, choices: Choices) -> str:
    ones = f"torch.ones_like({name})"
    if one.fill is Fill.IMPLICIT and harness.readable(t):
        return "None"
    if held(t):
        if one.fill not in (Fill.PATTERN, Fill.IMPLICIT):
            raise CannotBeWrittenError(f"a cotangent of a wrapper that is {one.fill.value}")
        return ones
    with torch.no_grad():
        like = torch.zeros(t.shape, dtype=t.dtype, device=t.device)  # t may be a conjugate that cannot be read
        made = harness.cotangent(like, one.seed, "pattern" if one.fill is Fill.TRAINED else one.fill.value)
    device = "" if t.device.type == "cpu" else f".to({name}.device)"
    if one.fill is Fill.EXPANDED:
        return f"{_tensor(torch.full((), one.seed + 1, dtype=t.dtype))}{device}.expand({name}.shape)"
    if one.fill is Fill.STRIDED:
        numbers = _tensor(made.contiguous())
        return choices.among(part, [ones, f"torch.stack([{numbers}, {numbers}], -1)[..., 0]{device}"])
    if one.fill is Fill.ZEROS:
        return f"torch.zeros_like({name})"
    uniform = one.fill is not Fill.INFINITE and one.seed == 0
    return ones if uniform else choices.among(part, [ones, f"{_tensor(made)}{device}"])


def differentiation(
    shown: Sequence[str],
    roots: Sequence[torch.Tensor],
    seeds: Sequence[str],
    options: Sequence[str],
    accumulates: bool,
    part: str,
    choices: Choices,
) -> str:
    """A backward, or a ``torch.autograd.grad``, as an expression.

    Args:
        shown: what is differentiated.
        roots: the same.
        seeds: the cotangents.
        options: first what it is with respect to, if that is said; then keywords.
        accumulates: it is a backward.
        part: what the choice is called by.
        choices: how to write it.
    """
    implicit = all(seed == "None" for seed in seeds)
    scalar = len(shown) == 1 and roots[0].dim() == 0
    summed = [one if t.dim() == 0 else f"{one}.sum()" for one, t in zip(shown, roots, strict=True)]
    loss = summed[0] if len(summed) == 1 else " + ".join(summed)
    if not accumulates:
        exact = f"[{', '.join(shown)}], {options[0]}, [{', '.join(seeds)}]"
        ways = [", ".join([loss, options[0]]), exact]
        return f"torch.autograd.grad({', '.join([choices.among(part, ways[implicit and scalar :]), *options[1:]])})"
    keywords = [f"inputs={one}" if one.startswith("[") else one for one in options]
    called = loss if " " not in loss else f"({loss})"
    simple = f"{called}.backward({', '.join(keywords)})"
    if len(shown) == 1:
        seed = [] if implicit else [seeds[0]]
        exact = f"{shown[0] if ' ' not in shown[0] else called}.backward({', '.join([*seed, *keywords])})"
    else:
        given = [f"[{', '.join(shown)}]", f"[{', '.join(seeds)}]", *keywords]
        exact = f"torch.autograd.backward({', '.join(given)})"
    return choices.among(part, list(dict.fromkeys([simple, exact])))


def hook_lines(kind: HookKind, t: torch.Tensor, name: str, number: int, choices: Choices) -> tuple[list[str], str]:
    """The lines that hang a hook on a tensor, if it may have one, and how the list of what it sees is called."""
    seen = f"seen{number or ''}"
    if not t.requires_grad:
        return [], seen
    leaf = t.grad_fn is None
    match kind:
        case HookKind.RETAIN:
            return [f"{name}.retain_grad()"], seen
        case HookKind.WATCH:
            return [f"{seen} = []", f"{name}.register_hook({seen}.append)"], seen
        case HookKind.DOUBLE:
            doubled = choices.among(seen, ["g * 2", "(g if g is None else g * 2)"])
            watch = f"lambda g: {seen}.append(g) or {doubled}"
            return [f"{seen} = []", f"{name}.register_hook({watch})"], seen
        case HookKind.POST if leaf:
            watch = f"lambda p: {seen}.append(p.grad.clone())"
            return [f"{seen} = []", f"{name}.register_post_accumulate_grad_hook({watch})"], seen
        case HookKind.CLEAR if leaf:
            watch = f'lambda p: {seen}.append(p.grad.clone()) or setattr(p, "grad", None)'
            return [f"{seen} = []", f"{name}.register_post_accumulate_grad_hook({watch})"], seen
    return [], seen


def probe_lines(made: Probe, t: torch.Tensor, name: str, factor: str, part: str, choices: Choices) -> list[str]:
    """The lines by which the caller writes a tensor in place; none into memory that is freed."""
    if not harness.readable(t):
        return []
    if made.how is Write.GRAD or (made.how is Write.TRAINED and not (t.is_floating_point() or t.is_complex())):
        return [f"{name}.mul_({made.seed})"]
    if made.how is Write.TRAINED:
        number = _tensor(torch.tensor(made.seed, dtype=t.dtype)).removesuffix(")")
        return [f"{factor} = {number}, requires_grad=True)", f"{name}.mul_({factor})"]
    ways = [f"{name}.fill_({made.seed})"]
    overlapping = any(n > 1 and step == 0 for n, step in zip(t.shape, t.stride(), strict=True))
    if not overlapping and not held(t):
        with torch.no_grad():
            like = torch.zeros(t.shape, dtype=t.dtype)
            ways.append(f"{name}.copy_({_tensor(harness.cotangent(like, made.seed) + made.seed)})")
    return ["with torch.no_grad():", f"    {choices.among(part, ways)}"]
