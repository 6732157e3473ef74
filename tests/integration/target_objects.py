"""Objects of every kind of target at a real API server, as their users and controllers would make them."""

from __future__ import annotations

import asyncio
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.target import Target, resolve, words_with
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, STATEFUL_SETS, Kind
from kneekeeper.observe.target import read_workload
from tests.integration.place import Place
from tests.integration.target_crds import api_version, install, resource
from tests.unit.kube_objects import template

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
"""What is written."""

_LABELS = {"matchLabels": {"app": "chat"}}
_CONFIG = "model: example/chat-8b\nmax-num-seqs: 256  # by hand\n"

WITH_PODS: dict[str, dict[str, Any]] = {
    "StatefulSet": {"replicas": 2, "selector": _LABELS, "serviceName": "chat", "template": template()},
    "Rollout": {"replicas": 2, "selector": _LABELS, "template": template(), "strategy": {"canary": {}}},
    "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "leaderTemplate": template()}},
}
MADE: dict[str, dict[str, Any]] = {
    "InferenceService": {"predictor": {"model": {"modelFormat": {"name": "huggingface"}, "runtime": "vllm"}}},
    "VLLMRuntime": {"model": {"modelURL": "example/chat-8b", "maxNumSeqs": 256}},
    "LLMInferenceService": {
        "model": {"uri": "hf://example/chat-8b"},
        "template": {
            "containers": [{"name": "main", "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--max-num-seqs=256"}]}]
        },
    },
}


async def created(place: Place, kind: str, spec: dict[str, Any] | None, **beside: Any) -> tuple[TargetRef, Kind]:
    """An object named chat, with what it has beside its spec; a new CRD is served a moment after it was made."""
    if kind == "StatefulSet":
        ref, where = TargetRef(kind=kind, name="chat"), STATEFUL_SETS
    else:
        await install(place.kube, kind)
        ref, where = TargetRef(api_version=api_version(kind), kind=kind, name="chat"), resource(kind)
    body = {"apiVersion": where.api_version, "kind": kind, "metadata": {"name": "chat"}, **beside}
    if spec is not None:
        body["spec"] = spec
    for _ in range(200):
        try:
            await place.kube.create(where, place.namespace, body)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return ref, where
    raise AssertionError(f"{where.plural} is not served")


async def target_of(place: Place, ref: TargetRef) -> Target:
    """As the operator reads it."""
    workload = await read_workload(place.kube, place.namespace, ref)
    assert workload is not None
    found = resolve(workload.view, ref)
    assert isinstance(found, Target)
    return found


def after_of(target: Target) -> ContainerWords:
    """Its words with SETTING."""
    words = words_with(target.container, SETTING)
    assert isinstance(words, ContainerWords)
    return words


async def make_deployment(place: Place, kind: str, uid: str, args: list[str]) -> None:
    """As the owner's controller would."""
    made = template()
    made["spec"]["containers"][1]["args"] = args
    owner = {"apiVersion": api_version(kind), "kind": kind, "name": "chat", "uid": uid, "controller": True}
    body = {
        "metadata": {"name": "chat-made", "ownerReferences": [owner]},
        "spec": {"replicas": 1, "selector": _LABELS, "template": made},
    }
    await place.kube.create(DEPLOYMENTS, place.namespace, body)


async def created_model(place: Place) -> tuple[TargetRef, Kind]:
    """KubeAI's, with a pod that it made without a workload between."""
    ref, where = await created(place, "Model", {"engine": "VLLM", "url": "hf://example/chat-8b", "args": ["--seed=1"]})
    owner = {"apiVersion": where.api_version, "kind": "Model", "name": "chat", "controller": True}
    owner["uid"] = (await place.get(where, "chat"))["metadata"]["uid"]
    metadata = {"name": "model-chat-1", "labels": {"model": "chat"}, "ownerReferences": [owner]}
    await place.kube.create(PODS, place.namespace, {"metadata": metadata, "spec": template()["spec"]})
    return ref, where


async def deploy_with_config_file(place: Place) -> None:
    """An engine that reads its limits from a ConfigMap."""
    made = template(volumes=[{"name": "config", "configMap": {"name": "engine"}}])
    made["spec"]["containers"][1] |= {
        "args": ["--config", "/etc/vllm/config.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/vllm"}],
    }
    config_map = {"metadata": {"name": "engine"}, "data": {"config.yaml": _CONFIG}}
    await place.kube.create(CONFIG_MAPS, place.namespace, config_map)
    await place.deploy(made)
