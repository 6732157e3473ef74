"""No spare GPU: a replica is borrowed where that is allowed, and nothing is touched where it is not."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.runs import LADDER, deploy, quick, quick_profile, wait_condition, wait_run_over, wait_step

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_a_borrowed_replica_is_given_back_also_when_the_operator_dies(lab: Lab, namespace: str):
    deploy(
        lab,
        namespace,
        quick(lab, gpus=2),
        probe={"allow": ["Clone", "BorrowReplica"], "ladder": LADDER},
        updatePolicy={"mode": "Recommend"},
    )
    wait_step(lab, namespace, "Ramp")
    assert lab.get("deployment", "chat", namespace)["spec"]["replicas"] == 1
    lab.kill_operator()
    run = wait_run_over(lab, namespace)
    assert run["status"]["borrowed"]["returnedAt"]
    assert lab.get("deployment", "chat", namespace)["spec"]["replicas"] == 2
    lab.wait_rolled_out("chat", namespace)


def test_a_deleted_profile_gives_the_borrowed_replica_back(lab: Lab, namespace: str):
    deploy(
        lab,
        namespace,
        quick(lab, gpus=2),
        probe={"allow": ["BorrowReplica"], "ladder": LADDER},
    )
    wait_step(lab, namespace, "Ramp")
    lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=180s")
    assert lab.get("deployment", "chat", namespace)["spec"]["replicas"] == 2


def test_with_one_replica_a_condition_explains_the_choices(lab: Lab, namespace: str):
    workload = quick(lab, gpus=4, replicas=1)
    lab.apply(workload.deployment(namespace))
    lab.wait_rolled_out(workload.name, namespace)
    before = lab.get("deployment", "chat", namespace)["spec"]
    lab.apply(quick_profile(namespace, probe={"allow": ["Clone", "BorrowReplica"]}))
    seen = wait_condition(lab, namespace, "Probing", "False", reason="NoSpareGPU", timeout_s=90)
    (message,) = [c["message"] for c in seen["status"]["conditions"] if c["type"] == "Probing"]
    assert "allowScaleUp" in message
    assert "at least two" in message
    assert lab.get("deployment", "chat", namespace)["spec"] == before
