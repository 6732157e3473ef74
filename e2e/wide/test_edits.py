"""A user who edits the workload while kneekeeper works on it: theirs stands, and nothing of theirs is lost."""

from __future__ import annotations

import json

import pytest

from e2e.controllers import holds
from e2e.lab import Lab, condition
from e2e.runs import arguments, deploy, runs, wait_condition, wait_step
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ARGS = "/spec/template/spec/containers/0/args"


def test_edits_in_mid_run_are_kept_and_words_written_in_mid_rollout_stand(lab: Lab, namespace: str):
    deploy(lab, namespace, steady(lab, gpus=0), **SLACK, updatePolicy={"mode": "Apply", "verifyFor": "90s"})
    with watching(lab, "deployment", "chat", namespace) as seen:
        wait_step(lab, namespace, "Ramp", stages=2)
        note = {"spec": {"template": {"metadata": {"annotations": {"team": "chat"}}}}}
        lab.kubectl("-n", namespace, "patch", "deployment", "chat", "--type=merge", "-p", json.dumps(note))
        lab.kubectl("-n", namespace, "scale", "deployment", "chat", "--replicas=1")
        lab.wait("a verification", lambda: _rollout_step(lab, namespace) == "Verify", timeout_s=LONGEST_RUN_S)
        (run,) = runs(lab, namespace)
        assert run["status"]["outcome"] == "Certified"

        written = arguments(lab, namespace)
        theirs = ["--max-num-seqs=3" if word.startswith("--max-num-seqs") else word for word in written]
        edit = [{"op": "replace", "path": ARGS, "value": theirs}]
        lab.kubectl("-n", namespace, "patch", "deployment", "chat", "--type=json", "-p", json.dumps(edit))
        drifted = wait_condition(lab, namespace, "Drifted", "True", reason="ChangedByOther", timeout_s=120)
        assert condition(drifted, "Drifted")["message"].startswith("kubectl")
        look = json.dumps({"spec": {"runHistoryLimit": 11}})
        lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", look)
        holds("the user's words", lambda: arguments(lab, namespace) == theirs, for_s=30)

        deployment = lab.get("deployment", "chat", namespace)
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["template"]["metadata"]["annotations"]["team"] == "chat"
        assert [change.paths for change in seen.by(FIELD_MANAGER)] == [(ARGS,)]
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]


def _rollout_step(lab: Lab, namespace: str) -> str:
    rollout = lab.get("sp", "chat", namespace)["status"].get("rollout") or {}
    return str(rollout.get("step", ""))
