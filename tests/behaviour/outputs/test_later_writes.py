"""The caller writes outputs or bases later; lazily made histories of returned views."""

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, backward, differentiable, one_of, session, write
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import GRAD_MODES, KINDS_OF_VIEWS, leafness, quietly


@session
def test_writes_by_the_caller_are_seen_by_returned_aliases_of_arguments(compile):
    root = leaf(8)
    base = root * 1
    a, b = base[:5], base[3:]
    out = compile(lambda a, b: (a.view(-1), b[1:], a * b))(a, b)
    yield out, a, b
    base.mul_(2)
    yield out, a, b, base
    out[0].add_(1)
    yield out, a, b, base
    yield attempt_later(lambda: backward([base.sum() + out[1].sum()])), root


@session
def test_the_caller_writes_an_alias_made_under_no_grad(compile):
    def f(x):
        y = x * 2
        with torch.no_grad():
            z = y.view(-1)
        return y, z

    x = leaf(2, 4)
    y, z = compile(f)(x)
    yield attempt_later(lambda: z.mul_(2) is None)
    yield attempt_later(lambda: (z * 2, y * 2))
    yield attempt_later(lambda: backward(differentiable([y, z]))), x


view = one_of(KINDS_OF_VIEWS)


@pytest.mark.parametrize("target", ["input", "first", "second"])
@session
def test_a_differentiable_write_by_the_caller_shows_in_an_input_and_its_aliases(compile, view, target: str):
    root = leaf(2, 4)
    x = root * 1
    outputs = compile(lambda x: (view(x), x.view(-1)))(x)
    written = {"input": x, "first": outputs[0], "second": outputs[1]}[target]
    yield attempt_later(lambda: written.mul_(2) is None), x, outputs
    yield attempt_later(lambda: [(t * 3).sum() for t in (x, *outputs)]), x, outputs
    roots = [t for t in (x, *outputs) if attempt_later(lambda t=t: t.grad_fn is not None) is True]
    yield attempt_later(lambda: backward([t for t in roots if t.dtype.is_floating_point])), root


@pytest.mark.parametrize("target", [0, 1, 2])
@session
def test_a_differentiable_write_by_the_caller_shows_in_aliases_of_an_intermediate(compile, view, target: int):
    def f(x):
        y = x * 2
        return view(y), y.view(-1), y[0]

    x = leaf(2, 4)
    outputs = compile(f)(x)
    yield attempt_later(lambda: outputs[target].mul_(2) is None), outputs
    roots = [t for t in outputs if attempt_later(lambda t=t: t.grad_fn is not None) is True]
    yield attempt_later(lambda: backward([t for t in roots if t.dtype.is_floating_point])), x


@session
def test_a_write_to_a_fresh_output_shows_in_no_input_and_no_other_output(compile):
    def f(x):
        return x.clone(), x + 0, x * 1, x.contiguous().clone(), x[0].clone()

    x = leaf(2, 4)
    outputs = compile(f)(x)
    for output in outputs:
        write(output)
        yield x, outputs


def _squeezed(x, y):
    z = y.clone()
    z.squeeze_(1)
    return x * z, z.data, z


def _parts(x, y):
    z = y.clone()
    return x * z.squeeze(1), z.data[:2], z.detach()[1:], z.data[1:]


@pytest.mark.parametrize("f", [_squeezed, _parts])
@pytest.mark.parametrize("which", [1, 2, 3, slice(1, 3)])
@session
def test_writes_to_data_and_detached_aliases_count_versions_as_in_eager(compile, f, which):
    x = leaf(3)
    product, *aliases = compile(f)(x, plain(3, 1))
    written = [product, *aliases][which] if which != 3 or f is _parts else aliases[0]
    for t in written if isinstance(written, list) else [written]:
        t.mul_(1)
    yield aliases
    yield attempt_later(lambda: torch.autograd.grad(product.sum(), x))


@session
def test_a_write_to_data_of_a_result_reshaped_in_place_shows_in_the_backward(compile):
    x = leaf(3)
    product, data, _ = compile(_squeezed)(x, plain(3, 1))
    data.zero_()
    yield torch.autograd.grad(product.sum(), x)


@pytest.mark.parametrize("ambient", ["grad", "no_grad", "inference"])
@pytest.mark.parametrize("inside", ["grad", "no_grad"])
@pytest.mark.parametrize("written", ["nothing", "base", "view"])
@pytest.mark.parametrize("base", ["argument", "made inside", "view"])
@pytest.mark.parametrize("later", ["written", "told to require grad", "set"])
@session
def test_a_returned_view_whose_base_gets_a_history_from_the_caller(compile, ambient, inside, written, base, later):
    def function(x):
        b = x * 2 if base == "made inside" else x
        with GRAD_MODES[inside]():
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

    x, w = plain(4)[1:] if base == "view" else plain(3), leaf(3)
    with GRAD_MODES[ambient]():
        b, views = compile(function)(x)
    yield [leafness(t) for t in (b, *views)]
    yield isinstance(attempt_later(lambda: give(b, w)), Raised)
    yield [leafness(t) for t in (b, *views)]
    for v in views:
        found = attempt_later(lambda v=v: torch.autograd.grad(v.sum() * 3, w, allow_unused=True))
        yield "raised" if isinstance(found, Raised) else found
        yield isinstance(attempt_later(lambda v=v: v.mul_(2)), Raised)
        yield leafness(v)


def _widens(v):
    wider = torch.ones(v.numel() + 9, device=v.device)
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
    "gives it other data": lambda v: (setattr(v, "data", torch.ones(9, device=v.device)), _writes(v)),
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
@session
def test_a_lone_returned_view_without_history_is_a_view_to_the_caller(compile, ambient, caller, origin, saved):
    def f(x):
        b = torch.ones_like(x)
        product = x * (b if saved else 2)
        return product, ORIGINS[origin](b)

    x = leaf(2, 4)
    with torch.set_grad_enabled(ambient == "grad"):
        product, v = compile(f)(x)
    yield attempt_later(lambda: CALLERS[caller](v)), product
    yield attempt_later(lambda: (v.is_leaf, v.requires_grad, type(v.grad_fn).__name__)), v
    yield attempt_later(lambda: product.sum().backward()), x


@session
def test_autograd_sees_a_write_by_the_caller_to_an_alias_in_the_input(compile):
    root = leaf(2, 3)
    x = root * 1
    alias = compile(lambda x: x.view(6))(x)
    alias.mul_(3)
    yield x, alias
    backward([x])
    yield root


@session
def test_autograd_sees_a_write_by_the_caller_to_the_input_in_an_alias(compile):
    root = leaf(2, 3)
    x = root * 1
    alias = compile(lambda x: x[0])(x)
    x.mul_(3)
    yield x, alias
    backward([alias])
    yield root


@session
def test_a_write_by_the_caller_to_a_returned_view_of_a_leaf_raises_as_in_eager(compile):
    x = leaf(2, 3)
    alias = compile(lambda x: x[0])(x)
    yield x, alias, attempt_later(lambda: alias.mul_(2))


@session
def test_autograd_sees_a_write_by_the_caller_to_one_alias_of_an_intermediate_in_another(compile):
    def f(x):
        y = x * 2
        return y.view(-1), y.t()

    x = leaf(2, 3)
    a, b = compile(f)(x)
    a.mul_(3)
    yield a, b
    backward([b])
    yield x


VIEWS = {
    "transpose": lambda x: x.t(),
    "part": lambda x: x[:1],
    "diagonal": lambda x: x.diagonal(),
    "real part": lambda x: x.real,
    "conjugate": lambda x: x.conj(),
    "view of a view": lambda x: x.t()[1:],
}

WRITES = {
    "its base": lambda x, v: x.mul_(2),
    "itself": lambda x, v: v.mul_(2),
    "under no_grad": lambda x, v: quietly(lambda: x.mul_(2)),
    "its base, then looked at": lambda x, v: (x.mul_(2), v.grad_fn),
    "its base, then used, then its base": lambda x, v: (x.mul_(2), v * 2, x.mul_(2)),
}

LATER = {
    "nothing": lambda x, v: None,
    "other data": lambda x, v: setattr(v, "data", torch.ones(7, dtype=v.dtype, device=x.device)),
    "the base's data": lambda x, v: setattr(v, "data", x.detach()),
    "a look under no_grad": lambda x, v: quietly(lambda: v.grad_fn),
    "the base is transposed": lambda x, v: quietly(lambda: x.t_()),
    "the base is written": lambda x, v: x.mul_(2),
    "it is written": lambda x, v: v.mul_(2),
    "the base is cut": lambda x, v: x.detach_(),
    "the base goes elsewhere": lambda x, v: quietly(lambda: x.set_(to_device(torch.ones(5, dtype=x.dtype)))),
}


def of_argument(view, write):
    def function(x):
        v = view(x)
        write(x, v)
        return x, v

    return function, lambda w: (w.clone(),)


def of_view_argument(view, write):
    return of_argument(view, write)[0], lambda w: (w.clone()[:],)


def of_what_is_made_inside(view, write):
    function = of_argument(view, write)[0]
    return lambda w: function(w.clone()), lambda w: (w,)


def of_view_made_inside(view, write):
    function = of_argument(view, write)[0]
    return lambda x: function(x.view_as(x)), lambda w: (w.clone(),)


def as_argument(view, write):
    def function(x, v):
        write(x, v)
        return x, v

    def given(w):
        x = w.clone()
        return x, view(x)

    return function, given


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "where", [of_argument, of_view_argument, of_what_is_made_inside, of_view_made_inside, as_argument]
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@session
def test_the_history_of_a_written_view_is_made_when_the_caller_asks_for_it(compile, view, write, where, mode):
    function, given = where(VIEWS[view], WRITES[write])

    compiled = compile(function)
    for later in LATER.values():
        w = leaf(2, 2, dtype=torch.complex64)
        with mode():
            x, v = compiled(*given(w))
        yield isinstance(attempt_later(lambda x=x, v=v, later=later: later(x, v)), Raised)
        yield [leafness(t) for t in (v, v, x)]
        total = attempt_later(lambda x=x, v=v: (v * 3).abs().sum() + (x * 2).abs().sum())
        found = attempt_later(lambda total=total, w=w: torch.autograd.grad(total, w))
        yield "raised" if isinstance(found, Raised) else found
