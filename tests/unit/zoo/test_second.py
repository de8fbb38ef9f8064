"""The zoo on the second compiler: what is in its scope is equal to eager."""

import json
import subprocess
import sys

import pytest

LATER = {
    "second derivatives": {"wgan_with_gradient_penalty", "forces_by_a_derivative", "physics_informed"},
    "checkpoints": {
        "checkpointed_stack",
        "reentrant_checkpointed_stack",
        "reentrant_checkpoint_under_autocast",
        "selective_checkpoint_whose_body_writes",
        "checkpointed_sequence_of_layers",
    },
    "wrappers": {"quantized_weights", "weight_with_a_function_of_its_own", "distributed_tensors_on_one_process"},
    "higher-order ops": {"branch_by_a_value", "loop_while_a_value"},
    "a branch on data, which the contract refuses": {"early_exit"},
}


@pytest.mark.timeout(500)
def test_all_models_in_scope_are_equal_and_the_others_are_refused():
    command = [sys.executable, "-W", "ignore", "-m", "aotcheck.cli", "zoo", "--backend", "aotcheck_second", "--json"]
    printed = subprocess.run([*command, "--jobs", "1"], capture_output=True, text=True).stdout
    models = json.loads(printed[printed.index("{\n") :])["models"]
    assert len(models) >= 80
    refused = set().union(*LATER.values())
    assert {m["model"]: m["outcome"] for m in models if m["outcome"] != "equal"} == dict.fromkeys(refused, "refused")
