"""A run for traffic that moved: by how much, for how long, and how often at most."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.observation import ProductionHistory
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.traffic_history import TrafficHistory
from tests.unit.plan.test_learned_workload import UNDECLARED
from tests.unit.plan.world import Effect, World
from tests.unit.test_observed_workload import days

HOUR_S = 3600.0
BEFORE, AFTER = 600.0, 900.0
SPEC = UNDECLARED | {"updatePolicy": {"mode": "Off"}, "retune": {"on": ["Traffic"], "minInterval": "6h"}}


def learn(world: World, prompt: float, count: int = 1000) -> None:
    """One tick in which the source tells of a day with prompts of this many tokens on average."""
    told = ProductionHistory((), TrafficHistory(days(1, count=count, prompt=prompt)))
    observed = replace(world.observe_profile(), history=told, history_read=True)
    world.profile = world.profile.with_changes(status=profile_plan.decide(observed).status)


class Swift(World):
    """The first run is a whole one; later ones end at once, with its outcome for the traffic that is known then."""

    fails = False

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        [first, *later] = self.runs
        run, observed = self.runs[name], self.profile.status.observed_workload
        measured = self.runs[first].status
        if not later or run.status.step == RunStep.DONE or observed is None or measured.plan is None:
            return super().tick_run(name, crash_after)
        plan = measured.plan.with_changes(
            profile_spec=measured.plan.profile_spec.with_changes(workload=observed.workload)
        )
        ended = measured.with_changes(plan=plan, started_at=self.now, finished_at=self.now)
        if self.fails:
            ended = ended.with_changes(outcome=RunOutcome.INCONCLUSIVE, cause="Throttled")
        self.runs[name] = run.with_changes(status=ended)
        return profile_plan.IDLE_TICK_S


@functools.cache
def _measured() -> World:
    world = Swift(spec=SPEC, spare_gpus=1)
    learn(world, BEFORE)
    world.settle()
    world.run_for(12 * HOUR_S)
    return world


@pytest.fixture
def world() -> Swift:
    """One whose setting was certified for prompts of BEFORE, half a day ago."""
    world = _measured().forked()
    assert isinstance(world, Swift)
    return world


def triggers(world: World) -> list[str]:
    return [r.trigger for r in world.profile.status.runs]


def probing(world: World) -> tuple[str, str]:
    found = find(world.profile.status.conditions, ConditionType.PROBING)
    assert found is not None
    return found.reason, found.message


def test_traffic_that_moved_and_stays_is_measured_and_the_reason_is_told(world: Swift):
    learn(world, AFTER)
    world.run_for(1.9 * HOUR_S)
    assert triggers(world) == ["New"]
    reason, message = probing(world)
    assert reason == "TrafficSettles"
    assert "instead of" in message
    world.run_for(0.3 * HOUR_S)
    assert triggers(world) == ["New", "Traffic"]
    told = [event.message for event in world.events if event.reason == "RunStarted"]
    assert "for another traffic: prompts have" in told[-1]
    world.run_for(600)
    assert world.profile.status.traffic_drift is None
    assert world.profile.status.recommendation is not None
    assert world.profile.status.recommendation.run == world.last_run.metadata["name"]
    world.run_for(18 * HOUR_S)
    assert triggers(world) == ["New", "Traffic"]


def test_the_same_traffic_learned_anew_starts_nothing(world: Swift):
    for _ in range(3):
        learn(world, BEFORE * 1.05)
        world.run_for(2 * HOUR_S)
    assert triggers(world) == ["New"]
    assert world.profile.status.traffic_drift is None


def test_a_drift_that_goes_back_before_it_has_settled_starts_nothing(world: Swift):
    learn(world, AFTER)
    world.run_for(HOUR_S)
    assert world.profile.status.traffic_drift is not None
    learn(world, BEFORE)
    world.run_for(4 * HOUR_S)
    assert triggers(world) == ["New"]
    assert world.profile.status.traffic_drift is None


def test_around_the_threshold_a_drift_goes_on_and_none_begins(world: Swift):
    between = 1.2 * BEFORE  # moved by 20% where 25% begins a drift and 12.5% ends it
    learn(world, between)
    world.tick()
    assert world.profile.status.traffic_drift is None
    learn(world, AFTER)
    world.tick()
    began = world.profile.status.traffic_drift
    assert began is not None
    world.run_for(HOUR_S)
    learn(world, between)
    world.tick()
    goes_on = world.profile.status.traffic_drift
    assert goes_on is not None
    assert goes_on.since == began.since
    assert goes_on.size_percent < 100 < began.size_percent


def test_traffic_that_swings_to_and_fro_is_followed_less_and_less_often(world: Swift):
    for swing in range(9):
        learn(world, BEFORE if swing % 2 else 2 * BEFORE)
        world.run_for(6 * HOUR_S)
    starts = [r.started_at for r in world.profile.status.runs if r.trigger == "Traffic"]
    pauses = [(b - a) / timedelta(hours=1) for a, b in pairwise(starts) if a is not None and b is not None]
    assert len(starts) == 3
    assert pauses[0] >= 12
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses))
    assert probing(world)[0] in ("CoolDown", "TrafficSettles", "Idle")


def test_few_requests_are_no_evidence(world: Swift):
    status = world.profile.status
    assert status.observed_workload is not None
    weak = status.observed_workload.with_changes(confidence="Low")
    world.profile = world.profile.with_changes(status=status.with_changes(observed_workload=weak))
    learn(world, AFTER, count=20)
    world.run_for(4 * HOUR_S)
    assert triggers(world) == ["New"]
    assert world.profile.status.traffic_drift is None


def test_without_the_trigger_nothing_is_compared(world: Swift):
    world.edit_profile(retune={"on": ["Image"], "minInterval": "6h"})
    learn(world, AFTER)
    world.run_for(4 * HOUR_S)
    assert triggers(world) == ["New"]
    assert world.profile.status.traffic_drift is None


def test_a_run_for_traffic_that_came_to_nothing_is_tried_again(world: Swift):
    world.fails = True
    learn(world, AFTER)
    world.run_for(4 * HOUR_S)
    assert triggers(world) == ["New", "Traffic"]
    assert world.profile.status.traffic_drift is not None
    world.fails = False
    world.run_for(12 * HOUR_S)
    assert triggers(world)[:3] == ["New", "Traffic", "Retry"]
    assert world.profile.status.traffic_drift is None
