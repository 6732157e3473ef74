"""From a workload as the API server gives it to the view that the plans read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kneekeeper.domain.live_delivery import delivery_in, without_plugin
from kneekeeper.domain.live_production import with_live_words
from kneekeeper.domain.manifests import ManifestObject, value_at
from kneekeeper.domain.observation import ContainerView, WorkloadView
from kneekeeper.domain.targets import Objects
from kneekeeper.domain.targets.containers import environment_of_container, files_of_container
from kneekeeper.domain.targets.kinds import KINDS, TargetKind
from kneekeeper.domain.targets.ownership import owner_of
from kneekeeper.kube.gpus import accelerators_of
from kneekeeper.kube.resources import Resource
from kneekeeper.kube.targets import template_path, words_of
from kneekeeper.observe.field_managers import last_writer_of_words
from kneekeeper.observe.progress import observed_generation, pods_per_replica, progress_of, replicas_of

DEPLOYMENT = KINDS["apps", "Deployment"]


def parse_workload(
    workload: Resource, config_maps: Iterable[Resource] = (), kind: TargetKind = DEPLOYMENT
) -> WorkloadView:
    """The workload as it stands. Fields that the API server always sets are taken for granted.

    `config_maps` are those that its containers' variables and config files come from, and that of its limits. Raises
    UnsupportedTarget where the workload has no pod template.
    """
    source = {"apiVersion": f"{kind.group}/v1", **workload, "kind": kind.name}
    objects = Objects(tuple(ManifestObject(0, (), each) for each in (source, *config_maps)))
    metadata, spec = workload["metadata"], workload["spec"]
    status = workload.get("status") or {}
    path = template_path(kind, workload)
    template = value_at(workload, path)
    delivery = delivery_in(template["spec"])
    if delivery is not None:
        template = {**template, "spec": without_plugin(template["spec"])}
    pod_spec = template["spec"]
    progress = progress_of(workload)
    view = WorkloadView(
        kind=kind.name,
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=int(metadata.get("generation", 0)),
        observed_generation=observed_generation(workload),
        replicas=replicas_of(spec),
        updated_replicas=int(status.get("updatedReplicas", 0)),
        ready_replicas=int(status.get("readyReplicas", 0)),
        total_replicas=int(status.get("replicas", 0)),
        progress_deadline_exceeded=_missed_its_deadline(status),
        owner=owner_of(metadata),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        containers=tuple(_container(c, template, metadata["namespace"], objects) for c in pod_spec["containers"]),
        node_selector=pod_spec.get("nodeSelector") or {},
        pod_template=template,
        last_writer=last_writer_of_words(metadata, path),
        max_unavailable=progress.max_unavailable,
        resource=kind.resource,
        template_path=path,
        pods_per_replica=pods_per_replica(workload),
        held_back=progress.held_back,
        awaits_promotion=progress.awaits_promotion,
        source=objects,
    )
    return view if delivery is None else with_live_words(view, delivery)


def _container(
    container: Mapping[str, Any], template: Mapping[str, Any], namespace: str, objects: Objects
) -> ContainerView:
    return ContainerView(
        name=container["name"],
        image=container.get("image") or "",
        words=words_of(container),
        env=environment_of_container(container, namespace, objects),
        ports=tuple(p["containerPort"] for p in container.get("ports") or []),
        gpus=sum(accelerators_of(container.get("resources")).values()),
        files=files_of_container(container, template["spec"], namespace, objects),
    )


def _missed_its_deadline(status: Mapping[str, Any]) -> bool:
    return any(
        c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
        for c in status.get("conditions") or []
    )
