"""Ready-made changes: the same one for kubectl, kustomize and Helm, guarded by what was read."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.domain.target import Target, resolve, words_with
from kneekeeper.domain.targets import Objects
from kneekeeper.domain.targets.kinds import KINDS
from kneekeeper.domain.targets.patches import Patches, patches_of
from kneekeeper.observe.made_by import as_declared_by
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
ARGS = ["example/chat-8b", "--max-num-seqs=64", "--max-num-batched-tokens=4096"]
PATH = "/spec/template/spec/containers/1/args"
OPERATIONS = [
    {"op": "test", "path": PATH, "value": ["example/chat-8b", "--max-num-seqs=256"]},
    {"op": "add", "path": PATH, "value": ARGS},
]


def patches(view: WorkloadView) -> Patches:
    target = resolve(view, TargetRef(kind="Deployment", name="chat"))
    assert isinstance(target, Target)
    words = words_with(target.container, SETTING)
    assert isinstance(words, ContainerWords)
    return patches_of(view, target.container, words, SETTING)


def made(kind: str, api_version: str, spec: dict[str, Any], *others: dict[str, Any], **more: Any) -> WorkloadView:
    found = KINDS[api_version.partition("/")[0], kind]
    metadata = {"name": "owner", "namespace": "prod", "uid": "u", "resourceVersion": "1"}
    value = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec} | more
    source = Objects(tuple(ManifestObject(0, (), each) for each in (value, *others)))
    return as_declared_by(parse_workload(deployment()), value, found, source)


def test_a_command_tests_what_it_changes():
    words = shlex.split(patches(parse_workload(deployment())).kubectl)
    assert words[:6] == ["kubectl", "-n", "prod", "patch", "deployment", "chat"]
    assert json.loads(words[-1]) == OPERATIONS


def test_a_kustomize_patch_names_its_target_and_holds_the_same_operations():
    [entry] = yaml.safe_load(patches(parse_workload(deployment())).kustomize)["patches"]
    assert entry["target"] == {"group": "apps", "version": "v1", "kind": "Deployment", "name": "chat"}
    assert yaml.safe_load(entry["patch"]) == OPERATIONS


def test_values_are_written_for_the_production_stacks_chart_alone():
    labels = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "vllm-stack-0.1.9", "model": "llama"}
    [model] = yaml.safe_load(patches(parse_workload(deployment(labels=labels))).helm_values)["servingEngineSpec"][
        "modelSpec"
    ]
    assert model == {
        "name": "llama",
        "vllmConfig": {"maxNumSeqs": 64, "extraArgs": ["--max-num-batched-tokens=4096"]},
    }
    assert patches(parse_workload(deployment(labels=labels | {"helm.sh/chart": "chat-1"}))).helm_values == ""


def test_of_what_a_controller_makes_the_owners_field_is_patched():
    view = made("InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"model": {"args": ["--seed=1"]}}})
    words = shlex.split(patches(view).kubectl)
    assert words[3:6] == ["patch", "inferenceservices.serving.kserve.io", "owner"]
    [test, add] = json.loads(words[-1])
    assert test == {"op": "test", "path": "/spec/predictor/model/args", "value": ["--seed=1"]}
    assert add["value"] == ["--seed=1", *ARGS[1:]]


def test_flags_that_stand_in_a_config_map_are_patched_there():
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "prod"},
        "data": {"inference_config.yaml": "vllm:\n  max-num-seqs: 8\n"},
    }
    view = made("Workspace", "kaito.sh/v1beta1", {}, config, inference={"config": "c"})
    found = patches(view)
    words = shlex.split(found.kubectl)
    assert words[3:6] == ["patch", "configmap", "c"]
    text = json.loads(words[-1])[-1]["value"]
    assert yaml.safe_load(text) == {"vllm": {"max-num-seqs": 64, "max-num-batched-tokens": 4096}}
    assert yaml.safe_load(found.kustomize)["patches"][0]["target"] == {
        "version": "v1",
        "kind": "ConfigMap",
        "name": "c",
    }


def test_where_nothing_can_be_patched_the_next_step_is_said():
    view = made("Workspace", "kaito.sh/v1beta1", {}, inference={"preset": {"name": "m"}})
    assert patches(view) == Patches(
        "# Set both limits under `vllm:` in the ConfigMap that inference.config names; it is not at hand."
    )
