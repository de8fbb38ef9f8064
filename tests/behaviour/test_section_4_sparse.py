"""BEHAVIOUR 3, 4 and 5: sparse tensors as arguments and made inside, their gradients and those of embeddings."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, check, check_session, given, leaf, plain


def holey(*shape, dtype=torch.float32):
    """Every other element is zero."""
    t = plain(*shape, dtype=dtype)
    t.view(-1)[::2] = 0
    return t


def holey_leaf(*shape):
    return holey(*shape).requires_grad_()


def whole(*numbers):
    return plain(1).new_tensor(numbers, dtype=torch.int64)


# -- made inside, without gradients -------------------------------------------------------------------

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


def test_a_product_with_a_dense_matrix():
    check(lambda x, d: torch.sparse.mm(x.to_sparse(), d), lambda: given(holey(2, 3), plain(3, 2)))
    check(lambda x, d: x.to_sparse() @ d, lambda: given(holey(2, 3), plain(3, 2)))


def test_an_error_of_eager_is_eagers():
    check(lambda x, d: torch.sparse.mm(x.to_sparse(), d), lambda: given(holey(2, 3), plain(2, 3)))


def test_under_no_grad():
    def f(x):
        with torch.no_grad():
            s = x.to_sparse() * 2
        return s, s.to_dense() * x

    check(f, lambda: given(holey_leaf(2, 3)), probe=False)


def test_in_inference_mode():
    def session(compile):
        compiled = compile(lambda x: x.to_sparse().coalesce() * 2)
        with torch.inference_mode():
            yield compiled(holey(2, 3))

    check_session(session)


def test_made_of_indices_and_values():
    def f(i, v):
        s = torch.sparse_coo_tensor(i, v, (4,))
        return s, s.coalesce(), s.to_dense()

    check(f, lambda: given(whole(0, 2, 2)[None], plain(3)), probe=False)


def test_put_into_a_list_of_the_callers():
    def f(xs, indices):
        xs.append(torch.sparse_coo_tensor(indices, xs[0], (4,)) * 2)

    def session(compile):
        xs = [leaf(2)]
        compile(f)(xs, torch.tensor([[0, 2]], device=xs[0].device))
        yield xs[0], xs[1].to_dense()

    check_session(session)


def test_its_values_are_those_it_was_made_of():
    def session(compile):
        compiled = compile(lambda i, v: torch.sparse_coo_tensor(i, v, (4,)))
        v = plain(3)
        s = compiled(whole(0, 2, 2)[None], v)
        v.add_(1)
        yield v, s

    check_session(session)


def test_added_in_place_to_dense_tensors():
    def f(x, b):
        y = x * 2
        y.add_(x.to_sparse())
        b.add_(x.to_sparse())
        return y, b * 2

    check(f, lambda: given(holey(2, 3), plain(2, 3)), lambda: given(holey_leaf(2, 3), plain(2, 3)))


REFUSED = {
    "its indices": lambda x: x.to_sparse().indices(),
    "its values": lambda x: x.to_sparse().values(),
    "how many elements it has": lambda x: x.to_sparse()._nnz(),
    "written": lambda x: x.to_sparse().mul_(2),
    "given other data": lambda x: setattr(x.to_sparse(), "data", (x * 2).to_sparse()),
    "a leaf": lambda x: x.to_sparse().requires_grad_(),
    "what it was made of is written": lambda x: (
        torch.sparse_coo_tensor(torch.zeros(1, 3, dtype=torch.int64), x[0], (4,)),
        x.add_(1),
    ),
}


@pytest.mark.parametrize("f", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(f):
    x = holey(2, 3)
    with pytest.raises(aotcheck.UnsupportedError, match=r"sparse tensor|data-dependent"):
        aotcheck.aot_function(f)(x)
    assert torch.equal(x, holey(2, 3))


# -- arguments ----------------------------------------------------------------------------------------


def uncoalesced():
    places = torch.stack([whole(0, 1, 1), whole(0, 2, 2)])
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
def test_sparse_arguments(make, f, kind):
    def session(compile):
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

    check_session(session)


def test_one_function_of_many_sparse_tensors():
    makes = [lambda make=make: given(make(), plain(3, 2)) for make in MADE.values()]
    check(lambda s, d: s @ d, *makes, lambda: given(plain(2, 3), plain(3, 2)))


def test_a_sparse_tensor_twice_and_its_detached_alias():
    check(lambda s, t, u: (s * t + u).to_dense(), lambda: (lambda s: given(s, s, s.detach()))(holey(2, 3).to_sparse()))


def test_a_sparse_buffer_and_a_captured_sparse_tensor():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("graph", holey(3, 3).to_sparse())
            self.weight = torch.nn.Parameter(plain(2, 2))

        def forward(self, x):
            return torch.sparse.mm(self.graph, x @ self.weight)

    def session(compile):
        layer, x = Layer(), leaf(3, 2)
        compile(layer)(x).backward(plain(3, 2))
        yield layer.weight, x
        s = holey(2, 3).to_sparse()
        yield compile(lambda d: torch.sparse.mm(s, d))(plain(3, 2))

    check_session(session)


def test_a_sparse_argument_is_written_since():
    def session(compile):
        s, d = holey(2, 3).to_sparse(), leaf(3, 2)
        out = compile(torch.sparse.mm)(s, d)
        s.mul_(2)
        yield attempt_later(lambda: out.backward(plain(2, 2))), d.grad

    check_session(session)


def test_a_sparse_gradient_that_is_read():
    def session(compile):
        w = leaf(4, 3)
        compiled = compile(lambda i, w: (looked_up(i, w) * 2, w.grad))
        for _ in range(2):
            out, gradient = compiled(indices(), w)
            yield out, gradient
            out.backward(plain(3, 3))

    check_session(session)


def test_saved_tensor_hooks_around_the_call():
    def session(compile):
        seen = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.is_sparse), t)[1], lambda t: t)
        x, s, d = holey_leaf(2, 3), holey(2, 3).to_sparse(), leaf(3, 2)
        with hooks:
            out = compile(lambda x, s, d: torch.sparse.mm(x.to_sparse(), d) + s @ d)(x, s, d)
        out.backward(plain(2, 2))
        yield any(seen), x, s, d

    check_session(session)


@pytest.mark.parametrize("multiply", [torch.sparse.mm, torch.matmul, lambda s, d: torch.mv(s, d[:, 0])])
def test_a_product_under_autocast(multiply):
    def session(compile):
        s, d = holey(2, 3).to_sparse(), plain(3, 2)
        with torch.autocast(d.device.type):
            yield compile(multiply)(s, d)

    check_session(session)


def test_what_is_refused_of_sparse_arguments():
    def f(s, v):
        return v.mul_(2), s.to_dense()

    s = holey(2, 3).to_sparse()
    with pytest.raises(aotcheck.UnsupportedError, match="sparse tensor"):
        aotcheck.aot_function(f)(s, s._values())
    with pytest.raises(aotcheck.UnsupportedError, match="sparse tensor"):
        aotcheck.aot_function(lambda s: s.mul_(2))(s)
    assert torch.equal(s.to_dense(), holey(2, 3))


# -- sparse gradients ---------------------------------------------------------------------------------


def indices():
    return whole(1, 0, 1)


def looked_up(i, w):
    return F.embedding(i, w, sparse=True)


EMBEDDINGS = {
    "alone": looked_up,
    "and a loss": lambda i, w: (looked_up(i, w) ** 2).sum(),
    "twice": lambda i, w: looked_up(i, w) * 2 + looked_up(i.flip(0), w) * 3,
    "two results": lambda i, w: (looked_up(i, w), looked_up(i + 1, w) * 2),
    "beside a dense use": lambda i, w: looked_up(i, w).sum() + (w * w).sum(),
    "dense and sparse results": lambda i, w: (looked_up(i, w), w * 2),
    "of something computed": lambda i, w: looked_up(i, w * 2),
    "of something computed and returned": lambda i, w: (lambda v: (v, looked_up(i, v)))(w.square()),
    "two dimensions": lambda i, w: looked_up(torch.stack([i, i + 1]), w),
    "an offset of a bag": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), sparse=True),
    "a bag that sums": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), mode="sum", sparse=True),
    "a bag of rows": lambda i, w: F.embedding_bag(i.reshape(1, 3), w, sparse=True),
    "with padding": lambda i, w: F.embedding(i, w, padding_idx=1, sparse=True),
    "with padding, all of it": lambda i, w: F.embedding(i * 0 + 1, w, padding_idx=1, sparse=True),
    "with padding, two dimensions": lambda i, w: F.embedding(torch.stack([i, i + 1]), w, padding_idx=2, sparse=True),
    "a bag with padding": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), sparse=True, padding_idx=0),
    "an index that is written": lambda i, w: looked_up(i.add_(1), w),
    "a scale that eager refuses": lambda i, w: F.embedding(i, w, scale_grad_by_freq=True, sparse=True),
}


@pytest.mark.parametrize("f", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize("which", [None, [0], [-1]], ids=["all", "first", "last"])
def test_sparse_gradients_of_embeddings(f, which):
    options = {} if which is None else {"backward": which}
    check(f, lambda: given(indices(), leaf(4, 3)), lambda: given(indices(), leaf(4, 3, seed=1)), **options)


def test_weights_of_samples():
    def f(i, w, p):
        return F.embedding_bag(i, w, i.new_tensor([0, 2]), mode="sum", sparse=True, per_sample_weights=p)

    check(f, lambda: given(indices(), leaf(4, 3), leaf(3)))


def test_gradients_accumulate():
    def session(compile):
        w = leaf(4, 3)
        sparse, dense = compile(lambda i, w: looked_up(i, w) * 2), compile(lambda i, w: w[i] * 2)
        for f in (sparse, sparse, dense, sparse):
            (f(indices(), w) * plain(3, 3)).sum().backward()
            yield w, w.grad

    check_session(session)


def test_gradients_asked_for():
    def session(compile):
        w = leaf(4, 3)
        out = compile(lambda i, w: looked_up(i, w) * 2)(indices(), w)
        yield torch.autograd.grad(out, w, plain(3, 3), retain_graph=True)
        yield torch.autograd.grad(out, w, plain(3, 3, seed=1))
        yield attempt_later(lambda: torch.autograd.grad(out, w, plain(3, 3)))

    check_session(session)


def test_hooks_see_sparse_gradients():
    def session(compile):
        def f(i, w):
            w.register_hook(lambda g: g * 3)
            return looked_up(i, w)

        w, seen = leaf(4, 3), []
        w.register_hook(seen.append)
        w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad))
        compile(f)(indices(), w).backward(plain(3, 3))
        yield w, w.grad, seen

    check_session(session)


def test_gradients_of_sparse_gradients():
    def session(compile):
        w = leaf(4, 3)
        out = compile(lambda i, w: looked_up(i, w) ** 2)(indices(), w)
        (g,) = torch.autograd.grad(out, w, plain(3, 3), create_graph=True)
        yield g
        g.to_dense().pow(2).sum().backward()
        yield w.grad

    check_session(session)


def test_a_backward_inside():
    def session(compile):
        def f(i, w):
            (looked_up(i, w) * 2).sum().backward()
            return w * 1

        w = leaf(4, 3)
        yield compile(f)(indices(), w), w.grad

    check_session(session)


def test_a_sparse_tangent_of_a_dense_result():
    def session(compile):
        w = leaf(4, 3)
        made = compile(lambda w: w.square())
        for tangent in (plain(4, 3).to_sparse(1), plain(4, 3), holey(4, 3).to_sparse()):
            made(w).backward(tangent)
            yield w, w.grad
        v = made(w)
        compile(looked_up)(indices(), v).backward(plain(3, 3))
        yield w, w.grad

    check_session(session)


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.SGD([w], lr=0.5),
        lambda w: torch.optim.SGD([w], lr=0.5, momentum=0.5),
        lambda w: torch.optim.SparseAdam([w], lr=0.5),
        lambda w: torch.optim.Adagrad([w], lr=0.5),
    ],
    ids=["SGD", "SGD with momentum", "SparseAdam", "Adagrad"],
)
def test_optimizers_take_sparse_gradients(make):
    def session(compile):
        table = torch.nn.Embedding(4, 3, sparse=True, _weight=plain(4, 3))
        compiled, optimizer = compile(table), make(table.weight)
        for k in range(3):
            optimizer.zero_grad()
            (compiled(indices() + k % 2) ** 2).sum().backward()
            optimizer.step()
            yield table.weight

    check_session(session, rtol=1e-6)


# -- gradients through sparse tensors -----------------------------------------------------------------

THROUGH = {
    "there and back": lambda x, d: (x * x).to_sparse().to_dense(),
    "scaled": lambda x, d: (x.to_sparse() * 2).to_dense() * x,
    "hybrid": lambda x, d: x.to_sparse(1).to_dense() * 2,
    "product": lambda x, d: torch.sparse.mm(x.to_sparse(), d),
    "product of what has no gradient": lambda x, d: torch.sparse.mm(x.detach().to_sparse(), d),
    "product with what has no gradient": lambda x, d: torch.sparse.mm(x.to_sparse(), d.detach()),
    "added": lambda x, d: torch.sparse.addmm(d[:2], x.to_sparse(), d),
    "a sum": lambda x, d: torch.sparse.sum(x.to_sparse(), 0).to_dense(),
    "pointwise": lambda x, d: x.to_sparse().abs().tanh().to_dense(),
    "sum of two": lambda x, d: (x.to_sparse() + x.to_sparse() * 2).to_dense(),
    "product of two": lambda x, d: (x.to_sparse() * (x * 2).to_sparse()).to_dense(),
    "beside dense": lambda x, d: x + x.to_sparse(),
    "transposed": lambda x, d: torch.sparse.mm(x.to_sparse().t(), d[:2]),
    "cut": lambda x, d: x.to_sparse().detach().to_dense() * x,
    "hook": lambda x, d: (lambda s: (s.register_hook(lambda g: g * 2), s.to_dense())[1])((x * x).to_sparse()),
}


@pytest.mark.parametrize("f", THROUGH.values(), ids=THROUGH)
def test_gradients_through_sparse_tensors(f):
    check(f, lambda: given(holey_leaf(2, 3), leaf(3, 2)), lambda: given(leaf(2, 3), leaf(3, 2)), rtol=1e-6)


@pytest.mark.parametrize("places", [(2, 0, 2), (0, 1, 2)], ids=["twice", "once"])
def test_gradients_of_the_values_it_is_made_of(places):
    def f(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (4,))
        t = torch.sparse_coo_tensor(torch.cat([i, i]), v * 2, (3, 3))
        return s, s.to_dense(), torch.sparse.mm(t, d)

    def last_two(outs):
        torch.autograd.backward(outs[1:], [plain(*o.shape) for o in outs[1:]])

    check(f, lambda: given(whole(*places)[None], leaf(3), leaf(3, 2)), backward=last_two, probe=False)


RETURNED = {
    "alone": lambda x: (x * x).to_sparse() * 3,
    "transposed": lambda x: (x * x).to_sparse().t(),
    "with what is computed from it": lambda x: (lambda s: (s, s * 2))((x * x).to_sparse()),
    "with a dense result": lambda x: (lambda s: (s, s.to_dense() * x))((x * x).to_sparse()),
    "as it came": lambda x: x.to_sparse(),
}


@pytest.mark.parametrize("f", RETURNED.values(), ids=RETURNED)
def test_sparse_results_with_histories(f):
    def session(compile):
        compiled = compile(f)
        for last in (False, True):
            x = holey_leaf(2, 3)
            out = compiled(x)
            outs = out if isinstance(out, tuple) else (out,)
            seen = []
            for s in outs:
                s.register_hook(seen.append)
                s.retain_grad()
            wanted = outs[-1:] if last else outs
            dense = [s.to_dense() if s.is_sparse else s for s in wanted]
            torch.autograd.backward(dense, [plain(*d.shape) for d in dense])
            yield x, outs, [s.grad for s in outs], seen

    check_session(session)


def test_tangents_of_sparse_results():
    def session(compile):
        x = holey_leaf(2, 3)
        compiled = compile(lambda x: (x * x).to_sparse())
        for tangent in (plain(2, 3).to_sparse(), plain(2, 3)):
            yield attempt_later(lambda t=tangent: compiled(x).backward(t)), x.grad
        torch.sparse.sum(compiled(x)).backward()
        yield x.grad, torch.autograd.grad(compiled(x), x, plain(2, 3).to_sparse())

    check_session(session)


def test_autograd_refuses_to_record_what_eager_refuses():
    for f in (lambda x: x.to_sparse(), lambda x: x.to_sparse_csr()):
        check(f, lambda: given(leaf(2, 2, dtype=torch.complex128)))


# -- compressed layouts -------------------------------------------------------------------------------

BY_ONES = (torch.sparse_csr, torch.sparse_csc)
LAYOUTS = {
    "rows": lambda x: x.to_sparse_csr(),
    "columns": lambda x: x.to_sparse_csc(),
    "blocks by rows": lambda x: x.to_sparse_bsr((2, 1)),
    "blocks by columns": lambda x: x.to_sparse_bsc((2, 1)),
}


@pytest.mark.parametrize("to", LAYOUTS.values(), ids=LAYOUTS)
def test_compressed_tensors_made_inside(to):
    def f(x):
        s = to(x)
        return s, s.detach(), s * 2, s.to_dense() * 2, s.to_sparse()

    check(f, lambda: given(holey(2, 3)), lambda: given(plain(2, 3)), probe=False)
    check(lambda x, d: to(x) @ d, lambda: given(holey(2, 3), leaf(3, 2)), lambda: given(holey_leaf(2, 3), leaf(3, 2)))


@pytest.mark.parametrize("to", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("kind", ["plain", "leaf", "not a leaf"])
def test_compressed_arguments(to, kind):
    def session(compile):
        compiled = compile(lambda s, d: (s, s @ d, s.t()) if s.layout in BY_ONES else (s, s.to_dense() @ d, s.t()))
        for make in (holey, plain, lambda *n: torch.zeros_like(plain(*n))):
            x, d = to(make(2, 3)), leaf(3, 2)
            x.requires_grad_(kind != "plain" and x.layout in BY_ONES)
            s = x * 1 if kind == "not a leaf" and x.layout in BY_ONES else x
            out = compiled(s, d)
            yield x, s, d, out
            out[1].backward(plain(2, 2))
            yield x, d

    check_session(session)


@pytest.mark.parametrize("to", list(LAYOUTS.values())[:2], ids=list(LAYOUTS)[:2])
def test_gradients_through_compressed_tensors(to):
    check(lambda x: to(x * x).to_dense() * x, lambda: given(holey_leaf(2, 3)), lambda: given(leaf(2, 3)))
    check(lambda s: s.to_dense() * 2, lambda: given(to(holey(2, 3)).requires_grad_()))


def test_a_compressed_weight():
    check(lambda x, w: F.linear(x, w), lambda: given(leaf(2, 3), holey(4, 3).to_sparse_csr()))


def test_sampled_and_reduced_products():
    def made():
        return holey(2, 3).to_sparse_csr()

    check(lambda s, a, b: torch.sparse.sampled_addmm(s, a, b), lambda: given(made(), plain(2, 4), plain(4, 3)))
    for how in ("sum", "mean"):
        check(lambda s, d, how=how: torch.sparse.mm(s, d, how), lambda: given(made(), leaf(3, 2)))
        check(lambda s, d, how=how: torch.sparse.mm(s, d, how), lambda: given(made().requires_grad_(), leaf(3, 2)))


@pytest.mark.parametrize("roots", [(0,), (1,), (0, 1), (1, 2), (0, 2)], ids=str)
def test_a_derivative_by_a_sparse_result_has_one_itself(roots):
    def session(compile):
        x = leaf(2, 3)
        results = compile(lambda x: (x * 3, (x * x).to_sparse(), x.to_sparse()))(x)
        chosen = [results[k] for k in roots]
        given = [plain(2, 3, seed=k).to_sparse() if t.is_sparse else plain(2, 3, seed=k) for k, t in enumerate(chosen)]
        (first,) = torch.autograd.grad(chosen, x, given, create_graph=True)
        yield first.detach(), first.requires_grad
        if first.requires_grad:
            yield torch.autograd.grad(first.square().sum(), x)

    check_session(session)
