"""JUnit XML, as CI servers read it: a test for each thing that may be new."""

from pathlib import Path
from xml.etree import ElementTree as ET

from aotcheck.campaign.nightly.night import ReplayedFile
from aotcheck.campaign.nightly.remembered import Remembered
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.record.words import Status, counted
from aotcheck.campaign.results.runs import BackendRun, SignedBug

_FAILS = {Status.NEW.value, Status.FIXED.value}


def write_junit(
    path: Path,
    replayed: tuple[ReplayedFile, ...],
    runs: tuple[BackendRun, ...],
    remembered: tuple[Remembered, ...] = (),
) -> None:
    """A suite for the corpus, one for what earlier nights have told, and one for each campaign. A known bug passes, one
    that is new or fixed fails, and so does one that has become flaky since an earlier night; a file that is no program
    is an error, and so is an infrastructure that failed."""
    root = ET.Element("testsuites", name="aotcheck")
    if replayed:
        _suite(root, "corpus", [_file(one) for one in replayed])
    earlier = [one for one in remembered if one.status is not Status.NEW]  # new ones are those of the campaigns
    if earlier:
        _suite(root, "remembered", [_told(one) for one in earlier])
    for run in runs:
        _suite(root, f"fuzz {run.backend}", list(_campaign(run)), run.strategy)
    ET.indent(root)
    write_durably(path, '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n")


def _suite(root: ET.Element, name: str, cases: list[ET.Element], strategy: str = "") -> None:
    failures = sum(case.find("failure") is not None for case in cases)
    errors = sum(case.find("error") is not None for case in cases)
    suite = ET.SubElement(
        root, "testsuite", name=name, tests=str(len(cases)), failures=str(failures), errors=str(errors), skipped="0"
    )
    if strategy:
        ET.SubElement(ET.SubElement(suite, "properties"), "property", name="strategy", value=strategy)
    for case in cases:
        case.set("classname", f"aotcheck.{name.replace(' ', '.')}")
        suite.append(case)


def _case(name: str, kind: str = "", message: str = "", body: str = "") -> ET.Element:
    case = ET.Element("testcase", name=_printable(name))
    if kind:
        inside = ET.SubElement(case, kind, {"message": _printable(message)} if message else {})
        inside.text = _printable(body).strip() or None
    return case


def _noted(name: str, note: str) -> ET.Element:
    """A test that passes, with something to say; ``system-out`` has no message, and stands for nothing if empty."""
    return _case(name, "system-out" if note.strip() else "", body=note)


def _file(one: ReplayedFile) -> ET.Element:
    shown = "\n".join(one.shown)
    if one.status in _FAILS:
        return _case(one.name, "failure", _said(one), shown)
    if one.status == Status.REJECTED.value:
        return _case(one.name, "error", one.text)
    if one.status in (Status.FLAKY.value, Status.REFUSED.value, Status.KNOWN.value):
        return _noted(one.name, f"{_said(one)}\n{shown}")
    return _case(one.name)


def _said(one: ReplayedFile) -> str:
    return f"{one.status}: {one.text}" if one.text else one.status


def _told(one: Remembered) -> ET.Element:
    name = f"{one.signature} on {one.backend}"
    said = f"{one.status.value}; first seen {one.first}, last seen {one.last}"
    return _case(name, "failure", said, one.file) if one.fails else _noted(name, f"{said}\n{one.file}")


def _campaign(run: BackendRun) -> list[ET.Element]:
    failed = ("error", run.failures[0], "\n".join(run.failures)) if run.failures else ()
    cases = [_case(counted(run.programs, "program"), *failed)]
    for bug, also in run.entries:
        cases.append(_entry(bug, also))
    if run.flaky:
        cases.append(_case("flaky findings", "failure", f"{counted(run.flaky, 'finding')} in {run.folder}"))
    if run.shared:
        cases.append(_noted("also in a baseline", f"{counted(run.shared, 'program')} in {run.folder}/shared"))
    if run.untold:
        untold = f"{counted(run.untold, 'finding')} in {run.folder}"
        cases.append(_case("findings without a signature", "failure", untold))
    return cases


def _entry(bug: SignedBug, also: tuple[SignedBug, ...]) -> ET.Element:
    """A test for an entry, named by its signature, which stays the same from run to run. What is folded under it fails
    with it: a cause is new as long as one of its signatures is."""
    told = [f"{bug.impact}: {bug.title}"] if bug.title else []
    told += [f"also seen as: {one.signature} ({counted(one.findings, 'finding')})" for one in also]
    count = counted(sum(one.findings for one in (bug, *also)), "finding")
    if all(one.known for one in (bug, *also)):
        return _noted(bug.signature, "\n".join([f"known ({bug.known}), {count}", *told]))
    paths = [path for one in (bug, *also) for path in (one.minimized, one.report) if path]
    return _case(bug.signature, "failure", f"new, {count}", "\n".join([*told, *paths]))


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(c if c in "\t\n" or c >= " " else "?" for c in text)
