"""The shape of a cluster, and the fixed addresses and names that follow from it."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import State

POD_RANGE = "10.244.0.0/16"
NODE_RANGE = "10.245.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
"""The API server takes the first address of the Service range for itself."""

CONTROL_ADDRESS = "10.245.0.1"
"""The first node's address: the API server and the DNS server listen there."""

API_PORT = 6443
CLUSTER_DOMAIN = "cluster.local"

GPU_RESOURCE = "nvidia.com/gpu"
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
"""The labels that NVIDIA's GPU feature discovery sets."""

_MOST_NODES = 8
"""Each node is a containerd and a kubelet on the same machine: more would only starve it."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class ClusterSpec:
    """What a user asks for. Two clusters of equal specs are interchangeable."""

    nodes: int = 1
    gpus_per_node: int = 0
    gpu_product: str = "NVIDIA-L4"

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= _MOST_NODES:
            raise ClusterError(f"{self.nodes} nodes do not fit one machine; ask for 1 to {_MOST_NODES}")
        if self.gpus_per_node < 0:
            raise ClusterError(f"{self.gpus_per_node} GPUs per node make no sense; ask for 0 or more")
        if not _LABEL_VALUE.fullmatch(self.gpu_product):
            raise ClusterError(f"{self.gpu_product!r} cannot be a label's value; name the GPU product like NVIDIA-L4")

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "ClusterSpec":
        """The inverse of `to_json`."""
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The fields under their own names."""
        return asdict(self)

    def __str__(self) -> str:
        gpus = f", {_count(self.gpus_per_node, 'GPU')} ({self.gpu_product}) each" if self.gpus_per_node else ""
        return _count(self.nodes, "node") + gpus


@dataclass(frozen=True)
class Node:
    """One node of the cluster: a containerd and a kubelet with folders, an address and a pod range of their own."""

    number: int
    """Counted from 1."""
    folder: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"10.245.0.{self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.244.{self.number - 1}.0/24"

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.folder / "containerd.sock"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def nodes_of(spec: ClusterSpec, state: State) -> tuple[Node, ...]:
    """The nodes of a cluster, the first of which carries the control plane."""
    return tuple(Node(number, state.nodes / str(number)) for number in range(1, spec.nodes + 1))
