"""BEHAVIOUR 4: what shows of a returned view later, when its base gets a history or it has lost its own."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt, attempt_later, check_session, leaf, plain

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def leafness(t):
    found = attempt_later(lambda: (t.is_leaf, t.requires_grad, t.grad_fn is not None))
    return "refused" if isinstance(found, Raised) else found  # the message names nodes


@pytest.mark.parametrize("ambient", ["grad", "no_grad", "inference"])
@pytest.mark.parametrize("inside", ["grad", "no_grad"])
@pytest.mark.parametrize("written", ["nothing", "base", "view"])
@pytest.mark.parametrize("base", ["argument", "made inside", "view"])
@pytest.mark.parametrize("later", ["written", "told to require grad", "set"])
def test_a_view_of_what_gets_a_history_later(ambient, inside, written, base, later):
    def function(x):
        b = x * 2 if base == "made inside" else x
        with MODES[inside]():
            views = [b[1:], b.unbind()[1], b.view(-1, 1)]
            if written == "base":
                b.add_(1)
            elif written == "view":
                views[0].add_(1)
        return b, views

    def give(b, w):
        if later == "written":
            b.mul_(w)
        elif later == "set":
            b.set_(w * 2)
        else:
            b.requires_grad_()

    def session(compile):
        x, w = plain(4)[1:] if base == "view" else plain(3), leaf(3)
        with MODES[ambient]():
            b, views = compile(function)(x)
        yield [leafness(t) for t in (b, *views)]
        yield isinstance(attempt_later(lambda: give(b, w)), Raised)
        yield [leafness(t) for t in (b, *views)]
        for v in views:
            found = attempt_later(lambda v=v: torch.autograd.grad(v.sum() * 3, w, allow_unused=True))
            yield "raised" if isinstance(found, Raised) else found
            yield isinstance(attempt_later(lambda v=v: v.mul_(2)), Raised)
            yield leafness(v)

    check_session(session)


# -- told to require grad though it does: what shows when autograd has lost the view's history ---------------------


@pytest.mark.parametrize("ambient", ["grad", "no_grad"])
@pytest.mark.parametrize("returned", ["alone", "beside another part", "beside a result", "a view of it", "cut"])
def test_a_part_that_is_told_to_require_grad_of_a_view_told_by_itself(ambient, returned):
    def function(x):
        v = x.real.requires_grad_()
        match returned:
            case "alone":
                return (v,)
            case "beside another part":
                return v, x.imag
            case "beside a result":
                return v, v * 2
            case "a view of it":
                return (v[1:],)
        return (v.detach(),)

    def session(compile):
        for written in (lambda v: v.add_(1), lambda v: v.data.add_(1)):
            x = torch.zeros(3, dtype=torch.complex64).t().requires_grad_()
            with MODES[ambient]():
                results = compile(function)(x)
            with torch.no_grad():
                written(results[0])
            for t in (*results, x):
                yield leafness(t)  # torch fails an assertion, and by that forgets the history
                yield leafness(t)

    check_session(session)


TOLD = [(kind, told) for kind in ("a row", "values", "a view", "a part") for told in ("once", "beside a view", "used")]
TOLD += [(kind, told) for kind in ("a view", "a part") for told in ("before it is cut", "before it is written")]


@pytest.mark.parametrize(("kind", "told"), TOLD)
def test_an_argument_that_is_told_to_require_grad_though_it_does(kind, told):
    def make():
        if kind in ("a row", "values"):
            ragged = torch.nested.nested_tensor_from_jagged(plain(4, 2), torch.tensor([0, 2, 4])).requires_grad_()
            return ragged, ragged[0] if kind == "a row" else ragged.values()
        base = plain(4, 2).t().requires_grad_()
        return base, base[0] if kind == "a view" else base.split(1)[0]

    def function(x):
        match told:
            case "used":
                y = x * 2
                x.requires_grad_()
                return y
            case "before it is cut":
                x.requires_grad_()
                return x.detach_()
            case "before it is written":
                x.requires_grad_()
                with torch.no_grad():
                    x.mul_(2)
            case "beside a view":
                v = x[:1]
                x.requires_grad_()
                return v
            case _:
                x.requires_grad_()
        return None

    def session(compile):
        for written in (lambda x: x.add_(1), lambda x: x.data.add_(1), lambda x: None):
            base, x = make()
            result = attempt(lambda x=x: compile(function)(x))
            yield x.requires_grad
            with torch.no_grad():
                written(x)
            yield result if isinstance(result, Raised) else None
            for t in (result, x, base):
                if isinstance(t, torch.Tensor):
                    yield leafness(t)  # torch may fail an assertion, and by that forgets the history
                    yield leafness(t)

    check_session(session)


# -- alone on what was made inside ---------------------------------------------------------------------------------


def _widens(v):
    wider = torch.ones(v.numel() + 9)
    with torch.no_grad():
        torch.add(wider, wider, out=v)
    return _writes(v)


def _writes(v):
    w = torch.full_like(v, 2, requires_grad=True)
    v.mul_(w)
    v.sum().backward()
    return w.grad


CALLERS = {
    "writes it under grad": _writes,
    "writes a view of it": lambda v: (_writes(v.unsqueeze(0)), v.grad_fn is None, v.requires_grad),
    "gives it another size": _widens,
    "reshapes and writes it": lambda v: _writes(v.unsqueeze_(0)),
    "gives it other data": lambda v: (setattr(v, "data", torch.ones(9)), _writes(v)),
    "cuts it off": lambda v: v.detach_(),
    "tells it to require grad": lambda v: _writes(v.requires_grad_()),
}
ORIGINS = {
    "as it is": lambda b: b[1:],
    "as a whole": lambda b: b.t(),
    "under no_grad": torch.no_grad()(lambda b: b[1:]),
    "of a split": lambda b: b.split(1)[1],
    "of a part of a split": lambda b: b.unbind()[1].view(2, 2),
    "of another dtype": lambda b: torch.view_as_complex(b.view(4, 2)),
    "detached": lambda b: b.detach()[1],
    "written": lambda b: b[1].mul_(3),
    "in an inference mode": torch.inference_mode()(lambda b: b[1]),
}


@pytest.mark.parametrize("ambient", ["grad", "no_grad"])
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("saved", [False, True], ids=["", "of what is saved"])
def test_a_lone_view_without_a_history_is_a_view_to_the_caller(ambient, caller, origin, saved):
    def f(x):
        b = torch.ones_like(x)
        product = x * (b if saved else 2)
        return product, ORIGINS[origin](b)

    def session(compile):
        x = leaf(2, 4)
        with torch.set_grad_enabled(ambient == "grad"):
            product, v = compile(f)(x)
        yield attempt_later(lambda: CALLERS[caller](v)), product
        yield attempt_later(lambda: (v.is_leaf, v.requires_grad, type(v.grad_fn).__name__)), v
        yield attempt_later(lambda: product.sum().backward()), x

    check_session(session)
