"""Objective Throughput, from a new profile to the setting in force: the most tokens, and no latency judged."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, StageKind, Verdict
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, World, settled

BATCH: dict[str, Any] = {"objective": "Throughput", "slo": {}}


def reason(world: World, type_: ConditionType) -> str:
    found = find(world.profile.status.conditions, type_)
    assert found is not None
    return found.reason


def test_a_batch_ends_with_more_tokens_proven_and_in_force():
    world = settled(**BATCH)
    status, recommendation = world.last_run.status, world.profile.status.recommendation
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "Certified"), status.message
    [proven] = status.certifications
    certified = next(s for s in status.stages if s.kind is StageKind.CERTIFY)
    present = next(s for s in status.stages if s.kind is StageKind.BASELINE)
    lower, upper = certified.output_tokens_per_second_lower, present.output_tokens_per_second_upper
    assert lower is not None
    assert upper is not None
    assert proven.promised_output_tokens_per_second == lower
    assert status.improvement_percent == int(100 * (lower / upper - 1)) >= 5
    assert status.present_breaks_slo is False
    assert recommendation is not None
    assert recommendation.promised_output_tokens_per_second == lower
    assert recommendation.raises_capacity
    assert recommendation.p99_ttft is None
    assert [kind for kind, _ in world.writes] == ["words"]
    assert reason(world, ConditionType.APPLIED) == "InForce"
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def test_both_settings_of_a_batch_meet_the_same_full_load_and_no_open_loop_is_sent():
    world = settled(**BATCH)
    status = world.last_run.status
    loads = [spec.arrivals for spec in world.ordered if spec.id.startswith(("certify", "baseline"))]
    assert loads[0] == loads[-1]
    assert isinstance(loads[0], Closed)
    assert loads[0].users > max(status.choices[-1].setting.max_num_seqs, 4)
    assert not any(spec.sequential for spec in world.ordered)
    assert all(isinstance(spec.arrivals, Closed) for spec in world.ordered)


def test_the_declared_users_of_a_batch_are_offered_and_no_place_is_made_for_more():
    workload = PROFILE_SPEC["workload"] | {"arrivals": {"process": "Closed", "users": 6}}
    world = settled(**BATCH, workload=workload)
    status = world.last_run.status
    assert [s.users for s in status.stages if s.kind is StageKind.CERTIFY] == [6]
    assert status.choices[-1].setting.max_num_seqs <= 8


def test_a_batch_whose_present_setting_is_as_good_is_left_alone():
    best = settled(**BATCH, updatePolicy={"mode": "Off"}).last_run.status.certifications[-1].setting
    near = best.with_changes(max_num_seqs=best.max_num_seqs + 1)
    limits = [f"--max-num-seqs={near.max_num_seqs}", f"--max-num-batched-tokens={near.max_num_batched_tokens}"]
    world = World(spec=PROFILE_SPEC | BATCH, args=["serve", "tiny", *limits])
    world.settle()
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.NO_IMPROVEMENT, "ImprovementNotShown"), status.message
    assert world.writes == []


def test_a_batch_whose_proof_fails_is_not_recommended():
    world = World(spec=PROFILE_SPEC | BATCH, failing="certify")
    world.settle()
    assert world.profile.status.recommendation is None
    assert all(c.verdict is not Verdict.PASS for c in world.last_run.status.certifications)
    assert world.writes == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"slo": {"p99TPOT": "40ms"}}, "spec.slo"),
        ({"retune": {"on": ["SLOBreach"]}}, "SLOBreach"),
        (
            {
                "workload": {
                    **PROFILE_SPEC["workload"],
                    "traceRef": {"configMapRef": {"name": "t", "key": "t.jsonl"}},
                    "arrivals": {"process": "Trace", "traceTime": "RealTime"},
                }
            },
            "RealTime",
        ),
    ],
)
def test_what_contradicts_a_batch_is_refused_by_name(changes: dict[str, Any], named: str):
    problem = spec_problem(ServingProfileSpec.model_validate(PROFILE_SPEC | BATCH | changes))
    assert problem is not None
    assert problem.reason == "InvalidObjective"
    assert named in problem.message
