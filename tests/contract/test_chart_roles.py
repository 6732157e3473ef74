"""The roles that the chart gives: no more than named, and the same for all namespaces and for some."""

from __future__ import annotations

from typing import Any

from tests.contract.chart_rendering import CHART, NAMESPACE, VALUES, of_kind, render, rules, values_matrix


@values_matrix
def test_no_rule_has_a_wildcard(values):
    for rule in rules(render(CHART, values)):
        assert "*" not in str(rule)
        assert rule["verbs"]


@values_matrix
def test_secrets_are_never_listed_and_pods_never_entered(values):
    for rule in rules(render(CHART, values)):
        if "secrets" in rule["resources"]:
            assert not {"list", "watch", "update", "patch"} & set(rule["verbs"])
        assert not {"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"} & set(rule["resources"])
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_watched_namespaces_get_a_role_each_and_the_cluster_only_reads():
    objects = render(CHART, {"watchNamespaces": ["team-a", "team-b"]})
    assert {role["metadata"]["namespace"] for role in of_kind(objects, "Role")} == {
        "team-a",
        "team-b",
        NAMESPACE,
    }
    cluster = [rule for role in of_kind(objects, "ClusterRole") for rule in role["rules"]]
    read = {resource for rule in cluster for resource in rule["resources"]}
    assert read == {"nodes", "pods", "podmonitors", "clusterservingruntimes"}
    assert {verb for rule in cluster for verb in rule["verbs"]} == {"get", "list"}


def test_without_cluster_reads_watched_namespaces_need_nothing_of_the_cluster():
    objects = render(CHART, VALUES["namespaced without cluster reads"])
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")


def test_watched_namespaces_give_the_same_rules_as_the_whole_cluster():
    def namespaced_rules(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
        roles = [role for role in of_kind(objects, kind) if "self" not in role["metadata"]["name"]]
        return list(roles[0]["rules"])

    role = namespaced_rules(render(CHART, {"watchNamespaces": ["team-a"]}), "Role")
    cluster_role = namespaced_rules(render(CHART), "ClusterRole")
    assert [rule for rule in cluster_role if rule in role] == role


@values_matrix
def test_every_role_is_bound_to_the_operator(values):
    objects = render(CHART, values)
    for kind in ("Role", "ClusterRole"):
        places = {(role["metadata"]["name"], role["metadata"].get("namespace")) for role in of_kind(objects, kind)}
        bindings = of_kind(objects, f"{kind}Binding")
        assert {(b["roleRef"]["name"], b["metadata"].get("namespace")) for b in bindings} == places
        account = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["serviceAccountName"]
        for binding in bindings:
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
