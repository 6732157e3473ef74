"""A candidate that the clone carried and production does not: withdrawn, with the cause from the pod's log."""

from __future__ import annotations

import pytest

from e2e.lab import Lab, condition
from e2e.runs import arguments, deploy, quick, wait_condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_a_crash_looping_candidate_is_withdrawn_and_the_old_arguments_stand(lab: Lab, namespace: str):
    workload = quick(lab)
    deploy(lab, namespace, workload, updatePolicy={"mode": "Recommend"})
    before = arguments(lab, namespace)
    recommended = wait_condition(lab, namespace, "Recommended", "True")["status"]["recommendation"]
    # After the certification the machine gets smaller: pods with so many sequences cannot start on it any more.
    limit = recommended["setting"]["maxNumSeqs"] - 1
    lab.apply(quick(lab, hardware={"sequence_limit": limit}).deployment(namespace))
    lab.wait_rolled_out("chat", namespace)
    lab.kubectl(
        "-n", namespace, "annotate", "sp", "chat", f"kneekeeper.io/approve={recommended['hash']}", "--overwrite"
    )
    seen = wait_condition(lab, namespace, "Degraded", "True", reason="RolledBack", timeout_s=240)
    lab.wait("the old arguments", lambda: arguments(lab, namespace) == before, timeout_s=120)
    lab.wait_rolled_out("chat", namespace)
    assert "Mamba" in condition(seen, "Degraded")["message"]
