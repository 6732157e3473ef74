from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.offered_load import Fixed
from kneekeeper.api.stage import Target
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import EngineMetrics, RunObservation, Unreachable
from kneekeeper.domain.recovery import LONGEST_DRAIN_S, WAKE_AFTER_S, Recovery, recovery, wake_stage
from tests.unit.plan.world import World, at_step

IDLE = EngineMetrics(0, 0, 100_000, 0.0, 0.0, kv_cache_usage=0.0)
FROZEN = EngineMetrics(99, 400, 100_000, 0.0, 0.0, kv_cache_usage=0.99)


def test_an_idle_engine_has_recovered_once_the_pause_is_over():
    assert recovery(IDLE, passed_s=1.9, pause_s=2.0) is Recovery.WAIT
    assert recovery(IDLE, passed_s=2.0, pause_s=2.0) is Recovery.OVER


@pytest.mark.parametrize(
    "busy", [replace(IDLE, running=1), replace(IDLE, waiting=1), replace(IDLE, kv_cache_usage=0.2)]
)
def test_what_runs_waits_or_holds_kv_blocks_is_waited_for_and_then_woken(busy):
    assert recovery(busy, passed_s=WAKE_AFTER_S - 1, pause_s=2.0) is Recovery.WAIT
    assert recovery(busy, passed_s=WAKE_AFTER_S, pause_s=2.0) is Recovery.WAKE


@pytest.mark.parametrize("metrics", [FROZEN, Unreachable("no answer"), None])
def test_no_gauge_holds_up_the_next_stage_for_longer_than_one_drain(metrics):
    assert recovery(metrics, passed_s=LONGEST_DRAIN_S, pause_s=2.0) is not Recovery.OVER
    assert recovery(metrics, passed_s=LONGEST_DRAIN_S + 0.1, pause_s=2.0) is Recovery.OVER


def test_an_engine_that_cannot_be_read_is_not_woken():
    assert recovery(Unreachable("no answer"), passed_s=10.0, pause_s=2.0) is Recovery.WAIT


def test_a_clock_that_was_set_back_is_no_reason_to_wait():
    assert recovery(FROZEN, passed_s=-5.0, pause_s=2.0) is Recovery.OVER


def test_an_engine_without_a_kv_gauge_is_judged_by_its_requests():
    assert recovery(replace(IDLE, kv_cache_usage=None), passed_s=3.0, pause_s=2.0) is Recovery.OVER


def test_waking_is_one_request_of_one_token():
    spec = wake_stage("wake-3-abc", Target(host="127.0.0.1", port=8000, model="m"))
    assert spec.limits.max_requests == 1
    assert spec.prompt_tokens == spec.output_tokens == Fixed(value=1)
    assert not spec.sequential


class FreezingWorld(World):
    """Each stage leaves the engine's gauges at a high value until the engine makes another step."""

    frozen = False
    woken = 0

    def observe_run(self, run: TuningRun) -> RunObservation:
        observed = super().observe_run(run)
        return replace(observed, clone_metrics=FROZEN) if self.frozen and observed.clone_metrics else observed

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        if isinstance(action, act.StartStage):
            wakes = action.spec.id.startswith("wake-")
            self.woken += wakes
            self.frozen = not wakes
        super().perform(action, run)


def test_gauges_that_freeze_after_each_stage_delay_a_run_by_seconds_a_stage():
    """Case R1: they neither block the next stage nor pass for a saturated engine, and waking leaves no trace."""
    world = FreezingWorld()
    world.run_until_step(RunStep.CHOOSE)
    ramp = world.last_run.status.stages
    usual = at_step(RunStep.CHOOSE).last_run.status.stages
    assert [stage.name for stage in ramp] == [stage.name for stage in usual]
    assert [stage.saturated for stage in ramp] == [stage.saturated for stage in usual]
    assert len(ramp) - 1 <= world.woken
    assert not any(key.rpartition("/")[2].startswith("wake-") for key in world.evidence)
