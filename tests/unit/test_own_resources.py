"""Stored objects of another version: what says nothing to this one is passed over, what is a wish is not."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, cast

import pytest

from kneekeeper.api.crds import KINDS, definition
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import Kind
from kneekeeper.observe.own_resources import (
    UnreadableResource,
    parse_profile,
    parse_profile_status,
    parse_run,
    read_runs_of,
    readable_conditions,
)
from tests.crd_cases import FULL_SPEC
from tests.schema_samples import sample
from tests.unit.kube_objects import PROFILE_SPEC

LATER = {"later": {"deep": [1, 2]}}


def profile(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    return {"metadata": {"name": "chat"} | metadata, "spec": PROFILE_SPEC | (spec or {}), "status": status or {}}


def test_what_a_later_version_put_into_a_status_is_passed_over_wherever_it_stands():
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    stored = profile(
        status={"stage": "Ramp", "conditions": [condition, condition | {"type": "Applied"} | LATER]} | LATER
    )
    told = parse_profile(stored).status
    assert told.stage == "Ramp"
    assert [each.type for each in told.conditions] == ["Ready", "Applied"]
    assert "later" in stored["status"]


def test_a_wish_that_is_not_understood_is_refused_with_its_place_though_the_status_is_read():
    stored = profile({"slo": {"p99TPOT": "40ms"} | LATER}, {"stage": "Ramp"})
    with pytest.raises(UnreadableResource, match=r"ServingProfile chat .*spec\.slo\.later"):
        parse_profile(stored)
    status = parse_profile_status(stored)
    assert status is not None
    assert status.stage == "Ramp"


def test_a_status_with_a_value_of_a_later_version_is_not_read_in_part():
    stored = {"metadata": {"name": "chat-1"}, "spec": {"profileName": "chat"}, "status": {"step": "Later"} | LATER}
    with pytest.raises(UnreadableResource, match=r"status\.step"):
        parse_run(stored)
    assert parse_profile_status(profile(status={"runs": [{"name": 3}]})) is None


def test_of_an_object_that_is_being_deleted_what_is_not_understood_is_no_wish_any_more():
    stored = profile({"deletionPolicy": "Restore"} | LATER, deletionTimestamp="2026-01-01T00:00:00Z")
    assert parse_profile(stored).spec.deletion_policy == "Restore"


GOING = "2026-01-01T00:00:00Z"
SCHEMAS = {
    kind.short_name: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for kind in KINDS
}


def enums_in(schema: dict[str, Any], value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a value of this object is one of a few that are known."""
    if "enum" in schema:
        yield path
    elif isinstance(value, dict) and "properties" in schema:
        for key, child in value.items():
            yield from enums_in(schema["properties"][key], child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from enums_in(schema["items"], child, (*path, index))


def stored_with_all(short_name: str) -> dict[str, Any]:
    """An object with everything that this version knows in its status; it is being deleted."""
    given = {"profileSpec": FULL_SPEC, "workload": FULL_SPEC["workload"]}
    status = sample(SCHEMAS[short_name]["status"], given=given)
    if short_name == "sp":
        # No traffic is learned as several distributions at once, as the sample has it.
        status["observedWorkload"]["workload"] = FULL_SPEC["workload"]
    spec = FULL_SPEC if short_name == "sp" else {"profileName": "chat"}
    return {"metadata": {"name": "chat", "deletionTimestamp": GOING}, "spec": spec, "status": status}


@pytest.mark.parametrize("short_name", ["sp", "tr"])
def test_no_value_of_a_later_version_keeps_an_object_that_is_being_deleted(short_name: str):
    whole, parse = stored_with_all(short_name), parse_profile if short_name == "sp" else parse_run
    places = [
        place for part in ("spec", "status") for place in enums_in(SCHEMAS[short_name][part], whole[part], (part,))
    ]
    assert len(places) > 10
    for place in places:
        changed: Any = deepcopy(whole)
        holder = changed
        for step in place[:-1]:
            holder = holder[step]
        holder[place[-1]] = "Later"
        assert parse(changed).metadata["name"] == "chat", place


def test_what_can_be_given_back_is_known_though_the_step_of_a_run_that_goes_is_not():
    stored = stored_with_all("tr")
    known = parse_run(stored).status
    stored["status"] |= {"step": "Later", "outcome": "Later"}
    status = parse_run(stored).status
    assert known.borrowed is not None
    assert (status.plan, status.borrowed, status.outcome) == (known.plan, known.borrowed, None)


def test_a_profile_that_goes_is_let_go_though_nothing_of_its_spec_is_understood():
    stored = {"metadata": {"name": "chat", "deletionTimestamp": GOING}, "spec": {"later": 1}, "status": {"stage": "R"}}
    assert parse_profile(stored).status.stage == "R"


async def test_runs_of_a_profile_that_goes_are_known_by_name_though_they_are_of_a_later_version():
    metadata = {"name": "chat-1", "creationTimestamp": GOING}
    run = {"metadata": metadata, "spec": {"profileName": "chat"}, "status": {"step": "Later"}}

    class Store:
        async def read_json(self, path: str, query: dict[str, str]) -> dict[str, Any]:
            return {"items": [run], "metadata": {}}

        async def list(self, kind: Kind, namespace: str) -> list[dict[str, Any]]:
            return [run]

    kube = cast(Kube, Store())
    [found] = await read_runs_of(kube, "n", "chat", are_going=True)
    assert found.metadata["name"] == "chat-1"
    with pytest.raises(UnreadableResource, match=r"status\.step"):
        await read_runs_of(kube, "n", "chat")


def test_conditions_of_a_status_that_is_not_readable_are_read_one_by_one():
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": GOING}
    stored = profile(status={"conditions": [condition, condition | {"type": "Later", "status": "Perhaps"}]})
    assert [each.type for each in readable_conditions(stored)] == ["Ready"]
