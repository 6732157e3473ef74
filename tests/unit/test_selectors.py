"""The proof that nothing in a namespace selects a clone."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.kube.children import clone_labels
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.labels import Operator, Requirement, equality_selector, parse_selector
from kneekeeper.kube.resources import DEPLOYMENTS, DISRUPTION_BUDGETS, POD_MONITORS, SERVICES, Kind
from kneekeeper.kube.selectors import (
    PodSelector,
    clone_is_selected,
    parse_pod_selector,
    reaches,
    read_selectors,
)

TEMPLATE_LABELS = {"app": "chat", "team": "ml"}
CLONE_LABELS = clone_labels("chat-1", TEMPLATE_LABELS, [])


def selecting(kind: Kind, selector: dict[str, Any] | None, name: str = "chat", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "prod"}, "spec": {"selector": selector, **spec}}


def test_what_selects_the_serving_pods_does_not_select_the_clone():
    service = parse_pod_selector(SERVICES, selecting(SERVICES, {"app": "chat"}))
    assert service is not None
    assert service.selector.selects(TEMPLATE_LABELS)
    assert clone_is_selected(CLONE_LABELS, [service]) == ()


def test_a_kept_label_that_is_selected_by_is_found_out():
    kept = clone_labels("chat-1", TEMPLATE_LABELS, ["app"])
    service = PodSelector("Service chat", equality_selector({"app": "chat"}))
    assert clone_is_selected(kept, [service]) == ("Service chat",)


def test_all_that_select_are_named_in_order():
    everything = parse_selector({})
    found = clone_is_selected({}, [PodSelector("b", everything), PodSelector("a", everything)])
    assert found == ("a", "b")


def test_a_service_without_selector_selects_nothing_a_budget_with_an_empty_one_everything():
    assert parse_pod_selector(SERVICES, selecting(SERVICES, {})) is None
    budget = parse_pod_selector(DISRUPTION_BUDGETS, selecting(DISRUPTION_BUDGETS, {}))
    assert budget is not None
    assert clone_is_selected(CLONE_LABELS, [budget]) == ("PodDisruptionBudget chat",)


def test_an_object_without_a_selector_selects_nothing():
    assert parse_pod_selector(DEPLOYMENTS, selecting(DEPLOYMENTS, None)) is None


@pytest.mark.parametrize(
    ("operator", "values", "labels", "selected"),
    [
        ("In", ["chat"], {"app": "chat"}, True),
        ("In", ["chat"], {"app": "other"}, False),
        ("In", ["chat"], {}, False),
        ("NotIn", ["chat"], {"app": "other"}, True),
        ("NotIn", ["chat"], {"app": "chat"}, False),
        ("NotIn", ["chat"], {}, True),
        ("Exists", None, {"app": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {}, True),
        ("DoesNotExist", None, {"app": ""}, False),
    ],
)
def test_expressions_mean_what_kubernetes_says(operator, values, labels, selected):
    expression = {"key": "app", "operator": operator, "values": values}
    assert parse_selector({"matchExpressions": [expression]}).selects(labels) is selected


def test_an_operator_that_kubernetes_does_not_know_is_an_error():
    with pytest.raises(ValueError, match="Like"):
        parse_selector({"matchExpressions": [{"key": "app", "operator": "Like"}]})


def test_a_selector_reads_as_a_query():
    selector = parse_selector(
        {
            "matchLabels": {"app": "chat"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["a", "b"]},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "app in (chat),tier notin (a,b),x,!y"


labels_drawn = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)


@given(labels_drawn, labels_drawn)
def test_equality_selects_exactly_what_holds_all_its_labels(selector, labels):
    assert equality_selector(selector).selects(labels) is (selector.items() <= labels.items())


@given(labels_drawn, st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), min_size=1))
def test_notin_is_the_opposite_of_in(labels, key, values):
    said_in = Requirement(key, Operator.IN, tuple(values)).holds(labels)
    assert Requirement(key, Operator.NOT_IN, tuple(values)).holds(labels) is not said_in


@pytest.mark.parametrize(
    ("where", "sees"),
    [(None, True), ({"any": True}, True), ({"matchNames": ["other"]}, False), ({"matchNames": ["prod"]}, True)],
)
def test_a_pod_monitor_looks_at_its_own_or_at_named_namespaces(where, sees):
    monitor = selecting(POD_MONITORS, {}, namespaceSelector=where)
    assert reaches(monitor, "prod") is sees


class Cluster:
    """Lists objects by kind; a kind may also be an error."""

    def __init__(self, answers: dict[Kind, list[dict[str, Any]] | Exception]) -> None:
        self.answers = answers

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[dict[str, Any]]:
        answer = self.answers.get(kind, [])
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_kinds_that_may_not_be_read_are_unknown_and_absent_kinds_select_nothing():
    cluster = Cluster(
        {
            SERVICES: [selecting(SERVICES, {"app": "chat"})],
            DISRUPTION_BUDGETS: Forbidden("no"),
            POD_MONITORS: NotFound("no such kind"),
        }
    )
    selectors = await read_selectors(cast(Kube, cluster), "prod")
    assert [each.name for each in selectors.known] == ["Service chat"]
    assert selectors.unknown == ("PodDisruptionBudget",)


async def test_pod_monitors_of_other_namespaces_count_only_where_they_look_here():
    here = selecting(POD_MONITORS, {}, "here", namespaceSelector={"any": True})
    there = selecting(POD_MONITORS, {}, "there", namespaceSelector={"matchNames": ["other"]})
    selectors = await read_selectors(cast(Kube, Cluster({POD_MONITORS: [here, there]})), "prod")
    assert clone_is_selected(CLONE_LABELS, selectors.known) == ("PodMonitor here",)
