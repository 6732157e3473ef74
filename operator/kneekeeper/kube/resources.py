"""The kinds that kneekeeper reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kneekeeper.api.model import GROUP, VERSION

Resource = dict[str, Any]
"""An object as the API server gave it."""


@dataclass(frozen=True)
class Kind:
    """One kind of resource and its place in the API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


SERVING_PROFILES = Kind(GROUP, VERSION, "servingprofiles", "ServingProfile")
TUNING_RUNS = Kind(GROUP, VERSION, "tuningruns", "TuningRun")

PODS = Kind("", "v1", "pods", "Pod")
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
SERVICES = Kind("", "v1", "services", "Service")
VOLUME_CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS = Kind("events.k8s.io", "v1", "events", "Event")

DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Kind("batch", "v1", "jobs", "Job")
DISRUPTION_BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
POD_MONITORS = Kind("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
SERVING_RUNTIMES = Kind("serving.kserve.io", "v1alpha1", "servingruntimes", "ServingRuntime")
CLUSTER_SERVING_RUNTIMES = Kind(
    "serving.kserve.io", "v1alpha1", "clusterservingruntimes", "ClusterServingRuntime", namespaced=False
)
INFERENCE_POOLS = Kind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
