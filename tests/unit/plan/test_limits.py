"""What a status holds has bounds: nothing that grows may pass them, since each tick would fail from then on."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from annotated_types import MaxLen

from kneekeeper.api.model import ApiModel, Setting
from kneekeeper.api.profile_status import KneeEstimate, Recommendation, ServingProfileStatus
from kneekeeper.api.tuning_run import RunStep, TuningRunStatus
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.domain.plan import (
    profile,
    profile_replicas,
    profile_rollout,
    profile_runs,
    profile_watch,
    retuning,
    run_clone,
    run_end,
    run_measure,
)
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions, find
from kneekeeper.domain.startup_failures import FailureKind, StartupFailure
from kneekeeper.domain.targets import patches
from tests.unit.plan.world import PROFILE_SPEC, START, World, at_step, settled
from tests.unit.stage_builders import summary


def longest(model: type[ApiModel], field: str) -> int:
    return next(m.max_length for m in model.model_fields[field].metadata if isinstance(m, MaxLen))


@pytest.mark.parametrize(
    ("model", "field", "kept"),
    [
        (TuningRunStatus, "stages", run_end.MAX_STAGES),
        (TuningRunStatus, "clone_failures", run_clone.MAX_FAILURES),
        (TuningRunStatus, "choices", run_measure.MAX_CERTIFICATIONS),
        (TuningRunStatus, "certifications", run_measure.MAX_CERTIFICATIONS),
        (ServingProfileStatus, "rejected", profile_rollout.MAX_REJECTED),
        (ServingProfileStatus, "runs", profile_runs.MOST_REFERENCES + 1),
        (ServingProfileStatus, "replicas", profile_replicas.MAX_REPLICAS),
        (ServingProfileStatus, "handled_retune", retuning.MAX_RETUNE_CHARACTERS),
        (Recommendation, "patch", patches.MAX_PATCH_CHARACTERS),
    ],
)
def test_the_plans_keep_no_more_than_a_status_holds(model: type[ApiModel], field: str, kept: int):
    assert kept <= longest(model, field)


def test_a_ceiling_that_fails_for_ever_keeps_the_newest_failures():
    status = TuningRunStatus()
    for n in range(40):
        failure = StartupFailure(FailureKind.UNKNOWN, None, f"failure {n} {'x' * 2000}", "Look.")
        status = run_clone.note_failure(status, Setting(max_num_seqs=1, max_num_batched_tokens=1), failure)
    assert status.clone_failures[-1].message.startswith("failure 39")


def test_lowering_the_ceiling_stops_with_the_budget_and_names_the_cause():
    class Failing(dict[Setting, str]):
        def get(self, key: Any, default: Any = "") -> str:
            return "torch.OutOfMemoryError: CUDA out of memory."

    spec = PROFILE_SPEC | {"parameters": {"maxNumSeqs": {"min": 1, "max": 65536}}}
    world = World(spec=spec, failing_starts=Failing())
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE)
    status = world.last_run.status
    assert (status.outcome, status.cause) == ("Failed", "OutOfMemory")
    assert status.cost.engine_starts <= 1 + 3
    assert "maxRestarts" in status.message


def test_a_run_with_as_many_stages_as_its_status_holds_ends():
    world = at_step(RunStep.RAMP)
    name = world.last_run.metadata["name"]
    stages = [summary(f"ramp-{n}") for n in range(run_end.MAX_STAGES)]
    world.runs[name] = world.last_run.with_changes(status=world.last_run.status.with_changes(stages=stages))
    world.run_until(lambda w: w.last_run.status.step == RunStep.DONE, limit_s=60)
    assert world.last_run.status.cause == "BudgetExhausted"
    assert not world.clones


def test_words_too_long_for_a_patch_are_recommended_all_the_same():
    template = "{% for message in messages %}" * 700
    args = ["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=2048", "--chat-template", template[:16_000]]
    world = World(args=args, spec=PROFILE_SPEC | {"updatePolicy": {"mode": "Recommend"}})
    world.settle()
    recommended = world.profile.status.recommendation
    assert recommended is not None
    assert shlex.split(recommended.patch, comments=True)[:5] == ["kubectl", "-n", "prod", "edit", "deployment"]


def test_the_patch_follows_words_that_were_changed_by_hand():
    world = settled(updatePolicy={"mode": "Recommend"})
    world.set_args(["serve", "tiny", "--max-num-seqs=5", "--max-num-batched-tokens=2048"], writer="alice")
    world.run_for(600)
    recommended = world.profile.status.recommendation
    assert recommended is not None
    assert "--max-num-seqs=5" in recommended.patch


@pytest.mark.parametrize("flag", ["--max-num-seqs=70000", "--max-num-batched-tokens=2000000"])
def test_a_present_limit_beyond_what_a_status_holds_is_refused_by_name(flag: str):
    world = World(args=["serve", "tiny", flag])
    world.run_for(120)
    found = find(world.profile.status.conditions, ConditionType.TARGET_FOUND)
    assert found is not None
    assert found.reason == "LimitTooLarge"
    assert flag.partition("=")[0] in found.message


def test_an_engine_argument_beyond_what_a_status_holds_is_refused():
    world = World(args=["serve", "tiny", "--served-model-name", "m" * 2000])
    world.run_for(120)
    found = find(world.profile.status.conditions, ConditionType.TARGET_FOUND)
    assert found is not None
    assert found.reason == "ArgumentTooLong"


def test_a_tiny_knee_far_exceeded_is_cut_to_what_a_status_holds():
    world = settled(updatePolicy={"mode": "Off"})
    knee = KneeEstimate(concurrency=0.0001, lower=0.0001, upper=0.0002)
    world.profile = world.profile.with_changes(status=world.profile.status.with_changes(knee=knee))
    seen = world.observe_profile()
    busy = EngineMetrics(5000, 5000, None, 0.0, 0.0)
    status = profile_watch.sum_up(
        type(seen)(**{**vars(seen), "pod_metrics": {p.name: busy for p in seen.pods or ()}}),
        world.profile.status,
        ProfileConditions(world.profile.status.conditions, 1, START),
        None,
    )
    assert status.replicas[0].headroom_percent == profile_replicas.LEAST_HEADROOM_PERCENT


def test_a_hundred_kept_runs_are_as_many_references_as_a_status_holds():
    world = settled(updatePolicy={"mode": "Off"}, runHistoryLimit=100)
    first = next(iter(world.runs.values()))
    for n in range(150):
        name = f"old-{n}"
        world.runs[name] = first.with_changes(metadata={**first.metadata, "name": name})
    status = profile.decide(world.observe_profile()).status
    assert len(status.runs) <= longest(ServingProfileStatus, "runs")
