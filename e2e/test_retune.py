"""What starts the next run: a new image, another argument. Not the operator's own rewrite."""

from __future__ import annotations

import json

import pytest

from e2e.images import operator_image, rebuilt
from e2e.lab import Lab
from e2e.runs import arguments, deploy, quick, runs, wait_step

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]


def test_a_new_image_and_another_argument_each_start_a_run(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab, replicas=1))
    wait_step(lab, namespace, "Ramp")
    release = rebuilt(operator_image())
    lab.cluster.load_image(release.archive)
    lab.kubectl("-n", namespace, "set", "image", "deployment/chat", f"vllm={release.name}")
    lab.wait("a second run", lambda: len(runs(lab, namespace)) == 2, timeout_s=120)
    assert runs(lab, namespace)[0]["status"]["cause"] == "TargetChanged"
    assert runs(lab, namespace)[1]["spec"]["trigger"] == "Image"
    wait_step(lab, namespace, "Ramp")
    patch = [
        {
            "op": "replace",
            "path": "/spec/template/spec/containers/0/args",
            "value": [*arguments(lab, namespace), "--seed=7"],
        }
    ]
    lab.kubectl("-n", namespace, "patch", "deployment", "chat", "--type=json", "-p", json.dumps(patch))
    lab.wait("a third run", lambda: len(runs(lab, namespace)) == 3, timeout_s=120)
    assert runs(lab, namespace)[1]["status"]["cause"] == "TargetChanged"
    assert runs(lab, namespace)[2]["spec"]["trigger"] == "Arguments"
