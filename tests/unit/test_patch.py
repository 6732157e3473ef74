"""`kneekeeper patch`: how it is asked, and the kinds and owners that tests/cases/manifests does not have."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from kneekeeper.cli.main import main

ENGINE = '{name: vllm, image: "vllm/vllm-openai:v0.24.0", args: [--model=m, --max-num-seqs=8]}'


def workload(
    kind: str = "Deployment", name: str = "chat", containers: str = ENGINE, api: str = "apps/v1", **meta: Any
) -> str:
    metadata = json.dumps({"name": name, **meta})
    spec = f"{{template: {{spec: {{containers: [{containers}]}}}}}}"
    return f"---\napiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"


@dataclass(frozen=True)
class Patched:
    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.err)
        return loaded


@pytest.fixture
def patch(tmp_path, capfd):
    def run(text: str, *more: str) -> Patched:
        file = tmp_path / "objects.yaml"
        file.write_text(text)
        limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096"]
        code = main(["patch", "--file", str(file), *limits, "--json", *more])
        return Patched(code, *capfd.readouterr())

    return run


def test_without_a_target_the_only_object_that_runs_vllm_is_meant(patch):
    other = workload(name="web", containers="{name: web, image: nginx}")
    result = patch(other + workload())
    assert (result.code, result.told["target"], result.told["container"]) == (0, "Deployment/chat", "vllm")
    assert result.out == other + workload().replace("seqs=8", "seqs=64, --max-num-batched-tokens=4096")


@pytest.mark.parametrize(
    ("text", "more", "piece"),
    [
        (workload() + workload(name="b"), [], "Several objects run vLLM: Deployment/chat, Deployment/b"),
        (workload(containers="{name: web, image: nginx}"), [], "Name it with --target"),
        (workload(), ["--target", "Deployment/none"], "It holds: Deployment/chat"),
        (workload(), ["--target", "chat"], "KIND/NAME"),
        ("a: [", [], "helm template"),
        ("", [], "no Kubernetes object"),
        (workload(namespace="a") + workload(namespace="b"), ["--target", "Deployment/chat"], "namespace a"),
    ],
)
def test_wrong_usage_says_what_to_do_and_prints_no_objects(patch, text, more, piece):
    result = patch(text, *more)
    assert (result.code, result.out) == (2, "")
    assert piece in result.err


def test_a_file_that_is_not_there_is_wrong_usage(capsys):
    limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096"]
    assert main(["patch", "--file", "/none/such.yaml", *limits]) == 2
    assert "Check the path" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many", "70000", "8k"])
def test_numbers_that_vllm_cannot_have_are_wrong_usage(number, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["patch", "--file", "x", "--max-num-seqs", number, "--max-num-batched-tokens", "4096"])
    assert ended.value.code == 2
    assert "number from 1 to 65536" in capsys.readouterr().err


def test_objects_are_read_from_standard_input(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(workload().encode())))
    assert main(["patch", "--file", "-", "--max-num-seqs=64", "--max-num-batched-tokens=4096"]) == 0
    out, err = capfd.readouterr()
    assert "--max-num-seqs=64" in out
    assert err.startswith("rewrite: Deployment/chat, container vllm: ")
    assert "before: max_num_seqs=8, max_num_batched_tokens=default" in err


def test_several_engines_in_one_pod_need_a_name(patch):
    two = f"{ENGINE}, {ENGINE.replace('name: vllm', 'name: draft')}"
    result = patch(workload(containers=two))
    assert (result.code, result.told["reason_code"]) == (4, "SeveralEngineContainers")
    assert "vllm, draft" in result.told["reason"]
    named = patch(workload(containers=two), "--container", "draft")
    containers = yaml.safe_load(named.out)["spec"]["template"]["spec"]["containers"]
    assert [container["args"][1] for container in containers] == ["--max-num-seqs=8", "--max-num-seqs=64"]


def test_a_container_that_is_not_there_is_refused_with_the_names(patch):
    result = patch(workload(), "--container", "main")
    assert (result.code, result.out) == (4, workload())
    assert "Name one of: vllm" in result.told["reason"]


def test_both_roles_of_a_leader_worker_set_that_run_vllm_change_together(patch):
    template = f"{{spec: {{containers: [{ENGINE}]}}}}"
    text = (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: a}\nspec:\n"
        f"  leaderWorkerTemplate:\n    leaderTemplate: {template}\n    workerTemplate: {template}\n"
    )
    result = patch(text)
    assert result.code == 0
    assert result.out.count("--max-num-seqs=64, --max-num-batched-tokens=4096") == 2


def test_a_kind_without_an_adapter_gets_a_suggestion(patch):
    result = patch(workload(kind="Server", api="example.com/v1"), "--target", "Server/chat")
    assert (result.code, result.told["reason_code"]) == (3, "UnknownKind")
    [change] = result.told["suggested_change"]
    assert change["path"] == "spec/template/spec/containers[vllm]/args"
    assert change["pointer"] == "/spec/template/spec/containers/0/args"
    assert change["value"] == ["--model=m", "--max-num-seqs=64", "--max-num-batched-tokens=4096"]


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
def test_pods_that_cannot_change_are_refused_with_a_suggestion(patch, kind):
    api = "batch/v1" if kind == "Job" else "apps/v1"
    result = patch(workload(kind=kind, api=api))
    assert (result.code, result.told["reason_code"]) == (4, "ImmutablePods")
    assert result.told["suggested_change"]


def test_a_rollout_that_refers_to_a_deployment_names_it(patch):
    text = (
        "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: a}\n"
        "spec: {workloadRef: {kind: Deployment, name: chat}}\n"
    )
    result = patch(text, "--target", "Rollout/a")
    assert (result.code, result.told["reason"]) == (3, "The pods come from Deployment chat. Name it as the target.")


def test_an_owner_in_the_file_gets_the_suggestion_through_its_own_adapter(patch):
    owner = {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "m", "controller": True, "uid": "1"}
    spec = "{engine: VLLM, args: [--max-num-seqs=8]}"
    model = f"---\napiVersion: kubeai.org/v1\nkind: Model\nmetadata: {{name: m}}\nspec: {spec}\n"
    result = patch(workload(ownerReferences=[owner]) + model, "--target", "Deployment/chat")
    assert (result.code, result.told["reason_code"]) == (3, "OwnedByController")
    assert result.told["suggested_change"][0]["kind"] == "Model"
    assert result.out == workload(ownerReferences=[owner]) + model


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "OwnedByHelm"),
        ({"annotations": {"meta.helm.sh/release-name": "r"}}, "OwnedByHelm"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "OwnedByFlux"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a:apps/Deployment:b/c"}}, "OwnedByArgoCD"),
    ],
)
def test_tools_that_write_the_object_again_are_told_instead(patch, meta, reason):
    result = patch(workload(**meta))
    assert (result.code, result.told["reason_code"], result.out) == (3, reason, workload(**meta))


@pytest.mark.parametrize("text", ["42", "---\n- 1\n", "apiVersion: v1\nkind: List\nitems: []\n"])
def test_yaml_without_objects_is_wrong_usage(patch, text):
    assert patch(text).code == 2


def test_a_number_among_the_args_is_refused_as_the_api_server_would(patch):
    engine = "{name: vllm, image: vllm/vllm-openai, args: [--model=m, --max-num-seqs, 8]}"
    result = patch(workload(containers=engine), "--target", "Deployment/chat")
    assert result.code == 4
    assert "containers[0]/args[2]" in result.told["reason"]
    assert "quote the text" in result.told["reason"]


@pytest.mark.parametrize(
    "words",
    [
        "args: [--model=m, --api-key, s3cr3t, --max-num-seqs=8]",
        "command: [sh, -c, 'vllm serve m --api-key s3cr3t --max-num-seqs 8']",
        "command: [sh, -c, vllm serve m $X], env: [{name: X, value: --api-key s3cr3t --max-num-seqs 8}]",
    ],
)
def test_secrets_are_in_no_message(patch, words):
    result = patch(workload(containers=f"{{name: vllm, image: vllm/vllm-openai, {words}}}"))
    assert result.code == 0
    assert "s3cr3t" in result.out
    assert "s3cr3t" not in result.err


def test_a_config_map_that_is_not_in_the_file_leaves_its_variables_unknown(patch):
    words = "envFrom: [{configMapRef: {name: c}}], args: [--model=m, --max-num-seqs=$(N)]"
    engine = f"{{name: vllm, image: vllm/vllm-openai, {words}}}"
    result = patch(workload(containers=engine), "--target", "Deployment/chat")
    assert (result.code, result.told["reason_code"]) == (4, "UnresolvedVariable")
    config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {N: '8'}\n"
    known = patch(config + workload(containers=engine))
    assert known.code == 0
    assert known.out.startswith(config)
    assert known.told["values_before"]["max_num_seqs"] == "8"


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("{predictor: {model: {modelFormat: {name: vLLM}, args: [--max-num-seqs=8]}}}", 3),
        (f"{{predictor: {{containers: [{ENGINE}]}}}}", 0),
    ],
)
def test_an_inference_service_needs_its_runtime_or_containers_of_its_own(patch, spec, code):
    text = f"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {{name: a}}\nspec: {spec}\n"
    result = patch(text, "--target", "InferenceService/a")
    assert result.code == code
    edits = result.told["changes"] or result.told["suggested_change"]
    assert "--max-num-seqs=64" in edits[0]["value"]


def test_several_roles_in_one_object_are_only_recommended(patch):
    text = (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {name: a}\n"
        "spec: {prefill: {template: {}}, template: {containers: [{name: main}]}}\n"
    )
    result = patch(text, "--target", "LLMInferenceService/a")
    assert (result.code, result.told["reason_code"]) == (3, "SeveralRoles")


def test_an_autoscaler_by_keda_on_running_requests_stops_a_lower_limit(patch):
    scaler = (
        "---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: s}\n"
        "spec: {scaleTargetRef: {name: chat}, triggers: [{type: prometheus, metadata: "
        "{query: 'avg(vllm:num_requests_running)', threshold: '100'}}]}\n"
    )
    result = patch(workload() + scaler)
    assert (result.code, result.told["reason_code"]) == (3, "AutoscalerBound")
