"""How behaviour is checked: the same session runs twice, eager and compiled, and whatever is observed must be equal.

A *session* is what a caller does: a generator that is given ``compile``, builds its tensors, calls, calls backward,
writes through what it got, and yields whatever it wants looked at. Nothing expected is ever written down: it is what
the session yields when ``compile`` is the identity.

    def session(compile):
        x = leaf(3)
        f = compile(lambda x: x * 2)
        y = f(x)
        yield x, y

The decorator :func:`session` makes a test of one. Most tests need only :func:`check`, which makes a session of a
function and its inputs, or the decorator :func:`agrees`, which makes a test of the function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotcheck.oracle.state import seed_generators
from tests.behaviour.compilers import KEPT, Recorder, aotcheck, backend
from tests.behaviour.inputs import Given, chosen_device, plain, random_state
from tests.behaviour.ledger import Refused

soft: set[str] = set()
"""What the contract calls soft and the test that runs shows, where its compiler is held to no more: marks ``soft``.

``freed``: eager frees as finely as its nodes are, and so raises in backwards after one of a part. A compiler may go on.
``casts``: at which cast the contributions of several calls to a gradient meet: last bits of reduced precision.
"""

Function = Callable[..., Any]
Compile = Callable[[Any], Any]
Session = Callable[[Compile], Iterator[Any]]


def one_of(cases: dict[str, Any] | list[Function]) -> Any:
    """A fixture that is each case in turn, by its name in the table or, in a list, by the function's."""
    named = cases if isinstance(cases, dict) else {case.__name__.strip("_"): case for case in cases}

    @pytest.fixture(params=named.values(), ids=named)
    def case(request: pytest.FixtureRequest) -> Any:
        return request.param

    return case


# -- what is observed ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raised:
    """An exception, as a caller sees it."""

    type: type[BaseException]
    message: str


def attempt(action: Callable[[], Any]) -> Any:
    """What the action returns, or what it raises in the function: type and message are compared."""
    try:
        return action()
    except aotcheck.UnsupportedError:
        raise
    except Exception as error:
        return Raised(type(error), str(error))


@contextlib.contextmanager
def refuses(*reasons: str) -> Iterator[None]:
    """Inside, the compiler must refuse for one of the reasons. The ledger has another, where a compiler has one."""
    with pytest.raises(aotcheck.UnsupportedError) as caught:
        yield
    if not any(reason in str(caught.value) for reason in reasons):
        if aotcheck.name in KEPT:
            raise Refused(caught.value.reason)
        pytest.fail(f"refused, but not for {' or '.join(reasons)}: {caught.value}")


def attempt_later(action: Callable[[], Any]) -> Any:
    """What the action returns or raises outside the function; what autograd's messages say of nodes is left out."""
    match attempt(action):
        case Raised(kind, message):
            return Raised(kind, message.split(":")[0].split(".")[0])
        case result:
            return result


def is_sparse(tensor: torch.Tensor) -> bool:
    """Whether it has indices and values, of whatever layout."""
    return str(tensor.layout).startswith("torch.sparse")


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The indices of a sparse tensor, and last its values."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def _strides_that_matter(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.layout is torch.jagged or is_sparse(tensor) or tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)


def held_by(tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """The tensors that a wrapper subclass holds, by name; nothing for a plain tensor."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return []
    return [(name, getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]


def _expanded(name: str, leaf: Any) -> Iterator[tuple[str, Any]]:
    """A leaf, and after it whatever it holds."""
    yield name, leaf
    if isinstance(leaf, torch.Tensor):
        for attribute, inner in held_by(leaf):
            yield from _expanded(f"{name}.{attribute}", inner)


def _value(tensor: torch.Tensor) -> Any:
    if held_by(tensor):
        context = tensor.detach().__tensor_flatten__()[1]  # type: ignore[attr-defined]
        return type(tensor).__name__, str(context), [_value(inner) for _, inner in held_by(tensor)]
    if is_sparse(tensor):
        coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        with torch.no_grad():
            parts = [part.clone() for part in parts_of(tensor)]
        return str(tensor.layout), coalesced, tensor.sparse_dim(), tensor.dense_dim(), parts
    needed = tensor.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel() and tensor.untyped_storage().nbytes() < needed * tensor.element_size():
        return "beyond its storage"
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().clone()


def _memory(tensor: torch.Tensor) -> Any:
    """Equal for tensors that lie in the same memory."""
    if is_sparse(tensor):
        return "values", parts_of(tensor)[-1].untyped_storage()._cdata
    return id(tensor) if held_by(tensor) else tensor.untyped_storage()._cdata


def _sizes(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(n if isinstance(n, int) else "ragged" for n in tensor.shape)


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "type": type(tensor),
        "dtype": tensor.dtype,
        "device": tensor.device,
        "shape": _sizes(tensor),
        "stride": _strides_that_matter(tensor),
        "storage offset": tensor.storage_offset(),
        "requires_grad": tensor.requires_grad,
        # Autograd brings a view whose base was written up to date when asked for these, or refuses to.
        "is a leaf": attempt_later(lambda: tensor.is_leaf),
        "has a grad_fn": attempt_later(lambda: tensor.grad_fn is not None),
        "is an inference tensor": tensor.is_inference(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "value": _value(tensor),
    }
    if tensor.requires_grad and facts["is a leaf"] is True:
        facts["grad"] = None if tensor.grad is None else _value(tensor.grad)
    return facts


def _same_value(a: Any, b: Any, rtol: float) -> bool:
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_same_value(x, y, rtol) for x, y in zip(a, b, strict=True))
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if rtol:
        return torch.allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _first_of_kind(keys: list[Any]) -> list[int]:
    return [keys.index(key) for key in keys]


_LOST = "Trying to backward through", "one of the variables needed for gradient", "derivative for"


@dataclass(frozen=True)
class _Moment:
    """Everything observable at one yield."""

    structure: Any
    leaves: list[tuple[str, Any]]
    identical: list[int]
    sharing: list[int]
    grad_mode: bool
    random_state: torch.Tensor

    @classmethod
    def of(cls, observed: Any) -> _Moment:
        with_paths, structure = pytree.tree_flatten_with_path(observed)
        expanded = [pair for path, leaf in with_paths for pair in _expanded(pytree.keystr(path), leaf)]
        names = [name for name, _ in expanded]
        leaves = [leaf for _, leaf in expanded]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return cls(
            structure,
            [(n, _facts(x) if isinstance(x, torch.Tensor) else x) for n, x in zip(names, leaves, strict=True)],
            _first_of_kind([id(tensor) for tensor in tensors]),
            _first_of_kind([_memory(tensor) for tensor in tensors]),
            torch.is_grad_enabled(),
            random_state(),
        )

    def raises_alone(self, other: _Moment) -> bool:
        """Whether eager's backward raised as something was freed or written, and the other's not or for another."""
        theirs = dict(other.leaves)
        lost = {name: x for name, x in self.leaves if isinstance(x, Raised) and x.message.startswith(_LOST)}
        found = [(x, theirs.get(name)) for name, x in lost.items()]
        return any(x != y and (not isinstance(y, Raised) or y.message.startswith(_LOST)) for x, y in found)

    def differences(self, other: _Moment, rtol: float) -> Iterator[str]:
        """What a caller would see differ, `self` being eager's."""
        if self.structure != other.structure:
            yield f"structure: {self.structure} is {other.structure}"
            return
        for (name, mine), (_, theirs) in zip(self.leaves, other.leaves, strict=True):
            if isinstance(mine, dict) and isinstance(theirs, dict):
                for fact in sorted(mine.keys() | theirs.keys()):
                    a, b = mine.get(fact, "absent"), theirs.get(fact, "absent")
                    if not _same_value(a, b, rtol):
                        yield f"{name}: {fact}: {a} is {b}"
            elif not _same_value(mine, theirs, rtol):
                yield f"{name}: {mine!r} is {theirs!r}"
        tensors = [name for name, facts in self.leaves if isinstance(facts, dict)]
        for what, mine, theirs in (
            ("identity", self.identical, other.identical),
            ("storage", self.sharing, other.sharing),
        ):
            for name, a, b in zip(tensors, mine, theirs, strict=False):
                if a != b:
                    yield f"{what}: {name} has that of {tensors[a]}, is given that of {tensors[b]}"
        if self.grad_mode != other.grad_mode:
            yield f"grad mode: {self.grad_mode} is {other.grad_mode}"
        if not torch.equal(self.random_state, other.random_state):
            yield "the state of the random number generator"


# -- compiling -------------------------------------------------------------------------------------


def through_dynamo(target: Any) -> Any:
    """``torch.compile`` with this project as its backend."""
    return torch.compile(target, backend=backend())


def _moments(session: Session, compile: Compile) -> list[_Moment]:
    seed_generators(torch.device(chosen_device()))
    return [_Moment.of(observed) for observed in session(compile)]


def check_session(session: Session, *, compile: Compile | None = None, rtol: float = 0.0) -> Recorder:
    """Runs the session eager and compiled and fails on whatever differs.

    Args:
        session: what the caller does; see the module's docstring.
        compile: how to compile; `aot_function` or `aot_module` with a fresh :class:`Recorder` if not given.
        rtol: relative and absolute tolerance for values; zero compares them exactly, NaN being equal to NaN.

    Returns:
        The recorder, for tests that look at the graphs.
    """
    recorder, rtol = Recorder(), 1e-2 if "casts" in soft else rtol
    expected = _moments(session, lambda target: target)
    before = aotcheck.counters()
    actual = _moments(session, compile or recorder.compile)
    after = aotcheck.counters()
    refused = [reason for reason, count in after.refused.items() if count != before.refused.get(reason)]
    if refused:
        raise Refused("; ".join(refused))
    if not any(isinstance(observed, Raised) for moment in expected for _, observed in moment.leaves):
        assert after.eager_after_user_error == before.eager_after_user_error, "taken for an error of the program"
    for number, (mine, theirs) in enumerate(zip(expected, actual, strict=False), 1):
        if "freed" in soft and mine.raises_alone(theirs):
            return recorder
        found = list(mine.differences(theirs, rtol))
        if found:
            pytest.fail(f"observation {number} differs from eager's:\n  " + "\n  ".join(found), pytrace=False)
    assert len(expected) == len(actual), "the session went on differently, though nothing observed had differed"
    return recorder


def session(test: Function | None = None, *, compile: Compile | str | None = None, rtol: float = 0.0) -> Any:
    """Makes a test of a session, which has the test's parameters beside ``compile``. See :func:`check_session`.

    Args:
        test: the session.
        compile: how to compile, or the name of the fixture or parameter that says how.
        rtol: relative and absolute tolerance for values.
    """

    def decorate(test: Function) -> Function:
        def checked(**parameters: Any) -> None:
            how = parameters.pop(compile) if isinstance(compile, str) else compile
            check_session(functools.partial(test, **parameters), compile=how, rtol=rtol)

        names = [name for name in inspect.signature(test).parameters if name != "compile"]
        names += [compile] if isinstance(compile, str) else []
        return _as_test(checked, test, names)

    return decorate if test is None else decorate(test)


def differentiable(outputs: Any) -> list[torch.Tensor]:
    """The outputs that a caller can call backward on, in order, each once."""
    tensors = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    return list({id(tensor): tensor for tensor in tensors}.values())


def backward(outputs: Sequence[torch.Tensor], **options: Any) -> None:
    """Calls backward with a different small integer as the cotangent of each element."""
    # A cotangent is contiguous whatever the output is: zeros_like of an expanded one would overlap.
    cotangents = [cotangent(output, 5 + k) for k, output in enumerate(outputs)]
    torch.autograd.backward(list(outputs), cotangents, **options)


def cotangent(output: torch.Tensor, seed: int = 5) -> torch.Tensor:
    """Small integers, in a wrapper like ``output`` if that is one."""
    if not held_by(output):
        if not (output.is_floating_point() or output.is_complex()):
            return output.detach()
        return plain(*output.shape, seed=seed, dtype=output.dtype)
    like: Any = output.detach()
    inner = {name: cotangent(t, seed + k) for k, (name, t) in enumerate(held_by(output))}
    made = type(like).__tensor_unflatten__(inner, like.__tensor_flatten__()[1], output.shape, output.stride())
    assert isinstance(made, torch.Tensor)
    return made


def write(tensor: torch.Tensor) -> None:
    """Writes in place, outside autograd, something else to every element."""
    with torch.no_grad():
        if tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.add_(1)


Backward = Callable[[list[torch.Tensor]], None] | Sequence[int] | None
ALL = backward
"""Backward through every output that requires grad, in one call."""


def check(
    function: Function,
    *calls: Callable[[], Given | tuple[Any, ...]],
    backward: Backward = ALL,
    after: Callable[[tuple[Any, ...], Any], Any] | None = None,
    probe: bool = True,
    rtol: float = 0.0,
    compile: Compile | None = None,
) -> Recorder:
    """Calls the function eager and compiled, once per entry of `calls`, on fresh and identical inputs.

    After each call inputs and outputs are compared; then backward runs, and they are compared again with the gradients;
    then one output after the other is written to in place, and they are compared once more, so that aliasing shows.

    Args:
        function: what is compiled; once, whatever the number of calls.
        calls: each builds the arguments of a call.
        backward: indices into the differentiable outputs, a function of them, or None for no backward.
        after: what the caller does between forward and backward, with the arguments and the outputs.
        probe: whether to write to the outputs in the end.
        rtol: see :func:`check_session`.
        compile: see :func:`check_session`.
    """

    def one_call(compiled: Function, make: Callable[[], Given | tuple[Any, ...]]) -> Iterator[Any]:
        made = make()
        inputs = made if isinstance(made, Given) else Given(made)
        watched = inputs.args, inputs.also
        outputs = attempt(lambda: compiled(*inputs.args))
        yield watched, outputs
        if isinstance(outputs, Raised):
            return
        if after is not None:
            yield watched, outputs, attempt_later(lambda: after(inputs.args, outputs))
        roots = differentiable(outputs)
        if backward is not None and roots:
            match backward:
                case Sequence():
                    yield watched, attempt_later(lambda: ALL([roots[k] for k in backward]))
                case run:
                    yield watched, attempt_later(lambda: run(roots))
            yield watched, outputs
        if probe:
            for output in pytree.tree_leaves(outputs):
                if isinstance(output, torch.Tensor):
                    yield watched, outputs, attempt_later(lambda output=output: write(output))

    def calls_in_turn(compile: Compile) -> Iterator[Any]:
        compiled = compile(function)
        return itertools.chain.from_iterable(one_call(compiled, make) for make in calls)

    return check_session(calls_in_turn, compile=compile, rtol=rtol)


def agrees(
    *calls: Callable[..., Given | tuple[Any, ...]], anew: bool = False, **options: Any
) -> Callable[[Function], Function]:
    """Makes a test of a function: it has the arguments of :func:`check`, but for the function.

    With ``anew`` the function is compiled anew for each of ``calls``.

    Keyword-only parameters of the function, and the parameters of ``calls``, are parameters of the test. The function
    has the values of its own as defaults.
    """

    def decorate(function: Function) -> Function:
        own = [name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY]
        asked = [list(inspect.signature(make).parameters) for make in calls]

        def checked(**parameters: Any) -> None:
            given_to = [{name: parameters[name] for name in names} for names in asked]
            makes = [functools.partial(make, **some) for make, some in zip(calls, given_to, strict=True)]
            bound = types.FunctionType(function.__code__, function.__globals__, function.__name__)
            bound.__kwdefaults__ = {name: parameters[name] for name in own}
            for together in [[make] for make in makes] if anew else [makes]:
                check(bound, *together, **options)

        return _as_test(checked, function, list(dict.fromkeys(itertools.chain(own, *asked))))

    return decorate


def _as_test(checked: Function, function: Function, parameters: Sequence[str]) -> Function:
    """``checked`` under the name of ``function``, as a test that has these parameters."""
    functools.update_wrapper(checked, function)
    listed = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parameters]
    vars(checked)["__signature__"] = inspect.Signature(listed)
    return checked
