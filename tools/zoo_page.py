"""Writes docs/zoo.md from what ``aotcheck zoo --json`` printed, with and without ``--libraries``, on each backend.

Run as ``python -m tools.zoo_page aotcheck.json aotcheck-libraries.json aot_eager.json aot_eager-libraries.json``.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from aotcheck.zoo import Outcome, models_named
from aotcheck.zoo import models as _models
from aotcheck.zoo.model import LIBRARY_MODELS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo.md"

INTRODUCTION = """# The zoo

`aotcheck zoo --backend B` trains small models of common kinds for a few steps, eagerly and through B. After every step
it compares results, losses, gradients, parameters, buffers, the optimizer's state, the state of the generators and of
the process. Values are equal if they are bitwise equal, and equal within rounding if their distance from a float64 run
is at most twice eager's distance plus a few units in the last place. Strides and aliasing are compared as the fuzzer's
oracle compares them.

| option | meaning |
| --- | --- |
| `--models a,b` | only these models |
| `--libraries` | without `--models`: the models of torchvision, timm and transformers, instead of our own |
| `--device cpu\\|cuda` | where they run |
| `--jobs N`, `--timeout T`, `--memory GiB` | number and limits of worker processes; each model has its own |
| `--json` | print the results as JSON |

| outcome | meaning |
| --- | --- |
| equal | every step is as in eager |
| differs | some step is not; the result says which step, what differs, and both values |
| refused | the backend refuses the model with an error for this, or does not promise what the model needs |
| error | the backend raises where eager does not, or its process crashes or hangs |
| ran eagerly | by the backend's counters, it compiled nothing or handed something to another compiler |
| eager differs from itself | two eager runs differ, so the backend is not judged |

The exit code is 0 when no model differs or fails, 1 if one does, 2 for usage, 3 for infrastructure. `4 > 2` means 4
compilations where the model should need 2; that fails nothing.

A model is a function in `aotcheck/zoo/models/`, registered by `@model(kind, schedule)`. It builds a `Program`:
the module or function that is compiled (the *target*), a *step* that calls the compiled target and does the rest
eagerly, a batch for each size of the schedule, and the state that is compared. A backend that promises modules gets the
module; any other backend gets a function of the module's parameters and buffers.

`pip install 'aotcheck[models]'` installs the libraries of `--libraries`. Each of their models is a line of
`aotcheck/zoo/models/libraries.toml`: the constructor, the training data, the sizes that make the model small. Weights
are random; nothing is downloaded.

## Rounding or a wrong answer

The yardstick is eager's distance with the kernels that eager chose. A compiler may choose others that are as right and
round more, so a model that is a little further off than twice is not yet a bug. `python -m benchmarks.rounding MODEL
--backend B` settles it. It measures the gradients of one step against float64, for several seeds, with eager's other
kernels, with the backend, and with the backend in float64. If the difference is rounding, eager's other kernels are as
far off; and in float64 the backend comes nearer to eager by a factor of about 2^29, which a wrong formula does not.

So it is with `torchvision.resnet18` on `inductor` (torch 2.13.0, CPU, one thread, seeds 0 to 7; the zoo's is 0). The
first column is about `conv1.weight`, the second about all 62 gradients, the last about the worst gradient and seed:

| kernels | largest distance ÷ eager's | gradients over the rule | spread ÷ eager's | of the largest gradient |
| --- | --- | --- | ---: | ---: |
| eager | 1.0 1.0 1.0 1.0 1.0 1.0 1.0 1.0 | 0 0 0 0 0 0 0 0 | 1.00 | 2e-04 |
| eager, channels-last | 2.8 2.1 3.9 1.6 2.0 2.7 2.1 1.9 | 17 44 59 6 13 25 33 10 | 1.88 | 5e-04 |
| eager without oneDNN | 0.9 0.3 1.8 1.1 1.6 0.7 1.7 2.9 | 0 0 9 0 1 0 10 27 | 1.20 | 2e-04 |
| `inductor` | 2.4 1.5 2.8 1.4 2.0 1.7 2.1 3.3 | 3 0 48 4 13 3 31 56 | 1.70 | 3e-04 |
| `inductor`, layout kept | 0.7 0.8 1.1 0.7 1.1 1.0 1.7 1.2 | 0 0 0 0 0 0 0 1 | 0.95 | 2e-04 |
| `inductor` in float64 | | | | 5e-13 |

Inductor lays convolutions out channels-last. Eager's own kernels for that layout are as far off: 2.8 times where
Inductor is 2.4 times, on seed 0. Told to keep the layout (`TORCHINDUCTOR_LAYOUT_OPTIMIZATION=0`), Inductor is as near
as eager. The one weight of 9,408 that the zoo names is the tail of its tensor: the median, the 99th and the 99.9th
percentile of the distances are 1.5, 1.5 and 1.6 times eager's. The rule stays as it is. Two threads or a batch in
another order change eager's largest distance by less than a tenth, so they would not widen the yardstick; and a larger
factor would hide wrong answers.

All this is about the first step. The later steps of this model judge no inexact backend: eager is 39 % from float64 in
the worst tensor of step 2, so the zoo has no float64 reference there and allows 512 epsilons. Eager with two threads
differs from eager with one in 56 tensors of that step, and Inductor with the layout kept, equal in step 1, differs too.
"""

WHY = {
    ("aotcheck", "library_of_a_tensor"): "the class of a traced tensor is not torch's: the other branch is taken",
    ("aotcheck", "selective_checkpoint_whose_body_writes"): "the body is recomputed once too often",
    (
        "aotcheck",
        "data-dependent",
    ): "wav2vec2 branches on labels, longformer on a mask, the others on the padding, but not if "
    "`torch.compiler.is_compiling()`, which is false while aotcheck traces; with it true they are equal",
    ("torch", "noise_behind_a_transposed_convolution"): "the mask is drawn for another memory layout than eager's "
    "(corpus/noise-is-drawn-for-another-memory-layout.py)",
    ("torch", "buffer_that_counts"): "the backward recomputes from the count after the call "
    "(pytorch #197039, corpus/gradient-by-what-was-computed-before-a-write.py)",
    ("torch", "contrastive_with_a_queue"): "the backward copies the queue again, with the new keys in it "
    "(the same, corpus/gradient-by-a-copy-made-before-a-write-on-inductor.py)",
    ("torch", "spectral_norm"): "the backward repeats the power iteration, from the vector that it gave "
    "(the same, corpus/gradient-by-a-power-iteration-on-inductor.py)",
    ("torch", "checkpointed_stack"): "running statistics are not updated when the block is recomputed "
    "(corpus/checkpoint-updates-running-statistics-once.py)",
    ("torch", "reentrant_checkpointed_stack"): "the same",
    ("torch", "selective_checkpoint_whose_body_writes"): "writes of the recomputed body are lost "
    "(pytorch #113737, corpus/selective-checkpoint-whose-body-counts.py)",
    ("torch", "distributed_tensors_on_one_process"): "eager's run used an equal mesh, made before this one: "
    "ops raise on tensors of the second of two equal meshes, and not on those of the first (torchtitan #3013 "
    "has the error; corpus files have one mesh)",
    (
        "torch",
        "custom_op_that_may_write",
    ): "an op may write an optional argument and is called without it: Inductor takes "
    "an element of its only result (no issue found; corpus files cannot hold a user's ops)",
    ("torch", "torchvision.resnet18"): "rounding, in a layout that eager does not choose (see above)",
    ("torch", "torchvision.densenet"): "running statistics are not updated when a checkpoint is recomputed",
}
"""Known causes, by backend and model (of a library's models, also by reason); "torch" is any backend of torch's."""


def main(files: list[str]) -> None:
    """Write the page."""
    runs = [json.loads(Path(name).read_text()) for name in files]
    Path(PAGE).write_text(page(runs))


def page(runs: list[dict[str, Any]]) -> str:
    """The page that these runs give."""
    assert _models is not None
    found: dict[str, dict[str, Any]] = {}
    of_libraries: dict[str, dict[str, Any]] = {}
    for run in runs:
        for one in run["models"]:
            table = of_libraries if one["model"] in LIBRARY_MODELS else found
            table.setdefault(run["backend"], {})[one["model"]] = one
    versions = " and ".join(dict.fromkeys(f"torch {run['torch'].partition('+')[0]}" for run in runs))
    lines = [INTRODUCTION, f"## What backends give, on {versions}, {runs[0]['device'].upper()}", ""]
    lines += [f"- `{backend}`: {_counts(models)}." for backend, models in found.items()]
    lines += [f"- `{backend}`, models of libraries: {_counts(models)}." for backend, models in of_libraries.items()]
    heads = [f"`{backend}` | compiled" for backend in found]
    lines += ["", f"| model | {' | '.join(heads)} |", f"| --- |{' --- | ---: |' * len(found)}"]
    kind = None
    for model in models_named([]):
        if model.kind is not kind:
            kind = model.kind
            lines.append(f"| **{kind.value}** |{' | |' * len(found)}")
        cells = [_cells(models.get(model.name)) for models in found.values()]
        lines.append(f"| `{model.name}` | {' | '.join(cells)} |")
    lines += ["", "Models that are not equal, and why:", ""]
    for backend, models in found.items():
        unequal = {name: one for name, one in models.items() if one["outcome"] != "equal"}
        for name, one in unequal.items():
            known = _known(backend, name)
            lines.append(f"- `{backend}`, `{name}`: {_why(one)}{known and f'; {known}'}")
    lines += ["", "## Models of libraries", "", *_libraries(of_libraries)]
    return "\n".join(lines) + "\n"


def _libraries(found: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each library; then the models that are not equal, by reason."""
    lines = ["| library | models |", "| --- | --- |"]
    for kind in dict.fromkeys(model.kind for model in LIBRARY_MODELS.values()):
        names = [one.name.partition(".")[2] for one in LIBRARY_MODELS.values() if one.kind is kind]
        lines.append(f"| {kind.value} | {', '.join(names)} |")
    lines += ["", "All are equal but:", ""]
    for backend, models in found.items():
        reasons: dict[str, list[str]] = {}
        for name, one in models.items():
            if one["outcome"] != "equal":
                known = _known(backend, name, one["reason"].partition(":")[0])
                reasons.setdefault(f"{_why(one)}{known and f'; {known}'}", []).append(f"`{name}`")
        lines += [f"- `{backend}`, {', '.join(names)}: {why}" for why, names in reasons.items()]
    return lines


def _known(backend: str, *what: str) -> str:
    owner = backend if backend == "aotcheck" else "torch"
    return next((WHY[owner, one] for one in what if (owner, one) in WHY), "")


def _counts(models: dict[str, Any]) -> str:
    counts = Counter(one["outcome"] for one in models.values())
    told = [f"{counts[outcome.value]} {outcome.value}" for outcome in Outcome if counts[outcome.value]]
    often = sum(_too_often(one) for one in models.values())
    return f"{', '.join(told)} of {len(models)}; {often} compiled too often"


def _too_often(one: dict[str, Any]) -> bool:
    most, made = one["at_most"], one["compilations"]
    return most is not None and made is not None and made > most


def _cells(one: dict[str, Any] | None) -> str:
    if one is None:
        return "- | "
    said = one["outcome"] if one["outcome"] in ("equal", "refused") else f"**{one['outcome']}**"
    made = "" if one["compilations"] is None else str(one["compilations"])
    said += " (rounding)" if one["rounding"] else ""
    most = one["at_most"]
    return f"{said} | {f'{made} > {most}' if _too_often(one) else made}"


def _why(one: dict[str, Any]) -> str:
    why = " ".join(one["reason"].split()).replace("|", "\\|")
    if one["outcome"] == "differs":
        why = f"{why}: eager {one['eager']}, compiled {one['compiled']}"
    at = f" (step {one['step']})" if one["step"] else ""
    return f"{one['outcome']}, {why[:240]}{at}"


if __name__ == "__main__":
    main(sys.argv[1:])
