"""The ledger: what a compiler other than the first refuses, though the tests expect eager's behaviour.

``tests/refused.toml`` holds the reason for each case that is refused, or for a test function all of whose cases are.
Both directions are checked: a refusal that it does not list fails, and so does a listed one that no longer refuses. A
wrong answer always fails. The first compiler has no ledger: there a refusal fails like any other error.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.behaviour.compilers import aotcheck

LEDGER = Path(__file__).parent.parent / "refused.toml"


class Refused(AssertionError):
    """Part of a session was refused and ran eagerly; ``reason`` is the compiler's."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"part of the session was refused: {reason}")
        self.reason = reason


def case_of(test: str) -> str:
    """A test's id from its heading on: ``storage/test_set.py::test_x[cpu-a]``."""
    return test.split("tests/behaviour/")[-1]


def function_of(case: str) -> str:
    """The test function of a case: ``storage/test_set.py::test_x``."""
    return case.split("[")[0]


@dataclass
class Ledger:
    """Reasons by case or test function; `later` are the headings still to be built, whose tests may be refused."""

    later: tuple[str, ...] = ()
    entries: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """The ledger of the file."""
        content, entries = tomllib.loads(path.read_text()), {}
        for reason, functions in content["refused"].items():
            for function, cases in functions.items():
                entries.update(dict.fromkeys([f"{function}[{c}]" for c in cases] or [function], reason))
        return cls(tuple(content["later"]), entries)

    def judge(self, test: str, refused: str | None) -> str | None:
        """What is wrong with a case that was refused for that reason, or with None was not."""
        case = case_of(test)
        if case.split("/")[0] in self.later:
            return None
        listed = self.entries.get(case) or self.entries.get(function_of(case))
        if refused is not None and refused != listed:
            return f"refused: {refused}; {LEDGER.name} says {listed or 'nothing'} of {case}"
        if refused is None and listed is not None:
            return f"no longer refused: take {case} ({listed}) out of {LEDGER.name}"
        return None


def print_ledger(outcomes: dict[str, str | None], later: tuple[str, ...] = ()) -> str:
    """The TOML: by reason, a line per test function with its cases, or with none where all are refused for it."""
    functions: dict[str, dict[str, str | None]] = {}
    for test, reason in outcomes.items():
        if (case := case_of(test)).split("/")[0] not in later:
            functions.setdefault(function_of(case), {})[case] = reason
    reasons: dict[str, list[str]] = {}
    for function, cases in sorted(functions.items()):
        for reason in {reason: None for _, reason in sorted(cases.items()) if reason is not None}:
            listed = sorted(case for case in cases if cases[case] == reason)
            given = [] if len(listed) == len(cases) else [c[len(function) + 1 : -1] for c in listed]
            reasons.setdefault(reason, []).append(f"{json.dumps(function)} = {json.dumps(given)}")
    tables = [f"[refused.{json.dumps(reason)}]\n" + "\n".join(lines) for reason, lines in sorted(reasons.items())]
    return "\n\n".join([_HEAD + f"later = {json.dumps(list(later))}", *tables]) + "\n"


_HEAD = """# What the second compiler refuses where a behaviour test expects eager's answer (tests/behaviour/ledger.py).
# By reason, each test function with the cases that are refused for it; [] says all of them. Headings that are still
# to be built, as folders, are in `later`: their tests may be refused for any reason.
"""


class Keeper:
    """The pytest plugin that holds a compiler to the ledger, or writes what it refuses to the file ``record``."""

    def __init__(self, record: str | None) -> None:
        self.record = record
        self.ledger = Ledger.read(LEDGER)
        self.outcomes: dict[str, str | None] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """A refusal is an outcome of its own, which the ledger must know."""
        refused = None
        try:
            yield
        except (Refused, aotcheck.UnsupportedError) as error:
            if "tests/behaviour/" not in item.nodeid:
                raise
            refused = error.reason
        item.user_properties.append(("refused", refused))
        if not self.record and (wrong := self.ledger.judge(item.nodeid, refused)):
            pytest.fail(wrong, pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what the ledger is written of; workers report to the process that started them."""
        for name, value in report.user_properties:
            if name == "refused":
                self.outcomes[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says how many were refused, and writes the file if one is asked for."""
        reasons = Counter(reason for reason in self.outcomes.values() if reason is not None)
        for reason, number in reasons.most_common():
            terminalreporter.write_line(f"refused: {number} cases: {reason}")
        if self.record:
            Path(self.record).write_text(print_ledger(self.outcomes, self.ledger.later))
