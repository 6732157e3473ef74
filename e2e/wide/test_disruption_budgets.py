"""A PodDisruptionBudget that allows no disruption: no replica is borrowed while it does."""

from __future__ import annotations

import json

import pytest

from e2e.controllers import holds
from e2e.lab import Lab, Object, condition
from e2e.runs import children, quick_profile, wait_condition, wait_run_over, wait_step
from e2e.wide import BORROWING, steady
from e2e.witness import watching, writes_of_operator

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]


def budget(namespace: str, least: int) -> Object:
    """Of the pods of chat."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "chat"}}},
    }


def test_a_replica_is_borrowed_only_once_the_budget_allows_a_disruption(lab: Lab, namespace: str):
    lab.apply(steady(lab, gpus=2).deployment(namespace), budget(namespace, 2))
    lab.wait_rolled_out("chat", namespace)
    with watching(lab, "deployment", "chat", namespace) as seen:
        lab.apply(quick_profile(namespace, **BORROWING))
        told = wait_condition(lab, namespace, "Probing", "False", reason="DisruptionBudget", timeout_s=120)
        assert "PodDisruptionBudget chat" in condition(told, "Probing")["message"]
        holds("every replica", lambda: seen.changes() == [], for_s=20)

        less = json.dumps({"spec": {"minAvailable": 1}})
        lab.kubectl("-n", namespace, "patch", "pdb", "chat", "--type=merge", "-p", less)
        wait_step(lab, namespace, "Ramp", stages=1)
        # It allows none any more: a budget that is used up by the run itself is no reason to give back.
        wait_step(lab, namespace, "Ramp", stages=3)
        lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        run = wait_run_over(lab, namespace, timeout_s=120)
        assert run["status"]["borrowed"]["returnedAt"]
        lab.wait_rolled_out("chat", namespace)
        assert [change.paths for change in seen.changes()] == [("/spec/replicas",), ("/spec/replicas",)]
    assert children(lab, namespace) == []
    assert writes_of_operator(lab, namespace) == ["update deployments/scale/chat"] * 2
