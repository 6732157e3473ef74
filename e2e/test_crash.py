"""The operator dies by SIGKILL in three phases of one run, and nobody can tell from the result."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.cluster.audit import read_calls
from e2e.lab import Lab
from e2e.runs import arguments, children, deploy, quick, runs, wait_condition, wait_step

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_a_killed_operator_goes_on_with_the_stage_it_was_in(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab), deletionPolicy="Restore")
    original = arguments(lab, namespace)
    climbing = wait_step(lab, namespace, "Ramp", stages=4)
    lab.kill_operator()
    certifying = wait_step(lab, namespace, "Certify", stages=8)
    lab.kill_operator()
    lab.wait("a rollout", lambda: lab.get("sp", "chat", namespace)["status"].get("rollout"), timeout_s=400)
    lab.kill_operator()
    ready = wait_condition(lab, namespace, "Ready", "True")
    (run,) = runs(lab, namespace)
    stages = [stage["name"] for stage in run["status"]["stages"]]
    for earlier in (climbing, certifying):
        known = [stage["name"] for stage in earlier["status"]["stages"]]
        assert stages[: len(known)] == known
    assert len(stages) == len(set(stages))
    assert ready["status"]["applied"]["setting"] == run["status"]["certifications"][-1]["setting"]
    assert children(lab, namespace) == []
    made = Counter(
        call.resource
        for call in read_calls(lab.cluster.audit_log)
        if call.verb == "create"
        and call.status_code == 201
        and call.namespace == namespace
        and "kneekeeper" in call.user
    )
    assert made["tuningruns"] == 1
    assert made["pods"] == run["status"]["cost"]["engineStarts"]
    assert made["jobs"] == made["secrets"] == 1
    assert made["configmaps"] == len(stages)
    assert arguments(lab, namespace) != original
    lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=180s")
    assert arguments(lab, namespace) == original, "deletionPolicy Restore"
