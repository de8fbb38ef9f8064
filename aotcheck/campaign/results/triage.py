"""From findings to bugs: each finding is run again alone, minimized, blamed, and gets a signature.

Note [Known bugs are not repeated]
    Most findings of a campaign are a few bugs again and again. If a finding has the coarse key of a known bug (from the
    corpus or from an earlier finding) and makes all the calls of that bug's minimized program, it is probably that bug.
    It goes to the end of the queue. When time is up, what is left there is counted under that signature. Another bug
    may hide behind the known one, so some findings of each coarse key are minimized anyway if there is time. A finding
    that no known bug explains is always minimized, if there is time.
"""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool

import torch

from aotcheck.backends import Expectations, require_device
from aotcheck.campaign.findings.impact import impact_of
from aotcheck.campaign.findings.signature import KnownBug, cause, embeds, is_known, skeleton
from aotcheck.campaign.record.events import Event, FindingExplained, FindingFlaky, FindingSigned, FindingWritten
from aotcheck.campaign.record.journal import readable, write_durably
from aotcheck.campaign.setup.settings import Settings
from aotcheck.minimize import DoesNotFailError, Limits, Reduced, Reduction, Subject
from aotcheck.minimize.isolated import workers
from aotcheck.oracle import CoarseKey, OracleKind, same_key
from aotcheck.program import ParsedFile, Program, emit, parse

__all__ = ["MOST_PER_KEY", "Triage"]

MOST_PER_KEY = 3
"""After this many findings of one coarse key, findings that a known bug explains are not minimized any more."""

FINDING_SECONDS = 120.0
"""Seconds that minimizing one finding may take."""

HANG_SECONDS = 6.0
"""If the finding is a hang, a candidate that takes longer than these seconds hangs too."""

CANDIDATE_SECONDS = 30.0
BLAME_SECONDS = 60.0
NOT_MINIMIZED = "not minimized"


class Triage:
    """Gives findings their signatures, by iterating over :meth:`events`.

    Args:
        settings: the campaign's.
        known: bugs that are known before the run.
        stop: the event that ends the work when it is set.
    """

    def __init__(self, settings: Settings, known: Iterable[KnownBug], stop: threading.Event) -> None:
        self.settings, self.stop = settings, stop
        self._known = list(known)
        self._waiting: dict[str, FindingWritten] = {}
        self._tried: Counter[CoarseKey] = Counter()
        self._deadline = 0.0

    def feed(self, event: Event) -> None:
        """Record a finding, or in a resumed run what was done about it before."""
        match event:
            case FindingWritten():
                self._waiting[event.path] = event
            case FindingSigned():
                found = self._done(event.path)
                self._learn(event, event.key if found is None else found.key)
            case FindingFlaky(how=how) if how:  # a worker's death that did not happen again
                self._waiting.pop(event.path, None)
            case FindingExplained() | FindingFlaky():
                self._done(event.path)
            case _:
                pass

    def events(self) -> Iterator[Event]:
        """Minimize findings while there is time; then count the findings that known bugs explain."""
        self._deadline = time.monotonic() + self.settings.minimize_seconds
        while not self._over and (finding := self._next()) is not None:
            event = self._sign(finding)
            if event is None:  # stopped in the middle: it is as if it had not been begun, and left to --resume
                self._waiting.pop(finding.path)
                continue
            self.feed(event)
            yield event
        if not self.stop.is_set():
            for finding in list(self._waiting.values()):
                bug = self._explains(finding)
                if bug is not None:
                    self._done(finding.path)
                    key = bug.signed or finding.key
                    yield FindingExplained(finding.path, key, bug.skeleton, bug.stage, bug.name, bug.path)

    @property
    def _over(self) -> bool:
        return self.stop.is_set() or time.monotonic() >= self._deadline

    def _done(self, path: str) -> FindingWritten | None:
        finding = self._waiting.pop(path, None)
        if finding is not None:
            self._tried[finding.key] += 1
        return finding

    def _next(self) -> FindingWritten | None:
        """The finding to minimize next: of the coarse key that has had the least, the gravest of these first, and not
        explained before explained."""
        explained: list[FindingWritten] = []
        # Stable: else in the order in which they were found.
        for finding in sorted(self._waiting.values(), key=lambda f: (self._tried[f.key], impact_of(f.key))):
            if self._explains(finding) is None:
                return finding
            explained.append(finding)
        return next((finding for finding in explained if self._tried[finding.key] < MOST_PER_KEY), None)

    def _explains(self, finding: FindingWritten) -> KnownBug | None:
        """The known bug that ``finding`` probably is, see Note [Known bugs are not repeated]."""
        candidates = [bug for bug in self._known if same_key(bug.key, str(finding.key))]
        if not candidates:
            return None
        read = readable(finding.path)
        if read is None:
            return None
        holding = [bug for bug in candidates if embeds(bug.program, read.program, bug.own)]
        return max(holding, key=lambda bug: bug.program.statements, default=None)

    def _learn(self, signed: FindingSigned, found_as: CoarseKey) -> None:
        """Add a bug to the known ones, under its own key and under the key of its finding."""
        read = readable(signed.minimized) if signed.minimized else None
        if read is None:
            return
        for key in dict.fromkeys((signed.key, found_as)):
            listed = read.header.get("own")
            own = frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
            said = (str(key), signed.skeleton, read.program, signed.stage, signed.known, signed.key, own)
            bug = KnownBug(*said, signed.minimized)
            if bug not in self._known:
                self._known.append(bug)

    def _sign(self, finding: FindingWritten) -> Event | None:
        began = time.monotonic()
        read = readable(finding.path)
        if read is None:
            return FindingFlaky(finding.path, finding.key, "its script is gone or cannot be read")
        if finding.key.oracle == OracleKind.MEMORY.value:  # a candidate without a limit would take the machine with it
            return FindingSigned(
                finding.path, finding.key, NOT_MINIMIZED, "", "", read.program.statements, False, "", 0.0
            )
        hang = finding.key.oracle == OracleKind.TIMEOUT.value
        timeout = min(HANG_SECONDS if hang else CANDIDATE_SECONDS, self.settings.timeout)
        seconds = min(FINDING_SECONDS, max(self._deadline - began, 1.0))
        settings = self.settings
        subject = Subject(
            settings.backend, settings.device, settings.inspection, settings.expectations, settings.baselines
        )
        limits = Limits(self.settings.jobs, timeout, self.settings.memory, seconds)
        reduction = Reduction(read.program, subject, limits, self.stop, to_root=True)
        try:
            for _ in reduction.steps():
                pass
        except DoesNotFailError as error:
            return None if self.stop.is_set() else FindingFlaky(finding.path, finding.key, str(error))
        except (RuntimeError, BrokenProcessPool):  # somebody has killed our workers
            return None
        reduced = reduction.result
        if reduced is None or self.stop.is_set():
            return None
        return self._signed(finding, read, reduced, began)

    def _signed(self, finding: FindingWritten, read: ParsedFile, reduced: Reduced, began: float) -> Event:
        key, root_key = reduced.shows.key, reduced.root_shows.key
        assert key is not None and root_key is not None
        said = skeleton(reduced.root)
        stage = self._stage(reduced.program)
        known = next((b.name for b in self._known if b.name and is_known(key, reduced.program, b, reduced.own)), "")
        kept = {entry: read.header[entry] for entry in ("found", "block", "index", "torch") if entry in read.header}
        header: dict[str, object] = {**kept, "backend": self.settings.backend, "key": str(key)}
        header |= {"difference": reduced.shows.text, "skeleton": said}
        header |= {"stage": stage} if stage else {}
        header |= {"own": sorted(reduced.own)} if reduced.own else {}
        header |= self.settings.expectations.header()
        name = "".join(c if c.isalnum() else "-" for c in f"{key.oracle}-{key.place}")
        digest = hashlib.sha256(f"{root_key} {said} {stage}".encode()).hexdigest()[:10]
        path = self.settings.signatures / f"{name}-{digest}.py"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, emit(reduced.program, header))
        return FindingSigned(
            path=finding.path,
            key=root_key,
            skeleton=said,
            stage=stage,
            minimized=str(path),
            statements=reduced.program.statements,
            finished=reduced.finished,
            known=known,
            seconds=round(time.monotonic() - began, 2),
            cause=cause(reduced.root),
            shown=key,
            text=reduced.shows.text,
        )

    def _stage(self, program: Program) -> str:
        """The stage to blame, for backends that have stages, found in another process."""
        try:
            from aotcheck.blame import STAGED, may_be_staged
        except ImportError:  # this torch lacks names that our own AOT autograd needs: the signature does without
            return ""
        if not may_be_staged(self.settings.backend):
            return ""
        subject = Subject(self.settings.backend, self.settings.device)
        source = emit(program, self.settings.expectations.header())
        with workers(subject, Limits(1, BLAME_SECONDS, self.settings.memory), max_tasks=1) as pool:
            try:
                stage: str = pool.schedule(
                    stage_of, args=(source, self.settings.device, self.settings.backend), timeout=BLAME_SECONDS
                ).result()
            except Exception:  # died, hung, or could not cope: the signature does without
                return "unknown stage" if self.settings.backend in STAGED else ""
        return stage


def stage_of(source: str, device: str, backend: str = "aotcheck") -> str:
    """The stage of our own AOT autograd, or the layer of another backend, that makes a script's program differ; empty
    for a backend without stages."""
    from aotcheck.blame import STAGED, Layer, blame

    torch.set_num_threads(1)
    parsed = parse(source)
    found = blame(parsed.program, require_device(device), backend, Expectations.of_header(parsed.header))
    layers = {judged.rung for judged in found.rungs} - {Layer.EAGER, Layer.SECOND_CALL}
    if layers <= {Layer.BACKEND} and backend not in STAGED:
        return ""
    return found.rung.value if found.rung is not None else "no stage"
