"""Events tell people once for each change of state."""

from __future__ import annotations

from datetime import UTC, datetime

from kneekeeper.actuate.events import build_event
from kneekeeper.domain.actions import EmitEvent, EventType
from kneekeeper.kube.resources import SERVING_PROFILES, Resource

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
METADATA = {"name": "chat", "namespace": "prod", "uid": "uid-1", "resourceVersion": "5"}


def event(message: str = "text", reason: str = "Applied", version: str = "5") -> Resource:
    action = EmitEvent(EventType.WARNING, reason, message)
    return build_event(SERVING_PROFILES, METADATA | {"resourceVersion": version}, action, "operator-0", NOW)


def test_an_event_tells_who_what_and_about_what():
    made = event()
    assert (made["type"], made["reason"], made["note"]) == ("Warning", "Applied", "text")
    assert made["regarding"]["kind"] == "ServingProfile"
    assert made["regarding"]["uid"] == "uid-1"
    assert made["reportingController"] == "kneekeeper.io/kneekeeper"
    assert made["reportingInstance"] == "operator-0"
    assert made["eventTime"] == "2026-01-02T03:04:05.678901Z"


def test_the_same_tick_done_twice_tells_once():
    assert event()["metadata"]["name"] == event()["metadata"]["name"]


def test_another_change_is_another_event():
    names = {
        event()["metadata"]["name"],
        event(version="6")["metadata"]["name"],
        event(message="else")["metadata"]["name"],
        event(reason="Drifted")["metadata"]["name"],
    }
    assert len(names) == 4


def test_a_note_is_cut_to_what_an_event_may_hold_and_tells_no_secret():
    assert len(event("x" * 5000)["note"]) == 1024
    assert "verysecret" not in event("started with --api-key verysecret")["note"]
