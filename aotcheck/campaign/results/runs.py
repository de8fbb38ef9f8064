"""The result of fuzzing a backend, as data."""

from dataclasses import dataclass
from pathlib import Path

from aotcheck.campaign.record.tally import Tally
from aotcheck.campaign.results.rank import ranked

__all__ = ["BackendRun", "SignedBug", "summed_up"]


@dataclass(frozen=True)
class SignedBug:
    """A signature of a run.

    Args:
        signature: the signature as text.
        findings: how many findings have it, or probably have it.
        known: the corpus file that has the bug; empty for a new one.
        minimized: the file of its smallest program.
        title: its title in plain words.
        impact: its impact, as :attr:`aotcheck.campaign.results.rank.Impact.words`.
        under: the signature that heads its entry; empty if it is the head.
        report: the file of the report that can be posted; empty if none was written.
    """

    signature: str
    findings: int
    known: str = ""
    minimized: str = ""
    title: str = ""
    impact: str = ""
    under: str = ""
    report: str = ""


@dataclass(frozen=True)
class BackendRun:
    """The result of fuzzing a backend.

    Args:
        signatures: the signatures in the order of the report, each head followed by the rest of its entry.
        wavering: the coarse keys of flaky findings.
        shared: programs that differ as they do on a baseline.
        untold: findings without a signature, since time was up or minimizing was off. They count as new.
        failures: failures of the infrastructure, one line each.
        strategy: the strategy that drew the programs.
    """

    backend: str
    folder: str
    seed: int
    programs: int = 0
    rate: float = 0.0
    findings: int = 0
    refused: int = 0
    signatures: tuple[SignedBug, ...] = ()
    untold: int = 0
    flaky: int = 0
    wavering: tuple[str, ...] = ()
    shared: int = 0
    failures: tuple[str, ...] = ()
    strategy: str = ""

    @property
    def new(self) -> tuple[SignedBug, ...]:
        """Signatures that the corpus does not have."""
        return tuple(one for one in self.signatures if not one.known)

    @property
    def entries(self) -> tuple[tuple[SignedBug, tuple[SignedBug, ...]], ...]:
        """The entries of the report: each head with its other signatures; entries with a new signature first."""
        heads = [one for one in self.signatures if not one.under]
        found = [(one, tuple(o for o in self.signatures if o.under == one.signature)) for one in heads]
        return tuple(sorted(found, key=lambda entry: all(one.known for one in (entry[0], *entry[1]))))


def summed_up(tally: Tally, backend: str, folder: Path, seed: int) -> BackendRun:
    """A campaign's tally as data."""
    return BackendRun(
        backend=backend,
        folder=str(folder),
        seed=seed,
        programs=tally.programs,
        rate=round(tally.rate, 2),
        findings=tally.findings,
        refused=tally.refused,
        signatures=_signed(tally),
        untold=tally.untriaged,
        flaky=len(tally.flaky),
        wavering=tuple(dict.fromkeys(str(one.key) for one in tally.flaky)),
        shared=tally.shared.total(),
        failures=tally.shortcomings,
        strategy=tally.run.strategy if tally.run is not None else "",
    )


def _signed(tally: Tally) -> tuple[SignedBug, ...]:
    return tuple(
        SignedBug(
            signature=str(told.signature),
            findings=told.findings,
            known=told.signed.known,
            minimized=told.path,
            title=told.title,
            impact=told.rank.impact.words,
            under="" if told is entry.head else str(entry.head.signature),
            report=tally.reports[told.path].path if told.path in tally.reports else "",
        )
        for entry in ranked(tally)
        for told in entry.all
    )
