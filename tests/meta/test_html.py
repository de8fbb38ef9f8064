"""The HTML report: one page that needs nothing else and says what the run did, whatever its programs are like."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aotcheck.campaign.record.events import (
    Ending,
    Event,
    FindingSigned,
    FindingWritten,
    PairsCounted,
    ProgramChecked,
    RunFinished,
    RunResumed,
    RunStarted,
)
from aotcheck.oracle import CoarseKey
from aotcheck.program import Ref, emit
from aotcheck.report.drawings import alias_diagram, heat_map, labelled_heat_map, throughput
from aotcheck.report.html import previous_run, write_html
from aotcheck.report.illustrate import illustrate
from aotcheck.report.jsonl import JsonLines
from tests.meta.small import X, op, pair, program

PLANTED = "tests.meta.planted"
VIEWS = program(op("v0", "torch.mul", X, 2), op("v1", "Tensor.narrow", Ref("v0"), 0, 1, 2), outputs=pair("v0", "v1"))
KEY = CoarseKey("values", "output", "<script>alert(1)</script>")
PATHS = {"old one": "torch.add", "both": "torch.mul", "new one": "torch.sub"}
"""Programs of signatures, so that they are not taken for each other."""
VOID = {"meta", "br", "img", "line", "polyline", "input"}


class Page(HTMLParser):
    """A page's tags, balanced or not, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.targets: set[str] = set()
        self.copied: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        self.targets |= {str(value) for name, value in attrs if name == "id"}
        self.copied += [str(value) for name, value in attrs if name == "data-copy"]
        assert not [name for name, _ in attrs if name.startswith("on")], "handlers are in the script alone"
        if tag not in VOID:
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def run(
    folder: Path, backend: str, time: str, skeletons: tuple[str, ...], died: bool = False, strategy: str = "s:s"
) -> Path:
    """A run's folder as a campaign leaves it."""
    (folder / "signatures").mkdir(parents=True)
    versions = {"torch": "2.13.0"}
    events: list[Event] = [RunStarted(backend, "cpu", 7, 50, None, 1, 25, strategy, versions, time)]
    for i in range(30):
        hard = (KEY,) if i < len(skeletons) else ()
        outcome = "differs" if hard else "agrees"
        events.append(ProgramChecked(0, i, outcome, 0.01, hard=hard, texts=("...",) * len(hard), path=f"{i}.py"))
    for i, said in enumerate(skeletons):
        script = folder / "signatures" / f"{i}.py"
        shown_by = program(op("v0", PATHS[said], X, 2), outputs=Ref("v0")) if said in PATHS else VIEWS
        script.write_text(emit(shown_by, {"backend": backend}), encoding="utf-8")
        events.append(FindingWritten(0, i, KEY, "values of ...", f"{i}.py"))
        events.append(FindingSigned(f"{i}.py", KEY, said, "runtime", str(script), 2, True, "", 1.0))
    counts = ((), (3,), (0, 1))
    events.append(PairsCounted(("op:a", "op:b", "call:c"), counts, counts, ((2, 1, "why"),), 2, 2, 2, 9, 30, 8))
    events.append(RunFinished(Ending.DONE, 3.0))
    with JsonLines(folder / "run.jsonl") as lines:
        for event in events[: -2 if died else None]:
            lines.feed(event)
    return folder


def test_the_page_says_what_was_found_and_compares_it_with_the_run_before(tmp_path: Path) -> None:
    doubles = f"{PLANTED}:doubles"
    run(tmp_path / "a", doubles, "2026-01-01T00:00:00", ("old one", "both"))
    run(tmp_path / "b", "eager", "2026-01-02T00:00:00", ("of another backend",))
    run(tmp_path / "d", doubles, "2026-01-02T00:00:00", (), strategy="s:other")
    now = run(tmp_path / "c", doubles, "2026-01-03T00:00:00", ("both", "new one"))
    assert previous_run(now) == (tmp_path / "a").resolve()
    text = write_html(now).read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    outside = [link for link in page.links if not link.startswith(("data:", "#"))]
    assert outside == [], "nothing is loaded"
    assert {link[1:] for link in page.links if link.startswith("#")} == {"f1", "f2"} <= page.targets
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert "blame: runtime" in text
    changed = text[text.index('id="previous"') : text.index('id="entries"')]
    new, gone, still = (changed.partition(f"{name}: 1 entry")[2].partition("</ul>")[0] for name in CHANGES)
    assert ("new one" in new, "old one" in gone, "both" in still) == (True, True, True)
    assert "both" not in new + gone
    assert text.count('class="alias"') == 4, "eager and compiled of both"
    assert text.count("<article") == 2
    assert 'class="d"' in text, "elements that differ are marked"
    assert "2 of 2 pairs met in 30 programs" in text
    assert "of sets of three 9 and 8" in text


CHANGES = ("new", "gone", "still there")


def test_each_entry_has_its_commands_and_a_line_in_the_index(tmp_path: Path) -> None:
    now = run(tmp_path / "a b", f"{PLANTED}:doubles", "2026-01-01T00:00:00", ("both", "new one"))
    text = write_html(now).read_text(encoding="utf-8")
    page = Page(text)
    for number in (0, 1):
        for command in ("replay", "minimize", "bug"):
            assert f"aotcheck {command} '{now / 'signatures' / str(number)}.py'" in page.copied, "quoted for a shell"
    index = text[text.index('id="index"') : text.index("</table>", text.index('id="index"'))]
    rows = re.findall(r'data-impact="([^"]*)" data-status="([^"]*)" data-ops="([^"]*)"', index)
    assert rows == [("silently wrong", "new", "torch.mul"), ("silently wrong", "new", "torch.sub")]
    assert "output of mul is silently wrong</a>" in index
    folded = re.sub(r"<details.*?</details>", "", text[text.index('id="entries"') :], flags=re.DOTALL)
    assert "def f(" in text and "def f(" not in folded, "programs are folded"


def test_what_is_said_of_a_program_is_escaped(tmp_path: Path) -> None:
    said = 'x</code></details><script>alert(2)</script>" onmouseover="alert(3)'
    now = run(tmp_path / "a", f"{PLANTED}:doubles", "2026-01-01T00:00:00", (said,))
    page = Page(write_html(now).read_text(encoding="utf-8"))
    assert page.open == [] and page.seen.count("script") == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, [1, 2]),
        ({"search": "GRADIENT cumsum"}, [1]),
        ({"impact": "metadata"}, [2]),
        ({"status": "new"}, [1]),
        ({"op": "Tensor.t"}, [1]),
        ({"search": "view", "status": "new"}, []),
    ],
)
def test_filters_show_what_is_asked_for(tmp_path: Path, asked: dict[str, str], shown: list[int]) -> None:
    page = Page(write_html(run(tmp_path / "a", "eager", "2026-01-01T00:00:00", ())).read_text(encoding="utf-8"))
    stub = """
    const els = {}, text = {f1: "A gradient of torch.cumsum", f2: "An output of Tensor.view"};
    const listens = {addEventListener(kind, called) { this.on = called; }};
    const filled = (id) => ({value: ASKED[id] ?? "", textContent: text[id] ?? "", ...listens});
    const make = (id) => els[id] ??= filled(id);
    const row = (entry, impact, status, ops) => ({dataset: {entry, impact, status, ops}});
    const rows = [row("1", "silently wrong", "new", "torch.cumsum Tensor.t")];
    rows.push(row("2", "metadata", "known", "Tensor.view"));
    globalThis.document = {getElementById: make, querySelectorAll: (asked) => asked.startsWith("#index") ? rows : []};
    """.replace("ASKED", f"({json.dumps(asked)})")
    ends = "els.search.on(); console.log(JSON.stringify(rows.filter((r) => !r.hidden).map((r) => +r.dataset.entry)));"
    script = "\n".join((stub, *page.scripts, ends))
    ran = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == shown


def test_a_run_that_was_killed_and_one_without_findings_have_a_page(tmp_path: Path) -> None:
    killed = run(tmp_path / "killed", "eager", "2026-01-01T00:00:00", (), died=True)
    with (killed / "run.jsonl").open("a") as file:
        file.write('{"event": "Progr')
    text = write_html(killed).read_text()
    assert Page(text).open == []
    assert "broken off" in text and "The run did not count them." in text and "<p>None.</p>" in text


def test_a_program_that_kills_its_process_does_not_spoil_the_page(tmp_path: Path) -> None:
    backend = f"{PLANTED}:dies"
    now = run(tmp_path / "run", backend, "2026-01-01T00:00:00", ("one",))
    script = now / "signatures" / "0.py"
    script.write_text(emit(program(op("v0", "torch.mul", X, 2), size=(7,)), {"backend": backend}))
    assert "nothing to show: ProcessExpired" in write_html(now).read_text()


def test_values_that_differ_are_marked_and_aliases_drawn() -> None:
    seen = illustrate(emit(VIEWS), f"{PLANTED}:doubles", "cpu")
    assert seen.eager is not None and seen.compiled is not None
    values = {v.name: v for v in seen.values}
    assert values["output[0]"].eager == ("2", "4", "6", "8")
    assert values["output[0]"].compiled == ("4", "8", "12", "16")
    assert set(values["output[0]"].differs) == {True}
    assert not any(values["storage of a0"].differs)
    assert {w.storage for w in seen.eager.windows} == {"a0", "output[0]"}
    assert {w.storage for w in seen.compiled.windows} == {"a0", "output[0]", "output[1]"}
    bars = re.findall(r"<title>(\S+): float32\[2\], stride \[1\], offset 1</title></rect>", alias_diagram(seen.eager))
    assert bars == ["output[1]", "output[1]"], "two cells of the storage of output[0]"


def test_what_agrees_has_nothing_to_show() -> None:
    assert illustrate(emit(VIEWS), "eager", "cpu").failed == "does not differ here"


@pytest.mark.parametrize("rates", [[], [(1.0, 2.0)]])
def test_too_few_programs_have_no_curve(rates: list[tuple[float, float]]) -> None:
    assert throughput(rates) == ""


def test_a_heat_map_names_its_rows_and_columns() -> None:
    drawn = labelled_heat_map(("op:view", "op:<x>"), ((), (3,)), frozenset())
    assert drawn.count("<text") == 2 and "op:view" in drawn and "op:&lt;x&gt;" in drawn
    assert 'href="data:image/png;base64,' in drawn


def test_a_heat_map_is_a_picture() -> None:
    assert heat_map(((), (3,), (0, 1)), frozenset()).startswith("data:image/png;base64,iVBOR")


def test_a_run_that_was_broken_off_has_the_rate_at_which_it_ran(tmp_path: Path) -> None:
    begun = RunStarted("eager", "cpu", 7, 50, None, 1, 25, "s:s", {"torch": "2.13.0"}, "2026-01-01T00:00:00+00:00")
    kept = [begun, *(ProgramChecked(0, n, "agrees", 0.1) for n in range(25))]
    with JsonLines(tmp_path / "run.jsonl") as lines:
        for event in [*kept, RunResumed(25, "later"), *(ProgramChecked(1, n, "agrees", 0.1) for n in range(25))]:
            lines.feed(event)
    text = (tmp_path / "run.jsonl").read_text()
    slowed = [
        re.sub(r'"at": [0-9.]+', f'"at": {i + (5000 if i > 25 else 0)}', line)
        for i, line in enumerate(text.splitlines())
    ]
    (tmp_path / "run.jsonl").write_text("\n".join(slowed) + "\n")
    assert '<th>a second</th><td class="n">1.0</td>' in write_html(tmp_path).read_text()
