"""benchmarks/rounding.py: what tells rounding from a wrong answer."""

import pytest

from aotcheck.backends import Backend
from aotcheck.zoo import MODELS
from aotcheck.zoo.model import Place
from aotcheck.zoo.run import compiler_of
from benchmarks.rounding import ChannelsLast, Kernels, Row, rows
from tests.unit.zoo import planted

SEEDS = 2


def _in_both_dtypes(backend: Backend) -> tuple[Row, Row]:
    kernels = [Kernels(str(wide), Place(wide=wide), compile_target=compiler_of(backend)) for wide in (False, True)]
    found = rows(MODELS["conv_net"], kernels, SEEDS)
    return found["False"], found["True"]


def test_eager_is_as_far_off_as_eager() -> None:
    narrow, wide = _in_both_dtypes(planted.compiles_nothing)
    assert narrow.largest == [1.0] * SEEDS
    assert narrow.over == [0] * SEEDS
    assert set(narrow.spread) == {1.0}
    assert 0 < max(narrow.share) < 1e-4
    assert wide.share == [0.0] * SEEDS
    assert wide.largest == []


def test_rounding_is_gone_in_float64_and_a_wrong_answer_is_not() -> None:
    narrow, wide = _in_both_dtypes(planted.doubled_gradient)
    assert min(narrow.over) > 0
    assert min(wide.share) == pytest.approx(1.0)
    narrow, wide = _in_both_dtypes(planted.rounds)
    assert max(narrow.share) < 1e-4
    assert wide.share == [0.0] * SEEDS


def test_channels_last_kernels_see_weights_and_images_laid_out_so() -> None:
    program = MODELS["conv_net"].program(ChannelsLast())
    weights = [p for p in program.state["net"].parameters() if p.ndim == 4]
    assert weights
    assert any(not w.is_contiguous() for w in weights)
    assert not program.batches[0][0].is_contiguous()


def test_a_model_without_a_module_is_told() -> None:
    with pytest.raises(ValueError, match="'functional_call' has no module `net`"):
        Kernels("eager", Place()).gradients(MODELS["functional_call"], 0)
