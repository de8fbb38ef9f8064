"""What of an exception goes into a coarse key: the failure, not its wrapping, colours, paths or names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aotcheck.oracle.raised import normalized, raised


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
