"""Pods that a controller makes by itself, as the workload that they would be of. Pure.

Source: KubeAI, internal/modelcontroller: a Model owns its pods and labels them with its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from kneekeeper.kube.resources import Resource

MODEL_LABEL = "model"
_TOKEN_VOLUME = "kube-api-access-"
"""How the API server names the volume that it adds to every pod for its ServiceAccount's token."""


def workload_of_pods(target: Resource, pods: Sequence[Resource]) -> Resource:
    """A workload whose template is the newest pod; pods with other words count as not updated.

    `pods` are those that the target's controller made, at least one.
    """
    newest = max(pods, key=lambda pod: (str(pod["metadata"]["creationTimestamp"]), str(pod["metadata"]["name"])))
    metadata, spec = target["metadata"], target["spec"]
    wanted = spec.get("replicas")
    return {
        "metadata": {**metadata, "generation": 0, "managedFields": []},
        "spec": {
            "replicas": len(pods) if wanted is None else wanted,
            "selector": {"matchLabels": {MODEL_LABEL: metadata["name"]}},
            "template": {
                "metadata": {
                    "labels": newest["metadata"].get("labels") or {},
                    "annotations": newest["metadata"].get("annotations") or {},
                },
                "spec": _without_token(newest["spec"]),
            },
        },
        "status": {
            "replicas": len(pods),
            "readyReplicas": sum(_is_ready(pod) for pod in pods),
            "updatedReplicas": sum(_words(pod) == _words(newest) for pod in pods),
        },
    }


def _without_token(pod_spec: Resource) -> Resource:
    spec = deepcopy(pod_spec)
    spec["volumes"] = [v for v in spec.get("volumes") or [] if not v["name"].startswith(_TOKEN_VOLUME)]
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [mount for mount in mounts if not mount["name"].startswith(_TOKEN_VOLUME)]
    return spec


def _is_ready(pod: Resource) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _words(pod: Resource) -> list[Any]:
    return [(c["name"], c.get("command"), c.get("args"), c.get("env")) for c in pod["spec"]["containers"]]
