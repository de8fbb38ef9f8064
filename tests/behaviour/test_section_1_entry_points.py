"""BEHAVIOUR 1: the ways in, what a compiler is called with, and what may be passed."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from typing import Any, NamedTuple

import functorch.compile
import pytest
import torch
from torch import nn

import aotcheck
from tests.behaviour import harness
from tests.behaviour.harness import (
    Recorder,
    backward,
    check,
    check_session,
    given,
    leaf,
    overlap,
    plain,
    through_dynamo,
)

# -- aot_function and its compilers ------------------------------------------------------------------


COMPILING = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions", "inference_compiler")
OPTIONS = {
    "aot_function": (
        "fn",
        *COMPILING,
        "num_params_buffers",
        "keep_inference_input_mutations",
        "dynamic",
        "enable_log",
    ),
    "aot_module": ("mod",),
    "aot_module_simplified": ("mod", "args", *COMPILING, "keep_inference_input_mutations"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_arguments_are_named_as_torchs(name: str):
    ours = inspect.signature(getattr(aotcheck, name)).parameters
    torchs = inspect.signature(getattr(functorch.compile, name)).parameters
    assert set(OPTIONS[name]) <= set(ours)
    assert set(OPTIONS[name]) <= set(torchs)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    names = [n for n in OPTIONS[name] if torchs[n].kind is not keyword_only]
    assert sorted(names, key=list(torchs).index) == sorted(names, key=list(ours).index), "in the order of torch's"


def test_a_compiler_is_called_with_a_graph_and_fake_tensors():
    calls: list[tuple[Any, Any]] = []

    def compiler(graph, examples):
        calls.append((graph, examples))
        return graph

    x, y = leaf(2, 3), leaf(3, 2, seed=1)
    out = aotcheck.aot_function(lambda x, y: x @ y, fw_compiler=compiler, bw_compiler=compiler)(x, y)
    backward([out])
    assert len(calls) == 2
    for graph, examples in calls:
        assert isinstance(graph, torch.fx.GraphModule)
        for example in examples:
            assert isinstance(example, torch._subclasses.FakeTensor)
            assert example.device == x.device
    assert [tuple(example.shape) for example in calls[0][1]] == [(2, 3), (3, 2)]


def test_without_a_compiler_the_graph_is_interpreted():
    compiled = aotcheck.aot_function(lambda x: x * 2)
    x = leaf(3)
    assert torch.equal(compiled(x), x * 2)


def test_a_compiler_may_return_any_callable():
    def f(x, y):
        return x * y, x + y

    class Callable:
        def __init__(self, graph):
            self.graph = graph

        def __call__(self, *args):
            return self.graph(*args)

    for returned in (
        lambda graph: graph,
        lambda graph: graph.forward,
        Callable,
        lambda g: lambda *args: list(g(*args)),
    ):

        def compiler(graph, examples, returned=returned):
            return returned(graph)

        check(
            f,
            lambda: given(leaf(3), leaf(3, seed=1)),
            compile=lambda f, compiler=compiler: aotcheck.aot_function(f, fw_compiler=compiler, bw_compiler=compiler),
        )


def test_a_compiler_may_return_a_boxed_callable():
    boxes: list[list[torch.Tensor]] = []

    def compiler(graph, examples):
        def run(args):
            boxes.append(args)
            inputs = list(args)
            args.clear()
            return graph(*inputs)

        run._boxed_call = True
        return run

    check(
        lambda x, y: (x * y, x + y),
        lambda: given(leaf(3), leaf(3, seed=1)),
        compile=lambda f: aotcheck.aot_function(f, fw_compiler=compiler, bw_compiler=compiler),
    )
    assert boxes
    assert all(isinstance(box, list) for box in boxes)


def test_make_boxed_func_makes_a_boxed_callable():
    check(
        lambda x: x * x,
        lambda: given(leaf(3)),
        compile=lambda f: aotcheck.aot_function(
            f, fw_compiler=lambda graph, _: aotcheck.make_boxed_func(graph.forward)
        ),
    )


def test_the_compiler_that_stands_for_both_directions():
    graphs = []

    def compiler(graph, examples):
        graphs.append(graph)
        return graph

    y = aotcheck.aot_function(lambda x: x * x, fw_compiler=compiler)(leaf(3))
    backward([y])
    assert len(graphs) == 2


def test_the_inference_compiler_gets_what_needs_no_backward():
    seen = []

    def named(name):
        def compiler(graph, examples):
            seen.append(name)
            return graph

        return compiler

    f = aotcheck.aot_function(
        lambda x: x * 2,
        fw_compiler=named("forward"),
        bw_compiler=named("backward"),
        inference_compiler=named("inference"),
    )
    f(plain(3))
    assert seen == ["inference"]
    with torch.no_grad():
        f(leaf(3))
    assert seen == ["inference", "inference"]
    backward([f(leaf(3))])
    assert seen == ["inference", "inference", "forward", "backward"]


def test_a_key_is_compiled_once():
    recorder = Recorder()
    f = recorder.compile(lambda x: x * 2)
    for _ in range(3):
        f(leaf(3))
    assert len(recorder.forwards) == 1
    f(leaf(4))
    assert len(recorder.forwards) == 2
    f(leaf(3))
    assert len(recorder.forwards) == 2


def test_the_original_function_is_not_run_again_for_a_known_key():
    runs = []

    def f(x):
        runs.append(1)
        return x * 2

    compiled = aotcheck.aot_function(f)
    for _ in range(3):
        compiled(plain(3))
    assert len(runs) == 1


def test_decompositions_apply_to_both_directions():
    from torch._decomp import get_decompositions

    recorder = Recorder()
    table = get_decompositions([torch.ops.aten.silu, torch.ops.aten.silu_backward])
    f = aotcheck.aot_function(
        nn.functional.silu, fw_compiler=recorder.forward, bw_compiler=recorder.backward, decompositions=table
    )
    x = leaf(3)
    backward([f(x)])
    ops = {str(node.target) for graph in recorder.graphs for node in graph.graph.nodes if node.op == "call_function"}
    assert ops
    assert not any("silu" in op for op in ops)
    again = leaf(3)
    backward([nn.functional.silu(again)])
    torch.testing.assert_close(x.grad, again.grad)


# -- arguments ---------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: given({"a": leaf(3), "b": [plain(3, seed=1), leaf(3, seed=2)]}),
        lambda: given(OrderedDict(b=leaf(3), a=(plain(3, seed=1), None, 2))),
        lambda: given(Point(leaf(3), plain(3, seed=1))),
        lambda: given([leaf(3), [leaf(3, seed=1), [2.5, None, True, "x"]]]),
    ],
    ids=["dict", "ordered dict", "named tuple", "nested lists"],
)
def test_nested_arguments(make):
    def f(tree):
        leaves = torch.utils._pytree.tree_leaves(tree)
        total = 0
        for x in leaves:
            if isinstance(x, (torch.Tensor, int, float)):
                total = total + x * 2
        return {"total": total, "tree": tree}

    check(f, make)


def test_keyword_arguments():
    def session(compile):
        f = compile(lambda x, *, y, n=2: (x * y * n, y))
        for more in ({}, {"n": 3}, {"n": plain(3, seed=4)}):
            x, y = leaf(3), leaf(3, seed=1)
            out = f(x, y=y, **more)
            backward([out[0]])
            yield x, y, out

    check_session(session)


def test_a_function_without_tensors():
    check(lambda n: n + 1, lambda: given(2), lambda: given(3))


def test_a_function_without_arguments():
    check(lambda: torch.ones(3), lambda: given())


def test_a_generator_as_an_argument(device: str):
    def session(compile):
        generator = torch.Generator(device).manual_seed(3)
        f = compile(lambda n, g: torch.rand(n, generator=g, device=device))
        yield f(3, generator), generator.get_state()
        yield f(3, generator), generator.get_state()

    check_session(session)


def test_an_entry_written_into_a_dict_argument_reaches_the_caller():
    def f(d):
        d["new"] = d["x"] * 2
        d["x"] = d["x"] + 1
        return d["new"] * 3

    check(f, lambda: given({"x": leaf(3)}))


def test_containers_of_the_caller_keep_their_identity():
    def f(d, xs, *, named):
        d["in"]["xs"] = xs
        xs.append(d["x"] * 2)
        xs.append([d["in"], 3])
        del d["gone"]
        named["y"] = named.pop("x") + 1
        return xs[1], d, [xs]

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            d, xs, named = {"x": leaf(3), "in": OrderedDict(), "gone": 1}, [plain(2)], {"x": plain(3, seed=1)}
            out = compiled(d, xs, named=named)
            yield (
                out[0],
                list(d),
                named,
                xs[2][1],
                out[1] is d,
                out[2][0] is xs,
                d["in"]["xs"] is xs,
                xs[2][0] is d["in"],
            )

    check_session(session)


def test_a_container_passed_twice_is_not_taken_for_two():
    def session(compile):
        f = compile(lambda a, b: (len(a), len(b), a[0] * b[0]))
        xs, ys = [plain(3)], [plain(3, seed=1)]
        yield f(xs, ys)
        yield f(xs, xs)

    check_session(session)


def test_a_generator_from_a_closure(device: str):
    def session(compile):
        generator = torch.Generator(device).manual_seed(3)

        def f(x):
            x.uniform_(generator=generator)
            return x + torch.bernoulli(torch.full_like(x, 0.5), generator=generator)

        compiled = compile(f)
        for _ in range(2):
            x = plain(3)
            yield compiled(x), x, generator.get_state()

    check_session(session)


def test_an_element_appended_to_a_list_argument_reaches_the_caller():
    def f(xs):
        xs.append(xs[0] * 2)

    check(f, lambda: given([leaf(3)]))


@pytest.mark.parametrize("kind", ["part", "shrunk", "swapped"])
def test_the_caller_sees_all_of_what_he_is_given_a_part_of(kind: str):
    def f(xs):
        whole = torch.full((4,), 2.0)
        part = whole[2:] if kind == "part" else whole.chunk(2)[0] if kind == "swapped" else whole.resize_(2)
        whole.zero_() if kind == "shrunk" else whole[:1].zero_()
        if kind == "swapped":
            del whole
            torch.utils.swap_tensors(xs[0], part)
        else:
            xs.append(part)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            xs = [plain(3)]
            compiled(xs)
            storage = xs[-1].untyped_storage()
            whole = torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,), (1,))
            yield xs, whole if kind != "shrunk" else storage.nbytes()

    check_session(session)


# -- closures ----------------------------------------------------------------------------------------


def test_a_tensor_from_a_closure_is_read_on_every_call():
    def session(compile):
        w = plain(3, seed=1)
        f = compile(lambda x: x * w)
        for _ in range(2):
            yield f(plain(3)), w
            w.add_(1)

    check_session(session)


def test_a_tensor_from_a_closure_is_differentiated():
    def session(compile):
        w = leaf(3, seed=1)
        f = compile(lambda x: x * w)
        for _ in range(2):
            x = leaf(3)
            out = f(x)
            yield out
            backward([out])
            yield x, w

    check_session(session)


def test_a_tensor_from_a_closure_is_mutated():
    def session(compile):
        count = plain(3, seed=1)

        def f(x):
            count.add_(x)
            return count * 2

        compiled = compile(f)
        for _ in range(3):
            yield compiled(plain(3)), count

    check_session(session)


def test_a_name_in_a_closure_is_bound_to_another_tensor():
    def session(compile):
        w = leaf(3, seed=1)
        f = compile(lambda x: x * w)
        yield f(plain(3)), w
        w = leaf(3, seed=2)
        out = f(plain(3))
        backward([out])
        yield out, w

    check_session(session)


def test_a_tensor_from_a_closure_that_aliases_an_argument():
    def session(compile):
        w = plain(4, seed=1)

        def f(x):
            x.add_(1)
            return w * 2

        compiled = compile(f)
        yield compiled(w[1:3]), w
        yield compiled(plain(2)), w

    check_session(session)


def test_a_tensor_from_a_closure_that_is_returned():
    def session(compile):
        w = leaf(3, seed=1)
        yield compile(lambda x: (x * 2, w, w.view(-1)))(leaf(3)), w

    check_session(session)


def test_a_tensor_from_a_closure_starts_to_require_grad():
    def session(compile):
        w = plain(3, seed=1)
        f = compile(lambda x: x * w)
        yield f(plain(3)), w
        w.requires_grad_()
        out = f(plain(3))
        backward([out])
        yield out, w

    check_session(session)


# -- modules -----------------------------------------------------------------------------------------


def integers(module: nn.Module) -> nn.Module:
    """Small integers for parameters and buffers, so that results are exact."""
    with torch.no_grad():
        for k, tensor in enumerate([*module.parameters(), *module.buffers()]):
            tensor.copy_(plain(*tensor.shape, seed=k, dtype=tensor.dtype))
    return module.to(plain(1).device)


class Counting(nn.Module):
    """Writes to a buffer in forward, and behaves otherwise in eval()."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.seen.add_(x.detach().sum(0))
            return self.linear(x)
        return self.linear(x) * 2 + self.seen


def _state(module: nn.Module) -> list[Any]:
    return [dict(module.named_parameters()), dict(module.named_buffers())]


@pytest.fixture(params=["aot_module", "torch.compile"])
def compile_module(request):
    """None for the recording `aot_module` of the harness."""
    if request.param == "aot_module":
        return None
    torch._dynamo.reset()
    return through_dynamo


def test_parameters_and_buffers(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        for k in range(3):
            out = compiled(plain(2, 3, seed=k))
            backward([out])
            yield out, _state(net)

    check_session(session, compile=compile_module)


def test_eval_respecializes(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.eval()
        yield compiled(plain(2, 3)), _state(net)
        net.train()
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_a_replaced_parameter(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.linear.weight = nn.Parameter(plain(3, 3, seed=7))
        out = compiled(plain(2, 3))
        backward([out])
        yield out, _state(net)

    check_session(session, compile=compile_module)


def test_a_replaced_buffer(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.seen = plain(3, seed=7)
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_load_state_dict(compile_module):
    def session(compile):
        net, other = integers(Counting()), integers(nn.Sequential(nn.ReLU(), Counting()))[1]
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.load_state_dict(other.state_dict())
        yield compiled(plain(2, 3)), _state(net)
        net.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_shared_parameters(compile_module):
    def session(compile):
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        b.weight = a.weight
        net = integers(nn.Sequential(a, nn.ReLU(), b))
        out = compile(net)(leaf(2, 3))
        backward([out])
        yield out, _state(net)

    check_session(session, compile=compile_module)


def test_frozen_parameters(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        backward([compiled(plain(2, 3))])
        yield _state(net)
        net.linear.weight.requires_grad_(False)
        backward([compiled(plain(2, 3))])
        yield _state(net)

    check_session(session, compile=compile_module)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}], ids=str)
def test_a_recurrent_module(options):
    """On the CPU its backward gives one tensor for two biases, and its kernel looks at grad mode."""

    def session(compile):
        torch.manual_seed(0)
        module, x = nn.LSTM(3, 4, **options), leaf(2, 5, 3)
        compiled = compile(module)
        for training in (True, False):
            module.train(training)
            out, (h, c) = compiled(x)
            (out.sum() + (h * c).sum()).backward()
            yield x, out, h, c, list(module.parameters())
        with torch.no_grad():
            yield compiled(x)

    check_session(session)


def test_a_module_keeps_its_original():
    net = integers(Counting())
    assert aotcheck.aot_module(net, aotcheck.nop).orig_module is net


def test_a_compiled_module_has_the_parameters_of_its_original():
    net = integers(Counting())
    compiled = aotcheck.aot_module(net, aotcheck.nop)
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in net.parameters()}


class Flat(Counting):
    """As Dynamo hands modules over: flat inputs, a tuple as output."""

    def forward(self, x):
        return (super().forward(x),)


def test_aot_module_simplified_compiles_at_construction():
    recorder = Recorder()
    net, reference = integers(Flat()), integers(Flat())
    x, again = leaf(2, 3), leaf(2, 3)
    compiled = aotcheck.aot_module_simplified(net, (x,), fw_compiler=recorder.forward, bw_compiler=recorder.backward)
    assert len(recorder.forwards) == 1
    assert net.calls == reference.calls, "compiling has no effect of its own"
    (out,) = compiled(x)
    (expected,) = reference(again)
    assert torch.equal(out, expected)
    backward([out])
    backward([expected])
    assert torch.equal(x.grad, again.grad)
    assert torch.equal(net.linear.weight.grad, reference.linear.weight.grad)
    assert net.calls == reference.calls


def test_aot_module_simplified_offers_what_a_module_does():
    net = integers(Flat())
    compiled = aotcheck.aot_module_simplified(net, (plain(2, 3),), fw_compiler=aotcheck.nop)
    assert [name for name, _ in compiled.named_parameters()] == ["linear.weight", "linear.bias"]
    assert [name for name, _ in compiled.named_buffers()] == ["calls", "seen"]
    compiled.zero_grad()


# -- torch.compile -----------------------------------------------------------------------------------


@pytest.fixture
def dynamo():
    torch._dynamo.reset()
    yield through_dynamo
    torch._dynamo.reset()


def test_torch_compile_finds_the_backend_by_name():
    assert "aotcheck" in torch._dynamo.list_backends(exclude_tags=())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y,
        lambda x, y: (x * 2, y.t(), x),
        lambda x, y: x.sum().backward() if False else (x @ y).relu(),
    ],
    ids=["product", "aliases", "activation"],
)
def test_a_function_through_torch_compile(function, dynamo):
    check(function, lambda: given(leaf(2, 3), leaf(3, 2, seed=1)), compile=dynamo)


def test_a_mutation_through_torch_compile(dynamo):
    def f(x, y):
        x[0].add_(1)
        y.mul_(x)
        return x + y

    check(f, lambda: given(plain(2, 3), plain(2, 3, seed=1)), compile=dynamo)


def test_a_second_call_with_other_aliasing_through_torch_compile(dynamo):
    def f(x, y):
        x.mul_(2)
        return y + 1

    check(f, overlap(4), overlap(2), overlap(1), overlap(0), compile=dynamo)


def test_a_second_call_with_another_shape_through_torch_compile(dynamo):
    def compile(f):
        return torch.compile(f, backend="aotcheck", dynamic=False)

    check(lambda x: x * 2 + 1, lambda: given(leaf(3)), lambda: given(leaf(4)), compile=compile)


def test_a_graph_break_through_torch_compile(dynamo):
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.view(-1), y

    check(f, lambda: given(leaf(2, 3)), compile=dynamo)


def test_the_harness_knows_where_its_tensors_lie(device: str):
    assert harness.plain(1).device.type == device
