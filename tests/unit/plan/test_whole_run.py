"""The state machines together, in the injected world, from a new profile to a verified setting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.observation import Owner
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, Effect, World, settled

TOO_LARGE = "torch.OutOfMemoryError: CUDA out of memory occurred when warming up sampler with {n} dummy requests."
WIDE = PROFILE_SPEC | {
    "parameters": {"maxNumSeqs": {"min": 1, "max": 128}, "maxNumBatchedTokens": {"min": 256, "max": 4096}}
}
BLOCKS = "ValueError: max_num_seqs ({n}) exceeds available Mamba cache blocks ({k}). Please lower max_num_seqs"


def condition(world: World, type_: ConditionType):
    found = find(world.profile.status.conditions, type_)
    assert found is not None, f"{type_} was never set"
    return found


def test_a_profile_looks_soon_for_the_run_that_it_makes_and_seldom_at_one_that_measures():
    world = World()
    assert world.tick_profile() == profile_plan.ACTIVE_TICK_S
    world.run_until_step(RunStep.RAMP)
    assert world.tick_profile() == profile_plan.MEASURING_TICK_S


def test_a_new_profile_ends_with_a_better_setting_in_force():
    world = settled()
    run = world.last_run.status
    assert run.outcome == RunOutcome.CERTIFIED, run.message
    assert condition(world, ConditionType.APPLIED).status == "True"
    assert condition(world, ConditionType.READY).status == "True"
    assert world.profile.status.applied is not None
    assert world.profile.status.applied.setting == run.certifications[-1].setting
    assert [kind for kind, _ in world.writes] == ["words"]
    assert not world.clones
    assert world.agent_since is None


def test_every_decided_stage_has_its_samples_stored():
    world = settled()
    name = world.last_run.metadata["name"]
    assert {f"{name}/{s.name}" for s in world.last_run.status.stages} == set(world.evidence)


@pytest.mark.parametrize("mode", ["Recommend", "Off"])
def test_only_apply_mode_writes(mode: str):
    world = settled(updatePolicy={"mode": mode})
    assert world.profile.status.recommendation is not None
    assert world.writes == []


def test_an_approved_recommendation_is_applied_in_recommend_mode():
    world = settled(updatePolicy={"mode": "Recommend", "verifyFor": "10s"})
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    world.annotate("kneekeeper.io/approve", "another-hash")
    world.run_for(600)
    assert world.writes == []
    world.annotate("kneekeeper.io/approve", recommendation.hash)
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]


def test_a_day_of_quiet_starts_no_second_run():
    world = settled()
    world.run_for(timedelta(hours=24).total_seconds())
    assert len(world.runs) == 1
    assert len(world.writes) == 1


def test_a_recommendation_merged_by_hand_starts_no_run():
    world = settled(updatePolicy={"mode": "Recommend"})
    setting = world.last_run.status.certifications[-1].setting
    world.set_args(
        [
            "serve",
            "tiny",
            f"--max-num-seqs={setting.max_num_seqs}",
            f"--max-num-batched-tokens={setting.max_num_batched_tokens}",
        ]
    )
    world.run_for(timedelta(hours=24).total_seconds())
    assert len(world.runs) == 1
    assert condition(world, ConditionType.READY).status == "True"


def test_another_argument_edited_by_hand_starts_a_run():
    world = settled()
    world.set_args([*world.args, "--enable-prefix-caching"])
    world.settle()
    assert [r.spec.trigger for r in world.runs.values()] == ["New", "Arguments"]


def test_a_new_image_starts_a_run():
    world = settled()
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.settle()
    assert [r.spec.trigger for r in world.runs.values()] == ["New", "Image"]


def test_limits_changed_by_hand_are_drift_and_left_alone():
    world = settled()
    world.set_args(["serve", "tiny", "--max-num-seqs=99", "--max-num-batched-tokens=2048"], writer="alice")
    world.run_for(timedelta(hours=24).total_seconds())
    assert len(world.runs) == 1
    assert [kind for kind, _ in world.writes] == ["words"]
    drifted = condition(world, ConditionType.DRIFTED)
    assert drifted.status == "True"
    assert "alice" in drifted.message


def test_a_setting_that_crashes_is_withdrawn_once_and_not_tried_again():
    world = World(crashing_rollouts=True)
    before = list(world.args)
    world.settle()
    world.run_for(timedelta(hours=24).total_seconds())
    assert world.args == before
    assert [kind for kind, _ in world.writes] == ["words", "words"]
    degraded = condition(world, ConditionType.DEGRADED)
    assert degraded.reason == "RolledBack"
    assert "out of memory" in degraded.message
    assert len(world.runs) == 1


def test_a_ceiling_that_does_not_start_is_lowered_to_the_limit_that_the_log_names():
    ceiling = Setting(max_num_seqs=128, max_num_batched_tokens=4096)
    world = World(spec=WIDE, failing_starts={ceiling: BLOCKS.format(n=128, k=100)})
    world.settle()
    run = world.last_run.status
    assert run.outcome == RunOutcome.CERTIFIED, run.message
    assert [f.setting for f in run.clone_failures] == [ceiling]
    assert run.stages[0].setting.max_num_seqs == 96
    assert run.stages[0].setting.max_num_batched_tokens == 4096


def test_without_a_named_limit_both_are_halved():
    ceiling = Setting(max_num_seqs=128, max_num_batched_tokens=4096)
    world = World(spec=WIDE, failing_starts={ceiling: "torch.OutOfMemoryError: CUDA out of memory."})
    world.settle()
    assert world.last_run.status.stages[0].setting == Setting(max_num_seqs=64, max_num_batched_tokens=2048)


def test_an_engine_that_never_starts_ends_the_run_with_the_cause():
    class Failing(dict[Setting, str]):
        def get(self, key, default=""):
            return (
                "ERROR: VLLM_PORT 'tcp://10.96.0.9:80' appears to be a URI. This may be caused by a Kubernetes service"
            )

    world = World(failing_starts=Failing())
    world.settle()
    run = world.last_run.status
    assert run.outcome == RunOutcome.FAILED
    assert run.cause == "ServicePortEnv"
    assert world.writes == []
    assert not world.clones


def test_with_one_replica_and_no_spare_gpu_nothing_is_touched_and_the_choices_are_named():
    world = World(replicas=1, spare_gpus=0, replicas_at_start=1)
    world.run_for(3600)
    probing = condition(world, ConditionType.PROBING)
    assert (probing.status, probing.reason) == ("False", "NoSpareGPU")
    assert "allowScaleUp" in probing.message
    assert world.writes == []
    assert not world.clones


def test_a_replica_is_borrowed_and_given_back():
    spec = PROFILE_SPEC | {
        "probe": {"allow": ["Clone", "BorrowReplica"]},
        "updatePolicy": {"mode": "Recommend"},
    }
    world = World(spec=spec, spare_gpus=0)
    world.settle()
    assert world.writes == [("replicas", 1), ("replicas", 2)]
    assert world.last_run.status.outcome == RunOutcome.CERTIFIED


def test_a_borrowed_replica_goes_back_at_once_when_requests_wait():
    spec = PROFILE_SPEC | {"probe": {"allow": ["BorrowReplica"]}}
    world = World(spec=spec, spare_gpus=0)
    world.run_for(60)
    assert world.replicas == 1
    world.production_waiting = 50
    world.run_for(20)
    assert world.replicas == 2
    assert world.last_run.status.cause == "ProductionNeedsReplica"


def test_replicas_set_by_somebody_else_meanwhile_stand():
    spec = PROFILE_SPEC | {"probe": {"allow": ["BorrowReplica"]}}
    world = World(spec=spec, spare_gpus=0)
    world.run_for(60)
    world.replicas = 5
    world.settle()
    assert world.replicas == 5


def test_a_workload_of_another_controller_is_never_written():
    world = World(owner=Owner("InferenceService", "chat"))
    world.settle()
    assert world.writes == []
    assert condition(world, ConditionType.APPLIED).reason == "OwnedByOther"


def test_deleting_the_profile_in_mid_run_leaves_nothing():
    world = World()
    world.run_for(90)
    assert world.clones
    world.profile_deleting = True
    for _ in range(20):
        world.tick()
        world.now += timedelta(seconds=2)
    assert not world.runs
    assert not world.clones
    assert world.agent_since is None


@pytest.mark.parametrize(("policy", "restored"), [("Restore", True), ("Keep", False)])
def test_deleting_the_profile_restores_the_arguments_when_asked_to(policy: str, restored: bool):
    world = settled(deletionPolicy=policy)
    before = world.original_args
    assert world.args != before
    world.profile_deleting = True
    for _ in range(20):
        world.tick()
        world.now += timedelta(seconds=2)
    assert (world.args == before) is restored


def test_an_edit_of_the_targets_in_mid_run_starts_the_run_anew():
    world = World()
    world.run_for(90)
    world.edit_profile(slo={"p99TPOT": "20ms"})
    world.settle()
    outcomes = [(r.status.outcome, r.status.cause) for r in world.runs.values()]
    assert outcomes[0] == (RunOutcome.CANCELLED, "ProfileChanged")
    assert outcomes[1][0] == RunOutcome.CERTIFIED


def test_an_edit_of_the_update_policy_does_not_disturb_a_run():
    world = World(spec=PROFILE_SPEC | {"updatePolicy": {"mode": "Recommend"}})
    world.run_for(90)
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "10s"})
    world.settle()
    assert len(world.runs) == 1
    assert [kind for kind, _ in world.writes] == ["words"]


def test_a_profile_without_an_engine_container_writes_nothing():
    world = World(args=["--flag"], image="nginx:1")
    world.run_for(600)
    assert condition(world, ConditionType.TARGET_FOUND).status == "False"
    assert condition(world, ConditionType.READY).status == "False"
    assert not world.runs
    assert world.writes == []


def test_an_impossible_target_is_said_and_nothing_is_written():
    world = World(spec=PROFILE_SPEC | {"slo": {"p99TPOT": "1ms"}})
    world.settle()
    assert world.last_run.status.outcome == RunOutcome.IMPOSSIBLE_SLO
    assert condition(world, ConditionType.RECOMMENDED).reason == "ImpossibleSLO"
    assert world.writes == []


BORROW = PROFILE_SPEC | {"probe": {"allow": ["Clone", "BorrowReplica"]}}


@pytest.mark.parametrize(("effect", "borrow"), [(Effect.EVIDENCE, False), (Effect.STATUS, True)])
def test_an_operator_killed_at_every_tick_in_turn_ends_the_same(effect: Effect, borrow: bool):
    """Each tick is cut off once behind `effect` before it is done whole, from the first to the last."""
    calm = World(spec=BORROW, spare_gpus=0 if borrow else 1)
    calm.settle()
    shaky = World(spec=BORROW, spare_gpus=0 if borrow else 1)
    for _ in range(6000):
        shaky.tick(crash_after=effect)
        wait = shaky.tick()
        shaky.now += timedelta(seconds=max(0.5, min(wait, 30.0)))
        if shaky.profile.status.applied is not None:
            break
    assert shaky.profile.status.applied is not None
    assert shaky.profile.status.applied.setting == calm.profile.status.applied.setting  # type: ignore[union-attr]
    assert len(shaky.created) == len(set(shaky.created))
    assert sorted(shaky.created) == sorted(calm.created)
    assert [kind for kind, _ in shaky.writes] == [kind for kind, _ in calm.writes]
    assert shaky.replicas == 2
    assert not shaky.clones
    assert all(r.status.step == RunStep.DONE for r in shaky.runs.values())
