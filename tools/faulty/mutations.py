"""Faults in what is left of the arguments: values, metadata, storages, and the process around them."""

from collections.abc import Callable
from typing import Any

import torch

from aotcheck.oracle import OracleKind as K
from aotcheck.program.ops.subclasses import leaves
from aotcheck.program.running.memory import extent_in_bytes, fits
from tools.faulty.fault import Compile, Function, fault, shares, tensors

AREA = "mutations"


def distinct(args: Any) -> list[torch.Tensor]:
    """The tensors among the arguments that have memory, each object once: of a wrapper those that it holds."""
    return list({id(x): x for t in tensors(args) for x in leaves(t)}.values())


def memory(t: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor, as bytes."""
    s = t.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(s, 0, (s.nbytes(),), (1,))


def put_back(t: torch.Tensor, held: torch.Tensor) -> None:
    """The storage of ``t`` holds again what it did, as far as it is still there."""
    now = memory(t)
    n = min(now.numel(), held.numel())
    now[:n].copy_(held[:n])


def losing(which: Callable[[torch.Tensor, list[torch.Tensor]], bool]) -> Compile:
    """A backend that loses what is written to those arguments of which ``which`` holds before the call."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            given = distinct(args)
            chosen = [t for t in given if fits(t) and which(t, [u for u in given if u is not t])]
            held = [(t, memory(t).clone()) for t in chosen]
            result = fn(*args)
            for t, content in held:
                put_back(t, content)
            return result

        return compiled

    return compile_function


@fault(AREA, K.VALUES)
def write_to_the_last_argument_is_lost(fn: Function) -> Function:
    """Writes to the last argument are lost, if no other argument shares its storage."""

    def compiled(*args: Any) -> Any:
        given = distinct(args)
        if not given or not fits(given[-1]) or shares(given[-1], given[:-1]):
            return fn(*args)
        held = memory(given[-1]).clone()
        result = fn(*args)
        put_back(given[-1], held)
        return result

    return compiled


@fault(AREA, K.VALUES)
def write_to_a_strided_argument_is_lost(fn: Function) -> Function:
    """Writes to an argument that is not contiguous are lost."""
    return losing(lambda t, others: not t.is_contiguous())(fn)


@fault(AREA, K.VALUES)
def write_to_an_aliased_argument_is_lost(fn: Function) -> Function:
    """Writes to a storage that two arguments share are lost."""
    return losing(lambda t, others: shares(t, others))(fn)


@fault(AREA, K.VALUES)
def write_in_inference_mode_is_lost(fn: Function) -> Function:
    """Writes to arguments are lost in a call under no_grad or in inference mode."""
    return losing(lambda t, others: not torch.is_grad_enabled())(fn)


@fault(AREA, K.VALUES)
def write_beyond_an_argument_is_lost(fn: Function) -> Function:
    """Writes to a storage behind the end of all arguments on it are lost."""

    def compiled(*args: Any) -> Any:
        given = [t for t in distinct(args) if fits(t)]
        held = [(t, memory(t).clone(), extent_in_bytes(t)) for t in given]
        result = fn(*args)
        for t, content, _ in held:
            end = max(e for u, _, e in held if u.untyped_storage() is t.untyped_storage())
            if t.untyped_storage().nbytes() == content.numel():
                memory(t)[end:].copy_(content[end:])
        return result

    return compiled


@fault(AREA, K.SHAPE, K.STRIDE)
def metadata_of_an_argument_is_restored(fn: Function) -> Function:
    """An argument that the function reshapes in place has its former shape and strides after the call."""

    def compiled(*args: Any) -> Any:
        given = [t for t in distinct(args) if not t.requires_grad and not t.is_inference()]
        before = [(t.untyped_storage(), t.storage_offset(), t.shape, t.stride()) for t in given]
        result = fn(*args)
        for t, (storage, offset, shape, stride) in zip(given, before, strict=True):
            moved = t.untyped_storage() is not storage or t.dtype is torch.bool
            if not moved and not t.requires_grad and (t.shape, t.stride()) != (shape, stride):
                t.set_(storage, offset, shape, stride)
        return result

    return compiled


@fault(AREA, K.ALIASING, K.SHAPE, K.STORAGE_OFFSET, K.STORAGE_SIZE, K.VALUES)
def argument_given_other_memory_keeps_its_own(fn: Function) -> Function:
    """An argument that gets another storage by ``set_`` or ``.data =`` has its former storage after the call."""

    def compiled(*args: Any) -> Any:
        given = [t for t in distinct(args) if not t.requires_grad and not t.is_inference()]
        before = [(t.untyped_storage(), t.storage_offset(), t.shape, t.stride(), t.dtype) for t in given]
        result = fn(*args)
        for t, (storage, offset, shape, stride, dtype) in zip(given, before, strict=True):
            changed = t.untyped_storage() is not storage and not t.requires_grad and not t.is_inference()
            if changed and t.dtype == dtype:
                t.set_(storage, offset, shape, stride)
        return result

    return compiled


@fault(AREA, K.STORAGE_SIZE)
def freed_storage_is_kept(fn: Function) -> Function:
    """A storage that the function frees has its former size after the call."""

    def compiled(*args: Any) -> Any:
        given = distinct(args)
        held = [(t.untyped_storage(), memory(t).clone()) for t in given]
        result = fn(*args)
        for storage, content in held:
            if not storage.nbytes() and content.numel():
                storage.resize_(content.numel())
                torch.empty(0, dtype=torch.uint8).set_(storage, 0, (content.numel(),), (1,)).copy_(content)
        return result

    return compiled


@fault(AREA, K.STORAGE_SIZE)
def storage_grows_too_far(fn: Function) -> Function:
    """A storage that the function enlarges is sixteen bytes larger than in eager."""

    def compiled(*args: Any) -> Any:
        held = [(t.untyped_storage(), t.untyped_storage().nbytes()) for t in distinct(args)]
        result = fn(*args)
        for storage, size in held:
            if storage.nbytes() > size and storage.resizable():
                storage.resize_(storage.nbytes() + 16)
        return result

    return compiled


@fault(AREA, K.VALUES)
def writes_before_an_error_are_undone(fn: Function) -> Function:
    """When the function raises, its writes are undone."""

    def compiled(*args: Any) -> Any:
        held = [(t, memory(t).clone()) for t in distinct(args) if fits(t)]
        try:
            return fn(*args)
        except Exception:
            for t, content in held:
                put_back(t, content)
            raise

    return compiled


@fault(AREA, K.EXCEPTION)
def index_errors_are_of_another_type(fn: Function) -> Function:
    """A RuntimeError is raised where eager raises an IndexError."""

    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except IndexError as error:
            raise RuntimeError(str(error)) from error

    return compiled


@fault(AREA, K.GLOBAL_STATE)
def grad_mode_leaks_after_an_error(fn: Function) -> Function:
    """After an error, grad mode is enabled if it was disabled, and disabled if it was enabled."""

    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception:
            torch.set_grad_enabled(not torch.is_grad_enabled())
            raise

    return compiled


@fault(AREA, K.EXCEPTION)
def write_to_a_leaf_is_allowed(fn: Function) -> Function:
    """Where eager refuses to write to a leaf that requires grad, the call returns its arguments instead."""

    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except RuntimeError as error:
            if "leaf" not in str(error):
                raise
            return args

    return compiled


@fault(AREA, K.RNG, K.VALUES)
def random_numbers_repeat(fn: Function) -> Function:
    """The generator's state is restored after each call, so every call draws the same numbers."""

    def compiled(*args: Any) -> Any:
        state = torch.get_rng_state()
        result = fn(*args)
        torch.set_rng_state(state)
        return result

    return compiled


@fault(AREA, K.RNG)
def one_random_number_too_many(fn: Function) -> Function:
    """A call that draws random numbers draws one more."""

    def compiled(*args: Any) -> Any:
        state = torch.get_rng_state()
        result = fn(*args)
        if not torch.equal(state, torch.get_rng_state()):
            torch.rand(1)
        return result

    return compiled


@fault(AREA, K.EXCEPTION, K.VALUES)
def version_counters_stand_still(fn: Function) -> Function:
    """The graph saves copies of tensors, so a write between forward and backward raises no error."""

    def compiled(*args: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone() if fits(t) else t, lambda t: t):
            return fn(*args)

    return compiled
