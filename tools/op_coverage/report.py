"""What docs/op_coverage.md says, and what is expected to fail."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from tools.op_coverage.compare import Side
from tools.op_coverage.store import ROOT, Store
from tools.op_coverage.subjects import Subject

DOCUMENT = ROOT / "docs" / "op_coverage.md"
SECOND = ROOT / "docs" / "op_coverage_second.md"
EXPECTED = Path(__file__).parent / "expected.json"

_HEAD = """\
# Torch's ops and modules

Written by `make op-coverage`: every op and module of torch's own test databases (`torch.testing`, torch {torch}, CPU),
compared with eager: values, gradients, dtypes, shapes, strides, `requires_grad`, errors, the random generator's state.
Each op runs on a few samples, unusual ones among them: forward and backward, then both with new values, and in place
where the op can. Ops with second derivatives are differentiated three times (`create_graph=True`) on two small samples.
"ours" is aotcheck's AOT autograd, "torch's" is `functorch.compile.aot_function`. An op fails with a dtype if one sample
fails. `tools/op_coverage/expected.json` has the known failures of ours; any other failure of ours fails the run.
"""


def expected() -> dict[str, str]:
    """What is known to fail on our side, and why."""
    found: dict[str, str] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    return found


def write_expected(store: Store, subjects: Sequence[Subject]) -> None:
    """From now on what fails fails."""
    failures = store.failures(Side.OURS, [s.key for s in subjects])
    EXPECTED.write_text(json.dumps(dict(sorted(failures.items())), indent=1) + "\n")


def compared(store: Store, subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects of which there is an outcome on both sides, be it of earlier sources."""
    return [s for s in subjects if all(store.has(side, s.key) for side in (Side.OURS, Side.TORCHS))]


def _plain(reason: str) -> str:
    """A reason as a table cell: short, and without what would break the table."""
    reason = re.sub(r"0x[0-9a-f]+", "0x..", reason)
    return reason.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").strip()[:120]


def _totals(store: Store, subjects: Sequence[Subject]) -> list[str]:
    lines = [
        "| what | subjects | samples | ours: equal to eager | torch's: equal to eager |",
        "| --- | --: | --: | --: | --: |",
    ]
    groups: dict[tuple[str, str], list[Subject]] = {}
    for s in subjects:
        if store.outcomes[Side.OURS, s.key].samples:
            groups.setdefault((s.kind.value, s.dtype), []).append(s)
    totals = Counter[str]()
    for (kind, dtype), group in groups.items():
        count = {
            "subjects": len(group),
            "samples": sum(store.outcomes[Side.OURS, s.key].samples for s in group),
            **{
                side.value: sum(store.outcomes[side, s.key].reason is None for s in group)
                for side in (Side.OURS, Side.TORCHS)
            },
        }
        totals.update(count)
        lines.append(f"| {kind}, {dtype} | " + " | ".join(str(n) for n in count.values()) + " |")
    lines.append(
        "| **all** | "
        + " | ".join(f"**{totals[n]}**" for n in ("subjects", "samples", Side.OURS.value, Side.TORCHS.value))
        + " |"
    )
    return lines


MANY = 20
"""How many subjects may fail for one reason and still have a row each."""


def _told_once(failures: Mapping[str, str]) -> list[tuple[str, str]]:
    """A row for each failure, but one alone for what fails for the same reason as ``MANY`` of its kind."""
    alike: dict[tuple[str, str], list[str]] = {}
    for key, reason in failures.items():
        alike.setdefault((key.split(":")[0], _plain(reason)), []).append(key)
    rows = []
    for (kind, reason), keys in alike.items():
        rows += [(f"{kind}: {len(keys)} subjects", reason)] if len(keys) > MANY else [(k, reason) for k in keys]
    return rows


def _table(rows: Sequence[tuple[str, ...]], head: Sequence[str]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *["| " + " | ".join(row) + " |" for row in rows],
    ]


def document(store: Store, every: Sequence[Subject]) -> str:
    """The page, on what has run on both sides."""
    subjects = compared(store, every)
    keys = [s.key for s in subjects]
    ours, torchs = store.failures(Side.OURS, keys), store.failures(Side.TORCHS, keys)
    worse = [k for k in ours if k not in torchs]
    both = [k for k in ours if k in torchs]
    theirs = [k for k in torchs if k not in ours]
    lines = [_HEAD.format(torch=torch.__version__.split("+")[0]), *_totals(store, subjects), ""]
    if len(subjects) < len(every):
        lines += [f"{len(every) - len(subjects)} of {len(every)} subjects have not run on both sides yet.", ""]
    lines += [f"## Ours fails, torch's does not: {len(worse)}", ""]
    lines += [*_table([(k, _plain(ours[k])) for k in worse], ("subject", "why")), ""] if worse else []
    lines += [f"## Both fail: {len(both)}", ""]
    lines += (
        _table([(k, _plain(ours[k]), _plain(torchs[k])) for k in both], ("subject", "ours", "torch's")) if both else []
    )
    lines += ["", f"## Torch's fails, ours does not: {len(theirs)}", ""]
    lines += _table(_told_once({k: torchs[k] for k in theirs}), ("subject", "why")) if theirs else []
    return "\n".join(lines).rstrip() + "\n"


_SECOND_HEAD = """\
# Torch's ops and modules on the second compiler

Written by `make op-coverage ARGS="--compiler second --write"`, once with `--dynamic` and once without, as
[op_coverage.md](op_coverage.md) is of the first (torch {torch}, CPU). Torch's `aot_function` runs only what the second
compiler fails on. Second derivatives are not asked for yet.
"""


def worse(store: Store, subjects: Sequence[Subject], ours: Side, torchs: Side) -> dict[str, str]:
    """What fails on our side and not on torch's, and why."""
    failures = store.failures(ours, [s.key for s in subjects])
    theirs = store.failures(torchs, failures)
    return {k: _plain(reason) for k, reason in failures.items() if store.has(torchs, k) and k not in theirs}


def second_page(store: Store, subjects: Sequence[Subject]) -> str:
    """The page of the second compiler, on what has run."""
    lines = [_SECOND_HEAD.format(torch=torch.__version__.split("+")[0])]
    for ours, torchs in ((Side.SECOND, Side.TORCHS), (Side.SECOND_DYNAMIC, Side.TORCHS_DYNAMIC)):
        ran = [s for s in subjects if store.has(ours, s.key) and store.outcomes[ours, s.key].samples]
        if ran:
            failed = store.failures(ours, [s.key for s in ran])
            rows = worse(store, ran, ours, torchs)
            dtypes, equal = ", ".join(sorted({s.dtype for s in ran})), len(ran) - len(failed)
            said = f"{len(ran)} subjects ({dtypes}), {equal} equal to eager; {len(failed) - len(rows)} fail on both"
            lines += [f"## {ours.value}: torch's does not fail, ours does: {len(rows)}", "", said + ".", ""]
            lines += [*_table(list(rows.items()), ("subject", "why")), ""] if rows else []
    return "\n".join(lines).rstrip() + "\n"
