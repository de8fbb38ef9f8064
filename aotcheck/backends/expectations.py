"""What a run does not expect of a backend, as one value that goes with the backend's name.

The command line makes the value, ``resolve`` applies it to the backend, run.jsonl and the headers of findings have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from aotcheck.backends.backend import EVERY_PROMISE, Backend, Promise
from aotcheck.backends.errors import ExpectationsError

HEADER = "expectations"
"""The table of a finding's header that holds expectations."""


@dataclass(frozen=True)
class Expectations:
    """What is not expected of a backend.

    Args:
        without: promises that are removed from the backend's own.
        ignored: kinds of differences that are soft, added to the backend's own.
        rtol: the relative tolerance; the backend's own one holds if it is larger.
        refuses: names of exception classes that are refusals, added to the backend's own.
    """

    without: tuple[Promise, ...] = ()
    ignored: tuple[str, ...] = ()
    rtol: float = 0.0
    refuses: tuple[str, ...] = ()

    def applied(self, backend: Backend) -> Backend:
        """``backend`` with these expectations applied."""
        return replace(
            backend,
            promises=backend.promises - set(self.without),
            ignored=backend.ignored | set(self.ignored),
            rtol=max(backend.rtol, self.rtol),
            refuses=tuple(dict.fromkeys((*backend.refuses, *self.refuses))),
        )

    @classmethod
    def of(cls, backend: Backend) -> Self:
        """The expectations that ``backend`` itself states."""
        without = tuple(p for p in Promise if p in EVERY_PROMISE - backend.promises)
        return cls(without, tuple(sorted(backend.ignored)), backend.rtol, backend.refuses)

    def header(self) -> dict[str, object]:
        """The entries of a finding's header; none if nothing is left out."""
        entries: dict[str, object] = {"without": [promise.value for promise in self.without]}
        entries |= {"ignored": list(self.ignored), "rtol": self.rtol, "refuses": list(self.refuses)}
        said = {name: value for name, value in entries.items() if value}
        return {HEADER: said} if said else {}

    @classmethod
    def of_header(cls, header: Mapping[str, object]) -> Self:
        """The expectations in a finding's header.

        Raises:
            ExpectationsError: the header has something that is no expectation.
        """
        said = header.get(HEADER, {})
        if not isinstance(said, Mapping) or set(said) - {"without", "ignored", "rtol", "refuses"}:
            raise ExpectationsError(f"{HEADER} holds without, ignored, rtol and refuses, nothing else")
        lists = [said.get(name, []) for name in ("without", "ignored", "refuses")]
        rtol = said.get("rtol", 0.0)
        if not all(isinstance(each, list) for each in lists) or not isinstance(rtol, int | float):
            raise ExpectationsError(f"{HEADER}: without, ignored and refuses are lists, rtol is a number")
        without, ignored, refuses = (tuple(map(str, each)) for each in lists)
        return cls(promises_named(without), ignored, float(rtol), refuses)


EVERYTHING = Expectations()
"""The default: the run expects all that a backend promises."""


def promises_named(names: tuple[str, ...]) -> tuple[Promise, ...]:
    """The promises of these names, in which ``-`` and ``_`` stand for a blank.

    Raises:
        ExpectationsError: there is no such promise; the message lists those there are.
    """
    known = {promise.value: promise for promise in Promise}
    found = []
    for name in names:
        promise = known.get(" ".join(name.lower().replace("-", " ").replace("_", " ").split()))
        if promise is None:
            listed = ", ".join(value.replace(" ", "-") for value in known)
            raise ExpectationsError(f"unknown promise '{name}': choose of {listed}")
        found.append(promise)
    return tuple(dict.fromkeys(found))
