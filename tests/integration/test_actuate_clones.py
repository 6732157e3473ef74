"""Clones at a real API server: made once, deleted once, and never in the place of what others made."""

from __future__ import annotations

import pytest

from kneekeeper.actuate.apply import ActionsFailed, ChildRefused
from kneekeeper.actuate.children import ForeignObject
from kneekeeper.domain.actions import DeleteClone, EnsureClone
from kneekeeper.kube.resources import PODS, SERVICES, VOLUME_CLAIMS
from tests.integration.surroundings import WORDS
from tests.unit.kube_objects import template

ENSURE_CLONE = EnsureClone(start=1, container="vllm", words=WORDS, deadline_s=600)


async def test_a_clone_is_made_once(place):
    await place.deploy(template())
    await place.do(ENSURE_CLONE)
    first = await place.get(PODS, "chat-1-clone-1")
    await place.do(ENSURE_CLONE)
    assert (await place.get(PODS, "chat-1-clone-1"))["metadata"]["uid"] == first["metadata"]["uid"]
    assert first["spec"]["priority"] == -1000
    assert first["spec"]["preemptionPolicy"] == "Never"
    assert first["spec"]["enableServiceLinks"] is False
    assert first["spec"]["containers"][0]["args"] == WORDS.args


async def test_a_template_with_everything_makes_a_clone_that_the_api_server_takes(place):
    node_term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    rule = {"labelSelector": {"matchLabels": {"app": "chat"}}, "topologyKey": "kubernetes.io/hostname"}
    full = template(
        hostNetwork=True,
        dnsPolicy="ClusterFirstWithHostNet",
        initContainers=[
            {"name": "fetch", "image": "registry.example.com/fetch:1"},
            {
                "name": "cache",
                "image": "registry.example.com/cache:1",
                "restartPolicy": "Always",
                "ports": [{"containerPort": 9000}],
                "startupProbe": {"tcpSocket": {"port": 9000}},
            },
        ],
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node_term]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]},
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
        terminationGracePeriodSeconds=300,
        readinessGates=[{"conditionType": "example.com/routed"}],
        hostname="chat",
        subdomain="chat",
    )
    await place.deploy(full)
    await place.do(ENSURE_CLONE)
    spec = (await place.get(PODS, "chat-1-clone-1"))["spec"]
    assert "hostNetwork" not in spec
    assert [c["name"] for c in spec["initContainers"]] == ["fetch", "cache"]


async def test_a_clone_is_deleted_once_and_being_gone_is_no_error(place):
    await place.deploy(template())
    await place.do(ENSURE_CLONE)
    await place.do(DeleteClone(1))
    await place.do(DeleteClone(1))
    assert "chat-1-clone-1" not in await place.remaining(PODS)


async def test_a_pod_of_somebody_else_with_the_clones_name_is_left_alone(place):
    await place.deploy(template())
    foreign = {"metadata": {"name": "chat-1-clone-1"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    await place.kube.create(PODS, place.namespace, foreign)
    for action in (ENSURE_CLONE, DeleteClone(1)):
        with pytest.raises(ActionsFailed) as failed:
            await place.do(action)
        assert isinstance(failed.value.failures[0].error, ForeignObject)
    assert await place.remaining(PODS) == ["chat-1-clone-1"]


async def test_a_clone_of_a_pod_with_a_single_writer_volume_is_refused(place):
    claim = {
        "metadata": {"name": "weights"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await place.kube.create(VOLUME_CLAIMS, place.namespace, claim)
    await place.deploy(template(volumes=[{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}]))
    with pytest.raises(ActionsFailed) as failed:
        await place.do(ENSURE_CLONE)
    assert isinstance(failed.value.failures[0].error, ChildRefused)
    assert await place.names(PODS) == []


async def test_a_clone_that_a_service_would_select_is_refused(place):
    await place.deploy(template())
    service = {"metadata": {"name": "all-of-ml"}, "spec": {"selector": {"team": "ml"}, "ports": [{"port": 80}]}}
    await place.kube.create(SERVICES, place.namespace, service)
    await place.do(ENSURE_CLONE)
    await place.do(DeleteClone(1))
    with pytest.raises(ActionsFailed, match="Service all-of-ml"):
        await place.do(ENSURE_CLONE, probe={"clone": {"keep": ["team"]}})
    assert await place.remaining(PODS) == []
