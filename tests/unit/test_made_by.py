"""Workloads that a controller makes of a target: which one runs the engine, and who writes what."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.observation import Owner
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import Kind, Resource
from kneekeeper.kube.targets import UnsupportedTarget
from kneekeeper.observe.target import read_workload
from tests.unit.kube_objects import deployment, pod

SERVICE: dict[str, Any] = {
    "metadata": {
        "name": "chat",
        "namespace": "prod",
        "uid": "uid-service",
        "resourceVersion": "5",
        "generation": 2,
        "annotations": {"argocd.argoproj.io/tracking-id": "llm:serving.kserve.io/InferenceService:prod/chat"},
    },
    "spec": {"predictor": {"model": {"runtime": "vllm"}}},
}
REF = TargetRef(api_version="serving.kserve.io/v1beta1", kind="InferenceService", name="chat")


def made(name: str, uid: str = "uid-service") -> Resource:
    reference = {"kind": "InferenceService", "name": "chat", "uid": uid, "controller": True}
    return deployment(name=name, ownerReferences=[reference])


class Cluster:
    """Answers with what it holds, by plural and name."""

    def __init__(self, *deployments: Resource, **others: Resource) -> None:
        self._deployments = list(deployments)
        self._others = {"inferenceservices": SERVICE} | others

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        if kind.plural not in self._others:
            raise NotFound("none")
        return self._others[kind.plural]

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Resource]:
        return self._deployments if kind.plural == "deployments" else []


async def read(cluster: Any) -> Any:
    workload = await read_workload(cluster, "prod", REF)
    assert workload is not None
    return workload


async def test_pods_and_words_are_the_made_workloads_name_and_owner_the_targets():
    found = await read(Cluster(made("other", uid="uid-other"), made("chat-predictor")))
    view = found.view
    assert (view.kind, view.name, view.uid) == ("InferenceService", "chat", "uid-service")
    assert (view.generation, view.observed_generation) == (2, 2)
    assert view.resource == "inferenceservices.serving.kserve.io"
    assert view.owner == Owner("ArgoCD", "llm")
    assert view.containers[1].name == "vllm"
    assert view.rolled_out
    assert str(found.selector) == "app in (chat)"


async def test_a_runtime_at_hand_helps_to_read_the_target():
    runtime = {"metadata": {"name": "vllm"}, "spec": {"containers": [{"name": "kserve-container"}]}}
    view = (await read(Cluster(made("p"), clusterservingruntimes=runtime))).view
    assert [item.kind for item in view.source.items] == ["InferenceService", "ClusterServingRuntime"]


@pytest.mark.parametrize(
    ("deployments", "words"),
    [
        ([], "No Deployment of InferenceService chat"),
        ([made("decode"), made("prefill")], "Deployment decode, Deployment prefill"),
    ],
)
async def test_none_and_several_are_told_apart_and_named(deployments, words):
    with pytest.raises(UnsupportedTarget, match=words):
        await read_workload(Cluster(*deployments), "prod", REF)  # type: ignore[arg-type]


async def test_a_controller_that_lags_behind_is_not_rolled_out():
    late = made("chat-predictor")
    late["metadata"]["generation"] = 9
    assert not (await read(Cluster(late))).view.rolled_out


MODEL_REF = TargetRef(api_version="kubeai.org/v1", kind="Model", name="chat")
TOKEN = "kube-api-access-x1"


def model_pod(name: str, created: str, args: list[str], **metadata: Any) -> Resource:
    made = pod(name, labels={"model": "chat"})
    owner = {"kind": "Model", "name": "chat", "uid": "uid-model", "controller": True}
    made["metadata"] |= {"creationTimestamp": created, "ownerReferences": [owner], **metadata}
    made["spec"]["volumes"].append({"name": TOKEN, "projected": {}})
    made["spec"]["containers"][1]["volumeMounts"].append({"name": TOKEN, "mountPath": "/var/run/secrets"})
    made["spec"]["containers"][1]["args"] = args
    return made


class ModelCluster:
    """A KubeAI Model with its pods, beside a pod of others."""

    def __init__(self, *pods: Resource) -> None:
        self._pods = [*pods, pod("other")]

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        metadata = {"name": "chat", "namespace": "prod", "uid": "uid-model", "resourceVersion": "5", "generation": 4}
        return {"metadata": metadata, "spec": {"engine": "VLLM", "replicas": 2, "args": ["--max-num-seqs=8"]}}

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Resource]:
        return self._pods


async def test_the_newest_pod_of_a_model_is_what_is_measured_and_old_pods_are_not_updated():
    old = model_pod("a", "2026-01-01T00:00:00Z", ["m", "--max-num-seqs=8"])
    new = model_pod("b", "2026-01-02T00:00:00Z", ["m", "--max-num-seqs=16"])
    cluster: Any = ModelCluster(old, new)
    workload = await read_workload(cluster, "prod", MODEL_REF)
    assert workload is not None
    view = workload.view
    assert (view.kind, view.name, view.generation) == ("Model", "chat", 4)
    assert (view.replicas, view.ready_replicas, view.updated_replicas) == (2, 2, 1)
    assert not view.rolled_out
    assert view.containers[1].words.args == ["m", "--max-num-seqs=16"]
    assert TOKEN not in str(view.pod_template)
    assert str(workload.selector) == "model in (chat)"
    both: Any = ModelCluster(new, model_pod("c", "2026-01-02T00:00:00Z", ["m", "--max-num-seqs=16"]))
    settled = await read_workload(both, "prod", MODEL_REF)
    assert settled is not None
    assert settled.view.rolled_out


async def test_a_model_without_pods_says_that_one_must_run():
    going = model_pod("a", "2026-01-01T00:00:00Z", ["m"], deletionTimestamp="2026-01-01T00:00:00Z")
    cluster: Any = ModelCluster(going)
    with pytest.raises(UnsupportedTarget, match="Let it run one replica"):
        await read_workload(cluster, "prod", MODEL_REF)
