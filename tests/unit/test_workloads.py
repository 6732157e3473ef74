"""What a Deployment tells of its engine, its owner and its last writer."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.observation import Owner
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template

OWNER_REFERENCE = {"kind": "InferenceService", "name": "chat", "controller": True}


def owner_of(**metadata: Any) -> Owner | None:
    return parse_workload(deployment(**metadata)).owner


def test_containers_tell_words_literal_environment_ports_and_accelerators():
    exporter, engine = parse_workload(deployment()).containers
    assert engine.name == "vllm"
    assert engine.words == ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=256"])
    assert dict(engine.env) == {"HF_HOME": "/models"}
    assert engine.ports == (8000,)
    assert engine.gpus == 1
    assert exporter.words == ContainerWords()
    assert exporter.gpus == 0


def test_an_empty_list_of_words_means_none():
    made = template()
    made["spec"]["containers"][1] |= {"command": [], "args": []}
    assert parse_workload(deployment(made)).containers[1].words == ContainerWords()


@pytest.mark.parametrize(
    ("resource", "count"),
    [
        ("nvidia.com/gpu", 8),
        ("nvidia.com/gpu.shared", 1),
        ("nvidia.com/mig-3g.40gb", 1),
        ("amd.com/gpu", 2),
        ("gpu.intel.com/i915", 1),
        ("habana.ai/gaudi", 8),
        ("google.com/tpu", 4),
        ("aws.amazon.com/neuron", 1),
    ],
)
def test_accelerators_of_every_vendor_count(resource, count):
    made = template()
    made["spec"]["containers"][1]["resources"] = {"limits": {resource: str(count), "example.com/nic": "1"}}
    assert parse_workload(deployment(made)).containers[1].gpus == count


def test_the_rollout_stands_as_the_status_says():
    assert parse_workload(deployment()).rolled_out
    behind = deployment()
    behind["status"]["updatedReplicas"] = 1
    assert not parse_workload(behind).rolled_out


def test_a_deployment_without_status_is_not_rolled_out():
    fresh = deployment()
    del fresh["status"]
    assert not parse_workload(fresh).rolled_out


def test_a_missed_progress_deadline_is_seen():
    late = deployment()
    late["status"]["conditions"] = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    assert parse_workload(late).progress_deadline_exceeded
    assert not parse_workload(deployment()).progress_deadline_exceeded


def test_a_workload_of_its_own_has_no_owner():
    assert owner_of(labels={"app": "chat"}) is None


def test_a_controller_owns_it():
    assert owner_of(ownerReferences=[OWNER_REFERENCE]) == Owner("InferenceService", "chat")


def test_an_owner_that_is_no_controller_does_not_write_it():
    assert owner_of(ownerReferences=[OWNER_REFERENCE | {"controller": False}]) is None


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"annotations": {"meta.helm.sh/release-name": "chat"}}, Owner("Helm", "chat")),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, Owner("Helm", "chat")),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:prod/chat"}},
            Owner("ArgoCD", "llm"),
        ),
        ({"labels": {"argocd.argoproj.io/instance": "llm"}}, Owner("ArgoCD", "llm")),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "llm"}}, Owner("Flux", "llm")),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "chat"}}, Owner("Flux", "chat")),
    ],
)
def test_a_tool_that_syncs_it_is_its_owner(metadata, owner):
    assert owner_of(**metadata) == owner


def test_a_controller_goes_before_a_tool_and_argo_cd_before_helm():
    marks = {
        "meta.helm.sh/release-name": "chat",
        "argocd.argoproj.io/tracking-id": "llm:apps/Deployment:prod/chat",
    }
    assert owner_of(annotations=marks) == Owner("ArgoCD", "llm")
    assert owner_of(annotations=marks, ownerReferences=[OWNER_REFERENCE]) == Owner("InferenceService", "chat")


def managed(manager: str, time: str, field: str, subresource: str = "") -> dict[str, Any]:
    containers: dict[str, Any] = {'k:{"name":"vllm"}': {".": {}, field: {}}}
    fields = {"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}}
    return {"manager": manager, "time": time, "subresource": subresource, "fieldsV1": fields}


def test_the_last_writer_is_the_newest_that_owns_words():
    entries = [
        managed("helm", "2026-01-01T00:00:00Z", "f:args"),
        managed("kubectl-edit", "2026-01-02T00:00:00Z", "f:command"),
        managed("kubectl-set", "2026-01-03T00:00:00Z", "f:image"),
        {"manager": "kube-controller-manager", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:status": {}}},
    ]
    assert parse_workload(deployment(managedFields=entries)).last_writer == "kubectl-edit"


def test_a_list_that_is_owned_as_a_whole_has_one_writer():
    whole: dict[str, Any] = {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}
    entry = {"manager": "argocd", "time": "2026-01-05T00:00:00Z", "fieldsV1": whole}
    assert parse_workload(deployment(managedFields=[entry])).last_writer == "argocd"


def test_without_managed_fields_the_last_writer_is_not_known():
    assert parse_workload(deployment()).last_writer == ""


@pytest.mark.parametrize(
    ("strategy", "replicas", "unavailable"),
    [
        ({"type": "Recreate"}, 3, 3),
        ({}, 2, 0),
        ({}, 4, 1),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 8, 0),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, 1, 1),
        ({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}, 2, 1),
        ({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "50%"}}, 5, 2),
    ],
)
def test_a_rollout_may_take_away_as_many_pods_as_the_controller_rounds_to(strategy, replicas, unavailable):
    resource = deployment()
    resource["spec"] |= {"strategy": strategy, "replicas": replicas}
    assert parse_workload(resource).max_unavailable == unavailable
