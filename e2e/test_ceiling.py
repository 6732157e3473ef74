"""An engine that does not start with the ceiling is asked for less, as its log says."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.runs import deploy, quick, wait_step

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

PARAMETERS = {"maxNumSeqs": {"min": 2, "max": 64}, "maxNumBatchedTokens": {"min": 128, "max": 4096}}
MIB = 1024 * 1024


def test_the_ceiling_is_lowered_to_the_hard_limit_that_the_log_names(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab, replicas=1, hardware={"sequence_limit": 40}), parameters=PARAMETERS)
    run = wait_step(lab, namespace, "Ramp", stages=3)
    (failure,) = run["status"]["cloneFailures"]
    assert failure["kind"] == "MambaBlocks"
    assert failure["setting"]["maxNumSeqs"] == 64
    assert run["status"]["stages"][-1]["setting"] == {"maxNumSeqs": 40, "maxNumBatchedTokens": 4096}


def test_out_of_memory_in_warm_up_halves_both_limits(lab: Lab, namespace: str):
    memory = {"memory_gib": 24.0, "weights_gib": 8.0, "sampler_bytes_per_sequence": 260 * MIB}
    deploy(lab, namespace, quick(lab, replicas=1, hardware={"gpu": memory}), parameters=PARAMETERS)
    run = wait_step(lab, namespace, "Ramp", stages=3)
    (failure,) = run["status"]["cloneFailures"]
    assert failure["kind"] == "SamplerWarmupOutOfMemory"
    assert run["status"]["stages"][-1]["setting"] == {"maxNumSeqs": 32, "maxNumBatchedTokens": 2048}
