"""Each file of examples/ is applied, unchanged but for its size (`e2e.examples`), and followed to what it promises.

The scalers have tests of their own (`test_capacity_scaler.py`, `test_autoscaler.py`).
"""

from __future__ import annotations

import copy
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.controllers import ARGO, INFERENCE_SERVICE, KSERVE, controlled_by, controller, holds, keep_as
from e2e.examples import FOLDER, fitted, one
from e2e.lab import Lab, Object, condition, helm
from e2e.runs import arguments, children, runs, wait_condition, wait_run_over
from e2e.simulated import Simulated
from e2e.wide import LONGEST_RUN_S, steady
from e2e.witness import watching, writes_of_operator
from kneekeeper.domain.names import FIELD_MANAGER
from tests.integration.target_crds import anything, definition

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

ARGS = "/spec/template/spec/containers/0/args"
FOLLOWED = {
    "apply", "argocd", "borrow-replica", "helm", "in-place", "kserve", "offline-batch", "quickstart", "ray",
    "run-by-hand", "schedules",
}  # fmt: skip
OF_SCALERS = {"hpa-capacity", "keda-capacity"}


def test_no_example_is_left_out():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == FOLLOWED | OF_SCALERS


def words(limits: Object) -> list[str]:
    """As an engine is told them."""
    return [
        f"--max-num-seqs={limits['maxNumSeqs']}",
        f"--max-num-batched-tokens={limits['maxNumBatchedTokens']}",
    ]


def given(found: list[str]) -> dict[str, str]:
    """Options with their values, however they are written."""
    joined = " ".join(found).replace("=", " ").split()
    return {word: after for word, after in zip(joined, [*joined[1:], ""], strict=True) if word.startswith("--")}


def declares(found: list[str], limits: Object) -> bool:
    """Whether these arguments set both limits so."""
    return given(words(limits)).items() <= given(found).items()


def serve(lab: Lab, namespace: str, name: str = "chat", **changes: Any) -> Simulated:
    """The Deployment that an example takes for granted, ready."""
    workload = steady(lab, name=name, **changes)
    lab.apply(workload.deployment(namespace))
    lab.wait_rolled_out(name, namespace)
    return workload


def recommended(lab: Lab, namespace: str, name: str = "chat") -> Object:
    """What is recommended, once it is certified."""
    profile = wait_condition(lab, namespace, "Recommended", "True", timeout_s=LONGEST_RUN_S, name=name)
    found: Object = profile["status"]["recommendation"]
    assert found["confidence"] == "Certified"
    return found


def run_patch(lab: Lab, recommendation: Object) -> None:
    """The command that a person copies."""
    program, *rest = shlex.split(recommendation["patch"])
    assert program == "kubectl"
    lab.kubectl(*rest)


def test_quickstart_recommends_a_command_that_brings_the_setting_into_force_and_a_run_by_hand_succeeds(
    lab: Lab, namespace: str
):
    workload = serve(lab, namespace)
    with watching(lab, "deployment", "chat", namespace) as seen:
        lab.apply(*fitted("quickstart", namespace, workload))
        recommendation = recommended(lab, namespace)
        assert seen.changes() == []
    run_patch(lab, recommendation)
    lab.wait_rolled_out("chat", namespace)
    assert declares(arguments(lab, namespace), recommendation["setting"])
    wait_condition(lab, namespace, "Applied", "True", timeout_s=120)
    wait_condition(lab, namespace, "Ready", "True", reason="BelowTheKnee", timeout_s=120)
    assert writes_of_operator(lab, namespace) == []

    lab.apply(*fitted("run-by-hand", namespace, workload))
    by_hand = "tr/chat-by-hand"
    lab.kubectl("-n", namespace, "wait", "--for=condition=Succeeded", by_hand, f"--timeout={LONGEST_RUN_S:.0f}s")


def test_apply_writes_the_proven_setting_and_gives_the_first_words_back(lab: Lab, namespace: str):
    workload = serve(lab, namespace)
    before = arguments(lab, namespace)
    lab.apply(*fitted("apply", namespace, workload))
    ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
    assert declares(arguments(lab, namespace), ready["status"]["applied"]["setting"])
    lab.kubectl("-n", namespace, "delete", "sp", "chat", "--timeout=180s")
    assert arguments(lab, namespace) == before


def stack_chart(folder: Path, deployment: Object) -> Path:
    """A chart that names and labels its Deployment as the one of vLLM's production stack, with the same values."""
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    labels = {"helm.sh/chart": "vllm-stack-0.1.9", "app.kubernetes.io/managed-by": "Helm", "model": "chat"}
    metadata["labels"] |= labels
    args = template["spec"]["containers"][0]["args"]
    template["spec"]["containers"][0]["args"] = "ARGS"
    config = {"maxNumSeqs": 2, "extraArgs": ["--max-num-batched-tokens=2048"]}
    values = {"servingEngineSpec": {"modelSpec": [{"name": "chat", "port": args[3], "vllmConfig": config}]}}
    rendered = (
        "{{- with index .Values.servingEngineSpec.modelSpec 0 }}"
        '{{ toJson (concat (list "serve" .name "--port" .port "--max-num-seqs" (toString .vllmConfig.maxNumSeqs))'
        " .vllmConfig.extraArgs) }}{{- end }}"
    )
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "vllm-stack", "version": "0.1.9"}))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    text = json.dumps(deployment, indent=1).replace('"ARGS"', rendered)
    (folder / "templates" / "deployment.yaml").write_text(text)
    return folder


def test_helm_recommends_values_and_an_upgrade_with_them_brings_the_setting_into_force(
    lab: Lab, namespace: str, tmp_path: Path
):
    name = "chat-deployment-vllm"
    workload = steady(lab, name=name)
    chart = stack_chart(tmp_path / "chart", workload.deployment(namespace))
    release = ("upgrade", "--install", "chat", str(chart), "-n", namespace, "--wait", "--timeout", "110s")
    helm(lab.cluster, *release)
    lab.apply(*fitted("helm", namespace, workload))
    recommendation = recommended(lab, namespace)
    limits = yaml.safe_load(recommendation["helmValues"])["servingEngineSpec"]["modelSpec"]
    # As the example says: into the release's own entry, since Helm replaces a list as a whole.
    values = yaml.safe_load((chart / "values.yaml").read_text())
    [model], [ours] = values["servingEngineSpec"]["modelSpec"], limits
    assert model["name"] == ours["name"]
    model["vllmConfig"] |= ours["vllmConfig"]
    changed = tmp_path / "values.yaml"
    changed.write_text(yaml.safe_dump(values))
    helm(lab.cluster, *release, "--values", str(changed))
    assert declares(arguments(lab, namespace, name), recommendation["setting"])
    wait_condition(lab, namespace, "Ready", "True", reason="BelowTheKnee", timeout_s=120)
    assert writes_of_operator(lab, namespace) == []


def sync(lab: Lab, application: Object, source: Object) -> None:
    """As Argo CD that heals and respects differences to ignore: what the named managers own stays as it is."""
    namespace, name = source["metadata"]["namespace"], source["metadata"]["name"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    live, wanted = json.loads(lab.kubectl("get", "--raw", path)), copy.deepcopy(source)
    ignored = {m for each in application["spec"]["ignoreDifferences"] for m in each["managedFieldsManagers"]}
    owned = [json.dumps(each["fieldsV1"]) for each in live["metadata"]["managedFields"] if each["manager"] in ignored]
    if any('"f:args"' in fields for fields in owned):
        container = wanted["spec"]["template"]["spec"]["containers"][0]
        container["args"] = live["spec"]["template"]["spec"]["containers"][0]["args"]
    keep_as(lab, wanted, ARGO)


def define(lab: Lab, crd: Object) -> None:
    """And wait until it is served."""
    lab.kubectl("apply", "-f", "-", text=yaml.safe_dump(crd))
    lab.kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}", "--timeout=180s")


def test_argocd_lets_the_written_words_be(lab: Lab, namespace: str):
    workload = steady(lab)
    objects = fitted("argocd", namespace, workload)
    application = one(objects, "Application")
    define(lab, anything("argoproj.io", "v1alpha1", "applications", "Application"))
    source = workload.deployment(namespace)
    source["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"chat:apps/Deployment:{namespace}/chat"}
    keep_as(lab, source)
    lab.wait_rolled_out("chat", namespace)
    with watching(lab, "deployment", "chat", namespace) as seen, controller(lambda: sync(lab, application, source)):
        lab.apply(*objects)
        ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
        assert condition(ready, "Contested")["reason"] == "WritesOverArgoCD"
        setting = ready["status"]["applied"]["setting"]
        holds("the proven words", lambda: declares(arguments(lab, namespace), setting), for_s=30)
        assert [change.paths for change in seen.changes()] == [(ARGS,)]
    assert condition(lab.get("sp", "chat", namespace), "Drifted")["status"] != "True"


def predict(lab: Lab, namespace: str, runtime: Object) -> None:
    """As KServe in raw deployment mode: the runtime's container, and the service's arguments after its own."""
    service = lab.get(INFERENCE_SERVICE, "granite", namespace)
    model = service["spec"]["predictor"]["model"]
    container = copy.deepcopy(runtime["spec"]["containers"][0])
    container["args"] = [each.replace("{{.Name}}", "granite") for each in container["args"]] + model["args"]
    container["resources"] = model["resources"]
    deployment = steady(lab, name="granite-predictor", replicas=1).deployment(namespace)
    deployment["metadata"]["ownerReferences"] = [controlled_by(service)]
    deployment["spec"]["template"]["spec"]["containers"] = [container]
    keep_as(lab, deployment, KSERVE)


def test_kserve_is_written_in_the_service_and_its_other_words_stay(lab: Lab, namespace: str):
    objects = fitted("kserve", namespace, steady(lab, hardware={"model_max_len": 32768}))
    define(lab, definition("InferenceService"))
    define(lab, anything("serving.kserve.io", "v1alpha1", "servingruntimes", "ServingRuntime"))
    lab.apply(*objects[:2])
    runtime, before = one(objects, "ServingRuntime"), one(objects, "InferenceService")
    with controller(lambda: predict(lab, namespace, runtime)):
        lab.wait("the predictor", lambda: lab.find("deployments", namespace), timeout_s=60)
        lab.wait_rolled_out("granite-predictor", namespace)
        with watching(lab, "deployment", "granite-predictor", namespace) as predictor:
            lab.apply(one(objects, "ServingProfile"))
            ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S, name="granite")
            after = lab.get(INFERENCE_SERVICE, "granite", namespace)["spec"]["predictor"]["model"]["args"]
            assert declares(after, ready["status"]["applied"]["setting"])
            (other,) = (w for w in before["spec"]["predictor"]["model"]["args"] if "max-model-len" in w)
            assert other in after
            assert predictor.by(FIELD_MANAGER) == []
    assert writes_of_operator(lab, namespace) == ["patch inferenceservices/granite"]


def test_ray_within_one_pod_is_recommended_to(lab: Lab, namespace: str):
    objects = fitted("ray", namespace, steady(lab))
    lab.apply(one(objects, "Deployment"))
    lab.wait_rolled_out("large", namespace)
    lab.apply(one(objects, "ServingProfile"))
    recommendation = recommended(lab, namespace, "large")
    run_patch(lab, recommendation)
    lab.wait_rolled_out("large", namespace)
    found = arguments(lab, namespace, "large")
    assert declares(found, recommendation["setting"])
    assert "--distributed-executor-backend=ray" in found
    wait_condition(lab, namespace, "Ready", "True", timeout_s=120, name="large")


def test_offline_batch_is_given_the_setting_with_the_most_tokens(lab: Lab, namespace: str):
    workload = serve(lab, namespace, "summaries")
    lab.apply(*fitted("offline-batch", namespace, workload))
    ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S, name="summaries")
    assert float(ready["status"]["recommendation"]["promisedOutputTokensPerSecond"]) > 0
    assert declares(arguments(lab, namespace, "summaries"), ready["status"]["applied"]["setting"])


def test_without_a_spare_gpu_a_replica_is_borrowed_and_comes_back(lab: Lab, namespace: str):
    workload = serve(lab, namespace, gpus=2)
    lab.apply(*fitted("borrow-replica", namespace, workload))
    recommended(lab, namespace)
    run = wait_run_over(lab, namespace)
    assert run["status"]["plan"]["probeTarget"] == "BorrowReplica"
    assert run["status"]["borrowed"]["returnedAt"]
    assert lab.get("deployment", "chat", namespace)["spec"]["replicas"] == workload.replicas
    lab.wait_rolled_out("chat", namespace)


def test_in_place_the_serving_pod_is_measured_and_nothing_is_written(lab: Lab, namespace: str):
    workload = serve(lab, namespace, replicas=1, max_num_seqs=32)
    (before,) = lab.find("pods", namespace, "app=chat")
    with watching(lab, "deployment", "chat", namespace) as seen:
        lab.apply(*fitted("in-place", namespace, workload))
        run = wait_run_over(lab, namespace, timeout_s=LONGEST_RUN_S)
        assert seen.changes() == []
    assert run["status"]["plan"]["probeTarget"] == "InPlace"
    assert run["status"]["outcome"] in ("NoImprovement", "Predicted"), run["status"]["message"]
    (after,) = lab.find("pods", namespace, "app=chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert writes_of_operator(lab, namespace) == []
    lab.wait("nothing to be left", lambda: not children(lab, namespace), timeout_s=60)


def test_both_mixes_of_a_day_are_certified_and_the_setting_of_the_hour_is_in_force(lab: Lab, namespace: str):
    workload = serve(lab, namespace)
    lab.apply(*fitted("schedules", namespace, workload))

    def both() -> Object | None:
        seen = lab.get("sp", "chat", namespace)
        settings = seen["status"].get("schedule", {}).get("settings", [])
        return seen if len(settings) == 2 and condition(seen, "Ready")["status"] == "True" else None

    ready = lab.wait("both settings", both, timeout_s=2 * LONGEST_RUN_S)
    assert ready["status"]["schedule"]["entry"] == 0
    assert {run["spec"].get("schedule") for run in runs(lab, namespace)} == {None, 0}
    assert declares(arguments(lab, namespace), ready["status"]["applied"]["setting"])
