"""PodDisruptionBudgets that allow none of a workload's pods to go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import DISRUPTION_BUDGETS, Resource
from kneekeeper.kube.selectors import parse_pod_selector


async def read_exhausted_budgets(kube: Kube, namespace: str, pod_labels: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the budgets over pods with these labels that allow no disruption now. Raises KubeErrors."""
    return exhausted_budgets(await kube.list(DISRUPTION_BUDGETS, namespace), pod_labels)


def exhausted_budgets(budgets: Iterable[Resource], pod_labels: Mapping[str, str]) -> tuple[str, ...]:
    """The same of budgets at hand, sorted. Pure; one that its controller has not counted yet allows none."""
    found = []
    for budget in budgets:
        selector = parse_pod_selector(DISRUPTION_BUDGETS, budget)
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        if selector is not None and selector.selector.selects(pod_labels) and allowed < 1:
            found.append(str(budget["metadata"]["name"]))
    return tuple(sorted(found))
