"""docs/zoo.md: a row for each model, and why each that is not equal is not."""

import json
from dataclasses import replace

from aotcheck.report.zoo import as_text
from aotcheck.zoo import MODELS, Outcome, Result
from tools.zoo_page import page


def test_the_page_tells_outcomes_and_reasons() -> None:
    equal = Result("conv_net", "vision", Outcome.EQUAL, rounding=True, compilations=4, at_most=2)
    refused = Result("maml", "second order", Outcome.REFUSED, "a | b", step=2, compilations=0, at_most=2)
    differs = Result("diffusion", "generative", Outcome.DIFFERS, "values of output", 1, "1.0", "2.0")
    alike = [replace(refused, model=name) for name in ("timm.beit", "timm.deit")]
    told = page([json.loads(as_text("mine", "cpu", found)) for found in ([equal, refused, differs], alike)])
    assert "- `mine`, models of libraries: 2 refused of 2; 0 compiled too often." in told
    assert "- `mine`, `timm.beit`, `timm.deit`: refused, a \\| b (step 2)" in told
    assert "- `mine`: 1 equal, 1 differs, 1 refused of 3; 1 compiled too often." in told
    assert "| `conv_net` | equal (rounding) | 4 > 2 |" in told
    assert "| `maml` | refused | 0 |" in told
    assert "- `mine`, `maml`: refused, a \\| b (step 2)" in told
    assert "- `mine`, `diffusion`: differs, values of output: eager 1.0, compiled 2.0 (step 1)" in told
    assert all(f"| `{name}` |" in told for name in MODELS)
