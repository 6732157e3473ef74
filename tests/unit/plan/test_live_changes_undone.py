"""Production that was switched live, and is no more: how the plugin goes, and what others do to it meanwhile."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.domain.actions import WriteWords
from kneekeeper.domain.observation import Unreachable
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.domain.plan.profile import decide
from kneekeeper.domain.plan.profile_live import NO_ANSWER
from kneekeeper.livetune.limits import Refusal
from kneekeeper.livetune.messages import PROTOCOL, Report
from tests.unit.plan.hourly_live_world import (
    CEILING,
    SILENT,
    HourlyLive,
    is_delivered,
    present,
    started,
    told,
    two_mixes,
)
from tests.unit.plan.live_world import ALLOWED
from tests.unit.plan.test_schedules import AT_MORNING, DAY, go_to

UNSUPPORTED = Report(PROTOCOL, "0.99.0", unsupported=Refusal("UnsupportedVersion", "vLLM 0.99.0 is not known."))


@pytest.mark.parametrize("fault", [UNSUPPORTED, SILENT])
def test_where_the_pods_do_not_confirm_the_plugin_goes_and_the_setting_stays_in_the_words(fault: Report | Unreachable):
    world = HourlyLive(plugin_says=fault)
    world.run_for(3600)
    assert world.template == world.original | {"spec": world.template["spec"]}
    assert not is_delivered(world)
    assert started(world) == ["--max-num-seqs=24", "--max-num-batched-tokens=1536"]
    assert world.template_writes == 2
    assert told(world)[0] == ConditionStatus.FALSE
    assert told(world, ConditionType.APPLIED)[0] == ConditionStatus.TRUE
    go_to(world, 0, 7.1)
    assert present(world) == AT_MORNING
    assert not is_delivered(world)
    trouble = world.profile.status.live_trouble
    assert trouble is not None
    assert trouble.given_up
    assert world.profile.status.rejected == []


def test_an_image_that_the_plugin_does_not_know_runs_with_what_is_in_force_at_once():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.plugin_says = UNSUPPORTED
    world.run_for(600)
    assert not is_delivered(world)
    assert present(world) == AT_MORNING
    assert started(world) == ["--max-num-seqs=8", "--max-num-batched-tokens=512"]


def test_pods_that_are_silent_for_a_moment_lose_nothing():
    world = two_mixes()
    world.plugin_says = SILENT
    world.run_for(100)
    world.tick_profile()
    assert told(world) == (ConditionStatus.FALSE, NO_ANSWER)
    world.plugin_says = None
    world.run_for(600)
    assert told(world) == (ConditionStatus.TRUE, "SetLive")
    assert world.template_writes == 1


def test_after_a_run_that_a_person_asked_for_it_is_tried_again():
    world = HourlyLive(plugin_says=UNSUPPORTED)
    world.run_for(3600)
    assert not is_delivered(world)
    world.plugin_says = None
    world.annotate("kneekeeper.io/retune", "again")
    world.run_for(3000)
    go_to(world, 0, 7.1)
    world.run_for(600)
    assert is_delivered(world)
    assert told(world) == (ConditionStatus.TRUE, "SetLive")


def test_without_leave_the_plugin_goes_and_what_is_in_force_stays():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.edit_profile(updatePolicy=ALLOWED | {"liveChanges": "Disabled"})
    world.run_for(120)
    assert not is_delivered(world)
    assert present(world) == AT_MORNING
    assert told(world)[1] == "Disabled"
    template = deepcopy(world.template)
    template["spec"]["containers"][0]["args"] = world.original["spec"]["containers"][0]["args"]
    assert template == world.original


@pytest.mark.parametrize("policy", ["Keep", "Restore"])
def test_a_deleted_profile_leaves_no_plugin(policy: str):
    world = two_mixes(deletionPolicy=policy)
    go_to(world, 0, 7.1)
    world.profile_deleting = True
    world.run_for(60)
    assert not is_delivered(world)
    if policy == "Restore":
        assert world.template == world.original
    else:
        assert started(world) == ["--max-num-seqs=8", "--max-num-batched-tokens=512"]


def test_a_suspended_profile_switches_nothing_and_takes_nothing_out():
    world = two_mixes()
    world.edit_profile(suspend=True)
    go_to(world, 0, 7.5)
    assert is_delivered(world)
    assert present(world) == DAY


def test_what_others_make_of_the_template_is_kept_when_the_plugin_goes():
    world = two_mixes()
    world.engine["env"].insert(0, {"name": "THEIRS", "value": "1"})
    world.template["spec"]["volumes"].append({"name": "theirs", "emptyDir": {}})
    world.edit_profile(updatePolicy=ALLOWED | {"liveChanges": "Disabled"})
    world.run_for(600)
    assert not is_delivered(world)
    assert [v["name"] for v in world.engine["env"]] == ["THEIRS", "HF_HOME", "PASSWORD"]
    assert world.template["spec"]["volumes"] == [{"name": "theirs", "emptyDir": {}}]
    assert "initContainers" not in world.template["spec"]


def test_words_that_somebody_edits_hold_and_count_as_drift():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.set_args(["serve", "tiny", "--max-num-seqs=6", "--max-num-batched-tokens=2048"])
    world.plugin_says = Report(PROTOCOL, "0.32.0", unsupported=Refusal("StartedOtherwise", "Its own values hold."))
    world.run_for(600)
    assert present(world) == Setting(max_num_seqs=6, max_num_batched_tokens=2048)
    assert told(world, ConditionType.DRIFTED) == (ConditionStatus.TRUE, "ChangedByOther")
    assert told(world) == (ConditionStatus.FALSE, "WordsChanged")
    go_to(world, 0, 11.2)
    assert present(world) == Setting(max_num_seqs=6, max_num_batched_tokens=2048)
    assert world.template_writes == 1


def test_a_template_without_the_plugin_declares_what_its_words_say():
    world = two_mixes()
    world.template = deepcopy(world.original)
    world.set_args(["serve", "tiny", "--max-num-seqs=32", "--max-num-batched-tokens=2048"])
    world.run_for(120)
    assert present(world) == CEILING
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.TRUE


def test_a_config_map_that_somebody_changes_is_drift_and_one_that_is_gone_or_wrong_is_made_again():
    world = two_mixes()
    world.set_limits_map('{"max_num_seqs": 5, "max_num_batched_tokens": 400}')
    world.run_for(400)
    assert present(world) == Setting(max_num_seqs=5, max_num_batched_tokens=400)
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.TRUE
    for text in (None, "not json", '{"max_num_seqs": 500, "max_num_batched_tokens": 400}'):
        world = two_mixes()
        world.set_limits_map(text)
        world.run_for(600)
        assert present(world) == DAY
        assert world.limits_map() == '{"max_num_seqs": 24, "max_num_batched_tokens": 1536}'


def test_pods_that_crash_with_the_plugins_rollout_get_their_template_back():
    world = HourlyLive(crashing_rollouts=True)
    world.run_for(1200)
    assert world.template == world.original
    assert [r.setting for r in world.profile.status.rejected][-1] == DAY


def test_an_image_that_does_not_start_with_the_plugins_pair_is_started_with_what_is_in_force():
    world = two_mixes()
    world.set_image("vllm/vllm-openai:v0.33.0")
    log = "ValueError: max_num_seqs (32) exceeds available Mamba cache blocks (28). Each decode sequence requires one."
    seen = world.observe_profile()
    assert seen.workload is not None
    stuck = replace(seen.workload, updated_replicas=0)
    old, new = seen.pods or ()
    old = replace(old, image="vllm/vllm-openai:v0.32.0", image_id="old")
    new = replace(new, ready=False, restarts=1, exit_code=1, log_tail=log, words=stuck.containers[0].words)
    decision = decide(replace(seen, workload=stuck, pods=(old, new), live={}))
    [write] = [action for action in decision.actions if isinstance(action, WriteWords)]
    world.perform(write)
    assert not is_delivered(world)
    assert started(world) == ["--max-num-seqs=24", "--max-num-batched-tokens=1536"]
