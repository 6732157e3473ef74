"""An engine that does not start with the ceiling is asked for less, as its log says."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.runs import deploy, wait_step
from e2e.simulated import Simulated

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_the_ceiling_is_lowered_to_the_hard_limit_that_the_log_names(lab: Lab, namespace: str):
    workload = Simulated(image=lab.image, replicas=1, max_num_seqs=8, hardware={"sequence_limit": 40})
    deploy(lab, namespace, workload)
    run = wait_step(lab, namespace, "Ramp", stages=3)
    (failure,) = run["status"]["cloneFailures"]
    assert failure["kind"] == "MambaBlocks"
    assert failure["setting"]["maxNumSeqs"] == 64
    assert run["status"]["stages"][-1]["setting"] == {"maxNumSeqs": 40, "maxNumBatchedTokens": 8192}


def test_out_of_memory_in_warm_up_halves_both_limits(lab: Lab, namespace: str):
    memory = {"memory_gib": 24.0, "weights_gib": 12.0, "sampler_bytes_per_sequence": 220 * 1024 * 1024}
    workload = Simulated(
        image=lab.image, replicas=1, max_num_seqs=8, max_num_batched_tokens=2048, hardware={"gpu": memory}
    )
    deploy(lab, namespace, workload)
    run = wait_step(lab, namespace, "Ramp", stages=3)
    (failure,) = run["status"]["cloneFailures"]
    assert failure["kind"] == "SamplerWarmupOutOfMemory"
    assert run["status"]["stages"][-1]["setting"] == {"maxNumSeqs": 32, "maxNumBatchedTokens": 4096}
