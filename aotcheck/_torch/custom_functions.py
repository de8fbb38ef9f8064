"""What custom autograd Functions are given and do with their context, told to those who want to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from aotcheck._torch.compilers import past_dynamo
from aotcheck._torch.nodes import grad_fn_of


class _Here(threading.local):
    """Who is told on this thread."""

    def __init__(self) -> None:
        self.told: list[ToldOfFunctions] = []


_here = _Here()


class ToldOfFunctions:
    """On this thread, it is told inside what custom autograd Functions do.

    ``asked`` is called with each node of one that is asked for what it saved, ``written`` with each that marks what it
    wrote. They are applied to what ``exchange`` makes of each of their arguments. ``hooked`` is called where a module
    has hooks for its backward, before it runs and after: with what is the same both times, and the node of autograd's
    graph that gradients come by there; both run parts of the same hooks, which tell each other of what came.
    """

    __slots__ = ("asked", "exchange", "hooked", "written")

    def __init__(
        self,
        asked: Callable[[Any], None] | None = None,
        written: Callable[[Any], None] | None = None,
        exchange: Callable[[Any], Any] | None = None,
        hooked: Callable[[Any, Any], None] | None = None,
    ) -> None:
        self.asked, self.written, self.exchange, self.hooked = asked, written, exchange, hooked

    def __enter__(self) -> None:
        if self.asked is not None:
            _asked.put()
        if self.written is not None:
            _dirtied.put()
        if self.exchange is not None:
            _applied.put()
        if self.hooked is not None:
            _hooked_before.put()
            _hooked_behind.put()
        _here.told.append(self)

    def __exit__(self, *exception: object) -> None:
        _here.told.remove(self)


class _Member:
    """A member of a class of torch's that takes the place of torch's own, does what that does, and tells of it.

    It does when somebody first asks, and stays: to change a class of which all custom Functions are made empties what
    Python caches of each of them.
    """

    __slots__ = ("_member", "_name", "_owner")

    def __init__(self, owner: Any, name: str, member: Any) -> None:
        self._owner, self._name, self._member = owner, name, member

    def put(self) -> None:
        """Put it there, if it is not there yet."""
        if self._owner.__dict__.get(self._name) is not self._member:
            setattr(self._owner, self._name, self._member)


_saved_tensors: Any = torch._C._FunctionBase.__dict__["saved_tensors"]
_mark_dirty = torch.autograd.function.FunctionCtx.mark_dirty


def saved_tensors(node: Any) -> Any:
    """As torch's own, told."""
    for told in tuple(_here.told):
        if told.asked is not None:
            told.asked(node)
    return _saved_tensors.__get__(node)


def mark_dirty(ctx: Any, *args: Tensor) -> None:
    """As torch's own, told."""
    _mark_dirty(ctx, *args)
    for told in tuple(_here.told):
        if told.written is not None:
            told.written(ctx)


def class_applied(method: object) -> type | None:
    """The custom Function whose ``apply`` a method of C is; None for any other.

    From torch 2.15 on that is one that was bound before this module was imported.
    """
    owner = getattr(method, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    """As torch's own, of arguments that are exchanged."""
    given = list(args)
    for told in tuple(_here.told):
        if told.exchange is not None:
            given = [told.exchange(a) for a in given]
    return _own_apply.__get__(None, cls)(*given, **kwargs)


def _setup_told(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def setup(hook: Any, args: Any) -> Any:
        given = own(hook, args)
        if given is not args and _here.told:
            tensors = [t for t in (given if isinstance(given, tuple) else (given,)) if isinstance(t, Tensor)]
            nodes = [grad_fn_of(t) for t in tensors]
            found = [n for n in nodes if getattr(n, "_forward_cls", None) is BackwardHookFunction]
            for told in tuple(_here.told) if found else ():
                if told.hooked is not None:
                    told.hooked(hook, found[0])
        return given

    return setup


_own_apply: Any = torch._C._FunctionBase.__dict__["apply"]
# Up to torch 2.14 ``Function.apply`` comes here when it was bound before, too. From 2.15 on it is this method of C, and
# what has bound it by now never comes here: see ``class_applied``.
_is_of_c = torch.autograd.Function.__dict__["apply"] is _own_apply
_applies = torch.autograd.Function if _is_of_c else torch.autograd.function._SingleLevelFunction
_applied = _Member(_applies, "apply", classmethod(past_dynamo(apply)))
if _is_of_c:
    _applied.put()
_hooked_before = _Member(BackwardHook, "setup_input_hook", past_dynamo(_setup_told(BackwardHook.setup_input_hook)))
_hooked_behind = _Member(BackwardHook, "setup_output_hook", past_dynamo(_setup_told(BackwardHook.setup_output_hook)))
_asked = _Member(torch.autograd.function.BackwardCFunction, "saved_tensors", property(past_dynamo(saved_tensors)))
_dirtied = _Member(torch.autograd.function.FunctionCtx, "mark_dirty", past_dynamo(mark_dirty))


def saved_by_custom(node: Any) -> tuple[Tensor, ...]:
    """What a custom Function saved; nobody is told that its node was asked for that."""
    return cast("tuple[Tensor, ...]", _saved_tensors.__get__(node))


def without_module_hooks(hooks: Iterable[Any]) -> Callable[[], None]:
    """None of ``hooks``, as ``ToldOfFunctions`` is told of them, calls those of its module from now on.

    Returns what puts an end to that.
    """
    before = [(h, h.user_hooks, h.user_pre_hooks, h.grad_outputs) for h in hooks]
    for h, *_ in before:
        h.user_hooks, h.user_pre_hooks, h.grad_outputs = [], [], None

    def end() -> None:
        for h, hooks_of_user, hooks_before, came in before:
            h.user_hooks, h.user_pre_hooks, h.grad_outputs = hooks_of_user, hooks_before, came

    return end


def skip_backward(node: Any) -> None:
    """The custom Function whose node this is gives no gradients from now on, whatever it is given."""
    node.apply = lambda *grads: (None,) * 1024  # more than it took arguments: torch drops what is too many


def run_backward_again(node: Any) -> None:
    """The custom Function whose node this is gives gradients again."""
    del node.apply
