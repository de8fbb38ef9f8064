"""The order in which findings are reported: the order that a maintainer of the backend would choose.

Note [Rank]
    Findings are ordered first by the impact on a user's program (:class:`Impact`). Then a program that eager refuses
    comes after one that it does not refuse, and one that needs a second call after one that does not. Then they are
    ordered by how likely people write the program (``findings/oddity.py``, then its size), then by how many findings
    show it.

Note [Entries]
    A report has one entry for each cause, not for each signature. New signatures with one cause and one stage are one
    entry, headed by the gravest; so are the signatures of one corpus file. Two that raise different errors stay apart.
    New entries come before known ones, since somebody must act on them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aotcheck.campaign.findings.impact import Impact, impact_of
from aotcheck.campaign.findings.oddity import oddity
from aotcheck.campaign.findings.signature import KnownBug, Signature, is_known
from aotcheck.campaign.findings.titles import Seen, title
from aotcheck.campaign.record.events import FindingExplained, FindingSigned
from aotcheck.campaign.record.journal import readable
from aotcheck.campaign.record.tally import Signed, Tally
from aotcheck.campaign.record.words import Status
from aotcheck.minimize.size import size
from aotcheck.oracle import CoarseKey
from aotcheck.program import Program

__all__ = ["Cause", "Impact", "Rank", "Told", "impact_of", "is_still_there", "key_order", "rank_of", "ranked", "title"]


@dataclass(frozen=True, order=True)
class Rank:
    """The place of a finding among others, compared as a tuple; the smallest is reported first.

    Args:
        impact: the effect on a user's program.
        refused: eager raises too.
        later: it needs a second call.
        oddity: how unlikely the program is.
        lines: the size of the program, in lines.
        rarity: the negative number of findings.
    """

    impact: Impact
    refused: bool
    later: bool
    oddity: int
    lines: int
    rarity: int


UNREAD = 1_000
"""The oddity and size for a finding that could not be minimized."""


def rank_of(key: CoarseKey, program: Program | None, findings: int = 1) -> Rank:
    """The rank of a bug.

    Args:
        key: the coarse key.
        program: the program that shows the bug; None if there is none, which ranks behind all that have one.
        findings: how many findings show the bug.
    """
    seen = Seen.of(key)
    odd, lines = (UNREAD, UNREAD) if program is None else (oddity(program), size(program).lines)
    return Rank(impact_of(key), seen.both_raise, seen.later, odd, lines, -findings)


def key_order(key: CoarseKey, findings: int) -> tuple[object, ...]:
    """The sort key of a coarse key without minimized findings."""
    return rank_of(key, None, findings), str(key)


# -- entries


@dataclass(frozen=True)
class Told:
    """A signature, with what a report needs.

    Args:
        signature: the signature.
        signed: its findings.
        title: its title in plain words.
        rank: its place among others.
        path: the file of the smallest program that shows it; empty if there is none.
        program: that program, or the program of a finding; None if no file can be read.
    """

    signature: Signature
    signed: Signed
    title: str
    rank: Rank
    path: str
    program: Program | None = None

    @property
    def findings(self) -> int:
        """How many findings have it, or probably have it."""
        return self.signed.minimized + self.signed.explained


@dataclass(frozen=True)
class Cause:
    """An entry of a report: the gravest signature of a cause, and the others.

    Args:
        head: the gravest signature.
        also: the others, by rank.
    """

    head: Told
    also: tuple[Told, ...] = ()

    @property
    def all(self) -> tuple[Told, ...]:
        """The head and the others."""
        return (self.head, *self.also)

    @property
    def minimized(self) -> int:
        """How many of its findings have been minimized."""
        return sum(told.signed.minimized for told in self.all)

    @property
    def explained(self) -> int:
        """How many other findings probably have this cause."""
        return sum(told.signed.explained for told in self.all)

    @property
    def findings(self) -> int:
        """How many findings it has, or probably has."""
        return sum(told.findings for told in self.all)

    @property
    def known(self) -> str:
        """The corpus file whose bug it is; empty for a new one."""
        return self.head.signed.known

    @property
    def status(self) -> Status:
        """New, or known."""
        return Status.KNOWN if self.known else Status.NEW


def ranked(tally: Tally) -> tuple[Cause, ...]:
    """The findings of a campaign as entries in the order of a report: see Note [Rank] and Note [Entries].
    Programs are read from the files that the campaign has written."""
    told = sorted((_told(*one) for one in tally.signatures.items()), key=lambda t: (bool(t.signed.known), *_order(t)))
    return tuple(_folded(told))


def is_still_there(entry: Cause, others: Iterable[Cause]) -> bool:
    """True if one of ``others``, of another run, is the same as ``entry``: both have one signature (perhaps in an older
    spelling) or one corpus file."""
    return any(_is_same(one, told) for other in others for told in other.all for one in entry.all)


def _is_same(one: Told, other: Told) -> bool:
    if one.signature == other.signature or (one.signed.known and one.signed.known == other.signed.known):
        return True
    if one.program is None or other.program is None or one.signature.stage != other.signature.stage:
        return False
    bug = KnownBug(str(other.signature.key), other.signature.skeleton, other.program)
    return is_known(one.signature.key, one.program, bug)


def _order(told: Told) -> tuple[object, ...]:
    return told.rank, str(told.signature)


def _folded(told: Iterable[Told]) -> Iterator[Cause]:
    """Entries, from signatures in their order: each joins the first entry that it may be a consequence of."""
    entries: list[list[Told]] = []
    for one in told:
        held = next((entry for entry in entries if all(_may_be_one(one, other) for other in entry)), None)
        if held is None:
            entries.append([one])
        else:
            held.append(one)
    return (Cause(entry[0], tuple(entry[1:])) for entry in entries)


def _may_be_one(one: Told, other: Told) -> bool:
    if one.signed.known or other.signed.known:
        return one.signed.known == other.signed.known
    errors = {one.signature.key.error, other.signature.key.error} - {""}
    causes = {told.signed.first.cause for told in (one, other) if isinstance(told.signed.first, FindingSigned)}
    return len(errors) < 2 and len(causes) == 1 and "" not in causes and one.signature.stage == other.signature.stage


def _told(signature: Signature, signed: Signed) -> Told:
    first, count = signed.first, signed.minimized + signed.explained
    key, text, path = signature.key, "", first.shown_by if isinstance(first, FindingExplained) else first.minimized
    if isinstance(first, FindingSigned):
        key, text = first.shown or signature.key, first.text
    read = readable(path) or readable(first.path)
    program = None if read is None else read.program
    rank = min(rank_of(shown, program, count) for shown in (signature.key, key))
    said = f"{key}, of which there is no program to read" if program is None else title(text, key, program)
    return Told(signature, signed, said, rank, path, program)
