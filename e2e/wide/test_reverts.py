"""A GitOps controller that heals what differs from its source: one write, then peace."""

from __future__ import annotations

import json

import pytest

from e2e.controllers import ARGO, controller, holds, keep_as
from e2e.lab import Lab, condition
from e2e.runs import arguments, quick_profile, runs, wait_condition
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ARGS = "/spec/template/spec/containers/0/args"
POLICY = {"mode": "Apply", "method": "Args", "verifyFor": "10s"}


def test_a_controller_that_puts_the_old_words_back_is_met_once_and_never_again(lab: Lab, namespace: str):
    source = steady(lab, gpus=0).deployment(namespace)
    source["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"chat:apps/Deployment:{namespace}/chat"}
    keep_as(lab, source)
    lab.wait_rolled_out("chat", namespace)
    before = arguments(lab, namespace)
    with watching(lab, "deployment", "chat", namespace) as seen, controller(lambda: keep_as(lab, source)):
        lab.apply(quick_profile(namespace, updatePolicy=POLICY, **SLACK))
        drifted = wait_condition(lab, namespace, "Drifted", "True", reason="RevertedByOther", timeout_s=LONGEST_RUN_S)
        assert condition(drifted, "Drifted")["message"].startswith(f"{ARGO} changed")
        assert condition(drifted, "Contested")["reason"] == "WritesOverArgoCD"
        assert condition(drifted, "Ready")["status"] == "False"
        assert drifted["status"]["recommendation"]["kustomize"]

        # Every edit of the profile is an occasion to look again, and so to write again.
        for limit in range(11, 16):
            lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", _history(limit))
            holds("the source's words", lambda: arguments(lab, namespace) == before, for_s=10)
        assert condition(lab.get("sp", "chat", namespace), "Applied")["reason"] == "Reverted"
        assert [(change.writers, change.paths) for change in seen.changes()] == [
            (frozenset({FIELD_MANAGER}), (ARGS,)),
            (frozenset({ARGO}), (ARGS,)),
        ]
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]
    assert len(runs(lab, namespace)) == 1


def _history(limit: int) -> str:
    return json.dumps({"spec": {"runHistoryLimit": limit}})
