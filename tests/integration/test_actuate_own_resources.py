"""Runs, events and statuses at a real API server: done twice they are done once."""

from __future__ import annotations

import pytest

from kneekeeper.actuate.apply import ActionsFailed
from kneekeeper.actuate.status import write_status
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.tuning_run import Trigger
from kneekeeper.domain.actions import CreateRun, DeleteRun, EmitEvent, EventType
from kneekeeper.kube.errors import Conflict
from kneekeeper.kube.resources import EVENTS, SERVING_PROFILES, TUNING_RUNS
from kneekeeper.observe.own_resources import parse_profile, parse_run
from tests.unit.kube_objects import tuning_run


async def test_a_run_is_made_once_with_its_finalizer_and_its_owner(place):
    for _ in range(2):
        await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))
    run = await place.get(TUNING_RUNS, "chat-2")
    assert run["metadata"]["finalizers"] == ["kneekeeper.io/finalizer"]
    [owner] = run["metadata"]["ownerReferences"]
    assert owner["uid"] == place.profile["metadata"]["uid"]
    assert owner["blockOwnerDeletion"] is True
    assert run["spec"] == {"profileName": "chat", "trigger": "New"}


async def test_a_run_of_that_name_made_by_hand_is_not_taken_over(place):
    with pytest.raises(ActionsFailed, match="not of this owner"):
        await place.do_for_profile(CreateRun("chat-1", Trigger.NEW))


async def test_a_run_is_deleted_once_and_waits_for_its_finalizer(place):
    await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))
    for _ in range(2):
        await place.do_for_profile(DeleteRun("chat-2"))
    assert "deletionTimestamp" in (await place.get(TUNING_RUNS, "chat-2"))["metadata"]
    await place.do_for_profile(DeleteRun("absent"))


async def test_an_event_is_told_once(place):
    action = EmitEvent(EventType.NORMAL, "RunStarted", "TuningRun chat-2 started.")
    for _ in range(2):
        await place.do_for_profile(action)
        await place.do(action)
    events = await place.kube.list(EVENTS, place.namespace)
    assert sorted(e["regarding"]["kind"] for e in events) == ["ServingProfile", "TuningRun"]


def told(stage: str) -> ServingProfileStatus:
    return ServingProfileStatus(stage=stage, observed_generation=1)


async def test_a_status_is_stored_and_an_equal_one_writes_nothing(place):
    stored = await write_status(place.kube, SERVING_PROFILES, place.profile, told("a"))
    again = await write_status(place.kube, SERVING_PROFILES, stored, told("a"))
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert parse_profile(await place.get(SERVING_PROFILES, "chat")).status == told("a")


async def test_a_status_decided_on_an_old_object_is_a_conflict_and_is_not_stored(place):
    await write_status(place.kube, SERVING_PROFILES, place.profile, told("a"))
    with pytest.raises(Conflict):
        await write_status(place.kube, SERVING_PROFILES, place.profile, told("b"))
    assert parse_profile(await place.get(SERVING_PROFILES, "chat")).status.stage == "a"


async def test_a_status_that_breaks_its_model_is_not_sent(place):
    broken = told("a").model_copy(update={"stage": "x" * 1000})
    with pytest.raises(ValueError, match="at most 64 characters"):
        await write_status(place.kube, SERVING_PROFILES, place.profile, broken)


async def test_a_whole_runs_status_survives_the_api_server(place):
    status = tuning_run().status
    stored = await write_status(place.kube, TUNING_RUNS, place.run, status)
    assert parse_run(stored).status == status
    assert await write_status(place.kube, TUNING_RUNS, stored, status) == stored
