"""From a Deployment as the API server gives it to the view that the plans read. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kneekeeper.domain.observation import ContainerView, Owner, WorkloadView
from kneekeeper.kube.gpus import accelerators_of
from kneekeeper.kube.resources import Resource
from kneekeeper.kube.targets import words_of

_TOOL_MARKS = (
    # (label or annotation, tool); the first that is set counts: Argo CD and Flux also apply Helm's output.
    ("argocd.argoproj.io/tracking-id", "ArgoCD"),
    ("argocd.argoproj.io/instance", "ArgoCD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
)
_HELM_LABEL = ("app.kubernetes.io/managed-by", "Helm")
_WORD_FIELDS = ("f:args", "f:command")


def parse_workload(deployment: Resource) -> WorkloadView:
    """The Deployment as it stands. Fields that the API server always sets are taken for granted."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    status = deployment.get("status") or {}
    template = spec["template"]
    pod_spec = template["spec"]
    return WorkloadView(
        kind=deployment.get("kind") or "Deployment",
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=int(metadata.get("generation", 0)),
        observed_generation=int(status.get("observedGeneration", 0)),
        replicas=int(spec.get("replicas", 1)),
        updated_replicas=int(status.get("updatedReplicas", 0)),
        ready_replicas=int(status.get("readyReplicas", 0)),
        total_replicas=int(status.get("replicas", 0)),
        progress_deadline_exceeded=_missed_its_deadline(status),
        owner=_owner(metadata),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        containers=tuple(parse_container(c) for c in pod_spec["containers"]),
        node_selector=pod_spec.get("nodeSelector") or {},
        pod_template=template,
        last_writer=_last_writer(metadata),
        max_unavailable=_max_unavailable(spec),
    )


def _max_unavailable(spec: Mapping[str, Any]) -> int:
    """Pods that a rollout may take away before others are ready, as the Deployment controller rounds it.

    With Recreate all of them; where rounding leaves neither a surge nor a missing pod, one may be missing.
    """
    strategy, replicas = spec.get("strategy") or {}, int(spec.get("replicas", 1))
    if strategy.get("type") == "Recreate":
        return replicas
    rolling = strategy.get("rollingUpdate") or {}
    unavailable = _pods(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    surge = _pods(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    return unavailable if unavailable or surge else 1


def _pods(value: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    text = str(value)
    return rounded(int(text[:-1]) * replicas / 100) if text.endswith("%") else int(text)


def parse_container(container: Mapping[str, Any]) -> ContainerView:
    """A container of a pod or a pod template."""
    return ContainerView(
        name=container["name"],
        image=container.get("image") or "",
        words=words_of(container),
        env={e["name"]: e.get("value") or "" for e in container.get("env") or [] if "valueFrom" not in e},
        ports=tuple(p["containerPort"] for p in container.get("ports") or []),
        gpus=sum(accelerators_of(container.get("resources")).values()),
    )


def _missed_its_deadline(status: Mapping[str, Any]) -> bool:
    return any(
        c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
        for c in status.get("conditions") or []
    )


def _owner(metadata: Mapping[str, Any]) -> Owner | None:
    """A controller first, since it writes at once; then the tools that write on their next sync."""
    for reference in metadata.get("ownerReferences") or []:
        if reference.get("controller"):
            return Owner(reference["kind"], reference["name"])
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for key, tool in _TOOL_MARKS:
        if marks.get(key):
            # A tracking id reads <application>:<group>/<kind>:<namespace>/<name>.
            return Owner(tool, str(marks[key]).partition(":")[0])
    key, tool = _HELM_LABEL
    if marks.get(key) == tool:
        return Owner(tool, marks.get("app.kubernetes.io/instance") or metadata["name"])
    return None


def _last_writer(metadata: Mapping[str, Any]) -> str:
    """The field manager of the newest write that owns a container's words.

    An entry's time is that of the manager's last write to any of its fields: close enough for a message.
    """
    writers = [
        (entry.get("time") or "", entry.get("manager") or "")
        for entry in metadata.get("managedFields") or []
        if not entry.get("subresource") and any(_owns_words(fields) for fields in _containers(entry))
    ]
    return max(writers)[1] if writers else ""


def _containers(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    fields: Any = entry.get("fieldsV1") or {}
    for key in ("f:spec", "f:template", "f:spec", "f:containers"):
        fields = fields.get(key) or {}
    yield from (value for key, value in fields.items() if key.startswith("k:"))


def _owns_words(fields: Mapping[str, Any]) -> bool:
    return any(name in fields for name in _WORD_FIELDS)
