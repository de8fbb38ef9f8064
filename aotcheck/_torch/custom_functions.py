"""What custom autograd Functions are given and do with their context, told to those who want to know."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from aotcheck._torch.compilers import past_dynamo
from aotcheck._torch.nodes import grad_fn_of


class _Noted:
    """A member of a class of torch's whose use is told to those who asked for it, on their own threads.

    ``member``, which is given this object and does what torch's own does, takes its place when somebody first asks, and
    stays: to change a class of which all custom Functions are made empties what Python caches of each of them.
    """

    def __init__(self, owner: Any, name: str, member: Callable[[_Noted], Any]) -> None:
        self.owner = owner
        self.name = name
        self.member = member(self)
        self._notes: list[tuple[int, Callable[[Any], None]]] = []
        self._lock = threading.Lock()

    def tell(self, ctx: Any) -> None:
        """``ctx`` is used."""
        for thread, note in tuple(self._notes):
            if thread == threading.get_ident():
                note(ctx)

    def to(self, note: Callable[[Any], None]) -> _Noting:
        """``note`` is called on this thread inside."""
        return _Noting(self, (threading.get_ident(), note))

    def begin(self, entry: tuple[int, Callable[[Any], None]]) -> None:
        """Notes go to ``entry``, a thread and who is told there, too."""
        if vars(self.owner).get(self.name) is not self.member:
            with self._lock:
                setattr(self.owner, self.name, self.member)
        self._notes.append(entry)  # at once for all threads, as its removal is

    def end(self, entry: tuple[int, Callable[[Any], None]]) -> None:
        """They do no longer."""
        self._notes.remove(entry)


class _Noting:
    """See :meth:`_Noted.to`."""

    __slots__ = ("_entry", "_noted")

    def __init__(self, noted: _Noted, entry: tuple[int, Callable[[Any], None]]) -> None:
        self._noted, self._entry = noted, entry

    def __enter__(self) -> None:
        self._noted.begin(self._entry)

    def __exit__(self, *exception: object) -> None:
        self._noted.end(self._entry)


_saved_tensors: Any = torch._C._FunctionBase.__dict__["saved_tensors"]


def _asking(noted: _Noted) -> Any:
    def saved_tensors(node: Any) -> Any:
        noted.tell(node)
        return _saved_tensors.__get__(node)

    return property(past_dynamo(saved_tensors))


def _writing(noted: _Noted) -> Any:
    own = torch.autograd.function.FunctionCtx.mark_dirty

    def mark_dirty(ctx: Any, *args: Tensor) -> None:
        own(ctx, *args)
        noted.tell(ctx)

    return past_dynamo(mark_dirty)


def _applying(noted: _Noted) -> Any:
    owner = torch.autograd.function._SingleLevelFunction

    def apply(cls: type, *args: Any) -> Any:
        given = list(args)
        noted.tell(given)
        return super(owner, cls).apply(*given)  # type: ignore[misc]

    return classmethod(past_dynamo(apply))


def _hooking(own: Callable[[Any, Any], Any]) -> Callable[[_Noted], Any]:
    def member(noted: _Noted) -> Any:
        def setup(hook: Any, args: Any) -> Any:
            given = own(hook, args)
            if given is not args:
                tensors = [t for t in (given if isinstance(given, tuple) else (given,)) if isinstance(t, Tensor)]
                nodes = [grad_fn_of(t) for t in tensors]
                found = [n for n in nodes if getattr(n, "_forward_cls", None) is BackwardHookFunction]
                if found:
                    noted.tell((hook, found[0]))
            return given

        return past_dynamo(setup)

    return member


# Here comes ``Function.apply`` when it was bound before, too.
_applied = _Noted(torch.autograd.function._SingleLevelFunction, "apply", _applying)

_hooked_before = _Noted(BackwardHook, "setup_input_hook", _hooking(BackwardHook.setup_input_hook))

_hooked_behind = _Noted(BackwardHook, "setup_output_hook", _hooking(BackwardHook.setup_output_hook))

_asked = _Noted(torch.autograd.function.BackwardCFunction, "saved_tensors", _asking)

_dirtied = _Noted(torch.autograd.function.FunctionCtx, "mark_dirty", _writing)


def saved_by_custom(node: Any) -> tuple[Tensor, ...]:
    """What a custom Function saved; nobody is told that its node was asked for that."""
    return cast("tuple[Tensor, ...]", _saved_tensors.__get__(node))


def noting_who_asks(note: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """On this thread, ``note`` is called inside with each node of a custom Function that is asked for what it saved."""
    return _asked.to(note)


def noting_who_writes(note: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """On this thread, ``note`` is called inside with each node of a custom Function that marks what it wrote."""
    return _dirtied.to(note)


class NotingModuleHooks:
    """On this thread, ``note`` is called inside where a module has hooks for its backward, before it runs and after.

    It is given what is the same both times, and the node of autograd's graph that gradients come by there; both run
    parts of the same hooks, which tell each other of what came.
    """

    __slots__ = ("_before", "_behind")

    def __init__(self, note: Callable[[Any, Any], None]) -> None:
        def tell(told: tuple[Any, Any]) -> None:
            note(*told)

        self._before, self._behind = _hooked_before.to(tell), _hooked_behind.to(tell)

    def __enter__(self) -> None:
        self._before.__enter__()
        self._behind.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._behind.__exit__(*exception)
        self._before.__exit__(*exception)


def without_module_hooks(hooks: Iterable[Any]) -> Callable[[], None]:
    """None of ``hooks``, as ``NotingModuleHooks`` tells of them, calls those of its module from now on.

    Returns what puts an end to that.
    """
    before = [(h, h.user_hooks, h.user_pre_hooks, h.grad_outputs) for h in hooks]
    for h, *_ in before:
        h.user_hooks, h.user_pre_hooks, h.grad_outputs = [], [], None

    def end() -> None:
        for h, hooks_of_user, hooks_before, came in before:
            h.user_hooks, h.user_pre_hooks, h.grad_outputs = hooks_of_user, hooks_before, came

    return end


def exchanging_arguments(exchange: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """On this thread, custom Functions are applied inside to what ``exchange`` makes of their arguments."""

    def note(given: list[Any]) -> None:
        given[:] = [exchange(a) for a in given]

    return _applied.to(note)


def skip_backward(node: Any) -> None:
    """The custom Function whose node this is gives no gradients from now on, whatever it is given."""
    node.apply = lambda *grads: (None,) * 1024  # more than it took arguments: torch drops what is too many


def run_backward_again(node: Any) -> None:
    """The custom Function whose node this is gives gradients again."""
    del node.apply
