"""An upgrade that makes the present setting invalid is told, or mended, while the old pods still serve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import Rejected
from kneekeeper.domain.actions import WriteWords
from kneekeeper.domain.observation import Owner, PodView, ProfileObservation
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.profile_upgrade import setting_that_starts
from kneekeeper.domain.startup_failures import classify
from tests.unit.plan.pods import digest_behind
from tests.unit.plan.world import START, World, settled

PRESENT = Setting(max_num_seqs=256, max_num_batched_tokens=2048)
BLOCKS = "ValueError: max_num_seqs (4) exceeds available Mamba cache blocks (3). Please lower max_num_seqs"
NEW_IMAGE = "vllm/vllm-openai:v0.33.0"


@pytest.mark.parametrize(
    ("log", "fix"),
    [
        (
            "max_num_seqs (256) exceeds available Mamba cache blocks (100).",
            Setting(max_num_seqs=96, max_num_batched_tokens=2048),
        ),
        (
            "max_num_batched_tokens (2048) is smaller than max_model_len (8192)",
            Setting(max_num_seqs=256, max_num_batched_tokens=8192),
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", None),
        ("error: unrecognized arguments: --max-num-seqs=256", None),
        ("max_num_seqs (256) exceeds available Mamba cache blocks (0).", None),
    ],
)
def test_only_a_number_that_the_log_names_is_a_fix(log: str, fix: Setting | None):
    assert setting_that_starts(classify(log), PRESENT) == fix


def upgrading(world: World, log: str) -> ProfileObservation:
    """The first new pod has failed once; the old ones serve."""
    old = world.pods()
    world.set_image(NEW_IMAGE)
    seen = world.observe_profile()
    assert seen.workload is not None
    new: PodView = replace(
        old[0], name="chat-new", ready=False, exit_code=1, log_tail=log, image=NEW_IMAGE, image_id=digest_behind("new")
    )
    return replace(seen, pods=(*old, new), workload=replace(seen.workload, updated_replicas=1, total_replicas=3))


def test_the_fix_is_proposed_from_the_first_failure():
    decision = profile_plan.decide(upgrading(settled(updatePolicy={"mode": "Recommend"}), BLOCKS))
    told = find(decision.status.conditions, ConditionType.DEGRADED)
    assert told is not None
    assert (told.status, told.reason) == ("True", "MambaBlocks")
    assert "--max-num-seqs=2 " in told.message
    assert decision.status.rollout is None


def test_in_apply_mode_the_fix_is_written_with_what_stood_there_kept():
    world = settled(updatePolicy={"mode": "Recommend"})
    world.edit_profile(updatePolicy={"mode": "Apply"})
    decision = profile_plan.decide(upgrading(world, BLOCKS))
    rollout = decision.status.rollout
    assert rollout is not None
    assert rollout.setting == Setting(max_num_seqs=2, max_num_batched_tokens=2048)
    assert rollout.before == world.words
    assert [a.after for a in decision.actions if isinstance(a, WriteWords)] == [rollout.after]


@pytest.mark.parametrize("case", ["owned", "suspended", "out of bounds", "tried before", "no number"])
def test_no_fix_is_written_that_somebody_forbids_or_nobody_knows(case: str):
    world = settled(updatePolicy={"mode": "Recommend"})
    world.edit_profile(updatePolicy={"mode": "Apply"})
    if case == "owned":
        world.owner = Owner("Helm", "chat")
    if case == "suspended":
        world.edit_profile(suspend=True)
    if case == "out of bounds":
        world.edit_profile(parameters={"maxNumSeqs": {"min": 4}})
    seen = upgrading(world, "CUDA out of memory" if case == "no number" else BLOCKS)
    if case == "tried before":
        first = profile_plan.decide(seen).status
        assert first.rollout is not None
        assert first.engine is not None
        tried = Rejected(setting=first.rollout.setting, fingerprint=first.engine.fingerprint, cause="", at=START)
        status = seen.profile.status.with_changes(rejected=[tried])
        seen = replace(seen, profile=seen.profile.with_changes(status=status))
    decision = profile_plan.decide(seen)
    assert decision.status.rollout is None
    degraded = find(decision.status.conditions, ConditionType.DEGRADED)
    assert degraded is not None
    assert degraded.status == "True"


def test_the_warning_goes_with_the_failing_pod():
    world = settled(updatePolicy={"mode": "Recommend"})
    decision = profile_plan.decide(upgrading(world, BLOCKS))
    world.profile = world.profile.with_changes(status=decision.status)
    mended = find(profile_plan.decide(world.observe_profile()).status.conditions, ConditionType.DEGRADED)
    assert mended is not None
    assert mended.status == "False"
