"""What a fault is, the table of them, and what most of them are made of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck.oracle import OracleKind
from aotcheck.program.running.memory import fits

Function = Callable[..., Any]
Compile = Callable[[Function], Function]


@dataclass(frozen=True)
class Fault:
    """A backend with one fault.

    Args:
        name: what it is called, in words joined by hyphens.
        area: what it is a fault of.
        text: what is wrong with it, in a sentence.
        shows: the oracles that it may show to first; found by another, it would have two faults.
        compile: the backend.
    """

    name: str
    area: str
    text: str
    shows: frozenset[OracleKind]
    compile: Compile


FAULTS: dict[str, Fault] = {}
"""Every fault by name."""


def fault(area: str, *shows: OracleKind) -> Callable[[Compile], Compile]:
    """Enter a backend in the table, under its own name and with its docstring."""

    def enter(compile_function: Compile) -> Compile:
        name = compile_function.__name__.replace("_", "-")
        if name in FAULTS:
            raise ValueError(f"two faults are called {name}")
        FAULTS[name] = Fault(
            name, area, " ".join((compile_function.__doc__ or "").split()), frozenset(shows), compile_function
        )
        return compile_function

    return enter


# -- tensors in pytrees


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` made to what it holds, itself where that changes nothing; an object is changed once."""
    made: dict[int, Any] = {}

    def once(leaf: Any) -> Any:
        if id(leaf) not in made:
            made[id(leaf)] = leaf, change(leaf)
        return made[id(leaf)][1]

    return mapped(value, once)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """:func:`replaced`, one object each time anew."""
    if isinstance(value, dict):
        pairs = {key: mapped(item, change) for key, item in value.items()}
        return value if all(pairs[key] is value[key] for key in value) else pairs
    if isinstance(value, tuple | list):
        items = [mapped(item, change) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    return change(value)


def same_storage(t: torch.Tensor, u: torch.Tensor) -> bool:
    """Whether two tensors are on one storage."""
    return t.untyped_storage() is u.untyped_storage()


def shares(t: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether a tensor is on the storage of another."""
    return any(same_storage(t, u) for u in others)


def history(t: torch.Tensor) -> Any:
    """The node of autograd that made a tensor; None where there is none, or autograd refuses to say."""
    try:
        return t.grad_fn
    except RuntimeError:
        return None


def on_results(
    change: Callable[[torch.Tensor, list[torch.Tensor], list[torch.Tensor]], torch.Tensor], each: bool = False
) -> Compile:
    """A backend that changes tensors which are returned; ``change`` is given one, the arguments, and the results that
    come before. ``each``: a tensor that is returned twice is changed twice."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            result = fn(*args)
            given, before = list(tensors(args)), list[torch.Tensor]()

            def one(leaf: Any) -> Any:
                if not isinstance(leaf, torch.Tensor):
                    return leaf
                made = change(leaf, given, before) if fits(leaf) else leaf
                before.append(leaf)
                return made

            return (mapped if each else replaced)(result, one)

        return compiled

    return compile_function


def on_gradients(change: Callable[[torch.Tensor], torch.Tensor]) -> Compile:
    """A backend that changes the gradients which arrive at what it returns."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            result = fn(*args)
            for t in {id(t): t for t in tensors(result)}.values():
                if history(t) is not None:
                    t.register_hook(change)
            return result

        return compiled

    return compile_function
