"""The main job on a real node with simulated engines: one `kubectl apply` and nothing else."""

from __future__ import annotations

import pytest

from e2e import first_run
from e2e.lab import Lab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_one_profile_brings_both_replicas_below_the_knee(lab: Lab, namespace: str):
    story = first_run.tell(lab, namespace)
    assert story.before.p99_tpot_s > story.tpot_s
    assert story.after is not None
    assert story.after.failed == 0
    assert story.after.p99_tpot_s <= story.tpot_s
    assert story.after.p99_ttft_s <= story.ttft_s
    status = story.profile["status"]
    setting = status["applied"]["setting"]
    pods = lab.find("pods", namespace, "app=chat")
    assert len(pods) == 2
    for pod in pods:
        args = pod["spec"]["containers"][0]["args"]
        assert f"--max-num-seqs={setting['maxNumSeqs']}" in args
        assert args[args.index("--max-num-batched-tokens") + 1] == str(setting["maxNumBatchedTokens"])
    stages = " ".join(story.lines)
    assert "Ramp" in stages
    assert "Certify" in stages
    assert "Rollout" in stages
