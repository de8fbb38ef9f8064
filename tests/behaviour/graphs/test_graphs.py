"""Functional ATen, lint, names, placeholders, dead code, constants lifted."""

import keyword

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.graphs.common import names, ops, outputs
from tests.behaviour.harness import Recorder, backward
from tests.behaviour.inputs import given, leaf, plain


def compiled(function, make, *, run_backward: bool = True) -> Recorder:
    """The graphs of one call and its backward."""
    recorder = Recorder()
    out = recorder.compile(function)(*make().args)
    if run_backward:
        roots = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        backward(roots)
    return recorder


def test_placeholders_of_a_forward_are_named_primals():
    recorder = compiled(lambda x, y: x * y, lambda: given(leaf(3), plain(3, seed=1)))
    assert names(recorder.forwards[0]) == ["primals_1", "primals_2"]


def test_placeholders_of_an_inference_graph_are_named_args():
    recorder = compiled(lambda x, y: x * y, lambda: given(plain(3), plain(3, seed=1)))
    assert names(recorder.forwards[0]) == ["arg0_1", "arg1_1"]


def test_placeholders_of_a_backward_end_with_tangents():
    def f(x, y):
        product = x * y
        return product + 1, product * 2

    recorder = compiled(f, lambda: given(leaf(3), leaf(3, seed=1)))
    found = names(recorder.backwards[0])
    tangents = [name for name in found if name.startswith("tangents_")]
    assert tangents == ["tangents_1", "tangents_2"]
    assert found[-2:] == tangents


def test_the_tangents_of_each_backward_are_numbered_from_one():
    recorder = compiled(lambda x, y: (x * y, x + 1), lambda: given(leaf(3), leaf(3, seed=1)))
    tangents = [[name for name in names(graph) if name.startswith("tangents_")] for graph in recorder.backwards]
    assert tangents == [["tangents_1"], ["tangents_1"]], "what eager backpropagates separately has a backward each"


def test_a_backward_computes_gradients_of_what_requires_grad_alone():
    recorder = compiled(lambda x, y, z: x * y, lambda: given(leaf(3), plain(3, seed=1), leaf(3, seed=2)))
    gradients = outputs(recorder.backwards[0])
    assert [gradient is not None for gradient in gradients].count(True) == 1


def all_names(graph: torch.fx.GraphModule) -> list[str]:
    return [node.name for node in graph.graph.nodes if node.op != "output"]


def test_a_saved_tensor_keeps_its_name_before_an_op_of_the_backward():
    recorder = compiled(lambda x: x.neg().sin(), lambda: given(leaf(3)))
    assert all_names(recorder.backwards[0]) == ["neg", "tangents_1", "cos", "mul", "neg_1"]


def test_nodes_that_a_compiler_adds_get_unique_names():
    seen = []

    def compiler(graph, examples):
        (end,) = graph.graph.find_nodes(op="output")
        first = next(node for node in graph.graph.nodes if node.op == "call_function")
        with graph.graph.inserting_before(end):
            added = [graph.graph.create_node("call_function", first.target, first.args, name="sin") for _ in range(3)]
        end.args = ((*end.args[0], *added),)
        graph.graph.lint()
        graph.recompile()
        seen.extend(node.name for node in added)
        return lambda *args: graph(*args)[:-3]

    x = leaf(3)
    out = aotcheck.aot_function(lambda x: x.sin().sin(), fw_compiler=compiler, bw_compiler=compiler)(x)
    assert seen == ["sin_2", "sin_3", "sin_4"]
    out.sum().backward()


def test_ops_whose_own_names_look_numbered_get_unique_names():
    with torch.library._scoped_library("aotcheck_test_names", "FRAGMENT") as lib:
        for name in ("sin_1", "output", "lambda", "arg0_1"):
            lib.define(f"{name}(Tensor x) -> Tensor")
            lib.impl(name, lambda x: x + 1, "CompositeExplicitAutograd")
        ops = torch.ops.aotcheck_test_names

        def f(x):
            return ops.arg0_1(getattr(ops, "lambda")(ops.output(ops.sin_1(x.sin().sin()).sin())))

        recorder = compiled(f, lambda: given(plain(3)), run_backward=False)
        names = [node.name for node in recorder.forwards[0].graph.nodes]
        assert names[0] == "arg0_1" and len(set(names)) == len(names) == 9
        assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)


def test_names_are_unique_in_decomposed_graphs():
    table = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    recorder = Recorder()
    x = leaf(3)
    out = aotcheck.aot_function(
        lambda x: torch.nn.functional.silu(x * 2) * x,
        fw_compiler=recorder.forward,
        bw_compiler=recorder.backward,
        decompositions=table,
    )(x)
    backward([out])
    assert "sigmoid" in all_names(recorder.forwards[0])
    for graph in recorder.graphs:
        assert len(set(all_names(graph))) == len(all_names(graph))


def test_thousands_of_equal_ops_are_numbered_in_order():
    def f(x):
        for _ in range(2000):
            x = x.neg()
        return x

    recorder = compiled(f, lambda: given(leaf(3)))
    assert all_names(recorder.forwards[0])[-1] == "neg_1999"
    assert all_names(recorder.backwards[0])[-1] == "neg_1999"


def test_a_forward_returns_its_outputs_then_its_saved_tensors():
    recorder = compiled(lambda x, y: (x * y).exp(), lambda: given(leaf(3), leaf(3, seed=1)))
    forward, backward_graph = recorder.forwards[0], recorder.backwards[0]
    saved = [name for name in names(backward_graph) if not name.startswith("tangents_")]
    returned = outputs(forward)
    assert str(returned[0].target) == "aten.exp.default"
    assert {node.name for node in returned[1:]} == set(saved)


def test_a_mutated_input_is_returned_before_the_users_outputs():
    def f(x, y):
        x.add_(y)
        return x * 3

    recorder = compiled(f, lambda: given(plain(3), plain(3, seed=1)))
    assert [str(node.target) for node in outputs(recorder.forwards[0])] == ["aten.add.Tensor", "aten.mul.Tensor"]


def test_every_node_has_a_value_in_its_metadata():
    recorder = compiled(
        lambda x, y: (torch.softmax(x @ y, -1), x.max(0)), lambda: given(leaf(3, 2), leaf(2, 4, seed=1))
    )
    for graph in recorder.graphs:
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "call_function"):
                assert "val" in node.meta, f"{node} of {graph}"


def test_the_value_of_a_node_has_its_shape_dtype_and_device():
    recorder = compiled(lambda x: (x @ x.t()).to(torch.float64), lambda: given(leaf(2, 3)))
    node = outputs(recorder.forwards[0])[0]
    value = node.meta["val"]
    assert (tuple(value.shape), value.dtype, value.device) == ((2, 2), torch.float64, plain(1).device)


def test_graphs_hold_only_aten_and_prims_overloads():
    recorder = compiled(
        lambda x, w: torch.nn.functional.layer_norm(x @ w, (4,)).relu(), lambda: given(leaf(2, 3), leaf(3, 4, seed=1))
    )
    for graph in recorder.graphs:
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target.__name__ != "getitem":
                assert isinstance(node.target, torch._ops.OpOverload), node.target
                assert node.target.namespace in ("aten", "prims"), node.target


def test_graphs_are_graph_modules_that_run_by_themselves():
    recorder = compiled(lambda x, y: x @ y + 1, lambda: given(plain(2, 3), plain(3, 2, seed=1)))
    (graph,) = recorder.forwards
    graph.graph.lint()
    x, y = plain(2, 3), plain(3, 2, seed=1)
    assert torch.equal(graph(x, y)[0], x @ y + 1)


def test_metadata_mutations_that_cancel_leave_no_op_in_the_graph():
    def f(x):
        x.t_()
        x.t_()
        return x * 2

    recorder = compiled(f, lambda: given(plain(2, 3)))
    assert ops(recorder.forwards[0]) == ["aten.mul.Tensor"]


def test_unused_ops_are_removed():
    def f(x):
        (x.exp() + 1).sum()
        return x * 2

    recorder = compiled(f, lambda: given(leaf(3)))
    assert ops(recorder.forwards[0]) == ["aten.mul.Tensor"]


def test_unused_random_ops_stay():
    def f(x):
        torch.rand(3, device=x.device)
        return x * 2

    recorder = compiled(f, lambda: given(plain(3)))
    assert any("rand" in op for op in ops(recorder.forwards[0]))


def test_every_saved_tensor_is_used_by_the_backward():
    recorder = compiled(lambda x: x.exp() * 2 + 1, lambda: given(leaf(3)))
    for node in recorder.backwards[0].graph.nodes:
        if node.op == "placeholder":
            assert node.users, f"{node} is saved for nothing"


def test_a_linear_function_saves_nothing():
    recorder = compiled(lambda x: x * 2 + 1, lambda: given(leaf(3)))
    assert names(recorder.backwards[0]) == ["tangents_1"]


def test_mutations_of_intermediates_are_functional():
    def f(x):
        y = x * 2
        y[0].add_(1)
        y.t()[1].mul_(3)
        torch._foreach_neg_([y])
        return y

    recorder = compiled(f, lambda: given(leaf(3, 3)))
    assert not any(op.split(".")[1].endswith("_") for op in ops(recorder.forwards[0]))


def test_captured_tensors_are_lifted_to_placeholders():
    constant = plain(3, seed=4)
    recorder = compiled(lambda x: x * constant, lambda: given(leaf(3)))
    (graph,) = recorder.forwards
    assert len(names(graph)) == 2
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]


def test_a_factory_call_stays_an_op_of_the_graph():
    recorder = compiled(lambda x: x + torch.arange(3, device=x.device), lambda: given(leaf(3)))
    assert any("arange" in op for op in ops(recorder.forwards[0]))


def graph_of(*targets) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    value = x
    for target in targets:
        value = graph.call_function(target, (value, 1))
    graph.output((value,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_the_checker_passes_a_functional_graph():
    aotcheck.assert_functional(graph_of(torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor))


@pytest.mark.parametrize("op", [torch.ops.aten.add_.Tensor, torch.ops.aten.mul_.Scalar], ids=str)
def test_the_checker_names_the_node_that_mutates(op):
    with pytest.raises(aotcheck.NotFunctionalError, match=r"mul_|add_"):
        aotcheck.assert_functional(graph_of(torch.ops.aten.add.Tensor, op))


def test_the_checker_refuses_an_out_argument():
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(torch.ops.aten.add.out, (x, x), {"out": y}),))
    with pytest.raises(aotcheck.NotFunctionalError):
        aotcheck.assert_functional(torch.fx.GraphModule(torch.nn.Module(), graph))
