"""A real HorizontalPodAutoscaler beside a run. Without metrics it still keeps the replicas inside its bounds."""

from __future__ import annotations

import json

import pytest

from e2e.lab import Lab, Object
from e2e.runs import children, deploy, wait_condition, wait_run_over, wait_step
from e2e.wide import BORROWING, LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ARGS = "/spec/template/spec/containers/0/args"


def autoscaler(namespace: str, least: int, most: int) -> Object:
    """Of the Deployment chat, by a metric that this cluster does not serve."""
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [metric],
        },
    }


def replicas(lab: Lab, namespace: str) -> int:
    return int(lab.get("deployment", "chat", namespace)["spec"]["replicas"])


def test_replicas_that_are_added_in_mid_run_are_kept_and_get_the_setting(lab: Lab, namespace: str):
    deploy(lab, namespace, steady(lab), **SLACK)
    lab.apply(autoscaler(namespace, 1, 3))
    with watching(lab, "deployment", "chat", namespace) as seen:
        wait_step(lab, namespace, "Ramp", stages=2)
        more = json.dumps({"spec": {"minReplicas": 3}})
        lab.kubectl("-n", namespace, "patch", "hpa", "chat", "--type=merge", "-p", more)
        lab.wait("the autoscaler", lambda: replicas(lab, namespace) == 3, timeout_s=90)
        ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
        assert replicas(lab, namespace) == 3
        assert len(ready["status"]["replicas"]) == 3
        assert [change.paths for change in seen.by(FIELD_MANAGER)] == [(ARGS,)]
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]


def test_an_autoscaler_that_takes_the_borrowed_replica_back_is_not_fought(lab: Lab, namespace: str):
    lab.apply(autoscaler(namespace, 1, 2))
    deploy(lab, namespace, steady(lab, gpus=2), **BORROWING)
    wait_step(lab, namespace, "Ramp")
    assert replicas(lab, namespace) == 1
    lab.kubectl("-n", namespace, "patch", "hpa", "chat", "--type=merge", "-p", json.dumps({"spec": {"minReplicas": 2}}))
    run = wait_run_over(lab, namespace, timeout_s=120)
    assert (run["status"]["outcome"], run["status"]["cause"]) == ("Cancelled", "ReplicasChanged")
    assert run["status"]["borrowed"]["returnedAt"]
    assert replicas(lab, namespace) == 2
    lab.wait_rolled_out("chat", namespace)
    assert children(lab, namespace) == []
    assert writes_of_operator(lab, namespace) == ["update deployments/scale/chat"]
