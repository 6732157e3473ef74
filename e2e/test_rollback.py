"""A candidate that the clone carried and production does not: withdrawn, with the cause from the pod's log."""

from __future__ import annotations

import pytest

from e2e.lab import Lab, condition
from e2e.runs import arguments, deploy, wait_condition
from e2e.simulated import Simulated

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_a_crash_looping_candidate_is_withdrawn_and_the_old_arguments_stand(lab: Lab, namespace: str):
    workload = Simulated(image=lab.image)
    deploy(lab, namespace, workload, updatePolicy={"mode": "Recommend"})
    before = arguments(lab, namespace)
    recommended = wait_condition(lab, namespace, "Recommended", "True")["status"]["recommendation"]
    # After the certification the machine gets smaller for this number of sequences: the new pods cannot start.
    limit = recommended["setting"]["maxNumSeqs"] - 1
    smaller = Simulated(
        image=lab.image, max_num_seqs=limit, hardware={"sequence_limit": limit}, name="chat"
    ).deployment(namespace)
    smaller["spec"]["template"]["spec"]["containers"][0]["args"] = [
        f"--max-num-seqs={limit}" if word.startswith("--max-num-seqs") else word for word in before
    ]
    lab.apply(smaller)
    lab.wait_rolled_out("chat", namespace)
    before = arguments(lab, namespace)
    lab.kubectl(
        "-n", namespace, "annotate", "sp", "chat", f"kneekeeper.io/approve={recommended['hash']}", "--overwrite"
    )
    seen = wait_condition(lab, namespace, "Degraded", "True", reason="RolledBack", timeout_s=240)
    lab.wait("the old arguments", lambda: arguments(lab, namespace) == before, timeout_s=120)
    lab.wait_rolled_out("chat", namespace)
    assert "Mamba" in condition(seen, "Degraded")["message"]
