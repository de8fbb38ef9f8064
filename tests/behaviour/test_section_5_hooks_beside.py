"""BEHAVIOUR 5: hooks of the caller's on one of several results of an op; on a viewed argument."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, leaf


class Beside(torch.autograd.Function):
    """A sum, and beside it what was given, a view of that or another tensor."""

    @staticmethod
    def forward(ctx, x, beside):
        return x + x, beside(x)

    @staticmethod
    def backward(ctx, *gradients):
        given = [g.view(2) for g in gradients if g is not None]
        return sum(given), None


OPS = {
    "an input": lambda x: Beside.apply(x, lambda x: x),
    "a view": lambda x: Beside.apply(x, lambda x: x.view(2, 1)),
    "another": lambda x: Beside.apply(x, lambda x: x * 2),
    "an input, and what is computed of both": lambda x: (y := Beside.apply(x, lambda x: x)) + tuple(t * 3 for t in y),
    "unbind": lambda x: x.unbind(),
    "unbind of what is made inside": lambda x: (x * 2).unbind(),
    "aminmax": lambda x: torch.aminmax(x),
}


@pytest.mark.parametrize("changes", [False, True], ids=["looks", "changes"])
@pytest.mark.parametrize("root", [0, 1, -1])
@pytest.mark.parametrize("hooked", [0, 1])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("make", [leaf, lambda n: leaf(n) * 1], ids=["leaf", "non-leaf"])
def test_a_hook_on_a_result_is_called_without_a_gradient(make, op, hooked, root, changes):
    def session(compile):
        x = make(2)
        out = compile(OPS[op])(x)
        seen = []

        def hook(g):
            seen.append(g if g is None else g.clone())
            return torch.full_like(out[hooked], 5) if changes else None

        out[hooked].register_hook(hook)
        gradient = attempt_later(lambda: torch.autograd.grad(out[root].sum(), x, allow_unused=True))
        yield gradient, len(seen), [g for g in seen if g is not None]

    check_session(session)


_VIEWED = {
    "conj": lambda z: z.conj(),
    "neg": lambda z: z.conj().imag,
    "view_as_real": torch.view_as_real,
    "view": lambda z: z.view(2, 2),
}


@pytest.mark.parametrize("hang", ["register_hook", "retain_grad"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
def test_an_argument_with_a_hook_is_viewed_between_writes(view, mode, hang):
    def f(x):
        x.zero_()
        beside = x.t() if x.dim() == 2 else x[0]
        x.zero_()
        return beside

    def session(compile):
        base = leaf(4, dtype=torch.complex64).view(2, 2)
        x = view(base)
        x.register_hook(lambda g: g * 2) if hang == "register_hook" else x.retain_grad()
        with mode():
            beside = compile(f)(x)
        yield beside.detach(), x.is_leaf, x
        yield attempt_later(lambda: torch.autograd.grad(x.clone().sum().abs(), base, allow_unused=True))

    check_session(session)


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
def test_an_argument_with_a_hook_is_viewed_and_then_reshaped(view, root):
    def f(x):
        beside = x.mT
        x.transpose_(0, 1)
        return beside, x

    def session(compile):
        base = leaf(4, dtype=torch.complex64).view(2, 2) * 1
        x, seen = view(base), []
        x.register_hook(lambda g: seen.append(g.tolist()))
        results = compile(f)(x)
        yield results, x
        yield torch.autograd.grad(results[root].abs().sum(), base), seen

    check_session(session)


_UNSEEN = {
    "by its data": lambda view, base: view.data.mul_(2),
    "by its base's": lambda view, base: base.data.mul_(2),
    "by an alias": lambda view, base: view.detach().mul_(2),
    "not": lambda view, base: None,
}
_SHAPED = {
    "transposed": lambda t: t.t_(),
    "squeezed": lambda t: t.unsqueeze_(0).squeeze_(0),
    "to itself": lambda t: t.as_strided_(t.shape, t.stride(), t.storage_offset()),
}


@pytest.mark.parametrize("reshaped_first", [False, True])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another view"])
@pytest.mark.parametrize("shape", _SHAPED.values(), ids=_SHAPED)
@pytest.mark.parametrize("write", _UNSEEN.values(), ids=_UNSEEN)
@pytest.mark.parametrize("make", [lambda t: t[:2], lambda t: t.t(), lambda t: t.view(2, 4)])
def test_a_view_with_a_hook_is_reshaped_in_place_and_written_unseen(make, write, shape, beside, reshaped_first):
    def function(view, base, *others):
        if reshaped_first:
            shape(view)
        write(view, base)
        if not reshaped_first:
            shape(view)
        return view * 3, base * 2, *[t * 5 for t in others]

    def session(compile):
        root, seen = leaf(4, 2), []
        base = root * 2
        view = make(base)
        view.register_hook(seen.append)
        others = (base[:, :1],) if beside else ()
        results = attempt(lambda: compile(function)(view, base, *others))
        yield results, view, base
        tangents = [torch.full_like(t, k) for k, t in enumerate(results, 2)]
        yield attempt_later(lambda: torch.autograd.grad(results, [root, base], tangents)), seen

    check_session(session)


@pytest.mark.parametrize("source", [lambda x: x, lambda x: x * 2], ids=["of an argument", "of what is made inside"])
@pytest.mark.parametrize("use", [lambda b: b * 2, torch.sin], ids=["linear", "nonlinear"])
@pytest.mark.parametrize("root", [0, 1], ids=["from the other part", "from both"])
def test_a_hook_on_a_part_that_is_no_view_to_autograd(source, use, root):
    def f(x):
        a, b, _ = torch.unsafe_split(source(x), 1)
        return a, use(b), use(b) + a

    def session(compile):
        x = leaf(3)
        y = x * 1
        results = compile(f)(y)
        seen = []
        results[0].register_hook(seen.append)
        yield torch.autograd.grad(results[1 + root].sum(), [x, y]), seen

    check_session(session)


@pytest.mark.parametrize("returned", ["operand", "both results", "neither"])
@pytest.mark.parametrize("part", [False, True], ids=["made alone", "made with another"])
def test_a_hook_inside_on_one_operand_of_an_op_on_lists(returned, part):
    seen = []

    def f(x):
        v, w = x.unbind() if part else (x[0].sin(), x[1])
        a, b = torch._foreach_mul([v, w], 2)
        v.register_hook(seen.append)
        return {"operand": (b, v * 1), "both results": (b, a), "neither": (b, w * 1)}[returned]

    def session(compile):
        for root in (0, 1):
            seen.clear()
            x = leaf(2)
            y = compile(f)(x)[root]
            y.backward()
            yield x.grad, list(seen)

    check_session(session)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("write", [None, lambda v: v.mul_(2)])
@pytest.mark.parametrize("use", [lambda t: t.clone(), lambda t: t.sin(), lambda t: t[0] * 2])
def test_a_hook_on_what_a_returned_view_is_a_view_of(use, write, retain):
    """Gradients of what was computed from that come by it, though the function returns it by no other way."""

    def f(x):
        t = x * 3
        v = t.t()
        if write is not None:
            write(v)
        return v, use(t), v * 3

    def session(compile):
        x, seen = leaf(2, 2), []
        v, y, z = compile(f)(x)
        base = v._base
        base.retain_grad() if retain else base.register_hook(lambda g: seen.append(g.tolist()))
        torch.autograd.backward([y.sum(), z.sum()], retain_graph=True)
        yield x.grad, seen, base.grad if retain else None
        yield torch.autograd.grad(y.sum(), base)

    check_session(session)


WRITES = {
    "keeps its operand": lambda v: v.sin_(),
    "keeps its result": lambda v: v.exp_(),
    "keeps it by another": lambda v: v.mul_(v.clone()),
    "by a part": lambda v: v[:1].cos_(),
    "twice": lambda v: v.pow_(2).exp_(),
    "nothing": lambda v: v.mul_(2),
    "several": lambda v: torch._foreach_cos_([v]),
}


@pytest.mark.parametrize("changes", [False, True], ids=["looks", "changes"])
@pytest.mark.parametrize("used", [False, True], ids=["only written", "used before"])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(-1)[1:]])
@pytest.mark.parametrize("make_written", WRITES.values(), ids=WRITES)
def test_higher_derivatives_by_the_history_that_a_written_view_had(make_written, view, used, changes):
    """What a write through a view keeps has the history that the view had when the call began, with its hooks."""

    def f(x, v, w):
        before = (v * 3).sin() if used else v.detach()
        make_written(v)
        return x * 1, w.sin(), before

    def session(compile):
        root, seen = leaf(2, 2), []
        with torch.no_grad():
            root /= 4
        x = root * 2
        v = view(x)
        for t in (x, v):
            t.register_hook(lambda g: (seen.append(g.detach().contiguous()), g * 2 if changes else None)[1])
        results = compile(f)(x, v, x[:1])
        gradients = [y for y in results if y.requires_grad]
        for _ in range(3):
            gradients = torch.autograd.grad([g.sum() for g in gradients], root, create_graph=True)
            yield gradients[0].detach(), list(seen)
            seen.clear()
            if not gradients[0].requires_grad:
                break

    check_session(session, rtol=1e-5)
