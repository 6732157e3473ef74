"""The dashboard in the chart: off by default, an account that only reads, nothing that the operator's own may."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from tests.contract.chart_rendering import (
    CHART,
    NAMESPACE,
    NEWEST_KUBERNETES,
    OLDEST_KUBERNETES,
    of_kind,
    render,
    template,
)

VALUES: dict[str, dict[str, Any]] = {
    "cluster": {"dashboard": {"enabled": True}},
    "actions": {"dashboard": {"enabled": True, "actions": True}},
    "namespaced": {"dashboard": {"enabled": True}, "watchNamespaces": ["team-a", "team-b"]},
    "namespaced with actions": {"dashboard": {"enabled": True, "actions": True}, "watchNamespaces": ["team-a"]},
    "network policy": {"dashboard": {"enabled": True}, "networkPolicy": {"enabled": True}},
}
values_matrix = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())


def its_own(values: dict[str, Any], kube_version: str = NEWEST_KUBERNETES) -> list[dict[str, Any]]:
    """The objects of the dashboard alone."""
    objects = render(CHART, values, kube_version)
    return [item for item in objects if item["metadata"]["name"].endswith("-dashboard")]


def rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for kind in ("ClusterRole", "Role") for role in of_kind(objects, kind) for rule in role["rules"]]


def test_it_is_off_unless_asked_for():
    assert its_own({}) == []


@pytest.mark.parametrize("kube_version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
@values_matrix
def test_every_object_is_valid(values: dict[str, Any], kube_version: str):
    objects = its_own(values, kube_version)
    assert len(objects) >= 5
    for item in objects:
        kubernetes_validate.validate(item, kube_version, strict=True)


@values_matrix
def test_its_account_only_reads_profiles_runs_and_events(values: dict[str, Any]):
    granted = {
        (resource, verb) for rule in rules(its_own(values)) for resource in rule["resources"] for verb in rule["verbs"]
    }
    reads = {("servingprofiles", v) for v in ("get", "list", "watch")} | {
        ("tuningruns", v) for v in ("get", "list", "watch")
    }
    reads |= {("events", "list"), ("events", "watch")}
    reviews = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    assert granted == (reads | reviews if values["dashboard"].get("actions") else reads)


@values_matrix
def test_its_roles_are_bound_to_its_account_alone(values: dict[str, Any]):
    objects = its_own(values)
    (account,) = of_kind(objects, "ServiceAccount")
    for kind in ("Role", "ClusterRole"):
        roles = {(role["metadata"]["name"], role["metadata"].get("namespace")) for role in of_kind(objects, kind)}
        bindings = of_kind(objects, f"{kind}Binding")
        assert {(b["roleRef"]["name"], b["metadata"].get("namespace")) for b in bindings} == roles
        for binding in bindings:
            assert binding["subjects"] == [
                {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": NAMESPACE}
            ]


@values_matrix
def test_its_pod_is_restricted_and_runs_as_its_account(values: dict[str, Any]):
    objects = its_own(values)
    (deployment,) = of_kind(objects, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == of_kind(objects, "ServiceAccount")[0]["metadata"]["name"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["enableServiceLinks"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert ("--actions" in container["args"]) == values["dashboard"].get("actions", False)
    asked = [f"--namespace={name}" for name in values.get("watchNamespaces", [])]
    assert [word for word in container["args"] if word.startswith("--namespace")] == asked


@values_matrix
def test_its_service_selects_its_pods_and_not_the_operators(values: dict[str, Any]):
    objects = render(CHART, values)
    (service,) = [item for item in of_kind(objects, "Service") if item["metadata"]["name"].endswith("-dashboard")]
    wanted = service["spec"]["selector"].items()
    for deployment in of_kind(objects, "Deployment"):
        selected = wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert selected == deployment["metadata"]["name"].endswith("-dashboard")


@pytest.mark.parametrize("values", [{"replicas": 0}, {"host": "example.com"}, {"actions": "yes"}])
def test_nonsense_is_refused(values: dict[str, Any]):
    assert template(CHART, {"dashboard": values}).returncode != 0
