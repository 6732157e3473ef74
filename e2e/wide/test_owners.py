"""A Deployment that another object's controller makes: measured from its pods, written through its owner's field."""

from __future__ import annotations

import pytest
import yaml

from e2e.controllers import INFERENCE_SERVICE, controller, make_predictor
from e2e.lab import Lab, Object, condition
from e2e.runs import quick_profile, wait_condition
from e2e.wide import LONGEST_RUN_S, SLACK, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER
from tests.integration.target_crds import api_version, definition

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

KIND = "InferenceService"
FIELD = "/spec/predictor/model/args"
WORDS = ["--max-num-seqs=2", "--max-num-batched-tokens=2048"]


def inference_service(namespace: str) -> Object:
    """As a user of KServe writes it."""
    model = {"modelFormat": {"name": "huggingface"}, "runtime": "simulated", "args": WORDS}
    return {
        "apiVersion": api_version(KIND),
        "kind": KIND,
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"predictor": {"model": model}},
    }


def test_an_inference_service_is_tuned_through_its_own_field_and_restored(lab: Lab, namespace: str):
    crd = definition(KIND)
    lab.kubectl("apply", "-f", "-", text=yaml.safe_dump(crd))
    lab.kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}", "--timeout=180s")
    lab.apply(inference_service(namespace))
    runtime = steady(lab, name="chat-predictor", gpus=0)
    target = {"apiVersion": api_version(KIND), "kind": KIND, "name": "chat"}
    with controller(lambda: make_predictor(lab, namespace, "chat", runtime)):
        lab.wait("the predictor", lambda: lab.find("deployments", namespace), timeout_s=60)
        lab.wait_rolled_out("chat-predictor", namespace)
        with (
            watching(lab, INFERENCE_SERVICE, "chat", namespace) as service,
            watching(lab, "deployment", "chat-predictor", namespace) as predictor,
        ):
            lab.apply(quick_profile(namespace, targetRef=target, deletionPolicy="Restore", **SLACK))
            ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
            setting = ready["status"]["applied"]["setting"]
            assert lab.get(INFERENCE_SERVICE, "chat", namespace)["spec"]["predictor"]["model"]["args"] == [
                f"--max-num-seqs={setting['maxNumSeqs']}",
                f"--max-num-batched-tokens={setting['maxNumBatchedTokens']}",
            ]
            assert condition(ready, "Applied")["status"] == "True"
            assert [change.paths for change in service.changes()] == [(FIELD,)]
            assert predictor.by(FIELD_MANAGER) == []

            lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=180s")
            assert lab.get(INFERENCE_SERVICE, "chat", namespace)["spec"]["predictor"]["model"]["args"] == WORDS
            assert [change.paths for change in service.by(FIELD_MANAGER)] == [(FIELD,), (FIELD,)]
            assert predictor.by(FIELD_MANAGER) == []
    assert writes_of_operator(lab, namespace) == ["patch inferenceservices/chat"] * 2
