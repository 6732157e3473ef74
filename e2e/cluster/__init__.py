"""A Kubernetes cluster of plain processes on one machine."""

from e2e.cluster.control_plane import Controllers, control_plane
from e2e.cluster.lifecycle import Cluster, ensure_up
from e2e.cluster.spec import ClusterSpec

__all__ = ["Cluster", "ClusterSpec", "Controllers", "control_plane", "ensure_up"]
