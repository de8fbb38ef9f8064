"""Fresh outputs, inputs returned, types, strides, duplicates, constants, empty tensors."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Raised, agrees, attempt, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import non_leaf


def test_strides_of_a_sum_with_a_written_operand_are_those_of_eager():
    def f(x, y):
        y.sigmoid_()
        return x.clone() + y.unsqueeze(0)

    def make():
        return given(to_device(torch.zeros(2, 2)).as_strided((2, 1), (1, 2)), leaf(1, 2).as_strided((1, 2), (1, 1)) * 1)

    check(f, make)


@agrees(lambda: given(leaf(3)), lambda: given(plain(3)), anew=True)
def test_equal_computations_views_and_constants_are_not_merged(x):
    computed = x * 2, x * 2, x.clone(), x.clone(), x.view(-1), x.view(-1)
    return (
        *computed,
        torch.zeros(3, device=x.device),
        torch.zeros(3, device=x.device),
        torch.zeros_like(x),
        torch.zeros_like(x),
    )


@agrees(lambda: given(leaf(2, 3)), lambda: non_leaf(2, 3), anew=True)
def test_an_object_returned_twice_stays_one_object_among_views_and_inputs(x):
    y = x.view(-1)
    z = x * 2
    w = z[0]
    return x, y, y, z, (w, w), {"x": x}


def test_results_of_a_foreach_op_do_not_alias_one_another():
    check(lambda x, y: torch._foreach_mul([x, y], 2), lambda: given(leaf(3), leaf(3)))


@session
def test_batch_norm_of_a_transposed_input_in_inference_mode_has_eagers_strides(compile):
    f = compile(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True))
    with torch.inference_mode():
        yield f(plain(2, 2).t())


OPS = {
    "sort": lambda x: torch.sort(x, dim=3, stable=True),
    "argsort": lambda x: torch.argsort(x, dim=1),
    "topk": lambda x: torch.topk(x, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(1),
    "softmax": lambda x: x.softmax(-1),
    "flip": lambda x: x.flip(0),
    "tril": lambda x: x.tril(),
    "kthvalue": lambda x: x.kthvalue(1, dim=1),
    "index_select": lambda x: x.index_select(1, torch.tensor([1, 0], device=x.device)),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 1, return_indices=True),
}


@pytest.mark.parametrize("stride", [(1, 1, 2, 4), (8, 4, 2, 1), (4, 4, 2, 1), (1, 2, 4, 8)], ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@session
def test_results_without_elements_have_eagers_strides(compile, op, stride):
    def f(x):
        found = op(x)
        return [t.view(torch.uint8) for t in (found if isinstance(found, tuple) else (found,))]

    x = to_device(torch.empty_strided((0, 2, 2, 2), stride))
    yield attempt(lambda: compile(f)(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: (x + 1).t(),
        lambda x: x.sum(),
        lambda x: x.to(torch.float64),
        lambda x: x > 0,
        lambda x: x.argmax(-1),
        lambda x: x.new_zeros(0),
        lambda x: torch.complex(x, x),
        lambda x: (x * 2).unsqueeze(0).contiguous(memory_format=torch.channels_last),
        lambda x: (x * 2).expand(2, *x.shape),
        lambda x: (x * 2).detach(),
        lambda x: torch.complex(x, x).conj(),
    ],
    ids=[
        "same shape",
        "transposed",
        "zero-dim",
        "float64",
        "bool",
        "integer",
        "zero-size",
        "complex",
        "channels last",
        "expanded",
        "detached",
        "conjugate",
    ],
)
def test_a_fresh_output(function):
    check(function, lambda: given(leaf(2, 3, 2)))


@pytest.mark.parametrize("make", [lambda: given(leaf(3)), lambda: given(plain(3)), lambda: non_leaf(3)])
def test_an_input_returned_is_that_input(make):
    check(lambda x: (x, x * 2), make)


def test_a_parameter_returned_is_that_parameter():
    net = torch.nn.Linear(2, 2, dtype=torch.float32)

    def f(weight, x):
        return x @ weight, weight

    check(f, lambda: given(torch.nn.Parameter(net.weight.detach().clone().fill_(2).to(plain(1).device)), plain(2, 2)))


def test_contiguous_returns_an_input_that_is_contiguous():
    check(lambda x: x.contiguous(), lambda: given(leaf(2, 3)), lambda: given(plain(3, 2).t()))


@pytest.mark.parametrize("made", ["after", "before"])
@session
def test_a_returned_part_has_the_storage_of_its_base(compile, made):
    @compile
    def f(x):
        whole = torch.zeros(3, device=x.device)
        part = whole[:1]
        whole.add_(1)
        part.add_(1)
        return part if made == "before" else whole[:1]

    y = f(plain(1))
    yield y, y.untyped_storage().nbytes()
    yield y, y.as_strided((3,), (1,)), y.resize_(2)


@pytest.mark.parametrize("pool", [torch.max_pool1d, torch.nn.functional.max_pool1d, torch.nn.MaxPool1d(2)])
@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("lies", ["in rows", "transposed", "transposed twice"])
@session
def test_the_result_of_max_pool1d_has_eagers_strides(compile, lies, context, make, pool):
    def f(x):
        for _ in range({"in rows": 0, "transposed": 1, "transposed twice": 2}[lies]):
            x = x.transpose(1, 2)
        return pool(x) if isinstance(pool, torch.nn.Module) else pool(x, 2)

    x = make(2, 4, 6)
    with context():
        out = compile(f)(x)
    yield out, out.stride()


@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@session
def test_the_result_of_max_pool1d_is_no_view(compile, context):
    def f(x):
        pooled = torch.max_pool1d(x, 2)
        return pooled.detach_(), pooled[0]

    compiled = compile(f)
    for x in (plain(2, 4), plain(1, 2, 4)):
        with context():
            found = attempt(lambda x=x: compiled(x))
        if isinstance(found, Raised):
            yield found  # on a GPU it is a view, which cannot be detached in place
            return
        pooled, part = found
        yield pooled, part, getattr(part._base, "shape", None)


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("n", [2, 3, 5])
@agrees(lambda make, n: given(make(n, n)))
def test_a_dtype_view_of_batch_norm_of_a_transposed_input_has_eagers_strides(x, *, n):
    normal = torch.nn.functional.batch_norm(x.t(), None, None, training=True)
    return normal.expand(2, n, n).view(torch.uint8), x * 1


ENDS = {
    "tensors": lambda z: (z[0], z[1]),
    "a tensor and a number": lambda z: (z[0], 3.0),
    "a number and a tensor": lambda z: (2.0, z[1]),
    "complex and real": lambda z: (z[0], z[1].real.double()),
    "complex and integer": lambda z: (z[1], torch.tensor(3, device=z.device)),
}


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("line", [torch.linspace, torch.logspace])
@session
def test_linspace_and_logspace_between_complex_ends_are_complex(compile, line, ends, dtype, default):
    def f(z):
        points = line(*ENDS[ends](z), 4, device=z.device)
        return points, points * z, points.imag.sum() * z.real

    torch.set_default_dtype(default)
    try:
        z = leaf(4, dtype=dtype)
        points, product, part = compile(f)(z)
        yield points, product, part, torch.autograd.grad(product.real.sum() + part.sum(), z)
    finally:
        torch.set_default_dtype(torch.float32)


def test_svd_and_eig_have_eagers_strides():
    def f(x):
        return (*torch.linalg.svd(x), *torch.linalg.svd(x, full_matrices=False), *torch.linalg.eig(x[..., :2, :2]))

    for size in [(3, 3), (2, 3, 3), (3, 5), (5, 3), (2, 2, 4, 3)]:
        x = to_device(torch.randn(size, dtype=torch.float64))
        compiled = aotcheck.aot_function(f)
        for _ in range(2):
            assert [t.stride() for t in compiled(x)] == [t.stride() for t in f(x)]
