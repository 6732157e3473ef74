"""Settings by the hour: each hour's own run, its setting written when it begins, and the other one afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import Workload
from kneekeeper.api.tuning_run import Certification, Choice, RunOutcome, RunStep, TuningRunStatus, Verdict
from kneekeeper.domain.observation import ViolationShare
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.run_end import ended
from tests.unit.plan.world import PROFILE_SPEC, START, Effect, World

HOUR_S = 3600.0
BEFORE_THE_HOUR_S = 900.0

DOCUMENTS: dict[str, Any] = {
    "promptTokens": {"distribution": "Fixed", "value": 1200},
    "outputTokens": {"distribution": "Fixed", "value": 20},
}
MORNING: dict[str, Any] = {"cron": "0 8 * * *", "timeZone": "Europe/Berlin", "duration": "4h", "workload": DOCUMENTS}
"""From 7:00 to 11:00 UTC in winter."""

DAY, AT_MORNING = (
    Setting(max_num_seqs=24, max_num_batched_tokens=1536),
    Setting(max_num_seqs=8, max_num_batched_tokens=512),
)
BEST = {None: DAY, 0: AT_MORNING}


@dataclass
class HourlyWorld(World):
    """Runs know the best setting of each entry as soon as their plan is frozen."""

    spec: dict[str, Any] = field(default_factory=lambda: PROFILE_SPEC | {"schedules": [MORNING]})
    best: Mapping[int | None, Setting] = field(default_factory=lambda: BEST)

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        run = self.runs[name]
        if run.status.plan is None or run.status.step in (RunStep.CLEAN_UP, RunStep.DONE):
            return super().tick_run(name, crash_after)
        self.runs[name] = run.with_changes(status=found(run.status, run.status.plan, self.best[run.spec.schedule]))
        return 1.0


def found(status: TuningRunStatus, plan: RunPlan, best: Setting) -> TuningRunStatus:
    """The status of a run that certified `best`, which is better than any other setting."""
    proven = Certification(
        attempt=1,
        setting=best,
        offered_requests_per_second=12,
        promised_requests_per_second=10,
        verdict=Verdict.PASS,
        requests=3000,
        misses=3,
    )
    choice = Choice(attempt=1, setting=best, sustainable_requests_per_second=13, bound_by=BoundBy.TPOT)
    status = status.with_changes(choices=[choice], certifications=[proven])
    if best == plan.present:
        return ended(status, RunOutcome.NO_IMPROVEMENT, "PresentIsBest", "It is the best that was found.")
    status = status.with_changes(present_breaks_slo=True, improvement_percent=20)
    return ended(status, RunOutcome.CERTIFIED, "Certified", "It is better.")


def two_mixes(**changes: Any) -> HourlyWorld:
    """A world before its first morning, with both questions answered and its own setting written."""
    spec = PROFILE_SPEC | {"schedules": [MORNING]} | changes.pop("spec", {})
    world = HourlyWorld(spec=spec, **changes)
    world.run_for(900)
    return world


def go_to(world: World, day: int, hour: float) -> None:
    """Looked at every few minutes around that hour, and not at all long before."""
    until = START + timedelta(days=day, hours=hour)
    world.now = max(world.now, until - timedelta(seconds=BEFORE_THE_HOUR_S))
    world.run_for((until - world.now).total_seconds())


def declared(world: World) -> list[str]:
    return list(world.args)[-2:]


def words(setting: Setting) -> list[str]:
    return [f"--max-num-seqs={setting.max_num_seqs}", f"--max-num-batched-tokens={setting.max_num_batched_tokens}"]


def reason(world: World, type_: ConditionType) -> str:
    told = find(world.profile.status.conditions, type_)
    return told.reason if told is not None else ""


def declared_at(world: World, day: int, hour: float) -> list[str]:
    go_to(world, day, hour)
    return declared(world)


def test_each_hours_traffic_has_a_run_and_a_certified_setting_of_its_own():
    world = two_mixes()
    status = world.profile.status
    assert [run.spec.schedule for run in world.runs.values()] == [None, 0]
    measured = [run.status.plan.profile_spec for run in world.runs.values() if run.status.plan is not None]
    assert [spec.workload for spec in measured] == [world.profile.spec.workload, Workload.model_validate(DOCUMENTS)]
    assert status.schedule is not None
    assert [(hours.entry, hours.setting) for hours in status.schedule.settings] == [(None, DAY), (0, AT_MORNING)]
    assert status.recommendation is not None
    assert status.recommendation.setting == DAY


def test_the_hours_that_are_now_are_measured_and_written_before_others_are_measured():
    world = HourlyWorld(now=START + timedelta(hours=8))
    world.run_until(lambda w: len(w.runs) == 2)
    assert [run.spec.schedule for run in world.runs.values()] == [0, None]
    assert world.profile.status.applied is not None
    assert declared(world) == words(AT_MORNING)
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def test_a_setting_is_written_at_its_hour_and_the_other_one_afterwards_for_weeks():
    world = two_mixes()
    for day in range(15):
        assert declared_at(world, day, 6.99) == words(DAY)
        assert declared_at(world, day, 7.01) == words(AT_MORNING)
        assert declared_at(world, day, 10.99) == words(AT_MORNING)
        assert declared_at(world, day, 11.01) == words(DAY)
    assert len(world.writes) == 2 * 15 + 1
    assert len(world.created_runs) == 2
    go_to(world, 15, 0)
    assert reason(world, ConditionType.READY) == "BelowTheKnee"
    assert not any(event.type == "Warning" for event in world.events)


def test_half_a_day_that_is_looked_at_whenever_asked_has_a_write_for_each_hour():
    world = two_mixes()
    world.run_for(12 * HOUR_S)
    assert len(world.writes) == 3
    assert declared(world) == words(DAY)


def test_status_tells_which_entry_is_in_force_since_when_and_until_when():
    world = two_mixes()
    go_to(world, 1, 6.99)
    go_to(world, 1, 7.2)
    schedule = world.profile.status.schedule
    assert schedule is not None
    assert schedule.entry == 0
    assert 0 <= (schedule.since - datetime(2026, 1, 2, 7, tzinfo=UTC)).total_seconds() < 5
    assert schedule.until == datetime(2026, 1, 2, 11, tzinfo=UTC)


def test_the_answers_for_all_hours_are_kept_however_few_runs_are():
    world = two_mixes(spec={"runHistoryLimit": 1})
    for day in range(1, 4):
        assert declared_at(world, day, 8) == words(AT_MORNING)
        assert declared_at(world, day, 12) == words(DAY)
    assert len(world.created_runs) == 2


def test_words_that_another_hand_writes_in_these_hours_stand_in_the_next_ones():
    world = two_mixes()
    go_to(world, 1, 8)
    writes = len(world.writes)
    world.set_args([*world.args[:-2], *words(DAY)], writer="alice")
    for day in range(1, 4):
        assert declared_at(world, day, 12) == words(DAY)
        assert declared_at(world, day + 1, 8) == words(DAY)
    assert len(world.writes) == writes
    assert reason(world, ConditionType.APPLIED) == "Reverted"
    assert len(world.created_runs) == 2


def test_a_controller_that_puts_the_words_back_has_each_hours_setting_once_and_no_more():
    world = two_mixes(reverting=True)
    for day in range(1, 4):
        go_to(world, day, 8)
        go_to(world, day, 12)
    assert len(world.writes) == 2
    assert declared(world) == world.original_args[-2:]


def test_a_person_who_asks_for_a_run_has_the_hours_settings_written_again():
    world = two_mixes()
    go_to(world, 1, 8)
    world.set_args(world.original_args, writer="alice")
    assert declared_at(world, 1, 9) == world.original_args[-2:]
    world.annotate("kneekeeper.io/retune", "please")
    assert declared_at(world, 1, 10) == words(AT_MORNING)
    assert declared_at(world, 1, 12) == words(DAY)
    assert declared_at(world, 2, 8) == words(AT_MORNING)


def test_an_operator_that_is_killed_again_and_again_at_the_hour_writes_once():
    world = two_mixes()
    go_to(world, 1, 6.999)
    writes = len(world.writes)
    for _ in range(8):
        world.now += timedelta(seconds=1)
        world.tick(crash_after=Effect.STATUS)
    world.run_for(600)
    assert len(world.writes) == writes + 1
    assert declared(world) == words(AT_MORNING)


def test_nothing_is_written_at_any_hour_without_consent():
    world = two_mixes(spec={"updatePolicy": {"mode": "Recommend"}})
    own = world.profile.status.recommendation
    go_to(world, 1, 8)
    morning = world.profile.status.recommendation
    assert world.writes == []
    assert own is not None
    assert morning is not None
    assert own.hash != morning.hash
    assert reason(world, ConditionType.APPLIED) == "AwaitsApproval"


def test_hours_in_which_what_stood_was_best_have_it_back():
    """The profile's own traffic gains nothing by a change; the mornings do, and what stood comes back after them."""
    present = Setting(max_num_seqs=4, max_num_batched_tokens=2048)
    world = two_mixes(best={None: present, 0: AT_MORNING})
    assert world.writes == []
    for day in range(1, 4):
        assert declared_at(world, day, 8) == words(AT_MORNING)
        assert declared_at(world, day, 12) == world.original_args[-2:]
    assert len(world.created_runs) == 2
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def test_a_gain_that_is_too_small_changes_nothing_at_its_hour():
    world = two_mixes(best={None: DAY, 0: DAY})
    go_to(world, 1, 8)
    assert [run.status.outcome for run in world.runs.values()] == [RunOutcome.CERTIFIED, RunOutcome.NO_IMPROVEMENT]
    assert len(world.writes) == 1
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def test_misses_that_were_counted_under_other_traffic_take_no_setting_back():
    world = two_mixes()
    world.violations = ViolationShare(0.0, 0.0, 2000, window_s=60)
    go_to(world, 1, 6.99)
    world.violations = ViolationShare(0.2, 0.3, 2000, window_s=60)  # the morning's traffic, whatever the setting
    assert declared_at(world, 1, 7.3) == words(AT_MORNING)
    assert declared_at(world, 1, 10) == words(AT_MORNING)
    assert world.profile.status.rejected == []


def test_a_setting_that_crashes_at_its_hour_is_taken_back_and_not_tried_again():
    world = two_mixes()
    go_to(world, 1, 6.99)
    world.run_until(lambda w: w.profile.status.rollout is not None)
    world.crashing_rollouts = True
    world.run_until(lambda w: declared(w) == words(DAY))
    world.crashing_rollouts = False
    assert declared_at(world, 1, 10) == words(DAY)
    writes = len(world.writes)
    assert declared_at(world, 2, 8) == words(DAY)
    assert len(world.writes) == writes
    assert reason(world, ConditionType.APPLIED) == "RolledBack"


def test_a_profile_without_its_schedule_any_more_goes_back_to_its_own_setting():
    world = two_mixes()
    go_to(world, 1, 8)
    world.edit_profile(schedules=[])
    assert declared_at(world, 1, 8.5) == words(DAY)
    assert world.profile.status.schedule is None
    assert len(world.created_runs) == 2


def test_a_profile_whose_entry_was_edited_measures_that_one_alone():
    world = two_mixes()
    other = {**MORNING, "workload": {**DOCUMENTS, "outputTokens": {"distribution": "Fixed", "value": 40}}}
    world.edit_profile(schedules=[other])
    world.run_for(900)
    assert [run.spec.schedule for run in world.runs.values()] == [None, 0, 0]


def test_entries_that_ask_the_same_share_a_run():
    evening = {**MORNING, "cron": "0 18 * * *"}
    world = two_mixes(spec={"schedules": [MORNING, evening]})
    assert declared_at(world, 1, 8) == words(AT_MORNING)
    assert declared_at(world, 1, 18) == words(AT_MORNING)
    assert len(world.created_runs) == 2


def test_a_run_goes_on_where_the_order_of_the_entries_changes():
    world = World(spec=PROFILE_SPEC | {"schedules": [MORNING]}, now=START + timedelta(hours=8))
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.CEILING)
    name = world.last_run.metadata["name"]
    world.edit_profile(schedules=[{"cron": "0 1 * * *", "duration": "1h", "parameters": {}}, MORNING])
    world.run_for(10)
    assert world.runs[name].status.outcome is None
    assert len(world.runs) == 1


def test_a_run_for_an_entry_that_is_gone_says_so():
    world = HourlyWorld(spare_gpus=0)
    world.run_for(60)
    [(name, run)] = world.runs.items()
    world.runs[name] = run.with_changes(spec=run.spec.with_changes(schedule=3))
    world.run_for(60)
    assert (world.runs[name].status.outcome, world.runs[name].status.cause) == (RunOutcome.FAILED, "ScheduleGone")


def test_an_image_is_measured_for_every_hour_again():
    world = two_mixes()
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.run_for(900)
    assert [run.spec.schedule for run in world.runs.values()] == [None, 0, None, 0]


def test_an_engine_that_changed_without_being_watched_is_measured_for_no_hour():
    world = two_mixes(spec={"retune": {"on": ["Model"]}})
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.run_for(900)
    assert len(world.runs) == 2


def test_an_idle_profile_is_looked_at_when_the_hour_begins():
    world = two_mixes()
    world.now = START + timedelta(hours=6, minutes=58)
    world.tick()
    assert world.tick() == 120
