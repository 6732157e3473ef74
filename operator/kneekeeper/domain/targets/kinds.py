"""The kinds that a profile may target in a cluster, and where each holds the pods that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kneekeeper.domain.manifests import Path

_TEMPLATE: Path = ("spec", "template")
_GROUP: Path = ("spec", "leaderWorkerTemplate")


@dataclass(frozen=True)
class TargetKind:
    """`templates` are the places of the pod template that serves, the first that is set counts; none where another
    object, of a kind in `makes`, holds the template, and this one only fields from which a controller makes it."""

    group: str
    plural: str
    name: str
    templates: tuple[Path, ...] = ()
    makes: tuple[tuple[str, str], ...] = ()  # apiVersion and kind

    @property
    def resource(self) -> str:
        """As kubectl takes it."""
        return self.name.lower() if self.group == "apps" else f"{self.plural}.{self.group}"


POD = ("v1", "Pod")
"""Made by itself, without a workload of its own."""

_DEPLOYMENT = ("apps/v1", "Deployment")
_STATEFUL_SET = ("apps/v1", "StatefulSet")
_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")

_KINDS = (
    TargetKind("apps", "deployments", "Deployment", (_TEMPLATE,)),
    TargetKind("apps", "statefulsets", "StatefulSet", (_TEMPLATE,)),
    TargetKind("argoproj.io", "rollouts", "Rollout", (_TEMPLATE,)),
    TargetKind(
        "leaderworkerset.x-k8s.io",
        "leaderworkersets",
        "LeaderWorkerSet",
        ((*_GROUP, "leaderTemplate"), (*_GROUP, "workerTemplate")),
    ),
    TargetKind("serving.kserve.io", "inferenceservices", "InferenceService", makes=(_DEPLOYMENT,)),
    TargetKind(
        "serving.kserve.io", "llminferenceservices", "LLMInferenceService", makes=(_DEPLOYMENT, _LEADER_WORKER_SET)
    ),
    TargetKind("production-stack.vllm.ai", "vllmruntimes", "VLLMRuntime", makes=(_DEPLOYMENT,)),
    TargetKind("kubeai.org", "models", "Model", makes=(POD,)),
    TargetKind("kaito.sh", "workspaces", "Workspace", makes=(_STATEFUL_SET, _DEPLOYMENT)),
)

KINDS: Mapping[tuple[str, str], TargetKind] = {(kind.group, kind.name): kind for kind in _KINDS}
"""By API group and kind."""


def target_kind(api_version: str, kind: str) -> TargetKind | None:
    """Any version of a group that is known; None for other kinds."""
    group = api_version.partition("/")[0] if "/" in api_version else ""
    return KINDS.get((group, kind))


_MAY_MAKE = (_DEPLOYMENT, _STATEFUL_SET, _LEADER_WORKER_SET)


def is_unknown(api_version: str, kind: str) -> bool:
    """Whether others than Kubernetes define the kind, and nothing is known of it.

    It is measured from the one workload that its controller makes, and its change only recommended.
    """
    group = api_version.rpartition("/")[0]
    custom = "." in group and not group.endswith(".k8s.io")
    return custom and target_kind(api_version, kind) is None and why_unmeasured(api_version, kind) is None


def unknown_kind(api_version: str, kind: str, plural: str) -> TargetKind:
    """Of a kind for which `is_unknown` holds, as the cluster serves it."""
    return TargetKind(api_version.rpartition("/")[0], plural, kind, makes=_MAY_MAKE)


UNMEASURED: Mapping[tuple[str, str], str] = {
    ("ray.io", "RayService"): "its engines run inside Ray's own processes, of which no clone can be made",
    (
        "serving.knative.dev",
        "Service",
    ): "each of its revisions is another workload, and its pods come and go with requests",
    ("orchestration.aibrix.ai", "StormService"): "its replicas are groups of roles, of which no clone is made",
}
"""Kinds whose limits `kneekeeper patch` writes in a file, by API group and kind, with why a profile is not for them."""


def why_unmeasured(api_version: str, kind: str) -> str | None:
    """For people; None for kinds of which nothing is known."""
    return UNMEASURED.get((api_version.rpartition("/")[0], kind))


def known_kinds() -> str:
    """For people."""
    return ", ".join(kind.name for kind in _KINDS)
