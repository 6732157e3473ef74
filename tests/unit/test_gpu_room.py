"""Where one more pod fits: allocatable minus requests, on nodes of the product that take pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.observation import GpuRoom
from kneekeeper.kube.client import Kube
from kneekeeper.kube.gpus import accelerators_of_pod, product_of_node
from kneekeeper.kube.quantity import whole_number
from kneekeeper.observe.gpu_rooms import FRESH_S, ClusterRooms, GpuRooms, add_taken
from tests.unit.kube_objects import PRODUCT

GPU = "nvidia.com/gpu"


def node(name: str = "node-1", *, gpus: int = 8, product: str = PRODUCT, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "3920m", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def gpu_pod(gpus: int, node_name: str = "node-1", phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"limits": {GPU: str(gpus)}}}
    return {"spec": {"nodeName": node_name, "containers": [container]}, "status": {"phase": phase}}


def largest_room(nodes: list[Any], pods: list[Any], product: str, needed: dict[str, int]) -> int:
    taken: dict[str, Counter[str]] = {}
    for pod in pods:
        add_taken(taken, [pod])
    return ClusterRooms.of(nodes, taken).largest(product, needed)


def test_free_is_allocatable_minus_what_pods_hold():
    assert largest_room([node()], [gpu_pod(2), gpu_pod(4)], PRODUCT, {GPU: 1}) == 2


def test_ended_pods_hold_nothing():
    pods = [gpu_pod(8, phase="Succeeded"), gpu_pod(8, phase="Failed")]
    assert largest_room([node()], pods, PRODUCT, {GPU: 1}) == 8


def test_pods_that_start_or_wait_for_no_node_count_where_they_are():
    unbound = gpu_pod(8)
    del unbound["spec"]["nodeName"]
    assert largest_room([node()], [gpu_pod(3, phase="Pending"), unbound], PRODUCT, {GPU: 1}) == 5


def test_room_is_that_of_one_node_never_of_several_together():
    nodes = [node("node-1"), node("node-2")]
    assert largest_room(nodes, [gpu_pod(5), gpu_pod(6, "node-2")], PRODUCT, {GPU: 4}) == 3


def test_other_products_and_nodes_that_take_no_pods_do_not_count():
    lost = node("lost")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    nodes = [node("other", product="Other"), node("cordoned", unschedulable=True), lost, node(gpus=1)]
    assert largest_room(nodes, [], PRODUCT, {GPU: 1}) == 1


def test_any_of_several_products_and_of_none_every_node_counts():
    nodes = [node("a", product="A", gpus=1), node("b", product="B", gpus=2), node("c", product="C", gpus=4)]
    assert largest_room(nodes, [], "A,B", {GPU: 1}) == 2
    assert largest_room(nodes, [], "", {GPU: 1}) == 4


def test_a_resource_that_no_node_has_leaves_no_room():
    assert largest_room([node()], [], PRODUCT, {"nvidia.com/mig-3g.40gb": 1}) == 0


def test_of_several_resources_the_scarcest_decides():
    both = node()
    both["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] = "1"
    needed = {GPU: 4, "nvidia.com/mig-3g.40gb": 2}
    assert largest_room([both], [], PRODUCT, needed) < sum(needed.values())
    both["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] = "2"
    assert largest_room([both], [], PRODUCT, needed) >= sum(needed.values())


def test_without_nodes_there_is_no_room():
    assert largest_room([], [], PRODUCT, {GPU: 1}) == 0


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 8))
def test_room_is_never_negative_nor_more_than_a_node_has(taken, gpus):
    room = largest_room([node(gpus=gpus)], [gpu_pod(count) for count in taken], PRODUCT, {GPU: 1})
    assert 0 <= room <= gpus
    assert room == max(0, gpus - sum(taken))


def container(count: int, **fields: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: str(count)}}, **fields}


def test_init_containers_and_the_engine_use_devices_one_after_the_other():
    spec = {"initContainers": [container(4)], "containers": [container(1), container(2)]}
    assert accelerators_of_pod(spec) == {GPU: 4}


def test_native_sidecars_use_devices_beside_all_others():
    spec = {
        "initContainers": [container(1, restartPolicy="Always"), container(3)],
        "containers": [container(2)],
    }
    assert accelerators_of_pod(spec) == {GPU: 4}


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-L4"}, "NVIDIA-L4"),
        ({"amd.com/gpu.product-name": "MI300X"}, "MI300X"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia-l4"),
        ({"kubernetes.io/arch": "amd64"}, ""),
        (None, ""),
    ],
)
def test_a_nodes_product_is_what_its_labels_name(labels, product):
    assert product_of_node({"metadata": {"labels": labels}}) == product


@pytest.mark.parametrize(("text", "number"), [("8", 8), (8, 8), ("2k", 2000), ("1Ki", 1024), ("1e3", 1000)])
def test_quantities_are_whole_numbers(text, number):
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["500m", "", "many", "NaN", "Infinity"])
def test_what_is_no_whole_quantity_is_an_error(text):
    with pytest.raises(ValueError, match="quantity"):
        whole_number(text)


class Cluster:
    """Its pods and nodes, and how often they were read."""

    def __init__(self) -> None:
        self.reads = 0
        self.pods = [gpu_pod(2)]

    async def pages(self, kind: object) -> AsyncIterator[list[dict[str, Any]]]:
        self.reads += 1
        for pod in self.pods:
            yield [pod]

    async def list(self, kind: object) -> list[dict[str, Any]]:
        return [node()]


async def test_many_who_ask_at_once_are_answered_by_one_read_and_later_ones_by_another():
    cluster, now_s = Cluster(), [100.0]
    rooms = GpuRooms(cast(Kube, cluster), lambda: now_s[0])
    found = await asyncio.gather(*(rooms.read(PRODUCT, {GPU: 1}) for _ in range(20)))
    assert found == [GpuRoom(PRODUCT, 6)] * 20
    assert cluster.reads == 1
    cluster.pods.append(gpu_pod(5))
    now_s[0] += FRESH_S
    assert await rooms.read(PRODUCT, {GPU: 1}) == GpuRoom(PRODUCT, 1)
    assert cluster.reads == 2
