"""Set_ under grad: no derivative, no gradient for the source, and where the backward raises."""

from functools import partial

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check, one_of, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.shared import MAKERS, _non_leaf
from tests.behaviour.storage.common import SETS


def takes(x, y):
    x.set_(y)
    return x * 2


def takes_and_writes(x, y):
    x.set_(y)
    x.mul_(2)
    return x


def takes_a_result(x, y):
    made = x * 1
    made.set_(y * 2)
    return made


def takes_into_a_new_one(x, y):
    made = torch.empty(0, device=x.device)
    made.set_(y)
    return made * 2, x * 2


@pytest.mark.parametrize("source", [lambda: given(plain(3), leaf(3)), lambda: given(plain(3), *non_leaf(3).args)])
@pytest.mark.parametrize("function", [takes, takes_and_writes, takes_a_result, takes_into_a_new_one])
@session
def test_the_source_of_set_gets_no_gradient(compile, function, source):
    compiled = compile(function)
    for _ in range(2):
        x, y = source().args
        results = compiled(x, y)
        yield x, y, results
        last = results if isinstance(results, torch.Tensor) else results[0]
        yield attempt_later(partial(torch.autograd.grad, last.sum(), y, allow_unused=True)), x, y


@pytest.mark.parametrize("make", [_non_leaf, MAKERS["leaf"]], ids=["non-leaf", "leaf"])
@pytest.mark.parametrize("source", [leaf, plain])
def test_set_of_an_argument_after_detach_in_place(source, make):
    def f(x, y):
        x.detach_()
        view = x.unsqueeze(0)
        x.set_(y)
        return view

    def itself(x, y):
        x.detach_()
        x.set_(y)
        x.requires_grad_()
        return x

    for body in (f, itself):
        check(body, lambda: given(make().args[0], source(2, 2, seed=5)), backward=None)


_SETS = {
    "its own storage": lambda x: x.set_(x.untyped_storage()),
    "itself": lambda x: x.set_(x),
    "another": lambda x: x.set_(torch.ones(4, device=x.device)),
    "nothing": lambda x: x.set_(),
}

_CHANGES_SINCE = {
    "squeeze_": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "data": lambda x: setattr(x, "data", torch.ones(2, 3, device=x.device)),
    "data of another dtype": lambda x: setattr(x, "data", torch.ones(1, dtype=torch.float64, device=x.device)),
    "set_": lambda x: x.set_(torch.ones(5, device=x.device)),
}


@pytest.mark.parametrize("uses", [lambda x: (x,), lambda x: (x, x * 2), lambda x: (x, x.unsqueeze(0))])
@pytest.mark.parametrize("change", _CHANGES_SINCE.values(), ids=_CHANGES_SINCE)
@pytest.mark.parametrize("to", _SETS.values(), ids=_SETS)
@pytest.mark.parametrize("shape", [(1,), (2,), (1, 2)])
@session
def test_set_under_grad_records_the_shape_that_it_gave(compile, shape, to, change, uses):
    """A gradient of a shape given since, under no_grad, is refused before the missing derivative is missed."""

    def function(x):
        to(x)
        with torch.no_grad():
            change(x)
        return uses(x)

    root = leaf(*shape)
    x = root.clone()
    for y in compile(function)(x):
        yield y
        yield attempt_later(lambda y=y: torch.autograd.grad([y], [x], torch.ones_like(y), allow_unused=True))
        yield attempt_later(lambda y=y: torch.autograd.grad([y], [root], torch.ones_like(y), allow_unused=True))


@pytest.mark.parametrize(
    "set_it", [lambda x: x.set_(), lambda x: x.set_(x), lambda x: x.set_(torch.ones(2, device=x.device))]
)
@pytest.mark.parametrize("written", [False, True])
@session
def test_a_backward_with_respect_to_a_set_tensor_is_eagers_error(compile, set_it, written):
    """It raises even though that is where the backward begins."""

    x = non_leaf(3).args[0]

    def f(x):
        set_it(x)
        if written:
            with torch.no_grad():
                x.add_(1)
        return x

    y = compile(f)(x)
    yield y, y.grad_fn is None, written or y._version
    yield attempt_later(lambda: y.backward(torch.ones_like(y), inputs=[y]))


@pytest.mark.parametrize("source", [lambda y: y, torch.detach], ids=["leaf", "alias"])
@pytest.mark.parametrize("cut_first", [False, True])
@session
def test_detach_in_place_before_or_after_set_and_a_write_afterwards(compile, source, cut_first):
    def f(x, y):
        if cut_first:
            x.detach_()
        x.set_(source(y))
        if not cut_first:
            x.detach_()
        x.mul_(y)

    y = leaf(3)
    x = y * 2
    compile(f)(x, y)
    yield x, y, x.is_leaf
    yield attempt_later(lambda: backward([x])), y


@pytest.mark.parametrize(
    "set_it", [lambda x: x.set_(), lambda x: x.set_(torch.ones(3, device=x.device))], ids=["nothing", "tensor"]
)
@pytest.mark.parametrize("inside", [False, True])
@session
def test_a_backward_through_a_view_that_was_set(compile, set_it, inside):
    def f(x, view, y):
        view = x.view(3) if inside else view
        set_it(view)
        return view.sum() + y

    x, y = leaf(3) * 1, leaf(3)
    view = x.view(3)
    out = compile(f)(x, view, y)
    for t in (out, x, view):
        for inputs in ([x], [y], [view], [x, y]):
            yield attempt_later(lambda t=t, i=inputs: backward([t], inputs=i, retain_graph=True)), x, y


def _set_several_times(x, y):
    x.set_(y * 2)
    x.set_(x)
    x.set_(y)
    x.set_(torch.ones(4, device=x.device))


@pytest.mark.parametrize(
    "set_it",
    [
        lambda x, y: x.set_(y),
        lambda x, y: x.set_(y * 2),
        lambda x, y: x.set_(y[:2]),
        lambda x, y: x.set_(y.mul_(2)),
        lambda x, y: x.set_(y.detach()),
        lambda x, y: x.set_(torch.ones(3, device=x.device).requires_grad_()),
        _set_several_times,
    ],
    ids=["argument", "product", "view", "written", "detached", "leaf", "several"],
)
@session
def test_a_backward_through_set_raises_only_where_it_reaches_the_source(compile, set_it):
    """And raises only where it does: a backward to something else finds no way there."""

    end, other = leaf(3), leaf(3)
    x, y = leaf(3) * 1, end * 1
    compile(set_it)(x, y)
    for inputs in ([x], [y], [end], [other]):
        yield attempt_later(lambda inputs=inputs: backward([x], inputs=inputs))


@session
def test_a_view_is_reshaped_after_its_base_was_set_to_itself(compile):
    """Autograd then looks for its history, and finds that of ``set_``."""

    x = non_leaf(2, 2).args[0]
    view = x.t()

    def f(x, view):
        x.set_(x)
        return view.t_()

    out = compile(f)(x, view)
    yield attempt_later(lambda: backward([out]))


_RESHAPED_SINCE = {
    "transposed": lambda x: x.t_(),
    "without a dimension": lambda x: x.squeeze_(),
    "with one more": lambda x: x.unsqueeze_(0),
    "not at all": lambda x: x,
}

_VIEWS_SINCE = {
    "a view": lambda x: x.transpose(0, -1),
    "a view of a view": lambda x: x.transpose(0, -1).unsqueeze(0),
    "unknown to autograd": lambda x: x.unsafe_chunk(2)[0],
}


@pytest.mark.parametrize("view", _VIEWS_SINCE.values(), ids=_VIEWS_SINCE)
@pytest.mark.parametrize("reshape", _RESHAPED_SINCE.values(), ids=_RESHAPED_SINCE)
@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("twice", [False, True])
@session
def test_a_view_of_an_argument_that_was_set_to_itself_and_reshaped(compile, twice, count, reshape, view):
    """Although what is computed of the view is attached with the history that ``set_`` gave."""

    def function(x):
        x.set_(x)
        reshape(x)
        part = view(x)
        out = part.clone()
        return [out, part, *([out * 2, part * 3] if twice else [])]

    x = leaf(1, count).clone()
    outputs = compile(function)(x)
    yield outputs, x
    yield [attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [x], allow_unused=True)) for t in outputs]


set_ = one_of(SETS)

_WRITTEN_FIRST = {
    "copied": lambda x, y: x.copy_(y),
    "multiplied": lambda x, y: x.mul_(y),
    "by a view": lambda x, y: x.t().mul_(y),
    "and reshaped": lambda x, y: x.copy_(y).t_(),
    "not at all": lambda x, y: x,
}


@pytest.mark.parametrize("write", _WRITTEN_FIRST.values(), ids=_WRITTEN_FIRST)
@pytest.mark.parametrize("set_", [lambda x, z: x.set_(z), lambda x, z: x.set_(z.untyped_storage(), 0, (2,), (1,))])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("wanted", [0, 1])
@session
def test_set_of_a_written_argument_has_no_derivative_for_the_write_either(compile, wanted, used, set_, write):
    """The history of ``set_`` leads to that of the write, by which a backward comes to others."""

    def function(x, y, z):
        write(x, y)
        out = x * 3 if used else None
        set_(x, z)
        return [x, out] if used else [x]

    root, y, z = leaf(2, 2), leaf(2, 2, seed=1), plain(2, 2, seed=2)
    outputs = compile(function)(root.clone(), y, z)
    yield outputs
    into = (root, y)[wanted]
    for t in reversed(outputs):
        yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [into], allow_unused=True, retain_graph=True))


@session
def test_a_view_made_between_two_writes_and_a_set(compile):
    def f(x, y):
        x.zero_()
        x.zero_()
        v = x.t()
        x.set_(y.clone())
        return v

    v = compile(f)(leaf() * 1, plain())
    yield attempt_later(lambda: v.backward())
