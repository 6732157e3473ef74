"""A new image that does not start with the present setting, and one that carries less."""

from __future__ import annotations

import json

import pytest

from e2e.images import Image, operator_image, rebuilt
from e2e.lab import Lab, Object, condition
from e2e.runs import arguments, deploy, runs, wait_condition
from e2e.simulated import Simulated
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

ARGS = "/spec/template/spec/containers/0/args"
SLOWER = {"step_time": {"base_ms": 120.0, "per_sequence_ms": 1.0, "per_prefill_token_ms": 0.04}}


@pytest.fixture
def release(lab: Lab) -> Image:
    """The engine of another digest, known on every node."""
    image = rebuilt(operator_image())
    lab.cluster.load_image(image.archive)
    return image


def upgrade(lab: Lab, namespace: str, to: Simulated) -> None:
    """As a user does it: image and environment in one apply, so in one rollout."""
    lab.apply(to.deployment(namespace))


def test_an_upgrade_that_crashes_is_told_by_its_first_pod_and_mended_where_that_is_allowed(
    lab: Lab, namespace: str, release: Image
):
    present: Object = {"gpus": 0, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    deploy(lab, namespace, steady(lab, **present), updatePolicy={"mode": "Recommend"}, suspend=True, **SLACK)
    wait_condition(lab, namespace, "TargetFound", "True", timeout_s=60)
    with watching(lab, "deployment", "chat", namespace) as seen:
        upgrade(lab, namespace, steady(lab, image=release.name, hardware={"sequence_limit": 4}, **present))
        told = wait_condition(lab, namespace, "Degraded", "True", reason="MambaBlocks", timeout_s=120)
        assert "--max-num-seqs=4" in condition(told, "Degraded")["message"]
        assert lab.get("deployment", "chat", namespace)["status"]["readyReplicas"] == 1, "an old pod serves"
        assert seen.by(FIELD_MANAGER) == []

        allowed = {"suspend": False, "updatePolicy": {"mode": "Apply", "verifyFor": "10s"}}
        lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", json.dumps({"spec": allowed}))
        lab.wait("the mended words", lambda: "--max-num-seqs=4" in arguments(lab, namespace), timeout_s=60)
        lab.wait_rolled_out("chat", namespace)
        wait_condition(lab, namespace, "Degraded", "False", timeout_s=120)
        assert [change.paths for change in seen.by(FIELD_MANAGER)] == [(ARGS,)]
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]


def test_an_upgrade_that_lowers_capacity_is_measured_anew(lab: Lab, namespace: str, release: Image):
    deploy(lab, namespace, steady(lab, gpus=0), **SLACK, retune={"on": ["Image"], "minInterval": "1s"})
    first = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)["status"]["recommendation"]
    with watching(lab, "deployment", "chat", namespace) as seen:
        applied: Object = {
            "gpus": 0,
            "max_num_seqs": first["setting"]["maxNumSeqs"],
            "max_num_batched_tokens": first["setting"]["maxNumBatchedTokens"],
        }
        upgrade(lab, namespace, steady(lab, image=release.name, hardware=SLOWER, **applied))

        def measured() -> bool:
            found = runs(lab, namespace)
            return len(found) == 2 and found[-1].get("status", {}).get("step") == "Done"

        lab.wait("a second run", measured, timeout_s=LONGEST_RUN_S)
        second = runs(lab, namespace)[-1]
        assert second["spec"]["trigger"] == "Image"
        assert second["status"]["outcome"] in ("Certified", "NoImprovement")
        before, after = (_offered(run) for run in runs(lab, namespace))
        assert after < before
        assert all(change.paths == (ARGS,) for change in seen.by(FIELD_MANAGER))


def _offered(run: Object) -> float:
    """Requests/s of the last certification."""
    return float(run["status"]["certifications"][-1]["offeredRequestsPerSecond"])
