"""With live tuning the present setting is compared without a restart; wherever it does not work, by one."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.api.tuning_run import RunOutcome, RunStep, StageKind, StageSummary
from kneekeeper.domain.arguments import Completeness, Content, Environment
from kneekeeper.domain.observation import Unreachable
from kneekeeper.domain.plan import run_live
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.livetune.limits import Refusal
from kneekeeper.livetune.messages import PROTOCOL
from kneekeeper.livetune.messages import Report as LiveReport
from tests.unit.plan.world import PROFILE_SPEC, Effect, World, at_step

PRESENT = Setting(max_num_seqs=4, max_num_batched_tokens=256)
ARGS = ["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=256"]
ALLOWED = PROFILE_SPEC | {"probe": {"liveTuning": "Allowed"}}


def at_baseline(spec: dict[str, Any] = ALLOWED, args: list[str] = ARGS) -> World:
    return at_step(RunStep.BASELINE, spec=spec, args=args)


def to_the_end(world: World) -> World:
    world.run_until(lambda w: w.last_run.status.step == RunStep.DONE)
    return world


def told(world: World) -> tuple[ConditionStatus, str] | None:
    condition = find(world.last_run.status.conditions, ConditionType.LIVE_TUNING)
    return None if condition is None else (condition.status, condition.reason)


def of_kind(world: World, kind: StageKind) -> list[StageSummary]:
    return [stage for stage in world.last_run.status.stages if stage.kind == kind]


def test_the_present_setting_is_compared_on_the_certified_engine_and_one_start_is_saved():
    with_it, without = to_the_end(at_baseline()), to_the_end(at_baseline(PROFILE_SPEC))
    assert with_it.last_run.status.outcome == without.last_run.status.outcome == RunOutcome.CERTIFIED
    assert with_it.last_run.status.cost.engine_starts == without.last_run.status.cost.engine_starts - 1
    [baseline] = of_kind(with_it, StageKind.BASELINE)
    assert baseline.setting == PRESENT
    assert told(with_it) == (ConditionStatus.TRUE, run_live.SET_LIVE)
    assert told(without) is None


def test_the_choice_is_certified_on_an_engine_that_was_started_with_it():
    world = at_baseline()
    status = world.last_run.status
    assert status.clone is not None
    assert world.clones[status.clone.start].setting == status.certifications[-1].setting == status.clone.setting
    assert world.clones[status.clone.start].live is None


def test_where_it_is_not_allowed_nothing_is_delivered():
    assert all(not clone.delivered for clone in at_baseline(PROFILE_SPEC).clones.values())
    assert all(clone.delivered for clone in at_baseline().clones.values())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Unreachable("the live-tuning plugin does not answer: ConnectError"), run_live.NO_ANSWER),
        (LiveReport(PROTOCOL, "0.99.0", unsupported=Refusal("UnsupportedVersion", "Not known.")), "UnsupportedVersion"),
    ],
)
def test_a_plugin_that_is_missing_or_does_not_know_the_engine_costs_a_restart_and_is_told(
    fault: LiveReport | Unreachable, reason: str
):
    world = at_baseline()
    starts = world.last_run.status.cost.engine_starts
    world.plugin_fault = fault
    status = to_the_end(world).last_run.status
    assert status.outcome == RunOutcome.CERTIFIED
    assert status.cost.engine_starts == starts + 1
    assert told(world) == (ConditionStatus.FALSE, reason)


@pytest.mark.parametrize(
    "environment",
    [
        Environment({}, {"PYTHONPATH": Content.ANYTHING}),
        Environment({}, {"VLLM_PLUGINS": Content.ANYTHING}),
        Environment({}, completeness=Completeness.PARTIAL),
    ],
)
def test_what_the_container_may_have_set_is_never_replaced(environment: Environment):
    world = at_baseline()
    world.environment = environment
    world.tick()
    assert told(world) == (ConditionStatus.FALSE, run_live.NOT_DELIVERED)
    assert not world.clones[max(world.clones)].delivered


def test_a_change_that_lapses_under_the_stage_is_measured_again_on_an_engine_of_its_own():
    world = at_baseline()
    starts = world.last_run.status.cost.engine_starts
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("baseline-1-") and w._stage_runs())
    world.clones[max(world.clones)].live = None
    to_the_end(world)
    assert told(world) == (ConditionStatus.FALSE, run_live.LAPSED)
    assert world.last_run.status.cost.engine_starts == starts + 1
    assert [stage.setting for stage in of_kind(world, StageKind.BASELINE)] == [PRESENT]


def test_an_engine_that_is_silent_for_a_moment_under_load_loses_no_stage():
    world = at_baseline()
    starts = world.last_run.status.cost.engine_starts
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("baseline-1-") and w._stage_runs())
    world.plugin_fault = Unreachable("ReadTimeout")
    world.tick()
    world.plugin_fault = None
    to_the_end(world)
    assert told(world) == (ConditionStatus.TRUE, run_live.SET_LIVE)
    assert world.last_run.status.cost.engine_starts == starts


def test_an_engine_that_says_nothing_at_the_stages_end_is_not_believed():
    world = at_baseline()
    starts = world.last_run.status.cost.engine_starts
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("baseline-1-") and w._stage_runs())
    world.plugin_fault = Unreachable("ReadTimeout")
    to_the_end(world)
    assert told(world) == (ConditionStatus.FALSE, run_live.NO_ANSWER)
    assert world.last_run.status.cost.engine_starts == starts + 1


def test_no_restart_need_be_left_for_it():
    budget = {"budget": {"maxRestarts": 1}}
    with_it = to_the_end(at_baseline(PROFILE_SPEC | {"probe": budget | {"liveTuning": "Allowed"}}))
    without = to_the_end(at_baseline(PROFILE_SPEC | {"probe": budget}))
    assert of_kind(with_it, StageKind.BASELINE)
    assert not of_kind(without, StageKind.BASELINE)


def test_a_present_setting_above_the_choice_gets_an_engine_of_its_own():
    world = at_baseline(args=["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=2048"])
    starts = world.last_run.status.cost.engine_starts
    assert world.last_run.status.certifications[-1].setting.max_num_batched_tokens < 2048
    to_the_end(world)
    assert world.last_run.status.cost.engine_starts == starts + 1
    assert told(world) is None


@pytest.mark.parametrize("effect", list(Effect))
def test_an_operator_that_is_killed_at_any_effect_sets_it_all_the_same(effect: Effect):
    world = at_baseline()
    for _ in range(3):
        world.tick(effect)
    to_the_end(world)
    assert told(world) == (ConditionStatus.TRUE, run_live.SET_LIVE)
