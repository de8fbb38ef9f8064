"""A user's function in a form that the oracle can run, with new arguments for each run."""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from aotcheck._torch import pytree, storage_key
from aotcheck.checking.changes import Arguments, named
from aotcheck.checking.variations import Variation
from aotcheck.oracle.execute import Compile, Run
from aotcheck.oracle.state import seed_generators
from aotcheck.program import BuiltCall, Inputs, Literal, Program

_T = TypeVar("_T")

__all__ = ["Given", "Subject", "UserRun", "as_maker", "as_subject", "shell"]

Given = Callable[[], Sequence[Any]] | Sequence[Any]
"""The arguments: a function that makes them, or an example of them, which is copied."""


class Subject:
    """A function and a maker of its arguments.

    Args:
        function: a function over tensors.
        make: makes new positional arguments, the same for the same state of the generators.
        state: tensors that are passed before them: a module's parameters and buffers.
        module: the module, if the function is one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[], Sequence[Any]],
        state: Callable[[], tuple[Any, ...]] = tuple,
        module: torch.nn.Module | None = None,
    ) -> None:
        self.function, self.make, self.state, self.module = function, make, state, module

    def as_module(self, compile_function: Compile) -> Compile:
        """The same compiler, given a module as it is, not as a function of its parameters and buffers."""
        module = self.module
        if module is None:
            return compile_function

        def compile_module(_: Callable[..., Any]) -> Callable[..., Any]:
            compiled = compile_function(lambda *args: module(*args))

            def call(parameters: Mapping[str, Any], buffers: Mapping[str, Any], *args: Any) -> Any:
                with _installed(module, {**parameters, **buffers}):
                    return compiled(*args)

            return call

        return compile_module

    def build(self, variation: Variation, index: int, device: torch.device) -> BuiltCall:
        """The arguments of a call of a variation.

        Raises:
            NotApplicableError: there is nothing to change so.
        """
        seed_generators(device)
        for _ in range(index):
            torch.rand(1)  # a further call has other values, if they are random
        args = tuple(self.make())
        with_paths, spec = pytree.tree_flatten_with_path(args)
        given = Arguments([leaf for _, leaf in with_paths])
        for change in variation.calls[index].changes or ():
            change.make(given)
        args = tuple(pytree.tree_unflatten(given.leaves, spec))
        names = [f"argument{pytree.keystr(path)}" for path, _ in with_paths]
        state = self.state()
        parts, _ = pytree.tree_flatten_with_path(state)
        tensors = dict(named([leaf for _, leaf in parts], [_state_name(path) for path, _ in parts]))
        tensors |= dict(named(given.leaves, names)) | given.further
        leaves = {name: t for name, t in tensors.items() if t.requires_grad and t.is_leaf}
        return BuiltCall((*state, *args), tensors, leaves)


@contextmanager
def _installed(module: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """The module has other parameters and buffers, by name."""
    before = dict(_places(module))
    try:
        for name, t in _everywhere(module, state).items():
            _install(module, name, t)
        yield
    finally:
        for name, t in before.items():
            _install(module, name, t)


def _places(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Each place that holds a parameter or a buffer, under its first name: a module may be in several places too."""
    seen = set[tuple[int, str]]()
    named = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    for name, t in itertools.chain(*named):
        owner, _, attribute = name.rpartition(".")
        place = id(module.get_submodule(owner)), attribute
        if place not in seen:
            seen.add(place)
            yield name, t


def _everywhere(module: torch.nn.Module, state: Mapping[str, _T]) -> dict[str, _T]:
    """The state for each place: what several hold has one name in ``state``."""
    first = {id(t): name for name, t in reversed(list(_places(module)))}
    return {name: state[first[id(t)]] for name, t in _places(module)}


def _install(module: torch.nn.Module, name: str, t: torch.Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, t)


def _state_name(path: Any) -> str:
    return str(path[-1].key)


def as_subject(function: Callable[..., Any], given: Given) -> Subject:
    """A function, or a module as a function of its parameters and buffers too."""
    make = as_maker(given)
    if not isinstance(function, torch.nn.Module):
        return Subject(function, make)
    module = copy.deepcopy(function)
    names = _everywhere(module, {name: name for name, _ in _places(module)})

    def state() -> tuple[Any, ...]:
        parameters = {
            n: torch.nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad)
            for n, p in module.named_parameters()
        }
        return parameters, {n: b.detach().clone() for n, b in module.named_buffers()}

    def call(parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], *args: Any) -> Any:
        # Its own way of tying weights does not put back those of a module that is in two places.
        state = {name: {**parameters, **buffers}[known] for name, known in names.items()}
        return torch.func.functional_call(module, state, args, tie_weights=False)

    return Subject(call, make, state, module)


def as_maker(given: Given) -> Callable[[], Sequence[Any]]:
    """A maker of arguments: the given function, or one that copies the example."""
    if callable(given):
        return lambda: _arguments(given())

    return lambda: tuple(pytree.tree_map(_Copies().of, tuple(given)))


class _Copies:
    """Copies of the leaves of an example: what is one object stays one, and what shares memory goes on to share it."""

    def __init__(self) -> None:
        self._of: dict[int, Any] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def of(self, leaf: Any) -> Any:
        """The copy of a leaf."""
        if id(leaf) not in self._of:
            self._of[id(leaf)] = self._tensor(leaf) if isinstance(leaf, torch.Tensor) else copy.deepcopy(leaf)
        return self._of[id(leaf)]

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        plain = type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided
        if not plain or t.is_conj() or t.is_neg() or not t.is_leaf:  # a tensor with a history becomes a leaf
            return t.detach().clone().requires_grad_(t.requires_grad)
        key = storage_key(t)
        if key not in self._storages:
            self._storages[key] = t.untyped_storage().clone()
        made = torch.empty(0, dtype=t.dtype, device=t.device)
        made.set_(self._storages[key], t.storage_offset(), t.shape, t.stride())
        return made.requires_grad_(t.requires_grad)


def _arguments(made: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(made, tuple | list):  # a tensor would be taken for its rows
        raise TypeError(f"what makes the inputs must return a tuple of arguments, not {type(made).__name__}")
    return made


class UserRun(Run):
    """A variation being observed."""

    def __init__(
        self, subject: Subject, variation: Variation, compile_function: Compile, program: Program, device: torch.device
    ) -> None:
        super().__init__(program, compile_function, device)
        self.subject, self.variation = subject, variation

    def build(self, index: int, previous: BuiltCall | None) -> BuiltCall:
        """The arguments of a call."""
        if self.variation.calls[index].changes is None and previous is not None:
            return previous
        return self.subject.build(self.variation, index, self.device)

    def original(self) -> Callable[..., Any]:
        """The function that is compiled."""
        return self.subject.function


def shell(variation: Variation) -> Program:
    """A program that holds the calls of a variation, for what looks at calls alone."""
    nothing = Inputs((), (), (), ())
    return Program((), (), Literal(None), tuple(replace(varied.call, inputs=nothing) for varied in variation.calls))
