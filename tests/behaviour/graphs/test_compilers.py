"""What compilers and decompositions may do, their errors; node.meta."""

import warnings

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.graphs.common import aten, names, needless_copy, outputs
from tests.behaviour.harness import Recorder, attempt, attempt_later, backward, check, check_session, session, write
from tests.behaviour.inputs import given, leaf, plain


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


def without_copies(f):
    return aotcheck.aot_function(f, aotcheck.nop, decompositions={aten.clone.default: needless_copy})


def once_each(graph, examples):
    """Equal results are one tensor, and what equals an input is that input."""

    def run(*args):
        met = [a for a in args if isinstance(a, torch.Tensor)]

        def first(t):
            if not isinstance(t, torch.Tensor):
                return t
            found = next((m for m in met if m.shape == t.shape and m.dtype == t.dtype and torch.equal(m, t)), None)
            met.append(t)
            return t if found is None else found

        return [first(t) for t in graph(*args)]

    return run


def with_merging_compiler(f):
    return aotcheck.aot_function(f, once_each, aotcheck.nop)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(),
        lambda x: (x.clone(), x.clone()),
        lambda x: (x * 2, (x * 2).clone(), x.clone().t()),
        lambda x: [x.clone()[0], x.clone().view(-1), x],
    ],
)
def test_results_that_a_compiler_merges_stay_separate_tensors(compile, function):
    check(function, lambda: given(plain(2, 3)), lambda: given(leaf(2, 3)), lambda: given(plain(2, 3)), compile=compile)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
def test_clones_of_written_arguments_hold_the_old_values(compile):
    def f(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return old

    check(f, lambda: given(plain(3), plain(3, seed=1)), lambda: given(plain(3), plain(3, seed=1)), compile=compile)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
def test_clones_saved_for_backward_hold_the_old_values(compile):
    def f(x, y):
        product = x * y.clone()
        y.add_(1)
        z = x * 1
        return product, x * z.clone(), z

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, y = leaf(3), plain(3, seed=1)
            out = compiled(x, y)
            write(y)
            write(out[2])
            backward(out)
            yield x, y, out

    check_session(session, compile=compile)


@pytest.mark.parametrize(
    "function",
    [lambda x: aten.native_dropout(x, 0.5, False)[0], lambda x: torch.stack([x]), lambda x: (torch.stack([x * 2]), x)],
)
def test_decomposition_tables_of_inductor_keep_results_separate(function):
    from torch._inductor.decomposition import select_decomp_table

    def compile(f):
        return aotcheck.aot_function(f, aotcheck.nop, decompositions=select_decomp_table())

    check(function, lambda: given(plain(2, 3)), lambda: given(leaf(2, 3)), compile=compile)


def test_a_compiler_that_returns_none_raises_a_type_error():
    x = plain(3)
    with pytest.raises(TypeError, match="the compiler returned a NoneType"):
        aotcheck.aot_function(lambda x: x.add_(1), lambda graph, examples: None)(x)
    assert torch.equal(x, plain(3))


def test_an_error_of_a_compiled_graph_is_warned_of_once_with_the_callers_line():
    def compiler(graph, examples):
        def run(*args):
            raise ArithmeticError(f"a kernel of {len(examples)} inputs")

        return run

    def called(*args):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(*args)
        return caught

    compiled = aotcheck.aot_function(lambda *args: sum(args), compiler)
    (first,) = called(plain(3))
    assert "ArithmeticError: a kernel of 1 inputs" in str(first.message)
    assert first.filename == __file__
    assert called(plain(3)) == [], "once"
    (second,) = called(plain(3), plain(3))
    assert "ArithmeticError: a kernel of 2 inputs" in str(second.message)


def by_columns(graph, examples):
    """Matrices lie the other way round, each once."""

    def run(*args):
        made = {}
        return [
            made.setdefault(id(t), t.t().contiguous().t())
            if isinstance(t, torch.Tensor) and t.dim() == 2 and t.is_contiguous()
            else t
            for t in graph(*args)
        ]

    return run


def with_turning_compiler(f):
    return aotcheck.aot_function(f, by_columns, aotcheck.nop)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        lambda x: (lambda y: (y, y.sin()))(x.exp()),
        lambda x: (lambda y: (y, y * y))(x.clone()),
        lambda x: (lambda y: (y, y.t().sin()))(x.clone()),
    ],
)
@session(compile=with_turning_compiler)
def test_a_write_to_a_saved_result_with_a_compilers_own_strides_is_noticed(compile, function, calls):
    """It is copied, and what is saved of it is that copy."""

    compiled = compile(function)
    for _ in range(calls):
        x = leaf(2, 3)
        results = compiled(x)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    yield results[0].stride()
    with torch.no_grad():
        results[0].add_(1)
    yield attempt_later(lambda: results[-1].sum().backward())
    yield x.grad


def test_a_partition_function_is_called_with_the_joint_graph():
    joints = []

    def partition(joint, inputs, *, num_fwd_outputs, **more):
        joints.append((joint, inputs, num_fwd_outputs))
        return functorch_default(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)

    from functorch.compile import default_partition as functorch_default

    recorder = Recorder()
    f = aotcheck.aot_function(
        lambda x, y: x.exp() * y, fw_compiler=recorder.forward, bw_compiler=recorder.backward, partition_fn=partition
    )
    x, y = leaf(3), leaf(3, seed=1)
    result = attempt(lambda: f(x, y))
    backward([result])
    ((joint, _, count),) = joints
    assert names(joint) == ["primals_1", "primals_2", "tangents_1"]
    assert count == 1
    assert len(outputs(joint)) == 3


@pytest.mark.parametrize("which", [(0, 1), (0,), (1,)], ids=["both", "first", "second"])
@pytest.mark.parametrize("name", ["default_partition", "min_cut_rematerialization_partition"])
def test_partition_functions_of_torch_divide_our_joint_graph(name: str, which: tuple[int, ...]):
    import functorch.compile

    divide = getattr(functorch.compile, name)

    def f(x, y):
        z = (x * 2) * y
        return z * z + x * 2, z * 3

    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        out = compile(f)(x, y)
        backward([out[k] for k in which])
        yield out, x, y

    check_session(session, compile=lambda f: aotcheck.aot_function(f, aotcheck.nop, partition_fn=divide))


def test_our_default_partition_divides_our_joint_graph():
    def f(buffer, x):
        buffer.add_(1)
        return (buffer * x).sum(), x * x

    def session(compile):
        buffer, x = plain(3), leaf(3, seed=1)
        out = compile(f)(buffer, x)
        backward(out)
        yield out, buffer, x

    def divide(joint, inputs, *, num_fwd_outputs):
        primals, tangents = inputs
        assert (len(primals), len(tangents), num_fwd_outputs) == (2, 2, 3)
        return aotcheck.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    check_session(session, compile=lambda f: aotcheck.aot_function(f, aotcheck.nop, partition_fn=divide))


def test_the_backward_is_compiled_once_by_the_first_backward():
    recorder = Recorder()
    f = recorder.compile(lambda x: x * x)
    x = leaf(3)
    y = f(x)
    assert recorder.forwards
    assert not recorder.backwards
    backward([y])
    assert len(recorder.backwards) == 1
    backward([f(x)])
    assert len(recorder.backwards) == 1


def test_the_backward_compiler_is_called_with_grad_mode_on():
    modes = []

    class Watching(Recorder):
        def backward(self, graph, examples):
            modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
            return super().backward(graph, examples)

    y = Watching().compile(lambda x: x * x)(leaf(3))
    with torch.no_grad():
        backward([y])
    assert modes == [(True, False)]


def test_the_backward_compiler_is_called_under_the_modes_of_the_forward():
    seen = []

    class Watching(Recorder):
        def backward(self, graph, examples):
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()))
            return super().backward(graph, examples)

    x = leaf(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = Watching().compile(lambda x: x @ x)(x)
    with torch.no_grad():
        backward([y])
    assert seen
    assert all(grad and not inference for grad, _, inference in seen)


def test_a_compiler_that_fails_has_no_effect_on_inputs():
    def failing(graph, examples):
        raise ValueError("no code for you")

    recorder = Recorder()
    recorder.forward = failing
    x = plain(3)
    f = recorder.compile(lambda x: x.add_(1))
    with pytest.raises(ValueError, match="no code for you"):
        f(x)
    assert torch.equal(x, plain(3))
