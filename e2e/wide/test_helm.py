"""A workload that a Helm release owns: left alone by itself, written where that is asked for by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.controllers import holds
from e2e.lab import Lab, Object, condition, helm
from e2e.runs import arguments, quick_profile, runs, wait_condition
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

ARGS = "/spec/template/spec/containers/0/args"
_PLACE = "ARGS"


def chart(folder: Path, deployment: Object) -> Path:
    """A chart with this Deployment, whose arguments are a value."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    values = {"args": container["args"], "note": "first"}
    container["args"] = _PLACE
    deployment["metadata"]["annotations"] = {"note": "{{ .Values.note }}"}
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "chat", "version": "1.0.0"}))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    text = json.dumps(deployment, indent=1).replace(f'"{_PLACE}"', "{{ toJson .Values.args }}")
    (folder / "templates" / "deployment.yaml").write_text(text)
    return folder


def test_a_release_is_recommended_to_then_written_by_name_and_its_next_upgrade_is_not_fought(
    lab: Lab, namespace: str, tmp_path: Path
):
    release = ("upgrade", "--install", "chat", str(chart(tmp_path / "chat", steady(lab, gpus=0).deployment(namespace))))
    helm(lab.cluster, *release, "-n", namespace, "--wait", "--timeout", "110s")
    before = arguments(lab, namespace)
    with watching(lab, "deployment", "chat", namespace) as seen:
        lab.apply(quick_profile(namespace, **SLACK))
        told = wait_condition(lab, namespace, "Applied", "False", reason="OwnedByOther", timeout_s=LONGEST_RUN_S)
        assert "Helm chat" in condition(told, "Applied")["message"]
        assert told["status"]["recommendation"]["patch"].startswith("kubectl ")
        assert "patches:" in told["status"]["recommendation"]["kustomize"]
        assert seen.changes() == []
        assert writes_of_operator(lab, namespace) == []

        lab.kubectl(*_patch(namespace, {"updatePolicy": {"method": "Args"}}))
        ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
        assert condition(ready, "Contested")["reason"] == "WritesOverHelm"
        assert [change.paths for change in seen.changes()] == [(ARGS,)]

        helm(lab.cluster, *release, "-n", namespace, "--set", "note=second")
        drifted = wait_condition(lab, namespace, "Drifted", "True", reason="RevertedByOther", timeout_s=120)
        assert "helm changed" in condition(drifted, "Drifted")["message"]
        assert arguments(lab, namespace) == before
        holds("the release's words", lambda: arguments(lab, namespace) == before, for_s=30)
        assert [change.paths for change in seen.by(FIELD_MANAGER)] == [(ARGS,)]
    assert writes_of_operator(lab, namespace) == ["patch deployments/chat"]
    assert len(runs(lab, namespace)) == 1


def _patch(namespace: str, spec: Object) -> list[str]:
    return ["-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", json.dumps({"spec": spec})]
