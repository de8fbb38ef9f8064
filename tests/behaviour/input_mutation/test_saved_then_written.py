"""What is saved for backward and written by the function afterwards."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, session
from tests.behaviour.inputs import given, leaf, plain


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_the_values_saved_for_backward_are_those_from_before_a_mutation(buffer, x):
    y = x * buffer.clone()
    buffer.zero_()
    return y


@agrees(lambda: given(leaf(3)))
def test_a_saved_value_modified_in_place_is_an_error_at_backward(x):
    y = x.exp()
    y.add_(1)
    return y


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_a_saved_input_modified_in_place_is_an_error_at_backward(buffer, x):
    y = x * buffer
    buffer.add_(1)
    return y


@agrees(lambda: given(plain(3), leaf(3, seed=1)))
def test_saved_values_are_those_from_before_a_mutation_of_a_view(buffer, x):
    y = x * buffer.clone()
    buffer[1:].zero_()
    return y, x * buffer


def test_a_view_of_a_saved_input_is_written_inside():
    def f(buffer, x):
        y = x * buffer
        buffer[0].add_(1)
        return y, x * 2

    check(f, lambda: given(plain(3), leaf(3, seed=1)))
    check(f, lambda: given(plain(3), leaf(3, seed=1)), backward=[1])


PARTS_APART = {
    "part": lambda part: part.zero_(),
    "window": lambda part: part.as_strided((1,), (0,)).zero_(),
    "both": lambda part: (part.mul_(2), part.as_strided((1,), (0,)).zero_()),
    "bytes": lambda part: part.view(torch.int32).as_strided((1,), (0,)).fill_(1 << 29),
}


@pytest.mark.parametrize("write", PARTS_APART)
@pytest.mark.parametrize("saves", ["before", "after", "transposed"])
@pytest.mark.parametrize("grad", [True, False])
@session
def test_a_saved_tensor_written_through_a_part_of_unsafe_chunk(compile, write, saves, grad):
    """Eager's backward reads what the function wrote to the part, and what the caller writes to it later."""

    def f(x):
        part = torch.unsafe_chunk(x, 3)[0]
        y = x.sin() if saves == "before" else None
        with torch.set_grad_enabled(grad):
            PARTS_APART[write](part)
        if saves != "before":
            y = x.t().sin() if saves == "transposed" else x.sin()
        return y, part

    compiled = compile(f)
    for _ in range(2):
        x = leaf(3, 2)
        y, part = compiled(x)
        yield torch.autograd.grad(y.sum(), x, retain_graph=True)
        with torch.no_grad():
            part.fill_(3)
        yield y, x, torch.autograd.grad(y.sum(), x)


READS = {
    "sin": torch.sin,
    "with a view": lambda x: x * x.view(2),
    "a part": lambda x: x.flip(0) * x[1:],
    "pow": lambda x: x**3,
}

WRITES = {
    "beside": lambda whole: whole.data[2:].mul_(2),
    "beside, twice": lambda whole: (whole.data[2:].mul_(2), whole.sum(), whole.data[2:3].mul_(2)),
    "partly": lambda whole: whole.data[1:].mul_(2),
    "nothing": lambda whole: whole.as_strided((0,), (1,)).mul_(2),
}


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
@session
def test_a_saved_argument_whose_memory_is_written_through_data_in_and_after_the_call(compile, read, write, late):
    def f(part, whole):
        if not late:
            WRITES[write](whole)
        out = READS[read](part)
        if late:
            WRITES[write](whole)
        return out, whole

    memory = plain(6)
    part, whole = memory.data[:2].requires_grad_(), memory.data
    out, _ = compile(f)(part, whole)
    whole.fill_(3)
    yield out.detach(), torch.autograd.grad(out.sum(), part)


MOVES = {
    "the argument": lambda x, y, v, w: setattr(x, "data", v),
    "the argument, to an alias": lambda x, y, v, w: setattr(x, "data", v.data),
    "another argument": lambda x, y, v, w: setattr(y, "data", v),
    "another argument, by set_": lambda x, y, v, w: y.set_(v),
    "what was saved": lambda x, y, v, w: setattr(v, "data", w),
    "the argument, to the result": lambda x, y, v, w: setattr(x, "data", w),
}

SAVED = {"itself": lambda x, v: x * v, "an alias": lambda x, v: x * v.detach(), "a part": lambda x, v: x[:1] * v[1:]}


@pytest.mark.parametrize("wanted", [False, True], ids=["inside alone", "returned"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("saved", SAVED)
@session
def test_a_saved_intermediate_whose_storage_becomes_that_of_an_argument(compile, saved, move, wanted):
    def f(x, y):
        v = x.detach() * 3
        out = SAVED[saved](x, v)
        w = v * 5
        MOVES[move](x, y, v, w)
        return (out, v) if wanted else (out,)

    x, y = leaf(2), plain(2)
    out, *_ = compile(f)(x, y)
    with torch.no_grad():
        x.fill_(7)
        y.fill_(5)
    out.sum().backward()
    yield x.grad


PARTS = {
    "slice": lambda x: x[:2],
    "split": lambda x: x.split(2)[0],
    "unsafe split": lambda x: torch.unsafe_split(x, 2)[0],
    "unsafe split of a part": lambda x: torch.unsafe_split(x[:3], 2)[0],
    "data": lambda x: x.data[:2],
    "unsafe split of data": lambda x: torch.unsafe_split(x.data, 2)[0],
}


@pytest.mark.parametrize("made", [False, True], ids=["argument", "made inside"])
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("saved", PARTS)
@session
def test_a_saved_part_and_a_part_with_another_version_counter(compile, saved, first, made):
    def f(x, w):
        x = x.clone() if made else x
        one = PARTS[first](x)
        return w * PARTS[saved](x), one, x

    w = leaf()
    for place in (1, 2):
        out = compile(f)(plain(4), w)
        out[place].add_(1)
        yield attempt_later(lambda out=out: torch.autograd.grad(out[0].sum(), w))
        out = compile(f)(plain(4), w)
        out[place].data.add_(1)
        yield attempt_later(lambda out=out: torch.autograd.grad(out[0].sum(), w))


@pytest.mark.parametrize("returned", ["whole", "part"])
@pytest.mark.parametrize("saved", PARTS)
@pytest.mark.parametrize("write", ["before", "after"])
@session
def test_a_saved_part_of_an_intermediate_that_is_written_through_data(compile, write, saved, returned):
    def f(x, w):
        x = x.clone()
        part = PARTS[saved](x)
        if write == "before":
            part.data.add_(1)
        out = w * part
        if write == "after":
            part.data.add_(1)
        return out, x if returned == "whole" else part

    w = leaf()
    out, there = compile(f)(plain(4), w)
    there.data.add_(3)
    yield out.detach(), torch.autograd.grad(out.sum(), w)


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (2, 2)], ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(-1),
        lambda x: x.unsqueeze(0),
        lambda x: x.unsqueeze(0).unsqueeze(0).transpose(0, 1),
        lambda x: x.view(-1)[:1],
        lambda x: x.t(),
        lambda x: x.expand(2, *x.shape),
    ],
    ids=["flat", "one more", "two more", "first", "transposed", "expanded"],
)
@pytest.mark.parametrize("later", ["written", "called again"])
@session
def test_a_saved_view_of_an_argument_that_was_written_before(compile, later, view, shape, hidden):
    """Of what the graph computes only that is saved of which the view is made."""

    def f(x, y):
        (y.data if hidden else y).mul_(3)
        return x * view(y)

    x, y = leaf(1), plain(*shape).abs()
    g = compile(f)
    out = g(x, y)
    if later == "written":
        y.data.mul_(5)
    else:
        g(x, y)
    yield out, attempt_later(lambda: torch.autograd.grad(out.sum(), x))


LATER = ["data", "called again", "filled", "written", "nothing"]

THEN = {"nothing": lambda z: None, "unseen": lambda z: z.data.mul_(2), "counted": lambda z: z.detach().mul_(2)}


@pytest.mark.parametrize(
    ("then", "later"), [(t, x) for t in THEN for x in LATER if (t, x) != ("counted", "data")], ids=str
)
@pytest.mark.parametrize("kind", [leaf, plain, lambda *shape: leaf(*shape) * 1], ids=["leaf", "plain", "no leaf"])
@pytest.mark.parametrize("given", [lambda x: x.clone(), lambda x: x.detach() * 2, lambda x: x.t().clone(), lambda x: x])
@session
def test_a_saved_argument_whose_data_is_assigned_before_and_after(compile, then, given, kind, later):
    """Eager saves the tensor, and goes wherever it is put."""

    def f(x, y, z):
        y.data.mul_(3)
        z.data = given(y)
        THEN[then](z)
        return x * z

    x, y, z = leaf(1), plain(2, 2).abs(), kind(2, 2)
    g = compile(f)
    out = g(x, y, z)
    if later == "data":
        z.data = plain(2, 2, seed=3)
    elif later == "called again":
        g(x, y, z)
    elif later != "nothing":
        (z.data if later == "filled" else z.detach()).fill_(7)
    yield out, attempt_later(lambda: torch.autograd.grad(out.sum(), x))


def _by_data(x, y):
    v = torch.ones(3, device=x.device)
    z = x * v
    v.data.mul_(z.detach())
    return z


def _by_a_detached_alias(x, y):
    v = y.clone()
    z = x * v
    v.detach().data.add_(z.detach())
    return z


def _by_running_statistics(x, y):
    v = torch.ones(3, device=x.device)
    z = x.view(1, 3) * v
    torch.nn.functional.batch_norm(z.repeat(2, 1), v, y, training=True)
    return z


@pytest.mark.parametrize("function", [_by_data, _by_a_detached_alias, _by_running_statistics])
@pytest.mark.parametrize("written", ["nothing", "the result", "the argument"])
def test_a_saved_tensor_that_the_function_wrote_through_data_or_batch_norm(function, written):
    def session(compile):
        x, y = leaf(3), plain(3, seed=1)
        z = compile(function)(x, y)
        with torch.no_grad():
            if written == "the result":
                z.mul_(2)
            elif written == "the argument":
                y.mul_(2)
        yield z, x, y
        yield attempt_later(lambda: z.sum().backward()), x


def _data_and_itself(x, w):
    return x.data * w, x * w


def _set_to_its_memory(x, w):
    y = torch.empty(0, device=x.device)
    y.set_(x.detach())
    return y * w


@pytest.mark.parametrize(
    "f",
    [lambda x, w: torch.addcmul(w, x.data, x), lambda x, w: x.detach() * w, _data_and_itself, _set_to_its_memory],
    ids=["data", "detach", "both", "set_"],
)
@session
def test_a_saved_alias_with_its_own_version_counter_of_what_the_caller_writes(compile, f):
    root, w = leaf(3), leaf(3, seed=2)
    x = root.clone()
    results = compile(f)(x, w)
    with torch.no_grad():
        x.mul_(2)
    for r in results if isinstance(results, tuple) else (results,):
        yield attempt_later(lambda r=r: torch.autograd.grad(r.sum(), (root, w), allow_unused=True))


@pytest.mark.parametrize("place", [lambda y: y.as_strided((6,), (1,)), lambda y: y.as_strided((6,), (0,), 2)])
@session
def test_a_saved_argument_whose_data_became_a_result_that_the_caller_writes(compile, place):
    def f(x):
        y = x.sin()
        x.data = place(y)
        return y

    x = leaf(6)
    y = compile(f)(x)
    with torch.no_grad():
        y.copy_(plain(6, seed=3))
    yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x * x, (4,)),
        (lambda x: x @ x, (1, 2)),
        (torch.nn.functional.softplus, (4,)),
        (lambda x: torch.nn.functional.layer_norm(x, (2,)), (4,)),
        (lambda x: torch.nn.functional.layer_norm(x, (2,)), (2, 1, 2)),  # which suits the kernel
    ],
    ids=["mul", "matmul", "softplus", "layer_norm", "suitable"],
)
@session
def test_a_saved_argument_of_another_shape_at_backward_is_the_kernels_error(compile, f, shape):
    def moved(x):
        y = f(x)
        x.data = torch.ones(shape, device=x.device)
        return y

    x = leaf(2, 2)
    y = compile(moved)(x)
    yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))


def _index_written(v, x):
    index = torch.zeros(3, dtype=torch.long, device=v.device)
    y = torch.gather(v, 0, index).copy_(x)
    index.zero_()
    return y


WRITTEN_INSIDE = {
    "index": _index_written,
    "own result": lambda v, x: torch.amax(v, 0, keepdim=True).copy_(x[:1]),
    "through a view": lambda v, x: (y := torch.amax(v, 0, keepdim=True), y[:].copy_(x[:1]))[0],
}


@pytest.mark.soft("freed")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("function", WRITTEN_INSIDE.values(), ids=WRITTEN_INSIDE)
@session
def test_a_node_of_a_no_grad_view_raises_where_its_saved_tensor_was_written(compile, function, mode):
    """A view of which autograd was not told requires grad as its base does, and gradients that come to it end there."""

    x = leaf(3)
    with mode():
        v = x.view(3)
    y = compile(function)(v, x)
    yield torch.autograd.grad(y.sum(), [x], retain_graph=True)  # which does not come by it
    yield attempt_later(lambda: y.sum().backward())
