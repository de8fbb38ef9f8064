"""Plain views of jagged tensors: rows and values."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, check, check_session, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.wrappers import jagged


def ragged(values: torch.Tensor) -> torch.Tensor:
    """Two rows, a view of ``values``."""
    n = len(values)
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, n // 2, n], device=values.device))


@pytest.mark.parametrize("view", ["view_as", "select"])
@pytest.mark.parametrize("trained", ["values", "ragged", "neither"])
@pytest.mark.parametrize("mode", ["around", "inside"])
@session
def test_views_and_rows_of_a_jagged_tensor_in_inference_mode(compile, view: str, trained: str, mode: str):
    def act(x):
        return x.view_as(x) if view == "view_as" else x.select(0, 0)

    def f(x):
        with torch.inference_mode(mode == "inside"):
            return act(x)

    values = plain(4, 2)
    x = ragged(values)
    if trained != "neither":
        (values if trained == "values" else x).requires_grad_()
    with torch.inference_mode(mode == "around"):
        y = compile(act if mode == "around" else f)(x)
    yield y, y.requires_grad, y.is_inference(), attempt_later(lambda: y.is_leaf)


@session
def test_a_view_of_a_row_of_a_jagged_leaf_in_inference_mode(compile):
    def f(x):
        row = x[0]
        with torch.inference_mode():
            return row.t()

    x = ragged(plain(4, 2)).requires_grad_()
    y = compile(f)(x)
    yield y, y.requires_grad, y.is_inference()


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("way", [lambda x: x, lambda x: x.view_as(x), torch.sin], ids=["itself", "view", "result"])
@session
def test_the_caller_writes_values_of_a_jagged_tensor_before_their_backward(compile, part, way):
    """Eager makes the history of a view anew that was written since, with what it keeps as it is then."""

    def f(x):
        values = way(x).values()
        return values[1:] if part else values

    leaf_ = jagged(1, 3, grad=True)
    values = compile(f)(leaf_ * 1)
    with torch.no_grad():
        values.add_(1)
    yield leaf_, values
    yield attempt_later(lambda: values.backward(torch.ones_like(values)))
    yield leaf_, values


@pytest.mark.parametrize("view", ["values", "view of values", "two"])
@pytest.mark.parametrize("write", ["logical_not_", "zero_"])
@session
def test_values_of_a_jagged_argument_made_before_an_alias_of_its_memory_was_written(compile, view, write):
    """A view of a ragged tensor that is a view of plain memory; torch refuses to say its history afterwards."""

    def function(x, y):
        v = x.values()
        made = {"values": (v,), "view of values": (v[1:],), "two": (v, v.unsqueeze(0))}[view]
        with torch.no_grad():
            getattr(y, write)()
        return made

    values = plain(3, 2)
    alias = values.detach()
    offsets = torch.tensor([0, 1, 3], device=values.device)
    x = torch.nested.nested_tensor_from_jagged(alias, offsets).requires_grad_().unsqueeze(-1)
    results = compile(function)(x, values)
    yield [t.detach().clone() for t in results], values


def into_a_row(x, y):
    part = y[1]
    with torch.no_grad():
        y.fill_(2)
    return (part,)


def into_the_ragged_tensor(x, y):
    part = y[1]
    x.exp_()
    return (part,)


@pytest.mark.parametrize("function", [into_a_row, into_the_ragged_tensor])
@pytest.mark.parametrize("way", ["row", "values under no_grad"])
@session
def test_a_view_of_a_row_or_of_values_before_a_write_to_the_jagged_tensor(compile, function, way):
    """Its history cannot be looked for anew, so it is made before the write."""

    offsets = torch.tensor([0, 1, 4], device=plain(1).device)
    x = torch.nested.nested_tensor_from_jagged(plain(4, 2), offsets).requires_grad_() * 1
    with torch.set_grad_enabled(way == "row"):
        y = x.unbind()[1] if way == "row" else x.values()
    results = compile(function)(x, y)
    yield [t.data.clone() for t in (*results, y)], [attempt_later(lambda t=t: t.is_leaf) for t in results]


def jagged_leaf():
    return jagged(2, 1, grad=True)


def result():
    return jagged(2, 1, grad=True) * 2


def without_gradient():
    return jagged(2, 1)


def view_of_values():
    return torch.nested.nested_tensor_from_jagged(
        to_device(torch.arange(1.0, 7)).reshape(3, 2), offsets=to_device(torch.tensor([0, 2, 3]))
    )


def view_of_leaf():
    values = to_device(torch.arange(1.0, 7)).reshape(3, 2)
    x = torch.nested.nested_tensor_from_jagged(values, offsets=to_device(torch.tensor([0, 2, 3])))
    values.requires_grad_()
    return x


def reshaped():
    return jagged(2, 1, grad=True).unsqueeze(1)


def row(x):
    return [x[0]]


def under_no_grad(x):
    with torch.no_grad():
        made = x[1]
    return [made, x.unbind()[0]]


def in_inference_mode(x):
    with torch.inference_mode():
        made = x[1]
    return [made]


def before_a_write(x):
    made = x[0]
    with torch.no_grad():
        x.zero_()
    return [made]


def written(x):
    made = x[0]
    with torch.no_grad():
        made.zero_()
    return [made]


def several(x):
    first, second = x.unbind()
    return [first, second, first.sum() * second.sum()]


def values(x):
    return [x.values(), x.values()[1:]]


def of_a_row(x):
    return [x[0].t(), x.transpose(1, -1)[1]]


def of_a_result(x):
    return [(x * 3)[0]]


def beside_a_result(x):
    made = x * 3
    return [made[0], made]


def with_a_hook(x):
    made = x[0]
    if torch.is_grad_enabled() and made.requires_grad:
        made.register_hook(lambda g: g * 2)
    return [made, made * 3]


def write_argument(x, made):
    with torch.no_grad():
        x.mul_(2)


def write_first(x, made):
    with torch.no_grad():
        made[0].mul_(2)


def ask(x, made):
    return [attempt_later(lambda t=t: (t._base is not None, t.grad_fn is None)) for t in made]


@pytest.mark.parametrize("write", [write_argument, write_first], ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    "mode", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=["grad", "no grad", "inference"]
)
@pytest.mark.parametrize(
    "make",
    [jagged_leaf, result, without_gradient, view_of_values, view_of_leaf, reshaped],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize(
    "function",
    [
        row,
        under_no_grad,
        in_inference_mode,
        before_a_write,
        written,
        several,
        values,
        of_a_row,
        of_a_result,
        beside_a_result,
        with_a_hook,
    ],
    ids=lambda function: function.__name__,
)
def test_rows_and_values_of_jagged_tensors_share_versions_and_histories(function, make, mode, write):
    def one_call(compiled):
        x = make()

        def call():
            with mode():
                return compiled(x)

        made = attempt(call)
        yield x, made
        if not isinstance(made, list):
            return
        yield x, made, attempt_later(lambda: write(x, made))
        yield ask(x, made)
        results = [t for t in made if t.requires_grad and t.layout is torch.strided]
        yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
        yield x, made

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            yield from one_call(compiled)

    check_session(session)


@pytest.mark.parametrize(
    "write",
    [lambda x: x.zero_(), lambda x: x.unbind()[0].mul_(2), lambda x: (x.unsqueeze(1).mul_(2), x * 2)],
    ids=["itself", "row", "view"],
)
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.unsqueeze(1), lambda x: x * 2], ids=["same", "view", "result"]
)
@session
def test_a_refused_write_to_a_view_of_a_jagged_leaf_changes_nothing(compile, view, write):
    compiled = compile(write)
    for requires in (lambda x: x.requires_grad_(), lambda x: x):
        leaf = requires(view_of_values())
        x = view(leaf)
        yield leaf, x, attempt(lambda x=x: compiled(x))
        yield attempt_later(lambda x=x: x.grad_fn is None), x._version, leaf._version


@pytest.mark.parametrize("again", [lambda r: r.t(), lambda r: r[0], lambda r: r.view(-1)], ids=["t", "row", "flat"])
@pytest.mark.parametrize("make", [without_gradient, jagged_leaf], ids=lambda make: make.__name__)
@session
def test_a_view_of_a_row_of_a_result_in_inference_mode(compile, make, again):
    x = make()
    f = compile(lambda x: again(x.positive()[0]))
    for _ in range(2):
        with torch.inference_mode():
            made = f(x)
        yield x, made, made._base
        made.add_(1)
        yield x, made


ROWS = {
    "row": lambda x: x[0],
    "unbound": lambda x: x.unbind()[1],
    "values": lambda x: x.values(),
    "part of the values": lambda x: x.values()[1:],
}


@pytest.mark.parametrize("used", [lambda v: v, lambda v: v * 2, lambda v: v.t()], ids=["alone", "doubled", "view"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("make", [without_gradient, view_of_values], ids=lambda make: make.__name__)
@session
def test_requires_grad_of_a_row_of_a_jagged_tensor(compile, make, row, used):
    def function(x):
        made = row(x)
        before = made[0:]
        made.requires_grad_()
        return made, used(made), before

    x = make()
    made, computed, before = compile(function)(x)
    yield x, made, computed, before, made._base is x
    if computed.grad_fn is not None:
        computed.sum().backward()
    yield x, made, computed
    with torch.no_grad():
        made.add_(1)
    yield x, made


def test_the_gradient_of_the_values_of_a_jagged_tensor():
    check(lambda x: x.values() * 2, lambda: given(jagged(2, 3, grad=True)), probe=False)


def test_values_of_a_jagged_leaf_are_passed_and_a_write_to_them_is_refused():
    """Refused where it has to be made again; that raised where torch lets no error pass."""

    def f(view, x):
        y = x.gather(0, torch.tensor([1, 1], device=x.device))
        return y, x, view

    def make(grad):
        x = leaf(2) if grad else plain(2)
        ragged = torch.nested.nested_tensor_from_jagged(x.detach(), torch.tensor([0, 1, 2], device=x.device))
        return ragged.requires_grad_().values(), x * 1

    compiled = aotcheck.aot_function(f)
    compiled(*make(True))
    for view, x in (make(False), make(True)):
        with torch.no_grad():
            assert compiled(view, x)[2] is view
    with pytest.raises(aotcheck.UnsupportedError, match="ragged"):
        aotcheck.aot_function(lambda view: view.mul_(2))(make(False)[0])
