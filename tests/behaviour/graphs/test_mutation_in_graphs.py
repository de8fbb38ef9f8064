"""Keep_inference_input_mutations, copy_ at the end."""

import pytest
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.graphs.common import aten, needless_copy, ops, outputs
from tests.behaviour.harness import Recorder, check
from tests.behaviour.inputs import given, plain


@pytest.mark.parametrize("table", ["ours", "torch's"])
def test_mutations_kept_in_a_decomposed_graph_come_last(table):
    from torch._inductor.decomposition import select_decomp_table

    def f(x, y):
        old = x.clone()
        kept = aten.native_dropout(x, 0.5, False)[0]
        x.add_(y)
        y.copy_(nn.functional.hardtanh(old))
        return old, kept.t(), x * 2

    recorder = Recorder()
    decompositions = {aten.clone.default: needless_copy} if table == "ours" else select_decomp_table()

    def compile(f):
        return aotcheck.aot_function(
            f, recorder.forward, decompositions=decompositions, keep_inference_input_mutations=True
        )

    def make():
        return given(plain(3, 3), plain(3, 3, seed=1))

    check(f, make, make, compile=compile)
    (graph,) = recorder.forwards
    ops = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert ops[-2:] == ["aten.copy_.default"] * 2
    assert all("val" in n.meta for n in graph.graph.nodes if n.op == "call_function")


def test_an_inference_graph_keeps_input_mutations_if_asked_to():
    def f(a, b):
        old = a.clone()
        a.copy_(b)
        b.data.copy_(old)
        return a * 2

    recorder = Recorder()

    def compile(f):
        return aotcheck.aot_function(f, recorder.forward, keep_inference_input_mutations=True)

    check(f, lambda: given(plain(3), plain(3, seed=1)), compile=compile)
    for graph in recorder.forwards:
        assert [op for op in ops(graph) if op == "aten.copy_.default"] == ["aten.copy_.default"] * 2
        assert len(outputs(graph)) == 1


def test_data_mutations_with_metadata_changes_stay_out_of_graphs():
    def f(x):
        x.t_().add_(1)
        return x * 2

    recorder = Recorder()

    def compile(f):
        return aotcheck.aot_function(f, recorder.forward, keep_inference_input_mutations=True)

    check(f, lambda: given(plain(2, 3)), compile=compile)
    assert "aten.copy_.default" not in ops(recorder.forwards[0])
