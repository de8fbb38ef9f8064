"""Building calls, running functions, registering ops, naming features."""

import traceback
from dataclasses import replace

import pytest
import torch

from aotcheck.program import (
    Feature,
    Literal,
    OpCall,
    UnknownOpError,
    build_call,
    difficulty,
    emit,
    exact,
    function_of,
    parse,
    register_op,
)
from aotcheck.program.data.samples import ALIASED_VIEWS, REFUSED_COPY, TRANSPOSED_IN_PLACE
from aotcheck.program.ops.registry import Form, Group, Op, find, implementation, ops


def test_inputs_share_storage_as_described() -> None:
    built = build_call(ALIASED_VIEWS, 0)
    a0, a1 = built.args
    assert a0.untyped_storage().data_ptr() == a1.untyped_storage().data_ptr()
    assert a1.storage_offset() == 2 and not built.leaves
    assert a0._base is None


def test_a_call_without_inputs_takes_the_same_objects_again() -> None:
    first = build_call(ALIASED_VIEWS, 0)
    assert build_call(ALIASED_VIEWS, 1, previous=first) is first
    with pytest.raises(ValueError, match="previous"):
        build_call(ALIASED_VIEWS, 1)


def test_the_same_object_twice_and_leaves() -> None:
    built = build_call(TRANSPOSED_IN_PLACE, 0)
    assert built.args[0] is built.args[1]
    assert list(built.leaves) == ["a0"]


def test_the_function_runs_and_its_traceback_shows_the_source() -> None:
    f = function_of(ALIASED_VIEWS)
    v0, _, x0, none = f(*build_call(ALIASED_VIEWS, 0).args)
    assert none is None and v0.tolist() == [[4.0, 1.0], [2.0, -1.0]] and x0.tolist() == [2.0, -1.0, 4.0, 1.0]
    try:
        function_of(REFUSED_COPY)(*build_call(REFUSED_COPY, 0).args)
    except RuntimeError as e:
        assert "x1.copy_(v0)" in "".join(traceback.format_exception(e))
    else:
        pytest.fail("eager refuses this")


def test_two_functions_of_one_program_are_two_functions() -> None:
    assert function_of(ALIASED_VIEWS) is not function_of(ALIASED_VIEWS)


def test_features_of_the_samples() -> None:
    assert {Feature.MUTATES_INPUT, Feature.INPUTS_SHARE_STORAGE, Feature.SECOND_CALL_OTHER_KEY} <= difficulty(
        ALIASED_VIEWS
    )
    assert difficulty(REFUSED_COPY) == {Feature.EAGER_REFUSES}
    assert {Feature.BACKWARD, Feature.METADATA_MUTATION, Feature.RETURNS_ALIAS} <= difficulty(TRANSPOSED_IN_PLACE)


def test_a_program_is_exact_until_an_op_rounds() -> None:
    assert exact(ALIASED_VIEWS)
    sine = OpCall("v9", "torch.sin", (ALIASED_VIEWS.body[1].args[0],))
    assert not exact(replace(ALIASED_VIEWS, body=(*ALIASED_VIEWS.body, sine)))


def test_literals_are_equal_when_written_the_same() -> None:
    assert Literal(1) != Literal(1.0) != Literal(True)
    assert Literal(float("nan")) == Literal(float("nan"))
    assert Literal(-0.0) != Literal(0.0)


def test_every_op_of_the_table_exists_in_this_torch() -> None:
    for op in ops():
        if op.form in (Form.FUNCTION, Form.METHOD):
            implementation(op.path)


def test_unknown_ops_are_named() -> None:
    with pytest.raises(UnknownOpError, match=r"torch\.nonsense"):
        find("torch.nonsense")


def test_a_registered_op_may_be_named_by_a_file() -> None:
    path = "torch.ops.aten.relu.default"
    register_op(Op(path, find("torch.relu")[0].params, Group.POINTWISE, Form.FUNCTION, weight=0))
    with pytest.raises(ValueError, match="registered already"):
        register_op(Op(path, find("torch.relu")[0].params, Group.POINTWISE, Form.FUNCTION, weight=0))
    call = OpCall("v1", path, (ALIASED_VIEWS.body[1].args[0],))
    program = replace(ALIASED_VIEWS, body=(*ALIASED_VIEWS.body[:2], call))
    assert parse(emit(program)).program == program
    assert torch.is_tensor(function_of(program)(*build_call(program, 0).args)[1])
