"""Where one more pod would find its accelerators: nodes and pods of the whole cluster, read once for all who ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Self

from kneekeeper.domain.observation import GpuRoom
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden
from kneekeeper.kube.gpus import accelerators_of_pod, product_of_node
from kneekeeper.kube.quantity import whole_number
from kneekeeper.kube.resources import NODES, PODS, Resource

FRESH_S = 5.0
"""Within this time nothing is read again: a fleet that waits for GPUs would read every pod of the cluster twice a
second. Two runs that so see the same GPU free both ask for it, and the scheduler gives it to one."""

_ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class _Node:
    product: str
    allocatable: Mapping[str, object]
    taken: Counter[str]

    def free(self, name: str) -> int:
        return whole_number(str(self.allocatable.get(name, 0))) - self.taken[name]


def add_taken(taken: dict[str, Counter[str]], pods: Iterable[Resource]) -> None:
    """Add what these pods request that have a node and have not ended, by node."""
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name and (pod.get("status") or {}).get("phase") not in _ENDED_PHASES:
            taken.setdefault(name, Counter()).update(accelerators_of_pod(pod["spec"]))


@dataclass(frozen=True)
class ClusterRooms:
    """The nodes that take pods, and what is taken of them."""

    nodes: tuple[_Node, ...]

    @classmethod
    def of(cls, nodes: Iterable[Resource], taken: Mapping[str, Counter[str]]) -> Self:
        """`taken` is what pods hold, by the name of their node."""
        return cls(
            tuple(
                _Node(
                    product_of_node(node),
                    (node.get("status") or {}).get("allocatable") or {},
                    taken.get(node["metadata"]["name"], Counter()),
                )
                for node in nodes
                if _takes_pods(node)
            )
        )

    def largest(self, gpu_product: str, needed: Mapping[str, int]) -> int:
        """The most accelerators that one node of the product (any of several, joined by commas) has free for a pod
        that takes `needed`, by resource name. With an empty product every node counts. Where a pod needs several
        resources, the scarcest decides.
        """
        products = set(filter(None, gpu_product.split(",")))
        wanted = sum(needed.values())
        rooms = [
            wanted + min(node.free(name) - count for name, count in needed.items())
            for node in self.nodes
            if needed and (not products or node.product in products)
        ]
        return max([0, *rooms])


def _takes_pods(node: Resource) -> bool:
    if node["spec"].get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


class GpuRooms:
    """Reads the rooms of a cluster, for one operator process."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._read_at_s = float("-inf")
        self._rooms: ClusterRooms | None = None
        self._one_at_a_time = asyncio.Lock()

    async def read(self, gpu_product: str, needed: Mapping[str, int]) -> GpuRoom | None:
        """Room for one more such pod. None where nodes or the cluster's pods may not be read. Raises KubeErrors."""
        async with self._one_at_a_time:
            if self._clock() - self._read_at_s >= FRESH_S:
                self._rooms = await self._newest()
                self._read_at_s = self._clock()
        rooms = self._rooms
        return None if rooms is None else GpuRoom(gpu_product, rooms.largest(gpu_product, needed))

    async def _newest(self) -> ClusterRooms | None:
        try:
            taken: dict[str, Counter[str]] = {}
            async for page in self._kube.pages(PODS):
                add_taken(taken, page)
            return ClusterRooms.of(await self._kube.list(NODES), taken)
        except Forbidden:
            return None
