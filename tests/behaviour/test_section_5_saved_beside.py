"""BEHAVIOUR 5: what is saved of memory beside which the function writes is the memory, as eager has it."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

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
def test_the_caller_writes_past_the_counter_of_what_was_saved(read, write, late):
    def f(part, whole):
        if not late:
            WRITES[write](whole)
        out = READS[read](part)
        if late:
            WRITES[write](whole)
        return out, whole

    def session(compile):
        memory = plain(6)
        part, whole = memory.data[:2].requires_grad_(), memory.data
        out, _ = compile(f)(part, whole)
        whole.fill_(3)
        yield out.detach(), torch.autograd.grad(out.sum(), part)

    check_session(session)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_what_has_no_memory_is_written_all_the_same(twice: bool, create_graph: bool):
    def f(x, y):
        torch._foreach_clamp_min_([x, x] if twice else [y, x], 0)
        return x

    def session(compile):
        leaf = torch.empty(0, requires_grad=True)
        base = leaf.clone()
        view = base.t()
        out = compile(f)(base, view) if not twice else compile(f)(view, None)
        grad = torch.ones(0, requires_grad=create_graph)
        yield torch.autograd.grad(out, (leaf, base, view), grad, allow_unused=True, create_graph=create_graph)

    check_session(session)


MOVES = {
    "the argument": lambda x, y, v, w: setattr(x, "data", v),
    "the argument, to an alias": lambda x, y, v, w: setattr(x, "data", v.data),
    "another argument": lambda x, y, v, w: setattr(y, "data", v),
    "another argument, by set_": lambda x, y, v, w: y.set_(v),
    "what was saved": lambda x, y, v, w: setattr(v, "data", w),
    "the argument, to the result": lambda x, y, v, w: setattr(x, "data", w),
}
SAVED = {
    "itself": lambda x, v: x * v,
    "an alias": lambda x, v: x * v.detach(),
    "a part": lambda x, v: x[:1] * v[1:],
}


@pytest.mark.parametrize("wanted", [False, True], ids=["inside alone", "returned"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("saved", SAVED)
def test_what_was_saved_lies_where_an_argument_was_put(saved, move, wanted):
    def f(x, y):
        v = x.detach() * 3
        out = SAVED[saved](x, v)
        w = v * 5
        MOVES[move](x, y, v, w)
        return (out, v) if wanted else (out,)

    def session(compile):
        x, y = leaf(2), plain(2)
        out, *_ = compile(f)(x, y)
        with torch.no_grad():
            x.fill_(7)
            y.fill_(5)
        out.sum().backward()
        yield x.grad

    check_session(session)


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
def test_a_part_is_saved_that_was_met_under_another_counter(saved, first, made):
    def f(x, w):
        x = x.clone() if made else x
        one = PARTS[first](x)
        return w * PARTS[saved](x), one, x

    def session(compile):
        w = leaf()
        for place in (1, 2):
            out = compile(f)(plain(4), w)
            out[place].add_(1)
            yield attempt_later(lambda out=out: torch.autograd.grad(out[0].sum(), w))
            out = compile(f)(plain(4), w)
            out[place].data.add_(1)
            yield attempt_later(lambda out=out: torch.autograd.grad(out[0].sum(), w))

    check_session(session)


@pytest.mark.parametrize("returned", ["whole", "part"])
@pytest.mark.parametrize("saved", PARTS)
@pytest.mark.parametrize("write", ["before", "after"])
def test_a_part_is_saved_of_what_was_made_and_written_inside(write, saved, returned):
    def f(x, w):
        x = x.clone()
        part = PARTS[saved](x)
        if write == "before":
            part.data.add_(1)
        out = w * part
        if write == "after":
            part.data.add_(1)
        return out, x if returned == "whole" else part

    def session(compile):
        w = leaf()
        out, there = compile(f)(plain(4), w)
        there.data.add_(3)
        yield out.detach(), torch.autograd.grad(out.sum(), w)

    check_session(session)


@pytest.mark.parametrize("kept", ["both", "the view"])
@pytest.mark.parametrize("unused", [lambda x: torch.nn.functional.avg_pool1d(x, 1), lambda x: x.view(-1)])
def test_a_view_that_nobody_needs_of_what_lies_beside_what_is_saved(unused, kept):
    def f(x, y):
        a = torch.sin(x)
        unused(y)
        results = torch._foreach_mul([a, y], 2)
        return results if kept == "both" else results[1]

    def session(compile):
        whole = torch.arange(4.0)
        x, y = whole[:1].detach().requires_grad_(), whole.view(2, 2).detach().requires_grad_()
        out = compile(f)(x, y)
        yield out
        for t in [*out] if kept == "both" else [out]:
            grads = torch.autograd.grad(
                t, [x, y], torch.ones_like(t, requires_grad=True), allow_unused=True, create_graph=True,
            )  # fmt: skip
            yield grads

    check_session(session)


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
def test_a_view_is_saved_of_what_was_written_before(later, view, shape, hidden):
    """Of what the graph computes only that is saved of which the view is made."""

    def f(x, y):
        (y.data if hidden else y).mul_(3)
        return x * view(y)

    def session(compile):
        x, y = leaf(1), plain(*shape).abs()
        g = compile(f)
        out = g(x, y)
        if later == "written":
            y.data.mul_(5)
        else:
            g(x, y)
        yield out, attempt_later(lambda: torch.autograd.grad(out.sum(), x))

    check_session(session)


LATER = ["data", "called again", "filled", "written", "nothing"]
THEN = {"nothing": lambda z: None, "unseen": lambda z: z.data.mul_(2), "counted": lambda z: z.detach().mul_(2)}


@pytest.mark.parametrize(
    ("then", "later"), [(t, x) for t in THEN for x in LATER if (t, x) != ("counted", "data")], ids=str
)
@pytest.mark.parametrize("kind", [leaf, plain, lambda *shape: leaf(*shape) * 1], ids=["leaf", "plain", "no leaf"])
@pytest.mark.parametrize("given", [lambda x: x.clone(), lambda x: x.detach() * 2, lambda x: x.t().clone(), lambda x: x])
def test_an_argument_is_saved_that_was_given_other_data_and_is_again(then, given, kind, later):
    """Eager saves the tensor, and goes wherever it is put."""

    def f(x, y, z):
        y.data.mul_(3)
        z.data = given(y)
        THEN[then](z)
        return x * z

    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("factor", [0, 2.5])
@pytest.mark.parametrize("by", ["list", "number"])
def test_what_is_saved_is_asked_for_again_though_no_gradient_reads_it(by: str, factor: float, create_graph: bool):
    def f(x, y):
        with torch.no_grad():
            x.add_(1)
        y.clone()
        return torch._foreach_mul([x], factor)[0] if by == "list" else x * factor

    def session(compile):
        base = torch.zeros(5)
        view = base[0]
        base.requires_grad_()
        beside = base[4:].detach().requires_grad_()
        out = compile(f)(view, beside)
        for _ in range(2):
            yield attempt_later(lambda: torch.autograd.grad(out, base, create_graph=create_graph, retain_graph=False))

    check_session(session)
