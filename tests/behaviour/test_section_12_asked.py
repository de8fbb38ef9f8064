"""BEHAVIOUR 12: what a function asks of a tensor that a trace cannot tell, and what it leaves where it is given up."""

from __future__ import annotations

import queue
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, jacrev, vjp, vmap

from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import attempt, check, check_session, given, leaf, non_leaf, plain

# -- elements, text and versions -----------------------------------------------------------------------

_ELEMENTS = {
    "apply_": lambda x: x.apply_(lambda a: a + 1),
    "map_": lambda x: x.map_(x, lambda a, b: a + b),
    "map2_": lambda x: x.map2_(x, x, lambda a, b, c: a + b + c),
    "str": lambda x: str(x),
    "repr": lambda x: repr(x),
    "f-string": lambda x: f"{x}",
    "percent": lambda x: "%s" % x,  # noqa: UP031
    "in a list": lambda x: str([x]),
}


@pytest.mark.parametrize("asks", _ELEMENTS.values(), ids=_ELEMENTS.keys())
def test_elements_and_text_of_a_tensor_are_refused(asks: Any):
    x = plain(3)
    before = x.clone()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: (x * 1, asks(x)))(x)
    assert torch.equal(x, before)


def test_text_of_what_is_no_tensor():
    check(lambda x: (x * 2, f"{x.shape} {x.dtype} {x.requires_grad}"), lambda: given(plain(3)))


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("written", [0, 2])
def test_the_version_of_an_argument(written: int):
    def session(compile):
        f = compile(lambda x: (x * 2, x._version))
        for k in range(3):
            x = plain(3)
            for _ in range(written + k):
                x.add_(1)
            yield f(x)

    check_session(session)


def test_the_version_of_what_the_function_made():
    def versions(x):
        y = x * 2
        before = y._version
        y.add_(1)
        return y, before, y._version

    check(versions, lambda: given(plain(3)))


# -- whether an argument is a view ---------------------------------------------------------------------


def _row():
    base = plain(4, 2)
    return given(base[1], also=[base])


def _row_of_a_non_leaf():
    base = leaf(4, 2) * 1
    return given(base[1], also=[base])


@pytest.mark.parametrize("make", [_row, _row_of_a_non_leaf, lambda: given(plain(2)), lambda: non_leaf(2)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().mul_(2) if x._is_view() else x.mul_(2),
        lambda x: (x if x._base is None else x._base).sum(),
        lambda x: x * (2 if x.view(-1)._is_view() else 3),
    ],
    ids=["asks", "its base", "of its own"],
)
def test_whether_an_argument_is_a_view(function: Any, make: Any):
    check(function, make)


# -- what a function that is given up leaves -----------------------------------------------------------


@torch.library.custom_op("aotcheck_asked::add_into", mutates_args={"b"})
def _add_into(b: torch.Tensor, x: torch.Tensor) -> None:
    b.add_(x)


def _inference(x):
    with torch.inference_mode():
        return x[x > 0]


def _autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        _add_into(x, x)
        return y


@pytest.mark.parametrize("function", [_inference, _autocast], ids=["inference mode", "autocast"])
def test_modes_that_a_graph_of_dynamos_had_entered_are_left(function: Any):
    torch._dynamo.reset()
    f = torch.compile(function, backend=backend())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(torch.ones(2, 2))
    assert not torch.is_inference_mode_enabled()
    weight = torch.ones(2, 2, requires_grad=True)
    assert (weight * 2).requires_grad
    sums = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            sums.append((torch.ones(1, 2) @ weight).sum().item())
        with torch.no_grad():
            weight.mul_(2)
    assert sums == [4.0, 8.0, 16.0]


def _contexts(function: Any) -> list[str]:
    try:
        try:
            raise ValueError("around")
        except ValueError:
            function(plain(2))
    except KeyError as error:
        found, at = [], error.__context__
        while at is not None:
            found.append(repr(at))
            at = at.__context__
    return found


def _raises(x):
    raise KeyError("x")


def _raises_while_handling(x):
    try:
        raise TypeError("inside")
    except TypeError:
        raise KeyError("x")  # noqa: B904


@pytest.mark.parametrize("function", [_raises, _raises_while_handling])
def test_an_error_of_the_functions_comes_in_no_other_context(function: Any):
    expected = _contexts(function)
    compiled = aotcheck.aot_function(function)
    assert _contexts(compiled) == expected
    assert _contexts(compiled) == expected


# -- factories told into what --------------------------------------------------------------------------

_FACTORIES = {
    "arange": lambda x: torch.arange(3, out=x),
    "arange from": lambda x: torch.arange(1, 7, 2, out=x),
    "linspace": lambda x: torch.linspace(0, 1, 3, out=x),
    "logspace": lambda x: torch.logspace(0, 2, 3, out=x),
    "zeros": lambda x: torch.zeros(3, out=x),
    "ones": lambda x: torch.ones(3, out=x),
    "full": lambda x: torch.full((3,), 5.0, out=x),
    "eye": lambda x: torch.eye(2, out=x),
    "eye of two sizes": lambda x: torch.eye(2, 3, out=x),
    "rand": lambda x: torch.rand(3, out=x),
    "randn": lambda x: torch.randn(3, out=x),
    "randint": lambda x: torch.randint(0, 9, (3,), out=x),
    "normal": lambda x: torch.normal(0.0, 1.0, (3,), out=x),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("shape", [(3,), (0,), (2,), (2, 3), (3, 3)])
@pytest.mark.parametrize("function", _FACTORIES.values(), ids=_FACTORIES.keys())
def test_factories_told_into_what(function: Any, shape: tuple[int, ...]):
    def session(compile):
        f = compile(function)
        for k in range(2):
            torch.manual_seed(k)
            x = plain(*shape)
            alias = x.view(-1) if x.numel() else x
            out = f(x)
            yield out is x, out, alias, torch.rand(1)

    check_session(session)


def test_a_random_factory_told_into_what_has_gaps():
    def session(compile):
        f = compile(lambda x: torch.rand(3, out=x))
        for k in range(2):
            torch.manual_seed(k)
            base = plain(6)
            yield f(base[::2]), base

    check_session(session)


# -- TorchScript, losses that check, transforms of custom Functions ------------------------------------


class _Holds(nn.Module):
    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x) * 2


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is", "ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["itself", "in a module", "in a function"])
@pytest.mark.parametrize("made", ["scripted", "traced"])
def test_modules_of_torchscripts(kind: str, made: str):
    def session(compile):
        torch.manual_seed(0)
        own = nn.Linear(3, 2)
        part = torch.jit.script(own) if made == "scripted" else torch.jit.trace(own, plain(1, 3))
        function = {"itself": part, "in a module": _Holds(part), "in a function": lambda x: part(x) * 2}[kind]
        f = compile(function)
        for k in range(2):
            f(plain(2, 3, seed=k)).sum().backward()
            yield own.weight.grad, own.bias.grad

    check_session(session, rtol=1e-6)


def test_a_loss_that_checks_its_variance():
    def session(compile):
        f = compile(lambda x, v: F.gaussian_nll_loss(x, torch.ones(3), v))
        for sign in (1, 2, -1, 1):
            x, v = leaf(3), plain(3).abs().add_(1).mul_(sign).requires_grad_()
            out = attempt(lambda x=x, v=v: f(x, v))
            if isinstance(out, torch.Tensor):
                out.backward()
            yield out, x.grad, v.grad

    check_session(session, rtol=1e-6)


@pytest.mark.parametrize("classes", [3, 5])
def test_one_hot_in_inference_mode(classes: int):
    def session(compile):
        f = compile(lambda i: F.one_hot(i + 0, classes))
        for values in ([0, 2], [1, 1]):
            with torch.inference_mode():
                out = f(torch.tensor(values))
            yield out, out.is_inference()

    check_session(session)


class _Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()


_TRANSFORMS = {
    "grad": lambda x, w: grad(lambda z: _Sine.apply(z).sum())(x),
    "of a product": lambda x, w: grad(lambda z: _Sine.apply(z * w).sum())(x),
    "beside": lambda x, w: _Sine.apply(w) * grad(lambda z: (_Sine.apply(w) * z).sum())(x),
    "twice": lambda x, w: grad(lambda z: grad(lambda q: _Sine.apply(q).sum())(z).sum())(x),
    "in vmap": lambda x, w: vmap(grad(lambda z: _Sine.apply(z).sum()))(x),
    "jacrev": lambda x, w: jacrev(_Sine.apply)(x),
    "vjp": lambda x, w: vjp(_Sine.apply, x)[1](x)[0],
}


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("function", _TRANSFORMS.values(), ids=_TRANSFORMS.keys())
def test_transforms_of_custom_functions_inside(function: Any, make: Any):
    check(function, lambda: given(make(2), leaf(2, seed=1)), rtol=1e-6)


def test_text_of_what_escaped_from_a_trace_asks_nothing_of_it():
    escaped: queue.SimpleQueue[Any] = queue.SimpleQueue()  # which nobody looks into

    def puts(x):
        y = x * 2
        escaped.put(y)
        return y + 1

    aotcheck.aot_function(puts)(plain(2))
    left = escaped.get()
    assert str(left) == f"{left}" == repr(left)
    with pytest.raises(aotcheck.UnsupportedError, match="escaped replica"):
        left + 1
