"""Which pods are a run's load agents: the live one of each number, stages being ordered from number 0."""

from __future__ import annotations

from typing import Any

from kneekeeper.observe.run_reads import ANNOTATION_INDEX, live_agents
from tests.unit.kube_objects import pod


def agent(name: str, number: int | None, *, created: str = "2026-01-01T00:00:00Z", **status: Any) -> dict[str, Any]:
    made = pod(name, **status)
    made["metadata"]["creationTimestamp"] = created
    if number is not None:
        made["metadata"]["annotations"] = {ANNOTATION_INDEX: str(number)}
    return made


def names(*pods: dict[str, Any]) -> dict[int, str]:
    return {number: view.name for number, view in live_agents(list(pods)).items()}


def test_agents_are_known_by_their_number_in_whatever_order_they_are_listed():
    assert names(agent("c", 2), agent("a", 0), agent("b", 1)) == {0: "a", 1: "b", 2: "c"}


def test_the_pod_of_a_job_without_numbers_is_the_first_agent():
    assert names(agent("a", None)) == {0: "a"}


def test_a_successor_takes_the_number_of_the_agent_that_was_lost():
    lost = agent("a", 1, phase="Failed")
    assert names(lost, agent("b", 1, created="2026-01-01T00:05:00Z"), agent("first", 0)) == {0: "first", 1: "b"}


def test_of_two_live_pods_of_one_number_the_ready_one_counts_else_the_newer():
    waiting: dict[str, Any] = {"phase": "Pending", "conditions": []}
    newer = agent("newer", 0, created="2026-01-01T00:05:00Z", **waiting)
    assert names(newer, agent("ready", 0)) == {0: "ready"}
    assert names(newer, agent("older", 0, **waiting)) == {0: "newer"}


def test_one_that_is_being_deleted_is_none():
    leaving = agent("a", 0)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
    assert names(leaving, agent("b", 1)) == {1: "b"}
