"""How far a workload's rollout is, from its status: each controller counts in its own way. Pure.

Sources: Kubernetes, apps/v1 `DeploymentStatus` and `StatefulSetStatus`; Argo Rollouts, `RolloutStatus`, whose
observedGeneration is a text; LeaderWorkerSet, `LeaderWorkerSetStatus`, which counts groups and observes no
generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kneekeeper.domain.manifests import value_at
from kneekeeper.kube.labels import LabelSelector, equality_selector, parse_selector
from kneekeeper.kube.resources import Resource

_GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_LEADER = "0"


@dataclass(frozen=True)
class Progress:
    """`max_unavailable`: pods that a rollout may take away before others are ready.

    `held_back` says why a rollout does not reach every pod by itself; it is empty where it does.
    `awaits_promotion` is true while a rollout stands still until a person or an analysis lets it go on.
    """

    max_unavailable: int
    held_back: str = ""
    awaits_promotion: bool = False


def progress_of(workload: Resource) -> Progress:
    """As the workload's own strategy has it."""
    spec, status = workload["spec"], workload.get("status") or {}
    replicas = replicas_of(spec)
    match workload.get("kind"):
        case "StatefulSet":
            return _of_stateful_set(spec, replicas)
        case "LeaderWorkerSet":
            return _of_leader_worker_set(spec, replicas)
        case "Rollout":
            return _of_rollout(spec, status, replicas)
        case _:
            strategy = spec.get("strategy") or {}
            if strategy.get("type") == "Recreate":
                return Progress(replicas)
            return Progress(_missing_at_most(strategy.get("rollingUpdate") or {}, replicas))


def replicas_of(spec: Mapping[str, Any]) -> int:
    """Left out, one."""
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def observed_generation(workload: Resource) -> int:
    """A controller that observes none is taken for up to date: the pods' own words tell better."""
    observed = (workload.get("status") or {}).get("observedGeneration")
    if observed is None and workload.get("kind") == "LeaderWorkerSet":
        return int(workload["metadata"].get("generation", 0))
    text = str(observed or 0)
    return int(text) if text.isdecimal() else 0


def selector_of(workload: Resource) -> LabelSelector:
    """Of the pods that answer requests: of a group, its leader."""
    if workload.get("kind") == "LeaderWorkerSet":
        return equality_selector({_GROUP_NAME: workload["metadata"]["name"], _WORKER_INDEX: _LEADER})
    return parse_selector(workload["spec"]["selector"])


def pods_per_replica(workload: Resource) -> int:
    """More than one where a replica is a group of pods."""
    size = value_at(workload, ("spec", "leaderWorkerTemplate", "size"))
    return int(size) if isinstance(size, int) else 1


def _of_stateful_set(spec: Mapping[str, Any], replicas: int) -> Progress:
    """Pods are replaced in place, one at a time unless the cluster allows more."""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        held = "its updateStrategy is OnDelete, so running pods keep the old words until a person deletes them"
        return Progress(replicas, held)
    rolling = strategy.get("rollingUpdate") or {}
    return Progress(max(1, _pods(rolling.get("maxUnavailable", 1), replicas, math.floor)), _partition(rolling))


def _of_leader_worker_set(spec: Mapping[str, Any], replicas: int) -> Progress:
    rolling = value_at(spec, ("rolloutStrategy", "rollingUpdateConfiguration")) or {}
    unavailable = _pods(rolling.get("maxUnavailable", 1), replicas, math.floor)
    surge = _pods(rolling.get("maxSurge", 0), replicas, math.ceil)
    return Progress(unavailable if unavailable or surge else 1, _partition(rolling))


def _partition(rolling: Mapping[str, Any]) -> str:
    partition = rolling.get("partition") or 0
    if not partition:
        return ""
    return f"its rolling update has partition {partition}, so replicas below {partition} keep the old words"


def _of_rollout(spec: Mapping[str, Any], status: Mapping[str, Any], replicas: int) -> Progress:
    strategy = spec.get("strategy") or {}
    awaits = bool(status.get("pauseConditions"))
    held = "it is paused" if spec.get("paused") else ""
    if strategy.get("blueGreen") is not None:
        return Progress(0, held, awaits)  # a whole second set stands before the first one goes
    return Progress(_missing_at_most(strategy.get("canary") or {}, replicas), held, awaits)


def _missing_at_most(rolling: Mapping[str, Any], replicas: int) -> int:
    """As the Deployment controller rounds it: where neither a surge nor a missing pod is left, one may be missing."""
    unavailable = _pods(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    surge = _pods(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    return unavailable if unavailable or surge else 1


def _pods(value: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    text = str(value)
    return rounded(int(text[:-1]) * replicas / 100) if text.endswith("%") else int(text)
