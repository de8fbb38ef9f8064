"""The same of views (of arguments or made inside), views reshaped by the caller before."""

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import agrees, attempt_later, check, one_of, session
from tests.behaviour.inputs import Given, given, leaf, plain, to_device
from tests.behaviour.shared import CHANGES


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_", "as_strided_"])
def test_a_view_of_a_non_leaf_is_reshaped_in_place(name: str):
    def make() -> Given:
        root = leaf(2, 3)
        base = root * 1
        return given(base[:1], also=[root, base])

    check(lambda x: (CHANGES[name](x), x * 3)[1], make)


change = one_of(CHANGES)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.t_().t_(), lambda x: x.unsqueeze_(0).squeeze_(0)])
@session
def test_a_view_reshaped_in_place_counts_one_version_and_keeps_its_history(compile, rows, change):
    root = leaf(2, 3)
    base = root * 1
    view, f = base[2 - rows :], compile(lambda base, view: change(view))
    for _ in range(2):
        f(base, view)
        yield base._version, view
    tangent = torch.ones_like(view, requires_grad=True)
    yield torch.autograd.grad(view, [base, root], tangent, create_graph=True)


@pytest.mark.parametrize("rows", [0, 2])
@session
def test_a_view_reshaped_in_place_keeps_the_history_of_the_op_that_made_it(compile, rows: int):
    def f(x):
        view = x.expand(rows, 3)
        view.t_()
        return view

    root = leaf(3)
    y = compile(f)(root.clone())
    (g,) = torch.autograd.grad(y, root, torch.ones_like(y).requires_grad_(), create_graph=True)
    yield y, g, g.requires_grad, g.stride()


@agrees(lambda: given(plain(3, 2).t()))
def test_a_view_reshaped_in_place_is_then_made_a_leaf(x):
    x.t_()
    x.requires_grad_()
    return x * 2


@pytest.mark.parametrize("change", [lambda x: x.as_strided_((2, 2), (2, 1), 1), lambda x: x.t_().t_()])
@session
def test_a_view_reshaped_in_place_to_its_own_geometry_keeps_its_hooks(compile, change):
    base = leaf(6) * 1
    x = base.as_strided((2, 2), (2, 1), 1)
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()))
    compiled = compile(change)
    for _ in range(2):
        y = compiled(x)
        yield y, x, torch.autograd.grad([y.sum()], [base], retain_graph=True), seen


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("reshaped", [lambda v: v.unsqueeze_(0), lambda v: v.t_() if v.dim() < 3 else v])
@agrees(lambda shape: given(leaf(*shape)))
def test_a_view_made_inside_is_reshaped_in_place_and_returned(x, *, reshaped):
    y = x.clone()
    v = y.view_as(y) if y.dim() > 2 else y.t()
    reshaped(v)
    return v


@pytest.mark.parametrize("count", [0, 1])
@session
def test_a_narrowed_view_reshaped_in_place_has_the_history_of_its_op(compile, count):
    """Of a window without elements autograd gives a gradient of its own making, which requires none."""

    base = leaf(1).clone()
    x = base.view(1)

    def f(x):
        v = x.narrow(0, 0, count)
        return v.t_()

    y = compile(f)(x)
    g = torch.ones_like(y).requires_grad_()
    yield torch.autograd.grad(y, base, g, create_graph=True)


@pytest.mark.parametrize(
    "view", [lambda v: v.narrow(0, 0, 0), lambda v: v[1:], lambda v: v.diagonal(1)], ids=["empty", "slice", "diagonal"]
)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@session
def test_a_view_of_an_intermediate_reshaped_in_place_has_the_history_of_its_op(compile, view, written, whole):
    """Of an empty window autograd knows no second derivative, of an empty slice it does."""

    def f(x):
        product = torch.outer(x, x)
        if written:
            product.mul_(2)
        v = view(product)
        v.t_()
        return (product, v) if whole else v

    x = leaf(2)
    out = compile(f)(x)
    out = out[-1] if whole else out
    cotangent = torch.ones_like(out, requires_grad=True)
    (gradient,) = torch.autograd.grad(out, x, cotangent, create_graph=True)
    yield out, gradient, gradient.requires_grad
    yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), [x, cotangent], allow_unused=True))


_VIEWED = {
    "conj": lambda z: z.conj(),
    "real": lambda z: z.real,
    "view": lambda z: z.view(2, 2),
    "transpose": lambda z: z.t(),
}


@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
@pytest.mark.parametrize("again", [lambda v: v.transpose_(0, -1), lambda v: v.transpose_(0, -1).unsqueeze_(0)])
@pytest.mark.parametrize("part", [lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x[1:]])
@session
def test_a_view_of_a_view_is_reshaped_after_the_base_was_reshaped(compile, view, part, again):
    """Autograd makes the history of the view between them anew, on the base as it then is, and again after that."""

    def f(x, whole):
        whole.t_()
        v = part(x)
        again(v)
        return v

    z = leaf(2, 2, dtype=torch.complex64)
    whole = z.clone()
    x = view(whole)
    v = compile(f)(x, whole)
    yield v, x, whole
    weights = to_device(torch.arange(1.0, v.numel() + 1)).view(v.shape)
    for t in (v, whole, x):
        sums = (v * weights).abs().square().sum()
        found = attempt_later(
            lambda sums=sums, t=t: torch.autograd.grad(sums, [t, z], allow_unused=True, retain_graph=True)
        )
        # How a gradient lies is nobody's promise.
        yield [g if g is None else g.resolve_conj().tolist() for g in found] if isinstance(found, tuple) else found


VIEWS_OF_VIEWS = {
    "a part of what is viewed": lambda x: x.view(*x.shape, 1)[:, :, 0],
    "real": lambda x: x.real,
    "expanded": lambda x: x.unsqueeze(0).expand(2, *x.shape),
}


@pytest.mark.parametrize("view", VIEWS_OF_VIEWS.values(), ids=VIEWS_OF_VIEWS.keys())
@pytest.mark.parametrize("first", [lambda x: None, lambda x: x.t_()], ids=["as it came", "reshaped before"])
@pytest.mark.parametrize("count", [0, 3])
@session
def test_a_view_of_a_view_keeps_its_history_when_it_is_reshaped_in_place(compile, count, first, view):
    """Of a window without elements autograd gives back zeros that require no grad, of other views what it is given."""

    def function(x):
        first(x)
        made = view(x)
        made.unsqueeze_(0)
        return made

    root = torch.zeros(2, count, dtype=torch.complex64, requires_grad=True, device=plain(1).device)
    made = compile(function)(root.clone())
    yield root, made
    given = torch.ones_like(made).requires_grad_()
    (gradient,) = torch.autograd.grad([made], [root], [given], create_graph=True)
    yield gradient
    yield torch.autograd.grad([gradient], [given], torch.ones_like(gradient))


BESIDE = {
    "a part": lambda x: x.split(1)[0],
    "a row": lambda x: x.unbind(0)[1],
    "what a Function returns": Same.apply,
    "a view of a Function's": View.apply,
    "a window": lambda x: x[:1],
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
@session
def test_a_view_of_a_reshaped_view_and_another_view_of_the_argument(compile, beside, first):
    """The change counts as a write, after which autograd refuses to say the history of some views: it comes first."""

    def function(x):
        v = x.t()
        v.t_()
        w, y = v.t(), beside(x)
        return (y, w) if first else (w, y)

    f = compile(function)
    for _ in range(2):
        root = leaf(3, 2)
        out = f(root * 1)
        yield out
        yield torch.autograd.grad([(t * t).sum() for t in out], [root])


@pytest.mark.parametrize("first", [False, True])
@session
def test_views_of_two_views_that_were_reshaped_in_place(compile, first):
    def function(x):
        u = x.t()
        u.t_()
        v = x.t()
        v.t_()
        w, y = u.t(), v.split(1)[0]
        return (y, w) if first else (w, y)

    root = leaf(3, 2)
    out = compile(function)(root * 1)
    yield out
    yield torch.autograd.grad([(t * t).sum() for t in out], [root])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.t().t_(),
        lambda x: x[1:].unsqueeze_(0).squeeze_(0),
        lambda x: torch.tensor_split(x, 2)[1].t_(),
        lambda x: (x[1:], x.t().t_()),
        lambda x: (x.t().t_(), x[1:].unsqueeze_(0)),
        lambda x: (x.t().mul_(2), x.t().t_()),
    ],
)
@pytest.mark.parametrize("kind", ["view", "no view", "leaf"])
@session
def test_a_view_reshaped_in_place_keeps_the_history_of_its_view_op(compile, f, kind):
    root = leaf(2, 2)
    x = root if kind == "leaf" else root.clone().t() if kind == "view" else root.clone()
    results = attempt_later(lambda: compile(f)(x))
    yield results
    for y in results if isinstance(results, tuple) else (results,):
        if isinstance(y, torch.Tensor):
            cotangent = plain(*y.shape).requires_grad_()
            (gradient,) = torch.autograd.grad(y, root, cotangent, retain_graph=True)
            yield gradient, gradient.requires_grad


def _names_behind(t):
    node, names = t.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


@pytest.mark.parametrize("f", [lambda x: x.t().t_(), lambda x: x[1:].unsqueeze_(0).squeeze_(0)])
@session
def test_a_view_of_a_view_argument_reshaped_in_place_has_eagers_grad_fn_chain(compile, f):
    y = compile(f)(leaf(2, 2).clone().t())
    yield _names_behind(y)


@pytest.mark.parametrize("f", [lambda x: x.t().t_(), lambda x: x[1:].unsqueeze_(0).squeeze_(0)])
@session
def test_a_view_reshaped_in_place_with_arguments_that_share_its_version_counter(compile, f):
    base = leaf(2, 2).clone()
    x = base.t()
    y = compile(lambda base, x, other: f(x))(base, x, base[1])
    yield _names_behind(y)
    yield torch.autograd.grad(y, base, plain(*y.shape))


@session
def test_a_view_of_a_split_part_that_is_reshaped_under_no_grad(compile):
    def f(x):
        first, _ = x.split([0, 1])
        part = first.imag
        with torch.no_grad():
            first.t_()
        return part

    x = leaf(1, dtype=torch.complex64)
    part = compile(f)(x)
    yield part.shape, part.requires_grad, part._base is x
    yield attempt_later(lambda: part.grad_fn)  # autograd refuses to say it
