"""A node that is drained in mid-run: the engine under test and its load agent go, and the run goes on elsewhere."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.runs import arguments, children, deploy, runs, wait_condition, wait_step
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

ARGS = "/spec/template/spec/containers/0/args"
CLONE = "kneekeeper.io/role=clone"


def test_a_run_survives_the_drain_of_the_node_that_it_measures_on(lab: Lab, namespace: str):
    deploy(lab, namespace, steady(lab, replicas=1), **SLACK)
    with watching(lab, "deployment", "chat", namespace) as seen:
        measuring = wait_step(lab, namespace, "Ramp", stages=2)
        (clone,) = lab.find("pods", namespace, CLONE)
        node = clone["spec"]["nodeName"]
        drain = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=330s")
        try:
            lab.kubectl(*drain)
            ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
        finally:
            lab.kubectl("uncordon", node)
        (run,) = runs(lab, namespace)
        assert run["metadata"]["name"] == measuring["metadata"]["name"]
        assert run["status"]["outcome"] == "Certified"
        stages = [stage["name"] for stage in run["status"]["stages"]]
        assert len(stages) == len(set(stages))
        known = [stage["name"] for stage in measuring["status"]["stages"]]
        assert stages[: len(known)] == known
        assert ready["status"]["applied"]["setting"] == run["status"]["certifications"][-1]["setting"]
        assert [change.paths for change in seen.by(FIELD_MANAGER)] == [(ARGS,)]
        assert f"--max-num-seqs={ready['status']['applied']['setting']['maxNumSeqs']}" in arguments(lab, namespace)
    lab.wait("nothing to be left", lambda: not children(lab, namespace), timeout_s=60)
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]
