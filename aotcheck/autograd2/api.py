"""The entry points, under torch's names."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.config import OnUnsupported, compiling, config, count, log, prune
from aotcheck.autograd2.errors import GraphFailedError, SchemaError, UnsupportedError
from aotcheck.autograd2.frontend.bind import Bound, bind
from aotcheck.autograd2.frontend.fast import MISS, fast_call
from aotcheck.autograd2.frontend.key import Key, Met, key_of, words_of
from aotcheck.autograd2.ir.size import Dynamic
from aotcheck.autograd2.ir.structure import Const
from aotcheck.autograd2.partition import PartitionFunction, default_partition
from aotcheck.autograd2.runtime.compile import Compiler, Compilers, nop
from aotcheck.autograd2.specialize import Specialization, specialize
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.run import UserError

_MOST_FAST = _MOST_BUILT = 4
Fast = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class Compiled:
    """A function with its specializations.

    Args:
        dynamic: whether numbers are symbols: True all sizes of inputs but parameters; False none; True and None those
            numbers of tensors and of Python that were met with another value before.
    """

    def __init__(self, fn: Callable[..., Any], compilers: Compilers, dynamic: bool | None = None) -> None:
        self.fn = fn
        self.compilers = compilers
        self.dynamic = dynamic
        self.known: dict[Key, Specialization] = {}
        self.symbolic: dict[Any, list[Specialization]] = {}
        self.met = Met()
        self.gradients = False
        self.made = 0
        self.fast: list[Fast] = []
        self.built: weakref.WeakKeyDictionary[Specialization, int] = weakref.WeakKeyDictionary()
        self.warned: set[str] = set()
        self.words: list[str] = []

    def __getstate__(self) -> tuple[Any, ...]:
        """For copies and pickles, which have specializations of their own, and none yet."""
        return self.fn, self.compilers, self.dynamic

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Compiled.__init__(self, *state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function does with these arguments."""
        raised: str | None
        event = Event.GRAPH
        try:
            for fast in self.fast:
                if (result := fast(args, kwargs)) is not MISS:
                    return result
            return self._call(args, kwargs)
        except UserError as error:
            of_views = any(x in str(error.__cause__) for x in ("A view was created in", "is a view and its base"))
            raised, event = "", Event.NO_GRAD_VIEW if of_views else Event.KERNEL
        except GraphFailedError as error:
            if isinstance(error.__cause__, SchemaError):
                raise error.__cause__ from None
            raised = f"{type(error.__cause__).__name__}: {error.__cause__}"
        except UnsupportedError as error:
            count("refused", error.reason)
            if config().on_unsupported is not OnUnsupported.EAGER:
                raise
            self._warn(f"a function runs eagerly, as it is refused: {error}", 4)
            raised = None
        # The handlers are left first: an error of the function's has no context but its own.
        return self.fn(*args, **kwargs) if raised is None else self._original(args, kwargs, raised, event)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (foreign := _torch.foreign_state()) == "saved-tensor hooks":
            refuse(Event.FOREIGN, foreign)
        bound = None if foreign else self.bind(args, kwargs, self.gradients)
        if bound is None or bound.uninitialized:
            count("eager", foreign or "parameters that are not initialized")
            return self.fn(*args, **kwargs)
        found, bound = self.specialized(args, kwargs, bound)
        self._build(found, bound, args, kwargs)
        return found.run(bound)

    def _build(self, found: Specialization, bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make fast code for calls like this one, the second of its kind. A few are kept, the newest first."""
        times = self.built[found] = self.built.get(found, -1) + 1
        if 0 < times <= _MOST_BUILT and not self.gradients and not found.asks:
            keys = [(a.table, a.key) for a in found.signature.effects.assigned]
            assigned = [(table, key.value if isinstance(key, Const) else None) for table, key in keys]
            if made := fast_call(bound, args, kwargs, found.call, found.sources, found.fits, assigned):
                self.fast = [made, *self.fast[: _MOST_FAST - 1]]

    def specialized(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: Bound | None = None
    ) -> tuple[Specialization, Bound]:
        """The specialization for a call, made if there is none yet, and what the call brings.

        Raises:
            UnsupportedError: the function does what is refused.
            UserError: it raised an error of its own while it was traced.
        """
        bound = bound or self.bind(args, kwargs, self.gradients)
        key = key_of(bound, self.gradients)
        if (found := self._known(bound, key)) is not None:
            return found, bound
        with compiling:
            found = self._known(bound, key)  # another thread may have made it
            return (found, bound) if found is not None else self._compile(args, kwargs, bound, key)

    def specializations(self) -> list[Specialization]:
        """All that are kept: those for fixed sizes, the oldest first, then those with symbols, the newest first."""
        return [*self.known.values(), *(s for kind in self.symbolic.values() for s in kind)]

    def _known(self, bound: Bound, key: Key) -> Specialization | None:
        """The specialization for a call, if there is one. Those with symbols come second, the newest first."""
        found = self.known.get(key)
        if found is None and (symbolic := self.symbolic.get(key[0])):
            tensors, numbers = [t for _, t in bound.tensors], key[1][1]
            found = next((s for s in symbolic if s.fits is not None and s.fits(tensors, numbers)), None)
        return found

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], gradients: bool) -> Bound:
        """What a call brings."""
        with compiling:  # while another thread traces, there are replicas in the place of tensors
            bound = bind(self.fn, args, kwargs)
        for event, detail in bound.refused:
            refuse(Event[event], detail)
        if gradients:
            bound.add_gradients()
        return bound

    def _compile(self, args: Any, kwargs: Any, bound: Bound, key: Key) -> tuple[Specialization, Bound]:
        def binds(gradients: bool) -> Bound:
            return bound if gradients is self.gradients else self.bind(args, kwargs, gradients)

        made, needs = specialize(self.fn, args, kwargs, binds, self.compilers, self._dynamic(bound, key))
        count("compiled")
        self.made += 1
        if self.made == config().recompile_warning:
            name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
            said = f"{name} was compiled {self.made} times, for calls that differ; see aotcheck.explain"
            warnings.warn(said, stacklevel=5)
        if needs.gradients and not self.gradients:
            self.gradients, bound = True, self.bind(args, kwargs, True)
            key = key_of(bound, True)
            self._dynamic(bound, key)
        self._log(made, bound)
        if made.fits is None:
            self.known[key] = made
        else:
            self.symbolic.setdefault(key[0], []).insert(0, made)
            del self.symbolic[key[0]][config().cache_size :]
        for kept in (self.known, self.symbolic):
            prune(kept)
        return made, bound

    def _log(self, made: Specialization, bound: Bound) -> None:
        words = words_of(bound, self.gradients)
        log("guards", lambda: "\n".join([*words, *made.guards]))
        differs = [f"- {line}" for line in self.words if line not in words]
        differs += [f"+ {line}" for line in words if line not in self.words]
        if self.words:
            log("recompiles", lambda: "\n".join(differs))
        self.words = words

    def _dynamic(self, bound: Bound, key: Key) -> Dynamic:
        """Which numbers are symbols in the next specialization."""
        return frozenset() if self.dynamic is False else self.met.dynamic(bound, key, every=bool(self.dynamic))

    def _original(self, args: tuple[Any, ...], kwargs: dict[str, Any], raised: str, event: Event) -> Any:
        """What the original does on the real inputs, as its graph raised this, or, if it is empty, its trace did."""
        try:
            result = self.fn(*args, **kwargs)
        except Exception:
            if not raised:
                count("eager_after_user_error")
            raise
        count("refused", event.value[0])
        if raised:
            self._warn(f"a graph raised {raised}; the function, which raises nothing, ran in its place", 5)
        return result

    def _warn(self, said: str, level: int) -> None:
        """Say this once, of the line that called, so many frames away."""
        if said not in self.warned:
            self.warned.add(said)
            warnings.warn(said, RuntimeWarning, stacklevel=level)


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler | None = None,
    bw_compiler: Compiler | None = None,
    partition_fn: PartitionFunction | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool | None = None,
    enable_log: bool = True,
) -> Callable[..., Any]:
    """``fn`` compiled ahead of time, forward and backward; it does what ``fn`` does.

    Args:
        fn: takes and returns tensors, in any containers.
        fw_compiler: takes the forward graph and fake example inputs; returns what runs it. By default the graph runs.
        bw_compiler: the same for backward graphs; ``fw_compiler`` by default.
        partition_fn: cuts a joint graph in two, as ``default_partition`` does.
        decompositions: of ops that are to be made of others, what makes them.
        keep_inference_input_mutations: whether graphs without a backward write inputs themselves.
        inference_compiler: the same where no result requires grad; ``fw_compiler`` by default.
        dynamic: as of ``Compiled``.

    Other arguments are torch's and change nothing here.

    Raises:
        UnsupportedError: at a call, if ``fn`` does what is refused.
    """
    forward, partition = fw_compiler or nop, None if partition_fn is default_partition else partition_fn
    given = forward, bw_compiler or forward, inference_compiler or forward, decompositions, partition
    compiled = Compiled(fn, Compilers(*given, keep_inference_input_mutations), dynamic)

    @functools.wraps(fn)
    @_torch.hide_from_dynamo
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.aotcheck = compiled  # type: ignore[attr-defined]  # functions take attributes; explain reads it
    return call


class CompiledModule(nn.Module):
    """A module whose forward runs compiled; its parameters, buffers and modules are those of ``orig_module``."""

    def __init__(self, mod: nn.Module, compiled: Compiled) -> None:
        super().__init__()
        self.orig_module = mod
        self.aotcheck = compiled  # for explain

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module does with these arguments."""
        return self.aotcheck(*args, **kwargs)


def aot_module(mod: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """A module that runs ``mod`` compiled, with its parameters and buffers. Arguments as of ``aot_function``."""
    return CompiledModule(mod, vars(aot_function(mod, *args, **kwargs))["aotcheck"])


def aot_module_simplified(
    mod: Any,
    args: Sequence[Any],
    fw_compiler: Compiler | None = None,
    bw_compiler: Compiler | None = None,
    partition_fn: PartitionFunction | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """``mod`` compiled at once for ``args``, without effects of its own; what is returned takes arguments one by one.

    Args:
        mod: a module, or another function, of flat arguments.
        args: tensors and plain values. Fake tensors only say how arguments look: then the first call compiles.
        options: ``dynamic``, and arguments of torch's that change nothing here.

    Returns:
        A function with ``zero_grad``, ``named_parameters`` and ``named_buffers`` of ``mod``.

    Raises:
        UnsupportedError: ``mod`` does what is refused, or has a fake parameter.
    """
    compilers, keeps = (fw_compiler, bw_compiler, partition_fn, decompositions), keep_inference_input_mutations
    made = aot_function(mod, *compilers, 0, keeps, inference_compiler, dynamic=options.get("dynamic"))
    compiled: Compiled = vars(made)["aotcheck"]
    if isinstance(mod, nn.Module):
        for name, t in (*mod.named_parameters(), *mod.named_buffers()):
            if isinstance(t, _torch.FakeTensor):
                refuse(Event.FAKE, name)
        vars(made).update({name: getattr(mod, name) for name in ("zero_grad", "named_parameters", "named_buffers")})
    if not any(isinstance(a, _torch.FakeTensor) for a in args) and not _torch.foreign_state():
        with contextlib.suppress(UserError):
            compiled.specialized(tuple(args), {})
    return made


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """``f`` that takes its arguments as one list, as what a compiler returns may."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of such functions
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """``compiler``, with what it returns boxed."""
    return lambda module, example_inputs: make_boxed_func(compiler(module, example_inputs))


compiled_function = aot_function
compiled_module = aot_module
