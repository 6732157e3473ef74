"""Reads of the tuned workload, its serving pods and their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.manifests import value_at
from kneekeeper.domain.observation import GpuRoom, PodView, WorkloadView
from kneekeeper.domain.targets.containers import config_maps_of
from kneekeeper.domain.targets.kinds import TargetKind
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.gpus import accelerators_of_pod, product_of_node
from kneekeeper.kube.labels import LabelSelector
from kneekeeper.kube.quantity import whole_number
from kneekeeper.kube.resources import CONFIG_MAPS, NODES, PODS, Resource
from kneekeeper.kube.targets import described, kind_of, template_path
from kneekeeper.observe.made_by import as_declared_by, read_made, read_source
from kneekeeper.observe.progress import selector_of
from kneekeeper.observe.workloads import parse_workload

_ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class ReadWorkload:
    """A workload and the selector of its pods."""

    view: WorkloadView
    selector: LabelSelector


async def read_workload(kube: Kube, namespace: str, target_ref: TargetRef) -> ReadWorkload | None:
    """The workload, None when it does not exist.

    Raises UnsupportedTarget for kinds that are not known and workloads without pods of their own, and KubeErrors
    but NotFound.
    """
    kind = described(target_ref)
    try:
        workload = await kube.get(kind_of(target_ref), namespace, target_ref.name)
    except NotFound:
        return None
    workload = {"apiVersion": target_ref.api_version, **workload, "kind": kind.name}
    if not kind.makes:
        return await _parsed(kube, namespace, workload, kind)
    made, made_kind = await read_made(kube, namespace, workload, kind)
    read = await _parsed(kube, namespace, made, made_kind)
    source = await read_source(kube, namespace, workload)
    return replace(read, view=as_declared_by(read.view, workload, kind, source))


async def _parsed(kube: Kube, namespace: str, workload: Resource, kind: TargetKind) -> ReadWorkload:
    config_maps = await _config_maps(kube, namespace, value_at(workload, template_path(kind, workload))["spec"])
    return ReadWorkload(parse_workload(workload, config_maps, kind), selector_of(workload))


async def _config_maps(kube: Kube, namespace: str, pod_spec: Resource) -> list[Resource]:
    """Those that the command lines depend on; one that is gone or may not be read leaves its values unknown."""
    found: list[Resource] = []
    for name in sorted(config_maps_of(pod_spec)):
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


async def read_gpu_room(kube: Kube, gpu_product: str, needed: Mapping[str, int]) -> GpuRoom | None:
    """Room for one more pod on a node of the product (any of several, joined by commas).

    `needed` is what the pod takes, by resource name. With an empty product every node counts. None where
    nodes or the cluster's pods may not be read.
    """
    try:
        nodes = await kube.list(NODES)
        pods = await kube.list(PODS)
    except Forbidden:
        return None
    return GpuRoom(gpu_product, largest_room(nodes, pods, gpu_product, needed))


def largest_room(
    nodes: Iterable[Resource], pods: Iterable[Resource], gpu_product: str, needed: Mapping[str, int]
) -> int:
    """The most accelerators that one node has free for such a pod.

    Free is allocatable minus the requests of the pods on the node that have not ended. Only nodes that are
    ready and schedulable count. Where a pod needs several resources, the scarcest decides.
    """
    taken: dict[str, Counter[str]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in _ENDED_PHASES:
            taken.setdefault(node, Counter()).update(accelerators_of_pod(pod["spec"]))
    wanted = sum(needed.values())
    products = set(filter(None, gpu_product.split(",")))
    rooms = [
        wanted
        + min(
            _allocatable(node, name) - taken.get(node["metadata"]["name"], Counter())[name] - count
            for name, count in needed.items()
        )
        for node in nodes
        if needed and _takes_pods(node) and (not products or product_of_node(node) in products)
    ]
    return max([0, *rooms])


def _allocatable(node: Resource, resource: str) -> int:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return whole_number(allocatable.get(resource, 0))


def _takes_pods(node: Resource) -> bool:
    if node["spec"].get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
