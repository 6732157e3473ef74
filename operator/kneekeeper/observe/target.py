"""Reads of the tuned workload, its serving pods and their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.live_delivery import delivery_in
from kneekeeper.domain.manifests import value_at
from kneekeeper.domain.names import LABEL_ROLE
from kneekeeper.domain.observation import PodView, WorkloadView
from kneekeeper.domain.targets.containers import config_maps_of
from kneekeeper.domain.targets.kinds import TargetKind
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.gpus import product_of_node
from kneekeeper.kube.labels import LabelSelector
from kneekeeper.kube.resources import CONFIG_MAPS, NODES, PODS, Resource
from kneekeeper.kube.targets import served_kind, template_path
from kneekeeper.observe.made_by import as_declared_by, read_made, read_source
from kneekeeper.observe.progress import selector_of
from kneekeeper.observe.workloads import parse_workload


@dataclass(frozen=True)
class ReadWorkload:
    """A workload and the selector of its pods."""

    view: WorkloadView
    selector: LabelSelector


async def read_workload(
    kube: Kube, namespace: str, target_ref: TargetRef, more: Collection[str] = ()
) -> ReadWorkload | None:
    """The workload, None when it does not exist. `more` are ConfigMaps that are read for it too.

    Raises UnsupportedTarget for kinds that are not known and workloads without pods of their own, and KubeErrors
    but NotFound.
    """
    served = await served_kind(kube, target_ref)
    if served is None:
        return None
    kind, where = served
    try:
        workload = await kube.get(where, namespace, target_ref.name)
    except NotFound:
        return None
    workload = {"apiVersion": target_ref.api_version, **workload, "kind": kind.name}
    if not kind.makes:
        return await _parsed(kube, namespace, workload, kind, more)
    made, made_kind = await read_made(kube, namespace, workload, kind)
    read = await _parsed(kube, namespace, made, made_kind)
    source = await read_source(kube, namespace, workload)
    return replace(read, view=as_declared_by(read.view, workload, kind, source))


async def _parsed(
    kube: Kube, namespace: str, workload: Resource, kind: TargetKind, more: Collection[str] = ()
) -> ReadWorkload:
    pod_spec = value_at(workload, template_path(kind, workload))["spec"]
    config_maps = await _config_maps(kube, namespace, pod_spec, more)
    return ReadWorkload(parse_workload(workload, config_maps, kind), selector_of(workload))


async def _config_maps(kube: Kube, namespace: str, pod_spec: Resource, more: Collection[str]) -> list[Resource]:
    """Those that the command lines and the limits depend on, and `more`.

    One that is gone or may not be read leaves its values unknown.
    """
    found: list[Resource] = []
    delivery = delivery_in(pod_spec)
    limits = {delivery.config_map} if delivery is not None else set()
    for name in sorted(config_maps_of(pod_spec) | limits | set(more)):
        try:
            found.append({"kind": CONFIG_MAPS.name, **await kube.get(CONFIG_MAPS, namespace, name)})
        except (NotFound, Forbidden):
            continue
    return found


async def read_gpu_products(kube: Kube, pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """The pods with the GPU product of their nodes; empty where it is not known or nodes may not be read."""
    pods = tuple(pods)
    products: dict[str, str] = {}
    for name in sorted({pod.node for pod in pods if pod.node}):
        try:
            products[name] = product_of_node(await kube.get(NODES, "", name))
        except (NotFound, Forbidden):
            products[name] = ""
    return tuple(replace(pod, gpu_product=products.get(pod.node, "")) for pod in pods)


def joined_product(pods: Iterable[PodView], last_known: str) -> str:
    """The GPU products of the pods' nodes as one word, sorted and joined by commas; else the last known."""
    seen = sorted({pod.gpu_product for pod in pods if pod.gpu_product})
    return ",".join(seen)[:253] or last_known


async def read_shared_config_maps(kube: Kube, workload: ReadWorkload) -> tuple[str, ...]:
    """Of the ConfigMaps that the workload's command lines depend on, those that pods of others use too, sorted.

    Pods that do not exist now are not seen. Raises KubeErrors.
    """
    view = workload.view
    pods = await kube.list(PODS, view.namespace)
    others = [pod for pod in pods if not _is_of(workload, pod["metadata"].get("labels") or {})]
    used = {name for pod in others for name in config_maps_used_by(pod["spec"])}
    return tuple(sorted(config_maps_of(view.pod_template["spec"]) & used))


def _is_of(workload: ReadWorkload, labels: Mapping[str, str]) -> bool:
    return LABEL_ROLE in labels or workload.selector.selects(labels)


def config_maps_used_by(pod_spec: Resource) -> frozenset[str]:
    """Names of all ConfigMaps that a pod mounts or takes variables from."""
    volumes = pod_spec.get("volumes") or []
    sources = [volume.get("configMap") for volume in volumes]
    sources += [each.get("configMap") for v in volumes for each in (v.get("projected") or {}).get("sources") or []]
    for container in [*(pod_spec.get("initContainers") or []), *pod_spec["containers"]]:
        sources += [each.get("configMapRef") for each in container.get("envFrom") or []]
        sources += [(each.get("valueFrom") or {}).get("configMapKeyRef") for each in container.get("env") or []]
    return frozenset(str(source["name"]) for source in sources if source and source.get("name"))
