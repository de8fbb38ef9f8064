"""The signatures that earlier nights reported: each is new once, then known, fixed when it agrees again, or flaky.

Note [Remembered signatures]
    A signature that the corpus does not have is remembered from the night on which it is found: as a line in
    ``memory.json``, with its minimized program beside it as a corpus file. Each night replays the file several times,
    each in a fresh process, and triage treats it as a known bug, like a corpus file. The status follows from the last
    nights: NEW in the first night, then KNOWN while the program differs and FIXED once it agrees. It is FLAKY if runs
    of one night disagree, or if it differs again after it agreed, until three nights in a row are the same. A night
    fails if a signature is NEW or has just become FLAKY. To forget a signature, delete its file.
"""

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from aotcheck.campaign.corpus.replay import Replayed
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.record.words import Status
from aotcheck.oracle import Outcome
from aotcheck.program import ParsedFile, ProgramSyntaxError, UnknownOpError, emit, parse_file

__all__ = ["Memory", "Remembered", "Seen"]

FORMAT = 1
STEADY = 3
"""So many nights in a row must show the same for a flaky signature to be known, or fixed, again."""

KEPT = 10
"""So many nights of each signature are kept."""


class Seen(Enum):
    """What a remembered program showed in a night."""

    DIFFERS = "differs"
    AGREES = "agrees"
    WAVERS = "wavers"


@dataclass(frozen=True)
class Remembered:
    """A signature that a night has told.

    Args:
        backend: where it was found.
        signature: it, in words.
        file: the name of its minimized program's file; empty where it could not be minimized.
        device: as ``torch.device`` takes it.
        first: the date of the night that told it as new.
        last: the date of the last night on which it differed.
        nights: the last nights on which it was judged, and what it showed, as :class:`Seen` says it.
        judged: whether this night was one of them.
    """

    backend: str
    signature: str
    file: str
    device: str
    first: str
    last: str
    nights: tuple[tuple[str, str], ...]
    judged: bool = False

    @property
    def name(self) -> str:
        """How it is called where bugs of the corpus are called by their file."""
        return Path(self.file).stem or self.signature

    @property
    def status(self) -> Status:
        """New, known, fixed or flaky, see Note [Remembered signatures]."""
        return _status([Seen(seen) for _, seen in self.nights])

    @property
    def before(self) -> Status | None:
        """The status before this night; None if there was none."""
        nights = self.nights[:-1] if self.judged else self.nights
        return _status([Seen(seen) for _, seen in nights]) if nights else None

    @property
    def is_news(self) -> bool:
        """Whether its status is another one since this night; that a new one is known afterwards is none."""
        return self.judged and self.status is not self.before and self.status is not Status.KNOWN

    @property
    def fails(self) -> bool:
        """Whether somebody must act: it is new, or has become flaky."""
        return self.is_news and self.status in (Status.NEW, Status.FLAKY)


def _status(nights: list[Seen]) -> Status:
    recent = nights[-STEADY:]
    if len(nights) == 1 and recent[0] is Seen.DIFFERS:
        return Status.NEW
    if Seen.WAVERS in recent or (Seen.AGREES, Seen.DIFFERS) in pairwise(recent):
        return Status.FLAKY
    return Status.FIXED if recent[-1] is Seen.AGREES else Status.KNOWN


class Memory:
    """The signatures that nights have told, in a folder; opened for one night.

    Args:
        folder: where they are; need not be there.
        now: when the night began.

    Attributes:
        damage: what was wrong with ``memory.json``, for people; empty if nothing was.
    """

    def __init__(self, folder: Path, now: datetime.datetime) -> None:
        self.folder, self.damage = folder, ""
        self._date = now.date().isoformat()
        self._known: dict[tuple[str, str], Remembered] = {}
        for one in self._load(now.strftime("%Y%m%d-%H%M%S")):
            if not one.file or (folder / one.file).exists():
                self._known[one.backend, one.signature] = one

    def __iter__(self) -> Iterator[Remembered]:
        return iter(self._known.values())

    def files(self, backends: Iterable[str]) -> dict[str, list[Path]]:
        """By device, the files to replay for these backends."""
        wanted, found = set(backends), dict[str, list[Path]]()
        for one in self:
            if one.backend in wanted and one.file:
                found.setdefault(one.device, []).append(self.folder / one.file)
        return found

    def named(self, backend: str, name: str) -> str | None:
        """The signature that is known by ``name``; None if it is none of these."""
        return next((one.signature for one in self if (one.backend, one.name) == (backend, name)), None)

    def replayed(self, one: Replayed) -> None:
        """Note what a file showed tonight."""
        signature = self.named(one.backend, one.path.stem)
        if signature is None or one.status is Status.REJECTED:
            return
        differs = one.judged.outcome is Outcome.DIFFERS
        seen = Seen.WAVERS if one.status is Status.FLAKY else Seen.DIFFERS if differs else Seen.AGREES
        self._note(self._known[one.backend, signature], seen)

    def found(self, backend: str, device: str, signature: str, minimized: str, seen: Seen = Seen.DIFFERS) -> Remembered:
        """Note that a campaign found a signature tonight, and remember it if it is new. A finding that shows nothing
        when it runs again wavers; what is remembered of it is its coarse key, and no file."""
        known = self._known.get((backend, signature))
        if known is None:
            file = self._kept(backend, signature, Path(minimized)) if minimized else ""
            known = Remembered(backend, signature, file, device, self._date, self._date, ())
        return self._note(known, seen)

    def save(self) -> None:
        """Write it; what is there is replaced in one piece."""
        self.folder.mkdir(parents=True, exist_ok=True)
        told = [{k: v for k, v in dataclasses.asdict(one).items() if k != "judged"} for one in self]
        write_durably(self._path, json.dumps({"format": FORMAT, "signatures": told}, indent=1) + "\n")

    @property
    def _path(self) -> Path:
        return self.folder / "memory.json"

    def _note(self, one: Remembered, seen: Seen) -> Remembered:
        """``one`` with what it showed tonight; twice in a night, wavering goes before differing, and that before
        agreeing."""
        nights = one.nights
        if one.judged:
            order = (Seen.AGREES, Seen.DIFFERS, Seen.WAVERS)
            seen = max(seen, Seen(nights[-1][1]), key=order.index)
            nights = nights[:-1]
        nights = (*nights, (self._date, seen.value))[-KEPT:]
        last = one.last if seen is Seen.AGREES else self._date
        noted = dataclasses.replace(one, nights=nights, last=last, judged=True)
        self._known[one.backend, one.signature] = noted
        return noted

    def _kept(self, backend: str, signature: str, minimized: Path) -> str:
        """Keep a minimized program, as a file of the corpus' form; the file's name, empty if it cannot be read."""
        parsed = _read(minimized)
        if parsed is None:
            return ""
        header = {**parsed.header, "issue": "not looked up", "keys": {backend: str(parsed.header.get("key", ""))}}
        header |= {"expect": {backend: {"*": "differs"}}, "signature": signature, "first": self._date}
        digest = hashlib.sha256(f"{backend} {signature}".encode()).hexdigest()[:10]
        name = f"{minimized.stem.rpartition('-')[0] or minimized.stem}-{digest}.py"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(self.folder / name, emit(parsed.program, header))
        return name

    def _load(self, stamp: str) -> Iterator[Remembered]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            yield from self._rebuilt(stamp, str(error))
            return
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, not {FORMAT}")
            told = [_restored(facts) for facts in found["signatures"]]
        except (ValueError, KeyError, TypeError) as error:
            yield from self._rebuilt(stamp, f"{type(error).__name__}: {error}")
        else:
            yield from told

    def _rebuilt(self, stamp: str, why: str) -> Iterator[Remembered]:
        """What the files beside a damaged ``memory.json`` say; that one is kept under another name."""
        aside = self._path.with_name(f"memory-damaged-{stamp}.json")
        self._path.replace(aside)
        rebuilt = list(self._of_files())
        self.damage = (
            f"{self._path}: damaged ({' '.join(why.split())}); kept as {aside.name}; {len(rebuilt)} of its signatures "
            "are known by their files, what has none is told as new again"
        )
        yield from rebuilt

    def _of_files(self) -> Iterator[Remembered]:
        for path in sorted(self.folder.glob("*.py")):
            parsed = _read(path)
            if parsed is None or not {"signature", "first", "backend"} <= parsed.header.keys():
                continue
            backend, signature, first = (str(parsed.header[name]) for name in ("backend", "signature", "first"))
            yield Remembered(backend, signature, path.name, "cpu", first, first, ((first, Seen.DIFFERS.value),))


def _restored(facts: Mapping[str, Any]) -> Remembered:
    nights = tuple((str(date), Seen(seen).value) for date, seen in facts["nights"])
    words = {name: facts[name] for name in ("backend", "signature", "file", "device", "first", "last")}
    if not nights or not all(isinstance(word, str) for word in words.values()):
        raise TypeError("a signature without nights, or without a name")
    return Remembered(**words, nights=nights)


def _read(path: Path) -> ParsedFile | None:
    try:
        return parse_file(path)
    except (OSError, ProgramSyntaxError, UnknownOpError):
        return None
