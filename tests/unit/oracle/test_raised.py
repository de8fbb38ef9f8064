"""What of an exception goes into a coarse key: the failure, not its wrapping, colours, paths or names."""

from collections.abc import Callable

import pytest
import torch

from aotcheck.oracle.compare import finds_a_write
from aotcheck.oracle.raised import normalized, raised, same_key


class ExportError(Exception):
    """One error for whatever fails, as exporters raise it."""


def _key(raising: Callable[[], object]) -> str:
    try:
        raising()
    except Exception as error:
        return raised(error).key
    raise AssertionError("it raises")


def _wrapped(inner: Exception, wrapper: Exception | None = None) -> Callable[[], object]:
    def raising() -> None:
        try:
            raise inner
        except Exception as error:
            raise wrapper or ExportError("Failed to export the model. This is step 1/3") from error

    return raising


def test_the_key_of_a_wrapper_is_that_of_its_innermost_cause() -> None:
    both = [_key(_wrapped(one)) for one in (NotImplementedError("no rule for sort"), ValueError("no rule for 3 axes"))]
    assert both == ["NotImplementedError: no rule for sort", "ValueError: no rule for N axes"]
    twice = ExportError("the whole export failed")
    assert _key(_wrapped(_caught(_wrapped(ValueError("no rule for 3 axes"))), twice)) == both[1]


def _caught(raising: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        raising()
    return caught.value


def test_a_cause_without_words_says_less_than_its_wrapper() -> None:
    assert _key(_wrapped(KeyError("v1"), ExportError("no value of that name"))).endswith("no value of that name")
    assert _key(_wrapped(KeyError(), ExportError("no value of that name"))).endswith("no value of that name")


def test_an_error_of_another_type_that_says_the_same_keeps_its_type() -> None:
    same = _wrapped(ValueError("no rule for 3 axes"), TypeError("no rule for 3 axes"))
    assert _key(same) == "TypeError: no rule for N axes"


def test_the_type_of_a_wrapper_is_what_is_compared_with_eagers() -> None:
    assert raised(_caught(_wrapped(ValueError("no rule for 3 axes")))).type.endswith("ExportError")


def test_an_exception_that_was_being_handled_counts_only_where_it_is_quoted() -> None:
    def raising(message: str) -> Callable[[], object]:
        def run() -> None:
            try:
                raise ValueError("no rule for 3 axes")
            except ValueError:
                raise ExportError(message)  # noqa: B904

        return run

    assert _key(raising("export failed: no rule for 3 axes")) == "ValueError: no rule for N axes"
    assert _key(raising("nothing is left to try")).endswith("ExportError: nothing is left to try")


def test_colours_links_paths_and_names_of_nodes_are_no_part_of_a_key() -> None:
    plain = _key(lambda: _raise(ExportError("cannot lower node %add_3 in /tmp/a1/model.py")))
    coloured = ExportError("\x1b[96mcannot lower node %sum_12 in /home/x/y/model.py\x1b[0m")
    assert _key(lambda: _raise(coloured)) == plain
    assert "x1b" not in raised(coloured).message
    linked = ExportError("\x1b]8;;http://x\x07cannot lower node %a in /home/x/y/model.py\x1b]8;;\x07")
    assert _key(lambda: _raise(linked)) == plain
    assert normalized("a ratio of a/b and 1 / 2") == "a ratio of a/b and N / N"


def _raise(error: Exception) -> None:
    raise error


def test_a_line_that_says_where_an_error_was_noticed_is_not_the_message() -> None:
    cpp = "Exception from src/inference/core.cpp:109:\nCheck 'false' failed at src/frontend.cpp:{}:\n{}"
    assert normalized(cpp.format(54, "No rule for sort")) == "No rule for sort"
    assert normalized(cpp.format(7, "No rule for topk")) == "No rule for topk"
    assert normalized("expected one of:\n* (Tensor input)") == "expected one of:"
    assert normalized("at core.cpp:109:") == "at core.cpp:N:"


ALIKE = [
    ("Node squeeze was invalid, but is output", "Node neg_12 was invalid, but is output"),
    ("Expected native_dropout_3 to be a tensor", "Expected native_dropout to be a tensor"),
    (
        "n=copy__2, n.args[0]=copy_, placeholders={primals_1, primals_2}, graph=graph():",
        "n=copy__1, n.args[0]=copy__7, placeholders={primals_1}, graph=graph():",
    ),
    ("stride equal to (3*s0, 1), but got: (s0, 1)", "stride equal to (2, 3, 1), but got: (s12, 3, 1)"),
    ("cannot be 0 to view ComplexDouble as Double", "cannot be 0 to view Long as BFloat16"),
    ("expand(CPUBFloat16Type{[2]}, size=[3]): no", "expand(CPUFloatType{[2, 3]}, size=[]): no"),
    ("mismatch at 3: InputAliasInfo(is_leaf=True, x=1)", "mismatch at 1: InputAliasInfo(is_leaf=False, y=2, ...)"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_of_nodes_sizes_and_dtypes_are_no_part_of_a_key(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)
    assert normalized(normalized(one)) == normalized(one), "an old key is compared by saying it again"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("derivative for set_ is not implemented", "derivative for _foreach_copy_ is not implemented"),
        ("mul(): argument", "add(): argument"),
        ("Cannot swap t1 because", "Cannot swap it because"),
    ],
)
def test_what_tells_bugs_apart_stays_in_a_key(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


def test_an_old_key_is_the_same_key() -> None:
    now = "(exception, forward, RuntimeError: view(): cannot view shape [N] as [N])"
    assert same_key("(exception, forward, RuntimeError: view(): cannot view shape (N, jN) as [N, jN])", now)
    assert not same_key("(exception, forward, RuntimeError: view(): cannot view)", now)
    assert not same_key("(exception, backward, RuntimeError: view(): cannot view shape [N] as [N])", now)
    cut = "(exception, forward, AssertionError: stride equal to (N*sN, N, N, N, N), but got: ...)"
    assert same_key(cut, "(exception, forward, AssertionError: stride equal to [N], but got: [N])")
    assert not same_key(cut, "(exception, forward, AssertionError: stride equal to [N] or: [N])")
    inside = "(exception, forward, AssertionError: stride equal to (N*sN, N, N, N), but got: (N*sN, ...)"
    assert same_key(inside, "(exception, forward, AssertionError: stride equal to [N], but got: [N])")


@pytest.mark.parametrize("use", [torch.sin, lambda part: torch._foreach_mul([part], 2)[0]])
def test_eager_says_that_what_it_saved_was_written(use: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.ones(2, requires_grad=True)
    result = use(x.chunk(2)[0])
    with torch.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError) as caught:
        result.sum().backward()
    assert finds_a_write(raised(caught.value))
