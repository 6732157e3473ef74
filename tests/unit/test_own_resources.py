"""Stored objects of another version: what says nothing to this one is passed over, what is a wish is not."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.observe.own_resources import UnreadableResource, parse_profile, parse_profile_status, parse_run
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
