"""explain: every stage of one specialization as text, each with the pass that made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotcheck.autograd2.api import Compiled
from aotcheck.autograd2.config import python_of
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.frontend.key import words_of
from aotcheck.autograd2.ir.signature import Signature
from aotcheck.autograd2.runtime.compile import backward_module, forward_module
from aotcheck.autograd2.trace.run import UserError


@dataclass(frozen=True)
class Explanation:
    """What was made for one call, as text; ``str`` of it shows all.

    Args:
        specialization: which of the function's, and of what kind.
        key: what a call must be like to use it, a line each.
        signature: what a call does beside computing, a line each. ``a0`` is an input, ``r0`` a result of the forward
            graph, ``m0`` a tensor made of these.
        forward: the forward graph as Python, under the user's lines.
        backwards: the graph of each component's backward, for tangents of all its results.
        call: the generated source that runs at each call.
    """

    specialization: str
    key: tuple[str, ...]
    signature: tuple[str, ...]
    forward: str
    backwards: tuple[str, ...]
    call: str

    def __str__(self) -> str:
        parts = [
            (f"bind: {self.specialization}, for calls with", "\n".join(self.key)),
            ("analyze: the signature", "\n".join(self.signature)),
            ("trace, partition: the forward graph", self.forward),
            *((f"joint, partition: the graph of backward {k}", b) for k, b in enumerate(self.backwards)),
            ("emit: the call", self.call),
        ]
        return "\n\n".join(f"# {title}\n{text.rstrip()}" for title, text in parts) + "\n"


def explain(compiled: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """What runs when ``compiled`` is called so. Compiles where that call would; the function does not run otherwise.

    Args:
        compiled: what ``aot_function`` or ``aot_module`` gave.

    Raises:
        TypeError: ``compiled`` is something else.
        UnsupportedError: the call is refused.
    """
    owner = getattr(compiled, "aotcheck", None)
    if not isinstance(owner, Compiled):
        raise TypeError(f"explain takes what aot_function or aot_module gave, not {compiled!r}")
    try:
        made, bound = owner.specialized(args, kwargs)
    except UserError as error:
        raise error.__cause__ or error from None
    every = owner.specializations()
    sizes = "of fixed sizes" if made.fits is None else "with sizes that are symbols"
    key = [*words_of(bound, owner.gradients), *made.guards]
    backwards = tuple(python_of(backward_module(b), "backward") for b in made.partition.backwards)
    forward = python_of(forward_module(made.partition.forward), "forward")
    said = f"specialization {every.index(made) + 1} of {len(every)}, {sizes}"
    return Explanation(said, tuple(key), tuple(_signature(made.signature, bound)), forward, backwards, made.source)


def _signature(signature: Signature, bound: Bound) -> list[str]:
    effects = signature.effects
    lines = [f"input a{k}: {i}" for k, i in enumerate(signature.inputs)]
    lines += map(str, (*effects.written, *effects.moved))
    lines += [f"m{k} = {how}" for k, how in enumerate(signature.made)]
    lines += [f"looked[{len(bound.containers) + k}] = {built}" for k, built in enumerate(signature.shared)]
    lines += [a.said(bound.titles[a.table]) for a in effects.assigned]
    lines += [f"{of}.grad = {value}" for of, value in effects.gradients]
    if effects.grad_mode is not None:
        lines.append(f"grad mode is {'on' if effects.grad_mode else 'off'} afterwards")
    lines.append(f"returned: {signature.output}")
    said = "\n".join(lines)
    return [*lines, *(f"looked[{k}] is {name}" for k, name in enumerate(bound.names) if f"looked[{k}]" in said)]
