"""Which kernels run, Dynamo kept out, FX graphs of other ops or of lists, and the fastest call of an op."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.traceback import preserve_node_meta
from torch.optim.optimizer import _get_value, _stack_if_compiling
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = [
    "as_joint", "auto_functionalized", "can_auto_functionalize", "compiling", "decomposed", "hide_from_dynamo",
    "meta_kernels", "without_dynamo",
]  # fmt: skip

_C = torch._C


class meta_kernels:
    """Inside, ops on tensors of any device run their meta kernels: sizes and strides only, no data."""

    __slots__ = ("_dispatch", "_keys")

    def __enter__(self) -> None:
        self._dispatch = _C._DisableTorchDispatch()
        self._dispatch.__enter__()
        self._keys = _C._PreserveDispatchKeyGuard()
        self._keys.__enter__()
        _C._set_meta_in_tls_dispatch_include(True)

    def __exit__(self, *_: object) -> None:
        self._keys.__exit__(None, None, None)
        self._dispatch.__exit__(None, None, None)


_frames: Any = torch._C._dynamo.eval_frame
_SKIP = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.SKIP)
_F = TypeVar("_F", bound=Callable[..., Any])


def hide_from_dynamo(function: _F) -> _F:
    """``function``, which Dynamo is not to trace, nor anything that it calls."""
    hidden: Any = function
    hidden._torchdynamo_disable = True
    _frames.set_code_exec_strategy(hidden.__code__, _SKIP)
    return function


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Inside, ``is_compiling()`` is true, and the function mode entered next is unseen by layers with a fast way.

    Optimizers are told otherwise where they read their steps: of tensors they would compute with other last bits.
    """
    flag, before, asked = torch.compiler, torch.compiler._is_compiling_flag, torch.overrides.has_torch_function
    is_compiling, eager = torch.compiler.is_compiling, {f.__code__ for f in (_get_value, _stack_if_compiling)}
    own = torch._C._len_torch_function_stack() + 1 if torch.__version__ >= "2.13" else 0  # before, they know no symbols

    def hidden(args: Any) -> bool:
        return asked(args) and torch._C._len_torch_function_stack() != own

    flag._is_compiling_flag, torch.overrides.has_torch_function = True, hidden
    flag.is_compiling = lambda: is_compiling() and sys._getframe(1).f_code not in eager
    try:
        yield
    finally:
        flag._is_compiling_flag, torch.overrides.has_torch_function = before, asked
        flag.is_compiling = is_compiling


def without_dynamo() -> contextlib.AbstractContextManager[Any]:
    """Inside, what was given to ``torch.compile`` runs as it is; Dynamo would remember what it met in a trace."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


def decomposed(module: fx.GraphModule, fakes: Sequence[Any], table: Any) -> fx.GraphModule:
    """The graph with ops of ``table`` made of others; inputs keep their names, nodes the line of the user's program."""
    names = [n.target for n in module.graph.find_nodes(op="placeholder")]
    run = fx.Interpreter(module).run
    with preserve_node_meta(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        made = make_fx(lambda *args: run(*args), decomposition_table=dict(table))(*fakes)
    for node in made.graph.nodes:
        if node.name in names and node.op != "placeholder":
            node._rename(f"{node.name}_1")
    for node, name in zip(made.graph.find_nodes(op="placeholder"), names, strict=True):
        node.target = node.name = name
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def as_joint(module: fx.GraphModule, lists: dict[str, int]) -> fx.GraphModule:
    """A joint graph called, as partition functions ask, with a list for each of these."""
    spec = pytree.tree_flatten((tuple([0] * count for count in lists.values()), {}))[1]
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo([*lists], spec, None)))
    module.recompile()
    return module


TENSOR = type("TENSOR", (), {})()
"""Stands for a tensor among the arguments of an example."""

_WHERE: tuple[Any, ...] = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase)
_EXAMPLES = [(shape, dtype) for dtype in (torch.float32, torch.int64) for shape in ((1,), ())]
_known: dict[Any, Any] = {}


class _Met(Exception):
    """Ends a call as soon as it is known which op it is."""


class _FirstOp(TorchDispatchMode):
    """Stops at the first op and remembers it with its arguments."""

    met: Any = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met = (func, args, kwargs or {})
        raise _Met


def quick_op(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], example: Any = lambda a: a) -> Any:
    """What calls ``op`` fastest with arguments of these types; ``example`` gives such ones, ``TENSOR`` for tensors.

    The functions behind ``torch.add`` and ``Tensor.view`` parse their arguments faster than an OpOverload does, but
    choose the overload by what they are given. They are used where they were seen to choose ``op`` for these kinds of
    arguments, whatever the tensors' dimensions and dtypes.
    """
    if not isinstance(op, torch._ops.OpOverload):
        return op
    key = (op, _kinds(args), tuple(kwargs), _kinds(tuple(kwargs.values())))
    if (found := _known.get(key)) is None:
        name = op.overloadpacket.__name__
        functions = [getattr(x, name) for x in _WHERE if hasattr(x, name)] if op.namespace == "aten" else []
        with _disable_current_modes():
            found = next((f for f in functions if _chooses(f, op, example(args), example(kwargs))), op._op)
        _known[key] = found
    return found


def _kinds(a: Any) -> Any:
    return (type(a), tuple(map(_kinds, a))) if isinstance(a, (list, tuple)) else type(a)


def _chooses(function: Any, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether ``function`` calls ``op``, with the very same arguments."""
    leaves, spec = pytree.tree_flatten((list(args), kwargs))
    places = [k for k, x in enumerate(leaves) if x is TENSOR]
    choices = [[e] * len(places) for e in _EXAMPLES]
    choices += [[e if k == j else _EXAMPLES[0] for j in places] for k in places for e in _EXAMPLES[1::2]]
    for choice in choices[:16]:
        filled = list(leaves)
        for k, (shape, dtype) in zip(places, choice, strict=True):
            filled[k] = torch.empty(shape, dtype=dtype)
        found, wanted = (_first_op(f, *pytree.tree_unflatten(filled, spec)) for f in (function, op))
        if found is None or wanted is None or found[0] is not op or wanted[0] is not op:
            return False
        ours, theirs = (pytree.tree_leaves(x[1:]) for x in (found, wanted))
        if list(found[2]) != list(wanted[2]) or len(ours) != len(theirs) or not all(map(_alike, ours, theirs)):
            return False
    return True


def _alike(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b))


def _first_op(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    mode = _FirstOp()
    with contextlib.suppress(Exception), mode, torch.no_grad():
        function(*args, **kwargs)
    return mode.met
