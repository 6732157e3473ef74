"""Runs without any load: started by consent alone, told as a prediction, and never written."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from kneekeeper.api.model import Condition
from kneekeeper.api.profile_status import RecommendationConfidence
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.cli.approve import approvable
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.show.listing import Detail
from kneekeeper.cli.show.status import profile_lines
from kneekeeper.domain.observation import Obstacle, ObstacleReason, Unreachable
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.views.curve import curve_view
from kneekeeper.domain.views.profile import profile_view
from kneekeeper.domain.views.twin import NoModelError, model_of
from tests.unit.history_builders import day
from tests.unit.plan.world import PROFILE_SPEC, World
from tests.unit.record_builders import record

SPEC: dict[str, Any] = PROFILE_SPEC | {
    "probe": {"allow": ["Passive"]},
    "parameters": {"maxNumSeqs": {"min": 40, "max": 56}, "maxNumBatchedTokens": {"min": 2048, "max": 2048}},
}
ARGS = ["serve", "tiny", "--max-num-seqs=128", "--max-num-batched-tokens=2048"]
BUSY = (record(day(2, 130)),)


def world(**values: Any) -> World:
    given: dict[str, Any] = {"spec": dict(SPEC), "args": list(ARGS), "spare_gpus": 0, "records": BUSY}
    return World(**(given | values))


def condition(seen: World, type_: ConditionType) -> Condition:
    found = find(seen.profile.status.conditions, type_)
    assert found is not None
    return found


@functools.cache
def _predicted() -> World:
    seen = world()
    seen.settle()
    return seen


def predicted() -> World:
    """A world whose profile, with Apply, has had its passive run."""
    return _predicted().forked()


def test_a_passive_run_predicts_a_setting_and_starts_nothing():
    seen = predicted()
    run = seen.last_run.status
    assert (run.step, run.outcome, run.cause) == (RunStep.DONE, RunOutcome.PREDICTED, "Predicted")
    assert seen.created == [seen.last_run.metadata["name"]]
    assert (run.stages, run.certifications, run.cost.engine_starts, run.cost.gpu_seconds) == ([], [], 0, 0)
    assert run.fit is not None
    assert run.fit.knee is not None
    succeeded = find(run.conditions, ConditionType.SUCCEEDED)
    assert succeeded is not None
    assert (succeeded.status, succeeded.reason) == ("True", "Predicted")
    assert "not proven" in run.message


def test_what_is_predicted_is_told_as_such_and_never_written_not_even_when_approved():
    seen = predicted()
    recommendation = seen.profile.status.recommendation
    assert recommendation is not None
    assert recommendation.confidence is RecommendationConfidence.PREDICTED
    assert recommendation.setting == seen.last_run.status.choices[-1].setting
    assert recommendation.promised_requests_per_second < recommendation.sustainable_requests_per_second
    assert recommendation.patch
    assert condition(seen, ConditionType.RECOMMENDED).reason == "Predicted"
    seen.annotate("kneekeeper.io/approve", recommendation.hash)
    seen.run_for(1200)
    assert condition(seen, ConditionType.APPLIED).reason == "NotProven"
    assert seen.writes == []


def test_what_is_predicted_promises_no_capacity_to_scalers():
    replicas = predicted().profile.status.replicas
    assert replicas
    assert all(replica.capacity_requests_per_second is None for replica in replicas)


def test_it_is_shown_as_predicted_and_offers_nothing_to_approve():
    seen = predicted()
    view = profile_view(seen.profile, list(seen.runs.values()), ())
    assert view is not None
    assert view.recommendation is not None
    assert view.recommendation.confidence == "Predicted"
    assert view.row.capacity_requests_per_second is None
    told = "\n".join(line.plain for line in profile_lines(view, Detail.WIDE, seen.now))
    assert "predicted" in told
    assert "kneekeeper diff" in told
    assert "kneekeeper approve" not in told
    with pytest.raises(CannotError, match="not proven"):
        approvable(seen.profile, None)


def test_a_run_without_stages_has_no_curve_and_no_model_to_ask():
    run = predicted().last_run
    assert curve_view(run, None).levels == ()
    with pytest.raises(NoModelError):
        model_of(run)


def test_a_prediction_that_its_user_writes_is_in_force():
    seen = predicted()
    recommendation = seen.profile.status.recommendation
    assert recommendation is not None
    seen.set_args(["serve", "tiny", f"--max-num-seqs={recommendation.setting.max_num_seqs}", ARGS[-1]])
    seen.run_for(600)
    assert condition(seen, ConditionType.APPLIED).status == "True"
    assert len(seen.created_runs) == 1


def test_a_prediction_asks_for_no_other_run():
    seen = predicted()
    seen.run_for(8 * 3600)
    assert len(seen.created_runs) == 1


def test_another_allowed_way_asks_anew_and_what_it_proves_takes_the_place():
    seen = predicted()
    seen.spare_gpus = 1
    seen.edit_profile(probe={"allow": ["Clone"]})
    seen.run_until(lambda w: len(w.created_runs) == 2 and bool(w.clones))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (None, "MetricsMissing"),
        ((), "MetricsMissing"),
        (Unreachable("http://prometheus: it did not answer in time"), "MetricsMissing"),
        ((record(day(2, 130), kv_cache_tokens=None),), "MetricsMissing"),
        ((record(day(1, 10)),), "NotObserved"),
        ((record(np.full(288, 60.0)),), "NotObserved"),
    ],
)
def test_a_run_waits_and_says_why_where_production_does_not_show_enough(records: Any, reason: str):
    seen = world(records=records)
    seen.run_for(1800)
    run = seen.last_run.status
    assert (run.step, run.waiting_for) == (RunStep.PREFLIGHT, reason)
    assert "Nothing was touched" in run.message
    assert "add Clone or BorrowReplica" in run.message
    assert (condition(seen, ConditionType.PROBING).status, condition(seen, ConditionType.PROBING).reason) == (
        "False",
        reason,
    )


def test_a_run_that_waits_for_traffic_looks_rarely():
    seen = world(records=(record(day(1, 10)),))
    seen.run_for(60)
    assert seen.tick_run(seen.last_run.metadata["name"]) >= 600


def test_what_production_shows_no_more_when_the_run_chooses_ends_it():
    seen = world()
    seen.run_until_step(RunStep.CHOOSE)
    seen.records = Unreachable("http://prometheus: HTTP 503")
    seen.settle()
    run = seen.last_run.status
    assert (run.outcome, run.cause) == (RunOutcome.INCONCLUSIVE, "MetricsMissing")


def test_a_setting_that_is_predicted_to_be_hardly_better_is_not_recommended():
    seen = world(args=["serve", "tiny", "--max-num-seqs=48", "--max-num-batched-tokens=2048"])
    seen.settle()
    run = seen.last_run.status
    assert (run.outcome, run.cause) == (RunOutcome.NO_IMPROVEMENT, "ImprovementNotPredicted")
    assert seen.profile.status.recommendation is None


def test_it_is_used_in_the_order_in_which_it_is_listed():
    first = world(spec=SPEC | {"probe": {"allow": ["Clone", "Passive"]}}, spare_gpus=1)
    first.run_until(lambda w: bool(w.clones))
    second = world(spec=SPEC | {"probe": {"allow": ["Clone", "Passive"]}})
    second.run_until_step(RunStep.CHOOSE)
    assert not second.clones


def test_what_forbids_a_clone_does_not_forbid_a_passive_run():
    obstacle = Obstacle(ObstacleReason.QUOTA_EXCEEDED, "The quota has no room. Raise it.")
    seen = world(spec=SPEC | {"probe": {"allow": ["Clone", "Passive"]}}, spare_gpus=1, obstacle=obstacle)
    seen.run_until_step(RunStep.CHOOSE)


def test_an_engine_that_decodes_speculatively_is_not_predicted():
    drafts = '--speculative-config={"method":"ngram","num_speculative_tokens":2}'
    workload = {**PROFILE_SPEC["workload"], "prompts": {"configMapRef": {"name": "prompts"}}}
    seen = world(args=[*ARGS, drafts], spec=SPEC | {"workload": workload})
    seen.run_for(120)
    assert seen.last_run.status.waiting_for == "NotObserved"
    assert "speculatively" in seen.last_run.status.message


def test_an_api_key_is_not_needed_where_nothing_is_sent():
    seen = world(args=[*ARGS, "--api-key=secret"])
    seen.run_until_step(RunStep.CHOOSE)


def test_an_engine_that_production_does_not_keep_full_has_no_most_tokens():
    spec = {name: part for name, part in SPEC.items() if name != "slo"} | {"objective": "Throughput"}
    problem = spec_problem(ServingProfileSpec.model_validate(spec))
    assert problem is not None
    assert "spec.probe.allow Passive" in problem.message
