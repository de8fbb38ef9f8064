"""The live display of a campaign and its summary."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aotcheck.campaign import Event, ExitCode, Tally
from aotcheck.campaign.record.events import Ending, PairsCounted, Shown
from aotcheck.campaign.record.words import COMMANDS, Status, counted
from aotcheck.campaign.results.rank import Told, key_order, ranked
from aotcheck.oracle import CoarseKey, Outcome
from aotcheck.report.progress import bar

SHOWN_KEYS = 12
INDENT = " " * 12
LINE_SECONDS = 10.0


class LiveDisplay:
    """Shows a tally while it grows; without a terminal, a line every ten seconds.

    Args:
        tally: what to show; fed by somebody else.
        console: where.
    """

    def __init__(self, tally: Tally, console: Console) -> None:
        self._tally, self._console = tally, console
        self._shown: RenderableType = ""
        # The clock goes on where no event comes, so rich asks, four times a second.
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._now)
            if console.is_terminal
            else None
        )
        self._last = time.monotonic()

    def __enter__(self) -> LiveDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def feed(self, event: Event) -> None:
        """Show what ``event`` has changed in the tally."""
        now = time.monotonic()
        if self._live is None and now - self._last > LINE_SECONDS:
            self._last = now
            self._console.print(_progress(self._tally), soft_wrap=True)

    def _now(self) -> RenderableType:
        with contextlib.suppress(RuntimeError):  # the tally grew while it was being read: show what was there
            self._shown = Group(*_bar(self._tally), *_figures(self._tally), *_leading_keys(self._tally))
        return self._shown


def _bar(tally: Tally) -> list[RenderableType]:
    """How much of the programs or of the time is behind a run, and about how long the rest takes.

    Once its programs have run, the same of the findings that wait to be minimized.
    """
    if tally.share_done is not None and 0.0 < tally.share_done < 1.0:
        return [bar(tally.share_done, tally.elapsed)]
    triaged = tally.findings - tally.untriaged
    if 0 < triaged < tally.findings:
        return [bar(triaged / tally.findings, tally.elapsed - tally.watch.checking, at_most=True)]
    return []


def print_summary(tally: Tally, console: Console) -> None:
    """What a run came to. Long lines are left to the terminal to wrap, so that they can be searched and copied."""
    for part in _figures(tally) if tally.programs else ():
        console.print(part, soft_wrap=True, highlight=False)
    if tally.pairs is not None and tally.pairs.programs:
        console.print(_pairs(tally.pairs), soft_wrap=True, highlight=False)
    _print_entries(tally, console)
    _print_waiting(tally, console)
    for (baselines, key), count in tally.shared.most_common():
        told = f"{count:>6}  also in {', '.join(baselines)}: {key}"
        console.print(Text(told, style="dim"), soft_wrap=True)
    for failure in tally.failures:
        console.print(Text(f"failed: {failure}", style="red"), soft_wrap=True)
    ending = tally.ending.value if tally.ending else "broken off"
    console.print(f"{ending}: {_verdict(tally)}", soft_wrap=True, highlight=False)


def _print_entries(tally: Tally, console: Console) -> None:
    """Each entry in its order, the gravest first: in plain words, by its signatures, and the smallest program."""
    entries = ranked(tally)
    if entries:
        console.print("findings, the gravest first (minimized + probably the same):", soft_wrap=True, highlight=False)
    for number, entry in enumerate(entries, 1):
        count, impact = f"{entry.minimized}+{entry.explained}", entry.head.rank.impact.words
        standing = (entry.head.signed.standing, "dim" if entry.known else "bold")
        line = Text.assemble(f"{number:>3} {count:>6}  ", standing, f": {impact}: {entry.head.title}")
        console.print(line, soft_wrap=True)
        console.print(Text(f"{INDENT}{entry.head.signature}", style="dim"), soft_wrap=True)
        for told in entry.also:
            count = f"{told.signed.minimized}+{told.signed.explained}"
            console.print(Text(f"{INDENT}also seen as: {count} {told.signature}", style="dim"), soft_wrap=True)
        for told in entry.all:
            for path in filter(None, (told.path, _report(tally, told))):
                console.print(Text(f"{INDENT}{path}", style="dim"), soft_wrap=True)
    if any(entry.head.path for entry in entries):
        console.print(f"of each file: {', '.join(COMMANDS)}", soft_wrap=True, highlight=False)
    for flaky in tally.flaky[:SHOWN_KEYS]:
        said = f"{Status.FLAKY.value:>6}  {flaky.key}: {flaky.text} ({flaky.path})"
        console.print(Text(said, style="yellow"), soft_wrap=True)
    if (more := len(tally.flaky) - SHOWN_KEYS) > 0:
        console.print(Text(f"        and {counted(more, 'more flaky finding')}", style="yellow"))


def _report(tally: Tally, told: Told) -> str:
    """The file of the report that can be posted, if the campaign has written one."""
    written = tally.reports.get(told.path)
    return written.path if written is not None else ""


def _print_waiting(tally: Tally, console: Console) -> None:
    """The coarse keys of the findings that have not been minimized, the gravest first, each with its first script."""
    waiting = Counter(tally.waiting.values())
    for key, count in sorted(waiting.items(), key=lambda kv: key_order(*kv)):
        console.print(Text.assemble(f"{count:>6}  {key}", (_again(tally, key), "dim")), soft_wrap=True)
        console.print(Text(f"        {tally.examples[key][0]}", style="dim"), soft_wrap=True)
    if tally.untriaged:
        left = f"{counted(tally.untriaged, 'finding')} left to minimize"
        console.print(f"{left}; --resume goes on", highlight=False)


def _pairs(pairs: PairsCounted) -> str:
    """How many pairs of features have met, and were seen to do as eager does."""
    share, seen = (n / pairs.pairs_possible for n in (pairs.pairs_exercised, pairs.pairs_observed))
    return (
        f"pairs of features: {pairs.pairs_exercised} of {pairs.pairs_possible} exercised ({share:.1%}), "
        f"{pairs.pairs_observed} observed ({seen:.1%}) · {pairs.triples_exercised} triples exercised, "
        f"{pairs.triples_observed} observed"
    )


def _again(tally: Tally, key: CoarseKey) -> str:
    """What became of a key's first finding when it was run again: by the oracles, and as a script."""
    again, script = tally.rechecked.get(key), tally.scripts.get(key)
    return (f" · again: {again.value}" if again else "") + (f" · script {script.value}" if script else "")


def _verdict(tally: Tally) -> str:
    match tally.exit_code:
        case ExitCode.FINDINGS:
            showing = sum(shown is Shown.YES for shown in tally.scripts.values())
            first = counted(len(tally.scripts), "first script")
            left = f"; {tally.scripts_not_run} not run" if tally.scripts_not_run else ""
            return f"{_found(tally)}; of {first} run alone {showing} show their difference{left}"
        case ExitCode.INFRASTRUCTURE:
            if not tally.judged:
                return "no program was judged"
            unfinished = tally.ending in (None, Ending.INTERRUPTED)
            return f"{_found(tally)}{'; --resume goes on' if unfinished else ''}"
        case _:
            return _found(tally)


def _found(tally: Tally) -> str:
    """How many findings a run has, and of which standing."""
    programs = counted(tally.programs, "program")
    if tally.shared:
        baselines = dict.fromkeys(name for names, _ in tally.shared for name in names)
        programs += f"; {tally.shared.total()} more also in {', '.join(baselines)}"
    if not tally.findings:
        return f"no findings in {programs}"
    standings = {Status.NEW: tally.new_not_flaky, Status.KNOWN: tally.known_findings, Status.FLAKY: len(tally.flaky)}
    said = ", ".join(f"{count} {status.value}" for status, count in standings.items() if count)
    return f"{counted(tally.findings, 'finding')} ({said}), {counted(len(tally.keys), 'coarse key')}, in {programs}"


def _progress(tally: Tally) -> str:
    run = tally.run
    goal = f" of {run.examples}" if run and run.examples is not None else ""
    parts = [
        f"{run.backend if run else ''} on {run.device if run else ''}, seed {run.seed if run else ''}",
        f"{tally.programs}{goal} programs" if goal else counted(tally.programs, "program"),
        f"{tally.rate:.1f} programs/s",
        f"{tally.elapsed:.0f} s",
        counted(tally.findings, "finding"),
        counted(len(tally.keys), "coarse key"),
        f"{tally.refused} refused ({tally.share(tally.refused):.1%})",
        f"{tally.outcomes[Outcome.UNSTABLE.value]} unstable",
    ]
    if repeated := tally.repeated:
        parts.append(f"{repeated} drawn equal another")
    if left_out := tally.outcomes[Outcome.LEFT_OUT.value]:
        parts.append(f"{left_out} left out ({tally.share(left_out):.1%})")
    if tally.keys and tally.ending is None:
        parts.append(f"{len(tally.scripts)} of their first scripts run alone")
    if tally.shared:
        parts.append(f"{tally.shared.total()} also in a baseline")
    if tally.signatures:
        parts.append(counted(len(tally.signatures), "signature"))
    if tally.deaths:
        parts.append(f"{counted(tally.deaths, 'worker')} died")
    return " · ".join(parts)


def _figures(tally: Tally) -> list[Text]:
    parts = [Text(_progress(tally), style="bold")]
    floor = Text("difficulty: ")
    for i, (name, least) in enumerate(tally.floors.items()):
        share = tally.share(tally.features[name])
        floor.append(" · " if i else "")
        label = name.lower().replace("_", " ")
        floor.append(f"{label} {share:.0%} (floor {least:.0%})", style="red" if share < least else "green")
    if tally.floors:
        parts.append(floor)
    if (seen := tally.canaries).programs:
        after = f"after {counted(seen.programs, 'program')}, {seen.after_refusals} with a statement that eager refused"
        fit = f"unfit after {seen.unfit} of them" if seen.unfit else "fit after each"
        parts.append(Text(f"canary: {after}; the process was {fit}", style="red" if seen.unfit else ""))
    if tally.refusals:
        reasons = ", ".join(f"{reason} {count}" for reason, count in tally.refusals.most_common())
        parts.append(Text(f"refused: {reasons}", style="yellow"))
    if tally.left_out:
        promises = ", ".join(f"{promise} {count}" for promise, count in tally.left_out.most_common())
        parts.append(Text(f"left out, as the backend does not promise it: {promises}"))
    if tally.soft:
        by_oracle: dict[str, int] = {}
        for key, count in tally.soft.items():
            by_oracle[key.oracle] = by_oracle.get(key.oracle, 0) + count
        soft = ", ".join(f"{oracle} {count}" for oracle, count in sorted(by_oracle.items(), key=lambda kv: -kv[1]))
        parts.append(Text(f"soft differences (never failing): {soft}", style="dim"))
    return parts


def _leading_keys(tally: Tally) -> list[Text]:
    """The most frequent keys, one line each however narrow the terminal is."""
    lines = [f"{count:>6}  {key}" for key, count in tally.keys.most_common(SHOWN_KEYS)]
    if len(tally.keys) > SHOWN_KEYS:
        lines.append(f"        and {len(tally.keys) - SHOWN_KEYS} more")
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
