"""A profile that goes takes everything of its own with it, and nothing waits for an operator that is gone."""

from __future__ import annotations

import pytest

from e2e.lab import SYSTEM_NAMESPACE, Lab, helm, install
from e2e.runs import children, deploy, quick, wait_step

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_deleting_in_mid_run_ends_the_run_and_removes_clone_agent_and_token(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab))
    wait_step(lab, namespace, "Ramp", stages=1)
    assert children(lab, namespace)
    lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=180s")
    lab.wait("nothing to be left", lambda: not children(lab, namespace), timeout_s=60)
    assert lab.find("tuningruns", namespace) == []


def test_uninstalling_the_chart_in_mid_run_leaves_no_stuck_finalizer(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab))
    wait_step(lab, namespace, "Ramp", stages=1)
    try:
        helm(lab.cluster, "uninstall", "kneekeeper", "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "180s")
        assert children(lab, namespace) == []
        assert lab.get("sp", "chat", namespace)["spec"]["suspend"] is False
        lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=90s")
    finally:
        install(lab)
