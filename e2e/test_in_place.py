"""One replica and no spare GPU: the serving pod itself is measured while it has no users, and nothing is changed."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from e2e.lab import Lab
from e2e.profiles import profile
from e2e.realvllm.environment import prepared
from e2e.realvllm.manifests import PodPlacement, deployment
from e2e.realvllm.server import SERVED_MODEL_NAME, EngineSettings
from e2e.runs import LADDER, children, deploy, quick, runs, wait_condition, wait_run_over, wait_step
from e2e.witness import watching, writes_of_operator

pytestmark = [pytest.mark.timeout(1800)]

ALWAYS = {"schedule": "* * * * *", "duration": "2h"}
PROBE: dict[str, Any] = {"allow": ["Clone", "InPlace"], "window": ALWAYS, "ladder": LADDER}
ALL_GPUS = 4
SEQUENCES = 32


def ask(address: str, model: str, tokens: int) -> int:
    """As a user does; how many tokens came."""
    body = json.dumps({"model": model, "prompt": [11, 12, 13], "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(
        f"http://{address}:8000/v1/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


@pytest.mark.wide
def test_the_only_replica_is_measured_without_a_write_and_left_to_a_user_that_comes(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab, gpus=ALL_GPUS, replicas=1, max_num_seqs=SEQUENCES), probe=PROBE)
    is_measured_and_left_to_a_user(lab, namespace, "tiny")


@pytest.mark.vllm
@pytest.mark.judged
def test_so_is_a_real_one(lab: Lab, open_namespace: str):
    settings = EngineSettings(max_num_seqs=SEQUENCES, max_num_batched_tokens=2048)
    placement = PodPlacement(gpus=ALL_GPUS)
    lab.apply(deployment(prepared(), namespace=open_namespace, name="chat", settings=settings, placement=placement))
    lab.wait_rolled_out("chat", open_namespace)
    # Another use of the machine's cores is no reason to give up: this is not about what is measured.
    tolerant = PROBE | {"ladder": LADDER | {"controlTolerancePercent": 100}}
    lab.apply(profile(open_namespace, ttft_s=5.0, tpot_s=0.5, probe=tolerant))
    is_measured_and_left_to_a_user(lab, open_namespace, SERVED_MODEL_NAME)


def is_measured_and_left_to_a_user(lab: Lab, namespace: str, model: str) -> None:
    """Follows the run of the profile that was just applied, and is the user that comes."""
    (before,) = lab.find("pods", namespace, "app=chat")
    with watching(lab, "deployment", "chat", namespace) as seen:
        wait_step(lab, namespace, "Ramp", stages=2)
        lab.kill_operator()  # nobody watches now but the load agent

        def comes_and_is_noticed() -> bool:
            assert ask(before["status"]["podIP"], model, 100) == 100
            return any(s.get("endedBy") == "UsersServed" for s in runs(lab, namespace)[-1]["status"]["stages"])

        lab.wait("a stage that the user broke off", comes_and_is_noticed, timeout_s=200)
        run = wait_run_over(lab, namespace)
        assert seen.changes() == []
    status = run["status"]
    assert status["outcome"] in ("Predicted", "NoImprovement"), status["message"]
    assert status["plan"]["probeTarget"] == "InPlace"
    assert status["cost"].get("engineStarts", 0) == 0
    counted = [s for s in status["stages"] if s.get("verdict") != "Invalid"]
    assert {s["setting"]["maxNumSeqs"] for s in counted} == {SEQUENCES}
    wait_condition(lab, namespace, "Probing", "False", reason="Idle", timeout_s=60)
    (after,) = lab.find("pods", namespace, "app=chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [c["restartCount"] for c in after["status"]["containerStatuses"]] == [0]
    lab.wait("nothing to be left", lambda: not children(lab, namespace), timeout_s=60)
    assert writes_of_operator(lab, namespace) == []
