"""Which objects are looked at, and when; ticks are recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from kneekeeper.handlers import beats as module
from kneekeeper.handlers.agenda import SHORTEST_WAKE_S, Key
from kneekeeper.handlers.beats import CONFLICT_RETRY_S, MOST_LOOKS, MOST_PROFILE_LOOKS, Beats
from kneekeeper.handlers.ticks import GONE, PROFILE, RUN, TickResult
from kneekeeper.kube.errors import Conflict, ServerTrouble

CHAT, CHAT_RUN = Key(PROFILE, "prod", "chat"), Key(RUN, "prod", "chat-1")
WORKLOAD = Key("Deployment", "prod", "chat")
SPEC = {"targetRef": {"kind": "Deployment", "name": "chat"}}
RUN_SPEC = {"profileName": "chat"}


@dataclass
class Place:
    """What ticks answer, and which were asked for."""

    beats: Beats
    now_s: float = 1000.0
    answer: Any = None
    ticked: list[Key] = field(default_factory=list)

    async def tick(self, to: Any, key: Key, runs_ahead: int = 0) -> TickResult:
        self.ticked.append(key)
        if isinstance(self.answer, Exception):
            raise self.answer
        result: TickResult = self.answer or TickResult(300.0, release=False)
        return result

    async def look_at_due(self) -> list[Key]:
        """Those that were due."""
        due = self.beats.agenda.due()
        for key in due:
            await self.beats.look(key)
        return due


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(Beats(lambda: made.now_s))
    made.beats.connections = object()  # type: ignore[assignment]  # the ticks are recorded
    monkeypatch.setattr(module, "tick", made.tick)
    return made


def told(beats: Beats, generation: int = 1, **metadata: Any) -> None:
    beats.profile_told(CHAT, SPEC, {"uid": "u", "generation": generation, **metadata})


async def test_a_profile_is_looked_at_when_it_is_there_and_then_when_it_is_due(place: Place):
    assert await place.look_at_due() == []
    told(place.beats)
    assert await place.look_at_due() == [CHAT]
    assert await place.look_at_due() == []
    place.now_s += 300
    assert await place.look_at_due() == [CHAT]


async def test_a_status_write_wakes_nobody_and_an_edit_does(place: Place):
    told(place.beats)
    await place.look_at_due()
    place.now_s += SHORTEST_WAKE_S
    told(place.beats)
    assert place.beats.agenda.due() == []
    told(place.beats, generation=2)
    assert place.beats.agenda.due() == [CHAT]


async def test_what_is_being_deleted_is_released_and_not_looked_at(place: Place):
    told(place.beats, deletionTimestamp="now")
    assert place.beats.agenda.due() == []
    place.answer = TickResult(1.0, release=False)
    kept = await place.beats.release(CHAT)
    assert kept is not None
    assert kept.retry_s == 1.0
    place.answer = TickResult(1.0, release=True)
    assert await place.beats.release(CHAT) is None


async def test_an_object_that_is_gone_without_a_word_is_forgotten(place: Place):
    told(place.beats)
    place.answer = GONE
    await place.look_at_due()
    place.now_s += 3600
    assert place.beats.agenda.due() == []


async def test_a_run_that_is_over_is_not_looked_at_and_its_end_wakes_its_profile(place: Place):
    told(place.beats)
    place.beats.run_told(CHAT_RUN, RUN_SPEC, {"step": "Ramp"}, {"generation": 1})
    await place.look_at_due()
    place.now_s += SHORTEST_WAKE_S
    place.beats.run_told(CHAT_RUN, RUN_SPEC, {"step": "Done", "finishedAt": "now"}, {"generation": 1})
    assert place.beats.agenda.due() == [CHAT]


async def test_a_rollout_of_its_workload_wakes_a_profile_once(place: Place):
    told(place.beats)
    await place.look_at_due()
    looked = []
    for _ in range(2):
        place.now_s += SHORTEST_WAKE_S
        place.beats.workload_told(WORKLOAD, {"uid": "w", "generation": 2}, {"readyReplicas": 1}, is_gone=False)
        looked.append(await place.look_at_due())
    assert looked == [[CHAT], []]


@pytest.mark.parametrize(
    ("error", "wait_s"), [(Conflict("x"), CONFLICT_RETRY_S), (ServerTrouble("x", 7.0), 7.0), (KeyError("a bug"), 1.0)]
)
async def test_a_failed_look_is_done_again_after_its_time(place: Place, error: Exception, wait_s: float):
    told(place.beats)
    place.answer = error
    assert await place.look_at_due() == [CHAT]
    place.now_s += 0.8 * wait_s
    assert await place.look_at_due() == []
    place.now_s += 0.2 * wait_s
    assert await place.look_at_due() == [CHAT]


async def test_a_bounded_number_is_looked_at_at_once_and_runs_have_places_of_their_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    begun: list[Key] = []

    async def tick(to: Any, key: Key, runs_ahead: int) -> TickResult:
        begun.append(key)
        await asyncio.Event().wait()
        return GONE

    monkeypatch.setattr(module, "tick", tick)
    monkeypatch.setattr(module, "BEAT_S", 0.0)
    for number in range(2 * MOST_LOOKS):
        key = CHAT._replace(name=f"p-{number:02}")
        place.beats.profile_told(key, SPEC, {"generation": 1})
    running = asyncio.create_task(place.beats.run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(begun) == MOST_PROFILE_LOOKS, "the other places are for runs"
    for number in range(2 * MOST_LOOKS):
        place.beats.run_told(CHAT_RUN._replace(name=f"r-{number:02}"), RUN_SPEC, {}, {"generation": 1})
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(begun) == MOST_LOOKS
    assert {key.kind for key in begun[MOST_PROFILE_LOOKS:]} == {RUN}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_nothing_is_remembered_of_what_is_gone(place: Place):
    empty = memory_of(place.beats)
    told(place.beats)
    place.beats.run_told(CHAT_RUN, RUN_SPEC, {"step": "Ramp"}, {"generation": 1})
    await place.look_at_due()
    place.beats.workload_told(WORKLOAD, {"uid": "w", "generation": 2}, {"readyReplicas": 1}, is_gone=False)
    assert memory_of(place.beats) != empty
    place.beats.forget(CHAT)
    place.beats.run_gone(CHAT_RUN, RUN_SPEC)
    assert memory_of(place.beats) == empty


@pytest.mark.parametrize("answer", [None, GONE, Conflict("x"), ServerTrouble("x", 7.0), KeyError("a bug")], ids=repr)
async def test_nothing_is_remembered_of_what_goes_during_a_look(
    place: Place, answer: Any, monkeypatch: pytest.MonkeyPatch
):
    async def tick(to: Any, key: Key, runs_ahead: int) -> TickResult:
        place.beats.forget(key)
        return await place.tick(to, key, runs_ahead)

    monkeypatch.setattr(module, "tick", tick)
    empty = memory_of(place.beats)
    told(place.beats)
    place.answer = TickResult(300.0, release=False, generation=1) if answer is None else answer
    await place.look_at_due()
    assert memory_of(place.beats) == empty
    place.now_s += 3600
    assert not place.beats.hearing.is_deaf()


async def test_what_is_made_anew_during_a_look_is_looked_at_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    async def tick(to: Any, key: Key, runs_ahead: int) -> TickResult:
        place.beats.forget(key)
        told(place.beats, uid="another")
        return await place.tick(to, key, runs_ahead)

    monkeypatch.setattr(module, "tick", tick)
    told(place.beats)
    await place.look_at_due()
    place.now_s += SHORTEST_WAKE_S
    assert await place.look_at_due() == [CHAT]


def memory_of(beats: Beats) -> str:
    """All that it holds of objects."""
    return repr([vars(beats.agenda), vars(beats.hearing), vars(beats.queue)])
