"""Sparse tensors, sparse gradients of embeddings."""

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, attempt_later, check, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.refusals.common import LAYOUTS, holey, holey_leaf, integers

ON_ONE = {
    "to_sparse": lambda x: x.to_sparse(),
    "hybrid": lambda x: x.to_sparse(1),
    "and back": lambda x: x.to_sparse().to_dense(),
    "coalesced": lambda x: x.to_sparse().coalesce() * 2,
    "sum of two": lambda x: (x.to_sparse() + (x * 2).to_sparse()).coalesce(),
    "returned twice": lambda x: (lambda s: (s, s, s.detach()))(x.to_sparse()),
    "transposed": lambda x: x.to_sparse().t() * 3,
    "a part of it": lambda x: x.to_sparse()[0],
    "concatenated": lambda x: torch.cat([x.to_sparse(), x.to_sparse()]),
    "summed over a dimension": lambda x: torch.sparse.sum(x.to_sparse(), 0),
    "product of two": lambda x: torch.sparse.mm(x.to_sparse(), x.t().to_sparse()),
    "a mask": lambda x: (x * 2).sparse_mask(x.to_sparse()),
    "none at all": lambda x: torch.zeros(2, 3, layout=torch.sparse_coo, device=x.device) + x.to_sparse(),
    "added to a dense one": lambda x: x + x.to_sparse(),
    "what it is like": lambda x: (
        x.to_sparse().is_sparse,
        x.to_sparse().is_coalesced(),
        x.to_sparse(1).sparse_dim(),
        x.to_sparse(1).dense_dim(),
        x.to_sparse().layout,
    ),
}


@pytest.mark.parametrize("f", ON_ONE.values(), ids=ON_ONE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex128], ids=str)
def test_sparse_tensors_made_inside(f, dtype):
    makes = (lambda: given(holey(2, 3, dtype=dtype)), lambda: given(plain(2, 3, dtype=dtype)))
    check(f, *makes, lambda: given(torch.zeros_like(plain(2, 3, dtype=dtype))), probe=False)


def test_a_product_of_a_sparse_tensor_with_a_dense_matrix():
    check(lambda x, d: torch.sparse.mm(x.to_sparse(), d), lambda: given(holey(2, 3), plain(3, 2)))
    check(lambda x, d: x.to_sparse() @ d, lambda: given(holey(2, 3), plain(3, 2)))


def test_a_shape_error_of_a_sparse_product_is_eagers():
    check(lambda x, d: torch.sparse.mm(x.to_sparse(), d), lambda: given(holey(2, 3), plain(2, 3)))


@agrees(lambda: given(holey_leaf(2, 3)), probe=False)
def test_a_sparse_tensor_made_under_no_grad(x):
    with torch.no_grad():
        s = x.to_sparse() * 2
    return s, s.to_dense() * x


@session
def test_a_sparse_tensor_made_in_inference_mode(compile):
    compiled = compile(lambda x: x.to_sparse().coalesce() * 2)
    with torch.inference_mode():
        yield compiled(holey(2, 3))


@agrees(lambda: given(integers(0, 2, 2)[None], plain(3)), probe=False)
def test_a_sparse_tensor_made_of_indices_and_values(i, v):
    s = torch.sparse_coo_tensor(i, v, (4,))
    return s, s.coalesce(), s.to_dense()


@session
def test_a_sparse_tensor_is_appended_to_a_list_argument(compile):
    def f(xs, indices):
        xs.append(torch.sparse_coo_tensor(indices, xs[0], (4,)) * 2)

    xs = [leaf(2)]
    compile(f)(xs, torch.tensor([[0, 2]], device=xs[0].device))
    yield xs[0], xs[1].to_dense()


@session
def test_a_sparse_result_shares_the_values_it_was_made_of(compile):
    compiled = compile(lambda i, v: torch.sparse_coo_tensor(i, v, (4,)))
    v = plain(3)
    s = compiled(integers(0, 2, 2)[None], v)
    v.add_(1)
    yield v, s


@agrees(lambda: given(holey(2, 3), plain(2, 3)), lambda: given(holey_leaf(2, 3), plain(2, 3)))
def test_a_sparse_tensor_is_added_in_place_to_dense_tensors(x, b):
    y = x * 2
    y.add_(x.to_sparse())
    b.add_(x.to_sparse())
    return y, b * 2


REFUSED = {
    "its indices": lambda x: x.to_sparse().indices(),
    "its values": lambda x: x.to_sparse().values(),
    "how many elements it has": lambda x: x.to_sparse()._nnz(),
    "written": lambda x: x.to_sparse().mul_(2),
    "given other data": lambda x: setattr(x.to_sparse(), "data", (x * 2).to_sparse()),
    "a leaf": lambda x: x.to_sparse().requires_grad_(),
    "what it was made of is written": lambda x: (
        torch.sparse_coo_tensor(torch.zeros(1, 3, dtype=torch.int64, device=x.device), x[0], (4,)),
        x.add_(1),
    ),
}


@pytest.mark.parametrize("f", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_of_sparse_tensors_made_inside(f):
    x = holey(2, 3)
    with pytest.raises(aotcheck.UnsupportedError, match=r"sparse tensor|data-dependent"):
        aotcheck.aot_function(f)(x)
    assert torch.equal(x, holey(2, 3))


def uncoalesced():
    places = torch.stack([integers(0, 1, 1), integers(0, 2, 2)])
    return torch.sparse_coo_tensor(places, plain(3), (2, 3))


MADE = {
    "coalesced": lambda: holey(2, 3).to_sparse(),
    "uncoalesced": uncoalesced,
    "without elements": lambda: torch.zeros_like(plain(2, 3)).to_sparse(),
    "hybrid": lambda: holey(2, 3).to_sparse(1),
    "transposed": lambda: holey(3, 2).to_sparse().t(),
}

TAKING = {
    "product": lambda s, d: torch.sparse.mm(s, d),
    "two layers": lambda s, d: torch.sparse.mm(s.t(), torch.sparse.mm(s, d).relu()),
    "dense": lambda s, d: s.to_dense() @ d,
    "itself": lambda s, d: (s, s.coalesce(), s * 2),
    "added in place": lambda s, d: (d * 2)[:2].add_(torch.sparse.mm(s, d)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("f", TAKING.values(), ids=TAKING)
@pytest.mark.parametrize("kind", ["plain", "leaf", "not a leaf"])
@session
def test_sparse_arguments(compile, make, f, kind):
    compiled = compile(f)
    for _ in range(2):
        x, d = make(), leaf(3, 2)
        x.requires_grad_(kind != "plain")
        s = x * 1 if kind == "not a leaf" else x
        out = attempt(lambda s=s, d=d: compiled(s, d))
        yield x, s, d, out
        wanted = [t for t in (out if isinstance(out, tuple) else (out,)) if getattr(t, "grad_fn", None)]
        for t in wanted[-1:]:
            yield attempt_later(lambda t=t: t.backward(holey(2, 3).to_sparse() if t.is_sparse else plain(*t.shape)))
        yield x, d


def test_one_function_is_called_with_many_kinds_of_sparse_tensors():
    makes = [lambda make=make: given(make(), plain(3, 2)) for make in MADE.values()]
    check(lambda s, d: s @ d, *makes, lambda: given(plain(2, 3), plain(3, 2)))


def test_a_sparse_tensor_is_passed_twice_and_with_its_detached_alias():
    check(lambda s, t, u: (s * t + u).to_dense(), lambda: (lambda s: given(s, s, s.detach()))(holey(2, 3).to_sparse()))


@session
def test_a_sparse_buffer_and_a_captured_sparse_tensor(compile):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("graph", holey(3, 3).to_sparse())
            self.weight = torch.nn.Parameter(plain(2, 2))

        def forward(self, x):
            return torch.sparse.mm(self.graph, x @ self.weight)

    layer, x = Layer(), leaf(3, 2)
    compile(layer)(x).backward(plain(3, 2))
    yield layer.weight, x
    s = holey(2, 3).to_sparse()
    yield compile(lambda d: torch.sparse.mm(s, d))(plain(3, 2))


@session
def test_the_caller_writes_a_sparse_argument_before_the_backward(compile):
    s, d = holey(2, 3).to_sparse(), leaf(3, 2)
    out = compile(torch.sparse.mm)(s, d)
    s.mul_(2)
    yield attempt_later(lambda: out.backward(plain(2, 2))), d.grad


@session
def test_saved_tensor_hooks_around_a_call_that_saves_sparse_tensors(compile):
    seen = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.is_sparse), t)[1], lambda t: t)
    x, s, d = holey_leaf(2, 3), holey(2, 3).to_sparse(), leaf(3, 2)
    with hooks:
        out = compile(lambda x, s, d: torch.sparse.mm(x.to_sparse(), d) + s @ d)(x, s, d)
    out.backward(plain(2, 2))
    yield any(seen), x, s, d


@pytest.mark.on_the_cpu("torch multiplies no sparse tensors of half precision on a GPU")
@pytest.mark.parametrize("multiply", [torch.sparse.mm, torch.matmul, lambda s, d: torch.mv(s, d[:, 0])])
@session
def test_a_sparse_product_under_autocast(compile, multiply):
    s, d = holey(2, 3).to_sparse(), plain(3, 2)
    with torch.autocast(d.device.type):
        yield compile(multiply)(s, d)


def test_what_is_refused_of_sparse_arguments():
    def f(s, v):
        return v.mul_(2), s.to_dense()

    s = holey(2, 3).to_sparse()
    with pytest.raises(aotcheck.UnsupportedError, match="sparse tensor"):
        aotcheck.aot_function(f)(s, s._values())
    with pytest.raises(aotcheck.UnsupportedError, match="sparse tensor"):
        aotcheck.aot_function(lambda s: s.mul_(2))(s)
    assert torch.equal(s.to_dense(), holey(2, 3))


@pytest.mark.parametrize("to", LAYOUTS.values(), ids=LAYOUTS)
def test_compressed_sparse_tensors_made_inside(to):
    def f(x):
        s = to(x)
        return s, s.detach(), s * 2, s.to_dense() * 2, s.to_sparse()

    check(f, lambda: given(holey(2, 3)), lambda: given(plain(2, 3)), probe=False)
    check(lambda x, d: to(x) @ d, lambda: given(holey(2, 3), leaf(3, 2)), lambda: given(holey_leaf(2, 3), leaf(3, 2)))


BY_ONES = (torch.sparse_csr, torch.sparse_csc)


@pytest.mark.parametrize("to", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("kind", ["plain", "leaf", "not a leaf"])
@session
def test_compressed_sparse_arguments(compile, to, kind):
    compiled = compile(lambda s, d: (s, s @ d, s.t()) if s.layout in BY_ONES else (s, s.to_dense() @ d, s.t()))
    for make in (holey, plain, lambda *n: torch.zeros_like(plain(*n))):
        x, d = to(make(2, 3)), leaf(3, 2)
        x.requires_grad_(kind != "plain" and x.layout in BY_ONES)
        s = x * 1 if kind == "not a leaf" and x.layout in BY_ONES else x
        out = compiled(s, d)
        yield x, s, d, out
        out[1].backward(plain(2, 2))
        yield x, d


def test_a_linear_layer_with_a_compressed_sparse_weight():
    check(lambda x, w: F.linear(x, w), lambda: given(leaf(2, 3), holey(4, 3).to_sparse_csr()))


def test_sampled_and_reduced_products_of_compressed_sparse_tensors():
    def made():
        return holey(2, 3).to_sparse_csr()

    check(lambda s, a, b: torch.sparse.sampled_addmm(s, a, b), lambda: given(made(), plain(2, 4), plain(4, 3)))
    for how in ("sum", "mean"):
        check(lambda s, d, how=how: torch.sparse.mm(s, d, how), lambda: given(made(), leaf(3, 2)))
        check(lambda s, d, how=how: torch.sparse.mm(s, d, how), lambda: given(made().requires_grad_(), leaf(3, 2)))
