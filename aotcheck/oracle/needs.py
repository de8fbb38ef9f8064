"""The promises that a backend must give so that a program can be judged on it, read off a run in eager.

Note [Needs]
    A dispatch mode watches the function in eager: the arguments, what each op makes or writes, the results. So a
    program's needs follow from what it does, not from its source: an in-place op on an intermediate needs no input
    mutation, and a cast to float64 in the middle needs float64.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotcheck._torch import OpOverload, pytree, schema_of, storage_key
from aotcheck.backends import Promise
from aotcheck.oracle.execute import Compile, Observation, observe
from aotcheck.oracle.kinds import Phase
from aotcheck.oracle.undefined import PLAIN, FillUndefined
from aotcheck.program import Feature, GradMode, Program, difficulty
from aotcheck.program.called.objects import attributes
from aotcheck.program.ops.subclasses import held
from aotcheck.program.vocabulary.dry_run import tensors_in

__all__ = ["JUDGED_WHOLE", "Watch", "fails_assertions", "needs"]

JUDGED_WHOLE = frozenset(
    {
        Promise.GRADIENTS,
        Promise.MUTATION,
        Promise.ALIASING,
        Promise.HALF,
        Promise.FLOAT64,
        Promise.COMPLEX,
        Promise.RANDOM,
        Promise.EMPTY,
        Promise.SUBCLASSES,
        Promise.CONSTANTS,
        Promise.PYTREES,
        Promise.OBJECTS,
        Promise.ERRORS,
        Promise.VALUE_ERRORS,
        Promise.ORDER_IN_LISTS,
    }
)
"""The promises without which some programs are left out."""

_BY_DTYPE = {
    torch.float16: Promise.HALF,
    torch.bfloat16: Promise.HALF,
    torch.float64: Promise.FLOAT64,
    torch.complex32: Promise.COMPLEX,
    torch.complex64: Promise.COMPLEX,
    torch.complex128: Promise.COMPLEX,
}

_READS = frozenset(
    {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default, torch.ops.aten.is_nonzero.default}
)
"""Ops that give Python a value of a tensor."""


class Watch:
    """Watches a function in eager; ``found`` has the promises that the function needs.

    Pass :meth:`compile` in place of a backend's ``compile``.
    """

    def __init__(self) -> None:
        self.found: set[Promise] = set()

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` with every call watched."""

        def watched(*args: Any) -> Any:
            given = tensors_in(args)
            self.tensors(given)
            if any(not isinstance(arg, torch.Tensor) and _is_container(arg) for arg in args):
                self.found.add(Promise.PYTREES)
            if any(attributes(leaf) is not leaf for leaf in _leaves(args)):
                self.found.add(Promise.OBJECTS)
            keys = [storage_key(t) for t in {id(t): t for t in given}.values() if not held(t)]
            before = [_state(t) for t in given]
            with _Ops(self, set(keys), shared=len(keys) > len(set(keys))) as ops:
                try:
                    result = fn(*args)
                except Exception:
                    if ops.last in _READS:  # a composite op or the function itself looked at a value, and raised
                        self.found.add(Promise.VALUE_ERRORS)
                    raise
            if before != [_state(t) for t in given]:
                ops.written()
            self.result(result)
            return result

        return watched

    def tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Record what these tensors need."""
        for t in tensors:
            if t.dtype in _BY_DTYPE:
                self.found.add(_BY_DTYPE[t.dtype])
            if not t.numel():
                self.found.add(Promise.EMPTY)
            if held(t):
                self.found.add(Promise.SUBCLASSES)

    def result(self, result: object) -> None:
        """Record what a result of the function needs."""
        self.tensors(list(_tensors(result)))
        if not all(isinstance(leaf, torch.Tensor) for leaf in _leaves(result)):
            self.found.add(Promise.CONSTANTS)
        flat = list(result) if type(result) in (tuple, list) and isinstance(result, tuple | list) else [result]
        if any(_is_container(value) for value in flat):
            self.found.add(Promise.PYTREES)


class _Ops(FillUndefined):
    """Sees every op that eager runs."""

    def __init__(self, watch: Watch, given: set[int], shared: bool) -> None:
        super().__init__(PLAIN)
        self.watch, self.given, self.shared = watch, given, shared
        self.last: object = None

    def fill(self, tensor: torch.Tensor, first_byte: int) -> None:
        """Nothing is filled: the mode only watches."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, OpOverload):
            if torch.Tag.nondeterministic_seeded in func.tags:
                self.watch.found.add(Promise.RANDOM)
            written = list(_written(func, args, kwargs or {}))
            if any(storage_key(t) in self.given for t in written if not held(t)):
                self.written()
            if len(written) > 1:
                keys = [key for t in _tensors((args, kwargs)) for key in _keys(t)]
                if len(keys) > len(set(keys)):
                    self.watch.found.add(Promise.ORDER_IN_LISTS)
        self.last = func
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except Exception:
            if _takes_such_operands(func, args, kwargs or {}):
                self.watch.found.add(Promise.VALUE_ERRORS)
            raise
        self.watch.tensors(list(_tensors(result)))
        return result

    def written(self) -> None:
        """An argument is written."""
        self.watch.found.add(Promise.MUTATION)
        if self.shared:
            self.watch.found.add(Promise.ALIASING)


def _written(func: Any, args: Sequence[object], kwargs: dict[str, object]) -> Iterator[torch.Tensor]:
    """The tensors that an op writes, by its schema."""
    for index, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from _tensors(value)


def _takes_such_operands(func: Any, args: object, kwargs: object) -> bool:
    """Whether an op takes operands of these shapes and dtypes, of whatever values: its meta function says so."""

    def without_values(x: object) -> object:
        if not isinstance(x, torch.Tensor):
            return x
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")

    if any(held(t) for t in _tensors((args, kwargs))):
        return True  # it cannot be told
    try:
        moved: Any = pytree.tree_map(without_values, (args, kwargs))
        func(*moved[0], **moved[1])
    except NotImplementedError:  # there is no meta function
        return True
    except Exception:
        return False
    return True


def _keys(t: torch.Tensor) -> list[int]:
    """The storages that a tensor, or what a wrapper holds, lies in."""
    return [key for _, inner in held(t) for key in _keys(inner)] or [storage_key(t)]


def _leaves(tree: object) -> list[object]:
    return list(pytree.tree_leaves(tree))


def _tensors(tree: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _leaves(tree) if isinstance(leaf, torch.Tensor))


def _is_container(value: object) -> bool:
    return isinstance(value, tuple | list | dict)


def _state(t: torch.Tensor) -> tuple[object, ...]:
    """What of an argument changes without an op that says so: its storage, geometry and flags."""
    if held(t):
        return (id(t), *(_state(inner) for _, inner in held(t)))
    storage = t.untyped_storage()
    return (
        storage_key(t),
        storage.data_ptr(),
        storage.nbytes(),
        t.shape,
        t.stride(),
        t.storage_offset(),
        t.requires_grad,
    )


def needs(
    program: Program, eager: Sequence[Observation], promises: frozenset[Promise], device: torch.device
) -> tuple[Promise, ...]:
    """The promises that ``program`` needs and that are not among ``promises``, see Note [Needs].

    Args:
        program: the program, with the steps that the backend is asked for.
        eager: eager's observations.
        promises: the backend's promises.
        device: where it runs; a backend need not promise what eager does not promise on this device.
    """
    missing = JUDGED_WHOLE - promises
    if device.type != "cpu":
        missing |= {Promise.ORDER_IN_LISTS}
    if not missing:
        return ()
    watch = Watch()
    _exhaust(program, watch.compile, device)
    found = watch.found
    refused = [_raised(seen) for seen in eager if seen.phase is Phase.FORWARD]
    if any(refused):
        found.add(Promise.ERRORS)
    if Promise.GRADIENTS in missing and (
        Feature.AUTOGRAD_INSIDE in difficulty(program) or (any(refused) and refused != _without_grad(program, device))
    ):
        found.add(Promise.GRADIENTS)
    return tuple(promise for promise in Promise if promise in missing & found)


def fails_assertions(program: Program, device: torch.device) -> bool:
    """Whether a kernel on ``device`` would fail an assertion in ``program``: an op raises for its values on the CPU.

    Nothing may be run on the device before this is known, see :attr:`Promise.VALUE_ERRORS`.
    """
    if device.type == "cpu":
        return False
    watch = Watch()
    _exhaust(program, watch.compile, torch.device("cpu"))
    return Promise.VALUE_ERRORS in watch.found


def _raised(seen: Observation) -> str:
    return "" if seen.raised is None else seen.raised.key


def _without_grad(program: Program, device: torch.device) -> list[str]:
    """What eager raises in each call when grad mode is off."""
    calls = (
        replace(call, grad_mode=GradMode.NO_GRAD if call.grad_mode is GradMode.ENABLED else call.grad_mode)
        for call in program.calls
    )
    seen = observe(replace(program, calls=tuple(calls)), lambda fn: fn, device)
    return [_raised(one) for one in seen if one.phase is Phase.FORWARD]


def _exhaust(program: Program, compile_function: Compile, device: torch.device) -> None:
    for _ in observe(program, compile_function, device):
        pass
