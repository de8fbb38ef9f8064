"""Set_ and .data = in inference mode, or where one of the two tensors is an inference tensor."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, backward, session, write
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import VIEWS


@session
def test_an_inference_tensor_assigned_to_a_leaf_in_each_call(compile):
    def f(x, y):
        y.data = x

    compiled = compile(f)
    with torch.inference_mode():
        x = plain(3)
    y = leaf(3, seed=2)
    for _ in range(3):
        compiled(x, y)
        yield x, y, y.is_inference(), y.is_leaf


@session
def test_inference_data_assigned_to_a_non_leaf_in_each_call(compile):
    f = compile(lambda x, y: setattr(x, "data", y))
    root = leaf(3)
    x = root.clone()
    with torch.inference_mode():
        y = plain(3, seed=1)
    for _ in range(2):
        f(x, y)
        yield x, x.is_inference(), y


@session
def test_a_leaf_that_is_an_inference_tensor(compile):
    with torch.inference_mode():
        x, data = plain(2).requires_grad_(), plain(2)
    y = leaf(2)
    y.data = data
    yield attempt(lambda: compile(lambda x: x * 2)(x)), attempt(lambda: compile(lambda y: y.view(2))(y)), y


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("used", [False, True])
@agrees(lambda: (leaf(2, 3),), lambda: (leaf(2, 3),))
def test_a_leaf_gets_its_own_view_as_data_after_a_write_in_inference_mode(x, *, view, used):
    seen = view(x)
    before = seen * seen if used else None
    with torch.inference_mode():
        x.mul_(2)
    x.data = seen
    return seen * 1, before


LEFT = {
    "other data": lambda x: setattr(x, "data", plain(1, 3)),
    "a part of itself": lambda x: x.set_(x[0:1]),
    "a part of itself, as data": lambda x: setattr(x, "data", x.data[0:1]),
}

KINDS = {
    "plain": lambda z: z.clone().real * 1,
    "a view": lambda z: z.clone().real,
    "negated": lambda z: z.clone().conj().imag,
    "negated, no view": lambda z: torch.neg(z.real),
}

FUNCTIONS = {"read": lambda x: x * 2, "viewed": lambda x: x[0], "written": lambda x: x.mul_(2)}

CASES = [(f, left) for f in FUNCTIONS for left in LEFT if f != "written" or left == "other data"]


@pytest.mark.parametrize(("f", "left"), CASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["in inference mode", "under grad"])
@session
def test_an_argument_with_replaced_storage_is_passed_in_inference_mode(compile, first, kind, f, left):
    compiled = compile(FUNCTIONS[f])
    x = KINDS[kind](leaf(3, 3, dtype=torch.complex64))
    LEFT[left](x)
    if first == "under grad":
        yield attempt_later(lambda: compiled(x))
    with torch.inference_mode():
        y = attempt_later(lambda: compiled(x))
    yield y, x, x.is_inference(), x.requires_grad


DATA = {
    "to an inference tensor": lambda x, y: setattr(x, "data", y),
    "to another": lambda x, y: setattr(y, "data", x),
    "and written": lambda x, y: (setattr(x, "data", y), x.add_(1)),
    "as it lies": lambda x, y: (setattr(y, "data", x.t()), y.view(3)),
    "a part": lambda x, y: setattr(x, "data", y[1:]),
}


@pytest.mark.parametrize("action", DATA)
@session
def test_data_assignment_between_an_inference_tensor_and_a_tensor_of_its_storage(compile, action: str):
    def f(x, y):
        DATA[action](x, y)
        return x * 2, y

    y = plain(3)
    with torch.inference_mode():
        x = y.clone()
    y.set_(x)
    out = attempt(lambda: compile(f)(x, y))
    yield x.is_inference(), y.is_inference(), x, y, out


INSIDE = {
    "clone": lambda x: x.clone(),
    "to another dtype": lambda x: x.double(),
    "a scalar first": lambda x: 1 - x,
    "padded": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "blocks": lambda x: torch.block_diag(x, x),
    "raises": lambda x: x.abs(),
    "made anew in place": lambda x: x.clone().mul_(2),
    "not recorded": lambda x: x.exp(),
    "a view": lambda x: x.t(),
}


@pytest.mark.parametrize("op", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("grad", [True, False])
@session
def test_ops_on_a_tensor_that_requires_grad_and_got_an_inference_tensor_as_data(compile, op, is_leaf, grad):
    def f(x):
        with torch.inference_mode():
            made = x * 2
        x.data = made
        with torch.set_grad_enabled(grad):
            return x, op(x)

    root = leaf(2, 3)
    x = root if is_leaf else root * 1
    out = attempt(lambda: compile(f)(x))
    yield out
    if isinstance(out, tuple) and out[1].requires_grad:
        yield torch.autograd.grad(out[1], root, torch.ones_like(out[1]))


@pytest.mark.parametrize("returned", ["view", "both", "whole"])
@pytest.mark.parametrize("write", [lambda v: v.zero_(), lambda v: v.data.zero_(), lambda v: None])
@session
def test_a_view_made_before_its_base_gets_an_inference_tensor_as_data(compile, write, returned):
    def f(x):
        whole = x.clone()
        view = whole.t()
        whole.data = x
        write(whole)
        return {"view": view, "both": (view, whole), "whole": whole}[returned]

    with torch.inference_mode():
        x = plain(2, 3).clone()
    out = compile(f)(x)
    for t in out if isinstance(out, tuple) else (out,):
        yield t.is_inference(), t.clone(), attempt_later(lambda t=t: t.add_(1))


@pytest.mark.parametrize("data", [lambda y: y.view(torch.int32), lambda y: y.detach(), lambda y: y[:1]])
@session
def test_a_view_made_before_its_base_gets_its_own_alias_as_data_in_inference_mode(compile, data):
    def f(x):
        whole = x * 2
        view = whole.t()
        with torch.inference_mode():
            whole.data = data(whole)
        return view, whole

    view, whole = compile(f)(plain(2, 3))
    yield whole.is_inference(), view.is_inference(), attempt_later(lambda: view.as_strided((2,), (1,)))
    yield view, attempt_later(lambda: view.add_(1)), view, whole


@session
def test_set_and_data_between_inference_tensors_and_others(compile):
    def f(x, y):
        z, w = x * 2, x * 3
        z.set_(y)
        w.data = y
        return z, w

    with torch.inference_mode():
        y = plain(3)
    yield compile(f)(plain(3), y), y
    yield compile(f)(plain(3), plain(3))
    x, y = plain(3), plain(3)
    with torch.inference_mode():
        yield compile(f)(x, y)
    yield x, y


@pytest.mark.parametrize(
    "put",
    [
        lambda x, w: x.set_(w),
        lambda x, w: x.set_(w).mul_(2),
        lambda x, w: x.view(3).set_(w),
        lambda x, w: x.set_(w).requires_grad_(),
    ],
    ids=["set_", "written", "view", "leaf"],
)
@pytest.mark.parametrize("of", ["plain", "leaf", "no leaf"])
@pytest.mark.parametrize("late", [None, "x", "y"])
@session
def test_a_tensor_set_to_an_inference_tensor_is_saved_and_then_written_by_the_caller(compile, put, of, late):
    def f(x, y, w):
        with torch.set_grad_enabled(of != "leaf"):
            t = put(x, w)
        return torch.sin(t), y * t, t

    source = leaf(3)
    x = {"plain": plain(3), "leaf": leaf(3), "no leaf": source * 1}[of]
    y = leaf(3) * 2
    with torch.inference_mode():
        w = plain(3)
    out = attempt(lambda: compile(f)(x, y, w))
    yield out, x, y, w
    if late is not None:
        write({"x": x, "y": y}[late])
    for t in out if isinstance(out, tuple) else ():
        yield attempt_later(lambda t=t: backward([t], retain_graph=True)), x, y, source


@session
def test_data_assignment_of_an_input_under_inference_mode(compile):
    x, y = plain(4, dtype=torch.complex64), plain(3)
    with torch.inference_mode():
        compile(lambda x: setattr(x, "data", x.imag))(x)
        compile(lambda y: setattr(y, "data", y * 2))(y)
    yield x, y, x * 2


@session
def test_data_assignment_after_set_to_nothing_in_inference_mode(compile):
    def f(x):
        v = x.clone()
        x.set_()
        x.data = v

    x = plain(3)
    with torch.inference_mode():
        compile(f)(x)
    yield x, x.is_inference()


@pytest.mark.parametrize("use", [lambda x: x * 2, lambda x: x.view(2), lambda x: x.detach().zero_(), torch.neg_])
@session
def test_an_inference_tensor_that_gets_other_data_counts_no_versions(compile, use):
    def f(x, y):
        use(x)
        x.data = y

    compiled = compile(f)
    for make in (plain, leaf):
        with torch.inference_mode():
            x = make(2)
        for _ in range(3):
            yield attempt(lambda x=x: compiled(x, plain(2, seed=1))), x


@pytest.mark.parametrize("f", [lambda x: x.t(), lambda x: x.add_(1), lambda x: x.set_()], ids=["t", "add_", "set_"])
@pytest.mark.parametrize("moves", [lambda v: v.set_(), lambda v: setattr(v, "data", plain(4))], ids=["set_", "data"])
@session
def test_a_view_with_other_storage_than_its_base_is_passed_in_inference_mode(compile, f, moves):
    compiled = compile(f)
    x = leaf(2) * 1
    v = x[1:]
    moves(v)
    with torch.inference_mode():
        out = compiled(v)
    yield out, out.is_inference(), v, v.is_inference(), out.requires_grad


MADE = {
    "alias": lambda x: x.data,
    "detached": lambda x: x.detach(),
    "shaped": lambda x: x.view(-1),
    "part": lambda x: x[..., 0],
    "expanded": lambda x: x.expand(2, 2),
    "result": lambda x: x * 2,
}

DATA_BY_KIND = {
    "a copy": lambda v, x, y: v.clone(),
    "a copy of the argument": lambda v, x, y: x.clone(),
    "another argument": lambda v, x, y: y,
}

BESIDE = {
    "nothing": lambda v, x, y: None,
    "the argument reshaped": lambda v, x, y: x.unsqueeze_(0),
    "the argument elsewhere": lambda v, x, y: setattr(x, "data", x.clone()),
    "the argument on the other": lambda v, x, y: setattr(x, "data", y),
    "itself reshaped": lambda v, x, y: v.unsqueeze_(0),
}


@pytest.mark.parametrize("first", [False, True], ids=["data first", "data last"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("data", DATA_BY_KIND)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("make", [plain, leaf, lambda *n: leaf(*n).clone()], ids=["plain", "leaf", "no leaf"])
@session
def test_data_assignment_to_views_and_results_in_inference_mode(compile, make, made, data, beside, first):
    def f(x, y):
        v = MADE[made](x)
        if first:
            BESIDE[beside](v, x, y)
        v.data = DATA_BY_KIND[data](v, x, y)
        if not first:
            BESIDE[beside](v, x, y)
        return v

    x, y = make(2, 2), plain(2, 2, seed=3)
    with torch.inference_mode():
        v = compile(f)(x, y)
    yield v, x, y
    yield attempt_later(lambda: write(v)), v, x, y


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("made", ["part", "shaped", "alias"])
@session
def test_a_view_made_between_two_data_assignments_in_and_outside_inference_mode(compile, made, inference, make):
    def f(x, y):
        x.data = x.clone()
        v = MADE[made](x)
        v.data.mul_(2)
        x.data = y
        return v

    x, y = make(2, 2), plain(2, 2, seed=3)
    with torch.inference_mode(inference):
        v = compile(f)(x, y)
    yield v, x, y
