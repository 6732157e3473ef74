"""What in a namespace could select a pod with given labels: the proof that a clone gets no user traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.labels import LabelSelector, equality_selector, parse_selector
from kneekeeper.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INFERENCE_POOLS,
    POD_MONITORS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
    Resource,
)

_IN_THE_NAMESPACE = (
    SERVICES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    DISRUPTION_BUDGETS,
    INFERENCE_POOLS,
)


@dataclass(frozen=True)
class PodSelector:
    """One object that selects pods, named for people as "Service chat"."""

    name: str
    selector: LabelSelector


@dataclass(frozen=True)
class Selectors:
    """All that could be read; `unknown` names the kinds that could not, so that nothing is proven of them."""

    known: tuple[PodSelector, ...]
    unknown: tuple[str, ...] = ()


def clone_is_selected(labels: Mapping[str, str], selectors: Iterable[PodSelector]) -> tuple[str, ...]:
    """The names of all that would select a pod with these labels, sorted."""
    return tuple(sorted(each.name for each in selectors if each.selector.selects(labels)))


def parse_pod_selector(kind: Kind, resource: Resource) -> PodSelector | None:
    """The object's selector of pods; None where it has none and so selects nothing by itself."""
    name = f"{kind.name} {resource['metadata']['name']}"
    selector = (resource.get("spec") or {}).get("selector")
    if kind == SERVICES:
        # A Service without a selector has endpoints that somebody else writes.
        return PodSelector(name, equality_selector(selector)) if selector else None
    if selector is None:
        return None
    return PodSelector(name, parse_selector(selector))


def reaches(pod_monitor: Resource, namespace: str) -> bool:
    """Whether a PodMonitor looks at pods of the namespace."""
    where = (pod_monitor.get("spec") or {}).get("namespaceSelector") or {}
    if where.get("any"):
        return True
    names = where.get("matchNames") or [pod_monitor["metadata"]["namespace"]]
    return namespace in names


async def read_selectors(kube: Kube, namespace: str) -> Selectors:
    """All selectors of pods that reach into the namespace.

    PodMonitors are read from the whole cluster, since they may stand anywhere. A kind that may not be read
    is unknown; one that the cluster does not have (404) selects nothing.
    """
    known: list[PodSelector] = []
    unknown: list[str] = []
    for kind, where in [*((kind, namespace) for kind in _IN_THE_NAMESPACE), (POD_MONITORS, "")]:
        try:
            resources = await kube.list(kind, where)
        except NotFound:
            continue
        except Forbidden:
            unknown.append(kind.name)
            continue
        for resource in resources:
            if kind == POD_MONITORS and not reaches(resource, namespace):
                continue
            found = parse_pod_selector(kind, resource)
            if found is not None:
                known.append(found)
    return Selectors(tuple(known), tuple(unknown))
