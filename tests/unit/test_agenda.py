from __future__ import annotations

from dataclasses import dataclass

import pytest

from kneekeeper.handlers.agenda import JITTER, LONGEST_BACKOFF_S, SHORTEST_WAKE_S, Agenda, Key

PROFILE = Key("ServingProfile", "prod", "chat")
WORKLOAD = Key("Deployment", "prod", "chat")


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agenda(clock: Clock) -> Agenda:
    return Agenda(clock)


def look(agenda: Agenda, next_tick_s: float = 300.0) -> None:
    agenda.begins(PROFILE)
    agenda.done(PROFILE, next_tick_s)


def test_an_object_that_was_never_looked_at_is_due(agenda):
    assert agenda.is_due(PROFILE)


def test_after_a_look_it_is_due_a_little_before_the_time_that_was_asked_for(agenda, clock):
    look(agenda)
    clock.now_s += 300 * (1 - JITTER) - 1
    assert not agenda.is_due(PROFILE)
    clock.now_s += 300 * JITTER + 1
    assert agenda.is_due(PROFILE)


def test_a_change_makes_it_due_soon_but_not_at_once_after_a_look(agenda, clock):
    look(agenda)
    agenda.wake(PROFILE)
    assert not agenda.is_due(PROFILE)
    clock.now_s += SHORTEST_WAKE_S
    assert agenda.is_due(PROFILE)


def test_a_change_during_a_look_is_looked_at_after_it(agenda, clock):
    agenda.begins(PROFILE)
    agenda.wake(PROFILE)
    agenda.done(PROFILE, 300.0)
    clock.now_s += SHORTEST_WAKE_S
    assert agenda.is_due(PROFILE)


def test_a_change_before_a_look_is_seen_by_it(agenda, clock):
    agenda.wake(PROFILE)
    look(agenda)
    clock.now_s += SHORTEST_WAKE_S
    assert not agenda.is_due(PROFILE)


def test_failures_are_tried_again_later_and_later_up_to_a_bound(agenda):
    waits = [agenda.failed(PROFILE) for _ in range(10)]
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits[-1] == LONGEST_BACKOFF_S
    look(agenda)
    assert agenda.failed(PROFILE) == 1.0


def test_a_server_that_says_when_to_come_back_is_believed(agenda, clock):
    assert agenda.failed(PROFILE, 30.0) == 30.0
    clock.now_s += 29
    assert not agenda.is_due(PROFILE)


def test_the_same_facts_are_news_once(agenda):
    assert agenda.is_news(PROFILE, ("uid", 1))
    assert not agenda.is_news(PROFILE, ("uid", 1))
    assert agenda.is_news(PROFILE, ("uid", 2))


def test_an_object_made_anew_is_news(agenda):
    agenda.is_news(PROFILE, ("uid", 1))
    agenda.forget(PROFILE)
    assert agenda.is_news(PROFILE, ("uid", 1))


def test_a_workload_wakes_those_that_depend_on_it_until_they_are_gone(agenda, clock):
    assert not agenda.has_dependents(WORKLOAD)
    agenda.depends(PROFILE, on=WORKLOAD)
    assert agenda.has_dependents(WORKLOAD)
    look(agenda)
    clock.now_s += SHORTEST_WAKE_S
    agenda.wake_dependents(WORKLOAD)
    assert agenda.is_due(PROFILE)
    agenda.forget(PROFILE)
    assert not agenda.has_dependents(WORKLOAD)


def test_a_server_that_asks_for_little_each_time_is_still_asked_less_and_less(agenda):
    waits = [agenda.failed(PROFILE, 5.0) for _ in range(10)]
    assert waits[0] == 5.0
    assert waits[-1] == LONGEST_BACKOFF_S


def test_a_week_of_failures_is_tried_again_like_an_hour_of_them(agenda):
    waits = [agenda.failed(PROFILE) for _ in range(10_000)]
    assert waits[-1] == LONGEST_BACKOFF_S


def test_only_kept_objects_are_due_those_that_wait_longest_first(agenda, clock):
    other = PROFILE._replace(name="other")
    assert agenda.due() == []
    for key in (PROFILE, other):
        agenda.keep(key)
    agenda.begins(PROFILE)
    agenda.done(PROFILE, 300.0)
    assert agenda.due() == [other]
    clock.now_s += 300
    assert agenda.due() == [other, PROFILE]
    agenda.rest(other)
    assert agenda.due() == [PROFILE]
    agenda.forget(PROFILE)
    assert agenda.due() == []
