"""Custom resources in the shape of those that other projects define, as far as an engine's arguments are concerned.

Written from their public references: Argo Rollouts, LeaderWorkerSet, KServe, vLLM production stack, KubeAI, KAITO,
Ray, AIBrix.
"""

from __future__ import annotations

from typing import Any

from kneekeeper.domain.targets.kinds import KINDS, TargetKind
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import AlreadyExists
from kneekeeper.kube.resources import Kind, Resource

CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CRD", namespaced=False)

_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_WORDS = {"type": "array", "items": {"type": "string"}}
_REPLICAS = {"type": "integer", "minimum": 0}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "Rollout": ("v1alpha1", {"spec": _object(replicas=_REPLICAS, selector=_ANY, template=_ANY, strategy=_ANY)}),
    "LeaderWorkerSet": (
        "v1",
        {
            "spec": _object(
                replicas=_REPLICAS,
                rolloutStrategy=_ANY,
                leaderWorkerTemplate=_object(size={"type": "integer"}, leaderTemplate=_ANY, workerTemplate=_ANY),
            )
        },
    ),
    "InferenceService": (
        "v1beta1",
        {
            "spec": _object(
                predictor=_object(
                    model=_object(
                        modelFormat=_ANY,
                        runtime={"type": "string"},
                        storageUri={"type": "string"},
                        args=_WORDS,
                        env=_ANY,
                        resources=_ANY,
                    ),
                    minReplicas=_REPLICAS,
                )
            )
        },
    ),
    "VLLMRuntime": (
        "v1alpha1",
        {
            "spec": _object(
                model=_object(modelURL={"type": "string"}, maxModelLen=_REPLICAS, maxNumSeqs=_REPLICAS),
                vllmConfig=_object(extraArgs=_WORDS),
                deploymentConfig=_ANY,
            )
        },
    ),
    "LLMInferenceService": ("v1alpha1", {"spec": _object(model=_ANY, replicas=_REPLICAS, template=_ANY)}),
    "Model": (
        "v1",
        {"spec": _object(engine={"type": "string"}, url={"type": "string"}, args=_WORDS, replicas=_REPLICAS)},
    ),
    "RayService": ("v1", {"spec": _object(serveConfigV2={"type": "string"}, rayClusterConfig=_ANY)}),
    "StormService": (
        "v1alpha1",
        {
            "spec": _object(
                replicas=_REPLICAS,
                template=_object(
                    spec=_object(
                        roles={
                            "type": "array",
                            "items": _object(name={"type": "string"}, replicas=_REPLICAS, template=_ANY),
                        }
                    )
                ),
            )
        },
    ),
    "Server": ("v1", {"spec": _object(replicas=_REPLICAS, template=_ANY)}),
    "Workspace": ("v1beta1", {"resource": _ANY, "inference": _object(preset=_ANY, config={"type": "string"})}),
}


_OTHERS = {
    "RayService": TargetKind("ray.io", "rayservices", "RayService"),
    "StormService": TargetKind("orchestration.aibrix.ai", "stormservices", "StormService"),
    "Server": TargetKind("example.com", "servers", "Server"),
}
"""Kinds that a profile does not know: the first two are changed in files, nobody knows the last."""


def api_version(kind: str) -> str:
    """As its project serves it."""
    return f"{_known(kind).group}/{_SCHEMAS[kind][0]}"


def resource(kind: str) -> Kind:
    """The kind as the client asks for it."""
    return Kind(_known(kind).group, _SCHEMAS[kind][0], _known(kind).plural, kind)


async def install(kube: Kube, kind: str) -> None:
    """Define the kind, if no test has."""
    try:
        await kube.create(CRDS, "", definition(kind))
    except AlreadyExists:
        return


def _known(kind: str) -> TargetKind:
    return _OTHERS.get(kind) or next(known for (_, name), known in KINDS.items() if name == kind)


def definition(kind: str) -> Resource:
    """The CustomResourceDefinition that serves the kind."""
    known, (version, properties) = _known(kind), _SCHEMAS[kind]
    scales = kind in ("Rollout", "LeaderWorkerSet")
    scale = {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{known.plural}.{known.group}"},
        "spec": {
            "group": known.group,
            "scope": "Namespaced",
            "names": {"plural": known.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties | {"status": _ANY}}},
                    "subresources": {"status": {}} | (scale if scales else {}),
                }
            ],
        },
    }


def anything(group: str, version: str, plural: str, kind: str) -> Resource:
    """The CustomResourceDefinition of a kind that an example holds and kneekeeper never reads: any spec is taken."""
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANY, "status": _ANY}}},
                }
            ],
        },
    }
