"""The function mode under which the user's function runs: what no dispatch shows, and no method of replicas."""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn.functional import ctc_loss, max_pool1d, one_hot

from aotcheck import _torch
from aotcheck.autograd.eager_graph.formulas import asking
from aotcheck.autograd.errors import EagerRaises, RetraceWithCaptured, RunsThisOnce, UnsupportedError, higher_order_op
from aotcheck.autograd.ir.trace import is_users
from aotcheck.autograd.ops.autocast_forms import PAST_AUTOCAST
from aotcheck.autograd.ops.tracer import Tracer
from aotcheck.autograd.replicas.hooks import HookKind, NotedHook
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.state.gradients import GRADIENT_ACCESS
from aotcheck.autograd.tensors.subclasses import is_wrapper, leaves_of
from aotcheck.autograd.tracing.accumulators import settle_accumulators
from aotcheck.autograd.tracing.caller_graph import ENGINE, roots_of
from aotcheck.autograd.tracing.taken_over import taking_over

_MET = (Tensor, torch.Generator)
_requires_grad: Any = Tensor.requires_grad
_DETACHING = (Tensor.detach_, torch.detach_)
_TELLING = (*_DETACHING, Tensor.requires_grad_, _requires_grad.__set__)
_HOOKS = {Tensor.register_hook: HookKind.GRADIENT, Tensor.register_post_accumulate_grad_hook: HookKind.ACCUMULATED}
_MAX_POOL1D = (torch.max_pool1d, max_pool1d)
_ASKING = (*_torch.ABOUT_VIEWS, *_torch.ABOUT_VERSIONS)
_SPECIAL = (*_MAX_POOL1D, one_hot, ctc_loss, *_torch.CONTROL_FLOW)
_LOOKED_AT = frozenset((*GRADIENT_ACCESS, *_HOOKS, *_TELLING, *_ASKING, *PAST_AUTOCAST, *ENGINE, *_SPECIAL))


def _weakly(real: Any) -> Callable[[], Any]:
    """A weak reference; a strong one of what can have none, as generators of torch 2.11."""
    try:
        return weakref.ref(real)
    except TypeError:
        return lambda: real


class StandIns:
    """The replicas of tensors and generators that the function reaches by itself; keeps none of those alive.

    A backward may be traced long after the call, when another tensor has the place, and so the id, of one that ended.
    """

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()) -> None:
        self._by_id = {id(real): (_weakly(real), replica) for real, replica in pairs if isinstance(real, _MET)}
        self._met: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def of(self, a: Any) -> Any:
        """What stands for ``a``; itself if nothing does."""
        found = self._by_id.get(id(a))
        if found is None or found[0]() is not a:
            return a
        self._met.add(id(a))
        return found[1]

    def forget_unmet(self, reals: Iterable[Any]) -> None:
        """Let go of those of ``reals`` that were not met: ``swap_tensors`` refuses where there are weak references."""
        for real in reals:
            if id(real) not in self._met:
                self._by_id.pop(id(real), None)


def _refuse_meta(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise UnsupportedError where the result of ``func`` would be on meta, where all that a trace makes is.

    What our own code makes there it makes on ``_torch.META``, that very object.
    """
    if func is Tensor.to:
        asked = (*args, *kwargs.values())
    elif (device := kwargs.get("device")) is not None:
        asked = (device,)
    else:
        asked = (_torch.default_device(),) if _torch.makes_on_default_device(func) else ()
    devices = [a for a in asked if type(a) in (torch.device, str) and a is not _torch.META]
    if any(str(a).partition(":")[0] == "meta" for a in devices):
        raise UnsupportedError("device", "the function makes a tensor on meta, which has no data to compute with")


class Substitution(_torch.FunctionMode):
    """Gives the function replicas in place of the captured tensors it meets, and tells of the backwards it calls.

    It also notes, of wrappers, what replicas note by their own methods: hooks, that gradients are read and written, and
    that they are told to require grad, or no more. What is ``not_used``, by id, raises RunsThisOnce where it is: see
    Note [What backwards find around them].
    """

    def __init__(
        self, replicas: StandIns, tracer: Tracer, not_used: Mapping[int, Tensor] = MappingProxyType({})
    ) -> None:
        super().__init__()
        self.not_used = not_used
        self.replicas = replicas
        self.tracer = tracer
        self.kernels = tracer.kernels

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.kernels.reshaped_leaves:
            settle_accumulators(self.tracer)
        if self.not_used:
            self._check_used((*args, *(kwargs or {}).values()))
        if func is Tensor.to or _torch.function_mode_depth() or (kwargs and "device" in kwargs):
            _refuse_meta(func, args, kwargs or {})
        if func not in _LOOKED_AT:
            return self._on_replicas(func, args, kwargs or {})
        if func in _torch.CONTROL_FLOW:
            raise higher_order_op(_torch.op_name(func))
        if func in GRADIENT_ACCESS:
            t = self._swap(args[0])
            if not self._is_traced(t):
                raise RetraceWithCaptured(t)
            self.kernels.watcher.on_gradient(t)
            self.kernels.inner.on_gradient(t)
        if func in _torch.ABOUT_VIEWS and is_users(sys._getframe(1)):
            self.kernels.watcher.on_view_asked(self._swap(args[0]))
        if func in _torch.ABOUT_VERSIONS and is_users(sys._getframe(1)):
            self.kernels.watcher.on_version_asked(self._swap(args[0]))
        if func in _HOOKS:
            t = self._swap(args[0])
            if is_wrapper(t) and self._is_traced(t):
                hook = args[1] if len(args) > 1 else kwargs["hook"]
                noted = NotedHook(t, self.kernels, hook, _HOOKS[func])
                return noted.installed(func(t, noted.registered))
        if func in _DETACHING:
            func, args, kwargs = Tensor.detach_, (self._swap((*args, *(kwargs or {}).values())[0]),), {}
            if type(args[0]) is Replica:
                return Replica.detach_(args[0])
        if func in _TELLING and is_wrapper(args[0]):
            outside = not torch.is_inference_mode_enabled()
            if func in _DETACHING and outside and id(args[0]) in self.kernels.stand_for_views:
                raise EagerRaises("a view is detached in place")
            before = args[0].requires_grad
            given = func(*args, **(kwargs or {}))
            self._note_telling(args[0], before)
            return given
        if func in PAST_AUTOCAST:
            self.tracer.past_autocast = True
            try:
                return func(*map(self._swap, args), **(kwargs or {}))
            finally:
                self.tracer.past_autocast = False
        if func in ENGINE:  # what custom backwards do in there comes here too
            kwargs = {name: self._swap(a) for name, a in (kwargs or {}).items()}
            args = tuple([self._swap(a) for a in args])
            instead = self.kernels.watcher.on_backward(func, args, kwargs)
            self.kernels.inner.on_backward(func, args, kwargs)
            accumulates = func is torch.autograd.backward and self.kernels.function_runs
            inside = self.kernels.function_runs and func is not Tensor.backward  # which calls torch.autograd.backward
            starts = [_node_of(x) for x in roots_of(args, kwargs)] if inside else []
            with contextlib.ExitStack() as stack:
                stack.enter_context(self)
                if starts and accumulates:
                    stack.enter_context(taking_over(self.tracer, starts))
                if starts:
                    stack.enter_context(asking([n for n in starts if n is not None], self.tracer.divides))
                found = instead(*args, **kwargs) if instead else _torch.past_function_modes(func, args, kwargs)
            if accumulates:
                self.kernels.watcher.after_backward()
            return found
        if func is ctc_loss:
            return self._ctc_loss(*args, **(kwargs or {}))
        if func in _MAX_POOL1D:
            return self._max_pool1d(func, args, kwargs or {})
        if func is one_hot:
            encoded = self._one_hot(*args, **(kwargs or {}))
            if encoded is not None:
                return encoded
        return self._on_replicas(func, args, kwargs or {})

    def _on_replicas(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call ``func`` as the program would on replicas: a method is theirs where they have one."""
        if not self.replicas:
            self._check_met(func, args)
            return func(*args, **kwargs)
        swapped = [self._swap(a) for a in args]
        self._check_met(func, swapped)
        given = {k: self._swap(a) for k, a in kwargs.items()}
        if swapped and swapped[0] is not args[0] and type(swapped[0]) is Replica:
            if type(func) is types.MethodWrapperType and func.__name__ == "__set__":
                return setattr(swapped[0], _attribute_of(func), *swapped[1:])
            func = _METHODS.get(func, func)
        return func(*swapped, **given)

    def _check_met(self, func: Any, args: Sequence[Any]) -> None:
        """What is no argument yet is not to be changed by a trace; that it is asked for its geometry is noted."""
        for a in args:
            real = type(a) in (Tensor, torch.nn.Parameter) and self.kernels.function_runs
            real = real and not a.is_meta  # stand-ins of views that autograd refuses are no replicas
            if not real or _torch.functorch_active() or _torch.is_of_transform(a):  # whose tensors are of no class
                continue
            if not _only_looks(func):
                raise RetraceWithCaptured(a)
            self.kernels.looked_at[id(a)] = a

    def _ctc_loss(
        self,
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Tensor:
        """``ctc_loss``, of whose lengths code of torch's makes a tensor where it finds that there is no data."""
        lengths = [self._swap(x) for x in (input_lengths, target_lengths)]
        before: Any
        after: Any
        before, after = (x.tolist() if isinstance(x, Tensor) else x for x in lengths)
        given = self._swap(log_probs), self._swap(targets)
        if reduction != "mean":
            return ctc_loss(*given, before, after, blank, reduction, zero_infinity)
        losses = ctc_loss(*given, before, after, blank, "none", zero_infinity)
        return (losses / torch.tensor(after, dtype=losses.dtype, device=losses.device).clamp_min_(1)).mean()

    def _max_pool1d(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``max_pool1d``, which where no gradients are recorded has a kernel of its own for plain tensors alone."""
        found = self._on_replicas(func, args, kwargs)
        t = self._swap(args[0] if args else kwargs["input"])
        alone = type(t) is Replica and t.device.type == "cpu" and not (t.requires_grad and torch.is_grad_enabled())
        if not alone or type(found) is not Replica:
            return found
        return torch.ops.aten._unsafe_view(found, found.shape) if found.is_contiguous() else found.contiguous()

    def _one_hot(self, tensor: Any, num_classes: int = -1) -> Tensor | None:
        """``one_hot`` with its check of the values left to the graph; None where it gives a shape, or raises."""
        t = self._swap(tensor)
        if type(t) is not Replica or t.dtype is not torch.int64 or t.device.type != "cpu":
            return None
        if num_classes < 1 or not t.numel() or (t.is_inference() and not torch.is_inference_mode_enabled()):
            return None
        with torch.no_grad():
            self.tracer.expect(((t >= 0) & (t < num_classes)).all())
        return torch.zeros(*t.shape, num_classes, dtype=t.dtype).scatter_(-1, t.unsqueeze(-1), 1)

    def _check_used(self, given: Iterable[Any]) -> None:
        for a in given:
            if id(a) in self.not_used:
                raise RunsThisOnce("kept tensor", "its backward uses a tensor that the call keeps around it")
            if type(a) in (list, tuple):
                self._check_used(a)

    def exchange(self, a: Any) -> Any:
        """What a custom Function is applied to in place of ``a``, which autograd is not to take for a leaf."""
        if self.not_used:
            self._check_used((a,))
        given = self._swap(a)
        if _torch.functorch_active():  # whose tensors are of no class
            return given
        if given is a and type(a) in (Tensor, torch.nn.Parameter) and a.requires_grad and self.kernels.function_runs:
            raise RetraceWithCaptured(a)
        return given

    def _note_telling(self, t: Tensor, before: bool) -> None:
        """Note when the wrapper ``t`` was cut from its history, and when it was told to require grad after that."""
        kernels = self.kernels
        if before and not t.requires_grad:
            kernels.detached[id(t)] = kernels.now()
        elif t.requires_grad and not before and id(t) in kernels.detached:
            kernels.required[id(t)] = kernels.now()

    def _is_traced(self, t: Tensor) -> bool:
        return all(type(x) is Replica for x in leaves_of(t))

    def _swap(self, a: Any) -> Any:
        if isinstance(a, _MET):
            return self.replicas.of(a)
        if type(a) in (list, tuple):
            return type(a)(self._swap(x) for x in a)
        return a


def _attribute_of(accessor: Any) -> str:
    """The name of the attribute that ``__get__`` or ``__set__`` of its descriptor reads or assigns."""
    name: str = accessor.__self__.__name__
    return name


def _only_looks(func: Any) -> bool:
    """Whether it tells of a tensor what no data is needed for, and changes nothing."""
    if type(func) is types.MethodWrapperType:
        return func.__name__ == "__get__" and _attribute_of(func) not in _TENSORS
    return func in _LOOKS


_TENSORS = frozenset(("data", "T", "mT", "H", "mH", "real", "imag", "_base"))  # what these attributes are
_LOOKS = frozenset(
    getattr(Tensor, name)
    for name in (
        "size",
        "dim",
        "numel",
        "stride",
        "is_floating_point",
        "is_complex",
        "element_size",
        "__len__",
        "__hash__",
    )
)
_METHODS = {
    getattr(Tensor, name): method
    for name, method in vars(Replica).items()
    if type(method) is types.FunctionType and hasattr(Tensor, name) and (name[0] != "_" or name == "__array__")
}


def _node_of(x: Any) -> Any:
    """The node at which a backward from ``x`` begins; None for a leaf, which takes over nothing that is its own."""
    return x.node if isinstance(x, GradientEdge) else _torch.grad_fn_of(x)
